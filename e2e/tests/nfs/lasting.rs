//! With `--durable` an answer to PUT and to uploads by tus counts nothing that is not on the disk,
//! and without it nothing that the file system reports lost: on a file system that forgets what was
//! not synced, and fails on request.

use flatpath_testkit::lossy::{Cache, Lossy, Operation};
use flatpath_testkit::{Client, Driver, Launch, Reply, Server, Site, each_driver, noise, until};

each_driver!(
    a_file_that_was_put_lasts,
    names_that_were_answered_for_last_a_crash,
    bytes_of_an_upload_that_were_counted_last,
    what_a_close_reports_is_told_to_the_client,
    model_uploads_that_are_told_complete_last_whatever_fails,
);

const IO: i32 = rustix::io::Errno::IO.raw_os_error();
const PATCHED: (&str, &str) = ("Content-Type", "application/offset+octet-stream");

/// Fields are dropped in this order: the server before what it serves.
struct Served {
    server: Server,
    lossy: Lossy,
    _site: Site,
}

fn serve<'a>(driver: Driver, options: impl IntoIterator<Item = &'a str>) -> Option<Served> {
    let site = Site::new();
    let lossy = Lossy::try_mount(&site.at("lossy"), Cache::Through)?;
    let server = Launch::serve(driver)
        .directory(lossy.path())
        .with(["--writable"])
        .with(options)
        .start();
    Some(Served {
        server,
        lossy,
        _site: site,
    })
}

impl Served {
    fn put(&self, target: &str, body: &[u8]) -> u16 {
        let length = body.len().to_string();
        let mut client = self.server.client();
        client.request("PUT", target, &[("Content-Length", &length)]);
        client.send(body);
        client.reply().status
    }

    /// A request of tus.
    fn ask(&self, method: &str, target: &str, more: &[(&str, &str)], body: &[u8]) -> Reply {
        let length = body.len().to_string();
        let fixed = [("Tus-Resumable", "1.0.0"), ("Content-Length", &length)];
        let mut client: Client = self.server.client();
        client.request(method, target, &[&fixed, more].concat());
        client.send(body);
        match method {
            "HEAD" => client.reply_to_head(),
            _ => client.reply(),
        }
    }

    /// Waits for the closes that come after the answers.
    fn await_closes(&self) {
        until("files to be closed", || {
            (self.lossy.open_files() == 0).then_some(())
        });
    }

    fn create(&self, target: &str, length: usize) -> String {
        let reply = self.ask(
            "POST",
            target,
            &[("Upload-Length", &length.to_string())],
            b"",
        );
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.field("location").expect("an address").to_owned()
    }

    /// PATCH: the offset that the answer counts.
    fn patch(&self, upload: &str, offset: usize, body: &[u8]) -> Result<usize, u16> {
        let offset = offset.to_string();
        let fields = [PATCHED, ("Upload-Offset", &offset)];
        offset_of(&self.ask("PATCH", upload, &fields, body))
    }

    /// HEAD.
    fn offset(&self, upload: &str) -> Result<usize, u16> {
        offset_of(&self.ask("HEAD", upload, &[], b""))
    }
}

fn offset_of(reply: &Reply) -> Result<usize, u16> {
    match reply.status {
        200 | 204 => {
            let offset = reply.field("upload-offset").expect("success has an offset");
            Ok(offset.parse().expect("a number"))
        }
        status => Err(status),
    }
}

/// Where the bytes of an upload gather.
fn hidden(upload: &str) -> String {
    let number = upload.rsplit('/').next().expect("an address");
    format!(".flatpath-upload-{number}")
}

fn a_file_that_was_put_lasts(driver: Driver) {
    let Some(served) = serve(driver, ["--durable"]) else {
        return;
    };
    let lossy = &served.lossy;
    let (old, new) = (noise(1, 3_000_000), noise(2, 2_000_000));
    assert_eq!(served.put("/file", &old), 201);
    assert!(lossy.lasting("file") == Some(old.clone()));
    for operation in [Operation::Write, Operation::Sync, Operation::SyncDirectory] {
        lossy.fail(operation, 1, IO);
        assert_eq!(served.put("/file", &new), 500, "{operation:?}");
        lossy.heal();
        let lasting = lossy.lasting("file").expect("one of the two");
        assert!(lasting == old, "{operation:?}");
    }
    assert_eq!(served.put("/file", &new), 204);
    assert!(lossy.lasting("file") == Some(new));
}

/// Each name that a client was told of, new or replaced, wherever it is, by each way to write.
fn names_that_were_answered_for_last_a_crash(driver: Driver) {
    let Some(served) = serve(driver, ["--durable"]) else {
        return;
    };
    let lossy = &served.lossy;
    let form = |field: &str, content: &str| {
        let body = format!(
            "--b\r\nContent-Disposition: form-data; name={field}\r\n\r\n{content}\r\n--b--\r\n"
        );
        let media = ("Content-Type", "multipart/form-data; boundary=b");
        let length = body.len().to_string();
        let mut client = served.server.client();
        client.request("POST", "/", &[media, ("Content-Length", &length)]);
        client.send(&body);
        client.reply().status
    };
    assert_eq!(form("directory", "sub"), 303);
    assert_eq!(served.put("/sub/new", b"1"), 201);
    assert!(lossy.lasting("sub/new").as_deref() == Some(b"1"));
    assert_eq!(served.put("/sub/new", b"2"), 204);
    assert_eq!(served.put("/top", b"3"), 201);
    assert_eq!(served.put("/empty", b""), 201);
    assert_eq!(form("file; filename=formed", "4"), 303);
    let upload = served.create("/sub/resumed", 1);
    assert_eq!(served.patch(&upload, 0, b"5"), Ok(1));
    lossy.crash();
    for (name, content) in [
        ("sub/new", "2"),
        ("top", "3"),
        ("empty", ""),
        ("formed", "4"),
        ("sub/resumed", "5"),
    ] {
        let lasting = lossy.lasting(name);
        assert_eq!(lasting.as_deref(), Some(content.as_bytes()), "{name}");
    }
    lossy.restart();
}

fn bytes_of_an_upload_that_were_counted_last(driver: Driver) {
    let Some(served) = serve(driver, ["--durable"]) else {
        return;
    };
    let lossy = &served.lossy;
    let whole = noise(3, 3_000_000);
    let (first, rest) = whole.split_at(1_000_000);
    let upload = served.create("/file", whole.len());
    assert_eq!(served.patch(&upload, 0, first), Ok(first.len()));
    assert!(lossy.lasting(hidden(&upload)).as_deref() == Some(first));

    // The kernel tells of a loss once; from then on it takes the file for synced.
    let second = first.len() + 500_000;
    lossy.fail_after(Operation::Sync, 2, 1, IO);
    assert_eq!(
        served.patch(&upload, first.len(), &rest[..500_000]),
        Err(500)
    );
    lossy.lose(hidden(&upload));
    lossy.heal();
    assert_eq!(served.offset(&upload), Err(500), "it learns of the loss");
    let offset = served.offset(&upload);
    assert!(offset == Ok(first.len()) || offset == Ok(0), "{offset:?}");
    let mut offset = offset.expect("checked");
    if offset == 0 {
        offset = served.patch(&upload, 0, first).expect("sent again");
    }
    assert_eq!(
        served.patch(&upload, offset, &whole[offset..second]),
        Ok(second)
    );
    assert!(lossy.lasting(hidden(&upload)).as_deref() == Some(&whole[..second]));

    // The name: its directory is the last that is synced.
    let syncs = lossy.count(Operation::SyncDirectory);
    let other = served.create("/other", 4);
    let before = lossy.count(Operation::SyncDirectory);
    assert_eq!(served.patch(&other, 0, b"text"), Ok(4));
    let of_patch = lossy.count(Operation::SyncDirectory) - before;
    assert!(before > syncs && of_patch > 0);
    lossy.fail_after(Operation::SyncDirectory, of_patch - 1, 2, IO);
    assert_eq!(served.patch(&upload, second, &whole[second..]), Err(500));
    assert!(
        served.offset(&upload).is_err(),
        "its name is not on the disk"
    );
    lossy.heal();
    assert_eq!(served.offset(&upload), Ok(whole.len()));
    assert!(lossy.lasting("file") == Some(whole));
    assert!(lossy.lasting("other").as_deref() == Some(b"text"));
}

fn what_a_close_reports_is_told_to_the_client(driver: Driver) {
    let Some(served) = serve(driver, []) else {
        return;
    };
    let lossy = &served.lossy;
    let full = rustix::io::Errno::NOSPC.raw_os_error();
    assert_eq!(served.put("/file", b"old"), 201);
    for (errno, status) in [(full, 507), (IO, 500)] {
        served.await_closes();
        lossy.fail(Operation::Flush, 1, errno);
        assert_eq!(served.put("/file", b"new"), status);
        assert_eq!(served.server.client().get("/file").text(), "old");
        served.await_closes();
        lossy.fail(Operation::Flush, 1, errno);
        assert_eq!(served.put("/other", b"new"), status);
        assert_eq!(served.server.client().get("/other").status, 404);
    }
    lossy.heal();
    // Each close of a PATCH in turn; that of a file which was only read has nothing to report.
    let mut told = 0;
    for failing in 0.. {
        let upload = served.create("/other", 4);
        served.await_closes();
        let before = lossy.count(Operation::Flush);
        lossy.fail_after(Operation::Flush, failing, 1, full);
        let counted = served.patch(&upload, 0, b"text");
        served.await_closes();
        lossy.heal();
        if lossy.count(Operation::Flush) - before <= failing {
            break;
        }
        if counted.is_err() {
            assert_eq!(counted, Err(507), "close {failing}");
            told += 1;
            let offset = served.offset(&upload).expect("told");
            let rest = &b"text"[offset..];
            assert!(offset == 4 || served.patch(&upload, offset, rest) == Ok(4));
        }
        let text = std::fs::read(lossy.path().join("other")).expect("published");
        assert!(text == b"text");
    }
    // The record before the first byte and before the name, the data after them.
    assert!(told >= 3, "{told}");
}

fn model_uploads_that_are_told_complete_last_whatever_fails(driver: Driver) {
    const UPLOADS: u64 = 12;
    /// Requests until an upload must be through.
    const REQUESTS_MAX: usize = 400;
    let Some(served) = serve(driver, ["--durable"]) else {
        return;
    };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let lossy = &served.lossy;
    for number in 0..UPLOADS {
        let (name, whole) = (
            format!("file-{number}"),
            noise(number, random.usize(1..1_000_000)),
        );
        let upload = served.create(&format!("/{name}"), whole.len());
        let mut requests = 0;
        let mut offset = 0;
        while offset < whole.len() {
            requests += 1;
            assert!(requests < REQUESTS_MAX, "it comes to an end");
            match random.u8(..6) {
                0 => lossy.lose_all(),
                1 => lossy.fail_after(Operation::Sync, random.u64(..4), 1, IO),
                2 => lossy.fail_after(Operation::SyncDirectory, random.u64(..4), 1, IO),
                3 => lossy.fail_after(Operation::Write, random.u64(..3), 1, IO),
                _ => lossy.heal(),
            }
            let end = random.usize(offset + 1..=whole.len());
            let counted = served.patch(&upload, offset, &whole[offset..end]);
            if counted == Ok(whole.len()) {
                break;
            }
            // Told what is there: as a client that resumes, or one that was told by the answer.
            offset = match counted {
                Ok(counted) if random.bool() => counted,
                _ => served.offset(&upload).unwrap_or(offset),
            };
            if offset < whole.len() && served.offset(&upload) == Ok(offset) {
                let counted = lossy.lasting(hidden(&upload)).unwrap_or_default();
                assert!(
                    counted.starts_with(&whole[..offset]),
                    "{offset} were counted"
                );
            }
        }
        assert!(
            lossy.lasting(&name) == Some(whole),
            "{name} was told complete"
        );
        lossy.heal();
    }
}
