//! The relay over TLS with a real client: `openssl s_client` on one side, a client without TLS on
//! the other.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::{Driver, Issued, Launch, Server, Site, binary, each_driver, noise, tools};

each_driver!(
    a_file_goes_from_openssl_to_a_client_without_tls,
    a_file_goes_from_a_client_without_tls_to_openssl,
    an_openssl_that_is_killed_resets_the_other_end,
);

/// More than the relay and the sockets between hold.
const BYTES: usize = 24 << 20;

/// A relay with a listener of each kind, and what `openssl` is.
struct Place {
    server: Server,
    files: Site,
    openssl: std::path::PathBuf,
    token: String,
}

impl Place {
    /// `None` after saying that there is no `openssl`.
    fn new(driver: Driver) -> Option<Place> {
        let openssl = tools::find("openssl")?;
        let own = Issued::for_localhost();
        let files = Site::new()
            .with("crt", own.certificate)
            .with("key", own.key);
        let table = "[[listener]]\nprotocol = \"relay\"\naddress = \"127.0.0.1:0\"\n";
        let at = |name: &str| files.at(name).display().to_string();
        let (crt, key) = (at("crt"), at("key"));
        let secured = format!("tls-cert = \"{crt}\"\ntls-key = \"{key}\"\n");
        files.write("flatpath.toml", format!("{table}{table}{secured}"));
        let launch = Launch::new(binary::flatpath().to_path_buf());
        let launch = launch.with(["serve", "--driver", driver.name()]);
        let launch = launch.with(["--network-threads", "2", "--config"]);
        let server = launch.with([files.at("flatpath.toml")]).start();
        Some(Place {
            server,
            files,
            openssl,
            token: "ab".repeat(32),
        })
    }

    fn line(&self) -> String {
        format!("please relay {}\n", self.token)
    }

    fn address(&self, is_secured: bool) -> SocketAddr {
        self.server.listeners()[usize::from(is_secured)].1
    }

    /// The two clients, connected by the relay.
    fn pair(&self, options: &[&str]) -> (Openssl, TcpStream) {
        let mut one = self.openssl(options);
        one.said.write_all(self.line().as_bytes()).expect("open");
        one.said.flush().expect("open");
        let mut other = TcpStream::connect(self.address(false)).expect("connected");
        let patience = Some(patience());
        other.set_read_timeout(patience).expect("a deadline");
        other.set_write_timeout(patience).expect("a deadline");
        other.write_all(self.line().as_bytes()).expect("written");
        let mut ok = [[0; 3]; 2];
        one.heard.read_exact(&mut ok[0]).expect("connected");
        other.read_exact(&mut ok[1]).expect("connected");
        assert_eq!(ok, [*b"ok\n"; 2]);
        (one, other)
    }

    fn openssl(&self, options: &[&str]) -> Openssl {
        let mut command = Command::new(&self.openssl);
        command.args(["s_client", "-quiet", "-servername", "localhost"]);
        command.args(["-verify_return_error", "-CAfile"]);
        command.arg(self.files.at("crt")).args(options);
        command.arg("-connect").arg(self.address(true).to_string());
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("started");
        let said = child.stdin.take().expect("a pipe");
        let heard = child.stdout.take().expect("a pipe");
        let child = Ended(child);
        Openssl { said, heard, child }
    }
}

/// A client with TLS, which is ended with its test.
struct Openssl {
    said: ChildStdin,
    heard: ChildStdout,
    child: Ended,
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn a_file_goes_from_openssl_to_a_client_without_tls(driver: Driver) {
    let Some(place) = Place::new(driver) else {
        return;
    };
    for version in ["-tls1_3", "-tls1_2"] {
        let (one, mut other) = place.pair(&[version, "-no_ign_eof"]);
        // Without `-ign_eof` the end of its input ends its stream, with close_notify; and some
        // letters at the beginning of what it reads are commands, `k` for one.
        let contents: Vec<u8> = noise(1, BYTES).iter().map(|it| b'a' + it % 8).collect();
        let (mut said, sent) = (one.said, contents.clone());
        let sending = thread::spawn(move || said.write_all(&sent).map(|()| said));
        let mut heard = vec![0; BYTES];
        other.read_exact(&mut heard).expect("all of it");
        assert!(heard == contents, "{version}: another file");
        drop(sending.join().expect("sent").expect("taken"));
        assert_eq!(other.read(&mut [0; 9]).expect("an end"), 0);
        drop(one.child);
    }
    place.server.end();
}

fn a_file_goes_from_a_client_without_tls_to_openssl(driver: Driver) {
    let Some(place) = Place::new(driver) else {
        return;
    };
    for version in ["-tls1_3", "-tls1_2"] {
        let (mut one, mut other) = place.pair(&[version]);
        let contents = noise(2, BYTES);
        let (mut writer, sent) = (other.try_clone().expect("cloned"), contents.clone());
        let sending = thread::spawn(move || {
            writer.write_all(&sent)?;
            writer.shutdown(Shutdown::Write)
        });
        let mut heard = Vec::new();
        // It ends with close_notify, and ends its own stream then.
        one.heard.read_to_end(&mut heard).expect("an end");
        sending.join().expect("sent").expect("taken");
        assert!(heard == contents, "{version}: {} bytes", heard.len());
        assert_eq!(other.read(&mut [0; 9]).expect("an end"), 0);
    }
    place.server.end();
}

fn an_openssl_that_is_killed_resets_the_other_end(driver: Driver) {
    let Some(place) = Place::new(driver) else {
        return;
    };
    let (mut one, mut other) = place.pair(&["-tls1_3"]);
    one.said.write_all(b"a part").expect("open");
    one.said.flush().expect("open");
    let mut part = [0; 6];
    other.read_exact(&mut part).expect("it comes");
    assert_eq!(&part, b"a part");
    // The kernel of the killed client sends FIN, without close_notify before it.
    drop(one.child);
    let error = other.read(&mut [0; 9]).expect_err("a reset");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    place.server.end();
}
