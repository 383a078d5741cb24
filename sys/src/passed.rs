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
/// The variables prove nothing: they may be left from elsewhere, and the numbers belong
/// to files that this process has opened since. So each passed descriptor is duplicated, and the
/// duplicate is what the caller owns; closing that closes nothing of another owner. The number
/// itself stays open until the process ends. And a descriptor that is closed on exec was not
/// passed, as the exec that began this process would have closed it.
///
/// # Errors
/// The variables cannot be understood, or a descriptor is not open, or was not passed.
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
    let mut sockets = Vec::new();
    for descriptor in FIRST..FIRST + count {
        sockets.push(duplicate(descriptor).map_err(|cause| {
            let cause = format!("LISTEN_FDS={count}, but descriptor {descriptor}: {cause}");
            io::Error::new(io::ErrorKind::InvalidInput, cause)
        })?);
    }
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

/// The process that sockets were passed to (`LISTEN_PID`), if it is another one: then [`take`]
/// finds none.
pub fn foreign() -> Option<String> {
    let variable = |name| std::env::var(name).unwrap_or_default();
    let (process, count) = (variable("LISTEN_PID"), variable("LISTEN_FDS"));
    foreign_of(process, &count, std::process::id())
}

fn foreign_of(process: String, count: &str, own: u32) -> Option<String> {
    let is_foreign = !process.is_empty() && !count.is_empty() && process.parse() != Ok(own);
    is_foreign.then_some(process)
}

/// A duplicate of a descriptor that was open when this process began, which is closed on exec from
/// now on.
fn duplicate(descriptor: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: fcntl with a number only; one that is not open is refused.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 {
        return Err(io::Error::other(
            "this process has opened it, it was not passed",
        ));
    }
    // SAFETY: as above. The number is no owner's to close on exec, or its owner does not mind.
    if unsafe { libc::fcntl(descriptor, libc::F_SETFD, libc::FD_CLOEXEC) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as above.
    let own = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if own < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made it for us, so this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(own) })
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
    fn a_file_that_this_process_has_opened_is_not_taken_from_its_owner() {
        use std::io::Read;
        use std::os::fd::AsRawFd;
        let mut file = std::fs::File::open("/proc/self/stat").expect("opened");
        let refused = duplicate(file.as_raw_fd()).expect_err("it is closed on exec");
        assert!(refused.to_string().contains("it was not passed"));
        // As after an exec, or opened without the flag.
        // SAFETY: fcntl with a number only.
        let cleared = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFD, 0) };
        assert_eq!(cleared, 0);
        drop(duplicate(file.as_raw_fd()).expect("a duplicate"));
        let mut text = String::new();
        file.read_to_string(&mut text)
            .expect("its owner has it still");
        assert!(duplicate(1_000_000).is_err(), "not open");
    }

    #[test]
    fn only_what_is_passed_to_this_process_is_taken() {
        assert_eq!(plan("", "", 7).ok(), Some(0));
        assert_eq!(plan("8", "2", 7).ok(), Some(0));
        assert_eq!(plan("7", "2", 7).ok(), Some(2));
        assert_eq!(foreign_of("8".into(), "2", 7), Some("8".into()));
        assert_eq!(foreign_of("7".into(), "2", 7), None);
        assert_eq!(foreign_of(String::new(), "2", 7), None);
        for wrong in ["-1", "two", "100000000"] {
            assert!(plan("7", wrong, 7).is_err(), "{wrong}");
        }
    }
}
