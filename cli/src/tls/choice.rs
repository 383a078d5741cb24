//! Which certificate a client gets.
//!
//! Those that have the name it asks for (SNI), exactly or by a wildcard; where none has it, or it
//! names none, the first one. Of several, such as one with RSA and one with ECDSA, the first whose
//! signatures the client takes. rustls has a resolver by names, which has no certificate for other
//! clients, and refuses to be given one under a name that it is not for.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use flatpath::lock::Lock;
use flatpath::tls::rustls::SignatureScheme;
use flatpath::tls::rustls::server::{ClientHello, ResolvesServerCert};
use flatpath::tls::rustls::sign::CertifiedKey;

use super::certificate::Certificate;

/// The certificates of a listener, which may be replaced at any time.
pub(crate) struct Choice(Lock<Arc<Index>>);

/// Certificates by their names.
struct Index {
    /// At least one.
    certificates: Vec<Arc<Certificate>>,
    /// The wildcard is a part of the name: `*.example.org`.
    named: HashMap<String, Vec<usize>>,
}

impl Choice {
    /// Among these; one at least.
    pub(crate) fn new(certificates: Vec<Arc<Certificate>>) -> Choice {
        Choice(Lock::new(Arc::new(Index::new(certificates))))
    }

    /// Handshakes that begin from now on choose among these.
    pub(crate) fn replace(&self, certificates: Vec<Arc<Certificate>>) {
        let index = Arc::new(Index::new(certificates));
        let before = std::mem::replace(&mut *self.0.lock(), index);
        drop(before); // After the unlock.
    }

    /// All of them, in order.
    pub(crate) fn certificates(&self) -> Vec<Arc<Certificate>> {
        self.0.lock().certificates.clone()
    }
}

impl fmt::Debug for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.certificates()).finish()
    }
}

impl ResolvesServerCert for Choice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let index = Arc::clone(&self.0.lock());
        let chosen = index.choose(hello.server_name(), hello.signature_schemes());
        chosen.map(|it| Arc::clone(&it.key))
    }
}

impl Index {
    fn new(certificates: Vec<Arc<Certificate>>) -> Index {
        let mut named: HashMap<String, Vec<usize>> = HashMap::new();
        for (number, certificate) in certificates.iter().enumerate() {
            for name in &certificate.names {
                named.entry(name.clone()).or_default().push(number);
            }
        }
        Index {
            certificates,
            named,
        }
    }

    fn choose(&self, name: Option<&str>, schemes: &[SignatureScheme]) -> Option<&Certificate> {
        let fitting = name.and_then(|name| self.of_name(name)).unwrap_or(&[0]);
        let mut fitting = fitting
            .iter()
            .filter_map(|number| self.certificates.get(*number));
        let first = fitting.clone().next();
        let signs = |it: &&Arc<Certificate>| it.key.key.choose_scheme(schemes).is_some();
        fitting.find(signs).or(first).map(|it| &**it)
    }

    /// The certificates with the name; if there are none, those with a wildcard for its first label
    /// (RFC 9525 section 6.3).
    fn of_name(&self, name: &str) -> Option<&[usize]> {
        let name = name.to_ascii_lowercase();
        let name = name.strip_suffix('.').unwrap_or(&name);
        let wildcard = || {
            let (_, rest) = name.split_once('.')?;
            self.named.get(&format!("*.{rest}"))
        };
        self.named.get(name).or_else(wildcard).map(Vec::as_slice)
    }
}

#[cfg(test)]
mod tests {
    use super::super::self_signed;
    use super::*;

    fn named(names: &[&str]) -> Arc<Certificate> {
        let mut certificate = self_signed::make().expect("made");
        certificate.names = names.iter().map(|&name| name.into()).collect();
        Arc::new(certificate)
    }

    #[test]
    fn the_name_decides_then_a_wildcard_then_the_order() {
        let index = Index::new(vec![
            named(&["a.example"]),
            named(&["*.b.example", "b.example"]),
            named(&["www.b.example"]),
        ]);
        let schemes = [SignatureScheme::ECDSA_NISTP256_SHA256];
        for (name, first) in [
            (Some("a.example"), "a.example"),
            (Some("A.Example."), "a.example"),
            (Some("b.example"), "*.b.example"),
            (Some("x.b.example"), "*.b.example"),
            (Some("www.b.example"), "www.b.example"),
            (Some("x.y.b.example"), "a.example"),
            (Some("elsewhere"), "a.example"),
            (None, "a.example"),
        ] {
            let chosen = index.choose(name, &schemes).expect("one");
            assert_eq!(chosen.name(), first, "{name:?}");
            // A client that can check no signature is told so by rustls.
            assert!(index.choose(name, &[]).is_some());
        }
    }
}
