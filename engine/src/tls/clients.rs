//! Which clients a listener with TLS takes: those that prove a certificate of its authorities.

use std::fmt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig};

use super::config::{TlsError, provider};

/// Whether a client must have a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
// Exhaustive: a certificate is required or not.
pub enum ClientAuth {
    /// A handshake without one fails.
    #[default]
    Required,
    /// A client may have none, and what it may do is for the service to decide. One that does not
    /// hold fails here, too.
    Optional,
}

/// Authorities whose certificates clients are to have, and what those have revoked; for
/// [`TlsConfig::verify_clients`](super::TlsConfig::verify_clients).
///
/// A certificate holds when a chain leads from it to an authority, each in it is valid now and for
/// clients (RFC 5280, extended key usage), and none is revoked. If there are revocation lists, each
/// authority in the chain must have one that is not outdated: an old list must not hide a
/// revocation.
#[derive(Clone)]
pub struct TlsClients(Arc<dyn ClientCertVerifier>);

impl TlsClients {
    /// Certificates of authorities and revocation lists in PEM, of each any number behind one
    /// another; of lists there may be none.
    ///
    /// # Errors
    /// One cannot be read, or there is no authority.
    pub fn from_pem(
        auth: ClientAuth,
        authorities: &[u8],
        revoked: &[u8],
    ) -> Result<TlsClients, TlsError> {
        let authorities: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(authorities).collect();
        let authorities =
            authorities.map_err(|cause| TlsError::Pem(format!("the authorities: {cause}")))?;
        let revoked: Result<Vec<_>, _> =
            CertificateRevocationListDer::pem_slice_iter(revoked).collect();
        let revoked =
            revoked.map_err(|cause| TlsError::Pem(format!("the revocation lists: {cause}")))?;
        TlsClients::new(auth, authorities, revoked)
    }

    /// The same in DER.
    ///
    /// # Errors
    /// As of [`TlsClients::from_pem`].
    pub fn new(
        auth: ClientAuth,
        authorities: impl IntoIterator<Item = CertificateDer<'static>>,
        revoked: impl IntoIterator<Item = CertificateRevocationListDer<'static>>,
    ) -> Result<TlsClients, TlsError> {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            roots.add(authority).map_err(TlsError::Refused)?;
        }
        let roots = Arc::new(roots);
        let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::new(provider()))
            .with_crls(revoked)
            .enforce_revocation_expiration();
        let builder = match auth {
            ClientAuth::Required => builder,
            ClientAuth::Optional => builder.allow_unauthenticated(),
        };
        let verifier = builder.build().map_err(|cause| match cause {
            VerifierBuilderError::NoRootAnchors => {
                TlsError::Pem("the authorities: there is none".into())
            }
            other => TlsError::Pem(format!("a revocation list: {other}")),
        })?;
        Ok(TlsClients(verifier))
    }

    pub(super) fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0)
    }
}

impl fmt::Debug for TlsClients {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TlsClients").finish_non_exhaustive()
    }
}

/// Has every client prove its certificate each time it connects: rustls puts verified chains into
/// tickets, and does not verify them again, so a ticket would outlive an authority that was
/// removed, a revocation and the certificate itself. Without tickets a client that comes again
/// costs a full handshake, which with an ECDSA certificate is what a resumed one of TLS 1.3 costs.
pub(super) fn without_tickets(config: &mut ServerConfig) {
    config.send_tls13_tickets = 0;
    config.ticketer = Arc::new(NoTickets);
}

#[derive(Debug)]
struct NoTickets;

impl rustls::server::ProducesTickets for NoTickets {
    fn enabled(&self) -> bool {
        false
    }

    fn lifetime(&self) -> u32 {
        0
    }

    fn encrypt(&self, _plain: &[u8]) -> Option<Vec<u8>> {
        None
    }

    fn decrypt(&self, _cipher: &[u8]) -> Option<Vec<u8>> {
        None
    }
}
