//! A full memory budget: the clients that filled it wait, or are ended; all others are answered.

use std::fs;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use flatpath_testkit::client::request_bytes;
use flatpath_testkit::ingest::told;
use flatpath_testkit::{Client, Driver, Launch, MemoryGroup, Server, Site, each_driver, noise};

use flatpath_testkit::h2_frames;

each_driver!(
    a_control_group_of_the_memory_that_was_named_kills_nothing,
    bodies_that_came_half_way_stop_no_other_client,
    heads_that_came_half_way_stop_no_other_client,
    the_memory_that_was_named_is_what_the_process_takes,
    sites_take_turns_for_what_is_needed_only_now_and_then,
);

/// Clients that would need several times as much as these servers have for buffers.
const CLIENTS: usize = 100;

fn serve(driver: Driver, site: &Site) -> Server {
    site.settle();
    let launch = Launch::serve(driver)
        .directory(site.path())
        .with(["--writable"]);
    launch.least_memory().0.start()
}

/// One kept connection and a new one for each request; `cold` is read by workers.
fn check_innocent(server: &Server, kept: &mut Client) {
    for _ in 0..5 {
        for name in ["/hello", "/cold"] {
            assert_eq!(kept.get(name).text(), "hello");
            assert_eq!(server.client().get(name).text(), "hello");
        }
    }
}

fn bodies_that_came_half_way_stop_no_other_client(driver: Driver) {
    const LENGTH: usize = 60_000;
    let site = Site::new().with("hello", "hello").with("cold", "hello");
    let server = serve(driver, &site);
    let mut kept = server.client();
    check_innocent(&server, &mut kept);
    let length = LENGTH.to_string();
    let mut uploads: Vec<Client> = (0..CLIENTS)
        .map(|number| {
            let mut client = server.client();
            let target = format!("/upload{number}");
            client.request("PUT", &target, &[("Content-Length", &length)]);
            client
        })
        .collect();
    let piece = [b'x'; 1_000];
    for _ in 0..LENGTH / piece.len() - 1 {
        uploads.iter_mut().for_each(|client| client.send(piece));
    }
    check_innocent(&server, &mut kept);
    let figures = told(&server, "http ");
    assert_eq!(
        figures["flatpath_stalls_refused_total"], 0,
        "nobody was refused for that"
    );
    uploads.iter_mut().for_each(|client| client.send(piece));
    for client in &mut uploads {
        assert_eq!(client.reply().status, 201, "it sent all that it announced");
    }
}

fn heads_that_came_half_way_stop_no_other_client(driver: Driver) {
    let site = Site::new().with("hello", "hello").with("cold", "hello");
    let server = serve(driver, &site);
    let mut kept = server.client();
    check_innocent(&server, &mut kept);
    let value = "v".repeat(1_900);
    let fields: Vec<(String, &str)> = (0..8)
        .map(|number| (format!("X-{number}"), value.as_str()))
        .collect();
    let fields: Vec<(&str, &str)> = fields
        .iter()
        .map(|(name, value)| (&**name, *value))
        .collect();
    let head = request_bytes("GET", "/hello", &fields);
    let _half: Vec<Client> = (0..CLIENTS)
        .map(|_| {
            let mut client = server.client();
            // It may be refused while it is sending.
            let _ = client.try_send(&head[..head.len() - 2]);
            client
        })
        .collect();
    check_innocent(&server, &mut kept);
}

/// Slow readers of a large file and uploads that wait, all at once, with full receive windows.
fn crowd(server: &Server) -> Vec<Client> {
    const OF_EACH: usize = 300;
    const WINDOW: usize = 4 * 1024;
    let downloads = [
        request_bytes("GET", "/large", &[]),
        h2_frames::download("/large"),
    ];
    let upload = request_bytes("PUT", "/upload", &[("Content-Length", "1000000")]);
    let upload = [upload, vec![b'x'; 60_000]].concat();
    let mut clients = Vec::new();
    for number in 0..OF_EACH {
        let mut reader = Client::connect_with_window(server.address("http"), WINDOW);
        // Any of them may be ended for the others.
        let _ = reader.try_send(&downloads[number % downloads.len()]);
        let mut writer = server.client();
        let _ = writer.try_send(&upload);
        clients.extend([reader, writer]);
    }
    clients
}

/// A site with a large file for the crowd, and a server with the least memory that it takes.
fn least(driver: Driver) -> (Site, Launch, u64) {
    const LARGE: u64 = 16 << 20;
    let site = Site::new().with("hello", "hello");
    site.write_hole("large", LARGE);
    site.settle();
    let launch = Launch::serve(driver)
        .directory(site.path())
        .with(["--writable"]);
    let (launch, named) = launch.least_memory();
    (site, launch, named)
}

/// It is there, whether or not it has a buffer to read the file into.
fn check_presence(server: &Server) {
    let status = server.client().get("/hello").status;
    assert!(matches!(status, 200 | 503), "{status}");
}

fn the_memory_that_was_named_is_what_the_process_takes(driver: Driver) {
    let (_site, launch, named) = least(driver);
    let server = launch.start();
    let _clients = crowd(&server);
    check_presence(&server);
    let peak = server.process().peak_bytes();
    assert!(
        peak <= named + named / 10,
        "{peak} bytes at the most, of {named} that were named"
    );
}

fn a_control_group_of_the_memory_that_was_named_kills_nothing(driver: Driver) {
    let (_site, launch, named) = least(driver);
    let Some(group) = MemoryGroup::try_new(named) else {
        return;
    };
    let server = launch.in_group(&group).start();
    let _clients = crowd(&server);
    check_presence(&server);
    assert_eq!(group.kills(), 0);
    drop(server);
}

/// Of `pass:word`: a check takes 64 MiB.
const ARGON2: &str =
    "$argon2id$v=19$m=65536,t=1,p=1$c2FsdHNhbHQ$V727pwuwJwoKcx+w7uNVe+6a5V9tDst/mWdG1NtP91g";

const SITES: usize = 4;
const USERS: usize = 2;

/// Four sites with a file of passwords each, which compress files and send archives, at two
/// listeners.
fn busy_sites(driver: Driver) -> (Site, Launch) {
    let site = Site::new();
    let text: Vec<u8> = noise(3, 200_000)
        .iter()
        .flat_map(|byte| format!("the flat path {byte:03}\n").into_bytes())
        .collect();
    let mut settings = "http = [\"127.0.0.1:0\", \"127.0.0.1:0\"]\n".to_owned();
    for number in 0..SITES {
        let users = (0..USERS).map(|user| format!("user{user}:{ARGON2}\n"));
        site.write(&format!("users{number}"), users.collect::<String>());
        fs::create_dir_all(site.at(&format!("dir{number}/tree"))).expect("made");
        site.write(&format!("dir{number}/long.txt"), &text);
        site.write(&format!("dir{number}/page.txt"), &text[..900_000]);
        for file in 0..4 {
            site.write(&format!("dir{number}/tree/{file}"), &text[..1_000_000]);
        }
        settings += &format!(
            "[[site]]\nnames = \"s{number}.example\"\ndir = \"dir{number}\"\n\
             auth-file = \"users{number}\"\ncompress = \"br\"\narchive = \"tar\"\n"
        );
    }
    site.write("flatpath.toml", settings);
    site.settle();
    let launch = Launch::configured(driver, site.path());
    (site, launch)
}

/// The head of a GET of a site, by one of its users.
fn asks(target: &str, site: usize, user: usize) -> String {
    let credentials = BASE64_STANDARD.encode(format!("user{user}:pass:word"));
    format!(
        "GET {target} HTTP/1.1\r\nHost: s{site}.example\r\nAuthorization: Basic {credentials}\r\n\
         Accept-Encoding: br\r\nConnection: close\r\n\r\n"
    )
}

/// All do all of it at once, at each listener: they log in, read pages, and download archives and
/// long files as slowly as they can.
fn sites_take_turns_for_what_is_needed_only_now_and_then(driver: Driver) {
    let (_site, launch) = busy_sites(driver);
    // The default is enough.
    launch.clone().start().end();
    let (launch, named) = launch.least_memory();
    let server = launch.start();
    let addresses: Vec<_> = server.listeners().iter().map(|(_, at)| *at).collect();
    let each = || (0..SITES).flat_map(|site| (0..USERS).map(move |user| (site, user)));
    let begin = |target: &str| {
        let clients = addresses
            .iter()
            .flat_map(|at| each().map(move |who| (*at, who)));
        let clients = clients.map(|(at, (site, user))| {
            let mut client = Client::connect_with_window(at, 4 * 1024);
            client.send(asks(target, site, user));
            client
        });
        clients.collect::<Vec<_>>()
    };
    // Of a reply that is not read to its end.
    let heads = |clients: &mut [Client]| {
        let heads = clients.iter_mut().map(|client| {
            let head = client.until("\r\n\r\n");
            String::from_utf8_lossy(&head).into_owned()
        });
        heads.collect::<Vec<_>>()
    };
    let count =
        |heads: &[String], words: &str| heads.iter().filter(|head| head.contains(words)).count();
    let [mut pages, mut long, mut archives] =
        ["/page.txt", "/long.txt", "/tree/?archive=tar"].map(begin);
    let all = addresses.len() * SITES * USERS;
    let (pages, long, archives) = (heads(&mut pages), heads(&mut long), heads(&mut archives));
    for heads in [&pages, &long] {
        assert_eq!(count(heads, " 200 "), all, "each password was checked");
    }
    // The first to ask has the piece that compression owns; a slow reader may keep it.
    let coded = [&pages, &long].map(|heads| count(heads, "Content-Encoding: br"));
    assert!(coded.iter().sum::<usize>() > 0, "{coded:?}");
    let made = count(&archives, " 200 ");
    assert!(made > 0);
    assert_eq!(made + count(&archives, " 503 "), all);
    let peak = server.process().peak_bytes();
    assert!(
        peak <= named + named / 10,
        "{peak} bytes at the most, of {named} that were named"
    );
}
