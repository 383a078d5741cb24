//! A deploy puts another directory in the place of the one that is served: by a link, by renames,
//! or by removing it and making it again. It is served from then on, with a signal and without.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::Path;

use flatpath_testkit::{
    Client, Driver, Launch, Reply, Server, Site, each_driver, until, until_true,
};
use rustix::process::Signal;

each_driver!(
    a_new_directory_is_served_however_it_came_wherever_it_is_named,
    what_has_begun_ends_in_the_directory_in_which_it_began,
    a_directory_that_is_gone_gets_503_until_it_is_back,
    rules_and_siblings_are_those_of_the_directory_that_is_served,
    a_site_keeps_what_it_has_had_before_from_the_sites_around_it,
    a_relative_path_is_followed_from_where_the_server_was_started,
);

/// Puts a link there at once, in the place of another or of nothing.
fn link(to: &str, path: &Path) {
    let new = path.with_extension("new");
    symlink(to, &new).expect("linked");
    fs::rename(new, path).expect("renamed");
}

/// A directory with one file.
fn make(path: &Path, name: &str, content: &str) {
    fs::create_dir_all(path).expect("made");
    fs::write(path.join(name), content).expect("written");
}

fn get(address: SocketAddr, host: &str, target: &str) -> Reply {
    Client::connect(address).ask(target, &[("Host", host)])
}

fn until_served(server: &Server, target: &str, content: &str) {
    until_true(content, || server.client().get(target).text() == content);
}

fn count(log: &str, words: &str) -> usize {
    log.lines().filter(|line| line.contains(words)).count()
}

/// A directory above the tables, of a site, and of a listener, each by a link, by renames, and by
/// being made again.
fn a_new_directory_is_served_however_it_came_wherever_it_is_named(driver: Driver) {
    let site = Site::new();
    site.write(
        "flatpath.toml",
        "dir = \"www/d\"\nhttp = \"127.0.0.1:0\"\nhosts = \"*\"\n\
         [[site]]\nnames = \"a.example\"\ndir = \"www/a\"\n\
         [[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.1:0\"\ndir = \"www/l\"\n",
    );
    for place in ["d", "a", "l"] {
        make(&site.at(&format!("releases/{place}-1")), "x", "one");
        make(&site.at(&format!("releases/{place}-2")), "x", "two");
        fs::create_dir_all(site.at("www")).expect("made");
        link(
            &format!("../releases/{place}-1"),
            &site.at(&format!("www/{place}")),
        );
    }
    let server = Launch::configured(driver, site.path()).start();
    let [first, second] = [0, 1].map(|number: usize| server.listeners()[number].1);
    for (place, address, host) in [
        ("d", first, "any.example"),
        ("a", first, "a.example"),
        ("l", second, "localhost"),
    ] {
        let path = site.at(&format!("www/{place}"));
        let content = |words: &str| {
            until_true(&format!("{place}: {words}"), || {
                let reply = get(address, host, "/x");
                reply.status == 200 && reply.text() == words
            });
            assert_eq!(get(address, host, "/").status, 200, "{place}: a listing");
        };
        content("one");
        link(&format!("../releases/{place}-2"), &path);
        content("two");
        let new = site.at("www/new");
        make(&new, "x", "three");
        fs::rename(&path, site.at(&format!("www/{place}-old"))).expect("renamed");
        fs::rename(&new, &path).expect("renamed");
        content("three");
        fs::remove_dir_all(&path).expect("removed");
        make(&path, "x", "four");
        content("four");
        fs::rename(&path, site.at(&format!("www/{place}-last"))).expect("renamed");
        link(&format!("../releases/{place}-1"), &path);
        server.process().signal(Signal::HUP);
        content("one");
    }
    let log = server.end();
    let told = count(&log, "is another one now, which is served");
    let back = count(&log, "is back, and is served");
    assert_eq!(told + back, 12, "a line for each: {log}");
}

fn what_has_begun_ends_in_the_directory_in_which_it_began(driver: Driver) {
    const BYTES: usize = 24 << 20;
    let site = Site::new();
    make(&site.at("one"), "large", &"1".repeat(BYTES));
    make(&site.at("two"), "large", "2");
    link("one", &site.at("www"));
    let server = Launch::serve(driver)
        .directory(&site.at("www"))
        .with(["--writable"])
        .start();
    let mut download = server.client();
    download.request("GET", "/large", &[]);
    until_true("the download to begin", || !download.is_quiet());
    let mut upload = server.client();
    upload.request("PUT", "/new", &[("Content-Length", "8")]);
    upload.send("half");
    let create = |client: &mut Client| {
        let fields = [
            ("Tus-Resumable", "1.0.0"),
            ("Upload-Length", "4"),
            ("Content-Length", "0"),
        ];
        client.request("POST", "/resumed", &fields);
        let reply = client.reply();
        assert_eq!(reply.status, 201);
        reply.field("location").expect("an address").to_owned()
    };
    let ask = |address: &str| {
        let mut client = server.client();
        client.request("HEAD", address, &[("Tus-Resumable", "1.0.0")]);
        client.reply_to_head().status
    };
    let before = create(&mut server.client());
    assert_eq!(ask(&before), 200);
    let one = site.at("one").canonicalize().expect("there");
    until_true("the upload to begin", || {
        let open = server.process().open_files();
        let mut below = open.iter().filter_map(|it| it.strip_prefix(&one).ok());
        // Without a name, or with a hidden one.
        below.any(|it| !matches!(it.to_str(), Some("" | "large")))
    });
    link("two", &site.at("www"));
    until_served(&server, "/large", "2");
    upload.send("more");
    assert_eq!(upload.reply().status, 201);
    assert_eq!(fs::read(site.at("one/new")).expect("there"), b"halfmore");
    assert!(!site.at("two/new").exists());
    let reply = download.reply();
    assert!(reply.body.len() == BYTES && reply.body.iter().all(|byte| *byte == b'1'));
    // What comes now is of the new directory.
    let mut client = server.client();
    client.request("PUT", "/new", &[("Content-Length", "3")]);
    client.send("two");
    assert_eq!(client.reply().status, 201);
    assert_eq!(fs::read(site.at("two/new")).expect("there"), b"two");
    assert_eq!(ask(&before), 404, "it is left where it began");
    let now = create(&mut server.client());
    assert_eq!(ask(&now), 200);
    assert!(site.at("two/.flatpath-uploads").exists());
    server.end();
}

fn a_directory_that_is_gone_gets_503_until_it_is_back(driver: Driver) {
    let site = Site::new();
    make(&site.at("www"), "x", "one");
    let server = Launch::serve(driver)
        .directory(&site.at("www"))
        .with(["--writable", "--admin", "127.0.0.1:0"])
        .start();
    let admin = server.address("admin");
    let ready = || Client::connect(admin).get("/readyz");
    assert_eq!(server.client().get("/x").text(), "one");
    assert_eq!(ready().status, 200);
    fs::remove_dir_all(site.at("www")).expect("removed");
    let path = site.at("www").display().to_string();
    let reply = until("nothing is served", || {
        let reply = server.client().get("/x");
        (reply.status == 503).then_some(reply)
    });
    assert_eq!(reply.field("retry-after"), Some("1"));
    let mut client = server.client();
    client.request("PUT", "/new", &[("Content-Length", "0")]);
    assert_eq!(client.reply().status, 503);
    let not_ready = ready();
    assert_eq!(not_ready.status, 503);
    assert!(not_ready.text().contains(&path), "{}", not_ready.text());
    make(&site.at("www"), "x", "two");
    until_served(&server, "/x", "two");
    until_true("it is ready", || ready().status == 200);
    let log = server.end();
    for (words, lines) in [("is gone: No such file", 1), ("is back, and is served", 1)] {
        assert_eq!(count(&log, &format!("{path} {words}")), lines, "{words}");
    }
}

fn rules_and_siblings_are_those_of_the_directory_that_is_served(driver: Driver) {
    let site = Site::new();
    for (name, version) in [("one", "1"), ("two", "2")] {
        let at = |file: &str| site.at(name).join(file);
        make(
            &site.at(name),
            "_headers",
            &format!("/*\n  X-Version: {version}\n"),
        );
        fs::write(at("_redirects"), format!("/old /{version} 302\n")).expect("written");
        fs::write(at("x"), name).expect("written");
        fs::write(at("x.br"), format!("{name} squeezed")).expect("written");
    }
    fs::remove_file(site.at("two/x.br")).expect("removed");
    link("one", &site.at("www"));
    site.write(
        "flatpath.toml",
        "http = \"127.0.0.1:0\"\nhosts = \"*\"\n[[site]]\ndir = \"www\"\nroot-files = true\n",
    );
    let server = Launch::configured(driver, site.path()).start();
    let seen = || {
        let reply = server.client().ask("/x", &[("Accept-Encoding", "br")]);
        let moved = server.client().get("/old");
        let field = |reply: &Reply, name| reply.field(name).unwrap_or_default().to_owned();
        let location = field(&moved, "location");
        (
            field(&reply, "x-version"),
            reply.text().to_owned(),
            location,
        )
    };
    let of = |version: &str, text: &str, location: &str| {
        (version.to_owned(), text.to_owned(), location.to_owned())
    };
    assert_eq!(seen(), of("1", "one squeezed", "/1"));
    link("two", &site.at("www"));
    until_true("the other directory", || seen() == of("2", "two", "/2"));
    server.end();
}

fn a_site_keeps_what_it_has_had_before_from_the_sites_around_it(driver: Driver) {
    let site = Site::new();
    for name in ["one", "two"] {
        make(&site.at("pub/releases").join(name), "x", name);
    }
    link("releases/one", &site.at("pub/current"));
    site.write(
        "flatpath.toml",
        "http = \"127.0.0.1:0\"\nhosts = \"*\"\n\
         [[site]]\nnames = \"inner.example\"\ndir = \"pub/current\"\ndeny = [\"127.0.0.0/8\"]\n\
         [[site]]\nnames = \"outer.example\"\ndir = \"pub\"\n",
    );
    let server = Launch::configured(driver, site.path()).start();
    let address = server.address("http");
    let status = |target: &str| get(address, "outer.example", target).status;
    assert_eq!(status("/releases/one/x"), 403);
    assert_eq!(status("/releases/two/x"), 200, "it is no site's yet");
    link("releases/two", &site.at("pub/current"));
    until_true("it is the site's", || status("/releases/two/x") == 403);
    assert_eq!(status("/releases/one/x"), 403, "it was the site's");
    assert_eq!(status("/current/x"), 403);
    server.end();
}

fn a_relative_path_is_followed_from_where_the_server_was_started(driver: Driver) {
    let site = Site::new();
    make(&site.at("www"), "x", "one");
    let server = Launch::serve(driver)
        .within(&site.at("www"))
        .with(["."])
        .start();
    assert_eq!(server.client().get("/x").text(), "one");
    fs::remove_dir_all(site.at("www")).expect("removed");
    make(&site.at("www"), "x", "two");
    until_served(&server, "/x", "two");
    server.end();
}
