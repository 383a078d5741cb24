//! A listener behind a load balancer on both drivers, with real sockets: who may connect, and which
//! client it serves.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::headers::{Herald, binary_for, line, local};
use crate::lines::choices;
use flatpath::{Limits, ListenerOptions, Protocol, Received, Server};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType, bind, connect, socket};

use flatpath_testkit::{patience, stretched};

/// Like the herald, and its connections are accepted with their first bytes.
struct Deferring;

impl Protocol for Deferring {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            defer_accept: true,
            ..ListenerOptions::named("deferring")
        }
    }

    fn received(&self, context: &mut flatpath::Context<'_, Self>, _input: &[u8]) -> Received {
        let peer = context.peer().expect("a client").to_string();
        context.write(peer.as_bytes()).expect("room for an address");
        context.close_after_output();
        Received::Consumed
    }
}

/// A connection from an address of this machine to the server.
///
/// # Errors
/// It was reset, which may be before connect(2) has returned.
fn connect_from(from: [u8; 4], server: SocketAddr) -> Result<TcpStream, ErrorKind> {
    let client = socket(AddressFamily::INET, SocketType::STREAM, None).expect("a socket");
    bind(&client, &SocketAddr::from((from, 0))).expect("a loopback address");
    match connect(&client, &server) {
        Err(Errno::CONNRESET) => return Err(ErrorKind::ConnectionReset),
        connected => connected.expect("the server listens"),
    }
    let client = TcpStream::from(client);
    client.set_read_timeout(Some(patience())).expect("settable");
    client.set_nodelay(true).expect("settable");
    Ok(client)
}

/// What a connection from this address hears that says this, piece by piece, until the end or
/// a reset.
pub(crate) fn hears(
    from: [u8; 4],
    server: SocketAddr,
    said: &[&[u8]],
) -> Result<String, ErrorKind> {
    let mut client = connect_from(from, server)?;
    // A reset is reported once: the client may see it here, and a plain end when it reads.
    let was_reset = said.iter().any(|piece| client.write_all(piece).is_err());
    let mut text = String::new();
    match client.read_to_string(&mut text) {
        Ok(_) if was_reset => Err(ErrorKind::ConnectionReset),
        Ok(_) => Ok(text),
        Err(cause) => Err(cause.kind()),
    }
}

const BALANCER: [u8; 4] = [127, 1, 0, 5];
const STRANGER: [u8; 4] = [127, 2, 0, 5];

#[test]
fn clients_are_known_by_their_headers_and_strangers_are_reset() {
    for choice in choices() {
        let networks = ["127.1.0.0/16", "::1"].map(|text| text.parse().expect("a network"));
        let server = Server::new()
            .driver(choice)
            .listen("127.0.0.1:0", Herald)
            .behind_proxy(networks)
            .listen("127.0.0.1:0", Deferring)
            .behind_proxy(networks)
            .listen("127.0.0.1:0", Herald);
        let running = server.start().expect("start");
        let [herald, deferring, direct] = [0, 1, 2].map(|i| running.addresses()[i].address);
        let client: SocketAddr = "198.51.100.7:56324".parse().expect("an address");
        let (text, long) = (line(client), binary_for(client, 16_000));
        for header in [&text, &long] {
            for pieces in [
                &[header, &b"one."[..]][..],
                &[&[header, &b"one."[..]].concat()],
            ] {
                let heard = hears(BALANCER, herald, pieces).expect("served");
                let words = heard.strip_prefix("198.51.100.7:56324 through 127.1.0.5:");
                assert!(
                    words.is_some_and(|words| words.ends_with("\nONE.")),
                    "{heard}"
                );
                let heard = hears(BALANCER, deferring, pieces);
                assert_eq!(heard, Ok("198.51.100.7:56324".into()));
            }
        }
        let heard = hears(BALANCER, herald, &[&local(), b"."]).expect("served");
        let peers = heard.strip_suffix("\n.").expect("it ends so");
        let (one, other) = peers.split_once(" through ").expect("two");
        assert_eq!(one, other);
        assert!(one.starts_with("127.1.0.5:"), "{one}");
        for (from, said) in [
            (STRANGER, &text[..]),
            (STRANGER, b"one."),
            (BALANCER, b"one."),
            (BALANCER, b"PROXY TCP4 1.2.3.4 5.6.7.8 9\r\n one."),
        ] {
            let reset = Err(ErrorKind::ConnectionReset);
            assert_eq!(
                hears(from, herald, &[said]),
                reset,
                "{}",
                said.escape_ascii()
            );
        }
        assert_eq!(running.handle().statistics().refused_proxy_header, 4);
        // Other listeners of the server go on as before.
        let heard = hears(STRANGER, direct, &[b"one."]).expect("served");
        assert!(heard.starts_with("127.2.0.5:"), "{heard}");
        assert!(heard.ends_with(" through none\nONE."), "{heard}");
        running.handle().drain();
        running.wait().expect("it ends");
    }
}

#[test]
fn a_header_that_does_not_come_is_not_waited_for() {
    for choice in choices() {
        let limits = Limits {
            head_timeout: stretched(Duration::from_millis(50)),
            ..Limits::default()
        };
        let server = Server::new().driver(choice).limits(limits);
        let networks = [IpAddr::from(BALANCER)].map(|it| it.to_string().parse().expect("it is"));
        let server = server.listen("127.0.0.1:0", Herald).behind_proxy(networks);
        let running = server.start().expect("start");
        let address = running.addresses()[0].address;
        assert_eq!(hears(BALANCER, address, &[b"PROXY "]), Ok(String::new()));
        // A check that connects and leaves is no refusal.
        let check = connect_from(BALANCER, address).expect("it is waited for");
        check.shutdown(Shutdown::Write).expect("open");
        assert_eq!((&check).read(&mut [0]).expect("an end"), 0);
        assert_eq!(running.handle().statistics().refused_proxy_header, 0);
        running.handle().drain();
        running.wait().expect("it ends");
    }
}
