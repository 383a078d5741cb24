//! HTTP/1.1 requests of a test, one after the other on a connection.
//!
//! Invariants
//! - H1: a reply is read before the next request is sent, so no reply can be another one's. What
//!   comes after a reply without a request fails the next one.
//! - H2: interim replies (1xx, but 101) are skipped: the one that ends the exchange counts.

use std::fmt::{self, Write as _};

use crate::reply::{self, Asked, Progress, Reply};
use crate::wire::{Socket, Wire};

/// A client over one connection. See [the crate](crate).
///
/// ```no_run
/// use flatpath_test_client::{HttpClient, Requests};
///
/// let mut client = HttpClient::connect("127.0.0.1:8080".parse().expect("an address"));
/// assert_eq!(client.get("/").expect(200).text(), "hello\n");
/// ```
#[derive(Debug)]
pub struct HttpClient<W> {
    wire: W,
    received: Received,
}

impl HttpClient<Socket> {
    /// Connects to a server.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    #[track_caller]
    pub fn connect(address: std::net::SocketAddr) -> Self {
        HttpClient::new(Socket::connect(address))
    }
}

impl<W: Wire> HttpClient<W> {
    /// A client that talks over this connection.
    pub fn new(wire: W) -> Self {
        HttpClient {
            wire,
            received: Received::default(),
        }
    }
}

impl<W: Wire> Requests for HttpClient<W> {
    fn http(&mut self) -> Http<'_> {
        Http::new(&mut self.wire, &mut self.received)
    }
}

/// Bytes of a connection that were received, and belong to no reply yet.
#[derive(Debug, Default)]
pub struct Received {
    bytes: Vec<u8>,
    has_ended: bool,
}

impl Received {
    /// Whether the connection has ended, or the last reply said that it does.
    #[must_use]
    pub fn has_ended(&self) -> bool {
        self.has_ended
    }
}

/// What sends requests: methods for the common ones.
pub trait Requests {
    /// The connection that the next request is sent on.
    fn http(&mut self) -> Http<'_>;

    /// A request of any method.
    fn request(&mut self, method: &str, target: &str) -> Request<'_> {
        self.http().request(method, target)
    }

    /// GET.
    fn get(&mut self, target: &str) -> Request<'_> {
        self.request("GET", target)
    }

    /// HEAD: the reply has no body.
    fn head(&mut self, target: &str) -> Request<'_> {
        self.request("HEAD", target)
    }

    /// POST.
    fn post(&mut self, target: &str) -> Request<'_> {
        self.request("POST", target)
    }

    /// PUT.
    fn put(&mut self, target: &str) -> Request<'_> {
        self.request("PUT", target)
    }

    /// PATCH.
    fn patch(&mut self, target: &str) -> Request<'_> {
        self.request("PATCH", target)
    }

    /// DELETE.
    fn delete(&mut self, target: &str) -> Request<'_> {
        self.request("DELETE", target)
    }
}

/// A connection, lent for one request.
pub struct Http<'a> {
    wire: Box<dyn Wire + 'a>,
    received: &'a mut Received,
}

impl fmt::Debug for Http<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Http").finish_non_exhaustive()
    }
}

impl<'a> Http<'a> {
    /// For a kit with connections of its own.
    pub fn new(wire: impl Wire + 'a, received: &'a mut Received) -> Http<'a> {
        Http {
            wire: Box::new(wire),
            received,
        }
    }

    /// A request of any method, such as `OPTIONS`, for a target, such as `/search?q=x`.
    pub fn request(self, method: &str, target: &str) -> Request<'a> {
        Request {
            http: self,
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    /// The next reply that is no interim one.
    #[track_caller]
    fn reply(&mut self, asked: &Asking) -> Reply {
        loop {
            let received = &mut *self.received;
            match reply::read(&received.bytes, received.has_ended, asked.asked) {
                Err(why) => {
                    let bytes = received.bytes.escape_ascii();
                    panic!("{}: {why}; received: \"{bytes:.500}\"", asked.line)
                }
                Ok(Progress::Whole(reply, taken)) => {
                    received.bytes.drain(..taken);
                    if matches!(reply.status, 100 | 102..200) {
                        continue;
                    }
                    received.has_ended |= reply.says_close();
                    return reply;
                }
                Ok(Progress::More) => match self.wire.receive() {
                    Some(bytes) => self.received.bytes.extend(bytes),
                    None => self.received.has_ended = true,
                },
            }
        }
    }
}

/// What decides how a reply is read, and what a failure names.
struct Asking {
    line: String,
    asked: Asked,
}

/// A request that is put together; [`Request::expect`] or [`Request::send`] sends it.
///
/// ```no_run
/// # use flatpath_test_client::{HttpClient, Requests};
/// # let mut client = HttpClient::connect("127.0.0.1:8080".parse().expect("an address"));
/// let posted = client.post("/notes").header("content-type", "text/plain").body("buy milk");
/// let reply = posted.expect(201);
/// assert_eq!(reply.field("location"), Some("/notes/1"));
/// ```
#[must_use = "it is not sent yet"]
pub struct Request<'a> {
    http: Http<'a>,
    method: String,
    target: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut request = formatter.debug_struct("Request");
        request.field("method", &self.method);
        request
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// Adds a header. `Host` is there without it, and so is the length of a body.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The body, in place of one that was set before.
    pub fn body(mut self, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        self
    }

    /// The body as JSON, with its content type.
    ///
    /// # Panics
    /// When the value cannot be JSON.
    #[cfg(feature = "json")]
    #[track_caller]
    pub fn json(self, body: &impl serde::Serialize) -> Self {
        let body = serde_json::to_vec(body);
        let body = body.unwrap_or_else(|error| panic!("not JSON: {error}"));
        self.header("content-type", "application/json").body(body)
    }

    /// Sends it, and reads the reply.
    ///
    /// # Panics
    /// When the reply is not correct, or does not come.
    #[track_caller]
    pub fn send(mut self) -> Reply {
        let has_body = !self.body.is_empty() || matches!(&*self.method, "POST" | "PUT" | "PATCH");
        if has_body && !self.has("content-length") {
            let length = self.body.len().to_string();
            self.headers.push(("Content-Length".into(), length));
        }
        let asking = self.begin();
        if !self.body.is_empty() {
            self.http.wire.send(&self.body);
        }
        self.http.reply(&asking)
    }

    /// Sends it, reads the reply, and compares its status.
    ///
    /// # Panics
    /// As [`Request::send`], and for another status: with the reply.
    #[track_caller]
    pub fn expect(self, status: u16) -> Reply {
        let line = format!("{} {}", self.method, self.target);
        let reply = self.send();
        assert!(
            reply.status == status,
            "{line}: {status} expected: {reply:?}"
        );
        reply
    }

    /// Sends the head, for a body that follows in pieces: of this length in all, or chunked. What
    /// was set as a body is its first piece.
    pub fn upload(mut self, length: Option<u64>) -> Upload<'a> {
        self.headers.push(match length {
            Some(length) => ("Content-Length".into(), length.to_string()),
            None => ("Transfer-Encoding".into(), "chunked".into()),
        });
        let asking = self.begin();
        let body = std::mem::take(&mut self.body);
        let mut upload = Upload {
            http: self.http,
            asking,
            is_chunked: length.is_none(),
        };
        upload.piece(body);
        upload
    }

    fn has(&self, name: &str) -> bool {
        self.headers
            .iter()
            .any(|(other, _)| other.eq_ignore_ascii_case(name))
    }

    /// Sends the head.
    #[track_caller]
    fn begin(&mut self) -> Asking {
        let line = format!("{} {}", self.method, self.target);
        let rest = self.http.received.bytes.escape_ascii().to_string();
        assert!(rest.is_empty(), "{line}: not asked for was \"{rest:.500}\"");
        let headers = self.headers.iter();
        let headers: Vec<_> = headers.map(|(name, value)| (&**name, &**value)).collect();
        let head = request_bytes(&self.method, &self.target, &headers);
        self.http.wire.send(&head);
        let asked = match &*self.method {
            "HEAD" => Asked::Head,
            _ => Asked::Any,
        };
        Asking { line, asked }
    }
}

/// A request whose body is sent piece by piece.
#[must_use = "the reply is read at the end"]
pub struct Upload<'a> {
    http: Http<'a>,
    asking: Asking,
    is_chunked: bool,
}

impl fmt::Debug for Upload<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut upload = formatter.debug_struct("Upload");
        upload
            .field("line", &self.asking.line)
            .finish_non_exhaustive()
    }
}

impl Upload<'_> {
    /// Sends a piece: a chunk, where the length is not known.
    pub fn piece(&mut self, bytes: impl AsRef<[u8]>) {
        let bytes = bytes.as_ref();
        if bytes.is_empty() {
            // An empty chunk would be the last.
            return;
        }
        match self.is_chunked {
            true => {
                let line = format!("{:x}\r\n", bytes.len());
                self.http
                    .wire
                    .send(&[line.as_bytes(), bytes, b"\r\n"].concat());
            }
            false => self.http.wire.send(bytes),
        }
    }

    /// Ends the body, and reads the reply.
    ///
    /// # Panics
    /// When the reply is not correct, or does not come.
    #[track_caller]
    pub fn finish(mut self) -> Reply {
        if self.is_chunked {
            self.http.wire.send(b"0\r\n\r\n");
        }
        self.http.reply(&self.asking)
    }

    /// Reads a reply that comes before the end of the body: a refusal.
    ///
    /// # Panics
    /// As [`Upload::finish`].
    #[track_caller]
    pub fn refused(mut self) -> Reply {
        self.http.reply(&self.asking)
    }
}

/// The bytes of a request without a body. A `Host` is added unless the fields have one.
#[must_use]
pub fn request_bytes(method: &str, target: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let mut text = format!("{method} {target} HTTP/1.1\r\n");
    let is_host = |(name, _): &(&str, &str)| name.eq_ignore_ascii_case("host");
    if !fields.iter().any(is_host) {
        text.push_str("Host: localhost\r\n");
    }
    for (name, value) in fields {
        // Writing to a string does not fail.
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text.push_str("\r\n");
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;

    /// What the server sends, piece by piece, and what it got.
    #[derive(Default)]
    struct Script {
        replies: VecDeque<&'static str>,
        got: String,
    }

    impl Wire for Script {
        fn send(&mut self, bytes: &[u8]) {
            self.got += std::str::from_utf8(bytes).expect("text");
        }

        fn receive(&mut self) -> Option<Vec<u8>> {
            self.replies
                .pop_front()
                .map(|text| text.as_bytes().to_vec())
        }
    }

    fn client(replies: &[&'static str]) -> HttpClient<Script> {
        HttpClient::new(Script {
            replies: replies.iter().copied().collect(),
            got: String::new(),
        })
    }

    #[test]
    fn requests_have_their_headers_and_bodies_and_replies_come_in_pieces() {
        let mut client = client(&[
            "HTTP/1.1 200 OK\r\nContent-Le",
            "ngth: 2\r\n\r\nab",
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n",
        ]);
        assert_eq!(client.get("/a?b").expect(200).text(), "ab");
        let post = client.post("/c").header("X-Name", "value").body("body");
        assert_eq!(post.send().status, 201);
        client.head("/d").header("host", "other").expect(200);
        let expected = "GET /a?b HTTP/1.1\r\nHost: localhost\r\n\r\n\
             POST /c HTTP/1.1\r\nHost: localhost\r\nX-Name: value\r\nContent-Length: 4\r\n\r\nbody\
             HEAD /d HTTP/1.1\r\nhost: other\r\n\r\n";
        assert_eq!(client.wire.got, expected);
    }

    #[test]
    fn uploads_are_sent_in_chunks_or_as_they_are() {
        let ok = "HTTP/1.1 204 No Content\r\n\r\n";
        let mut client = client(&[ok, ok, ok]);
        let mut upload = client.put("/a").upload(None);
        upload.piece("0123456789abcdef");
        upload.piece("");
        upload.piece("g");
        assert_eq!(upload.finish().status, 204);
        let mut upload = client.put("/b").body("x").upload(Some(3));
        upload.piece("yz");
        assert_eq!(upload.finish().status, 204);
        assert_eq!(client.put("/c").upload(Some(3)).refused().status, 204);
        let host = "Host: localhost\r\n";
        let expected = format!(
            "PUT /a HTTP/1.1\r\n{host}Transfer-Encoding: chunked\r\n\r\n\
             10\r\n0123456789abcdef\r\n1\r\ng\r\n0\r\n\r\n\
             PUT /b HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\nxyz\
             PUT /c HTTP/1.1\r\n{host}Content-Length: 3\r\n\r\n"
        );
        assert_eq!(client.wire.got, expected);
    }

    #[test]
    #[should_panic(expected = "GET /a: 200 expected: 404 ")]
    fn another_status_fails_with_the_request_and_the_reply() {
        client(&["HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"])
            .get("/a")
            .expect(200);
    }

    #[test]
    #[should_panic(expected = "GET /b: not asked for was \"more\"")]
    fn what_was_not_asked_for_fails_the_next_request() {
        let mut client = client(&["HTTP/1.1 204 No Content\r\n\r\nmore"]);
        client.get("/a").expect(204);
        client.get("/b").send();
    }

    #[test]
    #[should_panic(expected = "GET /a: the connection ended within a head")]
    fn an_end_instead_of_a_reply_fails() {
        client(&["HTTP/1.1 2"]).get("/a").send();
    }

    #[test]
    fn a_last_reply_ends_the_connection() {
        let mut client = client(&["HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"]);
        assert!(!client.received.has_ended());
        client.get("/a").expect(204);
        assert!(client.received.has_ended());
    }

    #[cfg(feature = "json")]
    #[test]
    fn bodies_are_json_both_ways() {
        let reply = "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n[1,2,3]";
        let mut client = client(&[reply]);
        let reply = client.post("/a").json(&["x"]).expect(200);
        assert_eq!(reply.json::<Vec<u32>>(), [1, 2, 3]);
        let got = &client.wire.got;
        assert!(
            got.contains("content-type: application/json\r\nContent-Length: 5\r\n"),
            "{got}"
        );
        assert!(got.ends_with("\r\n\r\n[\"x\"]"), "{got}");
    }
}
