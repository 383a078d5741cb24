//! A client for one GET: what `flatpath top` and `flatpath health` ask a server.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clap::Arg;
use flatpath::sockets::ListenAddress;

use crate::units;

/// The argument `address`: which server is asked.
pub(crate) fn address(help: &'static str) -> Arg {
    let address = Arg::new("address").value_name("ADDRESS").required(true);
    address.value_parser(units::listen_address).help(help)
}

/// More than any server has to say.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// What is asked.
pub(crate) struct Question<'a> {
    pub(crate) target: &'a str,
    pub(crate) host: &'a str,
}

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    /// The line with the status, without what a terminal would follow.
    pub(crate) line: String,
    /// Without the framing that a reply in chunks has.
    pub(crate) body: Vec<u8>,
}

/// A connection of any kind.
pub(crate) trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Connects. Each step may take this long: to connect, and until something is received.
///
/// # Errors
/// Those of connect(2), or it is no address that can be connected to.
pub(crate) fn connect(
    address: &ListenAddress,
    patience: Duration,
) -> Result<Box<dyn Stream>, String> {
    let connected = match address {
        ListenAddress::Internet(address) => {
            TcpStream::connect_timeout(address, patience).and_then(|stream| {
                stream.set_read_timeout(Some(patience))?;
                stream.set_write_timeout(Some(patience))?;
                Ok(Box::new(stream) as Box<dyn Stream>)
            })
        }
        ListenAddress::Unix(path) => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(patience))?;
            stream.set_write_timeout(Some(patience))?;
            Ok(Box::new(stream) as Box<dyn Stream>)
        }),
        _ => return Err("it is no address that can be connected to".into()),
    };
    connected.map_err(in_words)
}

/// Asks, once.
///
/// # Errors
/// Why there is no reply, in words.
pub(crate) fn get(stream: &mut dyn Stream, question: &Question<'_>) -> Result<Reply, String> {
    let Question { target, host, .. } = question;
    let request = format!("GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let mut reply = Vec::new();
    let exchanged = stream.write_all(request.as_bytes()).and_then(|()| {
        let read = (&mut *stream).take(REPLY_BYTES_MAX).read_to_end(&mut reply);
        match read {
            // One with TLS may end without a word.
            Err(cause) if cause.kind() == io::ErrorKind::UnexpectedEof => Ok(()),
            read => read.map(drop),
        }
    });
    exchanged.map_err(in_words)?;
    parse(&reply)
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn in_words(cause: io::Error) -> String {
    match cause.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "nothing came in time".into(),
        _ => cause.to_string(),
    }
}

fn parse(reply: &[u8]) -> Result<Reply, String> {
    const END: &[u8] = b"\r\n\r\n";
    let head = reply.windows(END.len()).position(|bytes| bytes == END);
    let (head, body) = reply.split_at(head.ok_or("it does not speak HTTP")?);
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let status = match (words.next(), words.next()) {
        (Some("HTTP/1.1"), Some(status)) => status.parse().ok(),
        _ => None,
    };
    let line = line.escape_default().to_string();
    let status = status.ok_or_else(|| format!("it answers {line}"))?;
    let body = body[END.len()..].to_vec();
    Ok(Reply { status, line, body })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_speaks_http_answers() {
        let reply = parse(b"HTTP/1.1 503 Service Unavailable\r\na: b\r\n\r\ndraining\n");
        let (line, body) = (
            "HTTP/1.1 503 Service Unavailable".into(),
            b"draining\n".to_vec(),
        );
        let status = 503;
        assert_eq!(reply, Ok(Reply { status, line, body }));
        for (reply, why) in [
            (&b"SSH-2.0-x\r\n"[..], "does not speak HTTP"),
            (b"", "does not speak HTTP"),
            (b"HTTP/1.1 \x1b[2J\r\n\r\n", "answers HTTP/1.1 \\u{1b}[2J"),
        ] {
            let found = parse(reply).expect_err("no answer");
            assert!(found.contains(why), "{found}");
        }
    }
}
