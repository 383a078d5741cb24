//! Certificates for tests: one for a server that signs itself, and an authority that issues them to
//! clients and revokes them.

use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateRevocationListParams,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, RevokedCertParams, SerialNumber, date_time_ymd,
};

/// The authority. Everything is valid from 2000 on.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: Certificate,
}

/// A certificate and its key, in PEM.
pub struct Issued {
    pub certificate: String,
    pub key: String,
}

impl Issued {
    /// A certificate for `localhost` that signs itself.
    pub fn for_localhost() -> Issued {
        Issued::for_host("localhost")
    }

    /// One for this name, or address in text.
    pub fn for_host(name: &str) -> Issued {
        let made = rcgen::generate_simple_self_signed([name.to_owned()]);
        let made = made.expect("a certificate");
        Issued {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }
}

impl Authority {
    /// One of this name.
    pub fn new(name: &str) -> Authority {
        let mut parameters = named(name);
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().expect("a key");
        let certificate = parameters.self_signed(&key).expect("signed");
        Authority {
            issuer: Issuer::new(parameters, key),
            certificate,
        }
    }

    /// Its own certificate, in PEM.
    pub fn certificate(&self) -> String {
        self.certificate.pem()
    }

    /// A client's certificate, which ends with a year's first day.
    pub fn issue(&self, name: &str, serial: u64, until_year: i32) -> Issued {
        let mut parameters = named(name);
        parameters.not_after = date_time_ymd(until_year, 1, 1);
        parameters.serial_number = Some(SerialNumber::from(serial));
        parameters.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        let key = KeyPair::generate().expect("a key");
        let issued = parameters.signed_by(&key, &self.issuer).expect("signed");
        Issued {
            certificate: issued.pem(),
            key: key.serialize_pem(),
        }
    }

    /// The list of what it has revoked, in PEM and in DER; the next one is due with a year's first
    /// day.
    pub fn revokes(&self, serials: &[u64], next_year: i32) -> (String, Vec<u8>) {
        let revoked = serials.iter().map(|&serial| RevokedCertParams {
            serial_number: SerialNumber::from(serial),
            revocation_time: date_time_ymd(2001, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2000, 1, 1),
            next_update: date_time_ymd(next_year, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = list.signed_by(&self.issuer).expect("signed");
        (list.pem().expect("in PEM"), list.der().to_vec())
    }
}

fn named(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.distinguished_name.push(DnType::CommonName, name);
    parameters.not_before = date_time_ymd(2000, 1, 1);
    parameters.not_after = date_time_ymd(2999, 1, 1);
    parameters
}
