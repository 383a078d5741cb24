//! Arms, cancels and pauses accept, and takes in what comes.
//!
//! Near the limit connections are accepted one by one. At it a connection that rests is closed for
//! each newcomer; if none rests, newcomers wait in the kernel's backlog for a moment and are then
//! refused in the protocol's words: see `admission.rs`.

use flatpath_driver::{Completion, Driver, Errno, Operation, OperationMode, Outcome, Socket};
use flatpath_structures::slots::Key;

use crate::connection::Connection;
use crate::lifecycle::ServerState;
use crate::limits::{
    ACCEPT_ONE_BY_ONE, ACCEPT_PAUSE_NS, BACKLOG, LISTEN_PAUSE_NS, TURN_ACCEPTS_MAX,
};
use crate::listener::DynProtocol;
use crate::protocol;

use super::listening::{Acceptor, Door, State};
use super::thread::Network;
use super::user_data::{KIND_ACCEPT, user_data};

/// Failures in a row after which accept goes on one by one: some sandboxes break multishot accept.
const FAILURES_MAX: u32 = 8;

impl<D: Driver> Network<D> {
    pub(super) fn accept_completed(&mut self, index: u32, operation: u8, completion: Completion) {
        let now_ns = self.thread.common.turn.now_ns;
        let known = self
            .acceptors
            .get_mut(index as usize)
            .filter(|acceptor| acceptor.operation == operation && !acceptor.is_quiet());
        let Some(acceptor) = known else {
            return self.thread.discard(completion.outcome);
        };
        if !completion.more || !matches!(completion.outcome, Outcome::Accepted(_)) {
            self.door = None;
        }
        if !completion.more {
            let stopped = self.thread.common.server_state >= ServerState::Draining;
            acceptor.state = if stopped { State::Stopped } else { State::Off };
        }
        match completion.outcome {
            Outcome::Accepted(socket) => {
                acceptor.failures = 0;
                self.arrivals.push((acceptor.listener, socket));
            }
            Outcome::Failed(Errno::CANCELED | Errno::INTR | Errno::AGAIN) => {}
            Outcome::Failed(
                errno @ (Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM),
            ) => {
                if acceptor.state == State::Off {
                    acceptor.state = State::PausedUntil(now_ns.saturating_add(ACCEPT_PAUSE_NS));
                }
                let number = acceptor.listener;
                self.thread.common.counters(number).accept_pauses.add(1);
                self.no_descriptor(errno);
            }
            // It does not listen yet: the server before this one has not handed over.
            Outcome::Failed(Errno::INVAL) if acceptor.awaits_its_turn() => {
                acceptor.state = State::PausedUntil(now_ns.saturating_add(LISTEN_PAUSE_NS));
            }
            Outcome::Failed(errno) => {
                acceptor.failures = acceptor.failures.saturating_add(1);
                if acceptor.state == State::Off && acceptor.failures > FAILURES_MAX {
                    acceptor.state = State::PausedUntil(now_ns.saturating_add(ACCEPT_PAUSE_NS));
                }
                log::debug!("accept failed: {errno}");
            }
            other => {
                debug_assert!(false, "an accept neither receives nor sends");
                self.thread.discard(other);
            }
        }
        if self.acceptors[index as usize].state == State::Stopped {
            self.close_acceptor(index as usize);
        }
    }

    /// The accept of a server that drains has ended. Takes what has come to the socket till then
    /// and closes it: another server may share it, and the kernel has told of these connections
    /// only one of both, which may have been the accept that was cancelled. Who comes from now on
    /// wakes the other.
    fn close_acceptor(&mut self, index: usize) {
        let acceptor = &mut self.acceptors[index];
        let Some(source) = acceptor.source.take() else {
            return;
        };
        for _ in 0..BACKLOG {
            let Some(socket) = self.thread.driver.accept_waiting(&source) else {
                break;
            };
            self.arrivals.push((acceptor.listener, socket));
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
    fn accepted(&mut self, number: u16, socket: Socket) {
        let common = &self.thread.common;
        common.counters(number).connections_accepted.add(1);
        let (now_ns, server_state) = (common.turn.now_ns, common.server_state);
        if server_state == ServerState::Forced {
            return self.thread.driver.close(socket);
        }
        let listener = &mut self.listeners[usize::from(number)];
        let (successor, session) = match &listener.balancers {
            None if listener.handshake > 0 => {
                let number = listener.handshake;
                (number, self.thread.successors.get(number).open())
            }
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
        let pages = listener.first_pages;
        let connection = Connection::new(socket, number, (successor, session), pages, now_ns);
        match self.connections.insert(connection) {
            Ok(key) => {
                self.comes_late(key);
                self.thread.common.counters(number).opened.add(1);
                self.thread.admission.enter(key.index, number);
                self.note_answered(key);
                self.admit(key);
                self.on(key, |event| {
                    if !event.connection.is_closing() {
                        event.begin_line();
                        event.report(protocol::Event::Connected);
                    }
                });
            }
            Err(connection) => {
                let protocol: &mut dyn DynProtocol = match connection.successor() {
                    0 => &mut *self.listeners[usize::from(number)].protocol,
                    header => self.thread.successors.get(header),
                };
                protocol.close(connection.session(), None);
                self.reject(number, socket);
            }
        }
    }

    fn reject(&mut self, listener: u16, socket: Socket) {
        self.thread.common.counters(listener).refused_room.add(1);
        self.thread.driver.close(socket);
    }

    /// Whether nothing has changed that tending the door depends on.
    pub(super) fn door_is_quiet(&self) -> bool {
        let descriptors = &self.thread.common.shared.descriptors;
        let (open, beside_files) = (self.open_connections(), descriptors.places());
        self.door == Some(Door { open, beside_files }) && !descriptors.caches_give_way()
    }

    /// The end of a turn, for the connections that are there and those that want to come.
    pub(super) fn tend_door(&mut self) {
        self.make_room_for_files();
        self.update_accepts();
        self.end_episodes();
        let common = &mut self.thread.common;
        common.counts_addresses = common.shared.descriptors.is_weighed();
        let load = self.load();
        let has_room = self.thread.admission.counted(load) < load.max;
        let is_armed = |acceptor: &Acceptor| matches!(acceptor.state, State::Armed(_));
        let is_settled = has_room && self.acceptors.iter().all(is_armed);
        self.door = is_settled.then(|| Door {
            open: load.open,
            beside_files: self.thread.common.shared.descriptors.places(),
        });
    }

    /// Ends the episodes that are over.
    fn end_episodes(&mut self) {
        let now_ns = self.thread.now_ns();
        self.thread.admission.end_episodes(now_ns);
        self.thread.memory.end_episodes(now_ns);
    }

    /// When the next episode may be over.
    pub(super) fn episode_end_ns(&self) -> Option<u64> {
        let of_places = self.thread.admission.episode_end_ns();
        let of_memory = self.thread.memory.episode_end_ns();
        of_places.into_iter().chain(of_memory).min()
    }

    /// Arms, cancels or resumes accept on every socket, as the room allows.
    pub(super) fn update_accepts(&mut self) {
        if self.thread.common.server_state >= ServerState::Draining {
            return;
        }
        let load = self.load();
        let room = load.max.saturating_sub(load.open);
        let accepts = self.accepts();
        for index in 0..self.acceptors.len() {
            let acceptor = &mut self.acceptors[index];
            if let State::PausedUntil(until) = acceptor.state
                && self.thread.common.turn.now_ns >= until
            {
                acceptor.state = State::Off;
            }
            let plenty = room > ACCEPT_ONE_BY_ONE && acceptor.failures <= FAILURES_MAX;
            let mode = if plenty {
                self.accept_mode
            } else {
                OperationMode::Single
            };
            match acceptor.state {
                State::Off if accepts => self.arm_accept(index, mode),
                State::Armed(OperationMode::Multishot) if !plenty => self.cancel_accept(index),
                State::Armed(_) if !accepts => self.cancel_accept(index),
                _ => {}
            }
        }
    }

    fn arm_accept(&mut self, index: usize, mode: OperationMode) {
        let acceptor = &mut self.acceptors[index];
        let Some(source) = &acceptor.source else {
            return;
        };
        acceptor.state = State::Armed(mode);
        acceptor.operation = acceptor.operation.wrapping_add(1);
        let user_data = accept_user_data(index, acceptor.operation);
        self.thread.driver.accept(source, user_data, mode);
    }

    fn cancel_accept(&mut self, index: usize) {
        let acceptor = &mut self.acceptors[index];
        let Some(source) = &acceptor.source else {
            return;
        };
        acceptor.state = State::Cancelling;
        let user_data = accept_user_data(index, acceptor.operation);
        self.thread
            .driver
            .cancel(Operation::Accept(source), user_data);
    }

    /// The drain begins: no more connections. A listener closes when its accept has ended.
    pub(super) fn stop_listening(&mut self) {
        for index in 0..self.acceptors.len() {
            match self.acceptors[index].state {
                State::Armed(_) => self.cancel_accept(index),
                State::Cancelling => {}
                State::Off | State::PausedUntil(_) | State::Stopped => {
                    self.acceptors[index].state = State::Stopped;
                    self.acceptors[index].source = None;
                }
            }
        }
    }

    /// How long until a paused accept is tried again.
    pub(super) fn accept_timeout_ns(&self, now_ns: u64) -> Option<u64> {
        self.acceptors
            .iter()
            .filter_map(|acceptor| match acceptor.state {
                State::PausedUntil(until) => Some(until.saturating_sub(now_ns)),
                State::Off if acceptor.source.is_some() => {
                    // Armed at the end of the first turn, or as soon as there is room.
                    self.accepts_in_ns()
                }
                _ => None,
            })
            .min()
    }
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
