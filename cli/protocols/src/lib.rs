//! What the command speaks: each of its protocols with its service.
//!
//! A protocol is generic code of the engine, and of HTTP or RPC, which is compiled where its
//! service is named. Here it is named once, in functions that are generic no more. So this crate
//! has all of the command that each request goes through, and is optimised in every profile; the
//! command itself reads settings and reports, and a build to try it need not optimise that
//! (`profile.release.package` in the workspace's `Cargo.toml`).
//!
//! Invariant: `flatpath-cli` listens by these functions alone. A service of its own, such as the
//! redirect to TLS, is a site of [`Sites`].
#![forbid(unsafe_code)]

use std::net::SocketAddr;

use flatpath::sockets::ListenAddress;
use flatpath::{Error, Running, Server};
use flatpath_admin::Admin;
use flatpath_echo::Echo;
use flatpath_files::Files;
use flatpath_http::{Http, LiveSites, Sites};
use flatpath_ingest::Ingest;
use flatpath_nfs::{Nfs, Portmapper};
use flatpath_relay::Relay;
use flatpath_rpc::Rpc;

/// What a listener speaks.
#[allow(
    missing_debug_implementations,
    reason = "services have directories and locks, and no use for one"
)]
#[allow(
    clippy::large_enum_variant,
    reason = "one is made for each listener, and is its protocol at once"
)]
// Exhaustive: the command makes each of them, and matches none.
pub enum Spoken {
    /// The files of one directory, and nothing else.
    Files(Http<Files>),
    /// Several services, by host and path.
    Sites(Http<Sites>),
    /// The same, which change while they are served.
    LiveSites(Http<LiveSites>),
    /// NFSv3 and MOUNT.
    Nfs(Rpc<Nfs>),
    /// What is listed for clients of NFS.
    Portmapper(Rpc<Portmapper>),
    /// Messages for other processes.
    Ingest(Ingest),
    /// What came.
    Echo,
    /// Transfers of magic-wormhole.
    Relay(Relay),
}

impl Spoken {
    /// The server with a listener for it: [`Server::listen_at`].
    pub fn at(self, server: Server, address: ListenAddress) -> Server {
        match self {
            Self::Files(http) => server.listen_at(address, http),
            Self::Sites(http) => server.listen_at(address, http),
            Self::LiveSites(http) => server.listen_at(address, http),
            Self::Nfs(rpc) => server.listen_at(address, rpc),
            Self::Portmapper(rpc) => server.listen_at(address, rpc),
            Self::Ingest(ingest) => server.listen_at(address, ingest),
            Self::Echo => server.listen_at(address, Echo),
            Self::Relay(relay) => server.listen_at(address, relay),
        }
    }
}

/// The server with MOUNT over UDP beside a listener for NFS.
pub fn mount_datagrams(server: Server, address: SocketAddr, nfs: &Rpc<Nfs>) -> Server {
    server.listen_datagrams(address, nfs.datagrams())
}

/// The server with a portmapper over TCP and UDP.
pub fn portmapper(server: Server, address: SocketAddr, portmapper: Portmapper) -> Server {
    let rpc = portmapper.protocol();
    let datagrams = rpc.datagrams();
    let server = Spoken::Portmapper(rpc).at(server, address.into());
    server.listen_datagrams(address, datagrams)
}

/// Starts a server that shows another one: [`Admin::server`] with what was set, at this address.
///
/// # Errors
/// As [`Server::start`].
pub fn start_admin(admin: &Admin, server: Server, at: ListenAddress) -> Result<Running, Error> {
    server.listen_at(at, admin.protocol()).start()
}
