//! A certificate with its key, and what the log and the metrics say about it.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use flatpath::tls::provider;
use flatpath::tls::rustls::pki_types::pem::PemObject;
use flatpath::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use flatpath::tls::rustls::sign::CertifiedKey;
use flatpath::tls::rustls::{Error, InconsistentKeys};
use x509_cert::Certificate as X509;
use x509_cert::der::Decode;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;

use super::source::Pair;
use crate::bounded_file;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// A certificate that ends within this time is warned of.
const ENDS_SOON: Duration = DAY.saturating_mul(14);

/// A certificate, those that lead from it to one that clients know, and its key.
#[derive(Clone)]
pub(crate) struct Certificate {
    /// The file that it is from, or that it is self-signed.
    pub(crate) origin: String,
    /// The names that it is for, in small letters: `www.example.org`, `*.example.org`, addresses.
    pub(crate) names: Vec<String>,
    pub(super) begins: SystemTime,
    pub(super) ends: SystemTime,
    /// Within this time before its end it is warned of.
    soon: Duration,
    pub(crate) key: Arc<CertifiedKey>,
}

impl Certificate {
    /// Reads a certificate and its key. An error names the file.
    pub(crate) fn from_files(pair: &Pair) -> Result<Certificate, String> {
        let path = pair.certificate.display();
        let text =
            bounded_file::read(&pair.certificate).map_err(|cause| format!("{path}: {cause}"))?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
        let chain = chain.map_err(|cause| format!("{path}: {cause}"))?;
        if chain.is_empty() {
            return Err(format!("{path}: there is no certificate in it (in PEM)"));
        }
        let key_path = pair.key.display();
        let key = bounded_file::read(&pair.key).map_err(|cause| format!("{key_path}: {cause}"))?;
        let key = PrivateKeyDer::from_pem_slice(&key)
            .map_err(|cause| format!("{key_path}: there is no private key in it: {cause}"))?;
        Certificate::new(path.to_string(), chain, key).map_err(|cause| match cause {
            Wrong::Certificate(cause) => format!("{path}: {cause}"),
            Wrong::Key(cause) => format!("{key_path}: {cause}"),
            Wrong::OtherKey => format!("{key_path}: it is not the key of the certificate {path}"),
        })
    }

    /// A certificate that is no file.
    pub(super) fn new(
        origin: String,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<Certificate, Wrong> {
        let first = chain.first().map(|it| X509::from_der(it));
        let first = first.ok_or_else(|| Wrong::Certificate("there is none".into()))?;
        let first = first.map_err(|cause| Wrong::Certificate(cause.to_string()))?;
        let names = names_of(&first).map_err(|cause| Wrong::Certificate(cause.to_string()))?;
        let validity = first.tbs_certificate().validity();
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|cause| match cause {
            Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => Wrong::OtherKey,
            Error::InvalidCertificate(cause) => Wrong::Certificate(format!("{cause:?}")),
            other => Wrong::Key(other.to_string()),
        })?;
        Ok(Certificate {
            origin,
            names,
            begins: validity.not_before.to_system_time(),
            ends: validity.not_after.to_system_time(),
            soon: ENDS_SOON,
            key: Arc::new(key),
        })
    }

    /// The same, renewed without its owner after two thirds of its life: one that has a sixth of
    /// it left was to be, whatever that is in days.
    pub(super) fn renewed_by_itself(self) -> Certificate {
        let life = self.ends.duration_since(self.begins).unwrap_or_default();
        Certificate {
            soon: ENDS_SOON.min(life / 6),
            ..self
        }
    }

    /// Time until its end, below 0 after it.
    pub(crate) fn seconds_left(&self, now: SystemTime) -> f64 {
        match self.ends.duration_since(now) {
            Ok(left) => left.as_secs_f64(),
            Err(over) => -over.duration().as_secs_f64(),
        }
    }

    /// Whether its time has come, and is not over.
    pub(crate) fn is_valid(&self, now: SystemTime) -> bool {
        (self.begins..=self.ends).contains(&now)
    }

    /// What is wrong with its time, or will soon be.
    pub(crate) fn warning(&self, now: SystemTime) -> Option<String> {
        let Self { origin, ends, .. } = self;
        let until = when(*ends);
        if now < self.begins {
            let begin = when(self.begins);
            return Some(format!(
                "certificate {origin}: it is not valid before {begin}"
            ));
        }
        match ends.duration_since(now) {
            Err(_) => Some(format!(
                "certificate {origin}: it has expired: it ended {until}"
            )),
            Ok(left) if left < self.soon => {
                let days = left.as_secs() / DAY.as_secs();
                Some(format!(
                    "certificate {origin}: it ends in {days} days, {until}: renew it"
                ))
            }
            Ok(_) => None,
        }
    }

    /// The first name, for a metric.
    pub(crate) fn name(&self) -> &str {
        self.names.first().map_or("", String::as_str)
    }

    /// The end of its validity, in UTC.
    pub(crate) fn end(&self) -> String {
        when(self.ends)
    }

    /// The SHA-256 of the certificate, as browsers show it.
    pub(super) fn fingerprint(&self) -> String {
        let first = self.key.cert.first().map_or(&[][..], |it| it.as_ref());
        let digest = ring::digest::digest(&ring::digest::SHA256, first);
        let bytes = digest.as_ref().iter().map(|byte| format!("{byte:02X}"));
        bytes.collect::<Vec<_>>().join(":")
    }
}

/// Its names and the end of its validity.
impl fmt::Display for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = match self.names.is_empty() {
            true => "no name".into(),
            false => self.names.join(", "),
        };
        let end = self.end();
        write!(formatter, "{} for {names}, valid until {end}", self.origin)
    }
}

/// Without the key.
impl fmt::Debug for Certificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Why a certificate cannot be used.
#[derive(Debug)]
pub(super) enum Wrong {
    Certificate(String),
    Key(String),
    /// The key is that of another certificate.
    OtherKey,
}

/// The alternative names of the subject. Its common name counts for no client any more.
fn names_of(certificate: &X509) -> Result<Vec<String>, x509_cert::der::Error> {
    let found = certificate
        .tbs_certificate()
        .get_extension::<SubjectAltName>()?;
    let names = found.into_iter().flat_map(|(_, names)| names.0);
    let names = names.filter_map(|name| match name {
        GeneralName::DnsName(name) => Some(name.as_str().to_ascii_lowercase()),
        GeneralName::IpAddress(address) => address_of(address.as_bytes()),
        _ => None,
    });
    Ok(names.collect())
}

fn address_of(bytes: &[u8]) -> Option<String> {
    let address = match bytes.len() {
        4 => IpAddr::from(<[u8; 4]>::try_from(bytes).ok()?),
        _ => IpAddr::from(<[u8; 16]>::try_from(bytes).ok()?),
    };
    Some(address.to_string())
}

pub(super) fn when(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::super::self_signed;
    use super::*;

    #[test]
    fn a_certificate_that_ends_soon_is_warned_of() {
        let certificate = self_signed::make().expect("made");
        let now = SystemTime::now();
        assert_eq!(certificate.warning(now), None);
        for (days, words) in [
            (20, "it ends in 9 days, 2"),
            (31, "it has expired: it ended 2"),
        ] {
            let warning = certificate.warning(now + DAY * days).expect("a warning");
            assert!(warning.contains(words), "{warning}");
        }
        let warning = certificate.warning(now - DAY * 3).expect("a warning");
        assert!(warning.contains("not valid before"), "{warning}");
        assert!(certificate.seconds_left(now + DAY * 31) < 0.0);
        assert!(certificate.seconds_left(now) > 29.0 * 86_400.0);
    }

    #[test]
    fn what_is_wrong_names_its_file() {
        let directory = tempfile::tempdir().expect("a directory");
        let at = |name: &str| directory.path().join(name);
        let key = |name: &str| {
            let key = rcgen::KeyPair::generate().expect("a key");
            std::fs::write(at(name), key.serialize_pem()).expect("written");
            key
        };
        let (own, _) = (key("own.key"), key("other.key"));
        let parameters = rcgen::CertificateParams::new(vec!["A.example".into()]);
        let made = parameters
            .expect("a name")
            .self_signed(&own)
            .expect("signed");
        std::fs::write(at("site.crt"), made.pem()).expect("written");
        std::fs::write(at("empty"), "").expect("written");
        let read = |certificate: &str, key: &str| {
            Certificate::from_files(&Pair {
                certificate: at(certificate),
                key: at(key),
            })
        };
        let found = read("site.crt", "own.key").expect("a pair");
        assert_eq!(found.names, ["a.example"]);
        for (certificate, key, words) in [
            (
                "site.crt",
                "other.key",
                "other.key: it is not the key of the certificate",
            ),
            ("none", "own.key", "none: No such file"),
            ("site.crt", "none", "none: No such file"),
            ("empty", "own.key", "empty: there is no certificate"),
            ("site.crt", "empty", "empty: there is no private key"),
            ("own.key", "own.key", "own.key: there is no certificate"),
        ] {
            let why = read(certificate, key).expect_err(words);
            assert!(why.contains(words), "{why}");
        }
    }
}
