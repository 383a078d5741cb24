//! Handlers that wait have all the workers that they can get. Passwords are checked, files are
//! compressed and archives are made all the same: each kind of work that never waits for a client
//! keeps a part of the workers. And of what a listener beside others may have, an address leaves
//! some, so a newcomer's handler runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use flatpath::tls::TlsConfig;
use flatpath::{Running, Server};
use flatpath_echo::Echo;
use flatpath_files::{ArchiveFormat, Files};
use flatpath_http::{Http, Router};
use flatpath_layers::{Access, Compression, Guard, Htpasswd};
use flatpath_testkit::{Client, Driver, Issued, Site, each_driver, until};

use crate::choice;
use crate::owners::ADA;

each_driver!(
    what_waits_for_nobody_finds_a_worker_where_handlers_have_all_others,
    what_follows_the_check_of_a_password_does_not_have_its_part,
    many_passwords_of_one_address_do_not_keep_out_another,
    an_address_leaves_some_of_what_its_listener_has_beside_others_with_tls,
);

/// What `ADA` sends.
const ADAS: (&str, &str) = ("Authorization", "Basic YWRhOnBhc3M6d29yZA==");
const GZIP: (&str, &str) = ("Accept-Encoding", "gzip");
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

/// Opens the gate before the server ends, which waits for its workers.
struct Served {
    running: Option<Running>,
    gate: Gate,
    _site: Site,
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
    fn start(driver: Driver, listen: impl FnOnce(Server, Router) -> Server) -> Served {
        let site = Site::new()
            .with("text.txt", "some words\n".repeat(10_000))
            .with("passwords", ADA);
        let gate = Gate::default();
        let handler = |gate: &Gate| {
            let gate = gate.clone();
            move || gate.wait()
        };
        let files = || {
            let files = Files::open(site.path()).expect("it is there");
            let files = files.archives([ArchiveFormat::Tar]);
            files.compress(Compression::new())
        };
        let file = Htpasswd::open(&site.at("passwords")).expect("good");
        let access = || Access::new().passwords("all", &file);
        let guarded: Router = Router::new().get("/wait", handler(&gate));
        let router = Router::new()
            .get("/wait", handler(&gate))
            .get("/pooled", || "pooled\n")
            .nest_service("/files", files())
            .nest_service("/private", Guard::new(files(), access()))
            .nest_service("/guarded", Guard::new(guarded, access()));
        let server = Server::new().network_threads(1).driver(choice(driver));
        let running = listen(server.workers(1..=WORKERS), router).start();
        Served {
            running: Some(running.expect("started")),
            gate,
            _site: site,
        }
    }

    fn from(&self, host: u8) -> Client {
        let running = self.running.as_ref().expect("it runs");
        let to = running.addresses()[0].address;
        Client::connect_from(([127, 0, 0, host], 0).into(), to)
    }

    /// So many clients that ask for what waits, each of its own address.
    fn crowd(&self, count: u8, target: &str, fields: &[(&str, &str)]) -> Vec<Client> {
        let hosts = 100..100 + count;
        hosts
            .map(|host| {
                let mut client = self.from(host);
                client.request("GET", target, fields);
                client
            })
            .collect()
    }
}

fn alone(server: Server, router: Router) -> Server {
    server.listen("127.0.0.1:0", Http::service(router))
}

/// A file for whoever has a password, which was checked for nobody yet.
fn password_is_checked(served: &Served) {
    let mut newcomer = served.from(NEWCOMER);
    newcomer.request("GET", "/private/passwords", &[ADAS]);
    assert_eq!(newcomer.reply().text(), ADA);
}

/// Checks, compresses and archives for a newcomer.
fn work_is_done(served: &Served) {
    for (target, fields, is_coded) in [
        ("/files/text.txt", &[GZIP][..], true),
        ("/files/?archive=tar", &[], false),
        ("/private/text.txt", &[ADAS, GZIP], true),
        ("/private/?archive=tar", &[ADAS], false),
    ] {
        let mut newcomer = served.from(NEWCOMER);
        newcomer.request("GET", target, fields);
        let reply = newcomer.reply();
        assert_eq!(reply.status, 200, "{target}");
        let coding = reply.field("content-encoding");
        assert_eq!(coding.is_some(), is_coded, "{target}");
    }
    let mut wrong = served.from(NEWCOMER);
    wrong.request(
        "GET",
        "/private/passwords",
        &[("Authorization", "Basic eDp5")],
    );
    assert_eq!(wrong.reply().status, 401);
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
    let served = Served::start(driver, |server, router| {
        let server = alone(server, router).listen("127.0.0.1:0", Echo);
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
