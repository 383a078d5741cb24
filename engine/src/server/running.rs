//! A started server: its threads, and how they end.
//!
//! `start.rs` starts it. End order: network threads finish what is in
//! flight, then workers stop, then the scaler.

use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use flatpath_structures::pool::PoolStatistics;

use crate::error::Error;
use crate::limits::Limits;
use crate::observe::figures::{Figures, RunningHandler};
use crate::observe::statistics::Statistics;
use crate::server::changed_limits::LimitChange;
use crate::server::lifecycle::ServerState;
use crate::server::listener_limits::ListenerLimits;
use crate::server::signals::SignalWatch;
use crate::server::sockets::Listening;
use crate::watch::{EventWatch, Eventfd};
use crate::workers::Shared;
use crate::workers::scaler::Scaler;

/// Where a listener with an internet address was bound, and what is spoken there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bound {
    /// The protocol's name.
    pub name: &'static str,
    /// The address, with the real port.
    pub address: SocketAddr,
}

/// A running server: [`wait`](Running::wait) for it, and SIGTERM, SIGINT or SIGHUP drains it.
///
/// Before that a signal does what it does without a server: it ends the process. Dropping the
/// server drains it and waits.
///
/// ```no_run
/// use flatpath::{Protocol, Server};
///
/// # fn serve(protocol: impl Protocol) -> Result<(), flatpath::Error> {
/// let running = Server::new().listen("127.0.0.1:0", protocol).start()?;
/// println!("listening on {}", running.addresses()[0].address);
/// let handle = running.handle();
/// std::thread::spawn(move || {
///     // When it is time to end:
///     handle.drain();
/// });
/// running.wait()
/// # }
/// ```
#[must_use = "dropped, the server drains: wait for it, or keep it for as long as it is to run"]
pub struct Running {
    pub(crate) listening: Vec<Listening>,
    pub(crate) addresses: Vec<Bound>,
    pub(crate) datagrams: Vec<Listening>,
    pub(crate) driver: &'static str,
    pub(crate) handle: Handle,
    pub(crate) networks: Vec<JoinHandle<()>>,
    /// There until the end has been waited for.
    pub(crate) scaler: Option<Scaler>,
}

/// A hold on a running server that any thread may keep.
///
/// ```no_run
/// use std::time::Duration;
///
/// use flatpath::{Handle, ServerState};
///
/// fn watch(handle: &Handle) {
///     while handle.state() == ServerState::Running {
///         for slow in handle.handlers(Duration::from_secs(10)) {
///             eprintln!("still running: {slow:?}");
///         }
///         std::thread::sleep(Duration::from_secs(1));
///     }
/// }
/// # let _ = watch;
/// ```
#[derive(Clone)]
#[must_use = "it does nothing by itself"]
pub struct Handle(pub(crate) Arc<Shared>);

flatpath_structures::opaque_debug! {
    impl[] Running as "Running";
    impl[] Handle as "Handle";
}

impl Handle {
    /// After `drain_delay` stops accepting, finishes what is in flight, tells kept connections to
    /// close; what is left after `drain_timeout` is cut off. A connection that was accepted by then
    /// is served. Returns at once; [`Running::wait`] returns within `drain_delay`, `drain_timeout`
    /// and a second from now on, whatever blocks.
    pub fn drain(&self) {
        self.0.advance(self.0.lifecycle.first_of_drain());
    }

    /// The same without the delay, or what is left of it.
    pub fn drain_now(&self) {
        self.0.advance(ServerState::Draining);
    }

    /// Cuts off everything at once. Returns at once; [`Running::wait`] returns within 250 ms from
    /// now on, and leaves behind the workers whose handlers have not returned by then.
    pub fn force(&self) {
        self.0.advance(ServerState::Forced);
    }

    /// Changes what can change of the [limits](crate::Server::limits) of a server that runs:
    /// deadlines, times of the drain, connections of one address, workers of one listener; and all
    /// [limits of its listeners](crate::Server::listener_limits), in the order in which they were
    /// named. Everything else is as it was at the start. A listener that `listeners` does not reach
    /// has those that it was started with.
    ///
    /// Returns at once; network threads follow in their next turns. Connections beyond a new bound
    /// stay open; a deadline that has passed by the new limits fires.
    pub fn change_limits(&self, limits: &Limits, listeners: &[ListenerLimits]) {
        self.0.change_limits(LimitChange {
            server: limits.clone(),
            listeners: listeners.to_vec(),
        });
    }

    /// Asks each network thread for a turn, also one that waits for something to happen. Those that
    /// can take it count it ([`ThreadFigures::turns`](crate::figures::ThreadFigures::turns)): what
    /// a watchdog of the whole process asks for. Returns at once.
    pub fn ask_for_turns(&self) {
        self.0.tell_all();
    }

    /// How far the end of the server has come. A balancer should send it clients while it is
    /// [`ServerState::Running`]. One load.
    pub fn state(&self) -> ServerState {
        self.0.server_state()
    }

    /// Gives an eventfd to a network thread, which calls `signalled` with the sum of what was
    /// written since the last call while the [watch](EventWatch::start) lasts; several watches are
    /// shared out among the threads. The function must not block, and takes a few microseconds at
    /// most; a panic ends neither the thread nor the watch. It is called no more once the server
    /// has ended.
    pub fn watch(
        &self,
        event: Eventfd,
        signalled: impl Fn(u64) + Send + Sync + 'static,
    ) -> EventWatch {
        EventWatch::new(Arc::clone(&self.0), event, Box::new(signalled))
    }

    /// Everything that the server shows of itself, at this moment. It waits for no thread that
    /// serves, and costs them nothing; see [`figures`](crate::figures).
    pub fn figures(&self) -> Figures {
        self.0.figures()
    }

    /// What all listeners counted so far, on all network threads: a part of
    /// [`figures`](Handle::figures) that takes less.
    pub fn statistics(&self) -> Statistics {
        self.0.statistics()
    }

    /// The handlers that have run for at least so long and have not returned: those of workers, and
    /// the present turns of network threads, in which handlers run inline.
    pub fn handlers(&self, longer_than: Duration) -> Vec<RunningHandler> {
        self.0.handlers(longer_than)
    }

    /// What the buffers of the server hold and keep.
    pub fn pool_statistics(&self) -> PoolStatistics {
        self.0.memory.pools.statistics()
    }

    /// Worker threads now.
    pub fn workers(&self) -> u32 {
        self.0.worker_pool.workers()
    }
}

impl Running {
    /// The listeners in the order they were named.
    pub fn listeners(&self) -> &[Listening] {
        &self.listening
    }

    /// Those of them that have an internet address, in the same order.
    pub fn addresses(&self) -> &[Bound] {
        &self.addresses
    }

    /// The listeners for datagrams, in the order they were named, each with its real port.
    pub fn datagram_listeners(&self) -> &[Listening] {
        &self.datagrams
    }

    /// The driver in use: `uring` or `epoll`.
    pub fn driver(&self) -> &'static str {
        self.driver
    }

    /// A handle for other threads.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Waits until the server has drained; see [`Handle::drain`]. The end of any network thread
    /// begins the drain of all, and so does SIGTERM, SIGINT or SIGHUP, as with
    /// [`Server::run`](crate::Server::run): the second signal cuts off what is left.
    ///
    /// That is so for signals which would end the process. What the program handles or ignores, by
    /// a [`SignalWatch`] or another library, is left to it. Where this returns without a signal,
    /// they end the process again; after one they do nothing, as it may come twice.
    ///
    /// # Errors
    /// What made a network thread give up before its time; [`Error::LeftBehind`] when threads were
    /// blocked beyond the limit (see [`Handle::drain`] and [`Handle::force`]): they and what they
    /// hold stay in the process.
    pub fn wait(self) -> Result<(), Error> {
        match SignalWatch::of_wait() {
            Ok(Some(watch)) => watch.run(self),
            Ok(None) => self.ended(),
            Err(error) => {
                log::warn!("a signal will end the process at once: {error}");
                self.ended()
            }
        }
    }

    /// The same, whatever signals come.
    pub(crate) fn ended(mut self) -> Result<(), Error> {
        self.join()
    }

    fn join(&mut self) -> Result<(), Error> {
        let shared = &self.handle.0;
        let mut left = shared.lifecycle.await_networks(self.networks.len());
        for network in self.networks.drain(..) {
            // It has reported its end, or is left behind.
            if left.is_empty() || network.is_finished() {
                let _ = network.join();
            }
        }
        shared.lifecycle.await_true(|| shared.bin.is_empty());
        if let Some(scaler) = self.scaler.take() {
            left.extend(scaler.stop(shared));
        }
        for file in &shared.socket_files {
            file.remove();
        }
        shared.lifecycle.outcome(left)
    }

    /// The start has failed: no thread of it stays.
    pub(crate) fn abandon(mut self, error: Error) -> Error {
        self.handle.force();
        if let Err(outcome) = self.join() {
            log::debug!("the start failed: {outcome}");
        }
        error
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.scaler.is_some() {
            let statistics = self.handle.statistics();
            let served = statistics.connections_accepted + statistics.datagrams_received;
            let is_unused = served == 0;
            if is_unused && self.handle.state() == ServerState::Running {
                log::warn!(
                    "a server is dropped before its first connection, so it ends: wait for what \
                     Server::start returns (Running::wait), or keep it"
                );
            }
            self.handle.drain();
            if let Err(error) = self.join() {
                log::error!("{error}");
            }
        }
    }
}
