//! Target `proxy_header`: what a load balancer sends before the protocol's first byte.
//!
//! Holds of every input
//! - The pieces in which it comes do not matter: what a prefix decides, the rest does not change.
//! - A header lies within the input and the bound, and means the same without what follows it.
//! - A line of version 1 names the client that the standard library reads in it.
//! - The client of a header is the client of what a balancer would write for it, in both versions.

use std::net::{IpAddr, SocketAddr};

use flatpath::proxy_header::{HEADER_BYTES_MAX, Header, parse};

/// Longer prefixes than this are tried only around the end of the header.
const PREFIXES_MAX: usize = 256;

pub(crate) fn run(data: &[u8]) {
    let whole = parse(data);
    let header = whole.unwrap_or_default();
    assert!(
        header.is_some() || whole.is_err() || data.len() < HEADER_BYTES_MAX,
        "more is awaited than may come"
    );
    let end = header.map_or(0, |header| header.bytes);
    let around = end.saturating_sub(4)..=end.saturating_add(4);
    for length in (0..PREFIXES_MAX).chain(around) {
        let Some(prefix) = data.get(..length) else {
            continue;
        };
        match parse(prefix) {
            Ok(None) => assert!(header.is_none_or(|header| length < header.bytes)),
            Ok(found) => assert_eq!(Ok(found), whole, "it changes behind its end"),
            Err(_) => assert!(whole.is_err(), "it is refused too early, at {length}"),
        }
    }
    if let Some(header) = header {
        check(data, header);
    }
}

fn check(data: &[u8], header: Header) {
    assert!(header.bytes <= data.len() && header.bytes <= HEADER_BYTES_MAX);
    let own = &data[..header.bytes];
    if let Some(line) = own.strip_prefix(b"PROXY TCP") {
        let line = std::str::from_utf8(line).expect("only text is accepted");
        let words: Vec<&str> = line.trim_end_matches("\r\n").split(' ').collect();
        let (address, port) = (words[1].parse::<IpAddr>(), words[3].parse::<u16>());
        let named = SocketAddr::new(address.expect("an address"), port.expect("a port"));
        assert_eq!(header.client, Some(named));
    }
    if let Some(client) = header.client {
        for written in [text_of(client), bytes_of(client)] {
            let expected = Header {
                client: Some(client),
                bytes: written.len(),
            };
            assert_eq!(parse(&written), Ok(Some(expected)));
        }
    }
}

/// Version 1.
fn text_of(client: SocketAddr) -> Vec<u8> {
    let (family, other) = match client {
        SocketAddr::V4(_) => ("TCP4", "192.0.2.1"),
        SocketAddr::V6(_) => ("TCP6", "2001:db8::1"),
    };
    let (address, port) = (client.ip(), client.port());
    format!("PROXY {family} {address} {other} {port} 80\r\n").into_bytes()
}

/// Version 2.
fn bytes_of(client: SocketAddr) -> Vec<u8> {
    let (family, addresses) = match client.ip() {
        IpAddr::V4(address) => (0x11, [address.octets(), [192, 0, 2, 1]].concat()),
        IpAddr::V6(address) => (0x21, [address.octets(), [1; 16]].concat()),
    };
    let length = u16::try_from(addresses.len() + 4).expect("it is short");
    [
        &b"\r\n\r\n\0\r\nQUIT\n\x21"[..],
        &[family],
        &length.to_be_bytes(),
        &addresses,
        &client.port().to_be_bytes(),
        &[0, 80],
    ]
    .concat()
}
