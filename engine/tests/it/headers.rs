//! What tests of listeners behind a load balancer share: headers, and a protocol that says which
//! client it serves.

use std::net::SocketAddr;

use flatpath::{Context, Event, Protocol, Received};

/// A header of version 2 with this command and family.
pub(crate) fn binary(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).expect("short enough");
    let mut header = b"\r\n\r\n\0\r\nQUIT\n".to_vec();
    header.extend([command, family]);
    header.extend(length.to_be_bytes());
    header.extend(rest);
    header
}

/// The header of version 1 for a client, to a destination that does not matter.
pub(crate) fn line(client: SocketAddr) -> Vec<u8> {
    let (family, destination) = match client {
        SocketAddr::V4(_) => ("TCP4", "192.0.2.9"),
        SocketAddr::V6(_) => ("TCP6", "2001:db8::9"),
    };
    let (address, port) = (client.ip(), client.port());
    format!("PROXY {family} {address} {destination} {port} 80\r\n").into_bytes()
}

/// The same of version 2, with additional fields of these many bytes in all.
pub(crate) fn binary_for(client: SocketAddr, fields_bytes: usize) -> Vec<u8> {
    let (mut rest, family) = match client {
        SocketAddr::V4(client) => ([client.ip().octets(), [192, 0, 2, 9]].concat(), 0x11),
        SocketAddr::V6(client) => ([client.ip().octets(), [9; 16]].concat(), 0x21),
    };
    rest.extend(client.port().to_be_bytes());
    rest.extend(80u16.to_be_bytes());
    if let Some(value_bytes) = fields_bytes.checked_sub(3) {
        rest.push(0xe5);
        rest.extend(
            u16::try_from(value_bytes)
                .expect("short enough")
                .to_be_bytes(),
        );
        rest.resize(rest.len() + value_bytes, 0x21);
    }
    binary(0x21, family, &rest)
}

/// A header for no client: the balancer checks whether the server lives.
pub(crate) fn local() -> Vec<u8> {
    binary(0x20, 0, b"")
}

/// Says whom it serves, and then what it hears in capitals; ends after a `.`.
pub(crate) struct Herald;

impl Protocol for Herald {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Connected => {
                let word =
                    |peer: Option<SocketAddr>| peer.map_or("none".into(), |peer| peer.to_string());
                let words = format!(
                    "{} through {}\n",
                    word(context.peer()),
                    word(context.proxy_peer())
                );
                context.write(words.as_bytes()).expect("room for a line");
            }
            other => other.by_default(context),
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let words = input.to_ascii_uppercase();
        context.write(&words).expect("room for a little");
        if input.contains(&b'.') {
            context.close_after_output();
        }
        Received::Consumed
    }
}
