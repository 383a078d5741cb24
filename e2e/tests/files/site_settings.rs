//! Settings that differ by `[[site]]`: what the protocol does around the files, on one listener.

use std::fs;

use flatpath_testkit::reply::Reply;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, until_true};
use rustix::process::Signal;

each_driver!(
    directories_and_codings_differ_by_site,
    pages_of_other_origins_may_write_to_the_site_that_names_them,
    each_site_is_logged_where_it_says,
    a_reload_adds_and_moves_the_logs_of_sites,
    a_connection_has_the_deadlines_of_the_site_that_it_asked_last,
);

/// A listener with sites `a.example` and `b.example`, which have these settings.
struct Sites(Site);

impl Sites {
    fn new() -> Self {
        let site = Site::new();
        for name in ["a", "b"] {
            fs::create_dir_all(site.at(&format!("{name}/sub"))).expect("made");
            site.write(&format!("{name}/page.txt"), "flat path ".repeat(1000));
        }
        Self(site)
    }

    fn write(&self, above: &str, sites: &[(&str, &str)]) {
        let mut text = format!("http = \"127.0.0.1:0\"\n{above}");
        for (name, settings) in sites {
            let site = format!("[[site]]\nnames = \"{name}.example\"\ndir = \"{name}\"\n");
            text += &format!("{site}{settings}\n");
        }
        self.0.write("flatpath.toml", text);
        self.0.settle();
    }

    fn start(&self, driver: Driver) -> Server {
        Launch::configured(driver, self.0.path()).start()
    }

    /// The targets of the requests in a log; none if there is no such file.
    fn logged(&self, name: &str) -> Vec<String> {
        let text = fs::read_to_string(self.0.at(name)).unwrap_or_default();
        let targets = text.lines().filter_map(|line| line.split(' ').nth(6));
        targets.map(str::to_owned).collect()
    }
}

fn ask(client: &mut Client, host: &str, line: &str, headers: &str) -> Reply {
    client.exchange(format!(
        "{line} HTTP/1.1\r\nHost: {host}.example\r\n{headers}\r\n"
    ))
}

fn directories_and_codings_differ_by_site(driver: Driver) {
    let sites = Sites::new();
    let a = "listing = \"off\"\ncompress = \"gzip\"\n";
    let b = "listing = \"json\"\narchive = \"tar\"\n";
    sites.write("compress = \"br\"\n", &[("a", a), ("b", b)]);
    let server = sites.start(driver);
    let mut client = server.client();
    let mut field = |host: &str, target: &str, field: &str| {
        let headers = "Accept-Encoding: br, gzip\r\n";
        let reply = ask(&mut client, host, &format!("GET {target}"), headers);
        (reply.status, reply.field(field).map(str::to_owned))
    };
    let coding = |name: &str| Some(name.to_owned());
    assert_eq!(
        field("a", "/page.txt", "content-encoding"),
        (200, coding("gzip"))
    );
    assert_eq!(
        field("b", "/page.txt", "content-encoding"),
        (200, coding("br"))
    );
    assert_eq!(field("a", "/sub/", "content-type").0, 404);
    let json = field("b", "/sub/", "content-type");
    assert!(json.0 == 200 && json.1.is_some_and(|it| it.starts_with("application/json")));
    assert_eq!(field("a", "/sub/?archive=tar", "content-type").0, 404);
    let tar = field("b", "/sub/?archive=tar", "content-type");
    assert_eq!(tar, (200, coding("application/x-tar")));
    server.end();
}

fn pages_of_other_origins_may_write_to_the_site_that_names_them(driver: Driver) {
    let sites = Sites::new();
    let above = "writable = true\nallow-origin = \"https://all.example\"\n";
    let a = "allow-origin = \"https://app.example\"";
    sites.write(above, &[("a", ""), ("b", "")]);
    let server = sites.start(driver);
    // The first site with terms of its own comes with a reload.
    sites.write(above, &[("a", a), ("b", "")]);
    hang_up(&server, "reloaded");
    for (host, origin, expected) in [
        ("a", "https://app.example", true),
        ("a", "https://all.example", false),
        ("a", "https://a.example", true),
        ("b", "https://app.example", false),
        ("b", "https://all.example", true),
        ("b", "https://b.example", true),
    ] {
        let headers = format!("Origin: {origin}\r\nContent-Length: 1\r\n");
        let mut client = server.client();
        client.send(format!(
            "PUT /new HTTP/1.1\r\nHost: {host}.example\r\n{headers}\r\nx"
        ));
        let status = client.reply().status;
        assert_eq!(
            matches!(status, 201 | 204),
            expected,
            "{host} {origin}: {status}"
        );
        assert!(expected || status == 403, "{host} {origin}: {status}");
    }
    server.end();
}

fn each_site_is_logged_where_it_says(driver: Driver) {
    let sites = Sites::new();
    let a = "access-log = \"a.log\"";
    // With a log of the server, and without.
    for (above, of_b) in [
        ("access-log = \"all.log\"\n", &["/b", "/b2"][..]),
        ("", &[]),
    ] {
        for log in ["a.log", "all.log"] {
            fs::remove_file(sites.0.at(log)).unwrap_or_default();
        }
        sites.write(above, &[("a", a), ("b", "")]);
        let server = sites.start(driver);
        let mut client = server.client();
        // One after another, and together.
        ask(&mut client, "a", "GET /a", "");
        ask(&mut client, "b", "GET /b", "");
        client.send(
            "GET /page.txt HTTP/1.1\r\nHost: a.example\r\n\r\n\
             GET /b2 HTTP/1.1\r\nHost: b.example\r\n\r\n\
             GET /a2 HTTP/1.1\r\nHost: a.example\r\n\r\n",
        );
        let statuses = [(); 3].map(|()| client.reply().status);
        assert_eq!(statuses, [200, 404, 404]);
        drop(client);
        server.end();
        assert_eq!(sites.logged("a.log"), ["/a", "/page.txt", "/a2"]);
        assert_eq!(sites.logged("all.log"), of_b);
    }
}

fn hang_up(server: &Server, words: &str) {
    let count = || server.log().matches(words).count();
    let before = count();
    server.process().signal(Signal::HUP);
    until_true(words, || count() > before);
}

fn a_reload_adds_and_moves_the_logs_of_sites(driver: Driver) {
    let sites = Sites::new();
    let a = "access-log = \"a.log\"";
    sites.write("", &[("a", a), ("b", "")]);
    let server = sites.start(driver);
    let mut kept = server.client();
    ask(&mut kept, "a", "GET /1", "");
    ask(&mut kept, "b", "GET /2", "");
    sites.write("", &[("a", a), ("b", "access-log = \"b.log\"")]);
    hang_up(&server, "reloaded");
    ask(&mut kept, "b", "GET /3", "");
    // Both are opened again, so a file that was moved away gets no more.
    until_true("the lines are written", || {
        sites.logged("a.log") == ["/1"] && sites.logged("b.log") == ["/3"]
    });
    for log in ["a", "b"] {
        let (from, to) = (format!("{log}.log"), format!("{log}.old"));
        fs::rename(sites.0.at(&from), sites.0.at(&to)).expect("moved");
    }
    hang_up(&server, "reloaded");
    until_true("both are there again", || {
        ["a.log", "b.log"]
            .iter()
            .all(|log| sites.0.at(log).exists())
    });
    ask(&mut kept, "a", "GET /4", "");
    ask(&mut kept, "b", "GET /5", "");
    // A log that cannot be opened changes nothing.
    sites.write("", &[("a", a), ("b", "access-log = \"none/b.log\"")]);
    hang_up(&server, "nothing is changed");
    ask(&mut kept, "b", "GET /6", "");
    drop(kept);
    server.end();
    assert_eq!(
        (sites.logged("a.old"), sites.logged("b.old")),
        (vec!["/1".into()], vec!["/3".into()])
    );
    assert_eq!(sites.logged("a.log"), ["/4"]);
    assert_eq!(sites.logged("b.log"), ["/5", "/6"]);
}

fn a_connection_has_the_deadlines_of_the_site_that_it_asked_last(driver: Driver) {
    let sites = Sites::new();
    let hasty = "idle-timeout = 0.2\nbody-timeout = 0.2\nwritable = true";
    sites.write("", &[("a", hasty), ("b", "writable = true")]);
    let server = sites.start(driver);
    let mut patient = server.client();
    assert_eq!(ask(&mut patient, "a", "GET /page.txt", "").status, 200);
    assert_eq!(ask(&mut patient, "b", "GET /page.txt", "").status, 200);
    let begin_upload = |host: &str| {
        let mut client = server.client();
        let head = "Content-Length: 100000\r\n\r\nthe first bytes";
        client.send(format!(
            "PUT /{host} HTTP/1.1\r\nHost: {host}.example\r\n{head}"
        ));
        client
    };
    let (mut slow, mut slow_too) = (begin_upload("b"), begin_upload("a"));
    let mut hasty = server.client();
    // From the cache, too.
    for _ in 0..2 {
        assert_eq!(ask(&mut hasty, "a", "GET /page.txt", "").status, 200);
    }
    hasty.expect_closed();
    // A 408, or nothing: it is over in any case.
    slow_too.rest();
    assert_eq!(ask(&mut patient, "b", "GET /page.txt", "").status, 200);
    slow.send(vec![b'x'; 100_000 - "the first bytes".len()]);
    assert_eq!(slow.reply().status, 201);
    drop((patient, slow));
    server.end();
}
