//! Uploads without a server, case by case; `model` has what may come between.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flatpath::memory::{Payload, Pool};
use flatpath_http::{Body, Peer, Request, Response};
use flatpath_structures::pool::{PoolConfig, Zero};
use rustix::fs::{FlockOperation, flock};
use sha1_smol::Sha1;

use crate::conditional::EntityTags;
use crate::root::Root;
use crate::rules::RootFiles;
use crate::target::Hidden;
use crate::writing::{Durability, WriteOptions};

use super::headers::marked;
use super::ledger::{Ledger, Uploads};
use super::patch::{Begun, Patch};
use super::serve;
use super::sweep::sweep;

pub(super) struct Site {
    folder: tempfile::TempDir,
    root: Arc<Root>,
    pub(super) ledger: Arc<Ledger>,
    options: WriteOptions,
    pool: Pool,
}

impl Site {
    pub(super) fn new(options: WriteOptions) -> Self {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::create_dir(folder.path().join("sub")).expect("mkdir");
        let root = Arc::new(Root::open(folder.path()).expect("open"));
        let pool = Pool::new(PoolConfig {
            classes: vec![4 << 10],
            budget_bytes: 1 << 20,
            zero: Zero::Never,
        });
        Self {
            folder,
            ledger: Ledger::of(root.directory()),
            root,
            options,
            pool,
        }
    }

    pub(super) fn uploads(&self) -> Uploads {
        Uploads {
            asker: crate::asker::Asker::default(),
            root: Arc::clone(&self.root),
            hidden: Hidden::Refused,
            options: self.options,
            tags: EntityTags::Exact,
            ledger: Arc::clone(&self.ledger),
            rule_files: RootFiles::Ignored,
        }
    }

    pub(super) fn ask(&self, method: &str, target: &str, headers: &[(&str, &str)]) -> Response {
        match serve(&self.uploads(), &request(method, target, headers)) {
            Ok(Begun::Body(patch)) => patch.conclude(),
            Ok(Begun::Answered(response)) => marked(response),
            Err(refusal) => marked(*refusal.0),
        }
    }

    /// Begins a request with a body.
    pub(super) fn begin(
        &self,
        method: &str,
        target: &str,
        headers: &[(&str, &str)],
    ) -> Result<Box<Patch>, Box<Response>> {
        let kind = ("Content-Type", "application/offset+octet-stream");
        let headers = [&[kind], headers].concat();
        match serve(&self.uploads(), &request(method, target, &headers)) {
            Ok(Begun::Body(patch)) => Ok(patch),
            Ok(Begun::Answered(response)) => Err(Box::new(response)),
            Err(refusal) => Err(Box::new(marked(*refusal.0))),
        }
    }

    pub(super) fn append(&self, patch: &mut Patch, bytes: &[u8]) -> Result<(), u16> {
        let mut piece = Payload::new();
        piece.push_copy((&self.pool).into(), bytes).expect("room");
        let taken = patch.append(&mut piece);
        taken.map_err(|refusal| refusal.0.status().as_u16())
    }

    /// A new upload's address.
    pub(super) fn create(&self, name: &str, length: u64) -> String {
        let metadata = format!("filename {}", STANDARD.encode(name));
        let length = length.to_string();
        let headers = [
            ("Upload-Length", &length[..]),
            ("Upload-Metadata", &metadata),
        ];
        let response = self.ask("POST", "/", &headers);
        assert_eq!(response.status(), 201);
        header(&response, "location").expect("an address")
    }

    /// Sends all of `bytes` from `offset` on.
    pub(super) fn patch(&self, address: &str, offset: u64, bytes: &[u8]) -> u16 {
        let offset = offset.to_string();
        match self.begin("PATCH", address, &[("Upload-Offset", &offset)]) {
            Ok(mut patch) => match self.append(&mut patch, bytes) {
                Ok(()) => patch.conclude().status().as_u16(),
                Err(status) => status,
            },
            Err(response) => response.status().as_u16(),
        }
    }

    pub(super) fn offset(&self, address: &str) -> Result<u64, u16> {
        let response = self.ask("HEAD", address, &[]);
        assert_eq!(
            header(&response, "cache-control").as_deref(),
            Some("no-store")
        );
        assert_eq!(header(&response, "tus-resumable").as_deref(), Some("1.0.0"));
        match response.status().as_u16() {
            200 => Ok(header(&response, "upload-offset")
                .expect("an offset")
                .parse()
                .expect("a number")),
            status => Err(status),
        }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file with the bytes of an upload that is not finished.
    fn data(&self, address: &str) -> PathBuf {
        let id = address.rsplit('/').next().expect("a number");
        self.path(&format!(".flatpath-upload-{id}"))
    }

    /// Files that clients see.
    pub(super) fn published(&self) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(self.folder.path()).expect("readable") {
            let name = entry.expect("an entry").file_name();
            let name = name.into_string().expect("ASCII");
            if name != "sub" && !name.starts_with(".flatpath-upload") {
                let content = fs::read(self.path(&name)).expect("readable");
                files.insert(name, content);
            }
        }
        files
    }

    pub(super) fn hidden_files(&self) -> usize {
        let entries = fs::read_dir(self.folder.path()).expect("readable");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .filter(|name| name.as_encoded_bytes().starts_with(b".flatpath-"))
            .count()
    }
}

fn request(method: &str, target: &str, headers: &[(&str, &str)]) -> Request {
    let mut builder = http::Request::builder().method(method).uri(target);
    if !headers.iter().any(|(name, _)| *name == "Tus-Resumable") {
        builder = builder.header("Tus-Resumable", "1.0.0");
    }
    for (name, value) in headers {
        builder = builder.header(*name, *value);
    }
    builder.body(Body::Empty).expect("a request")
}

pub(super) fn header(response: &Response, name: &str) -> Option<String> {
    let value = response.headers().get(name)?;
    Some(value.to_str().expect("ASCII").to_owned())
}

pub(super) fn sha1_of(bytes: &[u8]) -> String {
    format!(
        "sha1 {}",
        STANDARD.encode(Sha1::from(bytes).digest().bytes())
    )
}

#[test]
fn another_version_is_refused_and_ours_is_named() {
    let site = Site::new(WriteOptions::default());
    for (method, target) in [("POST", "/"), ("HEAD", "/.flatpath-uploads/0")] {
        let response = site.ask(method, target, &[("Tus-Resumable", "0.2.2")]);
        if method == "POST" {
            assert_eq!(response.status(), 412);
            assert_eq!(header(&response, "tus-version").as_deref(), Some("1.0.0"));
        }
    }
    let options = site.ask("OPTIONS", "/", &[("Tus-Resumable", "9")]);
    assert_eq!(options.status(), 204);
    for (name, value) in [
        ("tus-version", "1.0.0"),
        ("tus-max-size", "1099511627776"),
        ("tus-checksum-algorithm", "sha1"),
    ] {
        assert_eq!(header(&options, name).as_deref(), Some(value));
    }
}

#[test]
fn what_no_file_can_be_is_refused_before_anything_is_made() {
    let site = Site::new(WriteOptions {
        bytes_max: 100,
        ..WriteOptions::default()
    });
    let named = |name: &str| format!("filename {}", STANDARD.encode(name));
    let [plain, slash, dots, hidden, directory] = ["a", "a/b", "..", ".env", "sub"].map(named);
    let length = ("Upload-Length", "5");
    let metadata = |value| vec![length, ("Upload-Metadata", value)];
    for (target, headers, status) in [
        ("/", vec![length], 400),
        ("/", vec![("Upload-Metadata", &plain[..])], 400),
        ("/x", vec![("Upload-Length", "101")], 413),
        ("/x", vec![("Upload-Length", "-1")], 400),
        ("/x", vec![("Upload-Defer-Length", "2")], 400),
        ("/x", metadata("a b c"), 400),
        ("/x", vec![length, ("Upload-Checksum", "md4 AA==")], 400),
        ("/", metadata(&slash), 400),
        ("/", metadata(&dots), 400),
        ("/", metadata(&hidden), 403),
        ("/", metadata(&directory), 409),
        ("/.env", vec![length], 403),
        ("/.well-known/x", vec![length], 403),
        ("/.flatpath-uploads/x", vec![length], 403),
        ("/none/x", vec![length], 409),
        ("/x", vec![length, ("If-Match", "*")], 412),
        ("/x", vec![length, ("Content-Range", "bytes 0-1/2")], 400),
    ] {
        let response = site.ask("POST", target, &headers);
        assert_eq!(response.status(), status, "{target} {headers:?}");
    }
    assert!(site.published().is_empty());
    assert_eq!(site.hidden_files(), 0);
}

#[test]
fn an_upload_goes_where_it_was_sent_or_what_its_metadata_names() {
    let site = Site::new(WriteOptions::default());
    let metadata = format!("filename {}", STANDARD.encode("named"));
    for (target, path) in [
        ("/", "named"),
        ("/sub", "sub/named"),
        ("/sub/", "sub/named"),
        ("/sub/own", "sub/own"),
        ("/a%20b?c", "a b"),
    ] {
        let headers = [("Upload-Length", "3"), ("Upload-Metadata", &metadata[..])];
        let response = site.ask("POST", target, &headers);
        let address = header(&response, "location").expect("an address");
        assert!(!site.path(path).exists());
        assert_eq!(site.patch(&address, 0, b"abc"), 204);
        assert_eq!(fs::read(site.path(path)).expect("published"), b"abc");
        let finished = site.ask("HEAD", &address, &[]);
        assert_eq!(header(&finished, "upload-metadata"), Some(metadata.clone()));
        fs::remove_file(site.path(path)).expect("removed");
    }
    assert_eq!(site.hidden_files(), 1, "the directory of records alone");
}

#[test]
fn methods_that_cannot_be_sent_are_named_in_a_header() {
    let site = Site::new(WriteOptions::default());
    let address = site.create("file", 3);
    let headers = [("X-HTTP-Method-Override", "PATCH"), ("Upload-Offset", "0")];
    let mut patch = site.begin("POST", &address, &headers).expect("a PATCH");
    site.append(&mut patch, b"ab").expect("taken");
    assert_eq!(patch.conclude().status(), 204);
    assert_eq!(site.offset(&address), Ok(2));
    let headers = [("X-HTTP-Method-Override", "DELETE")];
    assert_eq!(site.ask("POST", &address, &headers).status(), 204);
    assert_eq!(site.offset(&address), Err(404));
    assert_eq!(site.ask("POST", &address, &[]).status(), 405);
}

#[test]
fn a_body_must_be_of_the_type_and_fit_the_length() {
    let site = Site::new(WriteOptions::default());
    let address = site.create("file", 3);
    for (headers, status) in [
        (
            vec![("Content-Type", "text/plain"), ("Upload-Offset", "0")],
            415,
        ),
        (vec![], 415),
    ] {
        assert_eq!(site.ask("PATCH", &address, &headers).status(), status);
    }
    let status = |headers: &[(&str, &str)]| match site.begin("PATCH", &address, headers) {
        Ok(_) => 0,
        Err(response) => response.status().as_u16(),
    };
    assert_eq!(status(&[]), 400, "no offset");
    let offset = ("Upload-Offset", "0");
    assert_eq!(status(&[offset, ("Content-Length", "4")]), 413);
    assert_eq!(status(&[offset, ("Upload-Length", "4")]), 400);
    assert_eq!(status(&[offset, ("Upload-Checksum", "md4 AA==")]), 400);
    assert_eq!(site.patch(&address, 0, b"abcd"), 413);
    assert_eq!(site.patch(&address, 0, b"abc"), 204);
}

#[test]
fn what_was_not_compared_with_its_checksum_does_not_count() {
    let site = Site::new(WriteOptions::default());
    let address = site.create("file", 6);
    assert_eq!(site.patch(&address, 0, b"ab"), 204);
    let digest = sha1_of(b"cdef");
    let headers = [("Upload-Offset", "2"), ("Upload-Checksum", &digest[..])];
    let mut patch = site.begin("PATCH", &address, &headers).expect("begun");
    site.append(&mut patch, b"cd").expect("taken");
    assert_eq!(site.offset(&address), Ok(2), "while it arrives");
    // Also after a server was killed in the middle, which nothing in memory survives.
    drop(patch);
    assert_eq!(site.offset(&address), Ok(2), "after it broke off");
    let mut patch = site.begin("PATCH", &address, &headers).expect("begun");
    site.append(&mut patch, b"cdef").expect("taken");
    assert_eq!(patch.conclude().status(), 204);
    assert_eq!(site.published()["file"], b"abcdef");
}

#[test]
fn a_file_whose_server_was_killed_before_it_had_its_name_gets_it() {
    let site = Site::new(WriteOptions::default());
    let address = site.create("file", 3);
    let mut patch = site
        .begin("PATCH", &address, &[("Upload-Offset", "0")])
        .expect("begun");
    site.append(&mut patch, b"abc").expect("taken");
    drop(patch);
    assert!(site.published().is_empty());
    assert_eq!(site.offset(&address), Ok(3));
    assert_eq!(site.published()["file"], b"abc", "3 of 3 means published");
    assert_eq!(site.offset(&address), Ok(3), "and so it stays");
    assert_eq!(site.patch(&address, 3, b""), 409);
    assert_eq!(site.ask("DELETE", &address, &[]).status(), 403);
}

#[test]
fn a_condition_holds_until_the_file_is_replaced() {
    let site = Site::new(WriteOptions::default());
    let headers = [("Upload-Length", "3"), ("If-None-Match", "*")];
    let response = site.ask("POST", "/file", &headers);
    let address = header(&response, "location").expect("an address");
    fs::write(site.path("file"), "other").expect("written");
    assert_eq!(site.patch(&address, 0, b"abc"), 412);
    assert_eq!(site.offset(&address), Err(412), "it is not published");
    assert_eq!(site.published()["file"], b"other");
    fs::remove_file(site.path("file")).expect("removed");
    assert_eq!(site.offset(&address), Ok(3));
    assert_eq!(site.published()["file"], b"abc");
}

#[test]
fn uploads_expire_and_are_removed_with_all_they_left() {
    let expires = Duration::from_secs(1_000);
    let site = Site::new(WriteOptions {
        expires,
        ..WriteOptions::default()
    });
    let now = SystemTime::now();
    let [old, young, finished] = ["old", "young", "finished"].map(|name| site.create(name, 3));
    assert_eq!(site.patch(&finished, 0, b"abc"), 204);
    let file = fs::File::options().write(true).open(site.data(&old));
    let long_ago = now - 2 * expires;
    file.expect("there").set_modified(long_ago).expect("ours");
    assert_eq!(site.offset(&old), Err(410), "expired, and not yet removed");
    sweep(&site.uploads(), now);
    assert_eq!(site.offset(&old), Err(404));
    assert!(!site.data(&old).exists());
    assert_eq!(site.offset(&young), Ok(0));
    assert_eq!(site.offset(&finished), Ok(3));
    let later = SystemTime::now() + 2 * expires;
    sweep(&site.uploads(), later);
    sweep(&site.uploads(), later);
    assert_eq!(site.hidden_files(), 0, "no trace is left");
    assert_eq!(site.published()["finished"], b"abc");
    let address = site.create("again", 0);
    assert_eq!(site.offset(&address), Ok(0));
}

#[test]
fn a_sweep_keeps_no_other_process_from_writing() {
    let site = Site::new(WriteOptions::default());
    let address = site.create("file", 3);
    let file = fs::File::open(site.data(&address)).expect("there");
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..500 {
                sweep(&site.uploads(), SystemTime::now());
            }
            is_over.store(true, Ordering::Relaxed);
        });
        // As another process locks it for each piece.
        while !is_over.load(Ordering::Relaxed) {
            let locked = flock(&file, FlockOperation::NonBlockingLockExclusive);
            assert_eq!(locked, Ok(()), "the sweep has it");
            flock(&file, FlockOperation::Unlock).expect("ours");
        }
    });
    assert_eq!(site.patch(&address, 0, b"abc"), 204);
}

#[test]
fn at_the_bound_finished_uploads_make_room_and_unfinished_ones_do_not() {
    let site = Site::new(WriteOptions {
        unfinished_max: 2,
        ..WriteOptions::default()
    });
    let first = site.create("first", 1);
    for _ in 0..4 {
        let address = site.create("other", 1);
        assert_eq!(site.patch(&address, 0, b"x"), 204);
    }
    site.create("second", 1);
    let headers = [("Upload-Length", "1")];
    let refused = site.ask("POST", "/third", &headers);
    assert_eq!(refused.status(), 503);
    assert!(header(&refused, "retry-after").is_some());
    assert_eq!(site.ask("DELETE", &first, &[]).status(), 204);
    assert_eq!(site.ask("POST", "/third", &headers).status(), 201);
}

fn create_from(site: &Site, host: &str, name: &str) -> (u16, String) {
    create_sized(site, host, (name, 5))
}

/// POST from an address: the status, and where the upload is.
pub(super) fn create_sized(site: &Site, host: &str, (name, length): (&str, u64)) -> (u16, String) {
    let length = length.to_string();
    let mut request = request("POST", &format!("/{name}"), &[("Upload-Length", &length)]);
    let from = std::net::SocketAddr::new(host.parse().expect("an address"), 9);
    request.extensions_mut().insert(Peer(from));
    let response = match serve(&site.uploads(), &request) {
        Ok(Begun::Answered(response)) => response,
        Ok(Begun::Body(_)) => unreachable!("it has no body"),
        Err(refusal) => *refusal.0,
    };
    let address = header(&response, "location").unwrap_or_default();
    (response.status().as_u16(), address)
}

#[test]
fn an_address_leaves_unfinished_uploads_to_others_and_what_it_left_alone_longest_ends() {
    let mut site = Site::new(WriteOptions {
        unfinished_max: 8,
        ..WriteOptions::default()
    });
    let (crowd, other) = ("192.0.2.1", "2001:db8::1");
    let all: Vec<String> = (0..8)
        .map(|number| create_from(&site, crowd, &format!("file-{number}")))
        .map(|(status, address)| {
            assert_eq!(status, 201, "alone it has all");
            address
        })
        .collect();
    // The last that was begun got its bytes longest ago.
    for (number, address) in (0..).zip(&all) {
        let made = SystemTime::now() - Duration::from_secs(number);
        let file = fs::File::options().write(true).open(site.data(address));
        file.expect("there").set_modified(made).expect("ours");
    }
    assert_eq!(create_from(&site, crowd, "more").0, 503);
    assert_eq!(site.patch(&all[0], 0, b"ab"), 204);
    // The server starts again: what it knows is on the disk.
    site.ledger = Arc::default();
    assert_eq!(create_from(&site, other, "other").0, 201);
    assert_eq!(site.offset(&all[0]), Ok(2), "it has bytes");
    assert_eq!(
        site.offset(&all[7]),
        Err(404),
        "it had none, and was the oldest"
    );
    assert_eq!(site.offset(&all[6]), Ok(0));
    assert_eq!(create_from(&site, crowd, "more").0, 429, "it has its share");
    // Another host of the same subscriber.
    assert_eq!(create_from(&site, "2001:db8::2", "third").0, 201);
    assert_eq!(site.offset(&all[6]), Err(404));
    assert_eq!(site.offset(&all[5]), Ok(0));
}

#[test]
fn an_upload_without_a_byte_expires_after_minutes() {
    let site = Site::new(WriteOptions::default());
    let (empty, begun) = (site.create("empty", 5), site.create("begun", 5));
    assert_eq!(site.patch(&begun, 0, b"ab"), 204);
    sweep(
        &site.uploads(),
        SystemTime::now() + Duration::from_secs(4 * 60),
    );
    assert_eq!(site.offset(&empty), Ok(0));
    sweep(
        &site.uploads(),
        SystemTime::now() + Duration::from_secs(6 * 60),
    );
    assert_eq!(site.offset(&empty), Err(404));
    assert_eq!(site.offset(&begun), Ok(2));
}

#[test]
fn a_durable_upload_is_stored_like_another() {
    let site = Site::new(WriteOptions {
        durability: Durability::Disk,
        ..WriteOptions::default()
    });
    let address = site.create("file", 4);
    assert_eq!(site.patch(&address, 0, b"ab"), 204);
    assert_eq!(site.patch(&address, 2, b"cd"), 204);
    assert_eq!(site.published()["file"], b"abcd");
}

/// Bytes of hidden files of uploads in the root.
fn unfinished_bytes(site: &Site) -> u64 {
    let entries = fs::read_dir(site.folder.path()).expect("the root");
    let entries = entries.map(|entry| entry.expect("an entry"));
    let data = entries.filter(|entry| {
        let name = entry.file_name();
        name.to_string_lossy().starts_with(".flatpath-upload-")
    });
    data.map(|entry| entry.metadata().expect("a file").len())
        .sum()
}

#[test]
fn all_unfinished_uploads_together_are_bounded_until_they_end() {
    let mut site = Site::new(WriteOptions {
        unfinished_bytes_max: Some(100),
        ..WriteOptions::default()
    });
    let counted = |site: &Site| {
        assert_eq!(site.ledger.total(), unfinished_bytes(site));
        site.ledger.total()
    };
    let begin = |site: &Site, length: &str| {
        let name = format!("filename {}", STANDARD.encode("another"));
        let headers = [("Upload-Length", length), ("Upload-Metadata", &name[..])];
        site.ask("POST", "/", &headers).status().as_u16()
    };
    let (first, second) = (site.create("first", 60), site.create("second", 60));
    assert_eq!(site.patch(&first, 0, &[1; 40]), 204);
    assert_eq!(site.patch(&second, 0, &[2; 50]), 204);
    assert_eq!(counted(&site), 90);
    assert_eq!(site.patch(&first, 40, &[1; 20]), 507);
    assert_eq!((site.offset(&first), counted(&site)), (Ok(40), 90));
    assert_eq!((begin(&site, "11"), begin(&site, "95")), (507, 413));
    // One that is ended, and one that is published.
    assert_eq!(site.ask("DELETE", &second, &[]).status(), 204);
    assert_eq!(counted(&site), 40);
    assert_eq!(site.patch(&first, 40, &[1; 20]), 204);
    assert_eq!(counted(&site), 0);
    // A body that is cut off for its checksum.
    let third = site.create("third", 90);
    assert_eq!(site.patch(&third, 0, &[3; 70]), 204);
    let wrong = format!(
        "sha1 {}",
        STANDARD.encode(Sha1::from(b"else").digest().bytes())
    );
    let headers = [("Upload-Offset", "70"), ("Upload-Checksum", &wrong[..])];
    let mut patch = site.begin("PATCH", &third, &headers).expect("begun");
    assert_eq!(site.append(&mut patch, &[4; 10]), Ok(()));
    assert_eq!(counted(&site), 80);
    assert_eq!(patch.conclude().status(), 460);
    assert_eq!(counted(&site), 70);
    // A server that starts anew counts what is there.
    site.ledger = Arc::default();
    site.ledger = Ledger::of(site.root.directory());
    assert_eq!(begin(&site, "31"), 507);
    assert_eq!(counted(&site), 70);
    let later = SystemTime::now() + Duration::from_secs(1 << 20);
    sweep(&site.uploads(), later);
    assert_eq!((counted(&site), begin(&site, "94")), (0, 201));
}
