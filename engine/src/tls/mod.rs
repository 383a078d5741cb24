//! TLS between the socket and the protocol: see `network/secure.rs` for the way that bytes take.
//!
//! | file                | what it does                                          |
//! |---------------------|-------------------------------------------------------|
//! | `config.rs`         | certificates and keys, replaced while the server runs |
//! | `clients.rs`        | whose certificates clients are to have                |
//! | `tickets.rs`        | sessions that a client resumes at several servers     |
//! | `session.rs`        | a handshake, as rustls makes it                       |
//! | `client_session.rs` | the same of a connection that this server opens       |
//! | `records.rs`        | the record layer of an established connection         |
//! | `sealing.rs`        | how one record is sealed                              |
//!
//! The protocols that connections begin with are above these: `handshakes.rs`, and for those that
//! this server opens `client_handshakes.rs`.
//!
//! The rest of the engine knows `Records`, `Established` and `Alert`. Without the feature `tls`
//! there are none of them (`off.rs`), and the compiler drops what is done with them.

#[cfg(feature = "tls")]
pub(crate) mod handshakes;
mod client_handshakes;
mod client_session;
mod clients;
mod config;
mod records;
mod sealing;
mod session;
mod tickets;

pub use clients::{ClientAuth, TlsClients};
pub use config::{CHALLENGE_PROTOCOL, TlsConfig, TlsError, provider};
pub(crate) use records::{
    Alert, OVERHEAD_BYTES_MAX, PAYLOAD_BYTES_MAX_12, PLAINTEXT_BYTES_MAX, Records, whole_records,
};
pub use rustls;
pub(crate) use session::{Established, Failure, FailureCause, Handshake, Progress, Rustls};
pub use tickets::TicketKeys;
