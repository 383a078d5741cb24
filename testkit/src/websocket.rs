//! The client's side of a WebSocket, frame by frame (RFC 6455): short frames, no extension.
//!
//! What reads a frame takes a function that reads bytes, so that it serves clients of real servers
//! and of simulated ones.

use crate::client::Client;

/// The first byte of a text in one frame.
pub const TEXT: u8 = 0x81;
/// The first byte of a close frame.
pub const CLOSE: u8 = 0x88;

/// The headers of a handshake.
pub const HANDSHAKE: [(&str, &str); 4] = [
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
];

/// The most that a frame with a short length has.
const SHORT_BYTES_MAX: usize = 125;

/// Makes the client's connection a WebSocket.
///
/// # Panics
/// When the server refuses it.
pub fn open(client: &mut Client, target: &str) {
    client.request("GET", target, &HANDSHAKE);
    let mut head = client.until("\r\n\r\n");
    if !head.starts_with(b"HTTP/1.1 101 ") {
        head.extend(client.rest().0);
        panic!("no socket: {}", String::from_utf8_lossy(&head));
    }
}

/// A frame of a client, masked with zeros (5.3).
///
/// # Panics
/// When it has more than 125 bytes.
#[must_use]
pub fn frame(first: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    assert!(payload.len() <= SHORT_BYTES_MAX, "{} bytes", payload.len());
    let head = [first, 0x80 | payload.len() as u8, 0, 0, 0, 0];
    [&head, payload].concat()
}

/// The next frame of a server, of less than 64 KiB: its first byte and its payload.
///
/// # Panics
/// When it is longer.
pub fn next_frame(mut exactly: impl FnMut(usize) -> Vec<u8>) -> (u8, Vec<u8>) {
    let head = exactly(2);
    let bytes = match head[1] {
        126 => exactly(2)
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
        bytes => usize::from(bytes),
    };
    assert!(head[1] <= 126, "a long frame, or one that is masked");
    (head[0], exactly(bytes))
}
