//! `flatpath health`: what images without a shell, and scripts, ask a server; and what monitors
//! read.

use std::process::{Command, Output};

use flatpath_testkit::deadline::patience;
use flatpath_testkit::{
    Client, Driver, Launch, Server, Site, binary, each_driver, tools, until_true,
};

use flatpath_testkit::https::localhost;

each_driver!(
    the_exit_code_says_whether_a_server_is_well,
    a_listener_with_tls_is_asked_with_its_certificate,
    monitors_read_times_that_stand_still_and_gzip,
);

fn health(arguments: &[&str]) -> Output {
    let mut command = Command::new(binary::flatpath());
    tools::run(command.arg("health").args(arguments), patience())
}

/// Exit code, standard output, standard error.
fn said(arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = health(arguments);
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    (status.code(), text(stdout), text(stderr))
}

fn serve(driver: Driver, site: &Site) -> Server {
    let options = ["--admin", "127.0.0.1:0", "--drain-delay", "1h"];
    Launch::serve(driver)
        .directory(site.path())
        .with(options)
        .start()
}

fn the_exit_code_says_whether_a_server_is_well(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let server = serve(driver, &site);
    let admin = server.address("admin").to_string();
    let http = server.address("http").to_string();
    assert_eq!(said(&[&admin]), (Some(0), "ready\n".into(), String::new()));
    assert_eq!(said(&[&admin, "--path", "/healthz"]).1, "ok\n");
    let file = said(&[&http, "--path", "/file"]);
    assert_eq!((file.0, &*file.1), (Some(0), "contents"));
    let (code, _, why) = said(&[&http, "--path", "/none"]);
    assert_eq!(code, Some(1), "{why}");
    assert!(why.contains("/none is 404"), "{why}");
    // A host that is not served.
    let (code, _, why) = said(&[&http, "--path", "/file", "--host", "evil.example"]);
    assert!(code == Some(1) && why.contains("/file is 421"), "{why}");
    server.terminate();
    until_true("the drain", || said(&[&admin]).0 == Some(1));
    let (_, _, why) = said(&[&admin]);
    assert!(why.contains("/readyz is 503: leaving"), "{why}");
    drop(server);
    let (code, _, why) = said(&[&admin]);
    assert!(code == Some(1) && why.contains(&admin), "{why}");
    for wrong in [&["--path", "readyz", &admin][..], &[], &["nowhere"]] {
        assert_eq!(said(wrong).0, Some(2), "{wrong:?}");
    }
}

fn a_listener_with_tls_is_asked_with_its_certificate(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let (server, authority) = localhost(driver, &site, &["--http", "127.0.0.1:0"]);
    let address = server.address("https").to_string();
    let certificate = authority.at("site.crt").display().to_string();
    let asked = [&*address, "--path", "/file", "--ca", &certificate];
    let well = said(&asked);
    assert_eq!((well.0, &*well.1), (Some(0), "contents"), "{}", well.2);
    let other = [&asked[..], &["--host", "other.example"]].concat();
    assert_eq!(
        said(&other).0,
        Some(1),
        "the certificate is for another name"
    );
    let plain = server.address("http").to_string();
    let to_plain = [&*plain, "--path", "/file", "--ca", &certificate];
    assert_eq!(said(&to_plain).0, Some(1), "it speaks no TLS");
    let none = [&*address, "--ca", "/no/such/file"];
    assert_eq!(said(&none).0, Some(2));
    server.end();
}

fn value(metrics: &str, name: &str) -> f64 {
    let mut lines = metrics.lines();
    let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("{name} is in {metrics}"))
        .parse()
        .expect("a number")
}

fn monitors_read_times_that_stand_still_and_gzip(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let admin = server.address("admin");
    let scrape = || Client::connect(admin).get("/metrics").text().to_owned();
    let first = scrape();
    for _ in 0..8 {
        let next = scrape();
        for name in ["flatpath_start_time_seconds", "process_start_time_seconds"] {
            let (before, now) = (value(&first, name), value(&next, name));
            assert_eq!(before.to_bits(), now.to_bits(), "{name}");
        }
    }
    // The process is there before its server.
    let started = value(&first, "flatpath_start_time_seconds");
    assert!(value(&first, "process_start_time_seconds") <= started + 1.0);
    let open = value(&first, "process_open_fds");
    let held: Vec<Client> = (0..10)
        .map(|_| {
            let mut client = server.client();
            assert_eq!(client.get("/none").status, 404);
            client
        })
        .collect();
    let now = scrape();
    assert!(value(&now, "process_open_fds") >= open + 10.0, "{now}");
    assert!(value(&now, "process_max_fds") > value(&now, "process_open_fds"));
    drop(held);
    let coded =
        Client::connect(admin).ask("/metrics", &[("Accept-Encoding", "gzip;q=1.0,*;q=0.1")]);
    assert_eq!(coded.field("content-encoding"), Some("gzip"));
    assert_eq!(coded.field("vary"), Some("accept-encoding"));
    let Some(gzip) = tools::find("gzip") else {
        return;
    };
    site.write("metrics.gz", &coded.body);
    let mut command = Command::new(gzip);
    let output = tools::run(command.arg("-dc").arg(site.at("metrics.gz")), patience());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.contains("\nflatpath_ready 1\n"), "{text}");
    assert!(coded.body.len() < text.len() / 2);
    let plain = Client::connect(admin).ask("/metrics", &[("Accept-Encoding", "gzip;q=0")]);
    assert_eq!(plain.field("content-encoding"), None);
    drop(server);
}
