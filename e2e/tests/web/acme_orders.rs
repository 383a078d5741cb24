//! `--acme`: the server orders its certificate of an authority, Pebble, and renews it.
//!
//! The server is there first, as Pebble must know its ports: its first order finds no authority.
//! SIGHUP has it try again, as an administrator would.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::process::Command;

use flatpath_testkit::child::{Child, free_address};
use flatpath_testkit::deadline::patience;
use flatpath_testkit::https::output;
use flatpath_testkit::{
    Driver, Issued, Launch, Server, Site, binary, each_driver, tools, until_true,
};
use rustix::process::Signal;

use crate::acme::{command, started};

each_driver!(
    a_first_certificate_comes_by_tls_alpn,
    http_01_is_tried_after_tls_alpn_was_refused,
    a_certificate_is_renewed_while_the_server_runs,
    servers_that_share_a_storage_order_once,
    an_order_in_progress_is_the_successors,
    what_cannot_work_is_refused_at_the_start,
);

/// Where Pebble looks for challenges.
#[derive(Clone, Copy)]
enum Looks {
    /// At HTTP and HTTPS.
    Both,
    /// At HTTP alone: nothing is at its port of TLS.
    Http,
    /// Nowhere: it believes that all names are valid.
    Nowhere,
}

/// An authority, and a server that has its certificates from there.
struct Trial {
    site: Site,
    /// Pebble's, with the storage.
    run_in: Site,
    servers: Vec<Server>,
    pebble: Child,
    management: u16,
}

fn launch(driver: Driver, run_in: &Site, directory: &str, more: &[&str]) -> Launch {
    let launch = Launch::new(binary::flatpath().to_path_buf());
    let launch = launch.with(["serve", "--driver", driver.name(), "--https", "127.0.0.1:0"]);
    let launch = launch.with(["--acme", "localhost", "--acme-accept-terms"]);
    let launch = launch.with(["--acme-contact", "mailto:operator@example.org"]);
    let launch = launch.with(["--acme-directory", directory]);
    let launch = launch.with(["--acme-ca".into(), run_in.at("api.crt")]);
    let launch = launch.with(["--acme-storage".into(), run_in.at("storage")]);
    launch.with(more)
}

impl Trial {
    /// `None` without Pebble or curl. The servers have found no authority yet.
    fn begin(driver: Driver, count: usize, looks: Looks, more: [&str; 2]) -> Option<Trial> {
        let (pebble, _) = (tools::find("pebble")?, tools::find("curl")?);
        let [options, configuration] = more;
        let options: Vec<&str> = options.split_whitespace().collect();
        let run_in = Site::new();
        let own = Issued::for_localhost();
        run_in.write("api.crt", &own.certificate);
        run_in.write("api.key", &own.key);
        let site = Site::new().with("file", "contents");
        fs::create_dir_all(site.at(".well-known/acme-challenge")).expect("made");
        site.write(".well-known/acme-challenge/other", "another client's");
        loop {
            let addresses: [SocketAddr; 2] = [0; 2].map(|_| free_address().expect("an address"));
            let [api, management] = addresses;
            let directory = format!("https://localhost:{}/dir", api.port());
            let launch = || launch(driver, &run_in, &directory, &options).directory(site.path());
            let servers: Vec<Server> = (0..count).map(|_| launch().start()).collect();
            let first = &servers[0];
            let port = |name: &str| {
                let mut all = first.listeners().iter();
                all.find(|(it, _)| it == name)
                    .map_or(1, |(_, at)| at.port())
            };
            let ports = match looks {
                Looks::Http => [port("http"), 1],
                Looks::Both | Looks::Nowhere => [port("http"), port("https")],
            };
            for server in &servers {
                server.await_log("a certificate is used that signs itself");
            }
            let mut command = command(&pebble, &run_in, addresses, ports, configuration);
            command.env("PEBBLE_AUTHZREUSE", "0");
            if let Looks::Nowhere = looks {
                command.env("PEBBLE_VA_ALWAYS_VALID", "1");
            }
            let Some(pebble) = started(&mut command, addresses) else {
                continue;
            };
            for server in &servers {
                server.process().signal(Signal::HUP);
            }
            return Some(Trial {
                site,
                run_in,
                servers,
                pebble,
                management: management.port(),
            });
        }
    }

    /// curl, which trusts the authority's certificates alone.
    fn curl(&self) -> Command {
        let url = format!("https://localhost:{}/roots/0", self.management);
        let root = output(
            Command::new("curl")
                .args(["-q", "-sS", "--cacert", "api.crt", &url])
                .current_dir(self.run_in.path()),
        );
        self.run_in.write("root", root);
        let mut command = Command::new("curl");
        command.args(["-q", "-sS", "--cacert"]);
        command.arg(self.run_in.at("root"));
        command
    }

    /// Until a client that trusts the authority is served by all.
    fn await_served(&self) {
        for server in &self.servers {
            let url = format!("https://localhost:{}/file", server.address("https").port());
            until_true("the authority's certificate to be used", || {
                let output = tools::run(self.curl().arg(&url), patience());
                output.status.success() && output.stdout == b"contents"
            });
        }
    }

    /// What is in the storage of this authority.
    fn stored(&self, name: &str) -> PathBuf {
        let all = fs::read_dir(self.run_in.at("storage")).expect("a storage");
        let mut all = all.map(|entry| entry.expect("an entry").path().join(name));
        all.find(|path| path.exists()).expect(name)
    }

    fn end(self) -> String {
        let logs: Vec<String> = self.servers.into_iter().map(Server::end).collect();
        self.pebble.stop(patience()).expect("it ends");
        logs.concat()
    }
}

fn a_first_certificate_comes_by_tls_alpn(driver: Driver) {
    let more = ["--http 127.0.0.1:0", ""];
    let Some(trial) = Trial::begin(driver, 1, Looks::Both, more) else {
        return;
    };
    trial.await_served();
    trial.servers[0].await_log("acme: localhost: to be renewed 2");
    // What is no challenge of this server's is the site's.
    let url = format!(
        "http://{}/.well-known/acme-challenge/other",
        trial.servers[0].address("http")
    );
    let answer = output(Command::new("curl").args(["-q", "-sS", &url]));
    assert_eq!(answer, b"another client's");
    assert!(trial.site.at(".well-known/acme-challenge/other").exists());
    for name in ["account.json", "localhost.pem"] {
        assert!(trial.stored(name).is_file(), "{name}");
    }
    let log = trial.end();
    assert!(log.contains("by tls-alpn-01"), "{log}");
    assert!(!log.contains("by http-01"), "{log}");
}

/// Before the redirect to HTTPS.
fn http_01_is_tried_after_tls_alpn_was_refused(driver: Driver) {
    let more = ["--http 127.0.0.1:0 --http-redirect --hosts a.example", ""];
    let Some(trial) = Trial::begin(driver, 1, Looks::Http, more) else {
        return;
    };
    trial.await_served();
    let log = trial.end();
    assert!(
        log.contains("ERROR flatpath_cli::tls::acme] acme: localhost: the challenge tls-alpn-01"),
        "{log}"
    );
    assert!(log.contains("by http-01"), "{log}");
}

fn a_certificate_is_renewed_while_the_server_runs(driver: Driver) {
    // Two thirds of it are a moment.
    let more = ["", "\"certificateValidityPeriod\": 8,"];
    let Some(trial) = Trial::begin(driver, 1, Looks::Both, more) else {
        return;
    };
    let server = &trial.servers[0];
    until_true("a second certificate", || {
        server.log().matches("acme: localhost: issued").count() >= 2
    });
    // Each is used.
    until_true("both to be read", || {
        let read = "localhost.pem for localhost";
        server.log().matches(read).count() >= 2
    });
    trial.end();
}

fn servers_that_share_a_storage_order_once(driver: Driver) {
    let Some(trial) = Trial::begin(driver, 3, Looks::Nowhere, ["", ""]) else {
        return;
    };
    for server in &trial.servers {
        server.await_log("acme: localhost: to be renewed 2");
    }
    trial.await_served();
    let log = trial.end();
    assert_eq!(log.matches("acme: localhost: issued").count(), 1, "{log}");
}

/// The authority accepts, and is silent: the predecessor's order is at a request that lasts.
fn an_order_in_progress_is_the_successors(driver: Driver) {
    let run_in = Site::new();
    run_in.write("api.crt", Issued::for_localhost().certificate);
    let site = Site::new().with("file", "contents");
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("bound");
    let directory = format!("https://localhost:{}/dir", address.port());
    let handover = run_in.at("next");
    let launch = || {
        let launch = launch(driver, &run_in, &directory, &[]).directory(site.path());
        launch.with(["--handover".as_ref(), handover.as_os_str()])
    };
    let mut before = launch().start();
    before.await_log("there is no certificate: an order at");
    let after = launch().start();
    assert!(
        before.exit_status().success(),
        "nothing waits for the order"
    );
    after.await_log("there is no certificate: an order at");
    let log = after.log();
    assert!(!log.contains("another server"), "the lock is free: {log}");
    drop(silent);
    after.end();
}

fn what_cannot_work_is_refused_at_the_start(driver: Driver) {
    let run_in = Site::new().with("file", "no directory");
    let storage = run_in.at("file");
    let storage = storage.to_str().expect("text");
    let terms = "--acme-accept-terms";
    for (options, code, words) in [
        (&["--acme", "*.example.org"][..], 2, "DNS-01"),
        (&["--acme", "a.example", "--acme-storage", "x"], 2, terms),
        (&["--acme", "a.example", terms], 2, "--acme-storage DIR"),
        (
            &["--acme", "a.example", terms, "--acme-storage", storage],
            1,
            storage,
        ),
        (&["--acme-storage", storage], 2, "--acme NAME"),
        (
            &["--acme", "a.example", "--acme-directory", "http://a"],
            2,
            "https://",
        ),
    ] {
        let launch = Launch::new(binary::flatpath().to_path_buf());
        let launch = launch.with(["serve", "--driver", driver.name(), "--https", "127.0.0.1:0"]);
        let refused = launch.with(options).directory(run_in.path()).try_start();
        let refused = refused.err().expect(words);
        assert_eq!(refused.status.code(), Some(code), "{}", refused.log);
        assert!(refused.log.contains(words), "{words}: {}", refused.log);
    }
}
