//! Tells a service manager how far the server is (sd_notify(3)).
//!
//! The protocol is a datagram of `NAME=VALUE` lines to the socket that `NOTIFY_SOCKET` names: a
//! path, or with `@` an abstract name. Where the variable is missing nothing is sent; where sending
//! fails the log says so once, and the server serves.

use std::env;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::time::{ClockId, clock_gettime};

/// The socket of the service manager, if there is one.
#[derive(Clone, Debug)]
pub(crate) struct ServiceManager(Option<OsString>);

impl ServiceManager {
    pub(crate) fn from_environment() -> ServiceManager {
        let named = env::var_os("NOTIFY_SOCKET");
        ServiceManager(named.filter(|name| !name.is_empty()))
    }

    /// The server serves. The main process is named, because after a handover it is another one.
    pub(crate) fn ready(&self, status: &str) {
        let process = std::process::id();
        self.tell(&format!("READY=1\nMAINPID={process}\nSTATUS={status}\n"));
    }

    /// The server drains.
    pub(crate) fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=Draining\n");
    }

    /// The server reads its settings again; [`ServiceManager::ready`] follows.
    pub(crate) fn reloading(&self) {
        let mut lines = String::from("RELOADING=1\n");
        let now = clock_gettime(ClockId::Monotonic);
        let microseconds = now.tv_sec * 1_000_000 + now.tv_nsec / 1_000;
        // It does not fail: a string grows.
        let _ = writeln!(lines, "MONOTONIC_USEC={microseconds}");
        self.tell(&lines);
    }

    fn tell(&self, lines: &str) {
        let Some(name) = &self.0 else { return };
        if let Err(cause) = send(name.as_bytes(), lines) {
            let name = name.display();
            log::warn!("the service manager at {name} was not told {lines:?}: {cause}");
        }
    }
}

fn send(name: &[u8], lines: &str) -> io::Result<()> {
    let address = match name.split_first() {
        Some((b'@', name)) => SocketAddr::from_abstract_name(name)?,
        _ => SocketAddr::from_pathname(std::ffi::OsStr::from_bytes(name))?,
    };
    let socket = UnixDatagram::unbound()?;
    // A manager that does not read is not waited for.
    socket.set_nonblocking(true)?;
    socket.send_to_addr(lines.as_bytes(), &address).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn heard(socket: &UnixDatagram) -> String {
        let patience = Some(Duration::from_secs(60));
        socket.set_read_timeout(patience).expect("a deadline");
        let mut bytes = [0; 1_000];
        let count = socket.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn the_manager_is_told_at_a_path_and_at_an_abstract_name() {
        let path = env::temp_dir().join(format!("flatpath-notify-{}", std::process::id()));
        let at_path = UnixDatagram::bind(&path).expect("a free path");
        let name = format!("flatpath-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let at_name = UnixDatagram::bind_addr(&address).expect("a free name");
        for (socket, name) in [
            (at_path, path.clone().into_os_string()),
            (at_name, format!("@{name}").into()),
        ] {
            let manager = ServiceManager(Some(name));
            manager.ready("fine");
            let process = std::process::id();
            let expected = format!("READY=1\nMAINPID={process}\nSTATUS=fine\n");
            assert_eq!(heard(&socket), expected);
            manager.reloading();
            let told = heard(&socket);
            let microseconds = told.strip_prefix("RELOADING=1\nMONOTONIC_USEC=");
            let microseconds = microseconds.expect("systemd wants both in one datagram");
            assert!(microseconds.trim_end().parse::<u64>().is_ok(), "{told:?}");
            manager.stopping();
            assert!(heard(&socket).starts_with("STOPPING=1\n"));
        }
        std::fs::remove_file(path).expect("removed");
        ServiceManager(None).stopping();
        ServiceManager(Some("/no/such/socket".into())).stopping();
    }
}
