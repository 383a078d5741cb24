//! For tests: handlers that block until the test opens a gate, and a protocol made of them.

use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Condvar, Mutex};

use flatpath::{Context, Job, ListenerOptions, Protocol, Received, Stall, WorkerScope};
use socket2::{Domain, Socket, Type};

pub(crate) use flatpath_testkit::patience;

/// A gate that handlers wait at until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Doors>, Condvar)>);

#[derive(Default)]
struct Doors {
    is_open: bool,
    waiting: usize,
    waiting_max: usize,
}

impl Gate {
    pub(crate) fn wait(&self) {
        let mut doors = self.0.0.lock().expect("not poisoned");
        doors.waiting += 1;
        doors.waiting_max = doors.waiting_max.max(doors.waiting);
        self.0.1.notify_all();
        let opened = self.0.1.wait_while(doors, |doors| !doors.is_open);
        opened.expect("not poisoned").waiting -= 1;
    }

    /// Until `count` handlers wait.
    pub(crate) fn await_waiting(&self, count: usize) {
        let doors = self.0.0.lock().expect("not poisoned");
        let too_few = |doors: &mut Doors| doors.waiting < count;
        let waited = self.0.1.wait_timeout_while(doors, patience(), too_few);
        let waiting = waited.expect("not poisoned").0.waiting;
        assert!(waiting >= count, "{waiting} handlers run, not {count}");
    }

    /// The most handlers that ever waited at the same time.
    pub(crate) fn waiting_max(&self) -> usize {
        self.0.0.lock().expect("not poisoned").waiting_max
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().expect("not poisoned").is_open = true;
        self.0.1.notify_all();
    }
}

/// Opens its gate also when the test fails, so that no thread of it stays.
pub(crate) struct Opener(pub(crate) Gate);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// One reply for each byte.
///
/// | byte  | handler                              | reply |
/// |-------|--------------------------------------|-------|
/// | `w`   | a worker waits at the gate           | `d`   |
/// | `q`   | a worker has nothing to do           | `d`   |
/// | `i`   | the network thread waits at the gate | none  |
/// | other | none                                 | `x`   |
pub(crate) struct Gated(pub(crate) Gate);

/// What a worker does.
#[derive(Default)]
pub(crate) struct Work {
    waits: bool,
}

impl Protocol for Gated {
    type ThreadState = ();
    type Session = ();
    type Job = Work;

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("gated")
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        for (consumed, byte) in input.iter().enumerate() {
            match byte {
                b'w' | b'q' => {
                    let Some(mut job) = context.job() else {
                        return Received::Blocked {
                            consumed,
                            on: Stall::Jobs,
                        };
                    };
                    job.waits = *byte == b'w';
                    context.dispatch(job);
                }
                b'i' => self.0.wait(),
                _ => context.write(b"x").expect("room"),
            }
        }
        Received::Consumed
    }

    fn run(&self, work: &mut Work, _: &mut WorkerScope<'_>) {
        if work.waits {
            self.0.wait();
        }
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        context.write(b"d").expect("room");
        context.recycle(job);
    }
}

/// A client whose reads have a deadline.
pub(crate) fn client(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("connected");
    client.set_read_timeout(Some(patience())).expect("set");
    client
}

/// The same from an address of this machine, by its last number.
pub(crate) fn client_from(host: u8, address: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let own: SocketAddr = ([127, 0, 0, host], 0).into();
    socket.bind(&own.into()).expect("bound");
    socket.connect(&address.into()).expect("connected");
    let client = TcpStream::from(socket);
    client.set_read_timeout(Some(patience())).expect("set");
    client
}
