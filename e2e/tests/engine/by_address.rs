//! One address has all of something, and keeps it: a newcomer from another one is served, within
//! the client's patience. Each entry of the list of what is shared out by address is tried.

use std::net::UdpSocket;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use flatpath::address_limit::ByAddress;
use flatpath::datagrams::{Datagram, DatagramService, Next, Reply as DatagramReply};
use flatpath::{DriverChoice, WorkerScope};
use flatpath_echo::Echo;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, until};

each_driver!(a_newcomer_is_served_where_one_address_has_all);

fn a_newcomer_is_served_where_one_address_has_all(driver: Driver) {
    for what in ByAddress::ALL {
        // A scene that fails says which it is.
        eprintln!("one address has all {}", what.name());
        match what {
            ByAddress::Connections => connections(driver),
            ByAddress::Jobs => jobs(driver),
            ByAddress::Workers => workers(driver),
            ByAddress::Lasting => lasting(driver),
            ByAddress::Memory => memory(driver),
            ByAddress::Files => files(driver),
            ByAddress::Datagrams => datagrams(driver),
            ByAddress::Archives => archives(driver),
            ByAddress::Uploads => uploads(driver),
            ByAddress::UploadBytes => upload_bytes(driver),
            ByAddress::Compressed => compressed(driver),
            other => panic!("{other:?} has no scene"),
        }
    }
}

const CROWD: u8 = 80;
const NEWCOMER: u8 = 2;
/// More than the kernel takes for a client that does not read.
const LONG: u64 = 1 << 30;

fn from(host: u8, server: &Server) -> Client {
    Client::connect_from(([127, 0, 0, host], 0).into(), server.address("http"))
}

/// So many clients of one address that ask and do not read.
fn crowd(server: &Server, count: usize, target: &str) -> Vec<Client> {
    let mut clients: Vec<_> = (0..count).map(|_| from(CROWD, server)).collect();
    for client in &mut clients {
        client.request("GET", target, &[("Accept-Encoding", "gzip")]);
    }
    clients
}

fn handlers(driver: Driver, flags: &[&str]) -> Server {
    Launch::handlers(driver).with(flags).start()
}

/// Handlers that run, of all clients.
fn active(server: &Server) -> usize {
    let text = from(NEWCOMER, server).get("/active").text().to_owned();
    text.parse().expect("a number")
}

fn connections(driver: Driver) {
    let server = handlers(driver, &["--max-connections", "64"]);
    let _crowd = crowd(&server, 80, &format!("/zeros/{LONG}"));
    for _ in 0..4 {
        assert_eq!(from(NEWCOMER, &server).get("/hello").text(), "hello");
    }
    // A body that is gathered before its handler runs has no job.
    let server = handlers(driver, &["--max-connections", "64"]);
    let mut slow: Vec<_> = (0..80).map(|_| from(CROWD, &server)).collect();
    for client in &mut slow {
        let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n";
        // Some are ended for others by then.
        let _sent = client.try_send(format!("{head}its begin"));
    }
    for _ in 0..4 {
        assert_eq!(from(NEWCOMER, &server).get("/hello").text(), "hello");
    }
    // What the kernel sends of a file that is kept open has no job, and no descriptor of its own.
    let site = site();
    site.settle();
    let server = serve(driver, &site, &["--max-connections", "64"]);
    for mut first in crowd(&server, 2, "/large") {
        assert_eq!(status(&mut first), "200");
    }
    let _crowd = crowd(&server, 80, "/large");
    for _ in 0..4 {
        assert_eq!(from(NEWCOMER, &server).get("/small").text(), "small");
    }
    // Of a pair nothing is at work here.
    let flags = ["--relay", "127.0.0.1:0", "--max-connections", "64"];
    let server = serve(driver, &site, &flags);
    let side = |number: usize| {
        let relay = server.address("relay");
        let mut client = Client::connect_from(([127, 0, 0, CROWD], 0).into(), relay);
        let (token, side) = (number / 2, number % 2);
        client.send(format!("please relay {token:064x} for side {side:016x}\n"));
        client
    };
    let mut pairs: Vec<_> = (0..64).map(side).collect();
    for client in &mut pairs {
        assert_eq!(client.exactly(3), b"ok\n");
    }
    for _ in 0..4 {
        assert_eq!(from(NEWCOMER, &server).get("/small").text(), "small");
    }
}

fn jobs(driver: Driver) {
    let flags = ["--workers", "1..16", "--in-flight", "32"];
    let server = handlers(driver, &flags);
    let _crowd = crowd(&server, 48, "/never");
    until("all that it may have run", || {
        (active(&server) == 13).then_some(())
    });
    for _ in 0..4 {
        assert_eq!(from(NEWCOMER, &server).get("/pooled").text(), "pooled");
    }
}

fn workers(driver: Driver) {
    let server = handlers(driver, &["--workers", "1..16"]);
    let _crowd = crowd(&server, 40, "/never");
    until("all that it may have run", || {
        (active(&server) == 13).then_some(())
    });
    for _ in 0..4 {
        assert_eq!(from(NEWCOMER, &server).get("/pooled").text(), "pooled");
    }
    assert_eq!(active(&server), 13);
}

fn lasting(driver: Driver) {
    let server = handlers(driver, &["--in-flight", "64"]);
    let _crowd = crowd(&server, 80, &format!("/zeros/{LONG}"));
    for _ in 0..4 {
        let mut newcomer = from(NEWCOMER, &server);
        assert_eq!(newcomer.get("/zeros/100000").body.len(), 100_000);
    }
}

fn memory(driver: Driver) {
    let server = handlers(driver, &["--buffer-bytes", "4194304"]);
    let _crowd = crowd(&server, 64, &format!("/zeros/{LONG}"));
    for _ in 0..4 {
        let mut newcomer = from(NEWCOMER, &server);
        assert_eq!(newcomer.get("/zeros/1000000").body.len(), 1_000_000);
    }
}

/// A directory with a small file and one without an end to speak of.
fn site() -> Site {
    let site = Site::new().with("small", "small");
    site.write_hole("large", LONG);
    site
}

fn serve(driver: Driver, site: &Site, flags: &[&str]) -> Server {
    Launch::serve(driver)
        .directory(site.path())
        .with(flags)
        .start()
}

/// The status of an answer whose rest may never come.
fn status(client: &mut Client) -> String {
    let line = String::from_utf8(client.exactly("HTTP/1.1 200".len())).expect("ASCII");
    line[9..].to_owned()
}

/// Each of the crowd asks for a file of its own: a file that is kept open is one descriptor for all
/// who ask for it.
fn files(driver: Driver) {
    const COUNT: usize = 120;
    let site = site();
    for number in 0..COUNT {
        site.write_hole(&format!("large-{number}"), LONG);
    }
    let server = Launch::serve(driver)
        .directory(site.path())
        .descriptors(256)
        .start();
    let crowd = (0..COUNT).map(|number| {
        let mut client = from(CROWD, &server);
        client.request("GET", &format!("/large-{number}"), &[]);
        client
    });
    let mut crowd: Vec<_> = crowd.collect();
    let statuses: Vec<_> = crowd.iter_mut().map(status).collect();
    assert!(statuses.contains(&"503".to_owned()), "it has all");
    for _ in 0..4 {
        let mut newcomer = from(NEWCOMER, &server);
        newcomer.request("GET", "/large", &[]);
        assert_eq!(status(&mut newcomer), "200");
    }
}

fn archives(driver: Driver) {
    let site = site();
    let server = serve(driver, &site, &["--archive", "tar"]);
    let mut crowd = crowd(&server, 5, "/?archive=tar");
    let statuses: Vec<_> = crowd.iter_mut().map(status).collect();
    let made = statuses.iter().filter(|it| *it == "200").count();
    assert!((2..5).contains(&made), "it has all of {statuses:?}");
    let newcomers = (NEWCOMER..NEWCOMER + 2).map(|newcomer| {
        let mut newcomer = from(newcomer, &server);
        newcomer.request("GET", "/?archive=tar", &[]);
        assert_eq!(status(&mut newcomer), "200");
        assert_eq!(newcomer.exactly(1_000_000).len(), 1_000_000, "it is made");
        newcomer
    });
    let _newcomers: Vec<_> = newcomers.collect();
    server.await_log("one is ended for a newcomer");
}

fn uploads(driver: Driver) {
    let site = site();
    let flags = ["--writable", "--uploads-max", "8"];
    let server = serve(driver, &site, &flags);
    let create = |host, number: usize| {
        let fields = [
            ("Tus-Resumable", "1.0.0"),
            ("Upload-Length", "100"),
            ("Content-Length", "0"),
        ];
        let mut client = from(host, &server);
        client.request("POST", &format!("/new-{host}-{number}"), &fields);
        client.reply().status
    };
    assert!((0..8).all(|number| create(CROWD, number) == 201));
    assert_ne!(create(CROWD, 8), 201, "it has all");
    assert!((0..2).all(|number| create(NEWCOMER, number) == 201));
}

/// Also after a restart: who has what is on the disk.
fn upload_bytes(driver: Driver) {
    let site = site();
    let flags = ["--writable", "--uploads-bytes", "1M"];
    let begin = |server: &Server, host, name: &str| {
        let body = "x".repeat(30_000);
        let fields = "Tus-Resumable: 1.0.0\r\nUpload-Length: 60000\r\n\
                      Content-Type: application/offset+octet-stream\r\n";
        let head = format!("POST /{name} HTTP/1.1\r\nHost: 127.0.0.1\r\n{fields}");
        let mut client = from(host, server);
        client.send(format!(
            "{head}Content-Length: {}\r\n\r\n{body}",
            body.len()
        ));
        client.reply()
    };
    let server = serve(driver, &site, &flags);
    let all = (0..40).map(|number| begin(&server, CROWD, &format!("crowd-{number}")).status);
    let taken = all.take_while(|status| *status == 201).count();
    assert!((30..=33).contains(&taken), "all but a sixteenth: {taken}");
    drop(server);
    let server = serve(driver, &site, &flags);
    let refused = begin(&server, CROWD, "more");
    assert_eq!(refused.status, 507);
    assert!(
        refused.text().contains("this address"),
        "{}",
        refused.text()
    );
    assert_eq!(begin(&server, NEWCOMER, "new").status, 201);
    assert_eq!(begin(&server, CROWD, "more").status, 507);
}

fn compressed(driver: Driver) {
    let site = Site::new().with("text.txt", "some words\n".repeat(400_000));
    let server = serve(driver, &site, &["--compress", "gzip"]);
    let mut crowd = crowd(&server, 40, "/text.txt");
    assert!(crowd.iter_mut().all(|client| status(client) == "200"));
    let mut newcomer = from(NEWCOMER, &server);
    let reply = newcomer.ask("/text.txt", &[("Accept-Encoding", "gzip")]);
    assert_eq!(reply.status, 200);
}

/// Answers what asks for it on a worker that waits until all may go on.
struct Slow {
    at_work: Arc<AtomicUsize>,
    go: Arc<(Mutex<bool>, Condvar)>,
}

impl DatagramService for Slow {
    fn name(&self) -> &'static str {
        "slow"
    }

    fn receive(&self, datagram: &Datagram<'_>, reply: &mut DatagramReply<'_>) -> Next {
        if datagram.bytes() == b"slow" {
            return Next::Work;
        }
        reply.write(b"fast").expect("there is room");
        Next::Answer
    }

    fn work(&self, _: &Datagram<'_>, _: &mut DatagramReply<'_>, _: &mut WorkerScope<'_>) {
        self.at_work.fetch_add(1, Ordering::Relaxed);
        let (may_go, change) = &*self.go;
        let may_go = may_go.lock().expect("sound");
        drop(change.wait_while(may_go, |may_go| !*may_go).expect("sound"));
    }
}

/// A gate that opens when this goes.
struct Opener(Arc<(Mutex<bool>, Condvar)>);

impl Drop for Opener {
    fn drop(&mut self) {
        let (may_go, change) = &*self.0;
        *may_go.lock().expect("sound") = true;
        change.notify_all();
    }
}

fn datagrams(driver: Driver) {
    let (at_work, go) = (Arc::<AtomicUsize>::default(), Arc::default());
    let slow = Slow {
        at_work: Arc::clone(&at_work),
        go: Arc::clone(&go),
    };
    let choice = match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    };
    let server = flatpath::Server::new().driver(choice).workers(1..=16);
    let server = server.listen("127.0.0.1:0", Echo);
    let running = server.listen_datagrams("127.0.0.1:0", slow).start();
    let running = running.expect("started");
    let _opens = Opener(go);
    let to = running.datagram_listeners()[0].address.internet();
    let to = to.expect("of the internet");
    let send = |host: u8, count: usize| {
        let client =
            UdpSocket::bind(std::net::SocketAddr::from(([127, 0, 0, host], 0))).expect("bound");
        for _ in 0..count {
            client.send_to(b"slow", to).expect("sent");
        }
    };
    let await_at_work = |count| {
        until("workers take them", || {
            (at_work.load(Ordering::Relaxed) >= count).then_some(())
        });
    };
    send(CROWD, 40);
    await_at_work(2);
    send(NEWCOMER, 1);
    await_at_work(3);
    assert_eq!(at_work.load(Ordering::Relaxed), 3);
}
