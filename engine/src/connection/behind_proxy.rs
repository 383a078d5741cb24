//! Connections through a load balancer that speaks the PROXY protocol: what is there before the
//! protocol's first byte.
//!
//! A listener that names its balancers ([`Server::behind_proxy`](crate::Server::behind_proxy))
//! takes no other connections, and each begins with [`ProxyHeader`] in the place of the
//! listener's protocol. When the header is whole the connection is *introduced*: it becomes one of
//! the listener's protocol, as if the client had just connected (`network/introduce.rs`).
//!
//! Invariants
//! - The listener's protocol is called for no connection before its header is whole and right;
//!   it is given every byte after the header, once, in order.
//! - A header has the deadline of a head, from accept; those of the protocol begin after it.
//!
//! Cost: for a connection, one system call, one small allocation, and a copy of what came with the
//! header. Listeners without balancers pay one comparison for each connection and none for a
//! request.

use std::net::SocketAddr;

use crate::connection::proxy_header::parse;
use crate::protocol::context::Context;
use crate::protocol::phase::{Phase, Stall};
use crate::protocol::{Event, Protocol, Received};
use crate::server::options::ListenerOptions;
use crate::subnet::Subnet;

/// The load balancers of a listener.
#[derive(Clone, Debug)]
pub(crate) enum Balancers {
    /// Those of these networks.
    Of(Box<[Subnet]>),
    /// Every process that may open the listener's Unix socket: its permissions decide.
    Permitted,
}

impl Balancers {
    pub(crate) fn new(networks: impl IntoIterator<Item = Subnet>) -> Balancers {
        Balancers::Of(networks.into_iter().collect())
    }

    /// Whether a peer is one of them. One that has closed already has no address and is none: what
    /// it has sent may come from any host.
    pub(crate) fn include(&self, peer: Option<SocketAddr>) -> bool {
        let Balancers::Of(networks) = self else {
            return true;
        };
        peer.is_some_and(|peer| networks.iter().any(|it| it.contains(peer.ip())))
    }
}

/// Reads the header, and hands the connection over to its listener's protocol.
pub(crate) struct ProxyHeader;

impl Protocol for ProxyHeader {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("proxy-header")
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let header = match parse(input) {
            Ok(Some(header)) => header,
            Ok(None) => return Received::NeedMore { consumed: 0 },
            Err(cause) => {
                let peer = context.io.peer();
                let why = format_args!("it sends no PROXY header that is accepted: {cause}");
                let io = &mut context.io;
                io.common.note_refused(io.connection.listener(), peer, &why);
                io.abort();
                return Received::Consumed;
            }
        };
        context.io.connection.introduce(header);
        Received::Blocked {
            consumed: header.bytes,
            on: Stall::Step,
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            // One whose header is on its way is served.
            Event::Draining if context.io.connection.has_received() => {
                context.restart_phase(Phase::Idle);
            }
            other => other.by_default(context),
        }
    }
}
