//! Notes are made, read and removed over real sockets, with both drivers.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use flatpath::{DriverChoice, Running, Server};
use flatpath_example_rest_sqlite::notes;
use flatpath_http::Http;

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
const WRITERS: usize = 8;
const NOTES_EACH: usize = 5;

fn start(choice: DriverChoice, directory: &tempfile::TempDir) -> Running {
    let notes = notes(directory.path().join("notes.db")).expect("a database");
    let service = Http::service(notes);
    let server = Server::new().driver(choice).listen("127.0.0.1:0", service);
    server.start().expect("start")
}

/// The reply to one request on a connection of its own.
fn ask(address: SocketAddr, line: &str, body: &str) -> String {
    let mut client = TcpStream::connect(address).expect("connect");
    client.set_read_timeout(Some(PATIENCE)).expect("settable");
    let length = body.len();
    let head = format!("{line} HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n");
    let of_type = "Content-Type: application/json\r\n";
    let request = format!("{head}{of_type}Connection: close\r\n\r\n{body}");
    client.write_all(request.as_bytes()).expect("write");
    let mut reply = String::new();
    client.read_to_string(&mut reply).expect("read");
    reply
}

#[test]
fn a_note_lives_from_post_to_delete() {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let directory = tempfile::tempdir().expect("temporary directory");
        let running = start(choice, &directory);
        let address = running.addresses()[0].address;
        let made = ask(address, "POST /notes", r#"{"text":"buy milk"}"#);
        assert!(made.starts_with("HTTP/1.1 201 "), "{made}");
        assert!(made.ends_with(r#"{"id":1,"text":"buy milk"}"#), "{made}");
        let found = ask(address, "GET /notes/1", "");
        assert!(found.ends_with(r#"{"id":1,"text":"buy milk"}"#), "{found}");
        let all = ask(address, "GET /notes", "");
        assert!(all.ends_with(r#"[{"id":1,"text":"buy milk"}]"#), "{all}");
        let later = ask(address, "GET /notes?after=1", "");
        assert!(later.ends_with("\r\n\r\n[]"), "{later}");
        for (line, body, status) in [
            ("DELETE /notes/1", "", "204"),
            ("DELETE /notes/1", "", "404"),
            ("GET /notes/1", "", "404"),
            ("GET /notes/one", "", "400"),
            ("GET /notes?after=one", "", "400"),
            ("GET /elsewhere", "", "404"),
            ("PUT /notes/1", "", "405"),
            ("POST /notes", "milk", "400"),
            ("POST /notes", "{}", "422"),
        ] {
            let reply = ask(address, line, body);
            assert!(
                reply.starts_with(&format!("HTTP/1.1 {status} ")),
                "{line}: {reply}"
            );
        }
        running.handle().drain();
        running.wait().expect("it ends");
    }
}

#[test]
fn many_workers_write_at_once() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let running = start(DriverChoice::Auto, &directory);
    let address = running.addresses()[0].address;
    thread::scope(|scope| {
        for _ in 0..WRITERS {
            scope.spawn(|| {
                for _ in 0..NOTES_EACH {
                    let reply = ask(address, "POST /notes", r#"{"text":"x"}"#);
                    assert!(reply.starts_with("HTTP/1.1 201 "), "{reply}");
                }
            });
        }
    });
    let all = ask(address, "GET /notes", "");
    assert_eq!(all.matches("\"id\"").count(), WRITERS * NOTES_EACH, "{all}");
    running.handle().drain();
    running.wait().expect("it ends");
}
