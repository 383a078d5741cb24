//! A client of a simulated server: handshakes, and frames one by one.

use flatpath_http::{Http, Request};
use flatpath_test::{Client, Conditions, TestServer};
use flatpath_websocket::{Handler, WebSocket};

/// A server that makes every request a socket, on a worker or on the network thread.
pub(crate) fn serve<H: Handler>(
    conditions: Conditions,
    websocket: WebSocket,
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
