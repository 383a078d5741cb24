//! Certificates of an ACME server (RFC 8555), Pebble: lego answers its challenges with a webroot
//! that `flatpath serve` serves, and the server uses what it gets without a command. Those that the
//! server orders itself are in `acme_orders`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use flatpath_testkit::child::{Child, free_address};
use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Driver, Issued, Launch, Site, binary, each_driver, tools, until_true};

use flatpath_testkit::https::output;

each_driver!(lego_gets_a_certificate_with_a_webroot);

/// Pebble with its certificate in this directory, which looks for challenges at these ports of HTTP
/// and HTTPS; and the ports of its own interface and its management.
fn begin(pebble: &Path, run_in: &Site, challenged: [u16; 2]) -> (Child, [u16; 2]) {
    loop {
        let [api, management] = [0; 2].map(|_| free_address().expect("an address"));
        let mut command = command(pebble, run_in, [api, management], challenged, "");
        if let Some(pebble) = started(&mut command, [api, management]) {
            return (pebble, [api.port(), management.port()]);
        }
    }
}

/// The command line of Pebble, with more of its configuration.
pub(crate) fn command(
    pebble: &Path,
    run_in: &Site,
    [api, management]: [SocketAddr; 2],
    [http, https]: [u16; 2],
    more: &str,
) -> Command {
    run_in.write(
        "pebble.json",
        format!(
            "{{\"pebble\": {{\"listenAddress\": \"{api}\", \"managementListenAddress\": \
             \"{management}\", \"certificate\": \"api.crt\", \"privateKey\": \"api.key\", \
             \"httpPort\": {http}, \"tlsPort\": {https}, {more} \"ocspResponderURL\": \"\"}}}}"
        ),
    );
    let mut command = Command::new(pebble);
    command.args(["-config", "pebble.json"]);
    command.current_dir(run_in.path());
    // It would wait some seconds before each look, and refuse some good requests.
    command.env("PEBBLE_VA_NOSLEEP", "1");
    command.env("PEBBLE_WFE_NONCEREJECT", "0");
    command
}

/// Pebble at these addresses; `None` if another test was given one of them meanwhile.
pub(crate) fn started(command: &mut Command, addresses: [SocketAddr; 2]) -> Option<Child> {
    let mut pebble = Child::start(command).expect("started");
    let mut ports = addresses.iter().rev().map(SocketAddr::port);
    match ports.try_for_each(|port| pebble.await_port(port)) {
        Ok(()) => Some(pebble),
        Err(cause) if cause.to_string().contains("address already in use") => None,
        Err(cause) => panic!("{cause}"),
    }
}

fn lego_gets_a_certificate_with_a_webroot(driver: Driver) {
    let (Some(lego), Some(pebble), Some(curl)) = (
        tools::find("lego"),
        tools::find("pebble"),
        tools::find("curl"),
    ) else {
        return;
    };
    // Until there is a better one the server has a certificate that signs itself, where lego will
    // put its own; Pebble's own interface has the same.
    let own = Issued::for_localhost();
    let run_in = Site::new();
    let (certificate, key) = ("certificates/localhost.crt", "certificates/localhost.key");
    fs::create_dir(run_in.at("certificates")).expect("made");
    for (name, content) in [
        (certificate, &own.certificate),
        (key, &own.key),
        ("api.crt", &own.certificate),
        ("api.key", &own.key),
    ] {
        run_in.write(name, content);
    }
    let site = Site::new().with("file", "contents");
    let launch = Launch::new(binary::flatpath().to_path_buf());
    let launch = launch.with(["serve", "--driver", driver.name(), "--http-redirect"]);
    let launch = launch.with(["--http", "127.0.0.1:0", "--https", "127.0.0.1:0"]);
    let launch = launch.with(["--tls-reload-seconds", "1"]);
    let launch = launch.with(["--tls-cert".into(), run_in.at(certificate)]);
    let launch = launch.with(["--tls-key".into(), run_in.at(key)]);
    let server = launch.directory(site.path()).start();
    let ports = ["http", "https"].map(|name| server.address(name).port());

    let (pebble, [api, management]) = begin(&pebble, &run_in, ports);
    let mut command = Command::new(lego);
    command.current_dir(run_in.path());
    command.env("LEGO_CA_CERTIFICATES", "api.crt");
    command.args(["--server", &format!("https://localhost:{api}/dir")]);
    command.args(["--email", "operator@example.org", "--accept-tos"]);
    command.args(["--domains", "localhost", "--path", ".", "--http"]);
    command.arg("--http.webroot").arg(site.path()).arg("run");
    output(&mut command);

    let root = format!("https://localhost:{management}/roots/0");
    let root = output(
        Command::new(&curl)
            .args(["-q", "-sS", "--cacert", "api.crt", &root])
            .current_dir(run_in.path()),
    );
    run_in.write("root", root);
    let url = format!("https://localhost:{}/file", ports[1]);
    until_true("the new certificate to be used", || {
        let mut command = Command::new(&curl);
        command.args(["-q", "-sS", "--cacert"]);
        command.arg(run_in.at("root")).arg(&url);
        let output = tools::run(&mut command, patience());
        output.status.success() && output.stdout == b"contents"
    });
    let left = fs::read_dir(site.at(".well-known/acme-challenge")).expect("lego made it");
    assert_eq!(left.count(), 0, "challenges are left behind");
    pebble.stop(patience()).expect("it ends");
    server.end();
}
