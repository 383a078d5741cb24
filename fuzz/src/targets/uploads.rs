//! Target `uploads`: PUT and resumable uploads (tus), request after request on one connection.
//!
//! The input is requests with a line `%%` between them. `/@` at the begin of a target stands for
//! the address of the upload that was made last. The requests end at the first one that is not
//! whole or ends its connection.
//!
//! Holds of every input
//! - A file changes only with a request that is answered by success, it is one file, and its bytes
//!   are those of that PUT, or all that its upload was sent.
//! - The offset that HEAD and PATCH tell is what was sent.
//! - A PUT with `Content-Range` changes nothing (RFC 9110 section 14.5).
//! - No answer is a failure of the server, and nothing is left behind.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use flatpath::simulation::SimulatedServer;
use flatpath_files::{Files, WriteOptions, Writing};
use flatpath_http::Http;

use super::http::requests::{self, Taken};
use crate::random::pieces;
use crate::simulated::{self, Peer};

/// Small, so that bodies come in several pieces.
const RECEIVE_BUFFER_BYTES: u32 = 512;

const SEPARATOR: &[u8] = b"\r\n%%\r\n";

/// Turns in which a worker has answered.
const TURNS_MAX: usize = 10_000;

type Tree = BTreeMap<String, Vec<u8>>;

/// What is known of an upload.
struct Upload {
    address: String,
    bytes: Vec<u8>,
    /// Whether what it has is known: a refused body may have left a part.
    is_known: bool,
}

/// What a request may have made of a file.
enum Written {
    Nothing,
    /// The whole file.
    File(Vec<u8>),
    /// The whole file, if this is all of the upload.
    Upload(Vec<u8>),
    /// Something: a part of the upload is not known.
    Unknown,
}

struct Model {
    uploads: Vec<Upload>,
    tree: Tree,
}

pub(crate) fn run(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a directory");
    let options = WriteOptions {
        bytes_max: 4096,
        ..WriteOptions::default()
    };
    let files = Files::open(folder.path()).expect("a directory to serve");
    let files = files.writable(Writing::Allowed(options));
    let mut server = simulated::serve(Http::service(files), RECEIVE_BUFFER_BYTES);
    let mut peer = Peer::connect(&server);
    let mut model = Model {
        uploads: Vec::new(),
        tree: Tree::new(),
    };
    for part in split(data) {
        let part = model.with_address(part);
        for piece in pieces(&part) {
            peer.say(&mut server, piece);
        }
        let reading = requests::read(&part, std::iter::once(&part[..]));
        let [taken] = &reading.requests[..] else {
            break;
        };
        if taken.end != part.len() || !taken.keep_alive {
            break;
        }
        let Some(answer) = answer(&mut server, &mut peer, taken.method == "HEAD") else {
            break;
        };
        let goes_on = !answer.closes;
        model.check(taken, &answer, folder.path());
        if !goes_on {
            break;
        }
    }
    peer.finish(&mut server);
    drop(peer);
    simulated::end(server);
}

fn split(data: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut rest) = (Vec::new(), data);
    while let Some(at) = rest
        .windows(SEPARATOR.len())
        .position(|window| window == SEPARATOR)
    {
        parts.push(&rest[..at]);
        rest = &rest[at + SEPARATOR.len()..];
    }
    parts.push(rest);
    parts
}

struct Answer {
    status: u16,
    head: String,
    closes: bool,
}

impl Answer {
    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self.head.lines().filter_map(|line| line.split_once(": "));
        lines
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }
}

/// The next final answer; None when the connection ends without one.
fn answer(server: &mut SimulatedServer, peer: &mut Peer, is_head: bool) -> Option<Answer> {
    for _ in 0..TURNS_MAX {
        let end = peer
            .heard
            .windows(4)
            .position(|window| window == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&peer.heard[..end]).into_owned();
            let mut answer = Answer {
                status: head[9..12].parse().expect("a status"),
                head,
                closes: false,
            };
            let length = answer.header("Content-Length").filter(|_| !is_head);
            let length: usize = length.map_or(0, |length| length.parse().expect("a length"));
            answer.closes = answer.header("Connection") == Some("close");
            if peer.heard.len() >= end + 4 + length {
                peer.heard.drain(..end + 4 + length);
                if answer.status != 100 {
                    return Some(answer);
                }
                continue;
            }
        }
        if peer.is_over() {
            return None;
        }
        peer.listen(server, 1);
    }
    panic!("a request is not answered");
}

/// The files that clients can see.
fn tree(folder: &Path) -> Tree {
    let entries = fs::read_dir(folder).expect("it is there");
    let files = entries.map(|entry| {
        let entry = entry.expect("it is read");
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_file = entry.file_type().expect("a type").is_file();
        (name, entry.path(), is_file)
    });
    let seen = files.filter(|(name, _, is_file)| *is_file && !name.starts_with('.'));
    seen.map(|(name, path, _)| (name, fs::read(path).expect("it is read")))
        .collect()
}

impl Model {
    fn with_address(&self, part: &[u8]) -> Vec<u8> {
        let at = part.windows(3).position(|window| window == b" /@");
        match (at, self.uploads.last()) {
            (Some(at), Some(upload)) => {
                [&part[..=at], upload.address.as_bytes(), &part[at + 3..]].concat()
            }
            _ => part.to_vec(),
        }
    }

    fn check(&mut self, taken: &Taken, answer: &Answer, folder: &Path) {
        let line = format!("{} {}: {}", taken.method, taken.target, answer.head);
        let is_our_failure = answer.status >= 500 && !matches!(answer.status, 501 | 505 | 507);
        assert!(!is_our_failure, "{line}");
        let written = self.sent(taken, answer, &line);
        let tree = tree(folder);
        let is_changed = |name: &&String| self.tree.get(*name) != tree.get(*name);
        let changed: Vec<&String> = tree.keys().filter(is_changed).collect();
        let is_complete = self.tree.keys().all(|name| tree.contains_key(name));
        assert!(is_complete, "a file is gone: {line}");
        match (&changed[..], written) {
            ([], Written::File(bytes)) => {
                let is_there = tree.values().any(|file| *file == bytes);
                assert!(is_there, "no file is what was put: {line}");
            }
            ([], _) | ([_], Written::Unknown) => {}
            ([name], Written::File(bytes) | Written::Upload(bytes)) => {
                assert_eq!(tree[*name], bytes, "{line}");
            }
            (changed, _) => panic!("{changed:?} changed: {line}"),
        }
        self.tree = tree;
    }

    /// Follows what a request has sent; what a file may hold because of it.
    fn sent(&mut self, taken: &Taken, answer: &Answer, line: &str) -> Written {
        let header = |name: &str| {
            let mut all = taken.headers.iter();
            let value = all.find(|(own, _)| own.eq_ignore_ascii_case(name));
            value.map(|(_, value)| String::from_utf8_lossy(value).into_owned())
        };
        let told = answer.header("Upload-Offset");
        let told: Option<usize> = told.map(|offset| offset.parse().expect("an offset"));
        let is_success = (200..300).contains(&answer.status);
        if taken.method == "PUT" && is_success {
            assert!(header("content-range").is_none(), "{line}");
            return Written::File(taken.body.clone());
        }
        if answer.status == 201 {
            let address = answer.header("Location").expect("an address").to_owned();
            let bytes = taken.body.clone();
            assert_eq!(told.unwrap_or_default(), bytes.len(), "{line}");
            self.uploads.push(Upload {
                address,
                bytes: bytes.clone(),
                is_known: true,
            });
            return Written::Upload(bytes);
        }
        let mut uploads = self.uploads.iter_mut();
        let Some(upload) = uploads.find(|upload| upload.address == taken.target) else {
            return Written::Nothing;
        };
        let replaced = header("x-http-method-override").filter(|_| taken.method == "POST");
        let method = replaced.unwrap_or_else(|| taken.method.clone());
        if method == "PATCH" && is_success {
            upload.bytes.extend_from_slice(&taken.body);
        } else if method == "PATCH" {
            upload.is_known &= taken.body.is_empty();
        }
        if matches!(&*method, "PATCH" | "HEAD") && is_success && upload.is_known {
            assert_eq!(told, Some(upload.bytes.len()), "{line}");
        }
        match (is_success, upload.is_known) {
            (false, _) => Written::Nothing,
            (true, true) => Written::Upload(upload.bytes.clone()),
            (true, false) => Written::Unknown,
        }
    }
}
