//! Files that are sent or written over many jobs are counted in the budget of descriptors: they
//! never take what new connections need.

use std::time::Instant;

use flatpath_consumer::Consumer;
use flatpath_testkit::client::request_bytes;
use flatpath_testkit::ingest::{launch, message};
use flatpath_testkit::reply::{Asked, Reply};
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, until};

each_driver!(
    downloads_that_nobody_reads_leave_descriptors_to_connections,
    uploads_that_stand_still_leave_descriptors_to_connections,
    connections_that_rest_give_their_descriptors_to_downloads,
    consumers_that_find_no_descriptors_are_refused_and_connections_are_not,
    five_hundred_producers_leave_descriptors_to_newcomers_and_consumers,
    the_table_of_descriptors_does_not_grow_while_clients_come,
);

const DESCRIPTORS: u64 = 256;
/// Connections of the server whose table is looked at.
const PLACES: u64 = 700;
const SMALL: &str = "small";
/// Far more than the kernel takes of it for a client that does not read.
const LARGE: u64 = 1 << 30;
const WINDOW: usize = 4096;

fn serve(driver: Driver) -> (Server, Site) {
    let site = Site::new().with("small", SMALL);
    let server = Launch::serve(driver)
        .descriptors(DESCRIPTORS)
        .with(["--writable", "--workers", "1..4"])
        .directory(site.path())
        .start();
    (server, site)
}

/// The kernel would have each thread that accepts or opens something wait while it grows.
fn the_table_of_descriptors_does_not_grow_while_clients_come(driver: Driver) {
    let site = Site::new();
    let server = Launch::serve(driver)
        .descriptors(PLACES + 200)
        .with(["--max-connections", &PLACES.to_string()])
        .directory(site.path())
        .start();
    let size = server.process().descriptor_table();
    assert!(size > PLACES, "{size} before the first client");
}

/// Each is of a file of its own: a file that is kept open is one descriptor for all who ask for it.
fn start_download((server, site): &(Server, Site), number: usize) -> Client {
    let name = format!("large-{number}");
    site.write_hole(&name, LARGE);
    let mut client = Client::connect_with_window(server.address("http"), WINDOW);
    client.request("GET", &format!("/{name}"), &[]);
    client
}

fn start_upload(server: &Server, number: usize) -> Client {
    let mut client = server.client();
    let fields = [("Content-Length", "1000000"), ("Expect", "100-continue")];
    client.request("PUT", &format!("/new-{number}"), &fields);
    client
}

/// The head of what a client is answered. `None`: its connection was ended for another before.
fn head_of(client: &mut Client) -> Option<Reply> {
    client.try_reply(Asked::Head).ok()
}

fn status_of(client: &mut Client) -> Option<u16> {
    Some(head_of(client)?.status)
}

/// Some are granted and some refused; the few that are ended before they are answered have lasted
/// longest. Then there is room for newcomers.
fn some_are_granted(server: &Server, clients: &mut [Client], granted: u16) {
    const GRANTED_MIN: usize = 24;
    const NEWCOMERS: usize = 24;
    let statuses: Vec<_> = clients.iter_mut().map(status_of).collect();
    let count = |wanted| statuses.iter().filter(|status| **status == wanted).count();
    let (taken, refused) = (count(Some(granted)), count(Some(503)));
    let all = taken + refused + count(None);
    assert_eq!(all, clients.len(), "{statuses:?}");
    assert!(taken >= GRANTED_MIN && refused > 0, "{taken} are granted");
    let newcomers = (0..NEWCOMERS).map(|_| {
        let mut client = server.client();
        assert_eq!(client.get("/small").text(), SMALL);
        client
    });
    let newcomers: Vec<Client> = newcomers.collect();
    let used = server.process().descriptors();
    assert!((used as u64) < DESCRIPTORS, "{used} descriptors");
    assert_eq!(newcomers.len(), NEWCOMERS);
}

/// No accept has missed a descriptor, and the log has not a line for each refusal since the server
/// `began`: there is one for an episode of either kind, which is over after a quiet while.
fn nothing_ran_out(server: &Server, began: Instant) {
    const QUIET_SECONDS: u64 = 10;
    const KINDS: u64 = 2;
    let episodes_max = 1 + began.elapsed().as_secs() / QUIET_SECONDS;
    let log = server.log();
    assert!(!log.contains("the kernel says"), "{log}");
    let lines = log.matches("descriptors for files: ").count() as u64;
    assert!((1..=KINDS * episodes_max).contains(&lines), "{log}");
}

fn downloads_that_nobody_reads_leave_descriptors_to_connections(driver: Driver) {
    const CLIENTS: usize = 150;
    let began = Instant::now();
    let served = serve(driver);
    let server = &served.0;
    let start = |number| start_download(&served, number);
    let mut clients: Vec<Client> = (0..CLIENTS).map(start).collect();
    some_are_granted(server, &mut clients, 200);
    // Those who were refused rest, and are closed for more downloads; but not without end.
    let refusal = (CLIENTS..2 * CLIENTS).find_map(|number| {
        clients.push(start(number));
        let client = clients.last_mut()?;
        head_of(client).filter(|head| head.status == 503)
    });
    let head = refusal.expect("the budget has an end");
    assert_eq!(head.field("retry-after"), Some("1"));
    drop(clients);
    until("a download is granted again", || {
        // Its place may be taken while those of the others come back.
        let reply = start(0).try_reply(Asked::Head).ok()?;
        (reply.status == 200).then_some(())
    });
    nothing_ran_out(server, began);
}

fn uploads_that_stand_still_leave_descriptors_to_connections(driver: Driver) {
    const CLIENTS: usize = 80;
    let began = Instant::now();
    let (server, _site) = serve(driver);
    let clients = (0..CLIENTS).map(|number| start_upload(&server, number));
    let mut clients: Vec<Client> = clients.collect();
    some_are_granted(&server, &mut clients, 100);
    drop(clients);
    until("an upload is granted again", || {
        (status_of(&mut start_upload(&server, CLIENTS)) == Some(100)).then_some(())
    });
    nothing_ran_out(&server, began);
}

/// Beside as many idle connections as there are places for, downloads are granted one by one.
fn connections_that_rest_give_their_descriptors_to_downloads(driver: Driver) {
    const IDLE: usize = 180;
    const DOWNLOADS: usize = 48;
    let served = serve(driver);
    let server = &served.0;
    let idle = (0..IDLE).map(|_| {
        let mut client = server.client();
        assert_eq!(client.get("/small").text(), SMALL);
        client
    });
    let idle: Vec<Client> = idle.collect();
    let downloads = (0..DOWNLOADS).map(|number| {
        let mut client = start_download(&served, number);
        assert_eq!(status_of(&mut client), Some(200));
        client
    });
    let downloads: Vec<Client> = downloads.collect();
    let used = server.process().descriptors();
    assert!((used as u64) < DESCRIPTORS, "{used} descriptors");
    assert!(
        !server.log().contains("the kernel says"),
        "{}",
        server.log()
    );
    drop((idle, downloads));
}

/// What a consumer of messages holds is counted too: beside as many as there is room for, others
/// are refused in the protocol's word, and connections find their descriptors.
fn consumers_that_find_no_descriptors_are_refused_and_connections_are_not(driver: Driver) {
    const CONSUMERS: usize = 60;
    const CLIENTS: usize = 90;
    let began = Instant::now();
    let (site, directory) = (Site::new().with("small", SMALL), Site::new());
    let server = launch(driver, directory.path())
        .descriptors(DESCRIPTORS)
        .with([
            "--http",
            "127.0.0.1:0",
            "--ingest-consumers",
            "64",
            "--workers",
            "1..4",
        ])
        .directory(site.path())
        .start();
    let socket = directory.at("ingest");
    let attached: Vec<_> = (0..CONSUMERS).map(|_| Consumer::attach(&socket)).collect();
    let refused = attached
        .iter()
        .filter_map(|consumer| consumer.as_ref().err());
    let refused: Vec<String> = refused.map(ToString::to_string).collect();
    assert!(!refused.is_empty(), "the budget has an end");
    assert!(
        refused.len() <= CONSUMERS - 16,
        "{} are refused",
        refused.len()
    );
    assert!(
        refused.iter().all(|why| why.contains("as many consumers")),
        "{refused:?}"
    );
    let clients = (0..CLIENTS).map(|_| {
        let mut client = server.client();
        assert_eq!(client.get("/small").text(), SMALL);
        client
    });
    let mut clients: Vec<Client> = clients.collect();
    assert!(
        clients.iter_mut().all(Client::is_quiet),
        "none was closed for another"
    );
    let used = server.process().descriptors();
    assert!((used as u64) < DESCRIPTORS, "{used} descriptors");
    nothing_ran_out(&server, began);
    drop(attached);
    until("consumers to be attached again", || {
        Consumer::attach(&socket).ok()
    });
}

/// What a newcomer is answered; none where its place was taken before.
fn status_of_newcomer(server: &Server) -> Option<u16> {
    let mut newcomer = server.client();
    let request = request_bytes("GET", "/small", &[]);
    newcomer.try_send(request).ok()?;
    newcomer
        .try_reply(Asked::Any)
        .ok()
        .map(|reply| reply.status)
}

/// Producers with half a message take every place; a newcomer is answered, and a consumer finds its
/// descriptors.
fn five_hundred_producers_leave_descriptors_to_newcomers_and_consumers(driver: Driver) {
    const PRODUCERS: usize = 500;
    let (site, directory) = (Site::new().with("small", SMALL), Site::new());
    let server = launch(driver, directory.path())
        .descriptors(DESCRIPTORS)
        .with(["--http", "127.0.0.1:0", "--workers", "1..4"])
        .directory(site.path())
        .start();
    // It is in the cache then, and later answered at once.
    assert_eq!(server.client().get("/small").text(), SMALL);
    let half = message(1, 1000);
    let producers = (0..PRODUCERS).map(|_| {
        let mut producer = Client::connect(server.address("ingest"));
        // It may be refused by now.
        let _ = producer.try_send(&half[..500]);
        producer
    });
    let producers: Vec<Client> = producers.collect();
    // Producers that are still to be let in may take the place of one whose request is on its way.
    let status = until("a newcomer to be answered", || status_of_newcomer(&server));
    assert!(matches!(status, 200 | 503), "{status}");
    let _consumer = until("a consumer to be attached", || {
        Consumer::attach(directory.at("ingest")).ok()
    });
    assert!(
        !server.log().contains("the kernel says"),
        "{}",
        server.log()
    );
    drop(producers);
    until("room for others", || {
        (status_of_newcomer(&server) == Some(200)).then_some(())
    });
}
