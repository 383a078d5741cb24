//! Starting and ending the servers: ours, nfs-ganesha, and the rpcbind that the latter insists on.
//!
//! Every child is started through `setpriv --pdeathsig`, so the kernel ends it when the harness
//! dies in whatever way, and ended when its [`Child`] is dropped.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::Failure;
use crate::connection::Mount;
use crate::observed::Dispatches;

/// How long a server may take to come up, or to end by itself.
const PATIENCE: Duration = Duration::from_secs(20);
const RPCBIND: &str = "127.0.0.1:111";

/// A running server or helper.
pub(crate) struct Child(std::process::Child);

impl Child {
    fn start(program: &str, arguments: &[&str], output: Stdio) -> Result<Child, Failure> {
        Child::start_asked(program, arguments, Stdio::null(), output)
    }

    fn start_asked(
        program: &str,
        arguments: &[&str],
        input: Stdio,
        output: Stdio,
    ) -> Result<Child, Failure> {
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", program])
            .args(arguments)
            .stdin(input)
            .stdout(output)
            .stderr(Stdio::null())
            .spawn();
        let child = child.map_err(|cause| format!("setpriv (util-linux): {cause}"))?;
        Ok(Child(child))
    }

    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| !self.has_ended()) {
            // ESRCH: it has ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
        let deadline = Instant::now() + PATIENCE;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A server that is ready, and where.
pub(crate) struct Server {
    pub(crate) mount: Mount,
    child: Child,
    answers: Option<BufReader<ChildStdout>>,
    _helper: Option<Child>,
}

impl Server {
    /// What dispatch has cost so far; `None` for servers that do not say.
    pub(crate) fn dispatches(&mut self) -> Result<Option<Dispatches>, Failure> {
        let (Some(answers), Some(input)) = (&mut self.answers, &mut self.child.0.stdin) else {
            return Ok(None);
        };
        input.write_all(b"\n")?;
        let mut line = String::new();
        answers.read_line(&mut line)?;
        Ok(Some(serde_json::from_str(&line)?))
    }

    /// The process whose CPU time counts.
    pub(crate) fn process(&self) -> u32 {
        self.child.0.id()
    }
}

/// `flatpath serve` exporting `directory`.
pub(crate) fn flatpath(
    binary: &Path,
    directory: &Path,
    more: &[String],
) -> Result<Server, Failure> {
    let binary = binary.to_str().ok_or("a path that is not text")?;
    let directory = directory.to_str().ok_or("a path that is not text")?;
    let mut arguments = vec![
        "serve",
        directory,
        "--nfs",
        "127.0.0.1:0",
        "--no-root-squash",
    ];
    arguments.extend(more.iter().map(String::as_str));
    let child = Child::start(binary, &arguments, Stdio::piped())?;
    await_address(child)
}

/// This program as a server of `directory` that says what dispatch costs.
pub(crate) fn observed(directory: &Path, workers: u32, driver: &str) -> Result<Server, Failure> {
    let program = std::env::current_exe()?;
    let program = program.to_str().ok_or("a path that is not text")?;
    let directory = directory.to_str().ok_or("a path that is not text")?;
    let arguments = ["serve", directory, &workers.to_string(), driver];
    let child = Child::start_asked(program, &arguments, Stdio::piped(), Stdio::piped())?;
    await_address(child)
}

/// Waits until a server of ours has said where it listens.
fn await_address(mut child: Child) -> Result<Server, Failure> {
    let output = child.0.stdout.take().ok_or("standard output is piped")?;
    let mut output = BufReader::new(output);
    let mut line = String::new();
    while output.read_line(&mut line)? > 0 {
        if let Some(address) = line.trim_end().strip_prefix("listening nfs ") {
            let nfs: SocketAddr = address.parse()?;
            return Ok(Server {
                mount: Mount {
                    nfs,
                    mount: nfs,
                    path: "/".to_owned(),
                },
                answers: child.0.stdin.is_some().then_some(output),
                child,
                _helper: None,
            });
        }
        line.clear();
    }
    Err("our server did not start".into())
}

/// nfs-ganesha exporting `directory`, with its files in `scratch`.
pub(crate) fn ganesha(directory: &Path, scratch: &Path) -> Result<Server, Failure> {
    let directory = directory.to_str().ok_or("a path that is not text")?;
    let place = |name: &str| scratch.join(name).to_string_lossy().into_owned();
    let (options, log) = (place("ganesha.conf"), place("ganesha.log"));
    let text = include_str!("../ganesha.conf").replace("/dev/shm/peer", directory);
    fs::write(&options, text)?;
    fs::create_dir_all("/run/ganesha")?;
    let rpcbind: SocketAddr = RPCBIND.parse()?;
    let helper = if TcpStream::connect(rpcbind).is_err() {
        let mut helper = Child::start("rpcbind", &["-f"], Stdio::null())?;
        await_port(rpcbind, &mut helper, "rpcbind")?;
        Some(helper)
    } else {
        None
    };
    let pid = place("ganesha.pid");
    let arguments = ["-F", "-f", &options, "-p", &pid, "-L", &log];
    let mut child = Child::start("ganesha.nfsd", &arguments, Stdio::null())?;
    let (nfs, mount) = ("127.0.0.1:22049".parse()?, "127.0.0.1:22050".parse()?);
    for address in [nfs, mount] {
        await_port(address, &mut child, "ganesha.nfsd").map_err(|cause| {
            let log = fs::read_to_string(&log).unwrap_or_default();
            let bad: Vec<&str> = log
                .lines()
                .filter(|line| line.contains(":CRIT :") || line.contains(":FATAL :"))
                .collect();
            format!("{cause}\n{}", bad.join("\n"))
        })?;
    }
    Ok(Server {
        mount: Mount {
            nfs,
            mount,
            path: directory.to_owned(),
        },
        child,
        answers: None,
        _helper: helper,
    })
}

fn await_port(address: SocketAddr, child: &mut Child, name: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(address).is_err() {
        if child.has_ended() {
            return Err(format!("{name} ended before it listened at {address}").into());
        }
        if Instant::now() > deadline {
            return Err(format!("{name} does not listen at {address}").into());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
