//! TLS of `flatpath serve`: certificates from files or an authority, or one made at the start.
//!
//! | file             | what it does                                              |
//! |------------------|-----------------------------------------------------------|
//! | `source.rs`      | where certificates come from                              |
//! | `certificate.rs` | a certificate with its key, as the files have it          |
//! | `clients.rs`     | which clients are taken, by their own certificates        |
//! | `choice.rs`      | which certificate a client gets, by the name it asks for  |
//! | `acme/`          | orders certificates of an authority, and renews them      |
//! | `self_signed.rs` | a certificate to try out with, without files              |
//! | `tickets.rs`     | sessions that are resumed at several servers              |
//! | `watched.rs`     | files beside certificates, and how a change is seen       |
//! | `renewal.rs`     | reads files again that have changed, while the server runs|
//! | `upstreams.rs`   | TLS with the servers of `--proxy`                         |
//! | `report.rs`      | what `check` and `doctor` say of certificates             |
//!
//! Listeners that flags name share their certificates; a table of the file has its own.

#[cfg(feature = "acme")]
mod acme;
#[cfg(not(feature = "acme"))]
#[path = "without_acme.rs"]
mod acme;
mod certificate;
mod choice;
mod clients;
mod renewal;
mod report;
mod self_signed;
mod source;
mod tickets;
pub(crate) mod upstreams;
mod watched;

use flatpath::Server;
use flatpath::tls::TlsConfig;

pub(crate) use renewal::{Certificates, METRICS, Renewal};
pub(crate) use report::{Findings, comments, findings};
pub(crate) use source::Secured;

use crate::settings::ListenerProtocol;

/// The server whose last listener begins with TLS, or, for NFS, lets its clients begin it.
pub(crate) fn added_to(server: Server, tls: &TlsConfig, protocol: ListenerProtocol) -> Server {
    match protocol {
        ListenerProtocol::Nfs => server.with_start_tls(tls),
        _ => server.with_tls(tls),
    }
}
