//! Programs that permit each access to files, by permission events of fanotify(7), as virus
//! scanners do: an open or a read waits until they have answered.
//!
//! `/proc/PID/fdinfo/FD` of a fanotify group has a line for each mark, with its events
//! (proc_pid_fdinfo(5)). Those of other users' processes are for root alone.
//!
//! Cost: a look at each descriptor of each process.

use std::fmt::{self, Display};
use std::fs;
use std::path::Path;

/// `FAN_OPEN_PERM`, `FAN_ACCESS_PERM`, `FAN_OPEN_EXEC_PERM`, `FAN_PRE_ACCESS`
/// (include/uapi/linux/fanotify.h).
const PERMISSION_EVENTS: u64 = 0x1_0000 | 0x2_0000 | 0x4_0000 | 0x10_0000;

/// The result of the search.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Scanners {
    /// The programs, with their process numbers.
    pub(crate) programs: Vec<String>,
    /// Processes that cannot be looked at.
    pub(crate) hidden: usize,
}

impl Scanners {
    /// Those of the processes that `/proc`, or a directory like it, shows.
    pub(crate) fn below(directory: &Path) -> Scanners {
        let mut scanners = Scanners::default();
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        for process in entries {
            let name = process.file_name();
            let Some(number) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            match permits(&process.path()) {
                Some(false) => {}
                Some(true) => {
                    let program = fs::read_to_string(process.path().join("comm"));
                    let program = program.as_deref().map_or("process", str::trim_end);
                    scanners.programs.push(format!("{program} ({number})"));
                }
                None => scanners.hidden += 1,
            }
        }
        scanners.programs.sort();
        scanners
    }
}

/// Whether a process has a mark for permission events. `None`: that cannot be seen.
fn permits(process: &Path) -> Option<bool> {
    let descriptors = fs::read_dir(process.join("fd")).ok()?;
    let is_group = |target: &Path| target.as_os_str() == "anon_inode:[fanotify]";
    let groups = descriptors
        .flatten()
        .filter(|entry| fs::read_link(entry.path()).is_ok_and(|target| is_group(&target)));
    let mut marks = groups.filter_map(|group| {
        fs::read_to_string(process.join("fdinfo").join(group.file_name())).ok()
    });
    Some(marks.any(|marks| marks.lines().any(is_permission_mark)))
}

fn is_permission_mark(line: &str) -> bool {
    let mut words = line.split_ascii_whitespace();
    let mask = |word: &str| u64::from_str_radix(word.strip_prefix("mask:")?, 16).ok();
    words.next() == Some("fanotify")
        && words
            .filter_map(mask)
            .any(|events| events & PERMISSION_EVENTS != 0)
}

impl Display for Scanners {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.programs[..] {
            [] => formatter.write_str("none seen")?,
            programs => formatter.write_str(&programs.join(", "))?,
        }
        match self.hidden {
            0 => Ok(()),
            hidden => write!(formatter, " ({hidden} processes cannot be looked at)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn marks_of_permission_events_are_told_from_others() {
        let mark = |mask: &str| format!("fanotify mnt_id:1d mflags:0 mask:{mask} ignored_mask:0 ");
        for mask in ["10000", "20000", "40000", "100000", "3003b"] {
            assert!(is_permission_mark(&mark(mask)), "{mask}");
        }
        for mask in ["3b", "8000003b", "0", "g"] {
            assert!(!is_permission_mark(&mark(mask)), "{mask}");
        }
        for line in [
            "fanotify flags:1 event-flags:8000",
            "fanotify mnt_id:1d mflags:0 mask:3b ignored_mask:10000",
            "inotify wd:1 mask:10000",
            "",
        ] {
            assert!(!is_permission_mark(line), "{line}");
        }
    }

    #[test]
    fn programs_that_permit_accesses_are_named_and_what_is_hidden_is_counted() {
        let proc = tempfile::tempdir().expect("a directory");
        let process = |number: &str, target: &str, info: &str| {
            let path = proc.path().join(number);
            fs::create_dir_all(path.join("fd")).expect("made");
            fs::create_dir_all(path.join("fdinfo")).expect("made");
            symlink(target, path.join("fd/7")).expect("made");
            fs::write(path.join("fdinfo/7"), info).expect("written");
            fs::write(path.join("comm"), "scan\n").expect("written");
        };
        let (group, marks) = (
            "anon_inode:[fanotify]",
            "flags:02\nfanotify ino:1 mask:10000 \n",
        );
        assert_eq!(Scanners::below(proc.path()).to_string(), "none seen");
        process("12", group, marks);
        process("13", group, "flags:02\nfanotify ino:1 mask:3b \n");
        process("14", "/dev/null", marks);
        process("self", group, marks);
        fs::create_dir(proc.path().join("15")).expect("without what it has open");
        let found = Scanners::below(proc.path());
        assert_eq!(
            found.to_string(),
            "scan (12) (1 processes cannot be looked at)"
        );
    }
}
