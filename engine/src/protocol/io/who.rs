//! What a protocol learns of TLS, and of who its client is.

use std::sync::Arc;

use super::Io;
use crate::observe::access_log::LoggedPeer;
use crate::protocol::hand_over::Becomes;
use crate::protocol::tls_terms::{PeerCertificate, TlsTerms};

impl Io<'_> {
    /// The number of the network thread that this connection is of, from 0. What a protocol keeps
    /// by it meets connections of the same thread alone.
    pub fn network_thread(&self) -> usize {
        usize::from(self.common.number)
    }

    /// Whether the connection has TLS here ([`Server::with_tls`](crate::Server), feature `tls`).
    pub fn is_secured(&self) -> bool {
        self.connection.is_secured()
    }

    /// Whether TLS may begin on this connection now: its listener has it for that
    /// ([`Server::with_start_tls`](crate::Server), feature `tls`), it has not begun, no job is with
    /// a worker, and the connection is not spliced, handed over or ending.
    pub fn may_start_tls(&self) -> bool {
        let is_offered = self.entrance().may_start_tls;
        let connection = &*self.connection;
        let is_free = connection.may_be_handed_over() && !connection.is_becoming();
        is_offered && is_free && !connection.is_secured()
    }

    /// Begins TLS after this call: what is queued by then, the protocol's consent for one, is sent
    /// in the clear, and then the client's handshake is awaited, within the time for a head
    /// ([`Limits::head_timeout`](crate::Limits::head_timeout)). When that is complete, the
    /// connection is a new one of its listener's protocol, with a new session: nothing of what was
    /// said in the clear is known any more. If input is there that was not consumed, the connection
    /// is reset: a client waits for the consent, and what comes before it may be another's
    /// (RFC 3207 section 6 names the attack). False, and nothing happens, where TLS may not begin
    /// ([`Io::may_start_tls`]).
    #[must_use = "TLS may not begin"]
    pub fn start_tls(&mut self) -> bool {
        let may_start = self.may_start_tls();
        if may_start {
            self.connection.becomes(Becomes::StartsTls);
        }
        may_start
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
