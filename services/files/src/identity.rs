//! Which file it is, and in which state: what must be equal for its bytes to be the same.
//!
//! Device and inode say which file; size, modification and change time say in which state. Two
//! things escape them inevitably: a write through a shared mapping gets its time when
//! the page is first touched after a write-back, and a network file system returns what it has
//! cached. A third is dealt with here: file times advance with the clock tick, so a file written
//! twice within one tick looks unchanged. [`Identity::last_change`] says when that is ruled out, by
//! the [clock](clock_of_files) that gives files their times.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime};

use rustix::fs::{Stat, Statx, StatxFlags};

use crate::limits::{CLOCKS_DIFFER_MAX, RACY_COARSE_NS, RACY_NS};

/// A file in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    pub(crate) size: u64,
    pub(crate) modified: Stamp,
    /// When its content or its attributes last changed. No process can set it.
    pub(crate) changed: Stamp,
}

/// When a file was last changed, and whether the next change is certain to give it another time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastChange {
    /// Every write from now on gives it another time.
    Past,
    /// So little ago that a file system which rounds times may have it for the present (two
    /// seconds, where it keeps whole ones); or so little ahead that the clock of a file server may
    /// be. Another write may leave its time as it is.
    Recent,
    /// Far ahead: the clock was set back since. A write gives it the present time, which is
    /// another.
    Future,
}

impl LastChange {
    /// Whether a state that looks the same is the same.
    pub(crate) fn is_certain(self) -> bool {
        match self {
            Self::Past | Self::Future => true,
            Self::Recent => false,
        }
    }
}

/// The clock that files have their times from: it stands still between the kernel's ticks. What is
/// written from now on gets this time or a later one. The exact clock is ahead of it by a tick, and
/// by as much as a tick is late: without a bound where a virtual machine does not run.
pub(crate) fn clock_of_files() -> SystemTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    let nanoseconds = u64::try_from(now.tv_nsec).unwrap_or_default();
    let now = Stamp::new(now.tv_sec, nanoseconds).to_system_time();
    now.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// A time as file systems keep it, since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Stamp {
    /// Whole seconds, negative before 1970.
    pub(crate) seconds: i64,
    /// Nanoseconds on top, below 10⁹.
    pub(crate) nanoseconds: u32,
}

impl Identity {
    /// The fields of `statx` that [`Identity::from_statx`] needs.
    pub(crate) const MASK: StatxFlags = StatxFlags::TYPE
        .union(StatxFlags::INO)
        .union(StatxFlags::SIZE)
        .union(StatxFlags::MTIME)
        .union(StatxFlags::CTIME);

    pub(crate) fn from_stat(stat: &Stat) -> Self {
        Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            modified: Stamp::new(stat.st_mtime, stat.st_mtime_nsec),
            changed: Stamp::new(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    pub(crate) fn from_statx(statx: &Statx) -> Self {
        Self {
            device: rustix::fs::makedev(statx.stx_dev_major, statx.stx_dev_minor),
            inode: statx.stx_ino,
            size: statx.stx_size,
            modified: Stamp::new(statx.stx_mtime.tv_sec, u64::from(statx.stx_mtime.tv_nsec)),
            changed: Stamp::new(statx.stx_ctime.tv_sec, u64::from(statx.stx_ctime.tv_nsec)),
        }
    }

    /// When the file was last changed, by its change time alone: every write and every other
    /// modification time sets that, and no process can choose it. `now` is of the
    /// [clock of files](clock_of_files), and must have been read before this identity.
    pub(crate) fn last_change(&self, now: SystemTime) -> LastChange {
        let racy_ns = match self.changed.nanoseconds {
            0 => RACY_COARSE_NS,
            _ => RACY_NS,
        };
        let Some(changed) = self.changed.to_system_time() else {
            return match self.changed.seconds < 0 {
                true => LastChange::Past,
                false => LastChange::Future,
            };
        };
        match now.duration_since(changed) {
            Ok(age) if age >= Duration::from_nanos(racy_ns) => LastChange::Past,
            Ok(_) => LastChange::Recent,
            Err(ahead) if ahead.duration() <= CLOCKS_DIFFER_MAX => LastChange::Recent,
            Err(_) => LastChange::Future,
        }
    }
}

impl Stamp {
    fn new(seconds: i64, nanoseconds: u64) -> Self {
        Self {
            seconds,
            nanoseconds: u32::try_from(nanoseconds).unwrap_or_default(),
        }
    }

    /// `2026-11-21T04:05:06Z`; `None` before 1970 and for years that have not four digits.
    pub(crate) fn to_rfc3339(self) -> Option<String> {
        let since_epoch = Duration::from_secs(u64::try_from(self.seconds).ok()?);
        let time = SystemTime::UNIX_EPOCH.checked_add(since_epoch)?;
        let mut text = String::new();
        write!(text, "{}", humantime::format_rfc3339_seconds(time)).ok()?;
        Some(text)
    }

    /// As the standard library's time; `None` where that cannot hold it.
    pub(crate) fn to_system_time(self) -> Option<SystemTime> {
        let whole = Duration::from_secs(self.seconds.unsigned_abs());
        let start = if self.seconds < 0 {
            SystemTime::UNIX_EPOCH.checked_sub(whole)
        } else {
            SystemTime::UNIX_EPOCH.checked_add(whole)
        };
        start?.checked_add(Duration::from_nanos(u64::from(self.nanoseconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, fstat, statx};
    use std::fs::File;
    use std::io::Write;

    fn identity_of(file: &File) -> Identity {
        Identity::from_stat(&fstat(file).expect("fstat"))
    }

    fn at(seconds: i64, nanoseconds: u32) -> Identity {
        let stamp = Stamp {
            seconds,
            nanoseconds,
        };
        Identity {
            device: 1,
            inode: 2,
            size: 3,
            modified: stamp,
            changed: stamp,
        }
    }

    fn after_epoch(ns: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(ns)
    }

    #[test]
    fn times_are_told_from_1970_to_9999() {
        for (seconds, text) in [
            (0, Some("1970-01-01T00:00:00Z")),
            (951_782_400, Some("2000-02-29T00:00:00Z")),
            (784_111_777, Some("1994-11-06T08:49:37Z")),
            (4_107_542_399, Some("2100-02-28T23:59:59Z")),
            (-1, None),
            (253_402_300_799, Some("9999-12-31T23:59:59Z")),
            (253_402_300_800, None),
            (i64::MAX, None),
            (i64::MIN, None),
        ] {
            let stamp = Stamp {
                seconds,
                nanoseconds: 0,
            };
            assert_eq!(stamp.to_rfc3339().as_deref(), text, "{seconds}");
        }
    }

    #[test]
    fn both_system_calls_tell_the_same_identity() {
        let folder = tempfile::tempdir().expect("tempdir");
        let mut file = File::create(folder.path().join("a")).expect("create");
        file.write_all(b"bytes").expect("write");
        let all = StatxFlags::BASIC_STATS;
        for mask in [Identity::MASK, all] {
            let by_path = statx(&file, "", AtFlags::EMPTY_PATH, mask).expect("statx");
            assert_eq!(Identity::from_statx(&by_path), identity_of(&file));
        }
    }

    #[test]
    fn a_changed_file_has_another_identity() {
        let mut file = tempfile::tempfile().expect("tempfile");
        let before = identity_of(&file);
        file.write_all(b"x").expect("write");
        assert_ne!(identity_of(&file), before);
    }

    #[test]
    fn what_is_written_from_now_on_is_not_older_than_the_clock_of_files() {
        for _ in 0..100 {
            // A new one: from Linux 6.13 on a time that was asked for is followed by an exact one.
            let mut file = tempfile::tempfile().expect("tempfile");
            let now = clock_of_files();
            file.write_all(b"x").expect("write");
            let changed = identity_of(&file).changed.to_system_time();
            assert!(changed.expect("a time") >= now);
        }
    }

    #[test]
    fn a_change_is_past_after_what_a_file_system_may_round() {
        let changed = at(1_000, 5);
        let changed_ns = 1_000_000_000_005;
        let seen = |ns| changed.last_change(after_epoch(ns));
        assert_eq!(seen(changed_ns), LastChange::Recent);
        assert_eq!(seen(changed_ns + RACY_NS - 1), LastChange::Recent);
        assert_eq!(seen(changed_ns + RACY_NS), LastChange::Past);
    }

    #[test]
    fn a_modification_time_decides_nothing() {
        for seconds in [10, 5_000_000_000, i64::MAX] {
            let mut changed = at(1_000, 5);
            changed.modified.seconds = seconds;
            let seen = |ns| changed.last_change(after_epoch(ns));
            assert_eq!(seen(1_000_000_000_006), LastChange::Recent, "{seconds}");
            assert_eq!(seen(1_001_000_000_000), LastChange::Past, "{seconds}");
        }
    }

    #[test]
    fn whole_second_times_take_two_seconds() {
        let seen = |ns| at(1_000, 0).last_change(after_epoch(ns));
        assert_eq!(seen(1_001_999_999_999), LastChange::Recent);
        assert_eq!(seen(1_002_000_000_000), LastChange::Past);
    }

    #[test]
    fn the_future_is_no_moment_ago_unless_two_clocks_may_differ_by_it() {
        let seen = |seconds, now: u64| at(seconds, 5).last_change(after_epoch(now * 1_000_000_000));
        let differ = CLOCKS_DIFFER_MAX.as_secs();
        let ahead = i64::try_from(1_000 + differ).expect("it fits");
        assert_eq!(seen(ahead - 1, 1_000), LastChange::Recent);
        assert_eq!(seen(ahead, 1_000), LastChange::Future);
        assert_eq!(seen(i64::MAX, 1_000), LastChange::Future);
        assert_eq!(seen(-5, 1_000), LastChange::Past);
        assert_eq!(seen(i64::MIN, 1_000), LastChange::Past);
    }
}
