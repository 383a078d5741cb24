//! Acts for `crate::admission::opening`: opens connections that protocols wish, and tells what
//! became of them.
//!
//! | what has happened              | what is done                                               |
//! |--------------------------------|------------------------------------------------------------|
//! | a wish ([`Io::connect`])       | a session and a place; then room is asked for              |
//! | there is room                  | a socket, and the connect, with its deadline in the wheel  |
//! | the connect has succeeded      | `Connected`; from now on it is a connection like any other |
//! |                                | or, with TLS, a handshake first                            |
//! | its deadline has passed, or    | the connect is cancelled; its completion says what it had  |
//! | the server is ended by force   | come to                                                    |
//! | any step has failed            | `ConnectFailed`, the socket is closed, the connection gone |
//!
//! A connect is the first thing that is under way on a socket, where later a send may be, and has
//! its number ([`Writing::Connecting`]); until it is over nothing is received, as if the connection
//! had to take a step. So no event of an accepted connection asks whether it is being opened.
//!
//! A wish that finds the table full to its last place, beyond all that is refused, has no place to
//! report from: its session is closed without an event.
//!
//! [`Io::connect`]: crate::Io::connect
//! [`Writing::Connecting`]: crate::connection

use flatpath_driver::{Driver, Errno, Operation, Remote};
use flatpath_structures::slots::Key;

use crate::admission::accepting::KernelError;
use crate::admission::claim::Claim;
use crate::admission::opening::{Facts, Opening};
use crate::connection::Connection;
use crate::limits::UNSENT_BYTES_MAX;
use crate::protocol;
use crate::protocol::connect::{Connect, ConnectError, ConnectReason, ConnectStep, TlsFault};
use crate::protocol::phase::Phase;
use crate::protocol::turn::end_ns;
use crate::server::lifecycle::ServerState;

use super::reconcile::Fate;
use super::thread::{Event, Network};
use super::user_data::{KIND_SEND, user_data};

/// Connections opened in one turn: with up to six system calls each, about as long as the newcomers
/// of a turn take.
const TURN_CONNECTS_MAX: usize = 64;

impl<D: Driver> Network<D> {
    /// Opens what protocols have wished, oldest first: as many as one turn allows.
    pub(super) fn open_wished(&mut self) {
        for _ in 0..TURN_CONNECTS_MAX {
            let Some((listener, wish)) = self.thread.common.next_wish() else {
                break;
            };
            self.open(listener, wish);
        }
    }

    fn open(&mut self, listener: u16, wish: Connect) {
        let Connect {
            remote,
            begin,
            timeout,
            secure,
        } = wish;
        let successors = &mut self.thread.successors;
        let Some(own) = successors.open(begin) else {
            log::error!("a connection to {remote} has no session: nothing is opened");
            return;
        };
        // The handshake is first. Its session begins with nothing that could panic.
        let handshake = secure.and_then(|secure| successors.open(secure));
        let now_ns = self.thread.now_ns();
        let ends_ns = end_ns(now_ns, timeout);
        let first = handshake.unwrap_or(own);
        let mut connection = Connection::to_open(listener, first, (now_ns, ends_ns));
        if handshake.is_some() {
            connection.secures(own);
        }
        match self.connections.insert(connection) {
            Ok(key) => {
                let common = &mut self.thread.common;
                common.admission.enter_opened(key.index);
                common.counters(listener).opened.add(1);
                common.is_no_client(key.index);
                self.begin_connect(key, &remote);
            }
            Err(connection) => {
                for (successor, session) in handshake.into_iter().chain([own]) {
                    let protocol = self.thread.successors.get(successor);
                    protocol.close(session, None);
                }
                drop(connection);
                let counters = self.thread.common.counters(listener);
                counters.connect_no_place.add(1);
            }
        }
    }

    /// Asks for room, and starts the connect. A connection that cannot be opened is gone.
    fn begin_connect(&mut self, key: Key, remote: &Remote) {
        let begun = match self.room_to_open(key) {
            Opening::Open => self.start_connect(key, remote),
            Opening::Refuse(reason) => Err(reason),
        };
        match begun {
            // Its deadline goes to the wheel.
            Ok(()) => self.on(key, |_| {}),
            Err(reason) => {
                let error = ConnectError::new(ConnectStep::Room, reason);
                if let Some(mut event) = self.event(key) {
                    let fate = event.end_opening(error);
                    self.conclude(key, fate);
                }
            }
        }
    }

    fn room_to_open(&mut self, key: Key) -> Opening {
        let facts = Facts {
            is_forced: self.thread.common.server_state() == ServerState::Forced,
            waits_for_memory: self.thread.memory.is_short(),
        };
        let opening = Opening::of(facts);
        if opening != Opening::Open {
            return opening;
        }
        match self.carry_out(Claim::opened(key.index)) {
            None => Opening::Open,
            Some(_) => Opening::Refuse(ConnectReason::NoPlace),
        }
    }

    fn start_connect(&mut self, key: Key, remote: &Remote) -> Result<(), ConnectReason> {
        let made = self.thread.driver.socket(remote);
        let socket = made.map_err(|errno| {
            let reason = ConnectReason::of(errno);
            if reason == ConnectReason::NoDescriptor {
                // The next one finds some.
                self.free_descriptor(KernelError(errno.raw_os_error()));
            }
            reason
        })?;
        let driver = &mut self.thread.driver;
        if let Remote::Tcp(_) = remote {
            // As accepted ones inherit it from their listener.
            driver.set_unsent_max(socket, UNSENT_BYTES_MAX);
        }
        if let Some(connection) = self.connections.get_mut(key) {
            let number = connection.begin_connect(socket);
            driver.connect(socket, remote, user_data(KIND_SEND, number, key));
        }
        Ok(())
    }
}

impl<D: Driver> Event<'_, D> {
    /// The connect has succeeded: the connection stands.
    pub(super) fn connected(&mut self) -> Fate {
        if self.connection.is_closing() {
            return self.connect_failed(Errno::CANCELED);
        }
        let (ends_ns, is_plain) = self.connection.connect_succeeded();
        if !is_plain {
            // What is left of its time is for the handshake.
            let limits = self.listener.limits();
            let connection = &mut *self.connection;
            connection.start_phase_until(Phase::Timed, ends_ns, limits);
            self.report(protocol::Event::Connected);
            return Fate::Stays;
        }
        self.stands();
        self.report(protocol::Event::Connected);
        self.comes_late();
        Fate::Stays
    }

    /// From now on the connection's own protocol is called.
    pub(super) fn stands(&mut self) {
        self.connection.stands(self.thread.now_ns());
        self.counters().connections_opened.add(1);
    }

    /// The handshake of a connection that is opened is complete: it becomes one of its own
    /// protocol. False: it is none of these.
    pub(super) fn change_to_opened(&mut self) -> bool {
        let Some(((successor, session), _)) = self.connection.end_securing() else {
            return false;
        };
        self.end_session();
        let now_ns = self.thread.now_ns();
        self.connection.change_protocol(successor, session, now_ns);
        self.connection.begin_stream();
        true
    }

    /// The connect has failed, or was cancelled: at its deadline, or as the server is ended.
    #[cold]
    pub(super) fn connect_failed(&mut self, errno: Errno) -> Fate {
        let reason = match errno {
            Errno::CANCELED if self.connection.is_closing() => ConnectReason::Draining,
            Errno::CANCELED => ConnectReason::TimedOut,
            errno => ConnectReason::of(errno),
        };
        self.end_opening(ConnectError::new(ConnectStep::Connect, reason))
    }

    /// The connection is gone, and its own protocol was not called yet: its TLS never stood.
    #[cold]
    pub(super) fn tell_unsecured(&mut self) {
        let is_forced = self.thread.common.server_state() == ServerState::Forced;
        let reason = match () {
            () if is_forced => ConnectReason::Draining,
            () if self.connection.has_expired() => ConnectReason::TimedOut,
            () => ConnectReason::Tls(TlsFault::CutOff),
        };
        self.tell_failed(ConnectError::new(ConnectStep::Tls, reason));
    }

    /// Tells the connection's own protocol why it never stands: for this, or for what the handshake
    /// has said.
    fn tell_failed(&mut self, error: ConnectError) {
        let mut error = error;
        if let Some(((successor, session), failed)) = self.connection.end_securing() {
            error = failed.unwrap_or(error);
            self.end_session();
            let now_ns = self.thread.now_ns();
            self.connection.change_protocol(successor, session, now_ns);
        }
        log::debug!("{error}");
        self.count_failed(error.reason);
        self.connection.never_stands();
        self.report(protocol::Event::ConnectFailed(error));
        self.connection.drop_output();
    }

    /// The connection is none: its protocol is told why, and nothing is left of it.
    fn end_opening(&mut self, error: ConnectError) -> Fate {
        self.tell_failed(error);
        if let Some(socket) = self.connection.opened_socket() {
            self.thread.driver.close(socket);
        }
        Fate::Gone
    }

    fn count_failed(&self, reason: ConnectReason) {
        let counters = self.counters();
        let counter = match reason {
            ConnectReason::Draining => &counters.connect_draining,
            ConnectReason::NoPlace => &counters.connect_no_place,
            ConnectReason::NoDescriptor => &counters.connect_no_descriptor,
            ConnectReason::NoMemory => &counters.connect_no_memory,
            ConnectReason::NoPort => &counters.connect_no_port,
            ConnectReason::Refused => &counters.connect_refused,
            ConnectReason::Unreachable => &counters.connect_unreachable,
            ConnectReason::TimedOut => &counters.connect_timed_out,
            ConnectReason::Busy => &counters.connect_busy,
            ConnectReason::Tls(_) => &counters.connect_tls,
            ConnectReason::Other(_) => &counters.connect_other,
        };
        counter.add(1);
    }

    /// Ends a connect that is under way: its completion follows.
    pub(super) fn cancel_connect(&mut self) {
        if let Some(number) = self.connection.cancel_connect() {
            let user_data = user_data(KIND_SEND, number, self.key);
            let operation = Operation::Connect(self.connection.socket());
            self.thread.driver.cancel(operation, user_data);
        }
    }
}
