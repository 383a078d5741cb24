//! What only a kernel has of opening connections: families, options, full backlogs.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;

use flatpath_driver::{Driver, Errno, Outcome, Remote};
use rustix::net::{AddressFamily, SocketFlags, SocketType, connect, listen, socket_with};

use super::Rig;
use crate::rig::Make;

on_every_driver! {
    #[test] fn each_family_is_connected;
    #[test] fn a_socket_is_made_like_one_that_is_accepted;
    #[test] fn a_unix_socket_that_is_absent_or_full_fails_at_once;
    #[test] fn a_number_that_was_just_closed_is_connected_anew;
}

/// Fills the backlog of a listener: from then on the kernel drops what comes. What fills it stays
/// for as long as the test's process.
pub(super) fn fill(listener: &TcpListener) {
    listen(listener, 0).expect("a shorter backlog");
    let address = listener.local_addr().expect("bound");
    for _ in 0..4 {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None);
        let socket = socket.expect("a socket");
        // In the backlog, or under way without an end.
        let _ = connect(&socket, &address);
        std::mem::forget(socket);
    }
}

/// A Unix socket that listens in a directory.
fn unix(directory: &tempfile::TempDir) -> (Remote, UnixListener) {
    let path: Arc<Path> = directory.path().join("socket").into();
    let listener = UnixListener::bind(&path).expect("a path");
    (Remote::Unix(path), listener)
}

mod cases {
    use rustix::fs::OFlags;

    use super::*;

    fn connected<D: Driver>(rig: &mut Rig<D>, remote: &Remote) -> flatpath_driver::Socket {
        let socket = rig.driver.socket(remote).expect("a descriptor");
        rig.driver.connect(socket, remote, 1);
        let outcome = rig.next(1);
        assert!(matches!(outcome, Outcome::Connected), "{outcome:?}");
        socket
    }

    /// As proc_pid_fdinfo(5) has them, in octal digits.
    fn flags_of(descriptor: i32) -> OFlags {
        let lines = std::fs::read_to_string(format!("/proc/self/fdinfo/{descriptor}"));
        let lines = lines.expect("it is open");
        let digits = lines.lines().find_map(|line| line.strip_prefix("flags:"));
        let digits = digits.expect("flags").trim();
        OFlags::from_bits_retain(u32::from_str_radix(digits, 8).expect("octal digits"))
    }

    pub(crate) fn each_family_is_connected<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>() else {
            return;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let (path, unix_listener) = unix(&directory);
        let v4 = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        // A machine may be without.
        let v6 = TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).ok();
        for listener in [Some(v4), v6].into_iter().flatten() {
            let address = listener.local_addr().expect("bound");
            let socket = connected(&mut rig, &Remote::Tcp(address));
            assert_eq!(rig.driver.peer(socket), Some(address));
            let (_peer, from) = listener.accept().expect("it has come");
            assert_eq!(rig.driver.local(socket), Some(from));
            rig.driver.close(socket);
        }
        let socket = connected(&mut rig, &path);
        assert_eq!(rig.driver.peer(socket), None);
        let (peer, _) = unix_listener.accept().expect("it has come");
        // What it receives is waited for, as on any other socket.
        rig.send(socket, b"asked");
        let told = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let (mut peer, mut asked) = (peer, [0; 5]);
            peer.read_exact(&mut asked).expect("asked");
            peer.write_all(b"told").expect("told");
        });
        assert_eq!(rig.receive(socket), Ok(b"told".to_vec()));
        told.join().expect("served");
        rig.driver.close(socket);
        rig.has_no_socket();
    }

    pub(crate) fn a_socket_is_made_like_one_that_is_accepted<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>() else {
            return;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let (path, _unix) = unix(&directory);
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = Remote::Tcp(tcp.local_addr().expect("bound"));
        for remote in [address, path] {
            let socket = connected(&mut rig, &remote);
            let number = socket.descriptor().expect("a real one");
            let flags = flags_of(number);
            assert!(flags.contains(OFlags::CLOEXEC), "{remote}: {flags:?}");
            let is_blocking = !flags.contains(OFlags::NONBLOCK);
            assert_eq!(is_blocking, rig.driver.kind() == "uring", "{remote}");
            rig.driver.close(socket);
        }
    }

    pub(crate) fn a_unix_socket_that_is_absent_or_full_fails_at_once<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>() else {
            return;
        };
        let directory = tempfile::tempdir().expect("a directory");
        let absent: Arc<Path> = directory.path().join("absent").into();
        let (full, listener) = unix(&directory);
        listen(&listener, 0).expect("a shorter backlog");
        let path = directory.path().join("socket");
        let _first = UnixStream::connect(&path).expect("the one that there is room for");
        let mut fails = |remote: &Remote, errno| {
            let socket = rig.driver.socket(remote).expect("a descriptor");
            rig.driver.connect(socket, remote, 1);
            rig.fails(1, errno);
            rig.driver.close(socket);
        };
        fails(&Remote::Unix(absent), Errno::NOENT);
        fails(&full, Errno::AGAIN);
        drop(listener);
        fails(&full, Errno::CONNREFUSED);
        rig.has_no_socket();
    }

    /// A number that was closed a moment ago is the next one that the kernel gives out.
    pub(crate) fn a_number_that_was_just_closed_is_connected_anew<M: Make>(_: &str) {
        let Some(mut rig) = Rig::new::<M>() else {
            return;
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let good = Remote::Tcp(listener.local_addr().expect("bound"));
        let absent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let bad = Remote::Tcp(absent.local_addr().expect("bound"));
        drop(OwnedFd::from(absent));
        for _ in 0..20 {
            let socket = rig.driver.socket(&bad).expect("a descriptor");
            rig.driver.connect(socket, &bad, 2);
            rig.fails(2, Errno::CONNREFUSED);
            rig.driver.close(socket);
            let socket = connected(&mut rig, &good);
            let (peer, _) = listener.accept().expect("it has come");
            drop(peer);
            assert_eq!(rig.receive(socket), Ok(vec![]));
            rig.driver.close(socket);
        }
        rig.has_no_socket();
    }
}
