//! Certificates with two kinds of keys for one name: each client gets the one whose signatures it
//! takes, whichever stands first, and after a reload too.

use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Driver, Issued, Launch, Server, Site, each_driver, tools, until_true};
use rustix::process::Signal;

each_driver!(each_client_gets_a_key_whose_signatures_it_takes);

/// Makes `rsa.crt` and `rsa.key`. `None`: there is no openssl.
fn make_rsa(run: &Site) -> Option<()> {
    let mut command = Command::new(tools::find("openssl")?);
    command.args([
        "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650",
    ]);
    command.args([
        "-subj",
        "/CN=localhost",
        "-addext",
        "subjectAltName=DNS:localhost",
    ]);
    command.arg("-keyout").arg(run.at("rsa.key"));
    command.arg("-out").arg(run.at("rsa.crt"));
    let output = tools::run(&mut command, patience());
    assert!(output.status.success(), "{output:?}");
    Some(())
}

/// What a client gets that takes these signatures alone: the kind of key that signed.
fn signed_by(server: &Server, version: &str, signatures: &str) -> Option<String> {
    let script = "\"$0\" s_client -connect \"$1\" -servername localhost \"$2\" -sigalgs \"$3\" \
                  </dev/null 2>&1";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(tools::find("openssl")?);
    command.arg(server.address("https").to_string());
    command.args([version, signatures]);
    let output = tools::run(&mut command, patience());
    let said = String::from_utf8_lossy(&output.stdout);
    let kind = said
        .lines()
        .find_map(|line| line.strip_prefix("Peer signature type: "));
    Some(kind.map_or_else(|| format!("none: {said}"), str::to_lowercase))
}

fn each_client_gets_a_key_whose_signatures_it_takes(driver: Driver) {
    let run = Site::new().with("dir/file", "contents");
    if make_rsa(&run).is_none() {
        return;
    }
    let Issued { certificate, key } = Issued::for_localhost();
    run.write("ecdsa.crt", certificate);
    run.write("ecdsa.key", key);
    for [first, second] in [["rsa", "ecdsa"], ["ecdsa", "rsa"]] {
        run.write(
            "flatpath.toml",
            format!(
                "https = \"127.0.0.1:0\"\ndir = \"dir\"\n\
                 tls-cert = [\"{first}.crt\", \"{second}.crt\"]\n\
                 tls-key = [\"{first}.key\", \"{second}.key\"]\n"
            ),
        );
        let server = Launch::configured(driver, run.path()).start();
        for round in 0..2 {
            for (version, signatures, kind) in [
                ("-tls1_3", "RSA-PSS+SHA256", "rsa-pss"),
                ("-tls1_3", "ECDSA+SHA256", "ecdsa"),
                ("-tls1_2", "RSA-PSS+SHA256", "rsa-pss"),
                ("-tls1_2", "ECDSA+SHA256", "ecdsa"),
            ] {
                let Some(signed) = signed_by(&server, version, signatures) else {
                    return;
                };
                // OpenSSL 3.0 says `ecdsa`, later ones name the curve.
                let what = format!("{first} first, {version} {signatures}, round {round}");
                assert!(signed.starts_with(kind), "{what}: {signed}");
            }
            server.process().signal(Signal::HUP);
            until_true("a reload", || {
                server.log().matches(" reloaded").count() > round
            });
        }
        server.end();
    }
}
