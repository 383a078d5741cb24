//! The lossy file system, looked at through the kernel.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::FileExt as _;

use rustix::io::ReadWriteFlags;

use super::*;

fn mounted(cache: Cache) -> Option<(tempfile::TempDir, Lossy)> {
    let home = tempfile::tempdir().expect("a directory");
    let lossy = Lossy::try_mount(&home.path().join("lossy"), cache)?;
    Some((home, lossy))
}

#[test]
fn what_is_synced_lasts_and_nothing_else_and_syncs_are_counted() {
    let Some((_home, lossy)) = mounted(Cache::Through) else {
        return;
    };
    let file = File::create(lossy.path().join("a")).expect("made");
    file.write_all_at(b"unsynced", 0).expect("written");
    assert_eq!(lossy.lasting("a"), None);
    File::open(lossy.path())
        .and_then(|root| root.sync_all())
        .expect("synced");
    assert_eq!(lossy.lasting("a"), Some(Vec::new()));
    assert!(lossy.is_unsynced("a"));
    file.sync_data().expect("synced");
    assert_eq!(lossy.lasting("a"), Some(b"unsynced".to_vec()));
    // Stable writes come as a write and a sync.
    for (done, flags) in [(1, ReadWriteFlags::DSYNC), (2, ReadWriteFlags::SYNC)] {
        let slices = [io::IoSlice::new(b"STABLE")];
        assert_eq!(rustix::io::pwritev2(&file, &slices, 2, flags), Ok(6));
        assert_eq!(lossy.count(Operation::Sync), 1 + done);
        assert_eq!(lossy.lasting("a"), Some(b"unSTABLE".to_vec()));
    }
    assert_eq!(lossy.count(Operation::SyncDirectory), 1);
    file.set_len(2).expect("cut");
    assert_eq!(lossy.lasting("a"), Some(b"unSTABLE".to_vec()));
    drop(file);
}

#[test]
fn each_operation_fails_as_often_as_it_is_told_to() {
    let Some((_home, lossy)) = mounted(Cache::Through) else {
        return;
    };
    let path = lossy.path().join("a");
    let mut file = File::create(&path).expect("made");
    for operation in [Operation::Write, Operation::Sync, Operation::Resize] {
        lossy.fail(operation, 1, 28);
        let mut act = || match operation {
            Operation::Write => file.write_all(b"x"),
            Operation::Sync => file.sync_all(),
            _ => file.set_len(0),
        };
        assert_eq!(act().err().and_then(|error| error.raw_os_error()), Some(28));
        act().expect("once");
    }
    lossy.fail(Operation::Write, u64::MAX, 5);
    assert!(file.write_all(b"x").is_err() && file.write_all(b"x").is_err());
    lossy.heal();
    file.write_all(b"x").expect("healed");
    lossy.lose("a");
    assert!(file.sync_all().is_err() && file.sync_all().is_ok());
    let mut text = String::new();
    let mut reader = File::open(&path).expect("there");
    reader.read_to_string(&mut text).expect("read");
    assert_eq!(text.len(), 2, "what was lost can be read until the crash");
    drop((reader, file));
    // What another test starts meanwhile closes its copies of the descriptors too.
    assert!(lossy.count(Operation::Flush) >= 2);
}

#[test]
fn with_a_cache_for_writing_the_kernel_reports_what_it_could_not_write_back() {
    let Some((_home, lossy)) = mounted(Cache::Back) else {
        return;
    };
    let file = File::create(lossy.path().join("a")).expect("made");
    file.write_all_at(b"cached", 0).expect("the kernel has it");
    lossy.fail(Operation::Write, u64::MAX, 5);
    assert!(file.sync_all().is_err());
    lossy.heal();
    file.sync_all()
        .expect("it was told once, and does not try again");
    drop(file);
}

#[test]
fn a_crash_leaves_what_was_synced_of_names_attributes_links_and_special_files() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    let Some((_home, lossy)) = mounted(Cache::Through) else {
        return;
    };
    let at = |name: &str| lossy.path().join(name);
    symlink("somewhere", at("link")).expect("made");
    let root = File::open(lossy.path()).expect("open");
    let (kind, mode) = (
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o640),
    );
    rustix::fs::mknodat(&root, "pipe", kind, mode, 0).expect("made");
    let file = File::create(at("file")).expect("made");
    root.sync_all().expect("synced");
    let closed = std::fs::Permissions::from_mode(0o400);
    file.set_permissions(closed).expect("set");
    std::os::unix::fs::lchown(at("link"), Some(77), None).expect("set");
    assert_eq!(
        std::fs::symlink_metadata(at("link")).expect("there").uid(),
        77
    );
    std::fs::rename(at("pipe"), at("moved")).expect("moved");
    lossy.crash();
    assert!(File::open(at("file")).is_err() && file.sync_all().is_err());
    lossy.restart();
    let mode = std::fs::metadata(at("file")).expect("there").mode();
    assert_eq!(mode & 0o777, 0o644);
    assert_eq!(
        std::fs::symlink_metadata(at("link")).expect("there").uid(),
        0
    );
    assert_eq!(
        std::fs::read_link(at("link")).expect("there").as_os_str(),
        "somewhere"
    );
    let pipe = std::fs::symlink_metadata(at("pipe")).expect("there");
    assert_eq!(pipe.mode(), 0o010_640);
    drop((root, file));
}
