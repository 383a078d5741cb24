//! A command that is run to its end, whatever this process is told meanwhile: what it has changed
//! of the machine can then be put back.
//!
//! SIGINT, SIGTERM and SIGHUP are passed on to the command, which ends as it sees fit.

use std::io;
use std::process::{Command, ExitStatus};
use std::thread;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

/// Runs a command, and waits until it has ended. From then on the signals have no effect on this
/// process, so it ends soon after by itself.
///
/// # Errors
/// The handlers cannot be installed, or what spawning reports.
pub fn run(command: &mut Command) -> io::Result<ExitStatus> {
    // Before it starts: no signal may end this process once there is something to put back.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    let mut child = command.spawn().map_err(|cause| {
        let program = command.get_program().display();
        io::Error::new(cause.kind(), format!("{program}: {cause}"))
    })?;
    // A descriptor, as the number may be another's by the time a signal comes.
    let process = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            for signal in signals.forever().filter_map(Signal::from_named_raw) {
                // It may have ended by itself.
                let _ = pidfd_send_signal(&process, signal);
            }
        })?;
    child.wait()
}
