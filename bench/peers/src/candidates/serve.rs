//! What the servers inside this binary share: what they are told, and how they say where they
//! listen.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use flatpath::DriverChoice;

use crate::kind::Kind;

/// The path whose handler sleeps.
pub(crate) const SLEEP_PATH: &str = "/sleep";
/// For how long: what a slow disk or a small query takes.
pub(crate) const SLEEP: Duration = Duration::from_millis(10);

/// The arguments of the hidden `serve` command.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Serve {
    /// Which server.
    pub(super) kind: Kind,
    /// Threads that may block.
    #[arg(long)]
    pub(super) workers: Option<u32>,
    /// The driver of a server that is Flatpath.
    #[arg(long, default_value = "auto")]
    pub(super) driver: String,
    /// Connections that must be possible.
    #[arg(long, default_value_t = 1024)]
    pub(super) max_connections: u32,
    /// Milliseconds between two server-sent events.
    #[arg(long, default_value_t = 1000)]
    pub(super) every_ms: u32,
    /// Where a relay listens.
    #[arg(long, default_value = "127.0.0.1:0")]
    pub(super) address: SocketAddr,
    /// Where consumers attach.
    #[arg(long, default_value = "ingest")]
    pub(super) socket: PathBuf,
    /// Where a server makes its database.
    #[arg(long, default_value = "items.db")]
    pub(super) database: PathBuf,
    /// The files of an application.
    #[arg(long, default_value = "public")]
    pub(super) public: PathBuf,
    /// The certificate of a server over TLS, in PEM.
    #[arg(long, default_value = "certificate.pem")]
    pub(super) certificate: PathBuf,
    /// Its key.
    #[arg(long, default_value = "key.pem")]
    pub(super) key: PathBuf,
}

/// The driver of this name.
///
/// # Errors
/// No driver has it.
pub(crate) fn driver(name: &str) -> io::Result<DriverChoice> {
    match name {
        "auto" => Ok(DriverChoice::Auto),
        "uring" => Ok(DriverChoice::Uring),
        "epoll" => Ok(DriverChoice::Epoll),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("no driver is named {name}"),
        )),
    }
}

/// Says where the server listens, in the words of `flatpath serve`.
pub(super) fn announce(name: &str, address: SocketAddr) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "listening {name} {address}\nready")?;
    output.flush()
}
