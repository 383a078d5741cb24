//! The description and the service agree: over real sockets, with both drivers, and in the
//! simulation.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use flatpath::{DriverChoice, Server};
use flatpath_example_openapi::tasks;
use flatpath_http::Http;
use flatpath_test::{Conditions, TestServer, each_seed};
use serde_json::Value;

/// Far beyond what anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Asks, and gives the status, the head and the content of the reply.
type Ask<'a> = &'a mut dyn FnMut(&str) -> String;

struct Reply {
    status: u16,
    head: String,
    content: String,
}

const JSON: &str = "application/json";

fn ask(ask: Ask<'_>, method: &str, path: &str, (of_type, body): (&str, &str)) -> Reply {
    let (method, length) = (method.to_ascii_uppercase(), body.len());
    let reply = ask(&format!(
        "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
         Content-Type: {of_type}\r\nContent-Length: {length}\r\n\r\n{body}"
    ));
    let (head, content) = reply.split_once("\r\n\r\n").expect("a whole head");
    Reply {
        status: head[9..12].parse().expect("a status"),
        head: head.to_ascii_lowercase(),
        content: content.to_owned(),
    }
}

/// Asks every operation that is documented, so that each documented status is seen and no other,
/// with content of the documented type.
fn agree(send: Ask<'_>) {
    let task = (JSON, r#"{"text":"a"}"#);
    let document = ask(send, "get", "/openapi.json", (JSON, ""));
    let document: Value = serde_json::from_str(&document.content).expect("JSON");
    assert_eq!(document["info"]["title"], "Tasks");
    let mut operations = 0;
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let known: Value =
                serde_json::from_str(&ask(send, "post", "/tasks", task).content).expect("a task");
            let mut paths = vec![path.replace("{id}", &known["id"].to_string())];
            if path.contains("{id}") {
                paths.extend(["7777", "one"].map(|id| path.replace("{id}", id)));
            }
            if operation["parameters"][0]["in"] == "query" {
                paths.push(format!("{path}?done=maybe"));
            }
            let bodies = match operation.get("requestBody") {
                Some(_) => vec![task, (JSON, "{}"), (JSON, "{"), ("text/plain", "a")],
                None => vec![(JSON, "")],
            };
            let documented = operation["responses"].as_object().expect("responses");
            let mut seen = BTreeSet::new();
            for path in &paths {
                for body in &bodies {
                    let reply = ask(send, method, path, *body);
                    let status = reply.status.to_string();
                    let expected = documented.get(&status);
                    let expected = expected.unwrap_or_else(|| panic!("{method} {path}: {status}"));
                    let of_type = expected["content"]
                        .as_object()
                        .and_then(|it| it.keys().next());
                    let is_sent = |it| reply.head.contains(&format!("content-type: {it}"));
                    assert!(
                        of_type.is_none_or(is_sent),
                        "{method} {path}: {}",
                        reply.head
                    );
                    seen.insert(status);
                }
            }
            let documented: BTreeSet<_> = documented.keys().cloned().collect();
            assert_eq!(seen, documented, "{method} {path}");
            operations += 1;
        }
    }
    assert_eq!(operations, 4);
    for (method, path, status) in [("get", "/nothing", 404), ("put", "/tasks", 405)] {
        let reply = ask(send, method, path, (JSON, ""));
        assert_eq!(reply.status, status);
        assert!(
            reply
                .head
                .contains("content-type: application/problem+json"),
            "{}",
            reply.head
        );
    }
}

#[test]
fn the_description_is_true_over_real_sockets() {
    for choice in [DriverChoice::Auto, DriverChoice::Epoll] {
        let service = Http::service(tasks());
        let server = Server::new().driver(choice).listen("127.0.0.1:0", service);
        let running = server.start().expect("start");
        let address = running.addresses()[0].address;
        agree(&mut |request| {
            let mut client = TcpStream::connect(address).expect("connect");
            client.set_read_timeout(Some(PATIENCE)).expect("settable");
            client.write_all(request.as_bytes()).expect("write");
            let mut reply = String::new();
            client.read_to_string(&mut reply).expect("read");
            reply
        });
        running.handle().drain();
        running.wait().expect("it ends");
    }
}

#[test]
fn sim_the_description_is_true_whatever_the_kernel_does() {
    each_seed(3, |seed| {
        let service = Http::service(tasks());
        let mut server = TestServer::new(Conditions::rough(seed), service);
        agree(&mut |request| {
            let client = server.connect();
            client.write(request.as_bytes());
            String::from_utf8(server.read_to_end(&client)).expect("UTF-8")
        });
    });
}
