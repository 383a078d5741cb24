//! Time-outs and parts of the workers while workers are at work: who is answered, and by when.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use flatpath::{DriverChoice, Running, Server};
use flatpath_http::{
    Answer, ClientWatch, Deferred, Http, Next, Request, Response, Router, TimeOut, routing,
};
use flatpath_testkit::{Client, Deadline, stretched, until_true};

use crate::on_each_driver;
use crate::serve::{Door, get, start};

on_each_driver!(
    a_request_that_no_worker_has_begun_with_is_answered_at_its_time,
    handlers_with_time_outs_leave_workers_to_others,
    what_no_worker_can_change_goes_without_its_layers,
    a_route_has_workers_of_its_own,
    a_nested_router_has_workers_of_its_own_and_a_time_out,
    a_handler_that_blocks_learns_that_its_client_is_gone,
);

/// The time-out of a route: short, and time enough for this machine to answer what does not wait.
fn time() -> Duration {
    stretched(Duration::from_millis(50))
}

/// A layer that says which status has passed it.
fn mark(request: Request, next: &Next<'_>) -> Answer {
    next.run(request).map(move |response: Response| {
        let seen = response.status().as_u16().to_string();
        ([("x-seen", seen)], response)
    })
}

/// A handler that waits at a door.
fn at(door: &Arc<Door>) -> impl Fn() -> &'static str + Clone + Send + Sync + 'static {
    let door = Arc::clone(door);
    move || {
        door.pass();
        "passed"
    }
}

fn server(choice: DriverChoice, workers: u32, router: Router) -> (Running, SocketAddr) {
    let server = Server::new().workers(workers..=workers);
    start(server, choice, Http::service(router))
}

/// Sends a request on a connection of its own.
fn ask(address: SocketAddr, path: &str) -> Client {
    let mut client = Client::connect(address);
    client.send(get(path));
    client
}

/// The next reply: its status, what has passed the layer, and its body.
fn reply(client: &mut Client) -> (u16, Option<String>, String) {
    let reply = client.reply();
    let seen = reply.field("x-seen").map(str::to_owned);
    (reply.status, seen, reply.text().to_owned())
}

/// Whether a time-out has answered.
fn is_late(client: &mut Client) -> bool {
    let (status, _, text) = reply(client);
    status == 503 && text.contains("took too long")
}

/// What a client has read, of a reply that is no refusal.
fn text(client: &mut Client) -> String {
    let (status, _, text) = reply(client);
    assert_eq!(status, 200, "{text}");
    text
}

fn a_request_that_no_worker_has_begun_with_is_answered_at_its_time(choice: DriverChoice) {
    let (door, called) = (Arc::new(Door::default()), Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&called);
    let call = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        "called"
    };
    let timed = routing::get(call).layer(TimeOut::after(time()));
    let router = Router::new()
        .get("/block", at(&door))
        .route("/timed", timed);
    let (running, address) = server(choice, 1, router);
    let mut blocked = ask(address, "/block");
    door.until_waited(1);
    let mut clients: Vec<Client> = (0..20).map(|_| ask(address, "/timed")).collect();
    for client in &mut clients {
        assert!(is_late(client));
    }
    door.open();
    assert_eq!(text(&mut blocked), "passed");
    assert_eq!(called.load(Ordering::SeqCst), 0, "none was run");
    for client in &mut clients {
        client.send(get("/timed"));
        assert_eq!(text(client), "called");
    }
    drop((clients, blocked, running));
}

fn handlers_with_time_outs_leave_workers_to_others(choice: DriverChoice) {
    let (door, called) = (Arc::new(Door::default()), Arc::new(AtomicUsize::new(0)));
    let (counted, pass) = (Arc::clone(&called), at(&door));
    let slow = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        pass()
    };
    let router = Router::new()
        .get("/slow", slow)
        .layer(TimeOut::after(time()))
        .layer(mark)
        .get("/quick", || "quick");
    let (running, address) = server(choice, 4, router);
    let mut clients: Vec<Client> = (0..40).map(|_| ask(address, "/slow")).collect();
    door.until_waited(1);
    assert_eq!(text(&mut ask(address, "/quick")), "quick");
    let mut layered = 0;
    for client in &mut clients {
        let (status, seen, _) = reply(client);
        assert_eq!(status, 503);
        layered += usize::from(seen.as_deref() == Some("503"));
    }
    // A worker has a tenth of a second for the layers of all: a busy machine may manage a few.
    assert!(layered > 0, "a worker was free for the layer");
    assert_eq!(text(&mut ask(address, "/quick")), "quick");
    let begun = called.load(Ordering::SeqCst);
    assert!((1..=3).contains(&begun), "{begun} of four workers");
    assert!(running.handle().statistics().held_back_part > 0);
    door.open();
    assert_eq!(text(&mut ask(address, "/slow")), "passed");
    assert_eq!(
        called.load(Ordering::SeqCst),
        begun + 1,
        "what was late was not run"
    );
    drop((clients, running));
}

fn what_no_worker_can_change_goes_without_its_layers(choice: DriverChoice) {
    let door = Arc::new(Door::default());
    let router = Router::new()
        .get("/slow", at(&door))
        .layer(TimeOut::after(2 * time()))
        .layer(mark)
        .get("/block", at(&door));
    let (running, address) = server(choice, 2, router);
    let mut client = ask(address, "/slow");
    door.until_waited(1);
    let mut blocked = ask(address, "/block");
    door.until_waited(2);
    let (status, seen, _) = reply(&mut client);
    assert_eq!((status, seen), (503, None));
    door.open();
    assert_eq!(text(&mut blocked), "passed");
    client.send(get("/slow"));
    let (status, seen, _) = reply(&mut client);
    assert_eq!((status, seen.as_deref()), (200, Some("200")));
    drop(running);
}

fn a_route_has_workers_of_its_own(choice: DriverChoice) {
    let (slow, others) = (Arc::new(Door::default()), Arc::new(Door::default()));
    let router = Router::new()
        .route("/slow", routing::get(at(&slow)).workers(2))
        .get("/other", at(&others))
        .get("/quick", || "quick");
    let (running, address) = server(choice, 4, router);
    // More than have workers, of each.
    let mut clients: Vec<Client> = (0..9).map(|_| ask(address, "/slow")).collect();
    slow.until_waited(2);
    assert_eq!(text(&mut ask(address, "/quick")), "quick");
    let mut others_clients: Vec<Client> = (0..9).map(|_| ask(address, "/other")).collect();
    others.until_waited(2);
    // Its workers are left to the route, though others wait.
    slow.open();
    for client in &mut clients {
        assert_eq!(text(client), "passed");
    }
    assert_eq!(text(&mut ask(address, "/slow")), "passed");
    others.open();
    for client in &mut others_clients {
        assert_eq!(text(client), "passed");
    }
    drop(running);
}

fn a_nested_router_has_workers_of_its_own_and_a_time_out(choice: DriverChoice) {
    let door = Arc::new(Door::default());
    let inner: Router = Router::new()
        .get("/a", at(&door))
        .get("/b", at(&door))
        .workers(1);
    let inner = inner.layer(TimeOut::after(time()));
    let mounted: Router = Router::new().get("/", at(&door)).workers(1);
    let router = Router::new()
        .nest("/inner", inner)
        .nest_service("/mounted", mounted)
        .get("/quick", || "quick");
    let (running, address) = server(choice, 4, router);
    let mut clients: Vec<Client> = ["/inner/a", "/inner/b", "/inner/a"]
        .map(|path| ask(address, path))
        .into();
    for client in &mut clients {
        assert!(is_late(client));
    }
    door.until_waited(1);
    let mut mounted: Vec<Client> = (0..5).map(|_| ask(address, "/mounted/")).collect();
    door.until_waited(2);
    assert_eq!(text(&mut ask(address, "/quick")), "quick");
    door.open();
    for client in &mut mounted {
        assert_eq!(text(client), "passed");
    }
    drop(running);
}

fn a_handler_that_blocks_learns_that_its_client_is_gone(choice: DriverChoice) {
    let ended = Arc::new(AtomicUsize::new(0));
    let is_begun = Arc::new(AtomicBool::new(false));
    let (count, begins) = (Arc::clone(&ended), Arc::clone(&is_begun));
    let work = move |watch: ClientWatch| {
        begins.store(true, Ordering::SeqCst);
        let deadline = Deadline::default();
        while !watch.is_gone() && !deadline.is_over() {
            std::thread::sleep(Duration::from_millis(1));
        }
        count.fetch_add(usize::from(watch.is_gone()), Ordering::SeqCst);
    };
    let blocks = work.clone();
    let deferred = move |watch: ClientWatch| {
        let (responder, deferred) = Deferred::new();
        let work = work.clone();
        std::thread::spawn(move || {
            work(watch);
            // It is too late for it, or the test has failed.
            let _sent = responder.send("done");
        });
        deferred
    };
    let router = Router::new()
        .get("/blocks", blocks.clone())
        .get("/deferred", deferred)
        .route("/timed", routing::get(blocks).layer(TimeOut::after(time())));
    let (running, address) = server(choice, 2, router);
    let mut expected = 0;
    for path in ["/blocks", "/deferred"] {
        for headers in ["", "Connection: close\r\n"] {
            is_begun.store(false, Ordering::SeqCst);
            let mut client = Client::connect(address);
            client.send(format!("GET {path} HTTP/1.1\r\nHost: h\r\n{headers}\r\n"));
            until_true("it has begun", || is_begun.load(Ordering::SeqCst));
            drop(client);
            expected += 1;
            until_true("it is told", || ended.load(Ordering::SeqCst) == expected);
        }
    }
    let mut client = ask(address, "/timed");
    assert!(is_late(&mut client));
    until_true("it is told", || {
        ended.load(Ordering::SeqCst) == expected + 1
    });
    drop(running);
}
