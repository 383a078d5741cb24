//! A certificate that this process makes for itself, to try out with: no client trusts it unasked.

use std::time::{Duration, SystemTime};

use flatpath::tls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rcgen::{
    CertificateParams, DistinguishedName, DnType, Error, ExtendedKeyUsagePurpose, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

use super::certificate::Certificate;

/// How long it is valid.
const VALID: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// Before now: clocks differ.
const EARLIER: Duration = Duration::from_secs(60 * 60);

/// Makes one, with a key that stays in memory, for the names that this machine has for itself.
pub(crate) fn make() -> Result<Certificate, String> {
    let machine = rustix::system::uname();
    let machine = machine.nodename().to_string_lossy().to_ascii_lowercase();
    // A machine may have a name that no certificate can have.
    let made = of(&["localhost", "127.0.0.1", "::1", &machine])
        .or_else(|_| of(&["localhost", "127.0.0.1", "::1"]));
    let (key, made) = made.map_err(|cause| cause.to_string())?;
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let made = Certificate::new("self-signed".into(), vec![made.der().clone()], der);
    made.map_err(|cause| format!("{cause:?}"))
}

fn of(names: &[&str]) -> Result<(KeyPair, rcgen::Certificate), Error> {
    let mut distinct: Vec<String> = Vec::new();
    for name in names.iter().filter(|name| !name.is_empty()) {
        if !distinct.iter().any(|it| it == name) {
            distinct.push((*name).into());
        }
    }
    let key = KeyPair::generate()?;
    let mut parameters = CertificateParams::new(distinct)?;
    parameters.distinguished_name = DistinguishedName::new();
    let subject = "Flatpath, self-signed";
    parameters
        .distinguished_name
        .push(DnType::CommonName, subject);
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = date_time_ymd(1970, 1, 1) + now.unwrap_or_default();
    parameters.not_before = now - EARLIER;
    parameters.not_after = now + VALID;
    let made = parameters.self_signed(&key)?;
    Ok((key, made))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_for_this_machine() {
        let made = make().expect("made");
        for name in ["localhost", "127.0.0.1", "::1"] {
            assert!(made.names.iter().any(|it| it == name), "{:?}", made.names);
        }
        assert_eq!(made.fingerprint().len(), 32 * 3 - 1);
        assert_ne!(made.fingerprint(), make().expect("made").fingerprint());
    }
}
