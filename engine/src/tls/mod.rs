//! TLS between the socket and the protocol: see `network/secure.rs` for the way that bytes take.
//!
//! | file            | what it does                                                  |
//! |-----------------|---------------------------------------------------------------|
//! | `config.rs`     | certificates and keys, replaced while the server runs         |
//! | `session.rs`    | a handshake, as rustls makes it                               |
//! | `handshakes.rs` | the protocol that connections begin with: jobs for workers    |
//! | `records.rs`    | the record layer of an established connection                 |
//!
//! The rest of the engine knows `Records`, `Established` and `Alert`. Without the feature `tls`
//! there are none of them (`off.rs`), and the compiler drops what is done with them.

use std::sync::Arc;

use crate::hand_over::Becomes;
use crate::io::Io;
use crate::listener::{DynProtocol, ErasedListener};

mod config;
mod handshakes;
mod records;
mod session;

pub use config::{TlsConfig, TlsError, provider};
pub(crate) use records::{Alert, OVERHEAD_BYTES_MAX, PLAINTEXT_BYTES_MAX, Records};
pub use rustls;
pub(crate) use session::Established;

/// What connections of a listener begin with whose protocol has these names (ALPN).
pub(crate) fn handshakes(
    config: TlsConfig,
    alpn: &'static [&'static str],
    places: usize,
) -> Box<dyn DynProtocol> {
    let handshakes = handshakes::Handshakes::new(config, alpn);
    Box::new(ErasedListener::new(Arc::new(handshakes), places))
}

impl Io<'_> {
    /// The handshake is complete: after this call the connection is one of its listener's protocol.
    fn secure(&mut self, established: Box<Established>) {
        let counters = self.counters();
        match established.terms.is_resumed {
            true => counters.tls_resumed.add(1),
            false => counters.tls_full.add(1),
        }
        match established.terms.is_13 {
            true => counters.tls_13.add(1),
            false => counters.tls_12.add(1),
        }
        self.connection.becomes(Becomes::Secured(established));
    }

    /// It has failed: counted and, as any client can cause it, logged for those who look for it.
    fn handshake_failed(&self, cause: &str) {
        self.counters().tls_unshaken.add(1);
        log::debug!("TLS handshake: {cause}");
    }
}
