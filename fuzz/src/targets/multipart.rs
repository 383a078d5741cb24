//! Target `multipart_forms`: forms with files (RFC 7578). The first line is the boundary, as the
//! content type names it; the rest is the body.
//!
//! Holds of every input
//! - A form that is taken whole and one that is taken in pieces, wherever they are cut, have the
//!   same fields, or are refused with the same status; a refusal is the client's fault.
//! - The contents stand in the body, one after another, each between the end of a head and a
//!   delimiter, and no content has a delimiter in it.
//! - The fields, written again, are the same fields.
//! - Any bytes at all are content: a form of two fields that has the body's halves is taken.

use std::sync::{Arc, Mutex};

use flatpath::simulation::SimulatedServer;
use flatpath_http::http::StatusCode;
use flatpath_http::multipart::{FieldHead, FormSink, MultipartRejection};
use flatpath_http::{
    Http, IntoResponse, Multipart, MultipartUpload, Response, Router, Upload, routing,
};

use crate::random::{Random, pieces};
use crate::simulated::{self, Peer};

/// Small, so that bodies come in several pieces.
const RECEIVE_BUFFER_BYTES: u32 = 512;

/// As much of an input as is taken: as in a form of any length, bounds are met otherwise.
const BODY_BYTES_MAX: usize = 64 << 10;

/// A field as the program sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    name: String,
    file_name: Option<String>,
    content_type: Option<String>,
    content: Vec<u8>,
}

impl Field {
    fn new(head: &FieldHead, content: &[u8]) -> Self {
        Self {
            name: head.name().to_owned(),
            file_name: head.file_name().map(str::to_owned),
            content_type: head.content_type().map(str::to_owned),
            content: content.to_vec(),
        }
    }
}

/// The form that was taken last.
#[derive(Clone, Default)]
struct Taken(Arc<Mutex<Option<Vec<Field>>>>);

impl Taken {
    fn put(&self, fields: Vec<Field>) {
        let before = self.0.lock().expect("no panic").replace(fields);
        assert!(before.is_none(), "a form is taken once");
    }

    fn take(&self) -> Option<Vec<Field>> {
        self.0.lock().expect("no panic").take()
    }
}

/// Gathers the fields of a form piece by piece.
struct Pieces {
    fields: Vec<Field>,
    is_open: bool,
    taken: Taken,
}

impl FormSink for Pieces {
    type Refusal = StatusCode;

    fn field(&mut self, field: &mut FieldHead) -> Result<(), StatusCode> {
        assert!(!self.is_open, "the field before has no end");
        self.is_open = true;
        self.fields.push(Field::new(field, b""));
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), StatusCode> {
        assert!(self.is_open && !bytes.is_empty(), "content of no field");
        let field = self.fields.last_mut().expect("one is open");
        field.content.extend_from_slice(bytes);
        Ok(())
    }

    fn end(&mut self) -> Result<(), StatusCode> {
        assert!(self.is_open, "the end of no field");
        self.is_open = false;
        Ok(())
    }

    fn finish(self) -> Response {
        assert!(!self.is_open, "the last field has no end");
        self.taken.put(self.fields);
        StatusCode::OK.into_response()
    }
}

struct Server {
    simulated: SimulatedServer,
    taken: Taken,
}

impl Server {
    fn start() -> Self {
        let taken = Taken::default();
        let (of_whole, of_pieces) = (taken.clone(), taken.clone());
        let whole = move |form: Multipart| {
            let field =
                |field: &flatpath_http::multipart::FormField| Field::new(&field.head, &field.data);
            of_whole.put(form.fields().iter().map(field).collect());
        };
        let in_pieces = move |form: Result<MultipartUpload, MultipartRejection>| {
            let taken = of_pieces.clone();
            form.map(|form| -> Upload {
                form.with(Pieces {
                    fields: Vec::new(),
                    is_open: false,
                    taken,
                })
            })
        };
        let router = Router::new()
            .post("/whole", whole)
            .route("/pieces", routing::post(in_pieces).streamed());
        let simulated = simulated::serve(Http::service(router), RECEIVE_BUFFER_BYTES);
        Self { simulated, taken }
    }

    /// Sends a form; its fields, or the status of its refusal.
    fn send(&mut self, path: &str, boundary: &[u8], body: &[u8]) -> Result<Vec<Field>, u16> {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {length}\r\n\
             Content-Type: multipart/form-data; boundary="
        );
        let request = [head.as_bytes(), boundary, b"\r\n\r\n", body].concat();
        let mut peer = Peer::connect(&self.simulated);
        for piece in pieces(&request) {
            if peer.is_over() {
                break;
            }
            peer.say(&mut self.simulated, piece);
        }
        peer.finish(&mut self.simulated);
        let heard = String::from_utf8_lossy(&peer.heard);
        let status = heard.get(9..12).and_then(|status| status.parse().ok());
        let status: u16 = status.unwrap_or_else(|| panic!("no reply: {heard:?}"));
        let fields = self.taken.take();
        match fields {
            Some(fields) => {
                assert_eq!(status, 200, "{heard:?}");
                Ok(fields)
            }
            None => {
                assert!((400..500).contains(&status), "{heard:?}");
                Err(status)
            }
        }
    }

    /// Sends a form in both ways.
    fn both(&mut self, boundary: &[u8], body: &[u8]) -> Result<Vec<Field>, u16> {
        let whole = self.send("/whole", boundary, body);
        let in_pieces = self.send("/pieces", boundary, body);
        assert_eq!(whole, in_pieces, "taken whole, and in pieces");
        whole
    }
}

pub(crate) fn run(data: &[u8]) {
    let end = find(data, b"\r\n").unwrap_or(data.len());
    let (boundary, body) = data.split_at(end);
    let body = &body[2.min(body.len())..];
    let body = &body[..body.len().min(BODY_BYTES_MAX)];
    let mut server = Server::start();
    if let Ok(fields) = server.both(boundary, body) {
        if boundary.iter().all(is_plain) {
            stand_in(body, boundary, &fields);
        }
        let boundary = unused(&fields);
        let again = server.both(&boundary, &written(&fields, &boundary));
        assert_eq!(again, Ok(fields), "written again");
    }
    let (first, second) = body.split_at(Random::of(body).below(body.len() + 1));
    let fields: Vec<Field> = [first, second].map(any).into();
    let boundary = unused(&fields);
    let form = written(&fields, &boundary);
    assert_eq!(server.both(&boundary, &form), Ok(fields), "any content");
    simulated::end(server.simulated);
}

/// A byte that stands for itself in a content type without quotes, and in a boundary.
fn is_plain(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"'+_-.".contains(byte)
}

fn any(content: &[u8]) -> Field {
    Field {
        name: "any".to_owned(),
        file_name: None,
        content_type: None,
        content: content.to_vec(),
    }
}

/// A boundary that is in no content, however near one comes to it.
fn unused(fields: &[Field]) -> Vec<u8> {
    let is_used = |boundary: &[u8]| {
        let delimiter = [b"--", boundary].concat();
        fields
            .iter()
            .any(|field| find(&field.content, &delimiter).is_some())
    };
    let longer = (1..=70).map(|bytes| vec![b'a'; bytes]);
    let mut numbered = (0_u32..).map(|number| format!("b{number}").into_bytes());
    let found = longer.into_iter().find(|boundary| !is_used(boundary));
    found
        .or_else(|| numbered.find(|boundary| !is_used(boundary)))
        .expect("there are many")
}

/// A form of these fields. What a name cannot have between quotes is escaped.
fn written(fields: &[Field], boundary: &[u8]) -> Vec<u8> {
    let quoted = |text: &str| format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""));
    let mut form = Vec::new();
    for field in fields {
        form.extend(
            [
                b"--",
                boundary,
                b"\r\nContent-Disposition: form-data; name=",
            ]
            .concat(),
        );
        form.extend(quoted(&field.name).into_bytes());
        if let Some(name) = &field.file_name {
            form.extend(format!("; filename={}", quoted(name)).into_bytes());
        }
        if let Some(of_type) = &field.content_type {
            form.extend(format!("\r\nContent-Type: {of_type}").into_bytes());
        }
        form.extend([b"\r\n\r\n", &field.content[..], b"\r\n"].concat());
    }
    form.extend([b"--", boundary, b"--\r\n"].concat());
    form
}

/// Each content is in the body, after the one before it.
fn stand_in(body: &[u8], boundary: &[u8], fields: &[Field]) {
    let delimiter = [b"\r\n--", boundary].concat();
    let mut rest = body;
    for field in fields {
        assert!(
            find(&field.content, &delimiter).is_none(),
            "a delimiter in {field:?}"
        );
        let content = [b"\r\n\r\n", &field.content[..], &delimiter].concat();
        let at = find(rest, &content).map(|at| at + content.len());
        // Without content its line end may be that of the head.
        let bare = [b"\r\n", &delimiter[..]].concat();
        let bare = || find(rest, &bare).filter(|_| field.content.is_empty());
        let end = at.or_else(|| Some(bare()? + 2 + delimiter.len()));
        let end = end.unwrap_or_else(|| panic!("not in the body: {field:?}"));
        rest = &rest[end - delimiter.len()..];
    }
}

fn find(bytes: &[u8], part: &[u8]) -> Option<usize> {
    bytes.windows(part.len()).position(|window| window == part)
}
