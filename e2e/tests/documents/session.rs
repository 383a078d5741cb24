//! A shell that runs the commands of one page, in order, in a temporary directory.
//!
//! What it does to a command before it runs:
//! - `cargo run --release -p flatpath-cli -- ` is the `flatpath` that the tests have built, which
//!   is also first in `PATH`.
//! - `flatpath serve` runs in the background on the driver under test, and is started when it
//!   prints `ready`. It runs to the end of the page, or until the next one asks for a port of its
//!   own, and must then end by itself, with success.
//! - A command that ends in ` &` runs in the background to the end of the page. It is started when
//!   all ports are listened at that it names, or that a file which it names does.
//!
//! Nothing else is changed: the page has its own namespaces ([`crate::apart`]).
//!
//! Any other command must end with success. Output that the page shows must come, in this order;
//! `...` stands for any text. A block with `file=NAME` is written to that file.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use flatpath_testkit::child::{self, Child};
use flatpath_testkit::{Deadline, Driver, binary, tools};
use tempfile::TempDir;

use crate::page::{Block, Step};

/// What make `serve` listen elsewhere than at its default.
const LISTENERS: [&str; 6] = [
    "--http",
    "--nfs",
    "--echo",
    "--relay",
    "--ingest ",
    "--config",
];
const DEFAULT_PORT: u16 = 8080;
/// Far beyond what a command of a page takes.
const PATIENCE: Duration = Duration::from_secs(60);
const PUBLIC_BYTES: usize = 100_000;
/// Words that the shell knows by itself.
const BUILTINS: [&str; 6] = ["flatpath", "kill", "cd", "export", "echo", "printf"];

pub(crate) struct Session {
    directory: TempDir,
    driver: Driver,
    servers: Vec<Server>,
}

struct Server {
    child: Child,
    ports: Vec<u16>,
    /// It is ours, and so must end with success.
    is_flatpath: bool,
}

impl Session {
    /// A directory with what the pages suppose is there.
    pub(crate) fn new(driver: Driver) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let public = directory.path().join("public");
        for folder in [&public, Path::new("/srv/www")] {
            fs::create_dir_all(folder).expect("made");
            for (name, content) in [
                ("index.html", &b"hello\n"[..]),
                ("file", &[b'x'; PUBLIC_BYTES]),
            ] {
                let mut file = File::create(folder.join(name)).expect("made");
                file.write_all(content).expect("written");
                // What was changed in this second has no portable tag yet.
                let past = SystemTime::now() - Duration::from_secs(60);
                file.set_modified(past).expect("its time can be set");
            }
        }
        fs::write(directory.path().join("big.iso"), vec![b'x'; 1 << 20]).expect("written");
        Self {
            directory,
            driver,
            servers: Vec::new(),
        }
    }

    fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a block to the file that it names.
    pub(crate) fn write(&mut self, name: &str, block: &Block<'_>) {
        let text = block.lines.join("\n") + "\n";
        fs::write(self.path().join(name), text).expect("written");
    }

    /// Runs a command; not if its program is missing here, and then nothing after it either.
    pub(crate) fn run(&mut self, step: &Step) -> Result<(), String> {
        let (command, _comment) = step.command.split_once(" #").unwrap_or((&step.command, ""));
        let mut command = command
            .trim_end()
            .replace("cargo run --release -p flatpath-cli -- ", "flatpath ");
        let program = command.split_whitespace().next().unwrap_or_default();
        if !BUILTINS.contains(&program) && tools::find(program).is_none() {
            return Err(String::new());
        }
        let output = if command.starts_with("flatpath serve") {
            command += &format!(" --driver {}", self.driver.name());
            self.serve(&command)?
        } else if let Some(command) = command.strip_suffix(" &") {
            self.start(command)?;
            String::new()
        } else {
            let output = tools::run(&mut self.shell(&command), PATIENCE);
            let both = [output.stdout, output.stderr].join(&b'\n');
            let text = String::from_utf8_lossy(&both).into_owned();
            if !output.status.success() {
                return Err(format!("{}: {text}", output.status));
            }
            text
        };
        compare(&step.output, &output)
    }

    /// Ends the servers that still run.
    pub(crate) fn finish(mut self) -> Result<(), String> {
        // The last one first: a proxy before those that it stands before.
        while let Some(server) = self.servers.pop() {
            server.stop()?;
        }
        Ok(())
    }

    fn serve(&mut self, command: &str) -> Result<String, String> {
        let mut ports = self.ports_in(command);
        if !LISTENERS.iter().any(|option| command.contains(option)) {
            ports.push(DEFAULT_PORT);
        }
        let servers = std::mem::take(&mut self.servers);
        let is_replaced = |server: &Server| server.ports.iter().any(|port| ports.contains(port));
        let (replaced, kept): (Vec<_>, Vec<_>) = servers.into_iter().partition(is_replaced);
        self.servers = kept;
        replaced.into_iter().try_for_each(Server::stop)?;
        let mut child = self.background(command)?;
        let deadline = Deadline::after(PATIENCE);
        let mut output = String::new();
        while !output.ends_with("ready\n") {
            let line = child.line(deadline.left());
            output += &(line.map_err(|error| error.to_string())? + "\n");
        }
        self.servers.push(Server {
            child,
            ports,
            is_flatpath: true,
        });
        Ok(output)
    }

    fn start(&mut self, command: &str) -> Result<(), String> {
        let ports = self.ports_in(command);
        let mut child = self.background(command)?;
        for port in &ports {
            child.await_port(*port).map_err(|error| error.to_string())?;
        }
        self.servers.push(Server {
            child,
            ports: Vec::new(),
            is_flatpath: false,
        });
        Ok(())
    }

    fn background(&self, command: &str) -> Result<Child, String> {
        let mut shell = child::command("bash", &[]);
        shell.args(["-c", &format!("exec {command}")]);
        self.surround(&mut shell);
        Child::start(&mut shell).map_err(|error| error.to_string())
    }

    fn shell(&self, command: &str) -> Command {
        let mut shell = Command::new("bash");
        shell.args(["-o", "pipefail", "-ec", command]);
        self.surround(&mut shell);
        shell
    }

    fn surround(&self, shell: &mut Command) {
        let folder = binary::flatpath().parent().expect("a file is in a folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{path}:/usr/sbin", folder.display());
        shell.current_dir(self.path()).env("PATH", path);
    }

    /// The ports that a command names after a colon, or a file which it names does, for itself.
    fn ports_in(&self, command: &str) -> Vec<u16> {
        let mut text = command.to_string();
        for word in command.split_whitespace() {
            text += &fs::read_to_string(self.path().join(word)).unwrap_or_default();
        }
        let pieces: Vec<&str> = text.split(':').collect();
        // `http://ADDRESS:PORT` is a server that is asked.
        let own = pieces.windows(2).filter(|pair| !pair[0].starts_with("//"));
        let digits = own.map(|pair| pair[1]).map(|rest| {
            let end = rest.find(|letter: char| !letter.is_ascii_digit());
            &rest[..end.unwrap_or(rest.len())]
        });
        let ports = digits.filter(|digits| digits.len() >= 4);
        ports.filter_map(|digits| digits.parse().ok()).collect()
    }
}

impl Server {
    fn stop(mut self) -> Result<(), String> {
        self.child.signal(rustix::process::Signal::TERM);
        let status = self
            .child
            .wait(PATIENCE)
            .map_err(|error| error.to_string())?;
        if self.is_flatpath && !status.success() {
            return Err(format!(
                "a server ended with {status}: {}",
                self.child.whole_log()
            ));
        }
        Ok(())
    }
}

/// Finds each expected line in the output, after the one before it.
fn compare(expected: &[String], output: &str) -> Result<(), String> {
    let mut lines = output.lines();
    for line in expected {
        if !lines.any(|real| is_like(line, real.trim_end())) {
            return Err(format!("the line {line:?} did not come:\n{output}"));
        }
    }
    Ok(())
}

/// Whether a line is this one, where `...` stands for any text.
fn is_like(pattern: &str, line: &str) -> bool {
    let mut parts = pattern.split("...");
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = line.strip_prefix(first) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        is_open = true;
        if part.is_empty() {
            continue;
        }
        let Some(at) = rest.find(part) else {
            return false;
        };
        rest = &rest[at + part.len()..];
    }
    rest.is_empty() || is_open && pattern.ends_with("...")
}

#[test]
fn three_dots_are_any_text() {
    assert!(is_like("a...c", "abc"));
    assert!(is_like("a...", "abc"));
    assert!(is_like("...b...", "abc"));
    assert!(is_like("abc", "abc"));
    assert!(!is_like("a...d", "abc"));
    assert!(!is_like("ab", "abc"));
    assert!(!is_like("...b", "abc"));
}
