//! Runs the real program and talks to it. Every wait has a deadline.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

/// Longer than anything here takes; a hang becomes a named failure.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Both ways to talk to the kernel; the first is epoll too where io_uring is refused.
pub(crate) const DRIVERS: [&str; 2] = ["auto", "epoll"];

/// A running `flatpath serve`. Killed when dropped.
pub(crate) struct Served {
    child: Child,
    lines: Receiver<String>,
    errors: Receiver<String>,
    /// What it listens on, by name, in the order of the lines.
    pub(crate) listening: Vec<(String, SocketAddr)>,
    /// Services that say so.
    pub(crate) writable: Vec<String>,
}

/// How a program ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Runs `flatpath` to its end.
pub(crate) fn run(arguments: &[&str]) -> Ended {
    run_command(Command::new(env!("CARGO_BIN_EXE_flatpath")).args(arguments))
}

/// Runs a prepared command to its end.
pub(crate) fn run_command(command: &mut Command) -> Ended {
    command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("spawn");
    wait(&mut child);
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().expect("output");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    Ended {
        code: status.code(),
        stdout: text(stdout),
        stderr: text(stderr),
    }
}

fn wait(child: &mut Child) -> std::process::ExitStatus {
    let deadline = Instant::now() + DEADLINE;
    loop {
        if let Some(status) = child.try_wait().expect("wait") {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().expect("kill");
            panic!("the program does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn lines(source: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(source).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

impl Served {
    /// Starts `flatpath serve` in a directory and waits until it is ready.
    pub(crate) fn start(directory: &Path, arguments: &[&str]) -> Self {
        Self::start_with(directory, arguments, &[])
    }

    /// The same, with variables of the environment.
    pub(crate) fn start_with(
        directory: &Path,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_flatpath"));
        command.arg("serve").args(arguments).current_dir(directory);
        command.envs(environment.iter().copied());
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("spawn");
        let out = lines(child.stdout.take().expect("piped"));
        let errors = lines(child.stderr.take().expect("piped"));
        let mut served = Self {
            child,
            lines: out,
            errors,
            listening: Vec::new(),
            writable: Vec::new(),
        };
        loop {
            let line = served.lines.recv_timeout(DEADLINE).unwrap_or_else(|_| {
                let _ = served.child.kill();
                panic!(
                    "it does not get ready: {:?}",
                    served.errors.iter().collect::<Vec<_>>()
                )
            });
            if line == "ready" {
                return served;
            }
            let mut words = line.split(' ');
            assert_eq!(words.next(), Some("listening"), "{line}");
            let name = words.next().expect("a name").to_string();
            let address = words
                .next()
                .expect("an address")
                .parse()
                .expect("an address");
            match words.next() {
                None => {}
                Some("writable") => served.writable.push(name.clone()),
                Some(_) => panic!("{line}"),
            }
            served.listening.push((name, address));
        }
    }

    /// The first address.
    pub(crate) fn address(&self) -> SocketAddr {
        self.listening[0].1
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("kill");
    }

    pub(crate) fn is_running(&mut self) -> bool {
        self.child.try_wait().expect("wait").is_none()
    }

    /// Waits for the end; the code, and what it said on standard error.
    pub(crate) fn end(mut self) -> (Option<i32>, String) {
        let status = wait(&mut self.child);
        let rest: Vec<_> = self.lines.iter().collect();
        assert!(rest.is_empty(), "standard output says more: {rest:?}");
        (
            status.code(),
            self.errors.iter().collect::<Vec<_>>().join("\n"),
        )
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A client's connection.
pub(crate) struct Client {
    pub(crate) stream: BufReader<TcpStream>,
}

/// A reply with a body of known length.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        fields
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(DEADLINE)).expect("time-out");
        stream.set_write_timeout(Some(DEADLINE)).expect("time-out");
        Self {
            stream: BufReader::new(stream),
        }
    }

    pub(crate) fn send(&mut self, text: &str) {
        self.stream
            .get_mut()
            .write_all(text.as_bytes())
            .expect("write");
    }

    /// Sends a GET with these fields (each with its line end).
    pub(crate) fn ask(&mut self, target: &str, fields: &str) {
        self.send(&format!(
            "GET {target} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n"
        ));
    }

    pub(crate) fn get(&mut self, target: &str, fields: &str) -> Reply {
        self.ask(target, fields);
        let (status, head, length) = self.head();
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).expect("a body");
        Reply { status, head, body }
    }

    /// Reads a head: status, text, and the length of the body.
    pub(crate) fn head(&mut self) -> (u16, String, usize) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            let read = self.stream.read_line(&mut head).expect("a head");
            assert!(read > 0, "the connection ended in the head: {head:?}");
        }
        let status = head[9..12].parse().expect("a status");
        let reply = Reply {
            status,
            head,
            body: Vec::new(),
        };
        let is_empty = status == 304 || status == 204;
        let length = reply
            .field("content-length")
            .map_or(0, |text| text.parse().expect("length"));
        (status, reply.head, if is_empty { 0 } else { length })
    }
}

/// One GET on a connection of its own.
pub(crate) fn get(address: SocketAddr, target: &str) -> Reply {
    Client::connect(address).get(target, "")
}

/// A directory with a few files.
pub(crate) fn site() -> TempDir {
    let folder = tempfile::tempdir().expect("tempdir");
    fs::create_dir_all(folder.path().join("sub")).expect("mkdir");
    fs::write(folder.path().join("hello.txt"), "hello\n").expect("write");
    fs::write(folder.path().join("sub/page.html"), "<p>page").expect("write");
    fs::write(folder.path().join(".hidden"), "hidden").expect("write");
    folder
}

/// Runs it and finds code 2, nothing on standard output, and all of `parts` in the message.
pub(crate) fn assert_wrong_use(arguments: &[&str], parts: &[&str]) {
    let ended = run(arguments);
    assert_eq!(
        (ended.code, ended.stdout.as_str()),
        (Some(2), ""),
        "{arguments:?}: {ended:?}"
    );
    for part in parts {
        assert!(
            ended.stderr.contains(part),
            "{arguments:?}: {part} in {}",
            ended.stderr
        );
    }
}
