//! A user of the application: signs in, and asks once for what is then asked for many times.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

use flatpath_bench_common::http::{self, Framed};
use serde_json::{Value, json};

use super::{ADD_PATH, DRAFT};
use crate::candidates::app::{PASSWORD, USER};

const JSON: &str = "Content-Type: application/json\r\n";
const FORM: &str = "Content-Type: multipart/form-data; boundary=b\r\n";

/// Who is signed in.
pub(super) struct User {
    /// `name=value`.
    cookie: String,
}

impl User {
    /// # Errors
    /// As all here: what the socket reports, or `InvalidData` for another reply than expected.
    pub(super) fn sign_in(address: SocketAddr) -> io::Result<Self> {
        let body = json!({"name": USER, "password": PASSWORD}).to_string();
        let request = request("POST", "/api/session", JSON, &body);
        let (received, framed) = http::exchange(&mut http::connect(address)?, &request)?;
        let head = String::from_utf8_lossy(&received).into_owned();
        let mut lines = head.lines().filter_map(|line| line.split_once(": "));
        let cookie = lines.find(|(name, _)| name.eq_ignore_ascii_case("set-cookie"));
        match (
            framed.status,
            cookie.and_then(|(_, line)| line.split(';').next()),
        ) {
            (204, Some(cookie)) => Ok(Self {
                cookie: cookie.into(),
            }),
            _ => Err(unexpected(&head)),
        }
    }

    /// The line of a head.
    pub(super) fn cookie_header(&self) -> String {
        format!("Cookie: {}", self.cookie)
    }

    /// Adds this many bookmarks.
    pub(super) fn import(&self, address: SocketAddr, count: usize) -> io::Result<()> {
        let drafts: Vec<Value> = (1..=count).map(draft).collect();
        let part = "--b\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n";
        let form = format!("{part}{}\r\n--b--\r\n", Value::from(drafts));
        let (body, _) = self.ask(address, "POST", "/api/import", (FORM, &form), 201)?;
        match body == json!({"added": count}) {
            true => Ok(()),
            false => Err(unexpected(&body)),
        }
    }

    /// Asks for one bookmark. Returns the reply's bytes.
    pub(super) fn find(&self, address: SocketAddr, path: &str, id: usize) -> io::Result<usize> {
        let (body, bytes) = self.ask(address, "GET", path, ("", ""), 200)?;
        let draft = draft(id);
        let is_it = ["url", "title", "tags"]
            .iter()
            .all(|name| body[name] == draft[name]);
        match is_it && body["id"] == id && body["added_by"] == USER {
            true => Ok(bytes),
            false => Err(unexpected(&body)),
        }
    }

    /// Asks for a page as this coding. Returns the reply's bytes. The servers frame it in their own
    /// ways; that it has the same content is a test's affair.
    pub(super) fn list(&self, address: SocketAddr, path: &str, coding: &str) -> io::Result<usize> {
        let mut socket = http::connect(address)?;
        let fields = format!(
            "{}\r\n{coding}\r\nConnection: close\r\n",
            self.cookie_header()
        );
        socket.write_all(&request("GET", path, &fields, ""))?;
        let mut received = Vec::new();
        socket.read_to_end(&mut received)?;
        let head = String::from_utf8_lossy(&received).to_ascii_lowercase();
        match head.starts_with("http/1.1 200 ") && head.contains("content-encoding: gzip") {
            true => Ok(received.len()),
            false => Err(unexpected(&head)),
        }
    }

    /// Adds a bookmark. Returns the reply's bytes.
    pub(super) fn add(&self, address: SocketAddr) -> io::Result<usize> {
        self.add_on(&mut http::connect(address)?)
    }

    /// The same on a connection that is there.
    pub(super) fn add_on(&self, socket: &mut TcpStream) -> io::Result<usize> {
        let (body, bytes) = self.ask_on(socket, "POST", ADD_PATH, (JSON, DRAFT), 201)?;
        match body["title"] == "A new one" && body["id"].is_number() {
            true => Ok(bytes),
            false => Err(unexpected(&body)),
        }
    }

    /// The request of one who listens.
    pub(super) fn listen(&self) -> Vec<u8> {
        let fields = format!("{}\r\n", self.cookie_header());
        request("GET", "/api/events", &fields, "")
    }

    fn ask(
        &self,
        address: SocketAddr,
        method: &str,
        path: &str,
        content: (&str, &str),
        status: u16,
    ) -> io::Result<(Value, usize)> {
        self.ask_on(&mut http::connect(address)?, method, path, content, status)
    }

    /// The JSON of a reply with this status, and the reply's bytes. Content is its type and itself.
    fn ask_on(
        &self,
        socket: &mut TcpStream,
        method: &str,
        path: &str,
        (of_type, body): (&str, &str),
        status: u16,
    ) -> io::Result<(Value, usize)> {
        let fields = format!("{}\r\n{of_type}", self.cookie_header());
        let request = request(method, path, &fields, body);
        let (received, framed): (Vec<u8>, Framed) = http::exchange(socket, &request)?;
        let content = &received[framed.body.clone()];
        if framed.status != status {
            let text = String::from_utf8_lossy(content);
            return Err(unexpected(&format!("status {}, {text}", framed.status)));
        }
        Ok((serde_json::from_slice(content)?, framed.bytes()))
    }
}

/// What is imported with this number.
fn draft(number: usize) -> Value {
    json!({
        "url": format!("https://www.example.org/articles/{number}"),
        "title": format!("Article {number} about something or other"),
        "tags": ["article", format!("tag-{}", number % 7)],
    })
}

/// A request whose further lines end with CR LF each.
fn request(method: &str, path: &str, fields: &str, body: &str) -> Vec<u8> {
    let length = match body.is_empty() {
        true => String::new(),
        false => format!("Content-Length: {}\r\n", body.len()),
    };
    format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{fields}{length}\r\n{body}")
        .into_bytes()
}

fn unexpected(reply: &(impl ToString + ?Sized)) -> io::Error {
    io::Error::new(
        ErrorKind::InvalidData,
        format!("unexpected: {}", reply.to_string()),
    )
}
