//! What a program gives to HTTP and HTTP drops: sinks, readers, owners of bytes, extensions,
//! closures. Where their drops block, no network thread waits, whatever becomes of the exchange.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use flatpath::memory::Payload;
use flatpath::{Bytes, DriverChoice, Server, WorkerScope, on_network_thread};
use flatpath_http::{Body, Http, IntoResponse, Response, Router, SendError, Sink, Upload, routing};

use flatpath_testkit::{drivers_here, patience};

use crate::serve::cut_off;

const LARGE: usize = 1 << 20;

/// Opened once, for all drops.
#[derive(Clone, Default)]
struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    fn open(&self) {
        *self.0.0.lock().expect("sound") = true;
        self.0.1.notify_all();
    }

    fn pass(&self) {
        let open = self.0.0.lock().expect("sound");
        let waited = self.0.1.wait_timeout_while(open, patience(), |open| !*open);
        drop(waited.expect("sound"));
    }
}

/// Tells whether it is dropped on a network thread, and waits there for the gate.
#[derive(Clone)]
struct Told(Sender<bool>, Gate);

struct Slow(Told);

impl Drop for Slow {
    fn drop(&mut self) {
        let _ = self.0.0.send(on_network_thread());
        self.0.1.pass();
    }
}

struct Owner(Vec<u8>, #[expect(dead_code, reason = "for its drop")] Slow);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes without end.
struct Endless(#[expect(dead_code, reason = "for its drop")] Slow);

impl Read for Endless {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        room.fill(7);
        Ok(room.len())
    }
}

struct Taking(#[expect(dead_code, reason = "for its drop")] Slow);

impl Sink for Taking {
    fn write(&mut self, _: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        Ok(())
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        "taken".into_response()
    }
}

/// An extension of a response.
#[derive(Clone)]
struct Extension(#[expect(dead_code, reason = "for its drop")] Arc<Slow>);

fn bytes(told: &Told, count: usize) -> Bytes {
    Bytes::from_owner(Owner(vec![b'b'; count], Slow(told.clone())))
}

fn router(told: &Told) -> Router {
    let slow = {
        let told = told.clone();
        move || Slow(told.clone())
    };
    let (small, large, inline, inline_large) =
        (told.clone(), told.clone(), told.clone(), told.clone());
    let (reading, extended, fed) = (slow.clone(), slow.clone(), slow.clone());
    let fed_bytes = told.clone();
    Router::new()
        .get("/plain", || "plain")
        .get("/small", move || bytes(&small, 100))
        .get("/large", move || bytes(&large, LARGE))
        .route(
            "/inline",
            routing::get(move || bytes(&inline, 100)).inline(),
        )
        .route(
            "/inline-large",
            routing::get(move || bytes(&inline_large, LARGE)).inline(),
        )
        .get("/endless", move || {
            Response::new(Body::reader(Endless(reading()), None))
        })
        .get("/extension", move || {
            let mut response = "extended".into_response();
            let extension = Extension(Arc::new(extended()));
            response.extensions_mut().insert(extension);
            response
        })
        .get("/event", move || {
            let (sender, body) = Body::channel(1 << 30);
            let slow = fed();
            sender.on_event(move || {
                let _ = &slow;
            });
            std::thread::spawn(
                move || {
                    while sender.send(vec![7; LARGE]) != Err(SendError::Closed) {}
                },
            );
            Response::new(body)
        })
        .get("/fed", move || {
            let (sender, body) = Body::channel(1 << 30);
            sender.send(bytes(&fed_bytes, 16 * LARGE)).expect("room");
            std::thread::spawn(move || {
                while !sender.is_closed() {
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            Response::new(body)
        })
        .route(
            "/sink",
            routing::put(move || Upload::new(Taking(slow()))).streamed(),
        )
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(patience())).expect("set");
    client
}

fn get(address: SocketAddr, path: &str, client: &mut TcpStream) {
    let request = format!("GET {path} HTTP/1.1\r\nHost: {address}\r\n\r\n");
    client.write_all(request.as_bytes()).expect("sent");
    let mut head = [0; 12];
    client.read_exact(&mut head).expect("a reply in time");
    assert_eq!(&head, b"HTTP/1.1 200", "{path}");
}

/// One server for each thing that is dropped, as each keeps a worker.
fn stops_no_one(choice: DriverChoice, act: impl Fn(SocketAddr, &mut TcpStream)) {
    let (dropped, drops): (_, Receiver<bool>) = channel();
    let gate = Gate::default();
    let http = Http::service(router(&Told(dropped, gate.clone())));
    let server = Server::new()
        .driver(choice)
        .network_threads(1)
        .workers(2..=2);
    let running = server.listen("127.0.0.1:0", http).start().expect("started");
    let address = running.addresses()[0].address;
    let mut client = connect(address);
    act(address, &mut client);
    drop(client);
    assert_eq!(
        drops.recv_timeout(patience()),
        Ok(false),
        "not on a network thread"
    );
    get(address, "/plain", &mut connect(address));
    gate.open();
    running.handle().force();
    cut_off(running);
}

fn on_both(act: impl Fn(SocketAddr, &mut TcpStream) + Copy) {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        stops_no_one(choice, act);
    }
}

#[test]
fn a_sink_whose_body_breaks_off_is_dropped_where_it_may_block() {
    on_both(|address, client| {
        let head = "PUT /sink HTTP/1.1\r\nHost: h\r\nContent-Length: 100\r\n\
                    Expect: 100-continue\r\n\r\n";
        client.write_all(head.as_bytes()).expect("sent");
        let mut go_on = [0; 25];
        client.read_exact(&mut go_on).expect("the sink is open");
        assert!(go_on.starts_with(b"HTTP/1.1 100 "));
        get(address, "/plain", &mut connect(address));
    });
}

#[test]
fn owners_of_bodies_are_dropped_where_they_may_block() {
    for path in ["/small", "/large", "/inline", "/inline-large"] {
        for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
            stops_no_one(choice, |address, client| {
                get(address, path, client);
                let mut some = [0; 100];
                client.read_exact(&mut some).expect("more of it");
                if path.ends_with("large") {
                    client
                        .read_exact(&mut vec![0; LARGE - 100])
                        .expect("most of it");
                }
            });
        }
    }
}

#[test]
fn bodies_that_are_not_read_to_their_end_are_dropped_where_they_may_block() {
    for path in ["/large", "/endless", "/fed", "/event"] {
        for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
            stops_no_one(choice, |address, client| get(address, path, client));
        }
    }
}

#[test]
fn extensions_of_a_response_are_dropped_where_they_may_block() {
    on_both(|address, client| get(address, "/extension", client));
}
