//! Servers that hand over to each other in one process: what becomes of the files, what a name that
//! was removed costs, and who serves when one of them hangs or ends.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use flatpath::handover::{Handover, Takeover};
use flatpath::sockets::{ListenAddress, PassedSockets};
use flatpath::watch::{EventWatch, Eventfd};
use flatpath::{DriverChoice, Limits, Running, Server};
use flatpath_testkit::deadline::patience;
use flatpath_testkit::until_true;
use rustix::net::{
    AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix,
    SocketFlags, SocketType, sockopt,
};

use crate::lines::{Client, Lines, on_both};

const HELLO: &str = "flatpath-handover 1";

/// A server that waits at a path, or takes over from the one that does.
struct Waiting {
    running: Running,
    handover: Handover,
}

fn server(choice: DriverChoice, at: &str) -> Server {
    let server = Server::new().driver(choice).network_threads(1);
    server.listen(at, Lines)
}

fn wait_at(path: &Path, takeover: Option<Takeover>, running: Running) -> Waiting {
    let (passed, servers) = (PassedSockets::default(), vec![running.handle()]);
    let handover = Handover::start(path, takeover, &passed, servers, || ());
    Waiting {
        running,
        handover: handover.expect("it waits"),
    }
}

fn ask_at(path: &Path) -> Takeover {
    let takeover = Takeover::begin(path).expect("it answers");
    takeover.expect("a server waits")
}

/// Starts a server at the same address with what another one has.
fn start_with(takeover: &Takeover, choice: DriverChoice, at: SocketAddr) -> Running {
    let next = server(choice, &at.to_string()).passed_sockets(takeover.sockets());
    next.start().expect("it starts with the sockets")
}

fn address(running: &Running) -> SocketAddr {
    running.addresses()[0].address
}

fn expect_served(at: SocketAddr) {
    let mut client = Client::of(TcpStream::connect(at).expect("it listens"));
    assert_eq!(client.ask("ping\n"), "pong\n");
}

impl Waiting {
    fn end(self) {
        self.running.handle().drain();
        self.running.wait().expect("a clean end");
        drop(self.handover);
    }
}

/// The other side of a conversation, spoken by the test.
struct Voice(OwnedFd);

impl Voice {
    fn of(socket: OwnedFd) -> Voice {
        let patience = Some(patience());
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, patience).expect("a deadline");
        Voice(socket)
    }

    fn new_at(path: &Path) -> Voice {
        let socket = packets();
        let address = SocketAddrUnix::new(path).expect("short");
        rustix::net::connect(&socket, &address).expect("a server waits there");
        Voice::of(socket)
    }

    fn say(&self, line: &str) {
        rustix::net::send(&self.0, line.as_bytes(), SendFlags::NOSIGNAL).expect("sent");
    }

    /// The next line; empty where the other side has ended.
    fn hear(&self) -> String {
        let mut bytes = [0; 4_096];
        let (count, _) =
            rustix::net::recv(&self.0, &mut bytes, RecvFlags::empty()).expect("a line");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    /// Says what a new process does, and hears all that it is offered.
    fn takes_sockets(path: &Path) -> Voice {
        let voice = Voice::new_at(path);
        voice.say(HELLO);
        while !voice.hear().starts_with("end") {}
        voice
    }
}

fn packets() -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    socket.expect("a socket")
}

/// What happens at a path, in words.
type Event = (&'static str, fn(&Path));

/// Each is a take-over that fails after the sockets were offered.
const FAILURES: [Event; 4] = [
    ("it ends", |path| drop(Voice::takes_sockets(path))),
    ("it ends before it has heard all", |path| {
        Voice::new_at(path).say(HELLO);
    }),
    ("it says nonsense", |path| {
        let voice = Voice::takes_sockets(path);
        voice.say("nonsense");
        assert!(voice.hear().starts_with("refused it said"));
    }),
    ("another one takes its place and ends", |path| {
        let first = Voice::takes_sockets(path);
        let second = Voice::takes_sockets(path);
        assert!(first.hear().starts_with("refused another"));
        drop(second);
    }),
];

#[test]
fn the_files_are_the_old_servers_again_after_a_take_over_that_failed() {
    for (what, fail) in FAILURES {
        let place = tempfile::tempdir().expect("a directory");
        let [path, at] = ["next", "lines"].map(|name| place.path().join(name));
        let server = Server::new().listen_at(ListenAddress::Unix(at.clone()), Lines);
        let old = wait_at(&path, None, server.start().expect("it starts"));
        fail(&path);
        // It hears in order: what came before this was heard.
        let last = Voice::new_at(&path);
        last.say("nonsense");
        assert!(last.hear().starts_with("refused the versions"), "{what}");
        assert!(path.exists() && at.exists(), "{what}: it serves");
        old.end();
        let left = [&path, &at].map(|file| file.exists());
        assert_eq!(left, [false; 2], "{what}: left behind");
    }
}

#[test]
fn a_socket_for_a_handover_that_was_removed_is_made_again() {
    let place = tempfile::tempdir().expect("a directory");
    let run = place.path().join("run");
    let path = run.join("next");
    let make_run = || std::fs::create_dir(&run).expect("made");
    make_run();
    let start = server(DriverChoice::Auto, "127.0.0.1:0").start();
    let mut current = wait_at(&path, None, start.expect("it starts"));
    let at = address(&current.running);
    let removals: [Event; 3] = [
        ("the file", |run| {
            std::fs::remove_file(run.join("next")).expect("removed");
        }),
        ("the directory", |run| {
            std::fs::remove_dir_all(run).expect("removed");
        }),
        ("a dead socket in its place", |run| {
            let path = run.join("next");
            std::fs::remove_file(&path).expect("removed");
            drop(std::os::unix::net::UnixListener::bind(path).expect("free"));
        }),
    ];
    for (what, remove) in removals {
        remove(&run);
        if !run.exists() {
            make_run();
        }
        until_true(
            &format!("another server to be able to come: {what}"),
            || Takeover::begin(&path).is_ok_and(|found| found.is_some()),
        );
        let takeover = ask_at(&path);
        let next = start_with(&takeover, DriverChoice::Auto, at);
        let next = wait_at(&path, Some(takeover), next);
        let old = std::mem::replace(&mut current, next);
        old.running.wait().expect("it has handed over");
        drop(old.handover);
        assert!(path.exists(), "{what}: the next one's");
        expect_served(at);
    }
    current.end();
    assert!(!path.exists());
}

#[test]
fn a_file_of_another_process_at_the_path_is_left_alone() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("next");
    let start = server(DriverChoice::Auto, "127.0.0.1:0").start();
    let old = wait_at(&path, None, start.expect("it starts"));
    std::fs::remove_file(&path).expect("removed");
    std::fs::write(&path, "precious").expect("written");
    // Longer than from one look to the next.
    std::thread::sleep(Duration::from_millis(2_500));
    old.end();
    assert_eq!(std::fs::read(&path).expect("there"), b"precious");
}

#[test]
fn a_socket_that_is_removed_before_the_new_server_is_ready_is_made_by_that() {
    on_both(|choice| {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("next");
        let old = server(choice, "127.0.0.1:0").start().expect("it starts");
        let at = address(&old);
        let old = wait_at(&path, None, old);
        let takeover = ask_at(&path);
        let next = start_with(&takeover, choice, at);
        std::fs::remove_file(&path).expect("removed");
        let next = wait_at(&path, Some(takeover), next);
        assert!(path.exists());
        old.running.wait().expect("it has handed over");
        drop(old.handover);
        expect_served(at);
        // The next client finds the new server.
        drop(ask_at(&path));
        next.end();
        assert!(!path.exists());
    });
}

/// Speaks as an old server that has no socket but the one at the path, until the new one is ready.
fn hand_over_as_old(waiting: &OwnedFd) -> Voice {
    let peer = rustix::net::accept_with(waiting, SocketFlags::CLOEXEC).expect("a new server");
    let peer = Voice::of(peer);
    assert_eq!(peer.hear(), HELLO);
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let sockets = [waiting.as_fd()];
    ancillary.push(SendAncillaryMessage::ScmRights(&sockets));
    let bytes = [io::IoSlice::new(b"path")];
    rustix::net::sendmsg(&peer.0, &bytes, &mut ancillary, SendFlags::NOSIGNAL).expect("sent");
    peer.say("end");
    assert_eq!(peer.hear(), "ready");
    peer
}

/// Waits at a path as an old server does.
fn listen_as_old(path: &Path) -> OwnedFd {
    let waiting = packets();
    let at = SocketAddrUnix::new(path).expect("short");
    rustix::net::bind(&waiting, &at).expect("free");
    rustix::net::listen(&waiting, 1).expect("it listens");
    waiting
}

/// Takes over from a test that speaks as the old server.
fn start_after(path: &Path) -> (Running, io::Result<Handover>) {
    let takeover = ask_at(path);
    let next = server(DriverChoice::Auto, "127.0.0.1:0");
    let next = next.passed_sockets(takeover.sockets()).start();
    let next = next.expect("it starts");
    let (passed, servers) = (PassedSockets::default(), vec![next.handle()]);
    let handover = Handover::start(path, Some(takeover), &passed, servers, || ());
    (next, handover)
}

#[test]
fn a_server_that_is_refused_when_it_is_ready_takes_nothing_and_removes_nothing() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("next");
    let waiting = listen_as_old(&path);
    std::thread::scope(|scope| {
        scope.spawn(|| hand_over_as_old(&waiting).say("refused it took too long to start"));
        let (next, handover) = start_after(&path);
        let cause = handover.expect_err("the old one serves on");
        assert!(cause.to_string().contains("too long"), "{cause}");
        next.handle().drain();
        next.wait().expect("a clean end");
    });
    assert!(path.exists(), "the old one waits there");
}

#[test]
fn a_server_whose_predecessor_is_silent_serves_and_ends_if_that_refuses_it_after_all() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("next");
    let waiting = listen_as_old(&path);
    let (serves, is_served) = channel();
    std::thread::scope(|scope| {
        let waiting = &waiting;
        scope.spawn(move || {
            let peer = hand_over_as_old(waiting);
            is_served
                .recv_timeout(patience())
                .expect("the new one serves");
            peer.say("refused another process takes over");
            // It has ended when the conversation has.
            assert_eq!(peer.hear(), "");
        });
        let (next, handover) = start_after(&path);
        let handover = handover.expect("it serves beside the old one");
        expect_served(address(&next));
        serves.send(()).expect("the old one waits for it");
        next.wait().expect("it drains by itself");
        drop(handover);
    });
    assert!(path.exists(), "the old one waits there");
}

#[test]
fn a_socket_that_is_removed_as_the_old_server_lets_go_is_made_again() {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("next");
    let waiting = listen_as_old(&path);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let peer = hand_over_as_old(&waiting);
            std::fs::remove_file(&path).expect("removed");
            peer.say("draining");
            peer.say("released");
        });
        let (running, handover) = start_after(&path);
        let handover = handover.expect("it serves");
        expect_served(address(&running));
        until_true("another server to be able to come", || {
            Takeover::begin(&path).is_ok_and(|found| found.is_some())
        });
        Waiting { running, handover }.end();
    });
}

/// A client that reads nothing until the end, so that its server does not end before.
fn slow_client(at: SocketAddr) -> Client {
    let mut client = Client::of(TcpStream::connect(at).expect("it listens"));
    client.say(&format!("big {BIG}\n"));
    client
}

const BIG: usize = 64 << 20;

#[test]
fn a_server_that_drains_or_is_about_to_hands_over_what_it_still_has() {
    for drain_delay in [Duration::ZERO, Duration::from_secs(3_600)] {
        on_both(|choice| {
            let place = tempfile::tempdir().expect("a directory");
            let path = place.path().join("next");
            let limits = Limits {
                drain_delay,
                ..Limits::default()
            };
            let old = server(choice, "127.0.0.1:0").limits(limits).start();
            let old = wait_at(&path, None, old.expect("it starts"));
            let at = address(&old.running);
            let mut slow = slow_client(at);
            until_true("its server to have begun", || {
                old.running.handle().statistics().sent_bytes > 0
            });
            old.running.handle().drain();
            let takeover = ask_at(&path);
            let next = start_with(&takeover, choice, at);
            let next = wait_at(&path, Some(takeover), next);
            expect_served(at);
            // The old one is there still, and gives its client all of it.
            assert_eq!(slow.rest().len(), BIG + 1);
            old.running.wait().expect("it has handed over");
            drop(old.handover);
            assert!(path.exists(), "the next one waits there");
            let takeover = ask_at(&path);
            let last = start_with(&takeover, choice, at);
            let last = wait_at(&path, Some(takeover), last);
            next.running.wait().expect("it has handed over");
            drop(next.handover);
            expect_served(at);
            last.end();
        });
    }
}

/// Has the network thread of a server hang until the sender is dropped.
fn hang(running: &Running) -> (EventWatch, Sender<()>) {
    let (end, ends) = channel::<()>();
    let (hung, hangs) = channel();
    let (ends, hung) = (Mutex::new(ends), Mutex::new(hung));
    let event = Eventfd::new().expect("a descriptor");
    let watch = running.handle().watch(event, move |count| {
        if count > 0 {
            let _ = hung.lock().expect("no test panics there").send(());
            let _ = ends.lock().expect("no test panics there").recv();
        }
    });
    watch.start().expect("the server runs");
    watch.eventfd().write(1).expect("written");
    hangs.recv_timeout(patience()).expect("it hangs");
    (watch, end)
}

/// Runs a test body with each driver of the old server and of those after it, all at the same time:
/// a server waits for a second for one that hangs.
fn on_each_pair(body: impl Fn(DriverChoice, DriverChoice) + Sync) {
    let body = &body;
    std::thread::scope(|scope| {
        on_both(|of_old| {
            on_both(|of_next| {
                scope.spawn(move || body(of_old, of_next));
            });
        });
    });
}

/// A server hangs once the next one has its sockets. Clients are served by the next one, then by
/// those that `meanwhile` starts, and still are after the first server has ended.
fn beside_one_that_hangs(
    (of_old, of_next): (DriverChoice, DriverChoice),
    meanwhile: impl FnOnce(&Path, SocketAddr, Waiting) -> Waiting,
) {
    let place = tempfile::tempdir().expect("a directory");
    let path = place.path().join("next");
    let old = server(of_old, "127.0.0.1:0").start();
    let old = wait_at(&path, None, old.expect("it starts"));
    let at = address(&old.running);
    expect_served(at);
    let takeover = ask_at(&path);
    let (watch, end) = hang(&old.running);
    let next = start_with(&takeover, of_next, at);
    let next = wait_at(&path, Some(takeover), next);
    let last = meanwhile(&path, at, next);
    drop((watch, end));
    old.running.wait().expect("it has handed over");
    drop(old.handover);
    expect_served_often(at);
    last.end();
}

fn expect_served_often(at: SocketAddr) {
    for _ in 0..20 {
        expect_served(at);
    }
}

#[test]
fn an_old_server_that_hangs_keeps_no_client_from_the_new_one() {
    on_each_pair(|of_old, of_next| {
        beside_one_that_hangs((of_old, of_next), |_, at, next| {
            expect_served_often(at);
            next
        });
    });
}

/// The server between them has ended when the first one still hangs, whose accept is armed.
#[test]
fn an_old_server_that_hangs_keeps_no_client_from_the_one_after_the_next() {
    on_each_pair(|of_old, of_last| {
        beside_one_that_hangs((of_old, of_last), |path, at, mut next| {
            for _ in 0..2 {
                let takeover = ask_at(path);
                let last = start_with(&takeover, of_last, at);
                let last = wait_at(path, Some(takeover), last);
                let before = std::mem::replace(&mut next, last);
                before.running.wait().expect("it has handed over");
                drop(before.handover);
                expect_served_often(at);
            }
            next
        });
    });
}
