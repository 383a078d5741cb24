//! How complete files get their names, also where the kernel knows less.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsRawFd;

use http::HeaderMap;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use crate::conditional::EntityTags;
use crate::publish::{Publication, Published};
use crate::responses::Result;
use crate::writing::Durability;

/// System calls that a filter refuses, if an argument (by position) is not zero.
struct Refused {
    call: i64,
    argument: Option<u8>,
    errno: Errno,
}

#[cfg(target_arch = "x86_64")]
mod call {
    pub(super) const FSYNC: i64 = 74;
    pub(super) const LINKAT: i64 = 265;
    pub(super) const RENAMEAT2: i64 = 316;
}
#[cfg(target_arch = "aarch64")]
mod call {
    pub(super) const FSYNC: i64 = 82;
    pub(super) const LINKAT: i64 = 37;
    pub(super) const RENAMEAT2: i64 = 276;
}

/// As FUSE through libfuse 2 and the NFS client do.
const NO_FLAGS: Refused = Refused {
    call: call::RENAMEAT2,
    argument: Some(4),
    errno: Errno::INVAL,
};

const NO_LINKS: Refused = Refused {
    call: call::LINKAT,
    argument: None,
    errno: Errno::PERM,
};

/// Refuses these calls to the thread that asks for it, and to no other.
fn refuse(calls: &[Refused]) {
    for refused in calls {
        let rules = match refused.argument {
            None => Vec::new(),
            Some(position) => {
                let length = SeccompCmpArgLen::Qword;
                let condition = SeccompCondition::new(position, length, SeccompCmpOp::Ne, 0);
                vec![SeccompRule::new(vec![condition.expect("valid")]).expect("valid")]
            }
        };
        let rules: BTreeMap<_, _> = [(refused.call, rules)].into_iter().collect();
        let code = u32::try_from(refused.errno.raw_os_error()).expect("an errno");
        let here = std::env::consts::ARCH.try_into().expect("known");
        let action = SeccompAction::Errno(code);
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, action, here);
        let program = BpfProgram::try_from(filter.expect("filter")).expect("program");
        seccompiler::apply_filter(&program).expect("seccomp");
    }
}

/// Publishes `content` as `name` from a file with or without a hidden name.
fn publish(
    folder: &std::path::Path,
    hidden: Option<&str>,
    durability: Durability,
) -> Result<Published> {
    let directory = File::open(folder).expect("a directory");
    let mode = Mode::from_raw_mode(0o600);
    let file: File = match hidden {
        Some(hidden) => File::create(folder.join(hidden)).expect("made"),
        None => rustix::fs::openat(&directory, ".", OFlags::WRONLY | OFlags::TMPFILE, mode)
            .expect("a file without a name")
            .into(),
    };
    fs::write(format!("/proc/self/fd/{}", file.as_raw_fd()), "content").expect("written");
    Publication {
        directory: &directory,
        name: b"name",
        conditions: &HeaderMap::new(),
        tags: EntityTags::Exact,
        file: &file,
        hidden: hidden.map(str::as_bytes),
        durability,
    }
    .publish()
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("readable");
    let mut names: Vec<_> = entries
        .map(|entry| {
            entry
                .expect("an entry")
                .file_name()
                .into_string()
                .expect("ASCII")
        })
        .collect();
    names.sort();
    names
}

#[test]
fn a_file_gets_its_name_where_the_kernel_knows_no_flags_and_no_links() {
    for calls in [&[][..], &[NO_FLAGS], &[NO_FLAGS, NO_LINKS]] {
        for existing in [false, true] {
            let folder = tempfile::tempdir().expect("tempdir");
            let path = folder.path().to_path_buf();
            if existing {
                fs::write(path.join("name"), "old").expect("written");
            }
            std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    refuse(calls);
                    publish(&path, Some(".flatpath-put-1"), Durability::Kernel)
                        .map_err(|refusal| refusal.0.status())
                });
                let expected = match existing {
                    true => Published::Replaced,
                    false => Published::Created,
                };
                assert_eq!(thread.join().expect("thread"), Ok(expected));
            });
            assert_eq!(fs::read(path.join("name")).expect("named"), b"content");
            assert_eq!(names(&path), ["name"]);
        }
    }
}

#[test]
fn what_is_not_synced_is_not_confirmed() {
    const NO_SYNC: Refused = Refused {
        call: call::FSYNC,
        argument: None,
        errno: Errno::IO,
    };
    for (durability, expected) in [
        (Durability::Kernel, Ok(Published::Created)),
        (Durability::Disk, Err(500)),
    ] {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path().to_path_buf();
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                refuse(&[NO_SYNC]);
                publish(&path, None, durability).map_err(|refusal| refusal.0.status().as_u16())
            });
            assert_eq!(thread.join().expect("thread"), expected);
        });
        let is_named = path.join("name").exists();
        assert_eq!(is_named, durability == Durability::Kernel);
    }
    let folder = tempfile::tempdir().expect("tempdir");
    let published = publish(folder.path(), None, Durability::Disk);
    assert_eq!(published.ok(), Some(Published::Created));
}
