//! What the two sides of a connection with TLS have agreed on, and who the client is.
//!
//! Made by the handshake, on a worker. Connections with the same terms share them, but for clients
//! with a certificate: each has its own. Of a client's certificates the first is kept, and the
//! others, which only prove it, are dropped.

use std::fmt;
#[cfg(feature = "tls")]
use std::sync::Arc;

#[cfg(feature = "tls")]
use flatpath_structures::lock::Lock;
use flatpath_structures::pool::Charge;

/// The terms of a connection with TLS; see [`Io::tls`](crate::Io::tls).
#[derive(Debug)]
pub struct TlsTerms {
    pub(crate) version: &'static str,
    pub(crate) cipher: &'static str,
    pub(crate) is_resumed: bool,
    pub(crate) protocol: Option<Box<[u8]>>,
    pub(crate) certificate: Option<PeerCertificate>,
}

/// Terms that connections share: of versions, ciphers and protocols there are few.
#[cfg(feature = "tls")]
static SHARED: Lock<Vec<Arc<TlsTerms>>> = Lock::new(Vec::new());

/// More are not looked through.
#[cfg(feature = "tls")]
const SHARED_MAX: usize = 64;

impl TlsTerms {
    /// These terms, of all connections that have them.
    ///
    /// Cost: a lock, and a comparison with each that is shared.
    #[cfg(feature = "tls")]
    pub(crate) fn share(self) -> Arc<TlsTerms> {
        if self.certificate.is_some() {
            return Arc::new(self);
        }
        let mut shared = SHARED.lock();
        if let Some(known) = shared.iter().find(|known| known.told() == self.told()) {
            return Arc::clone(known);
        }
        let terms = Arc::new(self);
        if shared.len() < SHARED_MAX {
            shared.push(Arc::clone(&terms));
        }
        terms
    }

    /// All that is shared.
    #[cfg(feature = "tls")]
    fn told(&self) -> (&str, &str, bool, Option<&[u8]>) {
        (
            self.version,
            self.cipher,
            self.is_resumed,
            self.protocol.as_deref(),
        )
    }

    /// Those of a client whose certificate has this subject, for tests of protocols.
    #[doc(hidden)]
    pub fn of_client(subject: &str) -> TlsTerms {
        TlsTerms {
            version: "1.3",
            cipher: "TLS_AES_256_GCM_SHA384",
            is_resumed: false,
            protocol: None,
            certificate: Some(PeerCertificate {
                der: Box::default(),
                subject: subject.into(),
                charge: None,
            }),
        }
    }

    /// `1.3` (RFC 8446) or `1.2` (RFC 5246).
    pub fn version(&self) -> &'static str {
        self.version
    }

    /// The cipher suite, by its name at IANA: `TLS_AES_256_GCM_SHA384`.
    pub fn cipher(&self) -> &'static str {
        self.cipher
    }

    /// Whether a session that the client had before was resumed. Never, where clients are asked for
    /// a certificate.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    /// The application's protocol (ALPN, RFC 7301), if one was agreed on: `http/1.1`.
    pub fn protocol(&self) -> Option<&[u8]> {
        self.protocol.as_deref()
    }

    /// The client's certificate. `None` if it was not asked for one, or has shown none.
    pub fn certificate(&self) -> Option<&PeerCertificate> {
        self.certificate.as_ref()
    }
}

/// The certificate that a client has proved to be its own, verified when it connected: at that
/// moment it was issued by one of the listener's authorities, valid and not revoked.
pub struct PeerCertificate {
    der: Box<[u8]>,
    subject: Box<str>,
    /// Of the connection, for as long as this is shared.
    charge: Option<Charge>,
}

impl PeerCertificate {
    #[cfg(feature = "tls")]
    pub(crate) fn new(der: &[u8], subject: String) -> PeerCertificate {
        PeerCertificate {
            der: der.into(),
            subject: subject.into(),
            charge: None,
        }
    }

    /// Its memory, in bytes.
    #[cfg(feature = "tls")]
    pub(crate) fn bytes(&self) -> usize {
        self.der.len() + self.subject.len()
    }

    #[cfg(feature = "tls")]
    pub(crate) fn charged(&mut self, charge: Charge) {
        self.charge = Some(charge);
    }

    /// The certificate in DER (RFC 5280), of 16 KiB at most. A program that tells its clients apart
    /// by something other than the subject reads it there with a crate for X.509.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Its subject as RFC 4514 writes it, the last part first: `CN=alice,O=Example`. Empty if it
    /// has none. What is in it is as the authority has signed it, which may be what the client has
    /// asked for: names of two authorities may be the same.
    pub fn subject(&self) -> &str {
        &self.subject
    }
}

/// The subject alone.
impl fmt::Debug for PeerCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("PeerCertificate")
            .field("subject", &self.subject)
            .field("bytes", &self.der.len())
            .field("is_charged", &self.charge.is_some())
            .finish()
    }
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;

    fn terms(protocol: &str) -> TlsTerms {
        TlsTerms {
            version: "1.3",
            cipher: "TLS_AES_256_GCM_SHA384",
            is_resumed: false,
            protocol: Some(protocol.as_bytes().into()),
            certificate: None,
        }
    }

    #[test]
    fn the_same_terms_are_shared_and_no_others() {
        let first = terms("a test's").share();
        assert!(Arc::ptr_eq(&first, &terms("a test's").share()));
        let resumed = TlsTerms {
            is_resumed: true,
            ..terms("a test's")
        };
        let older = TlsTerms {
            version: "1.2",
            ..terms("a test's")
        };
        let other_cipher = TlsTerms {
            cipher: "TLS_CHACHA20_POLY1305_SHA256",
            ..terms("a test's")
        };
        for other in [terms("another's"), resumed, older, other_cipher] {
            let expected = format!("{other:?}");
            assert_eq!(format!("{:?}", other.share()), expected);
        }
        let clients = || TlsTerms::of_client("CN=a").share();
        assert!(!Arc::ptr_eq(&clients(), &clients()), "each has its own");
    }
}
