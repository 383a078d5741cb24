//! Many connections at once, from one thread, through epoll.
//!
//! A swarm starts its connections, waiting only for the kernel and for no answer, then has each of
//! them send a request and receive until its reply is whole. The connections stay open until the
//! swarm is dropped.

use std::net::{SocketAddr, TcpStream};

use rustix::event::{PollFd, PollFlags, poll};

use crate::clients::{Clients, Connection};
use crate::deadline::Deadline;
use crate::process::raise_descriptor_limit;

/// Descriptors this process needs for itself.
const OWN_DESCRIPTORS: u64 = 200;
/// Connections in the making at a time. With more than its queue of them holds (`somaxconn`,
/// `tcp_max_syn_backlog`: 2,048 to 4,096) the kernel sends SYN cookies, and resets some of those
/// connections by itself: no server could serve them.
const CONNECTING_MAX: usize = 1_000;

/// Many open connections to one address.
pub struct Swarm(Clients);

impl Swarm {
    /// As many connections as this process may open, at most `wished`. Raises the limit as far as
    /// may be, and prints it when that is not enough.
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
        let mut clients = Clients::new().expect("epoll can be made");
        let deadline = Deadline::long();
        for index in 0..count {
            if let Some(oldest) = index.checked_sub(CONNECTING_MAX)
                && let Some(connection) = clients.get(oldest)
            {
                wait_until_connected(connection.stream(), &deadline);
            }
            let inserted = clients.insert(index, connect_later(address), Vec::new());
            inserted.expect("a socket can be watched");
        }
        Self(clients)
    }

    /// How many connections there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Closes all connections but the first `count`.
    pub fn keep(&mut self, count: usize) {
        self.0.truncate(count);
    }

    /// Has every member send `request(index)` and receive until `is_whole(index, bytes)`; returns
    /// what each received.
    pub fn exchange(
        &mut self,
        request: impl Fn(usize) -> Vec<u8>,
        is_whole: impl Fn(usize, &[u8]) -> bool,
    ) -> Vec<Vec<u8>> {
        self.work(request, |index, connection| {
            is_whole(index, &connection.received)
        });
        let count = self.len();
        let received = |index| self.0.get(index).map(|it| std::mem::take(&mut it.received));
        (0..count).filter_map(received).collect()
    }

    /// Has every member send `request(index)`, and expects no reply.
    pub fn send(&mut self, request: impl Fn(usize) -> Vec<u8>) {
        self.work(request, |_, connection| connection.has_sent());
    }

    fn work(
        &mut self,
        request: impl Fn(usize) -> Vec<u8>,
        is_done: impl Fn(usize, &Connection) -> bool,
    ) {
        let deadline = Deadline::long();
        // A socket that was writable before has no new edge: each is looked at once.
        let mut ready: Vec<usize> = (0..self.len()).collect();
        for &index in &ready {
            let connection = self.0.get(index).expect("no connection is closed");
            connection.received.clear();
            connection.send(request(index));
        }
        let mut is_left = vec![true; self.len()];
        let mut left = self.len();
        loop {
            for index in ready {
                if !is_left[index] {
                    continue;
                }
                let connection = self.0.get(index).expect("no connection is closed");
                let done = is_done(index, connection);
                assert!(
                    done || connection.end.is_none(),
                    "connection {index} ended early ({:?}), after {:?}",
                    connection.end,
                    String::from_utf8_lossy(&connection.received)
                );
                is_left[index] = !done;
                left -= usize::from(done);
            }
            if left == 0 {
                return;
            }
            assert!(!deadline.is_over(), "{left} of {} unanswered", self.len());
            ready = self.0.wait(deadline.left()).expect("epoll waits");
        }
    }
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
