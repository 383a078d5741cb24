//! `[[site]]` and who may: several directories behind one listener, passwords, networks, rates.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use flatpath_testkit::reply::Reply;
use flatpath_testkit::site::ADA;
use flatpath_testkit::{
    Client, Driver, Launch, Over, Server, Site, binary, each_driver, tools, until_true,
};
use rustix::process::Signal;

each_driver!(
    each_site_has_its_hosts_its_prefix_and_its_settings,
    a_browser_of_another_name_gets_nothing_on_loopback,
    curl_logs_in_with_passwords_of_real_tools,
    guesses_take_no_worker_from_files,
    a_reload_changes_who_may_and_names_what_waits,
    a_reload_takes_over_sites_and_rules_that_are_new_changed_or_gone,
    refusals_have_the_pages_of_their_site,
    addresses_that_proxies_name_are_limited_one_by_one,
    a_redirect_to_tls_answers_for_the_hosts_that_are_served_there,
    what_rules_name_is_looked_for_by_check_serve_and_reload_alike,
);

/// Far beyond what it takes.
const TIME_MAX: Duration = Duration::from_secs(60);

const ADAS: &str = "Authorization: Basic YWRhOnBhc3M6d29yZA==\r\n";

/// Directories, and a file of settings beside them.
struct Configured(Site);

impl Configured {
    fn new(settings: &str) -> Self {
        let site = Site::new();
        for (name, text) in [
            ("a/index", "a"),
            ("a/p/index", "hidden by the site below it"),
            ("b/index", "b"),
            ("b/.dot", "dot"),
            ("rest/index", "rest"),
            ("users", ADA),
        ] {
            if let Some(directory) = site.at(name).parent() {
                fs::create_dir_all(directory).expect("made");
            }
            site.write(name, text);
        }
        let configured = Self(site);
        configured.write(settings);
        configured
    }

    fn config(&self) -> PathBuf {
        self.0.at("flatpath.toml")
    }

    fn write(&self, settings: &str) {
        let text = format!("http = \"127.0.0.1:0\"\n{settings}");
        let new = self.0.at("new");
        fs::write(&new, text).expect("written");
        fs::rename(new, self.config()).expect("renamed");
    }

    fn start(&self, driver: Driver) -> Server {
        Launch::new(binary::flatpath().to_path_buf())
            .with(["serve", "--driver", driver.name(), "--config"])
            .with([self.config()])
            .within(self.0.path())
            .start()
    }
}

fn ask(server: &Server, line: &str, host: &str, headers: &str) -> Reply {
    let mut client = Client::connect(server.address("http"));
    let head = format!("{line} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n");
    client.exchange(head)
}

const SITES: &str = "[[site]]\nnames = \"a.example\"\ndir = \"a\"\n\
    [[site]]\nnames = [\"*.a.example\", \"a.example\"]\nprefix = \"/p\"\ndir = \"b\"\n\
    hidden = true\n\
    [[site]]\ndir = \"rest\"\n";

fn each_site_has_its_hosts_its_prefix_and_its_settings(driver: Driver) {
    let configured = Configured::new(SITES);
    configured.write(&format!("hosts = \"*\"\n{SITES}"));
    let server = configured.start(driver);
    // Twice, so that the second may come from the cache.
    for _ in 0..2 {
        for (target, host, text) in [
            ("/index", "a.example", "a"),
            ("/index", "A.Example.:80", "a"),
            ("/p/index", "a.example", "b"),
            ("/%70/index", "a.example", "b"),
            ("/p/.dot", "x.a.example", "dot"),
            ("/index", "b.example", "rest"),
            ("/index", "127.0.0.1", "rest"),
            ("http://b.example/index", "a.example", "rest"),
            ("http://a.example/index", "b.example", "a"),
        ] {
            let reply = ask(&server, &format!("GET {target}"), host, "");
            assert_eq!((reply.status, reply.text()), (200, text), "{host} {target}");
        }
        for (target, host) in [
            ("/index", "x.a.example"),
            ("/.dot", "a.example"),
            ("/p%2Findex", "a.example"),
        ] {
            let reply = ask(&server, &format!("GET {target}"), host, "");
            assert_eq!(reply.status, 404, "{host} {target}");
        }
    }
    let reply = ask(&server, "GET /p", "a.example", "");
    assert_eq!((reply.status, reply.field("location")), (301, Some("/p/")));
    server.end();
}

/// DNS rebinding: the names of sites are answered beside those of the machine, and no others, also
/// where a site is for every other host.
fn a_browser_of_another_name_gets_nothing_on_loopback(driver: Driver) {
    let configured = Configured::new(SITES);
    let server = configured.start(driver);
    for (host, status) in [
        ("a.example", 200),
        ("localhost", 200),
        ("127.0.0.1:8080", 200),
        ("evil.example", 421),
    ] {
        let reply = ask(&server, "GET /index", host, "");
        assert_eq!(reply.status, status, "{host}");
    }
    server.end();
    // Without a site for the others, an address has none.
    let configured = Configured::new("[[site]]\nnames = \"a.example\"\ndir = \"a\"\n");
    let server = configured.start(driver);
    for (host, status) in [("a.example", 200), ("localhost", 421), ("127.0.0.1", 421)] {
        assert_eq!(
            ask(&server, "GET /index", host, "").status,
            status,
            "{host}"
        );
    }
    server.end();
}

fn curl_logs_in_with_passwords_of_real_tools(driver: Driver) {
    let (Some(curl), Some(openssl)) = (tools::find("curl"), tools::find("openssl")) else {
        return;
    };
    let configured = Configured::new(
        "[[site]]\nnames = \"a.example\"\ndir = \"a\"\nauth-file = \"users\"\nwritable = true\n",
    );
    let mut command = Command::new(openssl);
    command.args(["passwd", "-6", "another one"]);
    let hash = tools::run(&mut command, TIME_MAX);
    let hash = String::from_utf8(hash.stdout).expect("text");
    configured.0.write("users", format!("{ADA}bob:{hash}"));
    let server = configured.start(driver);
    let address = server.address("http");
    let status = |user: &str, arguments: &[&str]| {
        let mut command = Command::new(&curl);
        command.args([
            "--silent",
            "--output",
            "/dev/null",
            "--write-out",
            "%{http_code}",
        ]);
        command.args(["--header", "Host: a.example", "--user", user]);
        command
            .args(arguments)
            .arg(format!("http://{address}/index"));
        let output = tools::run(&mut command, TIME_MAX);
        String::from_utf8(output.stdout).expect("a status")
    };
    for _ in 0..2 {
        for (user, expected) in [
            ("ada:pass:word", "200"),
            ("bob:another one", "200"),
            ("bob:pass:word", "401"),
            ("eve:another one", "401"),
        ] {
            assert_eq!(status(user, &[]), expected, "{user}");
        }
    }
    assert_eq!(
        status("eve:x", &["--request", "PUT", "--data", "pwned"]),
        "401"
    );
    let index = || fs::read_to_string(configured.0.at("a/index")).expect("there");
    assert_eq!(index(), "a");
    assert_eq!(
        status("bob:another one", &["--request", "PUT", "--data", "new"]),
        "204"
    );
    assert_eq!(index(), "new");
    server.end();
}

/// Another wrong password of `ada` for each number.
fn wrong(number: usize) -> String {
    let credentials = BASE64_STANDARD.encode(format!("ada:xx{number:03}"));
    format!("Basic {credentials}")
}

/// Guesses of an address before there is a wait between two.
const GUESSES_AT_ONCE: usize = 20;

/// Many connections guess while others are served: files, also those that workers read, and users
/// that log in for the first time.
fn guesses_take_no_worker_from_files(driver: Driver) {
    let configured = Configured::new(
        "workers = \"1..4\"\nhosts = \"*\"\n[[site]]\ndir = \"a\"\n\
         [[site]]\nprefix = \"/p\"\ndir = \"b\"\nauth-file = \"users\"\n",
    );
    let server = configured.start(driver);
    let address = server.address("http");
    let is_over = Over::default();
    let guessed = AtomicUsize::new(0);
    let guess = |first: usize| {
        let mut statuses = Vec::new();
        let mut number = first;
        while !is_over.is_set() {
            number += 4;
            let mut client = Client::connect(address);
            let reply = client.ask("/p/index", &[("Authorization", &wrong(number % 1000))]);
            statuses.push(reply.status);
            guessed.fetch_add(1, Ordering::Relaxed);
        }
        statuses
    };
    let guess = &guess;
    let statuses = std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let guessing: Vec<_> = (0..4)
            .map(|first| scope.spawn(move || guess(first)))
            .collect();
        // As long as it takes for more guesses than an address may make at once.
        for round in 0.. {
            if round >= 50 && guessed.load(Ordering::Relaxed) >= 2 * GUESSES_AT_ONCE {
                break;
            }
            let reply = ask(&server, "GET /index", "h", "");
            assert_eq!(reply.text(), "a", "{round}");
            // A listing is for workers.
            assert_eq!(ask(&server, "GET /", "h", "").status, 200, "{round}");
        }
        is_over.set();
        let statuses = guessing
            .into_iter()
            .flat_map(|it| it.join().expect("answered"));
        statuses.collect::<Vec<_>>()
    });
    let count = |status| statuses.iter().filter(|it| **it == status).count();
    assert_eq!(count(200), 0);
    // Twenty at once, and one each three seconds.
    assert!(
        (GUESSES_AT_ONCE..=3 * GUESSES_AT_ONCE).contains(&count(401)),
        "{} of {}",
        count(401),
        statuses.len()
    );
    assert_eq!(count(401) + count(429) + count(503), statuses.len());
    server.end();
}

fn hang_up(server: &Server, words: &str) {
    let count = || {
        server
            .log()
            .lines()
            .filter(|line| line.contains(words))
            .count()
    };
    let before = count();
    server.process().signal(Signal::HUP);
    until_true(words, || count() > before);
}

fn a_reload_changes_who_may_and_names_what_waits(driver: Driver) {
    let site = |rules: &str| {
        format!("hosts = \"*\"\n[[site]]\nnames = \"a.example\"\ndir = \"a\"\n{rules}")
    };
    let configured = Configured::new(&site("deny = \"192.0.2.0/24\"\n"));
    let server = configured.start(driver);
    let mut kept = Client::connect(server.address("http"));
    let get = "GET /index HTTP/1.1\r\nHost: a.example\r\n\r\n";
    assert_eq!(kept.exchange(get).status, 200);
    configured.write(&site("deny = \"127.0.0.0/8\"\n"));
    hang_up(&server, "reloaded");
    server.await_log("deny of [[site]] a.example / is \"127.0.0.0/8\" now");
    assert_eq!(kept.exchange(get).status, 403, "of a kept connection, too");
    configured.write(&site("auth-file = \"users\"\nhidden = true\n"));
    hang_up(&server, "reloaded");
    server.await_log("hidden of [[site]] a.example / is true now");
    assert_eq!(kept.exchange(get).status, 401);
    let with = get.replace("\r\n\r\n", &format!("\r\n{ADAS}\r\n"));
    assert_eq!(kept.exchange(&with).status, 200);
    // A mistake changes nothing; neither does half a file of passwords.
    configured.0.write("users", "ada:secret\n");
    hang_up(&server, "nothing is changed");
    server.await_log("users:1: ada: this is DES, a plain password or no hash at all");
    assert_eq!(kept.exchange(&with).status, 200);
    configured.0.write("users", ADA.replace("ada:", "eve:"));
    hang_up(&server, "reloaded");
    assert_eq!(kept.exchange(&with).status, 401);
    configured.write(&format!(
        "{}[[site]]\ndir = \"rest\"\nrate = \"1/s\"\n",
        site("")
    ));
    hang_up(&server, "reloaded");
    server.await_log("[[site]] * / is served now");
    let other = [(); 2].map(|()| ask(&server, "GET /index", "b.example", "").status);
    assert_eq!(other, [200, 429], "with its limit");
    assert_eq!(kept.exchange(get).status, 200, "without rules everyone may");
    server.end();
}

fn a_reload_takes_over_sites_and_rules_that_are_new_changed_or_gone(driver: Driver) {
    let site = |name: &str, dir: &str| format!("[[site]]\nnames = \"{name}\"\ndir = \"{dir}\"\n");
    let configured = Configured::new(&site("a.example", "a"));
    let server = configured.start(driver);
    let mut kept = Client::connect(server.address("http"));
    let mut get = |path: &str| {
        let reply = kept.exchange(format!("GET {path} HTTP/1.1\r\nHost: a.example\r\n\r\n"));
        let field = reply.field("x-rule").or(reply.field("location"));
        (
            reply.status,
            reply.text().to_owned(),
            field.map(str::to_owned),
        )
    };
    let other = |path: &str| {
        let reply = ask(&server, &format!("GET {path}"), "b.example", "");
        (reply.status, reply.text().to_owned())
    };
    // Twice, so that it is in the cache.
    for _ in 0..2 {
        assert_eq!(get("/index"), (200, "a".into(), None));
    }
    assert_eq!(other("/index").0, 421);
    let rules = "[[site.redirect]]\nfrom = \"/old\"\nto = \"/index\"\n\
        [[site.header]]\npath = \"/index\"\nset = { X-Rule = \"1\" }\n";
    configured.write(&format!(
        "{}{rules}{}",
        site("a.example", "a"),
        site("b.example", "b")
    ));
    hang_up(&server, "reloaded");
    server.await_log("the rules of [[site]] a.example / are new");
    server.await_log("[[site]] b.example / is served now");
    let headed = || (200, "a".into(), Some("1".into()));
    assert_eq!((get("/index"), get("/index")), (headed(), headed()));
    assert_eq!((get("/old").0, get("/old").2), (301, Some("/index".into())));
    // On a loopback address a name is answered because a site has it.
    assert_eq!(other("/index"), (200, "b".into()));
    // A directory that is not there is a mistake, which changes nothing.
    configured.write(&site("a.example", "none"));
    hang_up(&server, "nothing is changed");
    assert_eq!((get("/index"), other("/index").0), (headed(), 200));
    configured.write(&site("a.example", "rest"));
    hang_up(&server, "reloaded");
    server.await_log("[[site]] b.example / is no longer served");
    assert_eq!(get("/index"), (200, "rest".into(), None));
    assert_eq!(other("/index").0, 421);
    configured.write("");
    hang_up(&server, "reloaded");
    server.await_log("no [[site]] is left in");
    assert_eq!(get("/index"), (200, "rest".into(), None), "until a restart");
    server.end();
}

/// 401, 403 and 429 come from around the files, and have their pages all the same.
fn refusals_have_the_pages_of_their_site(driver: Driver) {
    let pages = "[site.error-pages]\n401 = \"/401\"\n403 = \"/403\"\n429 = \"/429\"\n";
    let settings = format!(
        "hosts = \"*\"\n\
         [[site]]\nnames = \"asks.example\"\ndir = \"a\"\nauth-file = \"users\"\n{pages}\
         [[site]]\nnames = \"denies.example\"\ndir = \"a\"\ndeny = \"127.0.0.1\"\n{pages}\
         [[site]]\nnames = \"limits.example\"\nprefix = \"/p\"\ndir = \"a\"\n\
         rate = \"1/1h\"\n{pages}"
    );
    let configured = Configured::new(&settings);
    for status in ["401", "403", "429"] {
        configured
            .0
            .write(&format!("a/{status}"), format!("page of {status}"));
    }
    let server = configured.start(driver);
    assert_eq!(
        ask(&server, "GET /p/index", "limits.example", "").status,
        200
    );
    for (host, status, field) in [
        ("asks.example", 401, Some("www-authenticate")),
        ("denies.example", 403, None),
        ("limits.example", 429, Some("retry-after")),
    ] {
        for line in ["GET /p/index", "GET /p/none", "PUT /p/new", "POST /p/index"] {
            let reply = ask(&server, line, host, "Content-Length: 0\r\n");
            let page = format!("page of {status}");
            assert_eq!(
                (reply.status, reply.text()),
                (status, &*page),
                "{host} {line}"
            );
            assert!(
                field.is_none_or(|name| reply.field(name).is_some()),
                "{host} {line}"
            );
            assert_eq!(reply.field("etag"), None, "of no page of the path");
        }
    }
    let known = ask(&server, "GET /index", "asks.example", ADAS);
    assert_eq!((known.status, known.text()), (200, "a"));
    server.end();
}

fn addresses_that_proxies_name_are_limited_one_by_one(driver: Driver) {
    let configured = Configured::new(
        "hosts = \"*\"\nforwarded-from = \"127.0.0.0/8\"\ndir = \"a\"\nrate = \"2/1h\"\n\
         deny = \"192.0.2.66\"\n",
    );
    let server = configured.start(driver);
    let from = |address: &str| {
        let header = format!("X-Forwarded-For: {address}\r\n");
        ask(&server, "GET /index", "h", &header).status
    };
    assert_eq!([(); 3].map(|()| from("192.0.2.1")), [200, 200, 429]);
    assert_eq!(from("192.0.2.2"), 200);
    assert_eq!(from("192.0.2.66"), 403);
    // What a client has written before the proxy added its address counts for nothing.
    assert_eq!(from("192.0.2.2, 192.0.2.66"), 403);
    assert_eq!(from("192.0.2.66, 192.0.2.2"), 200);
    let header = "X-Forwarded-For: 192.0.2.1\r\n";
    let reply = ask(&server, "GET /index", "h", header);
    let wait: u64 = reply
        .field("retry-after")
        .expect("when")
        .parse()
        .expect("a number");
    assert!((1..=1800).contains(&wait), "{wait}");
    server.end();
}

/// One table of hosts: whatever the address, a host is redirected that the listener with TLS
/// answers for, and no other.
fn a_redirect_to_tls_answers_for_the_hosts_that_are_served_there(driver: Driver) {
    let a = "[[site]]\nnames = [\"a.example\", \"*.a.example\"]\nprefix = \"/p\"\ndir = \"a\"\n";
    let b = "[[site]]\nnames = \"b.example\"\ndir = \"b\"\n";
    let rest = "[[site]]\ndir = \"rest\"\n";
    for at in ["127.0.0.1", "0.0.0.0"] {
        let configured = Configured::new("");
        let write = |settings: &str| {
            let tls = "http-redirect = true\ntls-self-signed = true\n";
            let addresses = format!("http = \"{at}:0\"\nhttps = \"{at}:0\"\n{tls}");
            configured.0.write("flatpath.toml", addresses + settings);
        };
        let status = |server: &Server, host: &str| ask(server, "GET /p/a", host, "").status;
        write(a);
        let server = configured.start(driver);
        let reply = ask(&server, "GET /p/b?x=1", "a.example", "");
        let port = server.address("https").port();
        let location = format!("https://a.example:{port}/p/b?x=1");
        let location = Some(&*location);
        assert_eq!((reply.status, reply.field("location")), (308, location));
        assert_eq!(status(&server, "x.a.example"), 308, "{at}");
        for host in ["b.example", "evil.example", "127.0.0.1", "localhost"] {
            assert_eq!(status(&server, host), 421, "{at}: {host}");
        }
        write(&format!("{a}{b}"));
        hang_up(&server, "reloaded");
        assert_eq!(status(&server, "b.example"), 308, "{at}");
        assert_eq!(status(&server, "evil.example"), 421, "{at}");
        server.end();
        write(&format!("{a}{rest}"));
        let server = configured.start(driver);
        for host in ["a.example", "c.example", "127.0.0.1"] {
            assert_eq!(status(&server, host), 308, "{at}: {host}");
        }
        server.end();
        write(&format!("hosts = \"c.example\"\n{a}{rest}"));
        let server = configured.start(driver);
        for (host, expected) in [("a.example", 308), ("c.example", 308), ("b.example", 421)] {
            assert_eq!(status(&server, host), expected, "{at}: {host}");
        }
        server.end();
    }
}

/// What `check` prints to standard error, and its code.
fn checked(configured: &Configured) -> (String, Option<i32>) {
    let mut command = Command::new(binary::flatpath());
    let path = configured.config();
    command
        .arg("check")
        .arg(path)
        .current_dir(configured.0.path());
    let output = tools::run(&mut command, TIME_MAX);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (said, output.status.code())
}

fn what_rules_name_is_looked_for_by_check_serve_and_reload_alike(driver: Driver) {
    let site = |rules: &str| format!("[[site]]\nnames = \"a.example\"\ndir = \"a\"\n{rules}");
    let rules = "spa = \"/no.html\"\n[site.error-pages]\n403 = \"/403.html\"\n404 = \"/index\"\n";
    let configured = Configured::new(&site(rules));
    configured.0.write("a/_redirects", "/x /gone.html 200\n");
    configured.0.settle();
    let server = configured.start(driver);
    let lines = |said: &str, named: &str| said.lines().filter(|it| it.contains(named)).count();
    for named in ["found is /no.html, and", "page for 403 is /403.html, and"] {
        server.await_log(named);
        let (said, code) = checked(&configured);
        assert_eq!((lines(&said, named), code), (1, Some(0)), "{said}");
    }
    let (said, _) = checked(&configured);
    assert_eq!(lines(&said, "and there is no such file"), 2, "{said}");
    configured.write(&site("root-files = true\ntry = [\"$path\", \"/none\"]\n"));
    hang_up(&server, "reloaded");
    for named in [
        "to try has /none, and",
        "_redirects: the page where nothing is found is /gone",
    ] {
        server.await_log(named);
        let (said, code) = checked(&configured);
        assert_eq!((lines(&said, named), code), (1, Some(0)), "{said}");
    }
    // What cannot be meant is refused: by a reload, too, which changes nothing then.
    let redirect = "[[site.redirect]]\nfrom = \"/old/*\"\nto = \"/new/:splat\"\n";
    for (mistake, words) in [
        (redirect, "the variable is $splat"),
        ("allow = \"10.0.0.5/8\"\n", "write 10.0.0.0/8 or 10.0.0.5"),
        ("name = \"b.example\"\n", "did you mean names?"),
        (
            "all-squash = true\n",
            "options = \"all_squash\" in an [[export]]",
        ),
    ] {
        configured.write(&site(mistake));
        let (said, code) = checked(&configured);
        assert_eq!((lines(&said, words), code), (1, Some(2)), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        hang_up(&server, "nothing is changed");
        server.await_log(words);
    }
    server.end();
}
