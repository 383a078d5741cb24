//! Many connections at once, from one thread, through epoll.
//!
//! A swarm starts its connections, waiting only for the kernel and for no answer, then has each of
//! them send a request and receive until its reply is whole. The connections stay open until the
//! swarm is dropped.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;

use rustix::event::{PollFd, PollFlags, epoll, poll};

use crate::deadline::{Deadline, LONG_PATIENCE};
use crate::process::raise_descriptor_limit;

/// Events taken from the kernel at once.
const EVENTS: usize = 1024;
/// Descriptors this process needs for itself.
const OWN_DESCRIPTORS: u64 = 200;
/// Connections in the making at a time. With more than its queue of them holds (`somaxconn`,
/// `tcp_max_syn_backlog`: 2,048 to 4,096) the kernel sends SYN cookies, and resets some of those
/// connections by itself: no server could serve them.
const CONNECTING_MAX: usize = 1_000;
/// Bytes asked of a socket at once.
const READ_BYTES: usize = 16 * 1024;

/// Many open connections to one address.
pub struct Swarm {
    members: Vec<Member>,
    epoll: OwnedFd,
}

struct Member {
    stream: TcpStream,
    to_send: Vec<u8>,
    sent: usize,
    received: Vec<u8>,
    /// In an exchange that has not ended for it.
    is_working: bool,
}

impl Swarm {
    /// As many connections as this process may open, at most `wished`. Raises the limit as far as
    /// may be, and says so when that is not enough.
    pub fn size_allowed(wished: usize) -> usize {
        let limit = raise_descriptor_limit().expect("the hard limit is allowed");
        let room = limit.saturating_sub(OWN_DESCRIPTORS);
        let size = wished.min(usize::try_from(room).unwrap_or(usize::MAX));
        if size < wished {
            eprintln!("only {size} clients: the hard limit on descriptors is too low for more");
        }
        size
    }

    /// Starts `count` connections, `CONNECTING_MAX` at a time.
    pub fn start(address: SocketAddr, count: usize) -> Self {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll can be made");
        let deadline = Deadline::after(LONG_PATIENCE);
        let mut members: Vec<Member> = Vec::with_capacity(count);
        for index in 0..count {
            if index >= CONNECTING_MAX {
                wait_until_connected(&members[index - CONNECTING_MAX].stream, &deadline);
            }
            let stream = connect_later(address);
            let data = epoll::EventData::new_u64(index as u64);
            let edges = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::ET;
            epoll::add(&epoll, &stream, data, edges).expect("a socket can be watched");
            members.push(Member {
                stream,
                to_send: Vec::new(),
                sent: 0,
                received: Vec::new(),
                is_working: false,
            });
        }
        Self { members, epoll }
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.members.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// Closes all connections but the first `count`.
    pub fn keep(&mut self, count: usize) {
        self.members.truncate(count);
    }

    /// Has every member send `request(index)` and receive until `is_whole(index, bytes)`; returns
    /// what each received.
    pub fn exchange(
        &mut self,
        request: impl Fn(usize) -> Vec<u8>,
        is_whole: impl Fn(usize, &[u8]) -> bool,
    ) -> Vec<Vec<u8>> {
        self.work(request, |index, member| is_whole(index, &member.received));
        self.members
            .iter_mut()
            .map(|member| std::mem::take(&mut member.received))
            .collect()
    }

    /// Has every member send `request(index)`, and expects no reply.
    pub fn send(&mut self, request: impl Fn(usize) -> Vec<u8>) {
        self.work(request, |_, member| member.sent == member.to_send.len());
    }

    fn work(
        &mut self,
        request: impl Fn(usize) -> Vec<u8>,
        is_done: impl Fn(usize, &Member) -> bool,
    ) {
        let deadline = Deadline::after(LONG_PATIENCE);
        for (index, member) in self.members.iter_mut().enumerate() {
            member.to_send = request(index);
            member.sent = 0;
            member.received.clear();
            member.is_working = true;
        }
        let mut left = self.members.len();
        // A socket that was writable before has no new edge: look at each once.
        for index in 0..self.members.len() {
            left -= usize::from(self.advance(index, &is_done));
        }
        let mut events = Vec::with_capacity(EVENTS);
        while left > 0 {
            let time = deadline.left().try_into().expect("the time fits");
            let spare = rustix::buffer::spare_capacity(&mut events);
            match epoll::wait(&self.epoll, spare, Some(&time)) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => panic!("epoll: {error}"),
            }
            for event in events.drain(..) {
                let index = usize::try_from(event.data.u64()).expect("an index");
                left -= usize::from(self.advance(index, &is_done));
            }
            assert!(
                !deadline.is_over() || left == 0,
                "{left} of {} unanswered",
                self.len()
            );
        }
    }

    /// Sends and receives what is possible now; whether the exchange ended with it.
    fn advance(&mut self, index: usize, is_done: &impl Fn(usize, &Member) -> bool) -> bool {
        // A kept swarm may have an event of a member that is gone.
        let Some(member) = self.members.get_mut(index).filter(|it| it.is_working) else {
            return false;
        };
        member.send(index);
        let ended = member.receive(index);
        let done = is_done(index, member);
        let text = String::from_utf8_lossy(&member.received);
        assert!(
            done || !ended,
            "connection {index} ended early, after {text:?}"
        );
        member.is_working = !done;
        done
    }
}

impl Member {
    fn send(&mut self, index: usize) {
        while self.sent < self.to_send.len() {
            match self.stream.write(&self.to_send[self.sent..]) {
                Ok(count) => self.sent += count,
                // Not connected yet, or no room: an event will come.
                Err(error) if is_later(error.kind()) => return,
                Err(error) => panic!("connection {index}: send: {error}"),
            }
        }
    }

    /// Receives all there is; whether the connection ended.
    fn receive(&mut self, index: usize) -> bool {
        let mut bytes = [0; READ_BYTES];
        loop {
            match self.stream.read(&mut bytes) {
                Ok(0) => return true,
                Ok(count) => self.received.extend_from_slice(&bytes[..count]),
                Err(error) if is_later(error.kind()) => return false,
                Err(error) => panic!("connection {index}: receive: {error}"),
            }
        }
    }
}

fn is_later(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::WouldBlock | ErrorKind::NotConnected | ErrorKind::Interrupted
    )
}

/// Waits until the kernel has made the connection, or has given it up, which shows later.
fn wait_until_connected(stream: &TcpStream, deadline: &Deadline) {
    let time = deadline.left().try_into().expect("the time fits");
    let mut polled = [PollFd::new(stream, PollFlags::OUT)];
    match poll(&mut polled, Some(&time)) {
        Ok(0) => panic!("a connection was not made in time"),
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => panic!("poll: {error}"),
    }
}

fn connect_later(address: SocketAddr) -> TcpStream {
    let kind = socket2::Type::STREAM;
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), kind, None)
        .expect("a socket can be made");
    socket
        .set_nonblocking(true)
        .expect("a socket has the option");
    socket
        .set_tcp_nodelay(true)
        .expect("a TCP socket has the option");
    match socket.connect(&address.into()) {
        Ok(()) => {}
        Err(error)
            if error.raw_os_error() == Some(rustix::io::Errno::INPROGRESS.raw_os_error()) => {}
        Err(error) => panic!("connect to {address}: {error}"),
    }
    socket.into()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn every_member_gets_its_own_answer_twice() {
        const MEMBERS: usize = 50;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for stream in listener.incoming().take(MEMBERS) {
                let mut stream = stream.unwrap();
                std::thread::spawn(move || {
                    std::io::copy(&mut stream.try_clone().unwrap(), &mut stream)
                });
            }
        });
        let mut swarm = Swarm::start(address, MEMBERS);
        for round in 0..2 {
            let text = |index: usize| format!("{round}:{index}").into_bytes();
            let replies = swarm.exchange(text, |index, bytes| bytes == text(index));
            let expected: Vec<_> = (0..MEMBERS).map(text).collect();
            assert_eq!(replies, expected);
        }
    }
}
