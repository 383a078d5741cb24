//! Connect: started in its call, over when the socket can be written to.
//!
//! While a peer is awaited the socket is watched under a mark of its own, so events of sockets that
//! carry a connection are noted as if there were no connects. The event says that there is an
//! outcome, SO_ERROR which (connect(2), EINPROGRESS).
//!
//! Invariants
//! - CO1: a descriptor is in `connecting` from the call that awaits its peer to the final
//!   completion; nothing else is under way on it (C9).
//! - CO2: an event may be of an earlier owner of the number, which a child process still has. So a
//!   socket without an error is asked whether it has a peer, before it is called connected.
//!
//! Cost: system calls as [`Driver::connect`](crate::Driver::connect) has them and, for one that
//! succeeds, one more (CO2); a look-up among the connects under way.

use std::os::fd::RawFd;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::net::sockopt::socket_error;
use rustix::net::{SocketFlags, getpeername};

use super::table::Interest;
use super::{CONNECT, Epoll, Work};
use crate::completion::{Completion, Errno, Outcome};
use crate::remote::Remote;
use crate::socket::Socket;

impl Epoll {
    pub(super) fn make_socket(&mut self, remote: &Remote) -> Result<Socket, Errno> {
        self.counters.system_calls += 2;
        let socket = remote.socket(SocketFlags::NONBLOCK)?;
        Ok(self.open(socket))
    }

    pub(super) fn start_connect(&mut self, socket: Socket, remote: &Remote, user_data: u64) {
        self.counters.submissions += 1;
        self.counters.system_calls += 1;
        let descriptor = socket.raw();
        let is_first = !self.connecting.contains_key(&descriptor);
        assert!(is_first, "C2: a second connect of {socket:?}");
        let entry = self.open_entry(socket);
        let outcome = match remote.connect(entry.socket()) {
            Ok(true) => Outcome::Connected,
            Ok(false) => match self.await_peer(descriptor) {
                Ok(()) => {
                    self.connecting.insert(descriptor, user_data);
                    return;
                }
                Err(errno) => Outcome::Failed(errno),
            },
            Err(errno) => Outcome::Failed(errno),
        };
        self.unasked.push(Completion::last(user_data, outcome));
    }

    fn await_peer(&mut self, descriptor: RawFd) -> Result<(), Errno> {
        let data = EventData::new_u64(CONNECT | descriptor as u64);
        let flags = EventFlags::OUT | EventFlags::ET;
        self.counters.system_calls += 1;
        let socket = self.entries[descriptor as usize].socket();
        epoll::add(&self.epoll, socket, data, flags)
    }

    /// There may be an outcome. An event of a connect that has ended is dropped.
    pub(super) fn connect_ready(&mut self, descriptor: RawFd) {
        if self.connecting.contains_key(&descriptor) {
            self.work.push_back(Work::Connect(descriptor));
        }
    }

    pub(super) fn run_connect(&mut self, descriptor: RawFd, completions: &mut Vec<Completion>) {
        // Ended, or cancelled.
        let Some(user_data) = self.connecting.get(&descriptor).copied() else {
            return;
        };
        let Some(connected) = self.outcome_of_connect(descriptor) else {
            return;
        };
        self.connecting.remove(&descriptor);
        let outcome = match connected.and_then(|()| self.watch_connected(descriptor)) {
            Ok(()) => Outcome::Connected,
            Err(errno) => Outcome::Failed(errno),
        };
        completions.push(Completion::last(user_data, outcome));
    }

    /// `None`: the peer has not answered yet (CO2).
    fn outcome_of_connect(&mut self, descriptor: RawFd) -> Option<Result<(), Errno>> {
        self.counters.system_calls += 2;
        let socket = self.entries[descriptor as usize].socket();
        if let Err(errno) = socket_error(socket).and_then(|outcome| outcome) {
            return Some(Err(errno));
        }
        getpeername(socket).is_ok().then_some(Ok(()))
    }

    /// From now on its events are those of a connection.
    fn watch_connected(&mut self, descriptor: RawFd) -> Result<(), Errno> {
        let data = EventData::new_u64(descriptor as u64);
        let flags = EventFlags::IN | EventFlags::RDHUP | EventFlags::ET;
        self.counters.system_calls += 1;
        let entry = &mut self.entries[descriptor as usize];
        epoll::modify(&self.epoll, entry.socket(), data, flags)?;
        entry.interest = Interest::Receiving;
        Ok(())
    }

    pub(super) fn cancel_connect(&mut self, socket: Socket, user_data: u64) {
        let descriptor = socket.raw();
        if self.connecting.get(&descriptor) == Some(&user_data) {
            self.connecting.remove(&descriptor);
            let outcome = Outcome::Failed(Errno::CANCELED);
            self.unasked.push(Completion::last(user_data, outcome));
        }
    }
}
