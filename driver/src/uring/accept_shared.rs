//! Accept from a listener that is shared with a [`Predecessor`](crate::Predecessor): a poll, and
//! the calls that take what has come.
//!
//! An accept of the ring waits exclusively (`poll_exclusive` in the kernel's `io_uring/opdef.c`),
//! after the predecessor's. If that hangs, its ring takes each wake-up, and the connections wait
//! until it ends. A poll without EPOLLEXCLUSIVE is woken in any case. It is armed again after each
//! turn, and then looks at the backlog, so nothing is missed. Once the predecessor is gone, the
//! accept ends with ECANCELED, and the caller's next one is that of `accept`.
//!
//! Invariants
//! - SA1: an entry of the table holds the listener open from `start_shared_accept` to the final
//!   completion, and has one poll under way.
//!
//! Cost: for each connection a poll and up to two calls of accept4(2).

use std::os::fd::AsRawFd;

use rustix::net::{SocketFlags, accept_with};

use super::Uring;
use super::entry::poll_entry;
use super::origin::Origin;
use super::table::SharedAccept;
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::{ACCEPTS_PER_TURN_MAX, SharedListener, Socket};

impl Uring {
    pub(super) fn start_shared_accept(
        &mut self,
        listener: SharedListener,
        user_data: u64,
        mode: OperationMode,
    ) {
        let index = self.shared_accepts.insert(SharedAccept {
            user_data,
            mode,
            listener,
            cancelled: false,
        });
        self.poll_shared_listener(index as u32);
    }

    /// Marks one as cancelled; its index. `None`: the accept is none of these.
    pub(super) fn cancel_shared_accept(&mut self, user_data: u64) -> Option<u32> {
        let meant = |accept: &SharedAccept| accept.user_data == user_data;
        let index = self.shared_accepts.find(meant)?;
        self.shared_accepts[index].cancelled = true;
        Some(index as u32)
    }

    fn poll_shared_listener(&mut self, index: u32) {
        // SA1: it is in the table.
        let listener = &self.shared_accepts[index as usize].listener;
        let descriptor = listener.descriptor.as_raw_fd();
        let entry = poll_entry(descriptor, libc::POLLIN, OperationMode::Single);
        let origin = Origin::SharedAccept { index };
        self.ring.push_plain(entry.of(origin));
    }

    /// The poll has completed: takes what has come, and polls again unless the accept ends.
    pub(super) fn shared_accept_fired(
        &mut self,
        index: u32,
        result: i32,
        completions: &mut Vec<Completion>,
    ) {
        // SA1: it is in the table.
        let accept = &self.shared_accepts[index as usize];
        let (user_data, mode) = (accept.user_data, accept.mode);
        let (mut end, mut taken) = (None, 0);
        if result < 0 {
            end = Some(Outcome::Failed(Errno::from_raw_os_error(-result)));
        }
        while end.is_none() && taken < ACCEPTS_PER_TURN_MAX {
            match self.take_from_shared(index) {
                Ok(socket) if mode == OperationMode::Single => {
                    end = Some(Outcome::Accepted(socket));
                }
                Ok(socket) => {
                    let outcome = Outcome::Accepted(socket);
                    completions.push(Completion::new(user_data, true, outcome));
                    taken += 1;
                }
                Err(Errno::AGAIN) => break,
                Err(errno) => end = Some(Outcome::Failed(errno)),
            }
        }
        let accept = &self.shared_accepts[index as usize];
        if accept.cancelled || self.stopping || accept.listener.predecessor.is_gone() {
            end = end.or(Some(Outcome::Failed(Errno::CANCELED)));
        }
        let Some(outcome) = end else {
            return self.poll_shared_listener(index);
        };
        self.outstanding -= 1;
        self.shared_accepts.remove(index as usize);
        completions.push(Completion::last(user_data, outcome));
    }

    /// A connection that has come to it.
    fn take_from_shared(&mut self, index: u32) -> Result<Socket, Errno> {
        loop {
            let listener = &self.shared_accepts[index as usize].listener;
            self.counters.system_calls += 1;
            match accept_with(&*listener.descriptor, SocketFlags::CLOEXEC) {
                Ok(socket) => return self.adopt(socket),
                // The connection is gone already: on to the next one.
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::time::Duration;

    use bytes::Bytes;

    use crate::completion::{Completion, Outcome};
    use crate::config::DriverConfig;
    use crate::driver::{AfterSend, Driver, OperationMode};
    use crate::segment::SendList;
    use crate::socket::{Listener, Predecessor, Socket};
    use crate::testing::given;
    use crate::uring::Uring;

    const ROUNDS: usize = 30;
    const ACCEPT: u64 = 1;
    const SEND: u64 = 2;
    const RECEIVE: u64 = 3;

    fn wait(uring: &mut Uring, is_it: impl Fn(&Completion) -> bool) -> Vec<Completion> {
        let mut completions = vec![];
        while !completions.iter().any(&is_it) {
            let timeout_ns = Some(30_000_000_000);
            let before = completions.len();
            let waited = uring.wait(timeout_ns, &|| false, &mut completions);
            waited.expect("the driver works");
            assert!(completions.len() > before, "nothing comes");
        }
        completions
    }

    fn accepted(completion: &Completion) -> Option<Socket> {
        match completion.outcome {
            Outcome::Accepted(socket) => Some(socket),
            _ => None,
        }
    }

    /// The kernel has closed a connection after its last send, and the number is the next one's,
    /// before that send is heard of.
    #[test]
    fn a_number_that_the_kernel_gives_out_before_its_last_send_is_heard_of_is_the_next_ones() {
        let Some(mut uring) = given(Uring::new(&DriverConfig::default())) else {
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let listener = Listener::new(OwnedFd::from(listener));
        let listener = listener.taken_over_from(Predecessor::new());
        uring.accept(&listener, ACCEPT, OperationMode::Multishot);
        let connect = || {
            let client = TcpStream::connect(address).expect("it listens");
            let patience = Some(Duration::from_secs(30));
            client.set_read_timeout(patience).expect("a deadline");
            client
        };
        let (mut client, mut gone) = (connect(), Vec::new());
        let came = wait(&mut uring, |it| accepted(it).is_some());
        let mut socket = came.iter().find_map(accepted).expect("it came");
        for _ in 0..ROUNDS {
            // The poll is armed with the send: it finds the next client, and completes before it.
            let next = connect();
            let mut list = SendList::new();
            let last = Bytes::from_static(b"last");
            list.push(last.into()).expect("room");
            uring.send(socket, SEND, &mut list, AfterSend::Close);
            let is_sent = |it: &Completion| it.user_data == SEND;
            let mut came = wait(&mut uring, is_sent);
            if !came.iter().any(|it| accepted(it).is_some()) {
                came = wait(&mut uring, |it| accepted(it).is_some());
            }
            socket = came.iter().find_map(accepted).expect("it came");
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).expect("the end");
            assert_eq!(heard, b"last");
            // It stays open, so that the lowest free number is that of its connection.
            gone.push(std::mem::replace(&mut client, next));
            // The next one is a connection as any other.
            client.write_all(b"hello").expect("sent");
            uring.receive(socket, RECEIVE, OperationMode::Single, 0);
            let came = wait(&mut uring, |it| it.user_data == RECEIVE);
            for completion in came {
                let Outcome::Received(piece) = completion.outcome else {
                    panic!("{:?}", completion.outcome);
                };
                assert_eq!(uring.bytes(&piece), b"hello");
                uring.recycle(piece);
            }
        }
    }
}
