//! SETATTR, CREATE, MKDIR, SYMLINK and MKNOD are done whole or not at all.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use flatpath_testkit::lossy::{Cache, Lossy, Operation};
use rustix::io::Errno;

use crate::attributes::{SetAttributes, SetTime, Time};
use crate::rights::Squash;
use crate::status::Status;
use crate::testing::{Fixture, Words, is_root, system};

const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const SYMLINK: u32 = 10;
const MKNOD: u32 = 11;
const FIFO: u32 = 7;

const OWNER: u32 = 1000;
/// Of the owner and the others that may write.
const GROUP: u32 = 100;
const FOREIGN: u32 = 555;

const CHOSEN: SetTime = SetTime::To(Time {
    seconds: 5,
    nanoseconds: 5,
});

fn nothing() -> SetAttributes {
    SetAttributes::default()
}

fn sized(size: u64) -> SetAttributes {
    SetAttributes {
        size: Some(size),
        ..nothing()
    }
}

fn caller(fixture: &mut Fixture, user: u32) {
    use flatpath_rpc::{Credential, Groups};
    fixture.credential = Credential::System {
        user,
        group: user,
        groups: Groups::new([GROUP]),
    };
}

/// `file` with four bytes, of user 1000 and the group, mode 664.
fn shared(fixture: &Fixture) -> Vec<u8> {
    let path = fixture.path().join("file");
    fs::write(&path, b"data").expect("a file");
    chown(&path, Some(OWNER), Some(GROUP)).expect("root gives files away");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o664)).expect("chmod");
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_millis(1_234_567);
    let times = fs::FileTimes::new()
        .set_modified(long_ago)
        .set_accessed(long_ago);
    let opened = fs::File::options().write(true).open(&path).expect("open");
    opened.set_times(times).expect("set");
    fixture.lookup(&["file"]).expect("found")
}

/// All of a file that a change could have touched, but its time of change.
fn looks(path: &Path) -> (u64, u32, u32, u32, (i64, i64), (i64, i64)) {
    let found = fs::symlink_metadata(path).expect("there");
    let (accessed, modified) = (found.atime(), found.mtime());
    let accessed = (accessed, found.atime_nsec());
    let modified = (modified, found.mtime_nsec());
    let owner = (found.uid(), found.gid());
    (
        found.len(),
        found.mode(),
        owner.0,
        owner.1,
        accessed,
        modified,
    )
}

/// Linux' client sends the first for ftruncate and for `open(O_TRUNC)`.
#[test]
fn those_who_may_write_set_the_size_and_the_servers_time_as_they_like() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    caller(&mut fixture, OWNER + 1);
    let now = SetTime::Now;
    let keep = SetTime::Keep;
    for (size, accessed, modified) in [
        (Some(0), keep, now),
        (Some(0), keep, keep),
        (Some(0), now, keep),
        (Some(0), now, now),
        (None, keep, now),
        (None, now, keep),
        (None, now, now),
    ] {
        let handle = shared(&fixture);
        let path = fixture.path().join("file");
        let before = looks(&path);
        let wanted = SetAttributes {
            size,
            accessed,
            modified,
            ..nothing()
        };
        assert_eq!(fixture.set(&handle, &wanted), 0, "{wanted:?}");
        let after = looks(&path);
        assert_eq!(after.0, size.unwrap_or(4), "{wanted:?}");
        assert_eq!(after.4 != before.4, accessed == now, "{wanted:?}");
        let is_modified = modified == now || size.is_some();
        assert_eq!(after.5 != before.5, is_modified, "{wanted:?}");
    }
    let handle = shared(&fixture);
    caller(&mut fixture, 2000);
    fixture.credential = system(2000);
    for wanted in [
        sized(0),
        SetAttributes {
            modified: now,
            ..nothing()
        },
        SetAttributes {
            accessed: now,
            ..nothing()
        },
    ] {
        assert_eq!(
            fixture.set(&handle, &wanted),
            Status::Access as u32,
            "{wanted:?}"
        );
    }
}

#[test]
fn a_change_of_which_a_part_is_refused_leaves_the_file_as_it_was() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    let with = |size, change: fn(&mut SetAttributes)| {
        let mut wanted = nothing();
        wanted.size = size;
        change(&mut wanted);
        wanted
    };
    let member = OWNER + 1;
    let table = [
        (member, with(Some(0), |it| it.mode = Some(0o600))),
        (member, with(Some(0), |it| it.user = Some(OWNER))),
        (member, with(Some(0), |it| it.group = Some(GROUP))),
        (member, with(Some(0), |it| it.modified = CHOSEN)),
        (member, with(Some(0), |it| it.accessed = CHOSEN)),
        (OWNER, with(Some(0), |it| it.user = Some(OWNER + 1))),
        (OWNER, with(Some(0), |it| it.group = Some(FOREIGN))),
        (
            OWNER,
            with(None, |it| {
                (it.group, it.mode) = (Some(FOREIGN), Some(0o600));
            }),
        ),
        (
            OWNER,
            with(None, |it| (it.user, it.modified) = (Some(1), CHOSEN)),
        ),
    ];
    for (user, wanted) in table {
        let handle = shared(&fixture);
        caller(&mut fixture, user);
        let path = fixture.path().join("file");
        let before = looks(&path);
        let status = fixture.set(&handle, &wanted);
        assert_eq!(status, Status::NotOwner as u32, "{user}: {wanted:?}");
        assert_eq!(looks(&path), before, "{user}: {wanted:?}");
        assert_eq!(fs::read(&path).expect("there"), b"data");
    }
}

/// What the kernel takes is not known before it is asked: as long as a file can be.
#[test]
fn what_the_kernel_alone_refuses_is_undone() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    let handle = shared(&fixture);
    caller(&mut fixture, OWNER);
    let path = fixture.path().join("file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4775)).expect("chmod");
    let before = looks(&path);
    for size in [1 << 62, 1 << 63, u64::MAX] {
        for wanted in [
            sized(size),
            SetAttributes {
                mode: Some(0o600),
                ..sized(size)
            },
            SetAttributes {
                group: Some(OWNER),
                ..sized(size)
            },
            SetAttributes {
                accessed: CHOSEN,
                modified: CHOSEN,
                ..sized(size)
            },
            SetAttributes {
                mode: Some(0o2600),
                user: Some(OWNER),
                group: Some(OWNER),
                accessed: SetTime::Now,
                modified: CHOSEN,
                ..sized(size)
            },
        ] {
            let status = fixture.set(&handle, &wanted);
            assert_eq!(status, Status::FileTooBig as u32, "{wanted:?}");
            assert_eq!(looks(&path), before, "{wanted:?}");
        }
    }
    // What is taken is whole: a size takes the bits away, and they were asked for.
    let wanted = SetAttributes {
        mode: Some(0o4750),
        group: Some(OWNER),
        modified: CHOSEN,
        ..sized(2)
    };
    assert_eq!(fixture.set(&handle, &wanted), 0);
    let after = looks(&path);
    assert_eq!((after.0, after.1 & 0o7777, after.3), (2, 0o4750, OWNER));
    assert_eq!(after.5, (5, 5));
}

#[test]
fn a_size_that_is_refused_has_lost_no_data_of_others() {
    let fixture = Fixture::new();
    let handle = fixture
        .create(&fixture.root(), "file", 0o666)
        .expect("made");
    assert_eq!(fixture.write(&handle, 0, b"unstable", 0), 0);
    let verifier = || fixture.export().nodes.verifier().read();
    let before = verifier();
    let too_big = Status::FileTooBig as u32;
    for size in [1 << 62, 1 << 63] {
        assert_eq!(fixture.set(&handle, &sized(size)), too_big);
        for stable in [0, 1, 2] {
            assert_eq!(fixture.write(&handle, size, b"x", stable), too_big);
        }
        let at = Words::default().opaque(&fixture.root());
        let there = at.opaque(b"file").word(0).set(&sized(size));
        assert_eq!(fixture.made(CREATE, &there), Err(too_big));
    }
    assert_eq!(verifier(), before);
    let found = fs::read(fixture.path().join("file"));
    assert_eq!(found.expect("there"), b"unstable");
}

/// The arguments of a procedure that makes `new` with these attributes.
fn making(fixture: &Fixture, procedure: u32, wanted: &SetAttributes) -> Words {
    let at = Words::default().opaque(&fixture.root()).opaque(b"new");
    match procedure {
        CREATE => at.word(1).set(wanted),
        MKDIR => at.set(wanted),
        SYMLINK => at.set(wanted).opaque(b"target"),
        MKNOD => at.word(FIFO).set(wanted),
        _ => unreachable!("it makes nothing"),
    }
}

const MAKERS: [u32; 4] = [CREATE, MKDIR, SYMLINK, MKNOD];

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).expect("there").count() == 0
}

#[test]
fn what_cannot_be_made_as_it_is_wanted_is_not_there() {
    let mut fixture = Fixture::with(|options| options.squash = Squash::Anonymous);
    for size in [1 << 62, 1 << 63] {
        let made = fixture.made(CREATE, &making(&fixture, CREATE, &sized(size)));
        assert_eq!(made, Err(Status::FileTooBig as u32));
        assert!(is_empty(fixture.path()));
    }
    if !is_root() {
        return;
    }
    fixture.credential = system(0);
    for (kind, major, minor) in [(4, 4097, 3), (4, 1, 1 << 21), (3, 1 << 20, 0), (3, 4096, 0)] {
        let at = Words::default().opaque(&fixture.root()).opaque(b"new");
        let words = at.word(kind).unset().word(major).word(minor);
        let made = fixture.made(MKNOD, &words);
        assert_eq!(made, Err(Status::Invalid as u32), "{major}, {minor}");
        assert!(is_empty(fixture.path()));
    }
}

/// A file system that fails on request, served; root may do everything.
fn failing() -> Option<(Fixture, Lossy, tempfile::TempDir)> {
    let home = tempfile::tempdir().expect("a directory");
    let lossy = Lossy::try_mount(&home.path().join("lossy"), Cache::Through)?;
    let mut fixture = Fixture::with(|options| {
        options.directory = lossy.path().to_owned();
        options.squash = Squash::Anonymous;
    });
    fixture.credential = system(0);
    Some((fixture, lossy, home))
}

fn much() -> SetAttributes {
    SetAttributes {
        mode: Some(0o751),
        user: Some(77),
        group: Some(78),
        modified: CHOSEN,
        ..nothing()
    }
}

const ERRORS: [(Errno, Status); 3] = [
    (Errno::DQUOT, Status::Quota),
    (Errno::NOSPC, Status::NoSpace),
    (Errno::IO, Status::Io),
];

/// A quota, a full disk, a broken one: whatever the file system says after the object is there.
#[test]
fn what_the_file_system_refuses_of_a_new_object_removes_it_again() {
    let Some((fixture, lossy, home)) = failing() else {
        return;
    };
    let operations = [
        Operation::SetOwner,
        Operation::SetAttributes,
        Operation::SyncDirectory,
        // Of files alone.
        Operation::Sync,
        Operation::Resize,
    ];
    for (errno, status) in ERRORS {
        let pairs = MAKERS.into_iter().flat_map(|procedure| {
            let count = if procedure == CREATE { 5 } else { 3 };
            let operations = operations.into_iter().take(count);
            operations.map(move |operation| (procedure, operation))
        });
        for (procedure, operation) in pairs {
            let wanted = SetAttributes {
                size: Some(9),
                ..much()
            };
            lossy.fail(operation, 1, errno.raw_os_error());
            let made = fixture.made(procedure, &making(&fixture, procedure, &wanted));
            lossy.heal();
            let what = format!("{errno}, procedure {procedure}, {operation:?}");
            assert_eq!(made, Err(status as u32), "{what}");
            assert!(is_empty(lossy.path()), "{what}");
            assert!(lossy.lasting("new").is_none(), "{what}");
        }
    }
    for procedure in MAKERS {
        let made = fixture.made(procedure, &making(&fixture, procedure, &much()));
        assert!(made.is_ok(), "procedure {procedure}");
        let path = lossy.path().join("new");
        let removed = fs::remove_file(&path).or_else(|_| fs::remove_dir(&path));
        removed.expect("removed");
    }
    drop((fixture, lossy, home));
}

#[test]
fn what_came_before_the_part_that_the_file_system_refuses_is_undone() {
    let Some((fixture, lossy, home)) = failing() else {
        return;
    };
    let handle = fixture
        .create(&fixture.root(), "file", 0o664)
        .expect("made");
    let path = lossy.path().join("file");
    fs::write(&path, b"data").expect("written");
    let before = looks(&path);
    for (after, operation) in [
        (0, Operation::SetOwner),
        (0, Operation::SetAttributes),
        (1, Operation::SetAttributes),
        (0, Operation::Resize),
    ] {
        lossy.fail_after(operation, after, 1, Errno::DQUOT.raw_os_error());
        let wanted = SetAttributes {
            size: Some(1),
            ..much()
        };
        let status = fixture.set(&handle, &wanted);
        lossy.heal();
        assert_eq!(status, Status::Quota as u32, "{operation:?} after {after}");
        assert_eq!(looks(&path), before, "{operation:?} after {after}");
        assert_eq!(fs::read(&path).expect("there"), b"data");
    }
    drop((fixture, lossy, home));
}

/// As fs/nfsd/vfs.c: `nfsd_create_setattr`.
#[test]
fn a_caller_that_is_not_root_names_no_group_for_what_it_makes() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    caller(&mut fixture, OWNER);
    let remove = |path: &Path| fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    let path = fixture.path().join("new");
    for (above, expected) in [(0o777, OWNER), (0o2777, FOREIGN)] {
        let directory = fixture.path();
        chown(directory, None, Some(FOREIGN)).expect("root gives files away");
        fs::set_permissions(directory, fs::Permissions::from_mode(above)).expect("chmod");
        for procedure in MAKERS {
            for (user, group) in [(OWNER, GROUP), (OWNER + 1, FOREIGN), (0, 0)] {
                let wanted = SetAttributes {
                    mode: Some(0o750),
                    user: Some(user),
                    group: Some(group),
                    ..nothing()
                };
                let made = fixture.made(procedure, &making(&fixture, procedure, &wanted));
                assert!(made.is_ok(), "procedure {procedure}: {user}, {group}");
                let found = fs::symlink_metadata(&path).expect("there");
                let owner = (found.uid(), found.gid());
                assert_eq!(owner, (OWNER, expected), "procedure {procedure}");
                remove(&path).expect("removed");
            }
        }
    }
}

#[test]
fn a_new_directory_keeps_the_groups_bit_of_the_one_above_and_has_the_sticky_bit() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    caller(&mut fixture, OWNER);
    let path = fixture.path().join("new");
    // The group of the directory is not one of the caller's.
    for (above, mode, expected) in [
        (0o2777, 0o1777, 0o3777),
        (0o2777, 0o777, 0o2777),
        (0o2777, 0o5750, 0o7750),
        (0o777, 0o1777, 0o1777),
        (0o777, 0o2750, 0o2750),
    ] {
        chown(fixture.path(), None, Some(FOREIGN)).expect("root gives files away");
        let permissions = fs::Permissions::from_mode(above);
        fs::set_permissions(fixture.path(), permissions).expect("chmod");
        let wanted = SetAttributes {
            mode: Some(mode),
            ..nothing()
        };
        fixture
            .made(MKDIR, &making(&fixture, MKDIR, &wanted))
            .expect("made");
        let found = fs::metadata(&path).expect("there").mode() & 0o7777;
        assert_eq!(found, expected, "{mode:o} in {above:o}: {found:o}");
        fs::remove_dir(&path).expect("removed");
    }
}

#[test]
fn the_mode_of_a_link_is_left_out_of_a_change_and_the_rest_is_set() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::with(|options| options.squash = Squash::Anonymous);
    fixture.credential = system(0);
    let words = making(&fixture, SYMLINK, &nothing());
    let link = fixture.made(SYMLINK, &words).expect("made");
    let wanted = SetAttributes {
        mode: Some(0o600),
        user: Some(77),
        modified: CHOSEN,
        ..nothing()
    };
    assert_eq!(fixture.set(&link, &wanted), 0);
    let after = looks(&fixture.path().join("new"));
    assert_eq!((after.1, after.2, after.5), (0o120_777, 77, (5, 5)));
    let mode = SetAttributes {
        mode: Some(0o600),
        ..nothing()
    };
    assert_eq!(fixture.set(&link, &mode), 0);
}
