//! What is decided first of a request: the name, then the method, then its body. So a client that
//! asks for a name that nothing is served at hears that, however long a body it announces.

use flatpath_files::{Files, WriteOptions, Writing};
use flatpath_http::Http;
use flatpath_test::{Conditions, TestServer};

const HIDDEN: [&str; 3] = ["/.secret", "/sub/.secret", "/.secret/x"];
const METHODS: [&str; 7] = ["GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS"];

/// More than any of them takes.
const TOO_LONG: &str = "Content-Length: 100000000000\r\n";

const TUS: &str = "Tus-Resumable: 1.0.0\r\nUpload-Length: 100000000000\r\n";

fn serve(directory: &std::path::Path, is_writable: bool) -> TestServer {
    let files = Files::open(directory).expect("a directory");
    let writing = match is_writable {
        true => Writing::Allowed(WriteOptions {
            bytes_max: 1_000,
            ..WriteOptions::default()
        }),
        false => Writing::Refused,
    };
    let service = Http::service(files.writable(writing));
    TestServer::new(Conditions::calm(1), service)
}

/// The status of the answer to a head, without a byte of its body.
fn status(server: &mut TestServer, method: &str, target: &str, headers: &str) -> String {
    let client = server.connect();
    let close = "Connection: close\r\n";
    let head = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{close}{headers}\r\n");
    client.write(head.as_bytes());
    let line = server.read_line(&client);
    line.split(' ').nth(1).expect("a status").to_owned()
}

#[test]
fn sim_a_body_that_is_too_long_changes_nothing_at_a_name_that_is_not_served() {
    let folder = tempfile::tempdir().expect("a directory");
    std::fs::write(folder.path().join("a.txt"), "content").expect("written");
    std::fs::write(folder.path().join(".secret"), "secret").expect("written");
    std::fs::create_dir(folder.path().join("sub")).expect("made");
    for is_writable in [false, true] {
        let mut server = serve(folder.path(), is_writable);
        for target in HIDDEN {
            for method in METHODS {
                let without = status(&mut server, method, target, "");
                for headers in [TOO_LONG, "Transfer-Encoding: chunked\r\n"] {
                    let with = status(&mut server, method, target, headers);
                    let what = format!("writable: {is_writable}, {method} {target} {headers}");
                    assert_eq!(with, without, "{what}");
                    assert!(
                        matches!(&*with, "204" | "403" | "404" | "405" | "412"),
                        "{what}: {with}"
                    );
                }
            }
        }
        // Of names that are served, what is stored has the bound.
        let bounded = |server: &mut TestServer, method| status(server, method, "/a.txt", TOO_LONG);
        let put = if is_writable { "413" } else { "405" };
        assert_eq!(bounded(&mut server, "PUT"), put);
        assert_eq!(bounded(&mut server, "GET"), "200");
        assert_eq!(bounded(&mut server, "PROPFIND"), "405");
    }
    let mut server = serve(folder.path(), true);
    assert_eq!(status(&mut server, "POST", "/new", TUS), "413");
    for target in HIDDEN {
        assert_eq!(status(&mut server, "POST", target, TUS), "403", "{target}");
    }
}

/// The head of the answer to a request that keeps its connection, without a byte of its body.
fn head(server: &mut TestServer, method: &str, headers: &str) -> String {
    let client = server.connect();
    client.write(format!("{method} /a.txt HTTP/1.1\r\nHost: h\r\n{headers}\r\n").as_bytes());
    let mut head = String::new();
    loop {
        let line = server.read_line(&client);
        if line.trim_end().is_empty() {
            return head;
        }
        // The clock goes on.
        if !line.starts_with("Date: ") {
            head += &line;
        }
    }
}

/// A worker answers what the network thread does not keep, so what a client hears would depend on
/// who asked before it.
#[test]
fn sim_a_body_of_a_method_that_reads_changes_nothing_wherever_it_is_answered() {
    let folder = tempfile::tempdir().expect("a directory");
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "content").expect("written");
    let file = std::fs::File::options().write(true).open(&path);
    let past = std::time::UNIX_EPOCH + std::time::Duration::from_secs(784_111_777);
    file.expect("ours").set_modified(past).expect("old");
    std::thread::sleep(std::time::Duration::from_millis(50));
    let framings = [
        "",
        "Content-Length: 70000\r\n",
        "Content-Length: 70000\r\nExpect: 100-continue\r\n",
        "Content-Length: 7\r\nExpect: 100-continue\r\n",
        TOO_LONG,
        "Transfer-Encoding: chunked\r\n",
    ];
    for is_writable in [false, true] {
        for method in ["GET", "HEAD", "OPTIONS"] {
            let mut kept = serve(folder.path(), is_writable);
            (0..3).for_each(|_| drop(head(&mut kept, "GET", "")));
            for framing in framings {
                let by_worker = head(&mut serve(folder.path(), is_writable), method, framing);
                let by_network_thread = head(&mut kept, method, framing);
                let what = format!("writable: {is_writable}, {method} {framing}");
                assert_eq!(by_worker, by_network_thread, "{what}");
                let is_read = by_worker.starts_with("HTTP/1.1 20");
                let ends = by_worker.contains("Connection: close");
                assert!(is_read && ends != framing.is_empty(), "{what}: {by_worker}");
            }
        }
    }
}
