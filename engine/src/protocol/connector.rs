//! Connections that this server opens, and the protocols that they have. What is wished, and why it
//! could not be had, are values of `connect.rs`.
//!
//! A protocol that answers by asking another server names it, and how the session of the new
//! connection begins ([`Connector::to`]); [`Io::connect`] takes that, and the network thread
//! carries it out after the call, as it does with every wish (`network/connect.rs`). The new
//! connection is one of the same network thread: the two may be spliced ([`Io::splice`]), and what
//! they say to each other needs no lock that is contended.
//!
//! | what | a connection that was accepted | one that was opened |
//! |---|---|---|
//! | takes | a place, a descriptor | the same |
//! | deadlines, memory, metrics | those of its listener | those of the listener of the |
//! |  |  | connection that wished it |
//! | counts for an address | its client's | none: no limit and no share |
//! | counts for its listener's | yes | no: it is no client |
//! | `connections_max` |  |  |
//! | begins with | `Phase::Head` | `Phase::Wait`: the peer's answer |
//! |  |  | is awaited for `wait_timeout` |
//! | closed for a newcomer | while it rests | in `Phase::Idle` and `Phase::Head` |
//! |  |  | alone, if the protocol sets them |
//! | is in a drain | notified | notified, likewise |
//! | is handed to a new process | no | no: it ends where it was opened |
//!
//! An opened connection that waits for the next request, in a pool, is idle: its protocol sets
//! [`Phase::Idle`](crate::Phase::Idle), and it gives up its place to a newcomer like any client
//! that only waits. In every other phase a request depends on it, and it keeps its place. The
//! connection that wished it had better not rest either: `Phase::Wait` says that it waits for
//! something that is not its client's to bring.
//!
//! Invariants
//! - CN1: of an opened connection [`Event::Connected`](crate::Event::Connected) or
//!   [`Event::ConnectFailed`](crate::Event::ConnectFailed) is the first event, and after the latter
//!   comes `closed` alone.
//! - CN2: a wish is carried out in the same turn or the next one, whatever became of the connection
//!   that wished it.

use std::fmt;

use flatpath_driver::Remote;

use crate::protocol::Protocol;
use crate::protocol::connect::Connect;
use crate::protocol::io::Io;
use crate::protocol::successor::Successor;

/// A protocol for connections that this server opens. Make it once and clone it: each network
/// thread keeps what it has made for it until the server ends, as it does for a
/// [`Successor`](crate::Successor), with which it shares the room for 65,535.
///
/// Of the protocol's [`ListenerOptions`](crate::ListenerOptions) only the name counts. Its
/// [`Protocol::starts`] is not called, and the state of a network thread is made at the first
/// connection there.
///
/// ```
/// use flatpath::simulation::Answer;
/// use flatpath::{Connector, Context, Event, Phase, Protocol, Received, Remote};
///
/// /// Passes each client on to one server.
/// struct Pass(Connector<Far>, Remote);
///
/// impl Protocol for Pass {
///     type ThreadState = ();
///     type Session = ();
///     type Job = ();
///
///     fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
///         Received::NeedMore { consumed: 0 } // it goes along with the splice
///     }
///
///     fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
///         match event {
///             Event::Connected => {
///                 context.phase(Phase::Wait);
///                 let client = context.handle();
///                 let wish = self.0.to(self.1.clone(), move || Some(client));
///                 context.connect(wish);
///             }
///             other => other.by_default(context),
///         }
///     }
/// }
///
/// /// The other side of one.
/// struct Far;
///
/// impl Protocol for Far {
///     type ThreadState = ();
///     type Session = Option<flatpath::ConnectionHandle>;
///     type Job = ();
///
///     fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
///         Received::NeedMore { consumed: 0 }
///     }
///
///     fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
///         match event {
///             Event::Connected => {
///                 let client = context.session.clone().expect("it began with one");
///                 context.splice(&client);
///             }
///             other => other.by_default(context),
///         }
///     }
/// }
/// # flatpath_test::each_seed(20, |seed| {
/// #     let at: std::net::SocketAddr = "192.0.2.1:80".parse().expect("an address");
/// #     let pass = Pass(Connector::new(Far), at.into());
/// #     let mut server = flatpath_test::TestServer::new(
/// #         flatpath_test::Conditions::rough(seed), pass);
/// #     let far = server.world().upstream(at, Answer::Accepts);
/// #     let client = server.connect();
/// #     client.write(b"ask");
/// #     let mut peer = None;
/// #     server.run_until(|| { peer = peer.take().or_else(|| far.accept()); peer.is_some() });
/// #     let peer = peer.expect("connected");
/// #     assert_eq!(server.read_exact(&peer, 3), b"ask");
/// #     peer.write(b"told");
/// #     assert_eq!(server.read_exact(&client, 4), b"told");
/// # });
/// ```
pub struct Connector<P: Protocol>(Successor<P>);

impl<P: Protocol> Clone for Connector<P> {
    fn clone(&self) -> Connector<P> {
        Connector(self.0.clone())
    }
}

impl<P: Protocol> fmt::Debug for Connector<P> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Connector").field(&self.0).finish()
    }
}

impl<P: Protocol> Connector<P> {
    /// A protocol to open connections with.
    pub fn new(protocol: P) -> Connector<P> {
        Connector(Successor::new(protocol))
    }

    /// What [`Io::connect`] takes. The network thread makes the session with `begin`, in the turn
    /// in which the connection is opened; where that panics, nothing is opened. One connection
    /// allocates this.
    pub fn to(
        &self,
        remote: impl Into<Remote>,
        begin: impl FnOnce() -> P::Session + Send + 'static,
    ) -> Connect {
        Connect::new(remote.into(), self.0.begin(begin))
    }
}

impl Io<'_> {
    /// Opens, after this call, a connection of the same network thread: a new one with a session of
    /// its own, which gets [`Event::Connected`](crate::Event::Connected) when it stands, or
    /// [`Event::ConnectFailed`](crate::Event::ConnectFailed) with the reason. The end of this
    /// connection does not take the wish back.
    ///
    /// Cost: system calls as [`Driver::socket`](flatpath_driver::Driver::socket) and
    /// [`Driver::connect`](flatpath_driver::Driver::connect) have them, and one more for TCP.
    pub fn connect(&mut self, wish: Connect) {
        let listener = self.connection.listener();
        self.common.wishes.push_back((listener, wish));
        // The turn is not quiet, or the next one follows at once.
        self.common.mailbox().tell();
    }
}
