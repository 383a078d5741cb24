//! Challenges that are pending, and what answers them at the listeners.
//!
//! Of a TLS-ALPN-01 challenge (RFC 8737) the answer is a certificate that signs itself, for the
//! name and with a digest of the key authorization. A client gets it if it asks for the protocol of
//! challenges and no other, which no client of the site does; without a pending challenge for the
//! name its handshake fails. That of HTTP-01 is a short text ([`HttpChallenges`]).

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use flatpath::lock::Lock;
use flatpath::tls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use flatpath::tls::rustls::server::{ClientHello, ResolvesServerCert};
use flatpath::tls::rustls::sign::CertifiedKey;
use flatpath::tls::{CHALLENGE_PROTOCOL, provider};
use flatpath_http::HttpChallenges;
use rcgen::{CertificateParams, CustomExtension, KeyPair};

use super::decision::Challenge;
use crate::tls::choice::Choice;

/// Those of a server. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Challenges {
    http: HttpChallenges,
    /// By name.
    handshakes: Arc<Lock<HashMap<String, Arc<CertifiedKey>>>>,
}

/// A challenge that is answered, until this is dropped.
pub(super) struct Pending {
    all: Challenges,
    what: Answered,
}

enum Answered {
    Token(String),
    Name(String),
}

impl Challenges {
    pub(crate) fn http(&self) -> &HttpChallenges {
        &self.http
    }

    /// Answers this one from now on. `digest` is that of the key authorization.
    ///
    /// # Errors
    /// No certificate can be made for the name; too many are pending.
    pub(super) fn answer(
        &self,
        challenge: Challenge,
        name: &str,
        (token, key_authorization): (&str, &str),
        digest: &[u8],
    ) -> Result<Pending, String> {
        let what = match challenge {
            Challenge::Http => {
                let put = self.http.put(token, key_authorization);
                put.map_err(|cause| cause.to_string())?;
                Answered::Token(token.into())
            }
            Challenge::TlsAlpn => {
                let made = certificate(name, digest)?;
                self.handshakes.lock().insert(name.into(), made);
                Answered::Name(name.into())
            }
        };
        let all = self.clone();
        Ok(Pending { all, what })
    }

    /// A resolver of these, and of the certificates for all other clients.
    pub(crate) fn beside(&self, choice: &Arc<Choice>) -> Arc<dyn ResolvesServerCert> {
        Arc::new(Beside {
            challenges: self.clone(),
            choice: Arc::clone(choice),
        })
    }

    fn of_name(&self, name: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let name = name?.to_ascii_lowercase();
        self.handshakes.lock().get(&name).cloned()
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        match &self.what {
            Answered::Token(token) => self.all.http.remove(token),
            Answered::Name(name) => drop(self.all.handshakes.lock().remove(name)),
        }
    }
}

/// Without keys.
impl fmt::Debug for Challenges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Challenges");
        shown.field("http", &self.http).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct Beside {
    challenges: Challenges,
    choice: Arc<Choice>,
}

impl ResolvesServerCert for Beside {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let mut offered = hello.alpn().into_iter().flatten();
        let is_validation = offered.next() == Some(CHALLENGE_PROTOCOL) && offered.next().is_none();
        match is_validation {
            true => self.challenges.of_name(hello.server_name()),
            false => self.choice.resolve(hello),
        }
    }
}

/// RFC 8737 section 3: for this name alone, and with the digest in a critical extension.
fn certificate(name: &str, digest: &[u8]) -> Result<Arc<CertifiedKey>, String> {
    if digest.len() != ring::digest::SHA256_OUTPUT_LEN {
        return Err("the digest of a challenge has another length".into());
    }
    let make = || {
        let key = KeyPair::generate()?;
        let mut parameters = CertificateParams::new(vec![name.into()])?;
        parameters.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
        let made = parameters.self_signed(&key)?;
        Ok((key, made))
    };
    let (key, made) = make().map_err(|cause: rcgen::Error| cause.to_string())?;
    let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let key = provider().key_provider.load_private_key(key);
    let key = key.map_err(|cause| cause.to_string())?;
    // Not `from_der`, which would read the certificate: the critical extension is unknown to it.
    Ok(Arc::new(CertifiedKey::new(vec![made.der().clone()], key)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_challenge_is_answered_while_it_is_pending() {
        let all = Challenges::default();
        let key = ("token", "token.key");
        let digest = [7; 32];
        let pending = all.answer(Challenge::TlsAlpn, "a.example", key, &digest);
        let pending = pending.expect("answered");
        assert!(all.of_name(Some("A.Example")).is_some());
        assert!(all.of_name(Some("b.example")).is_none());
        assert!(all.of_name(None).is_none());
        drop(pending);
        assert!(all.of_name(Some("a.example")).is_none());
        let pending = all.answer(Challenge::Http, "a.example", key, &digest);
        assert!(all.of_name(Some("a.example")).is_none());
        assert!(format!("{all:?}").contains("pending: 1"), "{all:?}");
        drop(pending);
        assert!(format!("{all:?}").contains("pending: 0"), "{all:?}");
        let short = all.answer(Challenge::TlsAlpn, "a.example", key, &[7; 31]);
        assert!(short.is_err(), "no digest");
    }
}
