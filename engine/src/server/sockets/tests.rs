//! Which socket is meant for which listener.

use super::*;
use std::net::TcpListener;

fn socket() -> (OwnedFd, ListenAddress) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let socket = OwnedFd::from(listener);
    let address = listening(&socket).expect("it listens");
    (socket, address)
}

fn passed(sockets: &PassedSockets, origin: Origin) -> ListenAddress {
    let (socket, address) = socket();
    sockets.add(PassedSocket {
        kind: SocketKind::Connections,
        origin,
        address: address.clone(),
        socket,
    });
    address
}

#[test]
fn a_socket_of_datagrams_is_taken_for_datagrams_alone_though_its_name_is_that_of_another() {
    let add = |sockets: &PassedSockets, socket: OwnedFd| {
        let (kind, address) = usable(&socket).expect("one that can be used");
        sockets.add(PassedSocket {
            kind,
            origin: Origin::Manager { name: "rpc".into() },
            address,
            socket,
        });
    };
    let datagrams = || std::net::UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let stream = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let sockets = PassedSockets::default();
    add(&sockets, datagrams().into());
    add(&sockets, stream.into());
    add(&sockets, datagrams().into());
    let asked = ListenAddress::Passed("rpc".into());
    assert_eq!(sockets.addresses(&asked).len(), 1, "where it listens");
    let taken = |kind| sockets.take(("flatpath", "rpc"), (&asked, kind)).0.len();
    assert_eq!(taken(SocketKind::Connections), 1);
    assert!(sockets.has_named("rpc") && !sockets.has_named("other"));
    assert!(
        sockets
            .left()
            .iter()
            .all(|one| one.starts_with("fd:rpc (udp:"))
    );
    assert_eq!(taken(SocketKind::Datagrams), 2);
    assert!(sockets.left().is_empty() && !sockets.has_named("rpc"));
    let (local, _) = std::os::unix::net::UnixDatagram::pair().expect("two");
    assert!(usable(&local.into()).is_err(), "it is not of the internet");
}

#[test]
fn addresses_are_read_as_they_are_written() {
    for text in ["unix:/run/http", "unix:http", "fd:http"] {
        let address = ListenAddress::from_prefix(text).expect(text);
        assert_eq!(address.to_string(), text);
        assert_eq!(address.internet(), None);
    }
    for text in ["unix:", "fd:", "127.0.0.1:80", "80", ""] {
        assert_eq!(ListenAddress::from_prefix(text), None, "{text}");
    }
}

#[test]
fn a_managers_sockets_are_taken_by_name_or_address_and_once() {
    let sockets = PassedSockets::default();
    let named = |name: &str| Origin::Manager { name: name.into() };
    let first = passed(&sockets, named("web"));
    passed(&sockets, named("web"));
    let other = passed(&sockets, named("other"));
    let web = ListenAddress::Passed("web".into());
    assert_eq!(
        sockets
            .take(("main", "http"), (&other, SocketKind::Connections))
            .0
            .len(),
        1
    );
    assert!(
        sockets
            .take(("main", "http"), (&other, SocketKind::Connections))
            .0
            .is_empty()
    );
    assert_eq!(sockets.left()[0], format!("fd:web ({first})"));
    assert_eq!(
        sockets
            .take(("main", "http"), (&web, SocketKind::Connections))
            .0
            .len(),
        2
    );
    assert!(sockets.left().is_empty());
}

#[test]
fn a_servers_sockets_are_for_the_same_protocol_where_it_was_told_or_is() {
    let free = ListenAddress::Internet("127.0.0.1:0".parse().expect("an address"));
    let server = |listener, protocol: &str| Origin::Server {
        listener,
        server: "main".into(),
        protocol: protocol.into(),
        asked: free.clone(),
    };
    let sockets = PassedSockets::default();
    passed(&sockets, server(0, "http"));
    passed(&sockets, server(0, "http"));
    let second = passed(&sockets, server(1, "http"));
    assert!(
        sockets
            .take(("main", "echo"), (&second, SocketKind::Connections))
            .0
            .is_empty()
    );
    assert!(
        sockets
            .take(("admin", "http"), (&free, SocketKind::Connections))
            .0
            .is_empty()
    );
    assert_eq!(
        sockets
            .take(("main", "http"), (&second, SocketKind::Connections))
            .0
            .len(),
        1
    );
    assert_eq!(
        sockets
            .take(("main", "http"), (&free, SocketKind::Connections))
            .0
            .len(),
        2
    );
    passed(&sockets, server(2, "relay"));
    let left = sockets.close_left();
    assert_eq!(left.len(), 1);
    assert!(left[0].0.starts_with("relay 127.0.0.1:") && left[0].1 == 0);
}

#[test]
fn what_does_not_listen_is_refused() {
    let (socket, _) = std::os::unix::net::UnixStream::pair().expect("a pair");
    assert!(listening(&socket.into()).is_err());
}

#[test]
fn a_socket_file_is_removed_only_while_it_is_the_same() {
    let directory = std::env::temp_dir().join(format!("flatpath-file-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let path = directory.join("socket");
    std::fs::write(&path, "first").expect("written");
    let first = SocketFile::at(&path).expect("there");
    let other = directory.join("other");
    std::fs::write(&other, "second").expect("written");
    std::fs::rename(&other, &path).expect("replaced");
    drop(first);
    let second = SocketFile::at(&path).expect("it is another one's");
    drop(second);
    assert!(!path.exists());
    std::fs::remove_dir(&directory).expect("empty");
}
