//! The NFS listener of `flatpath serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::thread::{self, JoinHandle};

use flatpath_nfs::{Access, Nfs, Options, Registration, Squash};

use crate::failure::Failure;
use crate::settings::{Settings, is_on};

/// Where root keeps what outlives a server.
const ROOT_STATE: &str = "/var/lib/flatpath";

/// The service with these settings.
pub(crate) fn open(settings: &Settings) -> Result<Nfs, Failure> {
    let dir = settings.dir.as_deref().unwrap_or(Path::new("."));
    let state = settings.nfs_state.clone().or_else(default_state);
    if state.is_none() {
        log::warn!("no --nfs-state and no home: file handles end with this server");
    }
    let options = Options {
        directory: dir.to_owned(),
        state: state.clone(),
        access: match is_on(settings.read_only) {
            true => Access::ReadOnly,
            false => Access::ReadWrite,
        },
        squash: match is_on(settings.no_root_squash) {
            true => Squash::Anonymous,
            false => Squash::Root,
        },
        allowed: settings.nfs_allow.clone(),
        secure_ports: is_on(settings.nfs_secure_ports),
    };
    Nfs::open(options).map_err(|cause| {
        let dir = dir.display();
        let state = state.unwrap_or_default();
        let state = state.display();
        Failure::WrongUse(format!(
            "DIR {dir} cannot be exported: {cause}; name a readable directory, and with \
             --nfs-state one for the key that can be written and is not below DIR (now {state})"
        ))
    })
}

/// What ends a registration when it is dropped, and the thread that withdraws it.
pub(crate) type Registered = (Sender<()>, JoinHandle<()>);

/// Tells rpcbind where NFS and MOUNT are, until what is returned first is dropped; the thread then
/// takes it back.
pub(crate) fn register(bound: SocketAddr) -> Result<Registered, Failure> {
    let registration = Registration::begin(bound.port()).map_err(|cause| {
        Failure::Failed(format!(
            "--nfs-register: {cause}; see to that (is rpcbind running?), or leave --nfs-register \
             out and name the port when mounting"
        ))
    })?;
    log::info!("registered with rpcbind at port {}", bound.port());
    let (draining, end) = channel();
    let withdraw = move || {
        // Nothing is ever sent: this returns when the other end is dropped.
        let _ = end.recv();
        match registration.end() {
            Ok(()) => log::info!("no longer registered with rpcbind"),
            Err(cause) => log::warn!("rpcbind still names this server: {cause}"),
        }
    };
    let thread = thread::Builder::new()
        .name("flatpath-rpcbind".into())
        .spawn(withdraw)
        .map_err(|cause| Failure::Failed(format!("cannot start a thread: {cause}")))?;
    Ok((draining, thread))
}

/// Waits for the end of the withdrawal, which takes seconds at most.
pub(crate) fn await_withdrawal(thread: JoinHandle<()>) {
    if thread.join().is_err() {
        log::error!("the thread that talks to rpcbind panicked; this is a bug");
    }
}

/// As the base directory specification has it, without its rarer cases.
fn default_state() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some(ROOT_STATE.into());
    }
    let own = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let base = own("XDG_STATE_HOME").map(PathBuf::from);
    let home = || own("HOME").map(|home| Path::new(&home).join(".local/state"));
    base.or_else(home).map(|base| base.join("flatpath"))
}
