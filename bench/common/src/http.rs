//! Finds the end of an HTTP/1.1 reply: enough of a client to count, check and time replies.
//!
//! Only replies that name their length, or have no body by their status, are understood; every
//! server here sends such ones. The test kit's client checks all rules of a reply, and panics: too
//! slow for load, and here what goes wrong is counted.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::ops::Range;
use std::time::Duration;

/// More header fields than any server here sends.
const HEADERS_MAX: usize = 32;
/// Longer than any body here that is kept.
const REPLY_BYTES_MAX: u64 = 2 << 20;
/// How long a single reply may take.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// A whole reply at the front of what was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Framed {
    pub status: u16,
    pub body: Range<usize>,
}

impl Framed {
    /// Head and body together.
    pub fn bytes(&self) -> usize {
        self.body.end
    }
}

/// The head of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub status: u16,
    /// Of the head itself.
    pub bytes: usize,
    /// Of the body that follows.
    pub body_bytes: u64,
}

/// The head at the front, or `None` if some of it has yet to arrive.
///
/// # Errors
/// `InvalidData` if it is not HTTP or names no length.
pub fn head(received: &[u8]) -> io::Result<Option<Head>> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let parsed = head
        .parse(received)
        .map_err(|error| invalid(&error.to_string()))?;
    let httparse::Status::Complete(bytes) = parsed else {
        return Ok(None);
    };
    let status = head.code.unwrap_or(0);
    let mut fields = head.headers.iter();
    let named = fields.find(|field| field.name.eq_ignore_ascii_case("content-length"));
    let named = named.and_then(|field| std::str::from_utf8(field.value).ok()?.trim().parse().ok());
    let body_bytes = match named {
        // RFC 9112 section 6.3: no body, whatever the headers say.
        _ if matches!(status, 204 | 304) => 0,
        Some(length) => length,
        None => return Err(invalid("the reply names no length")),
    };
    Ok(Some(Head {
        status,
        bytes,
        body_bytes,
    }))
}

/// The reply at the front, or `None` if some of it has yet to arrive.
///
/// # Errors
/// As [`head`]; `InvalidData` for a body that is too long for those who keep it.
pub fn frame(received: &[u8]) -> io::Result<Option<Framed>> {
    let Some(head) = head(received)? else {
        return Ok(None);
    };
    if head.body_bytes > REPLY_BYTES_MAX {
        return Err(invalid("the reply is too long"));
    }
    let body = head.bytes..head.bytes + head.body_bytes as usize;
    let status = head.status;
    Ok((received.len() >= body.end).then_some(Framed { status, body }))
}

/// A request for the path on a connection that is kept.
pub fn request(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").into_bytes()
}

/// A connection on which a reply may take five seconds.
pub fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    patient(TcpStream::connect_timeout(&address, PATIENCE)?)
}

/// The same for a connection that is there.
pub fn patient(socket: TcpStream) -> io::Result<TcpStream> {
    socket.set_read_timeout(Some(PATIENCE))?;
    socket.set_write_timeout(Some(PATIENCE))?;
    Ok(socket)
}

/// Asks once: the body of a reply with status 200, and the bytes of the whole reply.
///
/// # Errors
/// `InvalidData` for another reply; what the socket reports otherwise.
pub fn ask(socket: &mut (impl Read + Write), request: &[u8]) -> io::Result<(Vec<u8>, usize)> {
    let (received, framed) = exchange(socket, request)?;
    match framed.status {
        200 => Ok((received[framed.body.clone()].to_vec(), framed.bytes())),
        status => Err(invalid(&format!("status {status}"))),
    }
}

/// Asks once: what was received, with a whole reply at the front.
pub fn exchange(socket: &mut (impl Read + Write), request: &[u8]) -> io::Result<(Vec<u8>, Framed)> {
    socket.write_all(request)?;
    let mut received = Vec::new();
    let mut buffer = [0; 16 * 1024];
    loop {
        match socket.read(&mut buffer) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => received.extend_from_slice(&buffer[..count]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::Error::other(format!("no reply within {PATIENCE:?}")));
            }
            Err(error) => return Err(error),
        }
        if let Some(framed) = frame(&received)? {
            return Ok((received, framed));
        }
    }
}

/// Asks once, on a connection of its own, and checks status and body. Returns the reply's bytes.
///
/// # Errors
/// As [`ask`], and `InvalidData` for another body.
pub fn check(address: SocketAddr, path: &str, body: &[u8]) -> io::Result<usize> {
    check_by(&mut connect(address)?, path, body)
}

/// The same on a connection that is there.
///
/// # Errors
/// As [`check`].
pub fn check_by(socket: &mut (impl Read + Write), path: &str, body: &[u8]) -> io::Result<usize> {
    let (received, bytes) = ask(socket, &request(path))?;
    if received != body {
        return Err(invalid("the body is another one than expected"));
    }
    Ok(bytes)
}

fn invalid(message: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    const REPLY: &[u8] = b"HTTP/1.1 200 OK\r\ncontent-LENGTH: 5\r\n\r\nhello";

    #[test]
    fn every_shorter_piece_is_incomplete() {
        for length in 0..REPLY.len() {
            assert_eq!(
                frame(&REPLY[..length]).expect("still valid"),
                None,
                "{length} bytes"
            );
        }
        let framed = frame(REPLY).expect("valid").expect("complete");
        assert_eq!((framed.status, framed.bytes()), (200, REPLY.len()));
        assert_eq!(&REPLY[framed.body], b"hello");
    }

    #[test]
    fn bytes_of_the_next_reply_are_left_alone() {
        let two = [REPLY, REPLY].concat();
        assert_eq!(
            frame(&two).expect("valid").expect("complete").bytes(),
            REPLY.len()
        );
    }

    #[test]
    fn a_reply_without_a_length_is_refused() {
        let error = frame(b"HTTP/1.1 200 OK\r\n\r\n").expect_err("no length");
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn a_reply_without_content_ends_with_its_head() {
        let reply = b"HTTP/1.1 204 No Content\r\nServer: any\r\n\r\n";
        let framed = frame(reply).expect("valid").expect("complete");
        assert_eq!((framed.status, framed.bytes()), (204, reply.len()));
    }

    #[test]
    fn a_reply_of_absurd_length_is_refused() {
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n";
        assert!(frame(reply).is_err());
    }

    #[test]
    fn something_else_than_http_is_refused() {
        assert!(frame(b"listening http 127.0.0.1:80\n").is_err());
    }

    fn answered_with(reply: &'static [u8]) -> io::Result<usize> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("bound");
        let server = thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a client");
            let mut request = [0; 256];
            let count = socket.read(&mut request).expect("a request");
            assert!(request[..count].starts_with(b"GET /x HTTP/1.1\r\n"));
            socket.write_all(reply).expect("sent");
        });
        let outcome = check(address, "/x", b"hello");
        server.join().expect("the server ends");
        outcome
    }

    #[test]
    fn a_checked_reply_reports_its_size() {
        assert_eq!(answered_with(REPLY).expect("as expected"), REPLY.len());
    }

    #[test]
    fn a_wrong_body_or_status_is_found() {
        assert!(answered_with(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nworld").is_err());
        assert!(answered_with(b"HTTP/1.1 404 No\r\nContent-Length: 5\r\n\r\nhello").is_err());
        let cut = answered_with(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell");
        assert_eq!(cut.expect_err("cut").kind(), io::ErrorKind::UnexpectedEof);
    }
}
