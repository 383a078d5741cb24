//! What all servers over TLS show in a run: one certificate of ECDSA P-256, signed by itself, and
//! its key, as files that are there as long as this is.

use std::fs;
use std::io;
use std::path::PathBuf;

use rcgen::{CertifiedKey, generate_simple_self_signed};
use rustls::pki_types::CertificateDer;
use tempfile::TempDir;

/// The names it is for.
const NAMES: [&str; 2] = ["localhost", "127.0.0.1"];

/// See the module.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
    /// What clients must be shown.
    pub(crate) der: CertificateDer<'static>,
    _directory: TempDir,
}

impl Pair {
    /// Makes both.
    ///
    /// # Errors
    /// No randomness, no temporary directory.
    pub(crate) fn make() -> io::Result<Self> {
        // rcgen's keys are of P-256 unless another curve is asked for.
        let made = generate_simple_self_signed(NAMES.map(String::from));
        let CertifiedKey { cert, signing_key } = made.map_err(io::Error::other)?;
        let directory = tempfile::tempdir()?;
        let certificate = directory.path().join("certificate.pem");
        let key = directory.path().join("key.pem");
        fs::write(&certificate, cert.pem())?;
        fs::write(&key, signing_key.serialize_pem())?;
        Ok(Self {
            certificate,
            key,
            der: cert.der().clone(),
            _directory: directory,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::SignatureScheme;
    use rustls::crypto::ring::sign::any_supported_type;
    use rustls::pki_types::PrivateKeyDer;
    use rustls::pki_types::pem::PemObject;

    #[test]
    fn the_files_are_the_certificate_and_a_key_of_p256() {
        let pair = Pair::make().expect("made");
        let read = CertificateDer::from_pem_file(&pair.certificate);
        assert_eq!(read.expect("a certificate"), pair.der);
        let key = PrivateKeyDer::from_pem_file(&pair.key).expect("a key");
        let key = any_supported_type(&key).expect("for signatures");
        let offered = [SignatureScheme::ECDSA_NISTP256_SHA256];
        assert!(key.choose_scheme(&offered).is_some(), "{key:?}");
    }
}
