//! Arms, cancels and pauses accept, and takes in what comes.
//!
//! Near the limit connections are accepted one by one. At it a connection that rests is closed for
//! each newcomer; if none rests, newcomers wait in the kernel's backlog for a moment and are then
//! refused in the protocol's words: see `admission.rs`.

use flatpath_driver::{Completion, Driver, Errno, Operation, OperationMode, Outcome, Socket};
use flatpath_structures::slots::Key;

use crate::connection::{Closing, Connection};
use crate::lifecycle::ServerState;
use crate::limits::{ACCEPT_ONE_BY_ONE, ACCEPT_PAUSE_NS, TURN_ACCEPTS_MAX};
use crate::listener::DynProtocol;

use super::listening::{Listener, State};
use super::thread::Network;
use super::user_data::{KIND_ACCEPT, user_data};

/// Failures in a row after which accept goes on one by one: some sandboxes break multishot accept.
const FAILURES_MAX: u32 = 8;

impl<D: Driver> Network<D> {
    pub(super) fn accept_completed(&mut self, index: u32, operation: u8, completion: Completion) {
        let now_ns = self.thread.common.turn.now_ns;
        let number = number_of(index);
        let known = self
            .listeners
            .get_mut(index as usize)
            .filter(|listener| listener.operation == operation && !listener.is_quiet());
        let Some(listener) = known else {
            return self.thread.discard(completion.outcome);
        };
        self.accepts_are_due |=
            !completion.more || !matches!(completion.outcome, Outcome::Accepted(_));
        if !completion.more {
            let stopped = self.thread.common.server_state >= ServerState::Draining;
            listener.state = if stopped { State::Stopped } else { State::Off };
            if stopped {
                listener.source = None;
            }
        }
        match completion.outcome {
            Outcome::Accepted(socket) => {
                listener.failures = 0;
                self.arrivals.push((index, socket));
            }
            Outcome::Failed(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Outcome::Failed(
                errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM),
            ) => {
                if listener.state == State::Off {
                    listener.state = State::PausedUntil(now_ns.saturating_add(ACCEPT_PAUSE_NS));
                }
                self.thread.common.counters(number).accept_pauses.add(1);
                self.no_descriptor(errno);
            }
            Outcome::Failed(errno) => {
                listener.failures = listener.failures.saturating_add(1);
                if listener.state == State::Off && listener.failures > FAILURES_MAX {
                    listener.state = State::PausedUntil(now_ns.saturating_add(ACCEPT_PAUSE_NS));
                }
                log::debug!("accept failed: {errno}");
            }
            other => {
                debug_assert!(false, "an accept neither receives nor sends");
                self.thread.discard(other);
            }
        }
    }

    /// Lets in as many of those accepted as one turn allows.
    pub(super) fn let_in(&mut self) {
        // Who is let in may close others, begin an episode, or leave some to the next turn.
        self.thread.due_ns = 0;
        let driver = &self.thread.driver;
        self.arrivals.arrange(|(_, socket)| driver.peer(*socket));
        for _ in 0..TURN_ACCEPTS_MAX {
            let Some((listener, socket)) = self.arrivals.pop() else {
                break;
            };
            self.accepted(listener, socket);
        }
    }

    /// A connection is there: it gets a place, or is told that there is none. One that a cancelled
    /// accept still brings while the server drains is served: no other process can be given it.
    fn accepted(&mut self, index: u32, socket: Socket) {
        let number = number_of(index);
        let common = &self.thread.common;
        common.counters(number).accepted.add(1);
        let (now_ns, server_state) = (common.turn.now_ns, common.server_state);
        if server_state == ServerState::Forced {
            return self.thread.driver.close(socket);
        }
        let listener = &mut self.listeners[index as usize];
        let (successor, session) = match &listener.balancers {
            None => (0, listener.protocol.open()),
            Some(balancers) if self.thread.is_balancer(number, balancers, socket) => {
                let header = self.thread.proxy_header;
                (header, self.thread.successors.get(header).open())
            }
            Some(_) => return self.thread.driver.abort(socket),
        };
        let Some(session) = session else {
            return self.reject(number, socket);
        };
        let mut connection = Connection::new(socket, number, session, now_ns);
        connection.successor = successor;
        connection.region_id = listener.first_region_id;
        connection.shares = listener.first_shares;
        match self.connections.insert(connection) {
            Ok(key) => {
                if server_state == ServerState::Draining {
                    self.late.push_back((key, now_ns));
                }
                self.thread.common.counters(number).opened.add(1);
                let listener = &mut self.listeners[index as usize];
                listener.count(&mut self.thread.of_listeners, key.index);
                self.admit(key);
                self.on(key, |event| {
                    if event.connection.control.closing == Closing::No {
                        event.call(|protocol, io| protocol.connected(io));
                    }
                });
            }
            Err(connection) => {
                let protocol: &mut dyn DynProtocol = match connection.successor {
                    0 => &mut *self.listeners[index as usize].protocol,
                    header => self.thread.successors.get(header),
                };
                protocol.close(connection.session);
                self.reject(number, socket);
            }
        }
    }

    /// Connections that hold a descriptor: those in the table, and those accepted that wait for
    /// their turn.
    pub(super) fn open_connections(&self) -> usize {
        self.connections.len() as usize + self.arrivals.len()
    }

    fn reject(&mut self, listener: u16, socket: Socket) {
        self.thread.common.counters(listener).refused.add(1);
        self.thread.driver.close(socket);
    }

    /// Arms, cancels or resumes accept on every listener, as the room allows.
    pub(super) fn update_accepts(&mut self) {
        if self.thread.common.server_state >= ServerState::Draining {
            return;
        }
        let room = self.places().saturating_sub(self.open_connections());
        let accepts = self.accepts();
        for index in 0..self.listeners.len() {
            let listener = &mut self.listeners[index];
            if let State::PausedUntil(until) = listener.state
                && self.thread.common.turn.now_ns >= until
            {
                listener.state = State::Off;
            }
            let plenty = room > ACCEPT_ONE_BY_ONE && listener.failures <= FAILURES_MAX;
            let mode = if plenty {
                self.accept_mode
            } else {
                OperationMode::Single
            };
            match listener.state {
                State::Off if accepts => self.arm_accept(index, mode),
                State::Armed(OperationMode::Multishot) if !plenty => self.cancel_accept(index),
                State::Armed(_) if !accepts => self.cancel_accept(index),
                _ => {}
            }
        }
        let is_armed = |listener: &Listener| matches!(listener.state, State::Armed(_));
        self.accepts_are_due = !self.listeners.iter().all(is_armed);
    }

    fn arm_accept(&mut self, index: usize, mode: OperationMode) {
        let listener = &mut self.listeners[index];
        let Some(source) = &listener.source else {
            return;
        };
        listener.state = State::Armed(mode);
        listener.operation = listener.operation.wrapping_add(1);
        let user_data = accept_user_data(index, listener.operation);
        self.thread.driver.accept(source, user_data, mode);
    }

    fn cancel_accept(&mut self, index: usize) {
        let listener = &mut self.listeners[index];
        let Some(source) = &listener.source else {
            return;
        };
        listener.state = State::Cancelling;
        let user_data = accept_user_data(index, listener.operation);
        self.thread
            .driver
            .cancel(Operation::Accept(source), user_data);
    }

    /// The drain begins: no more connections. A listener closes when its accept has ended.
    pub(super) fn stop_listening(&mut self) {
        for index in 0..self.listeners.len() {
            match self.listeners[index].state {
                State::Armed(_) => self.cancel_accept(index),
                State::Cancelling => {}
                State::Off | State::PausedUntil(_) | State::Stopped => {
                    self.listeners[index].state = State::Stopped;
                    self.listeners[index].source = None;
                }
            }
        }
    }

    /// A connection is gone: a paused accept may find its descriptor.
    pub(super) fn connection_left(&mut self) {
        for listener in &mut self.listeners {
            if let State::PausedUntil(_) = listener.state {
                listener.state = State::Off;
            }
        }
    }

    /// How long until a paused accept is tried again.
    pub(super) fn accept_timeout_ns(&self, now_ns: u64) -> Option<u64> {
        self.listeners
            .iter()
            .filter_map(|listener| match listener.state {
                State::PausedUntil(until) => Some(until.saturating_sub(now_ns)),
                State::Off if listener.source.is_some() => {
                    // Armed at the end of the first turn, or as soon as there is room.
                    self.accepts_in_ns(now_ns)
                }
                _ => None,
            })
            .min()
    }
}

/// A listener of this thread, as connections have it.
fn number_of(index: u32) -> u16 {
    u16::try_from(index).unwrap_or_default()
}

fn accept_user_data(index: usize, operation: u8) -> u64 {
    let index = u32::try_from(index).unwrap_or_default();
    user_data(
        KIND_ACCEPT,
        operation,
        Key {
            index,
            generation: 0,
        },
    )
}
