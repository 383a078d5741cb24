//! A crowd at the door does not delay a client that is in: on both drivers.
//!
//! The network thread is held while hundreds of clients connect. When it continues, a client that
//! was there before asks how many connections have been let in, and its answer comes before most
//! are. So does that of a newcomer from another address.

use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};

use flatpath::{Context, DriverChoice, Protocol, Received, Server};
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

const CROWD: usize = 500;
/// New connections that the engine lets in during one turn.
const TURN_ACCEPTS_MAX: usize = 64;
use flatpath_testkit::{Driver, patience};

/// Connections let in since the process began; a session is made when one is.
static LET_IN: AtomicUsize = AtomicUsize::new(0);
/// The tests of this file share that count.
static ALONE: Mutex<()> = Mutex::new(());

/// | line    | answer                                      |
/// |---------|---------------------------------------------|
/// | `hold`  | none, before the test lets the thread go on |
/// | `count` | how many connections have been let in       |
struct Door {
    held: Sender<()>,
    go_on: Mutex<Receiver<()>>,
}

struct Guest;

impl Default for Guest {
    fn default() -> Guest {
        LET_IN.fetch_add(1, Ordering::Relaxed);
        Guest
    }
}

impl Protocol for Door {
    type ThreadState = ();
    type Session = Guest;
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        if input == b"hold\n" {
            self.held.send(()).expect("the test waits");
            let go_on = self.go_on.lock().expect("one network thread");
            go_on.recv_timeout(patience()).expect("the test lets it");
        }
        let count = LET_IN.load(Ordering::Relaxed);
        let answer = format!("{count}\n");
        context.write(answer.as_bytes()).expect("room for a line");
        Received::Consumed
    }
}

fn client(address: SocketAddr) -> BufReader<TcpStream> {
    let stream = TcpStream::connect(address).expect("connected");
    stream.set_read_timeout(Some(patience())).expect("set");
    BufReader::new(stream)
}

fn client_from(from: Ipv4Addr, to: SocketAddr) -> BufReader<TcpStream> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&socket, &SocketAddrV4::new(from, 0)).expect("all of 127.0.0.0/8 is here");
    connect(&socket, &to).expect("connected");
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(patience())).expect("set");
    BufReader::new(stream)
}

fn ask(client: &mut BufReader<TcpStream>) -> usize {
    client.get_mut().write_all(b"count\n").expect("written");
    answer(client)
}

fn answer(client: &mut BufReader<TcpStream>) -> usize {
    let mut line = String::new();
    client.read_line(&mut line).expect("an answer");
    line.trim().parse().expect("a number")
}

fn holds(choice: DriverChoice) {
    let _alone = ALONE.lock().expect("no test panicked");
    let ((held, is_held), (go_on, may_go_on)) = (channel(), channel());
    let door = Door {
        held,
        go_on: Mutex::new(may_go_on),
    };
    let server = Server::new().listen("127.0.0.1:0", door).driver(choice);
    let running = server.start().expect("it starts");
    let address = running.addresses()[0].address;
    let (mut kept, mut holder) = (client(address), client(address));
    let before = ask(&mut kept).max(ask(&mut holder));
    holder.get_mut().write_all(b"hold\n").expect("written");
    is_held.recv_timeout(patience()).expect("it is held");
    let crowd: Vec<_> = (0..CROWD).map(|_| client(address)).collect();
    kept.get_mut().write_all(b"count\n").expect("written");
    go_on.send(()).expect("it is held");
    let let_in = answer(&mut kept) - before;
    // The request may come with the second turn: the first was begun when it was sent.
    assert!(
        let_in <= 2 * TURN_ACCEPTS_MAX,
        "{let_in} were let in before"
    );
    let last = crowd.into_iter().last();
    assert!(ask(&mut last.expect("a crowd")) >= before + CROWD);
    lets_in_one_from_elsewhere(&mut holder, &is_held, &go_on, address);
    drop((kept, holder));
    // A forced end waits for a moment only, which a thousand ends take on a slow machine.
    running.handle().drain();
    running.wait().expect("it ends well");
}

/// Behind a crowd from one address, a client from another is let in before most of the crowd.
fn lets_in_one_from_elsewhere(
    holder: &mut BufReader<TcpStream>,
    is_held: &Receiver<()>,
    go_on: &Sender<()>,
    address: SocketAddr,
) {
    holder.get_mut().write_all(b"hold\n").expect("written");
    is_held.recv_timeout(patience()).expect("it is held");
    let before = LET_IN.load(Ordering::Relaxed);
    let _crowd: Vec<_> = (0..CROWD).map(|_| client(address)).collect();
    // Two addresses share a queue in one run of 1,024; not all three with the crowd's.
    let others = [2, 3, 4].map(|last| {
        let mut other = client_from(Ipv4Addr::new(127, 0, 0, last), address);
        other.get_mut().write_all(b"count\n").expect("written");
        other
    });
    go_on.send(()).expect("it is held");
    let counts = others.map(|mut other| answer(&mut other) - before);
    let let_in = counts.into_iter().min().expect("three clients");
    // The first of a crowd may be let in before more of it are there, and a request is read a
    // turn after its connection is let in.
    assert!(
        let_in <= 4 * TURN_ACCEPTS_MAX,
        "{let_in} were let in before"
    );
}

#[test]
fn a_client_that_is_in_is_answered_before_a_crowd_is_let_in_on_uring() {
    if Driver::Uring.is_here() {
        holds(DriverChoice::Uring);
    }
}

#[test]
fn a_client_that_is_in_is_answered_before_a_crowd_is_let_in_on_epoll() {
    holds(DriverChoice::Epoll);
}
