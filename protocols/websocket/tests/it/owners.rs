//! Messages and handlers with drops and calls of their own, against a server with sockets: nothing
//! of it locks a socket out, stops a network thread or waits there.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use flatpath::{Bytes, DriverChoice, Error, Running, Server, on_network_thread};
use flatpath_http::{Http, IntoResponse, Request};
use flatpath_testkit::deadline::is_slow;
#[cfg(feature = "deflate")]
use flatpath_testkit::noise;
use flatpath_testkit::{drivers_here, patience};
use flatpath_websocket::{Close, Handler, Limits, Message, SendError, Socket, WebSocket};

const HANDSHAKE: &[u8] = b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\n\
    Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// On io_uring, where there is any, and on epoll.
fn on_both(body: impl Fn(DriverChoice)) {
    drivers_here(DriverChoice::Uring, DriverChoice::Epoll).for_each(body);
}

/// A server with one network thread whose every request is a handshake for such a handler, but for
/// those that are none.
fn serve<H: Handler>(
    choice: DriverChoice,
    sockets: WebSocket,
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> (Running, SocketAddr) {
    let http =
        Http::pooled(move |request: Request| sockets.accept(&request, handler()).into_response());
    let server = Server::new().driver(choice).network_threads(1);
    let running = server.listen("127.0.0.1:0", http).start().expect("started");
    let address = running.addresses()[0].address;
    (running, address)
}

fn open(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(patience())).expect("set");
    client.write_all(HANDSHAKE).expect("sent");
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("an answer in time");
        head.extend_from_slice(&byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    client
}

/// Whether the network thread serves another connection.
fn serves(address: SocketAddr) {
    let mut other = TcpStream::connect(address).expect("connected");
    other.set_read_timeout(Some(patience())).expect("set");
    let plain = b"GET /plain HTTP/1.1\r\nHost: h\r\n\r\n";
    other.write_all(plain).expect("sent");
    let mut answer = [0; 64];
    let heard = other.read(&mut answer).expect("an answer in time");
    assert!(heard > 0, "the connection is served");
}

/// Ends a server whose connections stay open. A forced end waits for a moment only, which threads
/// of an emulated processor may miss.
fn ends(running: Running) {
    running.handle().force();
    match running.wait() {
        Ok(()) => {}
        Err(Error::LeftBehind { cause: None, .. }) if is_slow() => {}
        Err(other) => panic!("no clean end: {other}"),
    }
}

/// Looks at its socket, and sends, when it is dropped: as a producer does.
struct Owned(Vec<u8>, Socket, Sender<bool>);

impl AsRef<[u8]> for Owned {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        let _ = self.1.queued_bytes();
        let _ = self.1.try_send("next");
        let _ = self.2.send(on_network_thread());
    }
}

struct Feeder(usize, Sender<bool>);

impl Handler for Feeder {
    fn opened(&mut self, socket: &Socket) {
        let owned = Owned(vec![7; self.0], socket.clone(), self.1.clone());
        let message = Message::Binary(Bytes::from_owner(owned));
        socket.send(message).expect("there is room");
    }

    fn message(&mut self, _: &Socket, _: Message) {}
}

#[test]
fn an_owner_of_a_message_may_use_its_socket_when_it_is_dropped() {
    on_both(|choice| {
        for bytes in [100, 100_000] {
            for sockets in [WebSocket::pooled(), WebSocket::inline()] {
                let (told, dropped) = channel();
                let (running, address) =
                    serve(choice, sockets, move || Feeder(bytes, told.clone()));
                let mut client = open(address);
                let head = if bytes < 126 { 2 } else { 10 };
                let mut frame = vec![0; head + bytes];
                client.read_exact(&mut frame).expect("the message");
                let is_network = dropped.recv_timeout(patience()).expect("dropped");
                assert!(!is_network, "where it may block");
                let mut next = [0; 6];
                client.read_exact(&mut next).expect("what its drop sent");
                assert_eq!(&next, b"\x81\x04next");
                serves(address);
                ends(running);
            }
        }
    });
}

#[test]
fn messages_that_are_never_sent_are_dropped_outside_of_the_lock() {
    on_both(|choice| {
        let (told, dropped) = channel();
        let limits = Limits {
            queued_bytes_max: 64 << 20,
            ..Limits::default()
        };
        let sockets = WebSocket::pooled().limits(limits);
        let (running, address) = serve(choice, sockets, move || Feeder(16 << 20, told.clone()));
        // It does not read, and goes.
        drop(open(address));
        let is_network = dropped.recv_timeout(patience()).expect("dropped");
        assert!(!is_network, "where it may block");
        serves(address);
        ends(running);
    });
}

/// Sends more than may wait, as soon as it may send.
struct Greets(Sender<usize>);

const PIECES: usize = 3;
const PIECE_BYTES: usize = 200 * 1024;

impl Handler for Greets {
    fn opened(&mut self, socket: &Socket) {
        let pieces = (0..PIECES).map(|_| socket.send(Message::from(vec![7_u8; PIECE_BYTES])));
        let full = pieces.filter(|sent| matches!(sent, Err(SendError::Full(_))));
        let _ = self.0.send(full.count());
    }

    fn message(&mut self, _: &Socket, _: Message) {}
}

#[test]
fn a_greeting_longer_than_the_queue_arrives_after_the_handshake() {
    on_both(|choice| {
        let (told, full) = channel();
        let (running, address) = serve(choice, WebSocket::pooled(), move || Greets(told.clone()));
        let mut client = open(address);
        let mut all = vec![0; PIECES * (10 + PIECE_BYTES)];
        client.read_exact(&mut all).expect("all of it");
        assert_eq!(full.recv_timeout(patience()), Ok(0));
        ends(running);
    });
}

#[test]
fn a_send_never_waits_on_a_network_thread() {
    on_both(|choice| {
        let (told, full) = channel();
        let (running, address) = serve(choice, WebSocket::inline(), move || Greets(told.clone()));
        let client = open(address);
        assert_eq!(
            full.recv_timeout(patience()),
            Ok(2),
            "one goes beyond 64 KiB"
        );
        serves(address);
        drop(client);
        ends(running);
    });
}

/// Sends to its socket, and blocks, when it is closed.
struct Leaves(Sender<(bool, bool)>, std::sync::Arc<AtomicUsize>);

impl Handler for Leaves {
    fn message(&mut self, _: &Socket, _: Message) {}

    fn closed(&mut self, socket: &Socket, _: &Close) {
        let refused = matches!(socket.send("bye"), Err(SendError::Closed(_)));
        let _ = self.0.send((refused, on_network_thread()));
        while self.1.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

#[test]
fn a_handler_that_blocks_when_it_is_closed_stops_no_one() {
    on_both(|choice| {
        for sockets in [WebSocket::pooled(), WebSocket::inline()] {
            let (told, closed) = channel();
            let gate = std::sync::Arc::new(AtomicUsize::new(0));
            let (running, address) = serve(choice, sockets, {
                let gate = std::sync::Arc::clone(&gate);
                move || Leaves(told.clone(), std::sync::Arc::clone(&gate))
            });
            drop(open(address));
            let told = closed.recv_timeout(patience()).expect("it is told");
            assert_eq!(told, (true, false));
            serves(address);
            gate.store(1, Ordering::Relaxed);
            ends(running);
        }
    });
}

/// Sends while another thread compresses something long for the same socket.
#[cfg(feature = "deflate")]
struct Interrupts;

#[cfg(feature = "deflate")]
impl Handler for Interrupts {
    fn opened(&mut self, socket: &Socket) {
        let other = socket.clone();
        // What repeats later than a compressor looks back is as random to it as all of it would be.
        let bytes = noise(1, 65_521).repeat(512);
        let long = std::thread::spawn(move || {
            let _ = other.send(bytes);
        });
        while !long.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
            if socket.try_send("a".repeat(1000)).is_err() {
                break;
            }
        }
    }

    fn message(&mut self, _: &Socket, _: Message) {}
}

#[cfg(feature = "deflate")]
#[test]
fn a_network_thread_does_not_wait_for_a_compressor() {
    on_both(|choice| {
        let (running, address) = serve(choice, WebSocket::inline(), || Interrupts);
        let mut client = TcpStream::connect(address).expect("connected");
        client.set_read_timeout(Some(patience())).expect("set");
        let offer = b"Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
        let head = [&HANDSHAKE[..HANDSHAKE.len() - 2], offer].concat();
        client.write_all(&head).expect("sent");
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            client.read_exact(&mut byte).expect("an answer in time");
            answer.extend_from_slice(&byte);
        }
        // The first that is not compressed was sent while the other thread compressed.
        loop {
            let mut head = [0; 2];
            client.read_exact(&mut head).expect("a message");
            if head[0] == 0x81 {
                break;
            }
            assert_eq!(head[0], 0xC1, "the long one comes after all");
            let mut rest = vec![0; usize::from(head[1])];
            assert!(rest.len() < 126, "a thousand letters are short");
            client.read_exact(&mut rest).expect("the rest of it");
        }
        drop(client);
        running.handle().force();
        // A worker of a busy machine may still be dropping what the other thread has sent.
        match running.wait() {
            Ok(()) | Err(Error::LeftBehind { cause: None, .. }) => {}
            Err(error) => panic!("ended: {error:?}"),
        }
    });
}
