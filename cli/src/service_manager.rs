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

use std::time::Duration;

use flatpath::housekeeper::{Next, Task};
use flatpath::{Handle, ServerState};
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

    /// The server is alive.
    fn alive(&self) {
        self.tell("WATCHDOG=1\n");
    }

    fn tell(&self, lines: &str) {
        let Some(name) = &self.0 else { return };
        if let Err(cause) = send(name.as_bytes(), lines) {
            let name = name.display();
            log::warn!("the service manager at {name} was not told {lines:?}: {cause}");
        }
    }
}

/// Tells the manager that every network thread takes turns (`WatchdogSec=` of systemd), until it is
/// dropped.
///
/// Each is asked for a turn, also one that has nothing to do, and a third of the manager's time
/// later is looked at. Where one of them has not taken it, the manager is told nothing, and ends
/// the process when its time is over. A drain has a watchdog of its own, so it is not asked.
pub(crate) struct Pulse {
    /// Of the housekeeper.
    _task: Option<Task>,
}

impl Pulse {
    /// Begins, if the manager asks for it.
    ///
    /// # Errors
    /// The housekeeper cannot be started.
    pub(crate) fn begin(manager: &ServiceManager, server: Handle) -> io::Result<Pulse> {
        let Some(period) = asked_period(|name| env::var(name).ok(), std::process::id()) else {
            return Ok(Pulse { _task: None });
        };
        let manager = manager.clone();
        let mut taken = turns(&server);
        server.ask_for_turns();
        let mut is_first = true;
        let task = Task::begin("pulse", move |_| {
            if std::mem::take(&mut is_first) {
                return Next::After(period);
            }
            let now = turns(&server);
            let is_running = server.state() == ServerState::Running;
            if !is_running || have_turned(&taken, &now) {
                manager.alive();
                taken = now;
                server.ask_for_turns();
            }
            Next::After(period)
        });
        task.map(|task| Pulse { _task: Some(task) })
    }
}

/// A third of the time in which the manager wants to be told (sd_watchdog_enabled(3)).
fn asked_period(variable: impl Fn(&str) -> Option<String>, own: u32) -> Option<Duration> {
    let microseconds: u64 = variable("WATCHDOG_USEC")?.parse().ok()?;
    let is_for_own = match variable("WATCHDOG_PID") {
        Some(process) => process.parse() == Ok(own),
        None => true,
    };
    let period = Duration::from_micros(microseconds / 3);
    (is_for_own && !period.is_zero()).then_some(period)
}

/// How many turns each network thread has taken, by its number.
fn turns(server: &Handle) -> Vec<(usize, u64)> {
    let threads = server.figures().threads;
    threads
        .iter()
        .map(|it| (it.number, it.turns.count()))
        .collect()
}

/// Whether each thread of before has taken a turn since.
fn have_turned(before: &[(usize, u64)], now: &[(usize, u64)]) -> bool {
    before.iter().all(|(number, turns)| {
        let same = now.iter().find(|(same, _)| same == number);
        same.is_some_and(|(_, now)| now > turns)
    })
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

    fn heard(socket: &UnixDatagram) -> String {
        let patience = Some(Duration::from_secs(60));
        socket.set_read_timeout(patience).expect("a deadline");
        let mut bytes = [0; 1_000];
        let count = socket.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    }

    #[test]
    fn a_third_of_the_managers_time_is_taken_if_it_is_for_this_process() {
        let asked = |usec: Option<&str>, pid: Option<&str>| {
            let variable = |name: &str| match name {
                "WATCHDOG_USEC" => usec.map(str::to_owned),
                _ => pid.map(str::to_owned),
            };
            asked_period(variable, 7)
        };
        let second = Some(Duration::from_secs(1));
        assert_eq!(asked(Some("3000000"), None), second);
        assert_eq!(asked(Some("3000000"), Some("7")), second);
        for (usec, pid) in [
            (None, Some("7")),
            (Some("3000000"), Some("8")),
            (Some("0"), None),
            (Some("soon"), None),
        ] {
            assert_eq!(asked(usec, pid), None, "{usec:?} {pid:?}");
        }
    }

    #[test]
    fn each_thread_of_before_has_to_turn() {
        let before = [(0, 5), (1, 7)];
        assert!(have_turned(&before, &[(0, 6), (1, 8), (2, 0)]));
        assert!(!have_turned(&before, &[(0, 6), (1, 7)]));
        assert!(!have_turned(&before, &[(0, 6)]));
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
