//! Asks a server for its metrics: `GET /status.json`, again and again, on a thread of its own, so
//! that a server which does not answer keeps no key waiting.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use flatpath::sockets::ListenAddress;
use serde_json::Value;

/// For each step: to connect, and until something is received.
const PATIENCE: Duration = Duration::from_secs(3);

/// More than any server has to say.
const REPLY_BYTES_MAX: u64 = 64 << 20;

/// An answer, or why there is none.
pub(super) type Answer = Result<Value, String>;

/// Asks after `interval`, and so on, on a thread that ends with the first answer that is not
/// received any more.
pub(super) fn start(address: ListenAddress, interval: Duration) -> io::Result<Receiver<Answer>> {
    let (answers, received) = sync_channel(1);
    let thread = thread::Builder::new().name("flatpath-feed".into());
    thread.spawn(move || {
        loop {
            thread::sleep(interval);
            if answers.send(ask(&address)).is_err() {
                return;
            }
        }
    })?;
    Ok(received)
}

/// Asks once.
pub(super) fn ask(address: &ListenAddress) -> Answer {
    let reply = match address {
        ListenAddress::Internet(address) => {
            TcpStream::connect_timeout(address, PATIENCE).and_then(|stream| {
                stream.set_read_timeout(Some(PATIENCE))?;
                stream.set_write_timeout(Some(PATIENCE))?;
                exchange(stream)
            })
        }
        ListenAddress::Unix(path) => UnixStream::connect(path).and_then(|stream| {
            stream.set_read_timeout(Some(PATIENCE))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            exchange(stream)
        }),
        _ => return Err("it is no address that can be connected to".into()),
    };
    let reply = reply.map_err(|cause| match cause.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "nothing came in time".into(),
        _ => cause.to_string(),
    })?;
    read(&reply)
}

fn exchange(mut stream: impl Read + Write) -> io::Result<Vec<u8>> {
    let request = "GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request.as_bytes())?;
    let mut reply = Vec::new();
    stream.take(REPLY_BYTES_MAX).read_to_end(&mut reply)?;
    Ok(reply)
}

fn read(reply: &[u8]) -> Answer {
    const END: &[u8] = b"\r\n\r\n";
    let head = reply.windows(END.len()).position(|bytes| bytes == END);
    let (head, body) = reply.split_at(head.ok_or("it does not speak HTTP")?);
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    match (words.next(), words.next()) {
        (Some("HTTP/1.1"), Some("200")) => {}
        _ => return Err(format!("it answers {}", line.escape_default())),
    }
    let status = serde_json::from_slice::<Value>(&body[END.len()..]).ok();
    let status = status.filter(|status| status["metrics"].is_object());
    status.ok_or_else(|| "what it answers are no metrics of flatpath".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_an_answer() {
        let good = b"HTTP/1.1 200 OK\r\na: b\r\n\r\n{\"metrics\":{}}";
        assert!(read(good).is_ok());
        for (reply, why) in [
            (&b"SSH-2.0-x\r\n"[..], "does not speak HTTP"),
            (b"", "does not speak HTTP"),
            (
                b"HTTP/1.1 404 Not Found\r\n\r\n",
                "answers HTTP/1.1 404 Not Found",
            ),
            (b"HTTP/1.1 \x1b[2J\r\n\r\n", "answers HTTP/1.1 \\u{1b}[2J"),
            (b"HTTP/1.1 200 OK\r\n\r\n{}", "no metrics"),
            (b"HTTP/1.1 200 OK\r\n\r\n{\"metrics\":{", "no metrics"),
        ] {
            let found = read(reply).expect_err("no answer");
            assert!(found.contains(why), "{found}");
        }
    }
}
