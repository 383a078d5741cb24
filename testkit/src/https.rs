//! Servers of HTTPS with certificates that sign themselves, and what clients print of them.
//!
//! [`serving`] starts one for `localhost`; [`curl`] trusts its certificate. Clients that this
//! process is itself are in [`crate::tls`], and authorities that issue in [`crate::authority`].

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use rcgen::{CertificateParams, KeyPair, date_time_ymd};

use crate::deadline::patience;
use crate::{Driver, Launch, Server, Site, binary, tools};

/// A directory with certificates.
#[derive(Default)]
pub struct Certificates(Site);

impl Certificates {
    /// The path of a file in it.
    pub fn at(&self, name: &str) -> PathBuf {
        self.0.at(name)
    }

    /// Makes `NAME.crt` and `NAME.key` for these hosts.
    pub fn make(&self, name: &str, hosts: &[&str]) {
        self.make_until(name, hosts, 2999);
    }

    /// The same, valid until the end of a year.
    pub fn make_until(&self, name: &str, hosts: &[&str], year: i32) {
        let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().expect("a key");
        let mut parameters = CertificateParams::new(hosts).expect("names");
        parameters.not_before = date_time_ymd(2000, 1, 1);
        parameters.not_after = date_time_ymd(year, 1, 1);
        let made = parameters.self_signed(&key).expect("signed");
        self.0.write(&format!("{name}.crt"), made.pem());
        self.0.write(&format!("{name}.key"), key.serialize_pem());
    }

    /// The options that name pairs.
    pub fn options(&self, names: &[&str]) -> Vec<PathBuf> {
        let options = names.iter().flat_map(|name| {
            let (certificate, key) = (format!("{name}.crt"), format!("{name}.key"));
            [
                "--tls-cert".into(),
                self.at(&certificate),
                "--tls-key".into(),
                self.at(&key),
            ]
        });
        options.collect()
    }
}

/// `flatpath serve` with a listener of HTTPS alone: add the certificate and the rest.
pub fn launch(driver: Driver) -> Launch {
    let flatpath = binary::flatpath().to_path_buf();
    Launch::new(flatpath).with(["serve", "--driver", driver.name(), "--https", "127.0.0.1:0"])
}

/// A server for `localhost`, and its certificate.
pub fn localhost(driver: Driver, site: &Site, options: &[&str]) -> (Server, Certificates) {
    serving(driver, site.path(), options)
}

/// The same of any directory.
pub fn serving(driver: Driver, at: &Path, options: &[&str]) -> (Server, Certificates) {
    let authority = Certificates::default();
    authority.make("site", &["localhost"]);
    let launch = launch(driver).with(authority.options(&["site"]));
    let server = launch.with(options).directory(at).start();
    (server, authority)
}

/// The address of a path of it.
pub fn url(server: &Server, path: &str) -> String {
    let port = server.address("https").port();
    format!("https://localhost:{port}{path}")
}

/// curl, which trusts a certificate.
pub fn curl(certificate: &Path) -> Option<Command> {
    let mut command = Command::new(tools::find("curl")?);
    command.args(["-q", "-sS", "--http1.1", "--cacert"]);
    command.arg(certificate);
    Some(command)
}

/// What a client printed; it has to end well.
pub fn output(command: &mut Command) -> Vec<u8> {
    let Output {
        status,
        stdout,
        stderr,
    } = tools::run(command, patience());
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{command:?}: {status}: {errors}");
    stdout
}

/// The same as text.
pub fn text(command: &mut Command) -> String {
    String::from_utf8(output(command)).expect("text")
}

/// Bytes that differ from place to place.
pub fn content(length: usize) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(7);
    std::iter::repeat_with(|| random.u8(..))
        .take(length)
        .collect()
}
