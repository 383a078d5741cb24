//! Files that change, end early or are enormous while they are sent, and clients that leave them.
//!
//! The length is what the head said, or the connection ends; no byte is another file's; no other
//! connection is disturbed.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;

use flatpath_testkit::deadline::{long_patience, until_true};
use flatpath_testkit::skipped::cannot_run;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, noise};

each_driver!(
    a_file_that_is_cut_short_ends_its_downloads_and_nothing_else,
    a_file_that_changes_is_sent_as_long_as_its_head_said,
    a_file_may_be_of_any_size,
    files_that_the_kernel_makes_up_disturb_no_connection,
    downloads_that_are_left_give_back_what_they_had,
    a_directory_may_become_a_file,
    a_drain_lets_downloads_end_and_cuts_off_one_that_is_not_read,
);

/// More than lies in sockets.
pub(crate) const LARGE_BYTES: usize = 24 << 20;

/// What a client with the least window can have got, and what is on its way to it.
const WINDOW_BYTES: usize = 4096;

pub(crate) const BROKEN_OFF: &str = "the answer is broken off";

fn serve(driver: Driver, site: &Site) -> Server {
    Launch::serve(driver).directory(site.path()).start()
}

/// A client that has begun a download and reads no more of it than the head.
pub(crate) fn begin(server: &Server, target: &str) -> Client {
    let mut client = Client::connect_with_window(server.address("http"), WINDOW_BYTES);
    client.request("GET", target, &[]);
    let head = client.reply_to_head();
    assert_eq!(head.status, 200, "{head:?}");
    client
}

fn writable(path: &Path) -> File {
    let file = OpenOptions::new().write(true).open(path);
    file.expect("it is there, and ours")
}

/// Whether these are the first bytes of a file that was cut short: where it was, the kernel has
/// zeros in the pages that are on their way.
fn is_of(received: &[u8], content: &[u8]) -> bool {
    let mut pairs = received.iter().zip(content);
    pairs.all(|(byte, old)| byte == old || *byte == 0)
}

/// Whether each byte is the one or the other; whole pages first, because most are.
fn is_either(received: &[u8], old: &[u8], new: &[u8]) -> bool {
    const PAGE: usize = 4096;
    let pages = old.chunks(PAGE).zip(new.chunks(PAGE));
    received.chunks(PAGE).zip(pages).all(|(page, (old, new))| {
        let mut pairs = page.iter().zip(old.iter().zip(new));
        page == old || page == new || pairs.all(|(byte, (old, new))| byte == old || byte == new)
    })
}

fn a_file_that_is_cut_short_ends_its_downloads_and_nothing_else(driver: Driver) {
    let content = noise(1, LARGE_BYTES);
    let site = Site::new().with("large", &content).with("small", "small");
    let server = serve(driver, &site);
    let mut neighbour = server.client();
    // A worker opens it for the first one; the network thread has it open for the others.
    let mut clients: Vec<_> = (0..3).map(|_| begin(&server, "/large")).collect();
    assert_eq!(neighbour.get("/small").text(), "small");
    writable(&site.at("large")).set_len(10).expect("cut");
    for client in &mut clients {
        let (received, _) = client.rest();
        assert!(received.len() < LARGE_BYTES, "nothing is made up");
        assert!(is_of(&received, &content), "nor are its bytes");
        assert_eq!(neighbour.get("/small").text(), "small");
    }
    until_true("a line for each download", || {
        server.log().matches(BROKEN_OFF).count() == clients.len()
    });
    until_true("its length is seen", || {
        neighbour.get("/large").body == content[..10]
    });
    let log = server.end();
    assert_eq!(log.matches(BROKEN_OFF).count(), clients.len(), "{log}");
}

fn a_file_that_changes_is_sent_as_long_as_its_head_said(driver: Driver) {
    let (before, after) = (noise(2, LARGE_BYTES), noise(3, LARGE_BYTES));
    let replace = |at: &Path| {
        let other = at.with_extension("other");
        std::fs::write(&other, &after).expect("written");
        std::fs::rename(other, at).expect("replaced");
    };
    let remove = |at: &Path| std::fs::remove_file(at).expect("removed");
    let extend = |at: &Path| {
        let file = writable(at);
        file.write_all_at(&after, before.len() as u64)
            .expect("longer");
    };
    let overwrite = |at: &Path| writable(at).write_all_at(&after, 0).expect("overwritten");
    type Change<'a> = &'a dyn Fn(&Path);
    let changes: [(&str, Change<'_>, bool); 4] = [
        ("replaced", &replace, true),
        ("removed", &remove, true),
        ("extended", &extend, true),
        ("overwritten", &overwrite, false),
    ];
    let site = Site::new().with("small", "small");
    for (name, ..) in changes {
        site.write(name, &before);
    }
    let server = serve(driver, &site);
    for (name, change, is_kept) in changes {
        let mut client = server.client().patient(long_patience());
        client.request("GET", &format!("/{name}"), &[]);
        let head = client.reply_to_head();
        assert_eq!(head.field("content-length"), Some("25165824"), "{name}");
        let mut received = client.exactly(1_000);
        change(&site.at(name));
        received.extend(client.exactly(LARGE_BYTES - received.len()));
        match is_kept {
            true => assert!(received == before, "{name}"),
            false => assert!(is_either(&received, &before, &after), "{name}"),
        }
        // Nothing follows it but the next reply.
        assert_eq!(client.get("/small").text(), "small", "{name}");
    }
    let mut client = server.client().patient(long_patience());
    until_true("all changes are seen", || {
        client.get("/replaced").body == after
            && client.get("/removed").status == 404
            && client.get("/extended").body.len() == 2 * LARGE_BYTES
            && client.get("/overwritten").body == after
    });
    let log = server.end();
    assert!(!log.contains(BROKEN_OFF), "{log}");
}

fn a_file_may_be_of_any_size(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    for bytes in [0, 1 << 31, 1 << 32, 1 << 43] {
        let name = format!("{bytes}");
        let file = File::create(site.at(&name)).expect("made");
        if file.set_len(bytes).is_err() {
            cannot_run("files of 8 TiB");
            continue;
        }
        if bytes > 0 {
            file.write_all_at(b"the end", bytes - 7).expect("written");
        }
        let target = format!("/{name}");
        let mut client = server.client();
        client.request("HEAD", &target, &[]);
        let head = client.reply_to_head();
        assert_eq!(
            (head.status, head.field("content-length")),
            (200, Some(&*name))
        );
        // Of a worker, and of the network thread.
        for _ in 0..2 {
            if bytes > 0 {
                let beyond = format!("bytes={bytes}-");
                assert_eq!(client.ask(&target, &[("Range", &beyond)]).status, 416);
                let end = client.ask(&target, &[("Range", "bytes=-7")]);
                assert_eq!((end.status, end.text()), (206, "the end"));
                let several = format!("bytes=0-2,{}-", bytes - 3);
                let parts = client.ask(&target, &[("Range", &several)]);
                assert_eq!(parts.status, 206);
                assert!(parts.body.windows(7).any(|window| window == b"\r\n\r\nend"));
            }
        }
        if bytes == 0 {
            assert_eq!(client.get(&target).body, b"");
            continue;
        }
        // All of it begins, and can be left.
        begin(&server, &target).reset();
    }
    server.end();
}

/// Their sizes say nothing of what is in them.
fn files_that_the_kernel_makes_up_disturb_no_connection(driver: Driver) {
    for directory in ["/proc/sys/kernel", "/sys/kernel"] {
        if std::fs::read_dir(directory).is_err() {
            cannot_run(directory);
            continue;
        }
        let server = Launch::serve(driver)
            .directory(Path::new(directory))
            .start();
        let mut neighbour = server.client();
        for name in ["/ostype", "/uevent_seqnum", "/vmcoreinfo", "/notes"] {
            let mut client = server.client();
            client.request("GET", name, &[("Connection", "close")]);
            let (reply, _) = client.rest();
            assert!(reply.starts_with(b"HTTP/1.1 "), "{name}");
            assert_eq!(neighbour.get("/no-such-file").status, 404);
        }
        server.end();
    }
}

fn downloads_that_are_left_give_back_what_they_had(driver: Driver) {
    let site = Site::new().with("large", noise(4, LARGE_BYTES));
    site.settle();
    let server = serve(driver, &site);
    // From now on it is kept open.
    assert_eq!(server.client().get("/large").body.len(), LARGE_BYTES);
    let before = server.settled_descriptors();
    let clients: Vec<_> = (0..40).map(|_| begin(&server, "/large")).collect();
    // It may have been closed meanwhile, and opened again.
    let descriptors = server.process().descriptors();
    assert!(
        descriptors <= before + clients.len() + 1,
        "the file is open once"
    );
    for (number, mut client) in clients.into_iter().enumerate() {
        match number % 3 {
            0 => client.reset(),
            1 => drop(client),
            _ => {
                // Byte by byte, then no more.
                for _ in 0..10 {
                    client.exactly(1);
                }
            }
        }
    }
    until_true("the descriptors are back", || {
        server.process().descriptors() <= before + 1
    });
    let log = server.end();
    assert!(!log.contains(BROKEN_OFF), "the file did nothing: {log}");
}

fn a_directory_may_become_a_file(driver: Driver) {
    let content = noise(5, LARGE_BYTES);
    let site = Site::new().with("place/index.html", "a page");
    let server = serve(driver, &site);
    let mut client = server.client().patient(long_patience());
    for _ in 0..3 {
        assert_eq!(client.get("/place/").text(), "a page");
    }
    std::fs::remove_dir_all(site.at("place")).expect("removed");
    site.write("place", &content);
    until_true("it is a file", || client.get("/place").body == content);
    until_true("and no directory", || client.get("/place/").status == 404);
    std::fs::remove_file(site.at("place")).expect("removed");
    site.write("place/index.html", "a page");
    until_true("it is one again", || {
        client.get("/place/").text() == "a page"
    });
    server.end();
}

fn a_drain_lets_downloads_end_and_cuts_off_one_that_is_not_read(driver: Driver) {
    let content = noise(6, LARGE_BYTES);
    let site = Site::new().with("large", &content);
    let launch = Launch::serve(driver).with(["--drain-timeout", "3"]);
    let mut server = launch.directory(site.path()).start();
    let mut reads = server.client().patient(long_patience());
    reads.request("GET", "/large", &[]);
    assert_eq!(reads.reply_to_head().status, 200);
    let mut unread = begin(&server, "/large");
    server.terminate();
    server.await_log("draining");
    assert!(reads.exactly(LARGE_BYTES) == content, "all of it comes");
    assert!(server.exit_status().success());
    let (received, _) = unread.rest();
    assert!(received.len() < LARGE_BYTES && received == content[..received.len()]);
}
