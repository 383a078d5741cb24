//! Ingest: the real server with consumers that are killed, and consumers in Python.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use flatpath_consumer::{Consumer, Error};
use flatpath_testkit::deadline::{Deadline, until};
use flatpath_testkit::ingest::{Counts, figures, launch, message, told};
use flatpath_testkit::skipped::not_run;
use flatpath_testkit::{Driver, Launch, Server, binary, each_driver, tools};

each_driver!(
    consumers_killed_at_random_leave_exact_accounts,
    a_consumer_in_python_gets_what_producers_send,
    a_consumer_in_python_gets_the_messages_of_its_token_only,
    the_example_of_the_readme_adds_up_batches,
    the_socket_is_gone_with_the_server_and_one_that_was_left_is_replaced,
    a_killed_server_is_an_error_and_one_that_stops_an_end,
);

const KILLS: u32 = 80;
const PYTHON: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/python");

/// The server, and the directory of its socket.
struct Rig {
    server: Server,
    directory: tempfile::TempDir,
}

impl Rig {
    fn new(driver: Driver) -> Rig {
        let directory = tempfile::tempdir().expect("a directory");
        let server = start(driver, directory.path());
        Rig { server, directory }
    }

    fn address(&self) -> SocketAddr {
        self.server.address("ingest")
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("ingest")
    }

    /// Ends the server; the metrics in the last line of its log.
    fn end(mut self) -> Counts {
        self.server.terminate();
        assert!(self.server.exit_status().success());
        self.server.await_log("stopped");
        figures(&self.server.log(), "ingest: ").expect("figures in the log")
    }
}

fn start(driver: Driver, directory: &Path) -> Server {
    launch(driver, directory).start()
}

/// Sends until the flag is set; how many messages that was.
fn sender(address: SocketAddr, which: u64, stop: &Arc<AtomicBool>) -> JoinHandle<u64> {
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let mut stream = TcpStream::connect(address).expect("connect");
        let mut sent = 0;
        while !stop.load(Ordering::Relaxed) {
            let seed = which << 32 | sent;
            let length = (seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 46) as usize;
            stream.write_all(&message(seed, length)).expect("sent");
            sent += 1;
        }
        await_taken(&mut stream);
        sent
    })
}

/// Ends the stream and waits until the server has taken everything, which is when it closes: what
/// is unread at a drain would be lost.
fn await_taken(stream: &mut TcpStream) {
    let patience = Some(flatpath_testkit::patience());
    stream.shutdown(Shutdown::Write).expect("half-closed");
    stream.set_read_timeout(patience).expect("a time-out");
    assert_eq!(stream.read(&mut [0]).expect("a clean end"), 0);
}

/// A process that attaches, started; killed when dropped.
struct Victim(Child);

impl Victim {
    fn new(socket: &Path) -> Victim {
        let mut child = Command::new(binary::helper("consume"))
            .args([socket, Path::new("5")])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let mut line = String::new();
        let output = child.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut line).expect("a line");
        assert_eq!(line, "attached\n");
        Victim(child)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        // It never ends by itself while the server runs: then a message had changed.
        let ended = self.0.try_wait().expect("our child");
        let _ = self.0.kill();
        let _ = self.0.wait();
        if !std::thread::panicking() {
            assert!(ended.is_none(), "the consumer ended with {ended:?}");
        }
    }
}

fn consumers_killed_at_random_leave_exact_accounts(driver: Driver) {
    let rig = Rig::new(driver);
    let stop = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..4)
        .map(|which| sender(rig.address(), which, &stop))
        .collect();
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..KILLS {
        let victim = Victim::new(&rig.socket());
        // Anywhere between its first descriptor and its hundredth message.
        std::thread::sleep(Duration::from_micros(random.u64(..8000)));
        drop(victim);
        until("its end to be noticed", || {
            (told(&rig.server, "ingest ")["flatpath_ingest_consumers"] == 0).then_some(())
        });
    }
    stop.store(true, Ordering::Relaxed);
    let mut last = Consumer::attach(rig.socket()).expect("attached");
    let deadline = Deadline::default();
    let mut quiet = 0;
    while quiet < 5 {
        assert!(!deadline.is_over(), "the producers do not end");
        match last.receive_timeout(Duration::from_millis(20)) {
            Ok(Some(_)) => quiet = 0,
            _ if senders.iter().all(JoinHandle::is_finished) => quiet += 1,
            _ => {}
        }
    }
    let sent: u64 = senders
        .into_iter()
        .map(|one| one.join().expect("no panic"))
        .sum();
    drop(last);
    until("the last one's end to be noticed", || {
        (told(&rig.server, "ingest ")["flatpath_ingest_consumers"] == 0).then_some(())
    });
    let figures = rig.end();
    eprintln!("{sent} messages sent, {figures:?}");
    assert_eq!(
        figures["flatpath_ingest_messages_total"], sent,
        "each was delivered, and once"
    );
    let back = |way| figures[&*format!("flatpath_ingest_fragments_back_total{{way={way}}}")];
    assert_eq!(
        back("returned") + back("reclaimed"),
        figures["flatpath_ingest_fragments_total"]
    );
    for name in [
        "flatpath_ingest_fragments_held",
        "flatpath_ingest_consumers",
        "flatpath_ingest_returns_refused_total",
        "flatpath_ingest_pages{state=with_handlers}",
        "flatpath_ingest_pages{state=with_consumers}",
    ] {
        assert_eq!(figures[name], 0, "{name}");
    }
    assert!(back("reclaimed") > 0, "some died with something in hand");
}

/// Debian's Python, or another one.
fn python() -> Option<PathBuf> {
    let debian = PathBuf::from("/usr/bin/python3");
    if debian.is_file() {
        Some(debian)
    } else {
        tools::find("python3")
    }
}

/// A Python program as a consumer; what it said when the server had gone.
fn run_python(rig: Rig, program: &str, send: impl FnOnce(&mut TcpStream)) -> String {
    let python = python().expect("looked for before");
    let mut child = Command::new(python)
        .args(["-W", "error", "-c", program])
        .env("PYTHONPATH", PYTHON)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("started");
    until("it to attach", || {
        let ended = child.try_wait().expect("our child");
        assert!(ended.is_none(), "it ended: {ended:?}");
        rig.server.log().contains("is attached").then_some(())
    });
    let mut stream = TcpStream::connect(rig.address()).expect("connect");
    send(&mut stream);
    await_taken(&mut stream);
    drop(stream);
    let figures = rig.end();
    assert_eq!(figures["held"], 0);
    let output = child.wait_with_output().expect("its words");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8(output.stdout).expect("text")
}

fn a_consumer_in_python_gets_what_producers_send(driver: Driver) {
    if python().is_none() {
        return;
    }
    let rig = Rig::new(driver);
    let program = format!(
        "import hashlib\n\
         from flatpath_consumer import Consumer\n\
         digest, count = hashlib.sha256(), 0\n\
         with Consumer({:?}) as consumer:\n\
         \x20   for message in consumer:\n\
         \x20       with message:\n\
         \x20           for fragment in message.fragments:\n\
         \x20               digest.update(fragment.data)\n\
         \x20           count += 1\n\
         print(count, digest.hexdigest())\n",
        rig.socket()
    );
    let lengths = [0, 1, 100, 65_536, 1 << 20, 5, 3_000_000];
    let sent: Vec<Vec<u8>> = (0..)
        .zip(lengths)
        .map(|(seed, length)| message(seed, length))
        .collect();
    let expected = {
        let payload: Vec<u8> = sent
            .iter()
            .flat_map(|framed| &framed[4..])
            .copied()
            .collect();
        let file = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(file.path(), payload).expect("written");
        let output = Command::new("sha256sum")
            .arg(file.path())
            .output()
            .expect("coreutils");
        let text = String::from_utf8(output.stdout).expect("text");
        text.split(' ').next().expect("a digest").to_owned()
    };
    let said = run_python(rig, &program, |stream| {
        for framed in &sent {
            stream.write_all(framed).expect("sent");
        }
    });
    assert_eq!(said.trim(), format!("{} {expected}", lengths.len()));
}

fn a_consumer_in_python_gets_the_messages_of_its_token_only(driver: Driver) {
    if python().is_none() {
        return;
    }
    let rig = Rig::new(driver);
    let (address, socket) = (rig.address(), rig.socket());
    let program = format!(
        "from flatpath_consumer import Consumer\n\
         with Consumer({socket:?}, token=7) as consumer:\n\
         \x20   for message in consumer:\n\
         \x20       with message:\n\
         \x20           print(bytes(message).decode())\n",
    );
    let framed = |text: &[u8]| [&(text.len() as u32).to_be_bytes()[..], text].concat();
    let said = run_python(rig, &program, |stream| {
        let refused = Consumer::attach_for(&socket, 7).expect_err("taken");
        assert!(refused.to_string().contains("token"), "{refused}");
        let mut others = Consumer::attach(&socket).expect("attached");
        let mut unnamed = TcpStream::connect(address).expect("connect");
        unnamed.write_all(&framed(b"for any")).expect("sent");
        // A length that no message has, and a token.
        let naming = [&[0xff; 4][..], &7_u64.to_be_bytes()].concat();
        stream.write_all(&naming).expect("sent");
        stream.write_all(&framed(b"for seven")).expect("sent");
        stream.write_all(&framed(b"again")).expect("sent");
        let patience = flatpath_testkit::patience();
        let got = others.receive_timeout(patience).expect("attached");
        assert_eq!(got.expect("a message").to_vec(), b"for any");
    });
    assert_eq!(said, "for seven\nagain\n");
}

fn the_example_of_the_readme_adds_up_batches(driver: Driver) {
    let Some(python) = python() else {
        return;
    };
    let numpy = tools::run(
        Command::new(python).args(["-c", "import numpy"]),
        Duration::from_secs(30),
    );
    if !numpy.status.success() {
        return not_run("NumPy (python3-numpy) is not installed");
    }
    let rig = Rig::new(driver);
    let readme = std::fs::read_to_string(Path::new(PYTHON).join("README.md")).expect("there");
    let example = readme.split("```python\n").nth(1).expect("an example");
    let example = example.split("```").next().expect("its end");
    let socket = rig.socket();
    let program = example.replace("/run/flatpath/ingest", socket.to_str().expect("text"));
    assert_ne!(program, example, "the example names the socket");
    let said = run_python(rig, &(program + "\nprint(total)\n"), |stream| {
        for batch in 0..20_u32 {
            // Lengths at which receives end within a value.
            let values: Vec<u8> = (0..50_000 + batch)
                .flat_map(|value| ((value % 100) as f32).to_le_bytes())
                .collect();
            let length = u32::try_from(values.len()).expect("short").to_be_bytes();
            stream
                .write_all(&[&length, values.as_slice()].concat())
                .expect("sent");
        }
    });
    let expected: f64 = (0..20_u32)
        .flat_map(|batch| (0..50_000 + batch).map(|value| f64::from(value % 100)))
        .sum();
    assert_eq!(said.trim().parse::<f64>(), Ok(expected));
}

fn the_socket_is_gone_with_the_server_and_one_that_was_left_is_replaced(driver: Driver) {
    let rig = Rig::new(driver);
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("ingest");
    drop(start(driver, directory.path()));
    assert!(socket.exists(), "it was killed");
    let mut again = start(driver, directory.path());
    drop(Consumer::attach(&socket).expect("attached"));
    again.terminate();
    assert!(again.exit_status().success());
    assert!(!socket.exists());
    let refused = Launch::new(binary::flatpath().to_path_buf())
        .with(["serve", "--ingest", "127.0.0.1:0"])
        .with([Path::new("--ingest-socket"), &rig.socket()])
        .try_start();
    let log = refused.err().expect("the first server listens there").log;
    assert!(log.contains("--ingest-socket"), "{log}");
}

fn a_killed_server_is_an_error_and_one_that_stops_an_end(driver: Driver) {
    let directory = tempfile::tempdir().expect("a directory");
    let socket = directory.path().join("ingest");
    let server = start(driver, directory.path());
    let mut consumer = Consumer::attach(&socket).expect("attached");
    drop(server);
    let seen = consumer.receive_timeout(flatpath_testkit::patience());
    assert_eq!(seen.expect_err("it was killed"), Error::Lost);
    let mut server = start(driver, directory.path());
    let mut consumer = Consumer::attach(&socket).expect("attached");
    server.terminate();
    let seen = consumer.receive_timeout(flatpath_testkit::patience());
    assert!(seen.expect("it stopped in order").is_none());
    assert!(server.exit_status().success());
}

#[test]
fn the_tests_of_the_python_package_pass() {
    let Some(python) = python() else {
        return;
    };
    let mut command = Command::new(python);
    command
        .args([
            "-B", "-W", "error", "-m", "unittest", "discover", "-s", "tests", "-t", ".",
        ])
        .current_dir(PYTHON);
    let output = tools::run(&mut command, flatpath_testkit::patience());
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    assert!(!words.contains("Ran 0 tests"), "{words}");
}
