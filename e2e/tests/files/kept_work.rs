//! Handlers that wait have all the workers that they can get. Passwords are checked, files are
//! compressed and archives are made all the same: each kind of work that never waits for a client
//! keeps a part of the workers, over HTTP/1 and HTTP/2, and also of sites that come later. And of
//! what a listener beside others may have, an address leaves some, so a newcomer's handler runs.

use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flatpath::tls::TlsConfig;
use flatpath::{Running, Server};
use flatpath_echo::Echo;
use flatpath_files::{ArchiveFormat, Files};
use flatpath_http::{Hosts, Http, LiveSites, LiveSitesHandle, Router, Sites};
use flatpath_layers::{Access, AccessHandle, Compression, Guard, Htpasswd};
use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Client, Driver, Issued, Site, each_driver, tools, until};

use flatpath_e2e::choice;
use flatpath_testkit::h2_frames::{PREFACE, SETTINGS, asks, frame};
use flatpath_testkit::site::ADA;

each_driver!(
    what_waits_for_nobody_finds_a_worker_where_handlers_have_all_others,
    what_follows_the_check_of_a_password_does_not_have_its_part,
    over_http2_it_finds_one_too,
    sites_that_come_later_find_the_parts_of_their_work,
    a_guard_that_asks_for_passwords_later_finds_their_part,
    many_passwords_of_one_address_do_not_keep_out_another,
    an_address_leaves_some_of_what_its_listener_has_beside_others_with_tls,
);

/// What `ADA` sends.
const ADAS: (&str, &str) = ("authorization", "Basic YWRhOnBhc3M6d29yZA==");
const GZIP: (&str, &str) = ("accept-encoding", "gzip");
const WORKERS: u32 = 16;
const NEWCOMER: u8 = 2;

/// Handlers that wait until this goes.
#[derive(Clone, Default)]
struct Gate(Arc<(AtomicUsize, Mutex<bool>, Condvar)>);

impl Gate {
    fn wait(&self) -> &'static str {
        let (waiting, may_go, change) = &*self.0;
        waiting.fetch_add(1, Ordering::Relaxed);
        let locked = may_go.lock().expect("sound");
        drop(change.wait_while(locked, |may_go| !*may_go).expect("sound"));
        "gone\n"
    }

    fn waiting(&self) -> usize {
        self.0.0.load(Ordering::Relaxed)
    }

    fn await_waiting(&self, count: usize) {
        until("as many handlers wait as may", || {
            (self.waiting() == count).then_some(())
        });
    }
}

/// What clients speak.
#[derive(Clone, Copy)]
enum Version {
    Http1,
    Http2,
}

/// Opens the gate before the server ends, which waits for its workers.
struct Served {
    running: Option<Running>,
    gate: Gate,
    version: Version,
    site: Site,
}

/// The status of an answer, whether it is coded, and its text.
struct Answer {
    status: u16,
    is_coded: bool,
    text: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let (_, may_go, change) = &*self.gate.0;
        *may_go.lock().expect("sound") = true;
        change.notify_all();
        drop(self.running.take());
    }
}

impl Served {
    fn start(driver: Driver, listen: impl FnOnce(Server, &Served) -> Server) -> Served {
        let site = Site::new()
            .with("text.txt", "some words\n".repeat(10_000))
            .with("passwords", ADA);
        let mut served = Served {
            running: None,
            gate: Gate::default(),
            version: Version::Http1,
            site,
        };
        let server = Server::new().network_threads(1).driver(choice(driver));
        let server = listen(server.workers(1..=WORKERS), &served);
        served.running = Some(server.start().expect("started"));
        served
    }

    fn files(&self) -> Files {
        let files = Files::open(self.site.path()).expect("it is there");
        let files = files.archives([ArchiveFormat::Tar]);
        files.compress(Compression::new())
    }

    fn access(&self) -> Access {
        let file = Htpasswd::open(&self.site.at("passwords")).expect("good");
        Access::new().passwords("all", &file)
    }

    fn waits(&self) -> impl Fn() -> &'static str + Send + Sync + 'static {
        let gate = self.gate.clone();
        move || gate.wait()
    }

    fn router(&self) -> Router {
        let guarded: Router = Router::new().get("/wait", self.waits());
        Router::new()
            .get("/wait", self.waits())
            .get("/pooled", || "pooled\n")
            .nest_service("/files", self.files())
            .nest_service("/private", Guard::new(self.files(), self.access()))
            .nest_service("/guarded", Guard::new(guarded, self.access()))
    }

    fn from(&self, host: u8) -> Client {
        let running = self.running.as_ref().expect("it runs");
        let to = running.addresses()[0].address;
        Client::connect_from(([127, 0, 0, host], 0).into(), to)
    }

    /// `count` clients that ask for what waits, each from its own address.
    fn crowd(&self, count: u8, target: &str, fields: &[(&str, &str)]) -> Vec<Client> {
        let hosts = 100..100 + count;
        hosts
            .map(|host| {
                let mut client = self.from(host);
                match self.version {
                    Version::Http1 => client.request("GET", target, fields),
                    Version::Http2 => {
                        let settings = frame(SETTINGS, 0, 0, &[]);
                        let get = asks(1, "localhost", target, fields);
                        client.send([PREFACE, &settings, &get].concat());
                    }
                }
                client
            })
            .collect()
    }

    /// What a newcomer is answered.
    fn answer(&self, target: &str, fields: &[(&str, &str)]) -> Answer {
        match self.version {
            Version::Http1 => {
                let mut newcomer = self.from(NEWCOMER);
                newcomer.request("GET", target, fields);
                let reply = newcomer.reply();
                Answer {
                    status: reply.status,
                    is_coded: reply.field("content-encoding").is_some(),
                    text: String::from_utf8_lossy(&reply.body).into_owned(),
                }
            }
            Version::Http2 => self.answer_over_http2(target, fields),
        }
    }

    fn answer_over_http2(&self, target: &str, fields: &[(&str, &str)]) -> Answer {
        let running = self.running.as_ref().expect("it runs");
        let mut curl = Command::new("curl");
        curl.args(["-s", "-i", "--http2-prior-knowledge", "--interface"]);
        curl.arg(format!("127.0.0.{NEWCOMER}"));
        for (name, value) in fields {
            curl.args(["-H", &format!("{name}: {value}")]);
        }
        curl.arg(format!("http://{}{target}", running.addresses()[0].address));
        let said = tools::run(&mut curl, patience()).stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        let (head, text) = said.split_once("\r\n\r\n").expect("a head");
        let status = head.strip_prefix("HTTP/2 ").and_then(|it| it.get(..3));
        Answer {
            status: status.and_then(|it| it.parse().ok()).expect("a status"),
            is_coded: head.contains("content-encoding: "),
            text: text.to_owned(),
        }
    }
}

fn alone(server: Server, served: &Served) -> Server {
    server.listen("127.0.0.1:0", Http::service(served.router()))
}

/// A file behind a password that was not checked for any client before.
fn password_is_checked(served: &Served) {
    assert_eq!(served.answer("/private/passwords", &[ADAS]).text, ADA);
}

/// Checks, compresses and archives for a newcomer.
fn work_is_done(served: &Served) {
    for (target, fields, is_coded) in [
        ("/files/text.txt", &[GZIP][..], true),
        ("/files/?archive=tar", &[], false),
        ("/private/text.txt", &[ADAS, GZIP], true),
        ("/private/?archive=tar", &[ADAS], false),
    ] {
        let answer = served.answer(target, fields);
        assert_eq!(
            (answer.status, answer.is_coded),
            (200, is_coded),
            "{target}"
        );
    }
    let wrong = [("authorization", "Basic eDp5")];
    assert_eq!(served.answer("/private/passwords", &wrong).status, 401);
}

fn what_waits_for_nobody_finds_a_worker_where_handlers_have_all_others(driver: Driver) {
    let served = Served::start(driver, alone);
    let _crowd = served.crowd(40, "/wait", &[]);
    // Two kinds of work keep one worker each.
    served.gate.await_waiting(14);
    password_is_checked(&served);
    work_is_done(&served);
    assert_eq!(served.gate.waiting(), 14);
}

fn what_follows_the_check_of_a_password_does_not_have_its_part(driver: Driver) {
    let served = Served::start(driver, alone);
    let _crowd = served.crowd(40, "/guarded/wait", &[ADAS]);
    served.gate.await_waiting(14);
    work_is_done(&served);
    assert_eq!(served.gate.waiting(), 14);
}

fn over_http2_it_finds_one_too(driver: Driver) {
    if tools::find("curl").is_none() {
        return;
    }
    for (target, fields) in [("/wait", &[][..]), ("/guarded/wait", &[ADAS])] {
        let mut served = Served::start(driver, alone);
        served.version = Version::Http2;
        let _crowd = served.crowd(40, target, fields);
        served.gate.await_waiting(14);
        password_is_checked(&served);
        work_is_done(&served);
        assert_eq!(served.gate.waiting(), 14, "{target}");
    }
}

/// None of the sites at the start checks passwords, compresses or archives.
fn sites_that_come_later_find_the_parts_of_their_work(driver: Driver) {
    let sites = |router: Router| {
        let every = ["*".parse().expect("a pattern")];
        Sites::new().add(&every, "/", router).expect("a site")
    };
    let mut handle: Option<LiveSitesHandle> = None;
    let served = Served::start(driver, |server, _| {
        let router = Router::new().get("/pooled", || "pooled\n");
        let live = LiveSites::new(sites(router), Hosts::any());
        handle = Some(live.handle());
        server.listen("127.0.0.1:0", Http::service(live))
    });
    assert_eq!(served.from(NEWCOMER).get("/pooled").text(), "pooled\n");
    let handle = handle.expect("it listens");
    handle.replace(sites(served.router()), Hosts::any());
    let _crowd = served.crowd(40, "/wait", &[]);
    served.gate.await_waiting(14);
    password_is_checked(&served);
    work_is_done(&served);
    assert_eq!(served.gate.waiting(), 14);
}

fn a_guard_that_asks_for_passwords_later_finds_their_part(driver: Driver) {
    let handle = AccessHandle::new(Access::new());
    let served = Served::start(driver, |server, served| {
        let private: Router = Router::new().get("/", || "private\n");
        let router = Router::new()
            .get("/wait", served.waits())
            .nest_service("/later", Guard::with(private, &handle));
        server.listen("127.0.0.1:0", Http::service(router))
    });
    assert_eq!(served.from(NEWCOMER).get("/later/").text(), "private\n");
    handle.replace(served.access());
    let _crowd = served.crowd(40, "/wait", &[]);
    served.gate.await_waiting(15);
    let wrong = [("authorization", "Basic eDp5")];
    assert_eq!(served.answer("/later/", &wrong).status, 401);
}

fn many_passwords_of_one_address_do_not_keep_out_another(driver: Driver) {
    let served = Served::start(driver, alone);
    let _waits = served.crowd(40, "/wait", &[]);
    served.gate.await_waiting(14);
    let mut crowd: Vec<_> = (0..60).map(|_| served.from(99)).collect();
    for (number, client) in crowd.iter_mut().enumerate() {
        let wrong = format!("Basic {}", STANDARD.encode(format!("ada:{number}")));
        client.request("GET", "/private/passwords", &[("Authorization", &wrong)]);
    }
    password_is_checked(&served);
    work_is_done(&served);
    let statuses: Vec<_> = crowd
        .iter_mut()
        .map(|client| client.reply().status)
        .collect();
    assert!(statuses.contains(&429), "it has tried enough: {statuses:?}");
}

fn an_address_leaves_some_of_what_its_listener_has_beside_others_with_tls(driver: Driver) {
    let issued = Issued::for_localhost();
    let tls = TlsConfig::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes());
    let tls = tls.expect("a certificate and its key");
    let served = Served::start(driver, |server, served| {
        let server = alone(server, served).listen("127.0.0.1:0", Echo);
        server.listen("127.0.0.1:0", Echo).with_tls(&tls)
    });
    let mut crowd: Vec<_> = (0..40).map(|_| served.from(99)).collect();
    for client in &mut crowd {
        client.request("GET", "/wait", &[]);
    }
    // Three kinds of work and the two others keep one each, and one is for newcomers.
    served.gate.await_waiting(10);
    for host in NEWCOMER..NEWCOMER + 4 {
        assert_eq!(served.from(host).get("/pooled").text(), "pooled\n");
    }
    assert_eq!(served.gate.waiting(), 10);
}
