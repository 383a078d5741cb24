//! One address that takes all it can get of a bound leaves room to others: files, connections, and
//! uploads that are unfinished.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use flatpath_testkit::{Client, Driver, Launch, Reply, Server, Site, each_driver};

each_driver!(
    stopped_uploads_of_one_address_leave_files_to_others,
    slow_transfers_of_one_address_close_no_kept_connection_of_another,
    unfinished_uploads_of_one_address_leave_some_to_others,
);

const DESCRIPTORS: u64 = 256;
const SMALL: &str = "small";
/// More than the kernel takes of it for a client that does not read.
const LARGE_BYTES: usize = 10 << 20;
const CROWD: &str = "127.0.66.1";

fn serve(driver: Driver, more: &[&str]) -> (Server, Site) {
    let site = Site::new().with("small", SMALL);
    site.write_hole("large", LARGE_BYTES as u64);
    let server = Launch::serve(driver)
        .descriptors(DESCRIPTORS)
        .with(["--writable"])
        .with(more)
        .directory(site.path())
        .start();
    (server, site)
}

fn from(server: &Server, host: &str) -> Client {
    let from = SocketAddr::new(host.parse().expect("an address"), 0);
    Client::connect_from(from, server.address("http"))
}

/// An upload of which nothing more comes.
fn stopped_upload(server: &Server, host: &str, number: usize) -> Client {
    let mut client = from(server, host);
    let fields = [("Content-Length", "1000000"), ("Expect", "100-continue")];
    client.request("PUT", &format!("/stopped-{number}"), &fields);
    client
}

fn status_of(client: &mut Client) -> String {
    let line = String::from_utf8(client.exactly("HTTP/1.1 200".len())).expect("ASCII");
    line[9..].to_owned()
}

fn stopped_uploads_of_one_address_leave_files_to_others(driver: Driver) {
    const OTHERS: usize = 20;
    // Those that stay with an upload of their own: each has little beside the crowd.
    const STAYING: usize = 12;
    let (server, _site) = serve(driver, &[]);
    // One at a time: in a burst the server does not know yet whose the first ones are.
    let crowd = (0..60).map(|number| {
        let mut client = stopped_upload(&server, CROWD, number);
        (status_of(&mut client), client)
    });
    let crowd: Vec<(String, Client)> = crowd.collect();
    let refused = crowd.iter().filter(|(status, _)| status == "503");
    assert!(refused.count() > 0, "it has taken all there is");
    let mut others = Vec::new();
    for number in 1..=OTHERS {
        let host = format!("127.0.77.{number}");
        if number <= STAYING {
            let mut stopped = stopped_upload(&server, &host, 1_000 + number);
            assert_eq!(status_of(&mut stopped), "100", "{host}");
            others.push(stopped);
        }
        let mut client = from(&server, &host);
        client.request("PUT", &format!("/new-{host}"), &[("Content-Length", "3")]);
        client.send(b"abc");
        assert_eq!(client.reply().status, 201, "{host}");
        let reply = client.get("/large");
        assert_eq!(
            (reply.status, reply.body.len()),
            (200, LARGE_BYTES),
            "{host}"
        );
    }
    let log = server.log();
    assert!(log.contains("has more than its share"), "{log}");
}

fn slow_transfers_of_one_address_close_no_kept_connection_of_another(driver: Driver) {
    const KEPT: usize = 10;
    const DOWNLOADS: usize = 300;
    const UPLOADS: usize = 100;
    let (server, site) = serve(driver, &[]);
    let kept = |_| from(&server, "127.0.77.1");
    let mut kept: Vec<Client> = (0..KEPT).map(kept).collect();
    let mut ask_all = || {
        for client in &mut kept {
            assert_eq!(client.get("/small").text(), SMALL);
        }
    };
    let mut crowd = Vec::new();
    for number in 0..DOWNLOADS + UPLOADS {
        crowd.push(match number < DOWNLOADS {
            true => {
                // Of a file of its own: one that is kept open is one descriptor for all.
                let name = format!("large-{number}");
                site.write_hole(&name, LARGE_BYTES as u64);
                let mut client = from(&server, CROWD);
                client.request("GET", &format!("/{name}"), &[]);
                client
            }
            false => stopped_upload(&server, CROWD, number),
        });
        if number % 20 == 0 {
            std::thread::sleep(Duration::from_millis(10));
            ask_all();
        }
    }
    let end = Instant::now() + Duration::from_millis(500);
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
        ask_all();
    }
    // A client that is new is served too.
    assert_eq!(from(&server, "127.0.77.2").get("/small").text(), SMALL);
}

fn unfinished_uploads_of_one_address_leave_some_to_others(driver: Driver) {
    const UPLOADS: usize = 16;
    let (server, _site) = serve(driver, &["--uploads-max", "16"]);
    let create = |host: &str, number: usize| -> Reply {
        let fields = [
            ("Tus-Resumable", "1.0.0"),
            ("Content-Length", "0"),
            ("Upload-Length", "5"),
        ];
        let mut client = from(&server, host);
        client.request("POST", &format!("/upload-{number}"), &fields);
        client.reply()
    };
    for number in 0..UPLOADS {
        assert_eq!(create(CROWD, number).status, 201, "alone it has all");
    }
    assert_eq!(create(CROWD, UPLOADS).status, 503);
    for host in 1..=4 {
        let reply = create(&format!("127.0.77.{host}"), 100 + host);
        assert_eq!(reply.status, 201, "{}", reply.text());
        let refused = create(CROWD, UPLOADS);
        assert_eq!(refused.status, 429, "it has its share");
        assert_eq!(refused.field("retry-after"), Some("60"));
    }
}
