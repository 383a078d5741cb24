//! HTTPS with real clients: curl, openssl and GnuTLS; certificates by name, replaced while they are
//! used, and made up at the start.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use flatpath_testkit::deadline::patience;
use flatpath_testkit::https::{Certificates, content, curl, launch, localhost, output, text, url};
use flatpath_testkit::{
    Client, Driver, Launch, Server, Site, binary, each_driver, tools, until_true,
};
use rustix::process::Signal;

each_driver!(
    curl_gets_files,
    curl_stores_files,
    openssl_agrees_on_each_version_and_cipher,
    gnutls_is_served,
    openssl_resumes_at_another_server,
    the_name_chooses_the_certificate,
    a_self_signed_certificate_is_for_trying_out,
    plain_http_is_redirected,
    plain_http_to_the_port_of_tls_ends,
    a_renewed_certificate_is_used_without_a_command,
    tables_of_the_file_have_their_own,
    what_is_wrong_is_named,
);

/// Has a client of TLS ask for `/file`: a shell whose arguments are the client.
const ASKS: &str = "printf 'GET /file HTTP/1.1\\r\\nHost: localhost\\r\\n\
    Connection: close\\r\\n\\r\\n' | \"$@\" 2>&1";

fn curl_gets_files(driver: Driver) {
    let (small, large) = (content(1 << 10), content(3 << 20));
    let site = Site::new().with("small", &small).with("large", &large);
    let (server, authority) = localhost(driver, &site, &[]);
    let certificate = authority.at("site.crt");
    let Some(_) = curl(&certificate) else {
        return;
    };
    let curl = || curl(&certificate).expect("it is there");
    for version in [&["--tlsv1.3"][..], &["--tlsv1.2", "--tls-max", "1.2"]] {
        let get = |path: &str, options: &[&str]| {
            output(curl().args(version).args(options).arg(url(&server, path)))
        };
        assert_eq!(get("/small", &[]), small);
        assert!(get("/large", &[]) == large, "{version:?}");
        assert!(get("/large", &["-r", "70000-1070000"]) == large[70_000..=1_070_000]);
        let head = String::from_utf8(get("/large", &["-I"])).expect("text");
        assert!(head.contains("\r\nContent-Length: 3145728\r\n"), "{head}");
        // One connection for all.
        let files = [
            url(&server, "/small"),
            url(&server, "/large"),
            url(&server, "/small"),
        ];
        let mut command = curl();
        command
            .args(version)
            .args(["-w", "%{stderr}%{num_connects} "])
            .args(files);
        let Output { stdout, stderr, .. } = tools::run(&mut command, patience());
        assert!(
            stdout == [&small[..], &large, &small].concat(),
            "{version:?}"
        );
        assert_eq!(String::from_utf8_lossy(&stderr), "1 0 0 ");
    }
    server.end();
}

fn curl_stores_files(driver: Driver) {
    let (site, stored) = (Site::new(), content(5 << 20));
    let elsewhere = Site::new().with("file", &stored);
    let (server, authority) = localhost(driver, &site, &["--writable"]);
    for (name, version) in [("new", "1.3"), ("old", "1.2")] {
        let Some(mut curl) = curl(&authority.at("site.crt")) else {
            return;
        };
        curl.args(["-w", "%{http_code}", "--tls-max", version, "-T"]);
        curl.arg(elsewhere.at("file"))
            .arg(url(&server, &format!("/{name}")));
        assert_eq!(text(&mut curl), "201");
        assert!(fs::read(site.at(name)).expect("stored") == stored, "{name}");
    }
    // A page that has come without TLS is one of another origin.
    let port = server.address("https").port();
    for (scheme, status) in [("https", "204"), ("http", "403")] {
        let mut curl = curl(&authority.at("site.crt")).expect("it is there");
        let origin = format!("Origin: {scheme}://localhost:{port}");
        curl.args(["-o", "/dev/null", "-w", "%{http_code}", "-H", &origin]);
        curl.args(["-X", "PUT", "-d", "x"])
            .arg(url(&server, "/new"));
        assert_eq!(text(&mut curl), status, "{scheme}");
    }
    server.end();
}

/// `openssl s_client`, which asks for `/file` and reads to the end.
fn openssl(server: &Server, certificate: &Path, options: &[&str]) -> Option<(bool, String)> {
    let program = tools::find("openssl")?;
    let port = server.address("https").port();
    let mut command = Command::new("sh");
    command.arg("-c").arg(ASKS);
    command
        .arg("sh")
        .arg(program)
        .args(["s_client", "-ign_eof", "-connect"]);
    command.arg(format!("127.0.0.1:{port}"));
    command.args([
        "-servername",
        "localhost",
        "-verify_return_error",
        "-CAfile",
    ]);
    command.arg(certificate).args(options);
    let Output { status, stdout, .. } = tools::run(&mut command, patience());
    let text = String::from_utf8_lossy(&stdout).into_owned();
    Some((status.success(), text))
}

fn openssl_agrees_on_each_version_and_cipher(driver: Driver) {
    let site = Site::new().with("file", "contents of it");
    let (server, authority) = localhost(driver, &site, &[]);
    let certificate = authority.at("site.crt");
    for options in [
        &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"][..],
        &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"],
        &["-alpn", "http/1.1,other"],
    ] {
        let Some((is_good, said)) = openssl(&server, &certificate, options) else {
            return;
        };
        assert!(
            is_good && said.contains("contents of it"),
            "{options:?}: {said}"
        );
        assert_eq!(
            said.contains("ALPN protocol: http/1.1"),
            options[0] == "-alpn",
            "{said}"
        );
    }
    for options in [
        &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"][..],
        &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-SHA"],
        &["-alpn", "h3"],
    ] {
        let refused = openssl(&server, &certificate, options);
        let (is_good, said) = refused.expect("it is there");
        assert!(
            !is_good && !said.contains("contents of it"),
            "{options:?}: {said}"
        );
    }
    server.end();
}

/// By TLS 1.2, where the ticket comes with the handshake and not after it.
fn openssl_resumes_at_another_server(driver: Driver) {
    let site = Site::new().with("file", "contents of it");
    let authority = Certificates::default();
    authority.make("site", &["localhost"]);
    let (key, other) = (authority.at("ticket.key"), authority.at("other.key"));
    fs::write(&key, [1; 80]).expect("written");
    fs::write(&other, [2; 80]).expect("written");
    let begin = |keys: &[&PathBuf]| {
        let keys = keys.iter();
        let keys = keys.flat_map(|key| [PathBuf::from("--tls-ticket-key"), PathBuf::from(key)]);
        let launch = launch(driver).with(authority.options(&["site"]));
        let launch = launch.with(keys.collect::<Vec<_>>());
        launch.directory(site.path()).start()
    };
    let servers = [begin(&[&key]), begin(&[&key]), begin(&[&other])];
    let certificate = authority.at("site.crt");
    let session = authority.at("session").display().to_string();
    let came = |server: &Server, option: &str| {
        let options = ["-tls1_2", option, &session];
        let (is_good, said) = openssl(server, &certificate, &options)?;
        assert!(is_good && said.contains("contents of it"), "{said}");
        Some(said.contains("Reused, TLSv1.2"))
    };
    let Some(is_resumed) = came(&servers[0], "-sess_out") else {
        return;
    };
    assert!(!is_resumed);
    for server in &servers[..2] {
        assert_eq!(came(server, "-sess_in"), Some(true));
    }
    assert_eq!(came(&servers[2], "-sess_in"), Some(false));
    // The key of the others is added, and read with the next signal.
    fs::write(&other, [1; 80]).expect("written");
    servers[2].process().signal(Signal::HUP);
    servers[2].await_log("other.key: read again");
    assert_eq!(came(&servers[2], "-sess_in"), Some(true));
    // A short one leaves all as it is.
    fs::write(&other, [1; 31]).expect("written");
    servers[2].process().signal(Signal::HUP);
    servers[2].await_log("sessions are resumed as before");
    assert_eq!(came(&servers[2], "-sess_in"), Some(true));
    for server in servers {
        server.end();
    }
}

fn gnutls_is_served(driver: Driver) {
    let site = Site::new().with("file", "contents of it");
    let (server, authority) = localhost(driver, &site, &[]);
    let Some(program) = tools::find("gnutls-cli") else {
        return;
    };
    for priority in [
        "NORMAL:-VERS-ALL:+VERS-TLS1.3",
        "NORMAL:-VERS-ALL:+VERS-TLS1.2",
    ] {
        let mut command = Command::new(&program);
        command.arg("--x509cafile").arg(authority.at("site.crt"));
        command.args(["--port", &server.address("https").port().to_string()]);
        command.args(["--priority", priority, "localhost"]);
        // It ends with its input, which stays open until the reply has come.
        let request = b"GET /file HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        let is_whole = |said: &[u8]| said.ends_with(b"contents of it");
        let output = tools::converse(&mut command, request, is_whole, patience());
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{priority}: {said}");
        assert!(said.contains("contents of it"), "{priority}: {said}");
    }
    server.end();
}

/// The status that curl gets for a host with this certificate; none if it does not trust what it is
/// shown.
fn status_of(server: &Server, host: &str, certificate: &Path) -> Option<String> {
    let port = server.address("https").port();
    let mut curl = curl(certificate)?;
    curl.args(["-o", "/dev/null", "-w", "%{http_code}", "--resolve"]);
    curl.arg(format!("{host}:{port}:127.0.0.1"));
    curl.arg(format!("https://{host}:{port}/file"));
    let output = tools::run(&mut curl, patience());
    let is_good = output.status.success();
    is_good.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

fn the_name_chooses_the_certificate(driver: Driver) {
    let Some(_) = tools::find("curl") else {
        return;
    };
    let (site, authority) = (Site::new().with("file", "x"), Certificates::default());
    authority.make("first", &["a.example", "127.0.0.1"]);
    authority.make("second", &["*.b.example", "b.example"]);
    let launch = launch(driver).with(authority.options(&["first", "second"]));
    let server = launch.directory(site.path()).start();
    let (first, second) = (authority.at("first.crt"), authority.at("second.crt"));
    for (host, certificate) in [
        ("a.example", &first),
        ("b.example", &second),
        ("www.b.example", &second),
        // An address is no name that a client asks for.
        ("127.0.0.1", &first),
    ] {
        assert_eq!(
            status_of(&server, host, certificate).as_deref(),
            Some("200"),
            "{host}"
        );
    }
    assert_eq!(status_of(&server, "b.example", &first), None);
    assert_eq!(status_of(&server, "c.example", &second), None);
    server.end();
}

fn a_self_signed_certificate_is_for_trying_out(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let launch = launch(driver).with(["--tls-self-signed"]);
    let server = launch.directory(site.path()).start();
    let log = server.log();
    let line = log.lines().find(|line| line.contains("self-signed"));
    let line = line.unwrap_or_else(|| panic!("it is said so: {log}"));
    let (_, fingerprint) = line.split_once("SHA-256 ").expect("a fingerprint");
    let Some(curl) = tools::find("curl") else {
        return;
    };
    let mut curl = Command::new(curl);
    curl.args(["-q", "-sS", "-k"]).arg(url(&server, "/file"));
    assert_eq!(output(&mut curl), b"contents");
    if let Some(openssl) = tools::find("openssl") {
        let mut command = Command::new("sh");
        command.arg("-c").arg(
            "\"$0\" s_client -connect \"$1\" </dev/null 2>/dev/null | \"$0\" x509 -noout \
             -fingerprint -sha256 -ext subjectAltName",
        );
        command
            .arg(openssl)
            .arg(server.address("https").to_string());
        let said = text(&mut command);
        assert!(said.contains(fingerprint.trim()), "{said}: {fingerprint}");
        assert!(
            said.contains("DNS:localhost, IP Address:127.0.0.1"),
            "{said}"
        );
    }
    server.end();
}

fn plain_http_is_redirected(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let options = ["--http", "127.0.0.1:0", "--http-redirect"];
    let (server, authority) = localhost(driver, &site, &options);
    let port = server.address("https").port();
    let mut client = server.client();
    for method in ["GET", "POST", "HEAD"] {
        client.request(method, "/file?a=b", &[]);
        let reply = match method {
            "HEAD" => client.reply_to_head(),
            _ => client.reply(),
        };
        assert_eq!(reply.status, 308);
        let location = reply.field("location").expect("somewhere");
        assert!(
            location.ends_with(&format!(":{port}/file?a=b")),
            "{location}"
        );
        assert!(location.starts_with("https://"), "{location}");
    }
    let mut old = server.client();
    old.send(b"GET / HTTP/1.0\r\n\r\n");
    let reply = String::from_utf8_lossy(&old.rest().0).into_owned();
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    if let Some(mut curl) = curl(&authority.at("site.crt")) {
        let http = server.address("http").port();
        curl.args(["-L", &format!("http://localhost:{http}/file")]);
        assert_eq!(output(&mut curl), b"contents");
    }
    server.end();
}

fn plain_http_to_the_port_of_tls_ends(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let (server, _authority) = localhost(driver, &site, &[]);
    let mut client = Client::connect(server.address("https"));
    client.send(b"GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let (said, _) = client.rest();
    assert!(
        !String::from_utf8_lossy(&said).contains("contents"),
        "{said:?}"
    );
    // It lingers for as long as its client is there.
    drop(client);
    server.end();
}

/// As ACME clients and Kubernetes do it: a link to the directory of the pair is set to another one.
fn a_renewed_certificate_is_used_without_a_command(driver: Driver) {
    let Some(_) = tools::find("curl") else {
        return;
    };
    let (site, authority) = (Site::new().with("file", "x"), Certificates::default());
    for name in ["1/site", "2/site", "3/site", "4/site"] {
        authority.make(name, &["localhost"]);
    }
    // The key of another one.
    fs::copy(authority.at("1/site.key"), authority.at("2/site.key")).expect("copied");
    let link = |to: &str| {
        let _ = fs::remove_file(authority.at("new"));
        symlink(authority.at(to), authority.at("new")).expect("linked");
        fs::rename(authority.at("new"), authority.at("live")).expect("renamed");
    };
    link("1");
    let launch = launch(driver).with(authority.options(&["live/site"]));
    let launch = launch.with(["--tls-reload-seconds", "1"]);
    let server = launch.directory(site.path()).start();
    let has = |name: &str| {
        let certificate = authority.at(&format!("{name}/site.crt"));
        status_of(&server, "localhost", &certificate).is_some()
    };
    assert!(has("1") && !has("3"));
    link("2");
    server.await_log("site.key: it is not the key of the certificate");
    assert!(has("1") && !has("2"));
    link("3");
    server.await_log("valid until 2999-01-01T00:00:00Z: read again");
    assert!(has("3") && !has("1"));
    // A signal has it read at once.
    link("4");
    server.process().signal(Signal::HUP);
    until_true("the fourth certificate", || has("4"));
    server.end();
}

fn tables_of_the_file_have_their_own(driver: Driver) {
    let (site, authority) = (
        Site::new().with("file", "contents"),
        Certificates::default(),
    );
    authority.make("site", &["localhost"]);
    let (certificate, key) = (authority.at("site.crt"), authority.at("site.key"));
    let text = format!(
        "dir = \"{}\"\n\
         [[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.1:0\"\n\
         tls-cert = \"{}\"\ntls-key = \"{}\"\n\
         [[listener]]\nprotocol = \"echo\"\naddress = \"127.0.0.1:0\"\ntls-self-signed = true\n\
         [[listener]]\nprotocol = \"http\"\naddress = \"127.0.0.1:0\"\n",
        site.path().display(),
        certificate.display(),
        key.display()
    );
    let file = authority.at("flatpath.toml");
    fs::write(&file, text).expect("written");
    let mut check = Command::new(binary::flatpath());
    let checked = self::text(check.arg("check").arg(&file));
    let words = format!(
        "# certificate {} for localhost, valid until 2999",
        certificate.display()
    );
    assert!(checked.contains(&words), "{checked}");
    let launch = Launch::new(binary::flatpath().to_path_buf());
    let launch = launch.with(["serve", "--driver", driver.name(), "--config"]);
    let server = launch.with([&file]).start();
    assert_eq!(server.client().get("/file").body, b"contents");
    if let Some(mut curl) = curl(&certificate) {
        assert_eq!(output(curl.arg(url(&server, "/file"))), b"contents");
    }
    if let Some(openssl) = tools::find("openssl") {
        let mut command = Command::new(openssl);
        command.args(["s_client", "-quiet", "-no_ign_eof", "-connect"]);
        command.arg(server.address("echo").to_string());
        let (words, is_whole) = (b"hello there\n", |said: &[u8]| said.ends_with(b"\n"));
        let echoed = tools::converse(&mut command, words, is_whole, patience()).stdout;
        assert!(echoed.starts_with(b"hello there\n"), "{echoed:?}");
    }
    server.end();
}

fn what_is_wrong_is_named(driver: Driver) {
    let (site, authority) = (Site::new(), Certificates::default());
    authority.make("site", &["localhost"]);
    authority.make("other", &["localhost"]);
    authority.make_until("old", &["localhost"], 2001);
    fs::copy(authority.at("other.key"), authority.at("mixed.key")).expect("copied");
    fs::copy(authority.at("site.crt"), authority.at("mixed.crt")).expect("copied");
    let no_key = vec!["--tls-cert".into(), authority.at("site.crt")];
    for (options, words) in [
        (
            vec![],
            "have an authority issue one with --acme NAME, or try it out with --tls-self-signed",
        ),
        (no_key, "--tls-cert names 1 file, and --tls-key no file"),
        (authority.options(&["none"]), "none.crt: No such file"),
        (
            authority.options(&["mixed"]),
            "mixed.key: it is not the key of the certificate",
        ),
    ] {
        let launch = launch(driver).with(&options).directory(site.path());
        let refused = launch.try_start().err().expect(words);
        assert!(refused.log.contains(words), "{}", refused.log);
    }
    let launch = launch(driver).with(authority.options(&["old"]));
    let server = launch.directory(site.path()).start();
    server.await_log("old.crt: it has expired: it ended 2001-01-01T00:00:00Z");
    drop(server);
    let mut doctor = Command::new(binary::flatpath());
    let doctor = doctor.arg("doctor");
    let output = tools::run(
        doctor.args(authority.options(&["mixed", "site"])),
        patience(),
    );
    assert_eq!(output.status.code(), Some(3), "one does not fit");
    let said = String::from_utf8_lossy(&output.stdout);
    for (name, code) in [("old", 3), ("site", 0)] {
        let mut doctor = Command::new(binary::flatpath());
        let doctor = doctor.arg("doctor").args(authority.options(&[name]));
        assert_eq!(
            tools::run(doctor, patience()).status.code(),
            Some(code),
            "{name}"
        );
    }
    assert!(said.contains("mixed.key: it is not the key"), "{said}");
    assert!(
        said.contains("for localhost, valid until 2999-01-01T00:00:00Z; the key"),
        "{said}"
    );
}
