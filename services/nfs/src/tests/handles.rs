//! Handles: what they survive, when they are stale, and that they lead nowhere else.

use std::fs;
use std::os::unix::fs::MetadataExt;

use crate::status::Status;
use crate::testing::{Fixture, Words};

const STALE: Result<u64, u32> = Err(Status::Stale as u32);

fn inode(fixture: &Fixture, handle: &[u8]) -> Result<u64, u32> {
    fixture.attributes(handle).map(|found| found.inode)
}

/// Every test of a file's fate runs with the kernel's handles and without.
fn both(test: impl Fn(Fixture)) {
    test(Fixture::new());
    test(Fixture::new().without_handles());
}

#[test]
fn every_flipped_bit_of_a_handle_makes_it_stale_or_none_at_all() {
    let fixture = Fixture::new();
    fs::write(fixture.path().join("file"), b"").expect("a file");
    let good = fixture.lookup(&["file"]).expect("found");
    for bit in 0..good.len() * 8 {
        let mut forged = good.clone();
        forged[bit / 8] ^= 1 << (bit % 8);
        let refused = inode(&fixture, &forged);
        match bit / 8 {
            0 | 1 => assert_eq!(refused, Err(Status::BadHandle as u32), "bit {bit}"),
            _ => assert_eq!(refused, STALE, "bit {bit}"),
        }
    }
    assert_eq!(inode(&fixture, b""), Err(Status::BadHandle as u32));
    assert_eq!(inode(&fixture, &[0; 64]), Err(Status::BadHandle as u32));
}

#[test]
fn a_handle_follows_its_file_through_renames_by_other_processes() {
    both(|fixture| {
        let path = fixture.path();
        fs::create_dir_all(path.join("a/b")).expect("directories");
        fs::write(path.join("a/b/file"), b"text").expect("a file");
        let handle = fixture.lookup(&["a", "b", "file"]).expect("found");
        let wanted = Ok(fs::metadata(path.join("a/b/file")).expect("there").ino());
        fs::rename(path.join("a/b/file"), path.join("other")).expect("rename");
        assert_eq!(inode(&fixture, &handle), wanted);
        fs::rename(path.join("other"), path.join("a/again")).expect("rename");
        assert_eq!(inode(&fixture, &handle), wanted);
        fs::rename(path.join("a"), path.join("z")).expect("rename");
        assert_eq!(inode(&fixture, &handle), wanted);
        assert_eq!(
            fixture.lookup(&["z", "again"]).expect("found"),
            handle,
            "one file, one handle"
        );
    });
}

#[test]
fn a_removed_file_is_stale_and_so_is_one_whose_inode_is_used_again() {
    both(|fixture| {
        let path = fixture.path().join("file");
        fs::write(&path, b"1").expect("a file");
        let handle = fixture.lookup(&["file"]).expect("found");
        assert!(inode(&fixture, &handle).is_ok());
        fs::remove_file(&path).expect("removed");
        assert_eq!(inode(&fixture, &handle), STALE);
        for _ in 0..50 {
            fs::write(&path, b"2").expect("a file");
            assert_eq!(inode(&fixture, &handle), STALE);
            fs::remove_file(&path).expect("removed");
        }
    });
}

#[test]
fn what_was_moved_out_of_the_export_is_stale_although_it_is_still_open() {
    both(|fixture| {
        let outside =
            tempfile::tempdir_in(fixture.path().parent().expect("a parent")).expect("dir");
        let path = fixture.path();
        fs::create_dir(path.join("a")).expect("a directory");
        fs::write(path.join("a/file"), b"text").expect("a file");
        fs::write(path.join("single"), b"text").expect("a file");
        let directory = fixture.lookup(&["a"]).expect("found");
        let below = fixture.lookup(&["a", "file"]).expect("found");
        let single = fixture.lookup(&["single"]).expect("found");
        for handle in [&directory, &below, &single] {
            assert!(inode(&fixture, handle).is_ok());
        }
        assert!(
            fixture
                .read(&single, 0, 10)
                .is_ok_and(|(data, _)| data == b"text")
        );
        fs::rename(path.join("a"), outside.path().join("a")).expect("moved");
        fs::rename(path.join("single"), outside.path().join("single")).expect("moved");
        for handle in [&directory, &below, &single] {
            assert_eq!(inode(&fixture, handle), STALE);
        }
        assert_eq!(
            fixture.read(&below, 0, 10).err(),
            Some(Status::Stale as u32)
        );
        let up = fixture.nfs(3, &Words::default().opaque(&directory).opaque(b".."));
        assert_eq!(up.status(), Status::Stale as u32);
        // And back again: what is remembered as gone must not hide it for ever.
        fs::rename(outside.path().join("a"), path.join("a")).expect("moved");
        if fixture.export().finds_by_handle() {
            assert!(inode(&fixture, &below).is_ok());
        }
    });
}

#[test]
fn a_file_with_a_name_left_inside_is_still_there() {
    both(|fixture| {
        let path = fixture.path();
        let outside = tempfile::tempdir_in(path.parent().expect("a parent")).expect("a directory");
        fs::write(path.join("first"), b"").expect("a file");
        let handle = fixture.lookup(&["first"]).expect("found");
        let wanted = inode(&fixture, &handle);
        fs::hard_link(path.join("first"), path.join("second")).expect("a link");
        fs::rename(path.join("first"), outside.path().join("first")).expect("moved");
        assert_eq!(inode(&fixture, &handle), wanted, "the other name is inside");
        fs::remove_file(outside.path().join("first")).expect("removed");
        assert_eq!(inode(&fixture, &handle), wanted);
        fs::remove_file(path.join("second")).expect("removed");
        assert_eq!(inode(&fixture, &handle), STALE);
    });
}

#[test]
fn a_file_may_be_called_as_the_kernel_calls_those_that_are_gone() {
    both(|fixture| {
        fs::write(fixture.path().join("x (deleted)"), b"").expect("a file");
        let handle = fixture.lookup(&["x (deleted)"]).expect("found");
        assert!(inode(&fixture, &handle).is_ok());
        assert!(inode(&fixture, &handle).is_ok());
    });
}

#[test]
fn the_export_itself_may_be_renamed() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path().join("a")).expect("a directory");
    fs::write(fixture.path().join("a/file"), b"").expect("a file");
    let handle = fixture.lookup(&["a", "file"]).expect("found");
    let moved = fixture.path().with_extension("moved");
    fs::rename(fixture.path(), &moved).expect("renamed");
    let found = (inode(&fixture, &handle), fixture.lookup(&["a", "file"]));
    fs::rename(&moved, fixture.path()).expect("renamed back");
    assert!(found.0.is_ok());
    assert_eq!(found.1, Ok(handle));
}

#[test]
fn handles_outlive_the_server_when_its_key_is_kept_and_not_otherwise() {
    for handles in [true, false] {
        let state = tempfile::tempdir().expect("a directory");
        let keep = |options: &mut crate::Options| options.state = Some(state.path().to_owned());
        let mut fixture = Fixture::with(keep);
        if !handles {
            fixture = fixture.without_handles();
        }
        fs::create_dir(fixture.path().join("a")).expect("a directory");
        fs::write(fixture.path().join("a/file"), b"").expect("a file");
        let (root, file) = (
            fixture.root(),
            fixture.lookup(&["a", "file"]).expect("found"),
        );
        let verifier = fixture.export().nodes.verifier().read();
        let mut fixture = fixture.restarted(keep);
        if !handles {
            fixture = fixture.without_handles();
        }
        assert!(inode(&fixture, &root).is_ok());
        assert!(inode(&fixture, &file).is_ok(), "by handle: {handles}");
        assert_ne!(
            fixture.export().nodes.verifier().read(),
            verifier,
            "what was not committed may be lost"
        );
        let fixture = fixture.restarted(|_| {});
        assert_eq!(inode(&fixture, &file), STALE, "another key");
    }
}

#[test]
fn a_handle_of_another_export_with_the_same_key_is_stale() {
    let state = tempfile::tempdir().expect("a directory");
    let keep = |options: &mut crate::Options| options.state = Some(state.path().to_owned());
    let (one, other) = (Fixture::with(keep), Fixture::with(keep));
    fs::write(one.path().join("file"), b"").expect("a file");
    let handle = one.lookup(&["file"]).expect("found");
    assert_eq!(inode(&other, &handle), STALE);
    assert_eq!(inode(&other, &one.root()), STALE);
}

#[test]
fn in_a_directory_that_was_removed_every_call_is_stale_and_so_is_the_root() {
    both(|fixture| {
        let (root, path) = (fixture.root(), fixture.path().to_owned());
        fs::remove_dir(&path).expect("removed");
        let name = || Words::default().opaque(&root).opaque(b"name");
        let calls = [
            (1, Words::default().opaque(&root)),
            (3, name()),
            (8, name().word(0).mode(0o644)),
            (9, name().mode(0o755)),
            (12, name()),
            (13, name()),
            (14, name().opaque(&root).opaque(b"other")),
            (
                16,
                Words::default().opaque(&root).long(0).long(0).word(4096),
            ),
        ];
        for (procedure, words) in calls {
            let status = fixture.nfs(procedure, &words).status();
            assert_eq!(status, Status::Stale as u32, "procedure {procedure}");
        }
        fs::create_dir(&path).expect("made again, for the fixture");
    });
}

#[test]
fn a_key_below_the_export_but_on_another_mount_is_fine() {
    // What lies on another mount cannot be reached through the export: so `/` can be exported.
    let Ok(state) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let mut options = crate::Options::new("/");
    options.state = Some(state.path().to_owned());
    let root = fs::metadata("/").expect("there").dev();
    if fs::metadata("/dev/shm").expect("there").dev() != root {
        let nfs = crate::Nfs::open(options).expect("served");
        assert!(nfs.exports().only().export.root().is_ok());
    }
}

#[test]
fn a_key_inside_the_export_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut options = crate::Options::new(directory.path());
    options.state = Some(directory.path().join("state"));
    assert!(crate::Nfs::open(options).is_err());
}

#[test]
fn more_files_than_are_kept_open_are_all_served() {
    both(|fixture| {
        let names: Vec<String> = (0..300).map(|number| format!("f{number}")).collect();
        for name in &names {
            fs::write(fixture.path().join(name), name).expect("a file");
        }
        let find = |name: &String| fixture.lookup(&[name]).expect("found");
        let handles: Vec<Vec<u8>> = names.iter().map(find).collect();
        for _ in 0..2 {
            for (name, handle) in names.iter().zip(&handles) {
                let read = fixture.read(handle, 0, 100);
                assert_eq!(read, Ok((name.clone().into_bytes(), true)));
            }
        }
    });
}
