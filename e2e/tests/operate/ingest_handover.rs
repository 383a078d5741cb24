//! A server with ingest relieves another one: producers and consumers come along, and no message
//! that was sent is lost or delivered twice.

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use flatpath_consumer::{Consumer, Error};
use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::ingest::{launch, message, told};
use flatpath_testkit::{Driver, Launch, Over, each_driver, tools, until_true};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, recv,
};
use rustix::process::Signal;

each_driver!(
    producers_and_consumers_come_along_under_load,
    what_a_kept_connection_still_sends_is_delivered,
    a_producer_that_no_consumer_can_come_for_is_reset,
    a_new_server_that_fails_leaves_the_socket_as_it_is,
    a_killed_old_server_is_an_error_once_and_the_next_is_followed,
    a_pair_with_a_token_comes_along,
    a_consumer_in_python_comes_along,
);

/// Each run has its socket and the path of the handover here.
struct Run(tempfile::TempDir);

impl Run {
    fn new() -> Run {
        Run(tempfile::tempdir().expect("a directory"))
    }

    fn socket(&self) -> PathBuf {
        self.0.path().join("ingest")
    }

    fn next(&self) -> PathBuf {
        self.0.path().join("next")
    }

    /// A kept connection is not taken for an idle one in these tests.
    fn launch(&self, driver: Driver) -> Launch {
        let launch = launch(driver, self.0.path()).with(["--drain-idle-timeout", "60"]);
        launch.with([Path::new("--handover"), &self.next()])
    }

    fn consumer(&self) -> Consumer {
        Consumer::attach(self.socket()).expect("a server is there")
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).expect("a server accepts");
    let patience = Some(long_patience());
    stream.set_read_timeout(patience).expect("a time-out");
    stream
}

/// Whether the server has ended its side: the producer is to come again.
fn is_sent_on(stream: &TcpStream) -> bool {
    let mut byte = [0];
    match recv(stream, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((count, _)) => count == 0,
        Err(rustix::io::Errno::AGAIN) => false,
        Err(errno) => panic!("the connection broke: {errno}"),
    }
}

/// Sends messages of its own until it is told to stop; how many. It comes again when the server
/// ends its side, and never repeats a message.
fn produce(address: SocketAddr, which: u64, is_over: &Over) -> u64 {
    let mut stream = connect(address);
    let mut sent = 0;
    while !is_over.is_set() {
        if is_sent_on(&stream) {
            stream = connect(address);
        }
        let seed = which << 32 | sent;
        let length = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50) as usize;
        stream.write_all(&message(seed, length)).expect("sent");
        sent += 1;
    }
    sent
}

/// Notes the seeds of all messages until the last server stops.
fn consume(mut consumer: Consumer, seeds: &Mutex<Vec<u64>>, count: &AtomicU64) {
    while let Some(got) = consumer.receive().expect("no server is killed") {
        let bytes = got.to_vec();
        let seed = u64::from_be_bytes(bytes[..8].try_into().expect("a seed"));
        assert_eq!(message(seed, bytes.len() - 8)[4..], bytes);
        seeds.lock().expect("no panic before").push(seed);
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// With one network thread, then two, then one again.
fn producers_and_consumers_come_along_under_load(driver: Driver) {
    const PRODUCERS: u64 = 4;
    // FLATPATH_HANDOVERS=50 for more of the same.
    let servers =
        std::env::var("FLATPATH_HANDOVERS").map_or(5, |count| count.parse().expect("a number"));
    let run = Run::new();
    let start = |number: usize| {
        let threads = ["1", "2"][number % 2];
        let launch = run.launch(driver).with(["--network-threads", threads]);
        launch.start()
    };
    let mut current = start(0);
    let address = current.address("ingest");
    let (is_over, count, seeds) = (Over::default(), AtomicU64::new(0), Mutex::default());
    let sent = std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let consumers: Vec<_> = (0..3)
            .map(|_| run.consumer())
            .map(|consumer| scope.spawn(|| consume(consumer, &seeds, &count)))
            .collect();
        let is_over = &is_over;
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|which| scope.spawn(move || produce(address, which, is_over)))
            .collect();
        for number in 1..=servers {
            let next = start(number);
            assert_eq!(next.address("ingest"), address);
            std::mem::replace(&mut current, next).ended_well();
            let before = count.load(Ordering::Relaxed);
            until_true("messages to come by the next", || {
                let fails = producers.iter().any(ScopedJoinHandle::is_finished)
                    || consumers.iter().any(ScopedJoinHandle::is_finished);
                fails || count.load(Ordering::Relaxed) > before + 100
            });
        }
        is_over.set();
        let sent: Vec<u64> = producers
            .into_iter()
            .map(|one| one.join().expect("no connection broke"))
            .collect();
        let all = sent.iter().sum();
        until_true("all messages to come", || {
            count.load(Ordering::Relaxed) >= all
        });
        current.terminate();
        for consumer in consumers {
            consumer.join().expect("all went well");
        }
        sent
    });
    let mut seeds = seeds.into_inner().expect("no panic before");
    seeds.sort_unstable();
    let all = (0u64..).zip(&sent);
    let all = all.flat_map(|(which, &sent)| (0..sent).map(move |number| which << 32 | number));
    assert!(seeds.into_iter().eq(all), "each was delivered, and once");
    current.ended_well();
    assert!(!run.socket().exists() && !run.next().exists());
}

fn next_text(consumer: &mut Consumer) -> Vec<u8> {
    let message = consumer.receive_timeout(long_patience());
    message.expect("a server").expect("a message").to_vec()
}

fn framed(text: &[u8]) -> Vec<u8> {
    [&(text.len() as u32).to_be_bytes()[..], text].concat()
}

fn what_a_kept_connection_still_sends_is_delivered(driver: Driver) {
    let run = Run::new();
    let first = run.launch(driver).start();
    let address = first.address("ingest");
    let mut consumer = run.consumer();
    let mut kept = connect(address);
    kept.write_all(&framed(b"one")).expect("sent");
    assert_eq!(next_text(&mut consumer), b"one");
    // Half a message, then the handover.
    let second = framed(b"the second");
    kept.write_all(&second[..9]).expect("sent");
    let next = run.launch(driver).start();
    assert_eq!(kept.read(&mut [0]).expect("an end"), 0);
    kept.write_all(&second[9..]).expect("sent");
    kept.write_all(&framed(b"the third")).expect("sent");
    assert_eq!(next_text(&mut consumer), b"the second");
    assert_eq!(next_text(&mut consumer), b"the third");
    let mut new = connect(address);
    new.write_all(&framed(b"by the next")).expect("sent");
    assert_eq!(next_text(&mut consumer), b"by the next");
    assert_eq!(
        told(&first, "ingest ")["flatpath_ingest_producers"],
        1,
        "it waits for it"
    );
    drop(kept);
    first.ended_well();
    drop(next);
}

fn a_producer_that_no_consumer_can_come_for_is_reset(driver: Driver) {
    let run = Run::new();
    let first = run.launch(driver).start();
    let address = first.address("ingest");
    let mut waiting = connect(address);
    waiting.write_all(&framed(b"for any")).expect("sent");
    until_true("the message to be there", || {
        told(&first, "ingest ")["flatpath_ingest_producer_waits_total"] > 0
    });
    let next = run.launch(driver).start();
    first.ended_well();
    let reset = waiting.read(&mut [0]).expect_err("it is told to repeat");
    assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
    let mut again = connect(address);
    again.write_all(&framed(b"for any")).expect("sent");
    assert_eq!(next_text(&mut run.consumer()), b"for any");
    drop(next);
}

/// As a new server does, up to its hello.
fn begin_as_new(path: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(path).expect("short");
    rustix::net::connect(&socket, &address).expect("a server waits there");
    let hello = b"flatpath-handover 1";
    rustix::net::send(&socket, hello, SendFlags::NOSIGNAL).expect("sent");
    socket
}

fn a_new_server_that_fails_leaves_the_socket_as_it_is(driver: Driver) {
    let run = Run::new();
    let first = run.launch(driver).start();
    let address = first.address("ingest");
    let mut consumer = run.consumer();
    let mut producer = connect(address);
    let mut still_serves = |text: &[u8]| {
        producer.write_all(&framed(text)).expect("sent");
        assert_eq!(next_text(&mut consumer), text);
        drop(run.consumer());
    };
    // One that is killed when it has got all.
    let mut bytes = [0; 4_096];
    let socket = begin_as_new(&run.next());
    while !bytes.starts_with(b"end") {
        recv(&socket, &mut bytes, RecvFlags::empty()).expect("another line");
    }
    drop(socket);
    still_serves(b"after a death");
    // One that ends in order, because another address is taken.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = taken.local_addr().map(|at| (taken, at.to_string()));
    let (_taken, at) = taken.expect("bound");
    let failed = run.launch(driver).with(["--http", &at]).try_start();
    let failed = failed.err().expect("the address is taken");
    assert_eq!(failed.status.code(), Some(1), "{}", failed.log);
    still_serves(b"after a failure");
    let next = run.launch(driver).start();
    drop(producer);
    first.ended_well();
    let mut producer = connect(address);
    producer.write_all(&framed(b"at last")).expect("sent");
    assert_eq!(next_text(&mut consumer), b"at last");
    drop(next);
}

fn a_killed_old_server_is_an_error_once_and_the_next_is_followed(driver: Driver) {
    let run = Run::new();
    let mut first = run.launch(driver).start();
    let address = first.address("ingest");
    let mut consumer = run.consumer();
    let mut kept = connect(address);
    kept.write_all(&framed(b"one")).expect("sent");
    assert_eq!(next_text(&mut consumer), b"one");
    let next = run.launch(driver).start();
    let mut new = connect(address);
    new.write_all(&framed(b"two")).expect("sent");
    assert_eq!(next_text(&mut consumer), b"two");
    first.process().signal(Signal::KILL);
    first.exit_status();
    let lost = consumer.receive_timeout(long_patience());
    assert_eq!(lost.expect_err("it was killed"), Error::Lost);
    new.write_all(&framed(b"three")).expect("sent");
    assert_eq!(next_text(&mut consumer), b"three");
    drop(next);
}

fn a_pair_with_a_token_comes_along(driver: Driver) {
    let run = Run::new();
    let naming = [&[0xff; 4][..], &7_u64.to_be_bytes()].concat();
    let mut current = run.launch(driver).start();
    let address = current.address("ingest");
    let mut consumer = Consumer::attach_for(run.socket(), 7).expect("attached");
    let _others = run.consumer();
    for text in [b"first", b"again", b"third"] {
        let mut producer = connect(address);
        producer.write_all(&naming).expect("sent");
        producer.write_all(&framed(text)).expect("sent");
        assert_eq!(next_text(&mut consumer), text);
        let next = run.launch(driver).start();
        assert_eq!(producer.read(&mut [0]).expect("an end"), 0);
        drop(producer);
        std::mem::replace(&mut current, next).ended_well();
    }
    let nothing = consumer.receive_timeout(Duration::ZERO);
    assert_eq!(nothing.expect_err("all was delivered"), Error::TimedOut);
}

fn a_consumer_in_python_comes_along(driver: Driver) {
    let Some(python) = tools::find("python3") else {
        return;
    };
    let run = Run::new();
    let mut current = run.launch(driver).start();
    let address = current.address("ingest");
    let program = format!(
        "from flatpath_consumer import Consumer\n\
         with Consumer({:?}) as consumer:\n\
         \x20   for message in consumer:\n\
         \x20       with message:\n\
         \x20           print(bytes(message).decode(), flush=True)\n",
        run.socket()
    );
    let package = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/python");
    let mut child = Command::new(python)
        .args(["-B", "-W", "error", "-c", &program])
        .env("PYTHONPATH", package)
        .stdout(Stdio::piped())
        .spawn()
        .expect("started");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    current.await_log("is attached");
    for text in ["first", "again", "third"] {
        let mut producer = connect(address);
        producer.write_all(&framed(text.as_bytes())).expect("sent");
        let next = run.launch(driver).start();
        assert_eq!(producer.read(&mut [0]).expect("an end"), 0);
        drop(producer);
        std::mem::replace(&mut current, next).ended_well();
        assert_eq!(lines.next().expect("a line").expect("text"), text);
        current.await_log("is attached");
    }
    current.terminate();
    current.ended_well();
    assert!(child.wait().expect("our child").success());
}
