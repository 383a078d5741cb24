//! A client of a simulated server: handshakes and masked frames.

use flatpath_http::{Http, Request};
use flatpath_test::{Client, Conditions, TestServer};
use flatpath_websocket::{Handler, WebSocket};

/// A server that makes every request a socket, on a worker or on the network thread.
pub(crate) fn serve<H: Handler>(
    conditions: Conditions,
    websocket: WebSocket<H>,
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> TestServer {
    let accept = move |request: Request| websocket.accept(&request, handler());
    if conditions.seed.is_multiple_of(2) {
        TestServer::new(conditions, Http::pooled(accept))
    } else {
        TestServer::new(conditions, Http::inline(accept))
    }
}

/// A handshake, with more headers.
pub(crate) fn handshake(headers: &str) -> String {
    format!(
        "GET /chat HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{headers}\r\n"
    )
}

/// A frame as a client sends it.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
    bytes
}

/// A close frame with this code.
pub(crate) fn close(code: u16) -> Vec<u8> {
    frame(0x88, &code.to_be_bytes())
}

/// The first byte and the payload of each frame that a server sent, and what is left.
pub(crate) fn frames(mut bytes: &[u8]) -> (Vec<(u8, Vec<u8>)>, &[u8]) {
    let mut frames = Vec::new();
    loop {
        let (length, head) = match bytes {
            [_, length @ 0..=125, ..] => (usize::from(*length), 2),
            [_, 126, a, b, ..] => (usize::from(u16::from_be_bytes([*a, *b])), 4),
            [_, 127, _, _, _, _, a, b, c, d, ..] => {
                (u32::from_be_bytes([*a, *b, *c, *d]) as usize, 10)
            }
            _ => return (frames, bytes),
        };
        if bytes.len() < head + length {
            return (frames, bytes);
        }
        let (frame, rest) = bytes.split_at(head + length);
        frames.push((frame[0], frame[head..].to_vec()));
        bytes = rest;
    }
}

/// A client whose handshake is done.
pub(crate) struct Peer {
    pub(crate) client: Client,
}

impl Peer {
    pub(crate) fn open(server: &mut TestServer) -> Peer {
        Peer::open_with(server, "").0
    }

    /// The same with more headers; the head of the response, in lower case.
    pub(crate) fn open_with(server: &mut TestServer, headers: &str) -> (Peer, String) {
        let client = server.connect();
        client.write(handshake(headers).as_bytes());
        Peer::accepted(server, client)
    }

    /// The same for a client that has sent its handshake.
    pub(crate) fn accepted(server: &mut TestServer, client: Client) -> (Peer, String) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head += &server.read_line(&client);
        }
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        (Peer { client }, head.to_lowercase())
    }

    pub(crate) fn send(&self, bytes: &[u8]) {
        self.client.write(bytes);
    }

    /// The next frame.
    pub(crate) fn frame(&self, server: &mut TestServer) -> (u8, Vec<u8>) {
        let head = server.read_exact(&self.client, 2);
        let length = match head[1] {
            126 => {
                let length = server.read_exact(&self.client, 2);
                usize::from(u16::from_be_bytes([length[0], length[1]]))
            }
            127 => {
                let length = server.read_exact(&self.client, 8);
                length
                    .iter()
                    .fold(0, |sum, byte| sum << 8 | usize::from(*byte))
            }
            length => usize::from(length),
        };
        (head[0], server.read_exact(&self.client, length))
    }

    /// The next frame, which is a text.
    pub(crate) fn text(&self, server: &mut TestServer) -> String {
        let (first, payload) = self.frame(server);
        assert_eq!(first, 0x81, "{payload:?}");
        String::from_utf8(payload).expect("UTF-8")
    }

    /// The code of the next frame, which is a close frame, and the end of the stream.
    pub(crate) fn closed(&self, server: &mut TestServer) -> u16 {
        let (first, payload) = self.frame(server);
        assert_eq!(first, 0x88, "{payload:?}");
        assert_eq!(server.read_to_end(&self.client), b"", "nothing follows");
        u16::from_be_bytes([payload[0], payload[1]])
    }
}
