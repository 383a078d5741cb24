//! HTTPS for clients that prove who they are: curl and openssl without a certificate, with one of
//! another authority, a revoked, an expired and a good one; files that change meanwhile.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::{
    Authority, Driver, Issued, Launch, Server, Site, binary, each_driver, tools, until_true,
};
use rustix::process::Signal;

each_driver!(
    curl_is_taken_with_a_certificate_that_holds,
    openssl_is_asked_for_a_certificate,
    files_that_change_are_read_again,
    a_table_has_its_own_clients,
);

/// An authority, its certificates and lists, and a certificate of the server's.
struct Office {
    authority: Authority,
    files: Site,
}

impl Office {
    fn new() -> Office {
        let own = Issued::for_localhost();
        let files = Site::new()
            .with("site.crt", own.certificate)
            .with("site.key", own.key);
        let authority = Authority::new("ours");
        files.write("ca", authority.certificate());
        let office = Office { authority, files };
        let other = Authority::new("other");
        for (name, by, serial, until) in [
            ("good", &office.authority, 1, 2999),
            ("revoked", &office.authority, 2, 2999),
            ("expired", &office.authority, 3, 2001),
            ("foreign", &other, 1, 2999),
        ] {
            let issued = by.issue(name, serial, until);
            office
                .files
                .write(&format!("{name}.crt"), issued.certificate);
            office.files.write(&format!("{name}.key"), issued.key);
        }
        office.revoke(&[2]);
        office.files.write("other-ca", other.certificate());
        office
    }

    fn at(&self, name: &str) -> PathBuf {
        self.files.at(name)
    }

    /// In DER, as authorities publish it.
    fn revoke(&self, serials: &[u64]) {
        let (_, der) = self.authority.revokes(serials, 2999);
        self.files.write("crl", der);
    }

    fn launch(&self, driver: Driver, site: &Site) -> Launch {
        let launch = Launch::new(binary::flatpath().to_path_buf());
        let launch = launch.with(["serve", "--driver", driver.name(), "--https", "127.0.0.1:0"]);
        let launch = launch.with(["--tls-reload-seconds", "1"]);
        let options = [
            ("--tls-cert", "site.crt"),
            ("--tls-key", "site.key"),
            ("--tls-client-ca", "ca"),
            ("--tls-client-crl", "crl"),
        ];
        let options = options.into_iter();
        let options = options.flat_map(|(option, file)| [option.into(), self.at(file)]);
        launch
            .with(options.collect::<Vec<_>>())
            .directory(site.path())
    }

    /// What curl gets with a certificate, or without one.
    fn asks(&self, server: &Server, name: &str, options: &[&str]) -> Option<String> {
        let mut curl = Command::new(tools::find("curl")?);
        curl.args(["-q", "-sS", "--cacert"])
            .arg(self.at("site.crt"));
        if name != "none" {
            curl.arg("--cert").arg(self.at(&format!("{name}.crt")));
            curl.arg("--key").arg(self.at(&format!("{name}.key")));
        }
        let port = server.address("https").port();
        curl.args(options)
            .arg(format!("https://localhost:{port}/file"));
        let output = tools::run(&mut curl, patience());
        let is_good = output.status.success();
        is_good.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

const BAD: [&str; 3] = ["revoked", "expired", "foreign"];

fn curl_is_taken_with_a_certificate_that_holds(driver: Driver) {
    let Some(_) = tools::find("curl") else {
        return;
    };
    let (site, office) = (Site::new().with("file", "contents"), Office::new());
    for auth in ["required", "optional"] {
        let log = office.at("access");
        let launch = office.launch(driver, &site);
        let launch = launch.with(["--tls-client-auth", auth, "--access-log-format", "json"]);
        let server = launch
            .with([PathBuf::from("--access-log"), log.clone()])
            .start();
        for options in [&["--tlsv1.3"][..], &["--tls-max", "1.2"]] {
            let asks = |name: &str| office.asks(&server, name, options);
            assert_eq!(asks("good").as_deref(), Some("contents"));
            for name in BAD {
                assert_eq!(asks(name), None, "{name}");
            }
            let unknown = (auth == "optional").then_some("contents");
            assert_eq!(asks("none").as_deref(), unknown);
        }
        server.end();
        let lines = fs::read_to_string(&log).expect("written");
        fs::remove_file(&log).expect("removed");
        for version in ["1.3", "1.2"] {
            let known = lines.lines().filter(|line| {
                line.contains(&format!(
                    "\"tls\":{{\"version\":\"{version}\",\"cipher\":\"TLS_"
                )) && line.contains("\"resumed\":false,")
                    && line.ends_with(",\"client\":\"CN=good\"}}")
            });
            assert_eq!(known.count(), 1, "{version}: {lines}");
        }
        let unknown = lines.matches(",\"client\":null}}").count();
        assert_eq!(unknown, if auth == "optional" { 2 } else { 0 }, "{lines}");
    }
}

fn openssl_is_asked_for_a_certificate(driver: Driver) {
    let Some(openssl) = tools::find("openssl") else {
        return;
    };
    let (site, office) = (Site::new().with("file", "contents"), Office::new());
    let server = office.launch(driver, &site).start();
    let address = server.address("https").to_string();
    for version in ["-tls1_3", "-tls1_2"] {
        let asks = |name: Option<&str>| {
            let mut command = Command::new("sh");
            command
                .arg("-c")
                .arg("printf 'GET /file HTTP/1.0\\r\\n\\r\\n' | \"$@\" 2>&1");
            command
                .arg("sh")
                .arg(&openssl)
                .args(["s_client", "-ign_eof", "-connect"]);
            command.arg(&address).arg(version);
            command.arg("-CAfile").arg(office.at("site.crt"));
            if let Some(name) = name {
                command.arg("-cert").arg(office.at(&format!("{name}.crt")));
                command.arg("-key").arg(office.at(&format!("{name}.key")));
            }
            let output = tools::run(&mut command, patience()).stdout;
            String::from_utf8_lossy(&output).into_owned()
        };
        let said = asks(Some("good"));
        assert!(said.contains("contents"), "{said}");
        assert!(
            said.contains("Acceptable client certificate CA names"),
            "{said}"
        );
        assert!(said.contains("CN = ours"), "{said}");
        // A ticket would be one to come again with, unverified.
        assert!(!said.contains("session ticket:"), "{said}");
        for (name, alert) in [
            (Some("revoked"), "certificate revoked"),
            (Some("expired"), "certificate expired"),
            (Some("foreign"), "unknown ca"),
            (None, ""),
        ] {
            let said = asks(name);
            assert!(!said.contains("contents"), "{said}");
            assert!(said.contains(alert), "{alert}: {said}");
        }
    }
    server.end();
}

fn files_that_change_are_read_again(driver: Driver) {
    let Some(_) = tools::find("curl") else {
        return;
    };
    let (site, office) = (Site::new().with("file", "contents"), Office::new());
    let server = office.launch(driver, &site).start();
    let takes = |name: &str| office.asks(&server, name, &[]).is_some();
    assert!(takes("good") && !takes("revoked"));
    // Half of a list: the one before is still used.
    office.files.write("crl", "-----BEGIN X509 CRL-----\n");
    server.await_log("clients are verified as before");
    assert!(takes("good") && !takes("revoked"));
    office.revoke(&[1]);
    until_true("the second list", || takes("revoked"));
    assert!(!takes("good"));
    // A signal has the files read at once. The list of one authority says nothing of the other's.
    office
        .files
        .write("ca", fs::read(office.at("other-ca")).expect("read"));
    office.revoke(&[]);
    server.process().signal(Signal::HUP);
    until_true("another authority", || !takes("revoked"));
    assert!(!takes("foreign"), "there is no list of its authority");
    server.end();
}

fn a_table_has_its_own_clients(driver: Driver) {
    let (site, office) = (Site::new().with("file", "contents"), Office::new());
    let path = |name: &str| office.at(name).display().to_string();
    let text = format!(
        "dir = \"{}\"\n\
         [[listener]]\nprotocol = \"echo\"\naddress = \"127.0.0.1:0\"\n\
         tls-cert = \"{}\"\ntls-key = \"{}\"\ntls-client-ca = \"{}\"\ntls-client-crl = \"{}\"\n",
        site.path().display(),
        path("site.crt"),
        path("site.key"),
        path("ca"),
        path("crl"),
    );
    let text = text.replace("dir = ", "# ");
    office.files.write("flatpath.toml", text);
    let file = office.at("flatpath.toml");
    let run = |arguments: &[PathBuf]| {
        let mut command = Command::new(binary::flatpath());
        let output = tools::run(command.args(arguments), patience());
        let said = [output.stdout, output.stderr].concat();
        String::from_utf8_lossy(&said).into_owned()
    };
    let checked = run(&["check".into(), file.clone()]);
    let words = format!(
        "# client certificates required, authorities: 1 of {}; 1 revoked by {}",
        path("ca"),
        path("crl")
    );
    assert!(checked.contains(&words), "{checked}");
    let examined = run(&[
        "doctor".into(),
        "--tls-client-ca".into(),
        office.at("site.key"),
    ]);
    assert!(
        examined.contains("site.key: there is no certificate"),
        "{examined}"
    );
    let launch = Launch::new(binary::flatpath().to_path_buf());
    let launch = launch.with(["serve", "--driver", driver.name(), "--config"]);
    let server = launch.with([&file]).start();
    server.await_log("client certificates required");
    if let Some(openssl) = tools::find("openssl") {
        for (name, is_taken) in [("good", true), ("foreign", false)] {
            let mut command = Command::new(&openssl);
            command.args(["s_client", "-quiet", "-no_ign_eof", "-connect"]);
            command.arg(server.address("echo").to_string());
            command.arg("-cert").arg(office.at(&format!("{name}.crt")));
            command.arg("-key").arg(office.at(&format!("{name}.key")));
            let (words, is_whole) = (b"hello there\n", |said: &[u8]| said.ends_with(b"\n"));
            let echoed = tools::converse(&mut command, words, is_whole, patience()).stdout;
            assert_eq!(echoed.starts_with(b"hello there\n"), is_taken, "{name}");
        }
    }
    server.end();
    office.files.write("ca", "");
    let checked = run(&["check".into(), file]);
    assert!(
        checked.contains("ca: there is no certificate in it"),
        "{checked}"
    );
}
