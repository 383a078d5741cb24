//! Descriptors that a service manager has passed to this process (sd_listen_fds(3)).

use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// Takes the passed descriptors with their names, close-on-exec from now on. None where none were
/// passed to this process (`LISTEN_PID`), and from the second call on. One without a name is called
/// `unknown`, as the service manager calls it.
///
/// # Errors
/// The variables cannot be understood, or a descriptor is not open.
pub fn take() -> io::Result<Vec<(String, OwnedFd)>> {
    static IS_TAKEN: AtomicBool = AtomicBool::new(false);
    let variable = |name| std::env::var(name).unwrap_or_default();
    let names = variable("LISTEN_FDNAMES");
    let count = plan(
        &variable("LISTEN_PID"),
        &variable("LISTEN_FDS"),
        std::process::id(),
    )?;
    // ORDER: Relaxed: it decides who takes them, and publishes nothing.
    if count == 0 || IS_TAKEN.swap(true, Ordering::Relaxed) {
        return Ok(Vec::new());
    }
    let descriptors = FIRST..FIRST + count;
    for descriptor in descriptors.clone() {
        // SAFETY: fcntl with a number only; one that is not open is refused.
        if unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
            let cause = io::Error::last_os_error();
            let cause = format!("LISTEN_FDS={count}, but descriptor {descriptor}: {cause}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, cause));
        }
    }
    // SAFETY: they are open, and were passed to this process for whoever takes them: that is once,
    // here.
    let sockets = descriptors.map(|descriptor| unsafe { OwnedFd::from_raw_fd(descriptor) });
    let names = names
        .split(':')
        .map(String::from)
        .chain(std::iter::repeat(String::new()));
    let named = names
        .zip(sockets)
        .map(|(name, socket)| match name.is_empty() {
            true => ("unknown".into(), socket),
            false => (name, socket),
        });
    Ok(named.collect())
}

/// How many descriptors were passed to the process `own`.
fn plan(process: &str, count: &str, own: u32) -> io::Result<RawFd> {
    if process.is_empty() || count.is_empty() || process.parse() != Ok(own) {
        return Ok(0);
    }
    let most = 1_000;
    match count.parse() {
        Ok(count) if (0..=most).contains(&count) => Ok(count),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("LISTEN_FDS={count} is no number of descriptors, or above {most}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_passed_to_this_process_is_taken() {
        assert_eq!(plan("", "", 7).ok(), Some(0));
        assert_eq!(plan("8", "2", 7).ok(), Some(0));
        assert_eq!(plan("7", "2", 7).ok(), Some(2));
        for wrong in ["-1", "two", "100000000"] {
            assert!(plan("7", wrong, 7).is_err(), "{wrong}");
        }
    }
}
