//! The relay with the client it was made for: a file goes from `wormhole send` through it to
//! `wormhole receive`.
//!
//! The programs come from the Python package index: `magic-wormhole` and
//! `magic-wormhole-mailbox-server`. Their directory is `FLATPATH_WORMHOLE` in the environment, or
//! they are in `PATH`. Everything stays on the loopback interface: the mailbox server is one of our
//! own, and `--no-listen` leaves the clients no direct connection.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use flatpath_testkit::noise;
use flatpath_testkit::{Driver, Launch, Server, each_driver, tools, until};

each_driver!(
    a_file_goes_through_the_relay_with_the_real_client,
    the_words_of_the_protocol_are_kept,
);

fn serve(driver: Driver) -> Server {
    Launch::serve(driver)
        .with(["--relay", "127.0.0.1:0"])
        .start()
}

fn the_words_of_the_protocol_are_kept(driver: Driver) {
    let server = serve(driver);
    let address = server.address("relay");
    let token = "ab".repeat(32);
    let mut one = flatpath_testkit::Client::connect(address);
    one.send(format!("please relay {token} for side 0000000000000001\n").as_bytes());
    let mut other = flatpath_testkit::Client::connect(address);
    other.send(format!("please relay {token} for side 0000000000000002\nhello").as_bytes());
    assert_eq!(one.exactly(8), b"ok\nhello");
    assert_eq!(other.exactly(3), b"ok\n");
    let mut rude = flatpath_testkit::Client::connect(address);
    rude.send(b"please\n");
    assert_eq!(rude.rest().0, b"bad handshake\n");
}

/// A directory with the programs, or `None` after saying what is missing.
fn wormhole() -> Option<PathBuf> {
    let named = std::env::var_os("FLATPATH_WORMHOLE").map(PathBuf::from);
    match named {
        Some(directory) => {
            for program in ["wormhole", "twist"] {
                let path = directory.join(program);
                assert!(path.is_file(), "{} is no program", path.display());
            }
            Some(directory)
        }
        None => {
            tools::find("twist")?;
            Some(tools::find("wormhole")?.parent()?.to_path_buf())
        }
    }
}

/// A mailbox server: it brings the two clients together, and carries no file.
struct Mailbox {
    child: Child,
    port: u16,
}

impl Mailbox {
    fn start(programs: &Path, home: &Path) -> Mailbox {
        let log = home.join("mailbox.log");
        let output = std::fs::File::create(&log).expect("a log");
        let child = Command::new(programs.join("twist"))
            .args(["wormhole-mailbox", "--port", "tcp:0:interface=127.0.0.1"])
            .current_dir(home)
            .stdin(Stdio::null())
            .stdout(output)
            .stderr(Stdio::null())
            .spawn()
            .expect("twist starts");
        // Dropped, and so ended, if its port is never told.
        let mut mailbox = Mailbox { child, port: 0 };
        mailbox.port = until("the mailbox server tells its port", || {
            let log = std::fs::read_to_string(&log).ok()?;
            let (_, rest) = log.split_once("Site starting on ")?;
            let digits = rest.find(|byte: char| !byte.is_ascii_digit())?;
            rest[..digits].parse().ok()
        });
        mailbox
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The arguments that the book tells a user to give, up to the command.
fn documented(verb: &str, relay: &str) -> Vec<String> {
    let document = include_str!("../../../book/src/relay.md");
    let is_meant = |line: &&str| line.starts_with("$ wormhole ") && line.contains(verb);
    let line = document.lines().find(is_meant).expect("a command line");
    let (options, _) = line.split_once(verb).expect("the command");
    let options = options.replace("RELAY:4001", relay);
    let words = options.split_whitespace().skip(2).chain([verb]);
    words.map(String::from).collect()
}

fn a_file_goes_through_the_relay_with_the_real_client(driver: Driver) {
    const BYTES: usize = 5 << 20;
    let Some(programs) = wormhole() else {
        return;
    };
    let server = serve(driver);
    let home = tempfile::tempdir().expect("a directory");
    let mailbox = Mailbox::start(&programs, home.path());
    let (from, to) = (home.path().join("from"), home.path().join("to"));
    let contents = noise(6, BYTES);
    std::fs::write(&from, &contents).expect("written");
    let relay = server.address("relay");
    let client = |verb: &str| {
        let mut command = Command::new(programs.join("wormhole"));
        command
            .arg(format!("--relay-url=ws://127.0.0.1:{}/v1", mailbox.port))
            .args(documented(verb, &relay.to_string()))
            .arg("--no-listen")
            .env("HOME", home.path())
            .current_dir(home.path());
        command
    };
    let code = "7-flat-path";
    let mut sender = client("send");
    sender.arg("--code").arg(code).arg(&from);
    let sending = std::thread::spawn(move || tools::run(&mut sender, TIME_MAX));
    let mut receiver = client("receive");
    receiver.args(["--accept-file", "-o"]).arg(&to).arg(code);
    let received = tools::run(&mut receiver, TIME_MAX);
    let sent = sending.join().expect("the sender ends in time");
    for output in [&received, &sent] {
        let words = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{}: {words}", output.status);
    }
    assert!(
        std::fs::read(&to).expect("a file") == contents,
        "the file was changed on its way"
    );
    // The relay's own account: one pair, and more bytes than the file has.
    server.terminate();
    server.await_log("stopped");
    let log = server.log();
    let last = log.lines().rfind(|line| line.contains("relay: 0 waiting"));
    let last = last.expect("a relay that did something logs it at the end");
    let mebibytes = last
        .split(" MiB relayed")
        .next()
        .and_then(|front| front.rsplit(' ').next());
    let mebibytes: f64 = mebibytes.and_then(|it| it.parse().ok()).expect("a number");
    assert!(last.contains(" 1 matched "), "{last}");
    assert!(mebibytes >= BYTES as f64 / f64::from(1 << 20), "{last}");
}

/// Python starts slowly on a busy machine.
const TIME_MAX: Duration = Duration::from_secs(60);
