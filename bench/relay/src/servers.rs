//! Starting and ending the relays. Each child dies with the harness (`setpriv --pdeathsig`).

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::Failure;

/// How long a relay may take to come up.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Uring,
    Epoll,
    Python,
    Socat,
    Haproxy,
    /// See `bare.rs`.
    Bare,
}

impl Kind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::Uring => "uring",
            Kind::Epoll => "epoll",
            Kind::Python => "python",
            Kind::Socat => "socat",
            Kind::Haproxy => "haproxy",
            Kind::Bare => "bare",
        }
    }
}

/// A relay that accepts.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: SocketAddr,
    /// Where socat and haproxy connect to; the others join two clients.
    pub(crate) target: Option<TcpListener>,
    _home: TempDir,
}

impl Server {
    pub(crate) fn start(
        kind: Kind,
        flatpath: &Path,
        python: Option<&Path>,
    ) -> Result<Server, Failure> {
        let home = tempfile::tempdir()?;
        let address = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
        let target = match kind {
            Kind::Socat | Kind::Haproxy => Some(TcpListener::bind("127.0.0.1:0")?),
            Kind::Uring | Kind::Epoll | Kind::Python | Kind::Bare => None,
        };
        let port = address.port();
        let to = target
            .as_ref()
            .map_or(Ok(address), TcpListener::local_addr)?;
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--"]);
        match kind {
            Kind::Uring | Kind::Epoll => {
                command
                    .arg(flatpath)
                    .args(["serve", "--driver", kind.name()]);
                command.args(["--relay", &address.to_string()]);
                command.args(["--relay-waiting", "1000000"]);
            }
            Kind::Python => {
                let twist = python.map_or("twist".into(), |path| path.join("twist"));
                command.arg(twist);
                command.args(["--log-level=error", "transitrelay"]);
                command.arg(format!(
                    "--port=tcp:{port}:interface=127.0.0.1:backlog=4096"
                ));
            }
            Kind::Bare => {
                command.arg(std::env::current_exe()?);
                command.args(["--bare", &address.to_string()]);
            }
            Kind::Socat => {
                command.arg("socat");
                command.arg(format!("TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr"));
                command.arg(format!("TCP:{to}"));
            }
            Kind::Haproxy => {
                let file = home.path().join("haproxy.cfg");
                fs::write(&file, haproxy(address, to))?;
                command.args(["haproxy", "-db", "-f"]).arg(file);
            }
        }
        command.current_dir(home.path());
        command.stdin(Stdio::null()).stderr(Stdio::null());
        command.stdout(Stdio::piped());
        let child = command
            .spawn()
            .map_err(|cause| format!("{command:?}: {cause}"))?;
        let mut server = Server {
            child,
            address,
            target,
            _home: home,
        };
        server.await_readiness(kind)?;
        Ok(server)
    }

    /// A connection would use socat up, and be one of those that wait; so the kernel's table is
    /// asked.
    fn await_readiness(&mut self, kind: Kind) -> Result<(), Failure> {
        if matches!(kind, Kind::Uring | Kind::Epoll) {
            let output = self.child.stdout.take().ok_or("no standard output")?;
            let ready = BufReader::new(output).lines().map_while(Result::ok);
            let ready = ready.take_while(|line| line != "ready").count();
            return if ready > 0 {
                Ok(())
            } else {
                Err("flatpath does not start".into())
            };
        }
        let deadline = Instant::now() + PATIENCE;
        let wanted = format!("0100007F:{:04X} 00000000:0000 0A", self.address.port());
        while Instant::now() < deadline {
            if fs::read_to_string("/proc/net/tcp")?.contains(&wanted) {
                return Ok(());
            }
            if let Some(status) = self.child.try_wait()? {
                return Err(format!("{} ended: {status}", kind.name()).into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err(format!("{} does not listen", kind.name()).into())
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn connect(&self) -> Result<TcpStream, Failure> {
        let stream = TcpStream::connect(self.address)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        stream.set_write_timeout(Some(Duration::from_secs(60)))?;
        Ok(stream)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself, as socat does.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn haproxy(from: SocketAddr, to: SocketAddr) -> String {
    format!(
        "global\n  nbthread 1\n  maxconn 1000\n\
         defaults\n  mode tcp\n  timeout connect 10s\n  timeout client 60s\n  timeout server 60s\n\
         listen relay\n  bind {from}\n  server target {to}\n"
    )
}
