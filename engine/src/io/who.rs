//! What a protocol learns of TLS, and of who its client is.

use std::sync::Arc;

use super::Io;
use crate::access_log::LoggedPeer;
use crate::tls_terms::{PeerCertificate, TlsTerms};

impl Io<'_> {
    /// Whether the connection has TLS here ([`Server::with_tls`](crate::Server), feature `tls`).
    pub fn is_secured(&self) -> bool {
        self.connection.is_secured()
    }

    /// What was agreed on with a client with TLS, and who it is; `None` without TLS. To have it on
    /// another thread, or longer, clone the reference.
    pub fn tls(&self) -> Option<&Arc<TlsTerms>> {
        self.connection.tls()
    }

    /// The certificate that the client has proved to be its own
    /// (`TlsConfig::verify_clients`, feature `tls`). `None` if it was not asked for one, or has
    /// shown none.
    pub fn peer_certificate(&self) -> Option<&PeerCertificate> {
        self.tls()?.certificate()
    }

    /// What lines of the access log say of this connection's peer: as [`Io::peer`], one system
    /// call.
    pub fn logged_peer(&self) -> LoggedPeer {
        LoggedPeer::new(self.peer(), self.tls())
    }
}
