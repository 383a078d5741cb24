//! Acts for `crate::admission::accepting`: arms and cancels accept, and takes in what comes.
//!
//! | asked                          | verdict      | what is done                              |
//! |--------------------------------|--------------|-------------------------------------------|
//! | a completion                   | `Then`       | a descriptor is freed; the socket closed  |
//! | room for connections, a drain  | `Next`       | accept is armed, cancelled, or closed     |
//! | whether newcomers have to wait | `Waits`      | a long-lived connection is looked for     |
//! | which arrival is next          | [`Arrivals`] | it gets a place, or is refused            |
//!
//! [`Arrivals`]: crate::admission::arrivals::Arrivals

use flatpath_driver::{Completion, Driver, Errno, Operation, OperationMode, Outcome, Socket};
use flatpath_structures::slots::Key;

use crate::admission::accepting::{
    AcceptMode, AcceptRoom, Brought, KernelError, Next, Settled, Then, Waits,
};
use crate::admission::claim::Claim;
use crate::admission::long_lived::Need;
use crate::connection::Connection;
use crate::limits::{BACKLOG, TURN_ACCEPTS_MAX};
use crate::protocol;
use crate::protocol::erased::DynProtocol;
use crate::server::lifecycle::ServerState;

use super::admission::resting;
use super::thread::Network;
use super::timers::Chore;
use super::user_data::{KIND_ACCEPT, user_data};

/// What an accept that failed has brought. Only with EINVAL is the kernel asked whether it listens.
fn failure(errno: Errno, listens: impl FnOnce() -> bool) -> Brought {
    match errno {
        Errno::CANCELED | Errno::INTR | Errno::AGAIN => Brought::Nothing,
        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
            Brought::NoDescriptor(KernelError(errno.raw_os_error()))
        }
        Errno::INVAL if !listens() => Brought::NotListening,
        _ => Brought::Failure(KernelError(errno.raw_os_error())),
    }
}

impl<D: Driver> Network<D> {
    pub(super) fn accept_completed(&mut self, index: u32, operation: u8, completion: Completion) {
        let (common, outcome) = (&mut self.thread.common, completion.outcome);
        let Some(acceptor) = self.acceptors.of(index, operation) else {
            return self.thread.discard(outcome);
        };
        let (number, is_last) = (acceptor.listener(), !completion.more);
        let listens = || acceptor.listens();
        let brought = match outcome {
            Outcome::Accepted(_) => Brought::Connection,
            Outcome::Failed(errno) => failure(errno, listens),
            _ => {
                debug_assert!(false, "an accept neither receives nor sends");
                Brought::Nothing
            }
        };
        let drains = common.server_state() >= ServerState::Draining;
        let facts = (drains, common.turn.now_ns);
        let then = acceptor.completed(brought, is_last, facts);
        if is_last || brought != Brought::Connection {
            common.admission.unsettle();
        }
        match brought {
            Brought::NoDescriptor(_) => common.counters(number).accept_pauses.add(1),
            Brought::Failure(error) => log::debug!("accept failed: {error}"),
            Brought::Connection | Brought::Nothing | Brought::NotListening => {}
        }
        match outcome {
            Outcome::Accepted(socket) => self.acceptors.arrived(number, socket),
            other => self.thread.discard(other),
        }
        match then {
            Then::Continue => {}
            Then::FreeDescriptor(error) => self.free_descriptor(error),
            Then::Close => self.close_acceptor(index as usize),
        }
    }

    /// The accept of a server that drains has ended. Takes what has come to the socket till then
    /// and closes it: another server may share it, and the kernel has reported these connections
    /// to one of both only, which may have been the accept that was cancelled. A connection that
    /// comes from now on wakes the other.
    fn close_acceptor(&mut self, index: usize) {
        let Some((listener, source)) = self.acceptors.close(index) else {
            return;
        };
        for _ in 0..BACKLOG {
            let Some(socket) = self.thread.driver.accept_waiting(&source) else {
                break;
            };
            self.acceptors.arrived(listener, socket);
        }
    }

    /// Admits as many of those accepted as one turn allows.
    pub(super) fn admit_arrivals(&mut self) {
        if self.acceptors.arrivals() == 0 {
            return;
        }
        // A newcomer may close others, begin an episode, or be left to the next turn.
        self.thread.timers.at_once(Chore::All);
        let (driver, common) = (&self.thread.driver, &self.thread.common);
        let cells = |socket| common.cells_of(driver.peer(socket));
        self.acceptors.arrange(cells);
        for _ in 0..TURN_ACCEPTS_MAX {
            let Some((listener, socket)) = self.acceptors.next_arrival() else {
                break;
            };
            self.accepted(listener, socket);
        }
    }

    /// A connection is there: it gets a place, or is refused. One that a cancelled accept still
    /// brings while the server drains is served: no other process can be given it.
    fn accepted(&mut self, number: u16, socket: Socket) {
        let common = &self.thread.common;
        common.counters(number).connections_accepted.add(1);
        let (now_ns, server_state) = (common.turn.now_ns, common.server_state());
        if server_state == ServerState::Forced {
            return self.thread.driver.close(socket);
        }
        let listener = &mut self.listeners[usize::from(number)];
        let (successor, session) = match listener.balancers() {
            None if listener.handshake() > 0 => {
                let number = listener.handshake();
                (number, self.thread.successors.get(number).open())
            }
            None => (0, listener.protocol_mut().open()),
            Some(balancers) if self.thread.is_balancer(number, balancers, socket) => {
                let header = self.thread.successors.proxy_header();
                (header, self.thread.successors.get(header).open())
            }
            Some(_) => return self.thread.driver.abort(socket),
        };
        let Some(session) = session else {
            return self.reject(number, socket);
        };
        // Of one through a balancer the PROXY header names the address.
        let is_named = listener.balancers().is_none();
        let pages = listener.first_pages();
        let connection = Connection::new(socket, number, (successor, session), pages, now_ns);
        match self.connections.insert(connection) {
            Ok(key) => {
                self.comes_late(key);
                let common = &mut self.thread.common;
                common.counters(number).opened.add(1);
                common.admission.enter(key.index, number, is_named);
                self.note_answered(key);
                self.admit(key, Claim::newcomer);
                self.on(key, |event| {
                    if !event.connection.is_closing() {
                        event.begin_line();
                        event.report(protocol::Event::Connected);
                    }
                });
            }
            Err(connection) => {
                let protocol: &mut dyn DynProtocol = match connection.successor() {
                    0 => self.listeners[usize::from(number)].protocol_mut(),
                    header => self.thread.successors.get(header),
                };
                protocol.close(connection.session(), None);
                self.reject(number, socket);
            }
        }
    }

    /// A connection has come: its address has answered, where datagrams are.
    fn note_answered(&mut self, key: Key) {
        let common = &self.thread.common;
        let Some(answered) = &common.shared().answered else {
            return;
        };
        let connection = self.connections.get(key);
        let peer = connection.and_then(|it| self.thread.driver.peer(it.socket()));
        if let Some(peer) = peer {
            self.datagrams.note_answered(answered, key.index, peer.ip());
        }
    }

    fn reject(&mut self, listener: u16, socket: Socket) {
        self.thread.common.counters(listener).refused_room.add(1);
        self.thread.driver.close(socket);
    }

    /// Whether nothing has changed that decides on accept.
    pub(super) fn accepts_are_settled(&self) -> bool {
        let common = &self.thread.common;
        let descriptors = common.descriptors();
        let now = Settled {
            open: self.open_connections(),
            beside_files: descriptors.places(),
        };
        common.admission.is_settled(now) && !descriptors.caches_give_way()
    }

    /// The end of a turn: makes room for files that are open, and for connections that come.
    pub(super) fn reconcile_accepts(&mut self) {
        if self.accepts_are_settled() {
            return;
        }
        self.make_room_for_files();
        self.update_accepts();
        let (load, are_armed) = (self.load(), self.acceptors.are_armed());
        let common = &mut self.thread.common;
        let counts_addresses = common.descriptors().counts_addresses();
        common.admission.count_addresses(counts_addresses);
        let beside_files = common.descriptors().places();
        common.admission.settle(load, beside_files, are_armed);
        let due_ns = self.accept_due_ns();
        self.thread.timers.set(Chore::Accepts, due_ns);
    }

    /// Ends the episodes that are over.
    pub(super) fn end_episodes(&mut self) {
        let now_ns = self.thread.now_ns();
        self.thread.common.admission.end_episodes(now_ns);
        self.thread.memory.end_episodes(now_ns);
    }

    /// When the next episode may be over.
    pub(super) fn episode_end_ns(&self) -> Option<u64> {
        let of_places = self.thread.common.admission.episode_end_ns();
        let of_memory = self.thread.memory.episode_end_ns();
        of_places.into_iter().chain(of_memory).min()
    }

    /// Arms, cancels or resumes accept on every socket, as the room allows.
    pub(super) fn update_accepts(&mut self) {
        if self.thread.common.server_state() >= ServerState::Draining {
            return;
        }
        let load = self.load();
        let room = AcceptRoom {
            accepts: self.accepts(),
            free: load.max.saturating_sub(load.open),
            mode: self.acceptors.mode(),
            now_ns: load.now_ns,
        };
        for index in 0..self.acceptors.len() {
            let next = self.acceptors.next(index, room);
            self.do_next(index, next);
        }
    }

    /// Whether another connection may be accepted now. Caches that have what it needs get some
    /// time to give it back.
    fn accepts(&mut self) -> bool {
        let load = self.load();
        let caches_block = self.thread.common.descriptors().caches_block();
        let (admission, rests) = (
            &mut self.thread.common.admission,
            resting(&mut self.connections),
        );
        let waits = match admission.waits(load, caches_block, rests) {
            Waits::No => false,
            Waits::UnlessOneEnds => self.longest_lived(&[Need::Place]).is_none(),
            Waits::Yes => true,
        };
        let admission = &mut self.thread.common.admission;
        admission.accepts(load, waits, caches_block)
    }

    fn do_next(&mut self, index: usize, next: Next) {
        match next {
            Next::Stay => {}
            Next::Arm(mode) => {
                let Some((source, operation)) = self.acceptors.begin_accept(index) else {
                    return;
                };
                let user_data = accept_user_data(index, operation);
                let mode = match mode {
                    AcceptMode::Single => OperationMode::Single,
                    AcceptMode::Multishot => OperationMode::Multishot,
                };
                self.thread.driver.accept(source, user_data, mode);
            }
            Next::Cancel => {
                let Some((source, operation)) = self.acceptors.accept_of(index) else {
                    return;
                };
                let user_data = accept_user_data(index, operation);
                self.thread
                    .driver
                    .cancel(Operation::Accept(source), user_data);
            }
            Next::Close => drop(self.acceptors.close(index)),
        }
    }

    /// The drain begins: no more connections. A listener closes when its accept has ended.
    pub(super) fn stop_listening(&mut self) {
        for index in 0..self.acceptors.len() {
            let next = self.acceptors.stop(index);
            self.do_next(index, next);
        }
    }

    /// When accept is looked at again without anything happening before.
    fn accept_due_ns(&self) -> Option<u64> {
        let load = self.load();
        let common = &self.thread.common;
        let caches_block = common.descriptors().caches_block();
        let accepts_in_ns = common.admission.accepts_in_ns(load, caches_block);
        let due_in_ns = self.acceptors.due_in_ns(load.now_ns, accepts_in_ns);
        due_in_ns.map(|ns| load.now_ns.saturating_add(ns))
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
