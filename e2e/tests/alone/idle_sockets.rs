//! What an idle WebSocket takes of a process's memory: connection, session and everything else that
//! the server has allocated for it, on both drivers, with an offer to compress.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

use flatpath::{DriverChoice, Server};
use flatpath_http::{Http, Request};
use flatpath_testkit::process::raise_descriptor_limit;
use flatpath_testkit::{Driver, in_child, patience};
use flatpath_websocket::{Message, Socket, WebSocket};

use crate::ALLOCATOR;

/// Sockets that are open before, and those that are measured: tables by descriptor double once
/// meanwhile, for twice as many descriptors as a server would have. With more they would double
/// again as soon as the process has a few descriptors besides.
const BEFORE: usize = 480;
const SOCKETS: usize = 480;

/// What an idle socket may take, in bytes.
const BYTES_MAX: usize = 1024;

fn allocated_bytes() -> usize {
    let statistics = ALLOCATOR.stats();
    statistics.bytes_allocated - statistics.bytes_deallocated
}

/// Opens a socket, with an offer to compress, and says something over it.
fn open(address: SocketAddr) -> TcpStream {
    let mut client = TcpStream::connect(address).expect("it listens");
    client.set_read_timeout(Some(patience())).expect("settable");
    let head = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
        Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n";
    client.write_all(head.as_bytes()).expect("it reads");
    let mut reply = Vec::new();
    while !reply.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).expect("a head");
        reply.push(byte[0]);
    }
    assert!(reply.starts_with(b"HTTP/1.1 101 "));
    client.write_all(b"\x81\x82\0\0\0\0Hi").expect("it reads");
    let mut echo = [0; 4];
    client.read_exact(&mut echo).expect("an echo");
    assert_eq!(&echo, b"\x81\x02Hi");
    client
}

fn measure(choice: DriverChoice, websocket: WebSocket) -> usize {
    let echo: fn(&Socket, Message) = |socket, message| {
        let _ = socket.send(message);
    };
    let http = Http::pooled(move |request: Request| websocket.accept(&request, echo));
    let server = Server::new().driver(choice).network_threads(1);
    let running = server.listen("127.0.0.1:0", http).start().expect("started");
    let address = running.addresses()[0].address;
    let mut clients = Vec::with_capacity(BEFORE + SOCKETS);
    clients.extend((0..BEFORE).map(|_| open(address)));
    let before = allocated_bytes();
    clients.extend((0..SOCKETS).map(|_| open(address)));
    let each = allocated_bytes().saturating_sub(before) / SOCKETS;
    println!("{choice:?}: {each} bytes for each idle socket");
    drop(clients);
    running.handle().drain();
    running.wait().expect("it ends");
    each
}

#[test]
fn an_idle_socket_takes_less_than_a_kibibyte() {
    if !in_child(concat!(
        module_path!(),
        "::an_idle_socket_takes_less_than_a_kibibyte"
    )) {
        return;
    }
    let descriptors = raise_descriptor_limit().expect("raised");
    assert!(
        descriptors > 3 * (BEFORE + SOCKETS) as u64,
        "two for each socket"
    );
    for (driver, choice) in [
        (Driver::Uring, DriverChoice::Uring),
        (Driver::Epoll, DriverChoice::Epoll),
    ] {
        if driver.is_here() {
            for make in [WebSocket::inline, WebSocket::pooled] {
                // What a thread allocates once counts too, if it happens to do it meanwhile.
                let least = (0..3).map(|_| measure(choice, make())).min();
                let each = least.expect("three");
                assert!(each <= BYTES_MAX, "{choice:?}: {each} bytes each");
            }
        }
    }
}
