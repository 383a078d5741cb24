//! A client of one connection that sees bytes; every wait has a deadline.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// No single wait is longer; what takes longer is a failure with a name.
const PATIENCE: Duration = Duration::from_secs(20);

/// How a connection ended, as its client saw it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    Closed,
    Reset,
}

/// A reply as it arrived.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let mut same = self
            .headers
            .iter()
            .filter(|(found, _)| found.eq_ignore_ascii_case(name));
        let first = same.next().map(|(_, value)| value.as_str());
        assert!(same.next().is_none(), "{name} is there twice");
        first
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("the body is text")
    }

    pub(crate) fn closes(&self) -> bool {
        self.header("connection") == Some("close")
    }
}

/// A connection and what has arrived on it.
pub(crate) struct Client {
    stream: TcpStream,
    arrived: Vec<u8>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect_timeout(&address, PATIENCE).expect("the server accepts");
        stream.set_nodelay(true).expect("a TCP socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("not zero");
        stream.set_write_timeout(Some(PATIENCE)).expect("not zero");
        Self {
            stream,
            arrived: Vec::new(),
        }
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream
            .write_all(bytes.as_ref())
            .expect("the server takes it");
    }

    /// Sends what the server may refuse to take because it has answered already.
    pub(crate) fn send_if_taken(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    pub(crate) fn twin(&self) -> Self {
        let stream = self.stream.try_clone().expect("a descriptor is left");
        Self {
            stream,
            arrived: Vec::new(),
        }
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish(&self) {
        self.stream
            .shutdown(Shutdown::Write)
            .expect("the connection is open");
    }

    /// Reads once; false at the end.
    fn read(&mut self) -> Result<bool, Ending> {
        let mut room = [0; 64 * 1024];
        match self.stream.read(&mut room) {
            Ok(0) => Ok(false),
            Ok(bytes) => {
                self.arrived.extend_from_slice(&room[..bytes]);
                Ok(true)
            }
            // An io_uring that this thread once opened may still be on its way out.
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(Ending::Reset),
            Err(error) => panic!("nothing came in time: {error}"),
        }
    }

    fn read_more(&mut self) {
        match self.read() {
            Ok(true) => {}
            other => panic!("the connection ended ({other:?}) after {:?}", self.shown()),
        }
    }

    fn shown(&self) -> String {
        String::from_utf8_lossy(&self.arrived[..self.arrived.len().min(500)]).into_owned()
    }

    /// Exactly this many of the bytes that come next.
    pub(crate) fn take(&mut self, bytes: usize) -> Vec<u8> {
        while self.arrived.len() < bytes {
            self.read_more();
        }
        let rest = self.arrived.split_off(bytes);
        std::mem::replace(&mut self.arrived, rest)
    }

    /// Reads up to a text, and drops it with all before it.
    pub(crate) fn until(&mut self, text: &str) {
        let is_text = |window: &[u8]| window == text.as_bytes();
        loop {
            if let Some(at) = self.arrived.windows(text.len()).position(is_text) {
                self.arrived.drain(..at + text.len());
                return;
            }
            self.read_more();
        }
    }

    /// Reads up to this end, and takes what is before it.
    pub(crate) fn line(&mut self, end: &str) -> String {
        loop {
            let text = String::from_utf8_lossy(&self.arrived);
            if let Some((line, _)) = text.split_once(end) {
                let line = line.to_owned();
                self.arrived.drain(..line.len() + end.len());
                return line;
            }
            self.read_more();
        }
    }

    fn take_line(&mut self) -> String {
        loop {
            if let Some(at) = self.arrived.windows(2).position(|pair| pair == b"\r\n") {
                let mut line = self.take(at + 2);
                line.truncate(at);
                return String::from_utf8(line).expect("lines are text");
            }
            self.read_more();
        }
    }

    /// The head of the next reply.
    pub(crate) fn head(&mut self) -> Reply {
        let line = self.take_line();
        let status = line
            .strip_prefix("HTTP/1.1 ")
            .and_then(|rest| rest.get(..3));
        let status = status.and_then(|code| code.parse().ok());
        let status = status.unwrap_or_else(|| panic!("no status line: {line:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.take_line();
            if line.is_empty() {
                return Reply {
                    status,
                    headers,
                    body: Vec::new(),
                };
            }
            let (name, value) = line.split_once(": ").expect("a header");
            headers.push((name.to_owned(), value.to_owned()));
        }
    }

    /// The next reply to anything but `HEAD`.
    pub(crate) fn reply(&mut self) -> Reply {
        let mut reply = self.head();
        if reply.header("transfer-encoding") == Some("chunked") {
            reply.body = self.chunks();
        } else if let Some(length) = reply.header("content-length") {
            reply.body = self.take(length.parse().expect("a number"));
        } else if reply.status != 204 && reply.status != 304 {
            self.read_to_end();
            reply.body = std::mem::take(&mut self.arrived);
        }
        reply
    }

    fn chunks(&mut self) -> Vec<u8> {
        let mut body = Vec::new();
        loop {
            let size = usize::from_str_radix(&self.take_line(), 16).expect("a chunk size");
            body.extend(self.take(size));
            assert_eq!(self.take_line(), "", "a chunk ends with its line");
            if size == 0 {
                return body;
            }
        }
    }

    /// Reads up to the end of the connection and says which one it was.
    pub(crate) fn read_to_end(&mut self) -> Ending {
        loop {
            match self.read() {
                Ok(true) => {}
                Ok(false) => return Ending::Closed,
                Err(ending) => return ending,
            }
        }
    }

    /// What came up to the end of the connection.
    pub(crate) fn rest(&mut self) -> (Vec<u8>, Ending) {
        let ending = self.read_to_end();
        (std::mem::take(&mut self.arrived), ending)
    }

    /// Sends a request and takes its reply.
    pub(crate) fn ask(&mut self, request: impl AsRef<[u8]>) -> Reply {
        self.send(request);
        self.reply()
    }

    pub(crate) fn get(&mut self, path: &str) -> Reply {
        self.ask(get(path))
    }
}

/// A request for a path.
pub(crate) fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// A request with a body of a known length.
pub(crate) fn post(path: &str, body: &str) -> String {
    let length = body.len();
    format!("POST {path} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{body}")
}
