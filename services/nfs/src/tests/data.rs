//! READ, WRITE, COMMIT: what was written is read, and the end of a file is reported exactly.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;

use flatpath_rpc::{Call, CallOutcome};
use flatpath_testkit::mount::Mounted;

use crate::status::Status;
use crate::testing::{Fixture, Words, is_root, system};

#[test]
fn what_is_written_is_read_in_every_manner_of_stability() {
    let fixture = Fixture::new();
    let file = fixture
        .create(&fixture.root(), "file", 0o644)
        .expect("made");
    for stable in 0..3 {
        let text = format!("manner {stable}");
        assert_eq!(fixture.write(&file, 0, text.as_bytes(), stable), 0);
        assert_eq!(
            fixture.read(&file, 0, 100),
            Ok((text.clone().into_bytes(), true))
        );
        assert_eq!(
            fs::read(fixture.path().join("file")).expect("there"),
            text.as_bytes()
        );
    }
    let commit = fixture.nfs(21, &Words::default().opaque(&file).long(0).word(0));
    assert_eq!(commit.status(), 0);
    let tail = &commit.0[commit.0.len() - 8..];
    assert_eq!(tail, fixture.export().nodes.verifier().read().to_be_bytes());
}

#[test]
fn a_file_that_runs_is_committed() {
    let fixture = Fixture::new();
    let program = fixture.path().join("sleep");
    fs::copy("/bin/sleep", &program).expect("copied");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o777)).expect("ours");
    let run = || match std::process::Command::new(&program).arg("600").spawn() {
        Ok(child) => Some(child),
        // A child that another test forked meanwhile still has it open to write.
        Err(cause) if cause.kind() == ErrorKind::ExecutableFileBusy => None,
        Err(cause) => panic!("{cause}"),
    };
    let mut child = flatpath_testkit::deadline::until("the program to run", run);
    let file = fixture.lookup(&["sleep"]).expect("there");
    let committed = fixture.nfs(21, &Words::default().opaque(&file).long(0).word(0));
    child.kill().expect("it runs");
    child.wait().expect("it has ended");
    assert_eq!(committed.status(), 0);
}

#[test]
fn the_end_of_a_file_is_reported_exactly() {
    let fixture = Fixture::new();
    fs::write(fixture.path().join("file"), b"0123456789").expect("a file");
    let file = fixture.lookup(&["file"]).expect("found");
    assert_eq!(
        fixture.read(&file, 0, 9),
        Ok((b"012345678".to_vec(), false))
    );
    assert_eq!(
        fixture.read(&file, 0, 10),
        Ok((b"0123456789".to_vec(), true))
    );
    assert_eq!(fixture.read(&file, 5, 100), Ok((b"56789".to_vec(), true)));
    assert_eq!(fixture.read(&file, 10, 1), Ok((Vec::new(), true)));
    assert_eq!(
        fixture.read(&file, u64::MAX, u32::MAX),
        Ok((Vec::new(), true))
    );
    assert_eq!(fixture.read(&file, 3, 0), Ok((Vec::new(), false)));
}

#[test]
fn long_reads_come_whole_from_any_place_to_any_end() {
    let fixture = Fixture::new();
    let data: Vec<u8> = (0..300_001_u32)
        .map(|at| (at % 251).to_le_bytes()[0])
        .collect();
    fs::write(fixture.path().join("file"), &data).expect("a file");
    let file = fixture.lookup(&["file"]).expect("found");
    for (offset, count) in [(0, 32_768), (1, 40_001), (4095, 99_998), (200_003, 99_997)] {
        let (bytes, end) = fixture
            .read(&file, offset as u64, count as u32)
            .expect("ok");
        assert!(bytes == data[offset..offset + count], "{offset} {count}");
        assert!(!end, "{offset} {count}");
    }
    // Whatever was asked for, the file ends where it ends.
    for offset in [0, 7, 267_000, 299_999] {
        let (bytes, end) = fixture.read(&file, offset as u64, 1 << 20).expect("ok");
        assert!(bytes == data[offset..] && end, "{offset}");
    }
    assert!(fixture.state().pipes.open() >= 1, "pipes were used");
}

#[test]
fn a_megabyte_goes_in_and_out_in_one_call() {
    let fixture = Fixture::new();
    let data: Vec<u8> = (0..1_048_576_u32)
        .map(|at| (at % 251).to_le_bytes()[0])
        .collect();
    let file = fixture
        .create(&fixture.root(), "file", 0o644)
        .expect("made");
    assert_eq!(fixture.write(&file, 0, &data, 0), 0);
    assert_eq!(fs::read(fixture.path().join("file")).expect("there"), data);
    assert_eq!(fixture.read(&file, 0, 1 << 20), Ok((data.clone(), true)));
    assert_eq!(
        fixture.read(&file, 1, u32::MAX),
        Ok((data[1..].to_vec(), true))
    );
    assert_eq!(fixture.pool.statistics().in_use_bytes, 0);
}

#[test]
fn a_write_past_the_end_leaves_a_hole_of_zeros() {
    let fixture = Fixture::new();
    let file = fixture
        .create(&fixture.root(), "file", 0o644)
        .expect("made");
    assert_eq!(fixture.write(&file, 5000, b"x", 2), 0);
    let (data, end) = fixture.read(&file, 0, 10_000).expect("read");
    assert!(end && data.len() == 5001 && data[..5000].iter().all(|byte| *byte == 0));
    // Beyond what a position can be, and beyond what the file system takes.
    for offset in [u64::MAX - 2, (1 << 63) - 10] {
        for stable in 0..3 {
            let far = fixture.write(&file, offset, b"xyz", stable);
            assert_eq!(far, Status::FileTooBig as u32, "{offset:#x}, {stable}");
        }
    }
}

#[test]
fn only_regular_files_are_read_and_written() {
    let fixture = Fixture::new();
    let root = fixture.root();
    assert_eq!(fixture.read(&root, 0, 1), Err(Status::IsDirectory as u32));
    assert_eq!(fixture.write(&root, 0, b"x", 0), Status::IsDirectory as u32);
    std::os::unix::fs::symlink("x", fixture.path().join("link")).expect("a link");
    let link = fixture.lookup(&["link"]).expect("found");
    assert_eq!(fixture.read(&link, 0, 1), Err(Status::Invalid as u32));
    let words = Words::default()
        .opaque(&root)
        .opaque(b"pipe")
        .word(7)
        .mode(0o666);
    let pipe = fixture.made(11, &words).expect("made");
    assert_eq!(
        fixture.read(&pipe, 0, 1),
        Err(Status::Invalid as u32),
        "and no caller blocks"
    );
}

#[test]
fn a_count_that_is_not_the_datas_length_is_refused_and_nothing_is_written() {
    let fixture = Fixture::new();
    let file = fixture
        .create(&fixture.root(), "file", 0o644)
        .expect("made");
    let words = Words::default()
        .opaque(&file)
        .long(0)
        .word(5)
        .word(0)
        .opaque(b"abc");
    assert_eq!(fixture.nfs(7, &words).status(), Status::Invalid as u32);
    assert_eq!(
        fs::metadata(fixture.path().join("file"))
            .expect("there")
            .len(),
        0
    );
    let words = Words::default()
        .opaque(&file)
        .long(0)
        .word(3)
        .word(3)
        .opaque(b"abc");
    let credential = fixture.credential;
    let call = Call {
        program: 100_003,
        version: 3,
        procedure: 7,
        credential,
        ..Call::default()
    };
    assert_eq!(
        fixture.pooled(&call, &words).0,
        CallOutcome::GarbageArguments,
        "no such manner"
    );
}

#[test]
fn an_owner_that_reads_again_sees_the_file_grow_shrink_and_change_hands() {
    let mut fixture = Fixture::new();
    let root = fixture.root();
    let file = fixture.create(&root, "file", 0o600).expect("made");
    let path = fixture.path().join("file");
    for length in [0, 3, 10_000, 10_001, 2, 0, 300_000] {
        let text = vec![b'x'; length];
        fs::write(&path, &text).expect("written");
        for _ in 0..2 {
            assert!(fixture.read(&file, 0, 1 << 20) == Ok((text.clone(), true)));
            let part = fixture.read(&file, 1, 1).expect("read");
            assert_eq!(
                part,
                (text.iter().skip(1).take(1).copied().collect(), length <= 2)
            );
            assert_eq!(fixture.read(&file, 1 << 40, 1), Ok((Vec::new(), true)));
        }
    }
    if !is_root() {
        return;
    }
    std::os::unix::fs::chown(&path, Some(2000), Some(2000)).expect("chown");
    let denied = Some(Status::Access as u32);
    assert_eq!(
        fixture.read(&file, 0, 10).err(),
        denied,
        "no longer its owner"
    );
    fixture.credential = system(2000);
    assert!(fixture.read(&file, 0, 10).is_ok());
    fixture.credential = system(1000);
    assert_eq!(
        fixture.read(&file, 0, 10).err(),
        denied,
        "not what the owner saw"
    );
}

#[test]
fn changes_by_other_processes_are_seen_at_once() {
    let fixture = Fixture::new();
    let path = fixture.path().join("file");
    fs::write(&path, b"one").expect("a file");
    let file = fixture.lookup(&["file"]).expect("found");
    assert_eq!(fixture.read(&file, 0, 10), Ok((b"one".to_vec(), true)));
    for round in 0..20 {
        let text = "x".repeat(round * 7);
        fs::write(&path, &text).expect("written");
        assert_eq!(
            fixture.attributes(&file).expect("there").size,
            text.len() as u64
        );
        assert_eq!(fixture.read(&file, 0, 1000), Ok((text.into_bytes(), true)));
    }
    fs::rename(fixture.path().join("file"), fixture.path().join("old")).expect("renamed");
    fs::write(&path, b"another").expect("a file");
    let other = fixture.lookup(&["file"]).expect("found");
    assert_ne!(other, file);
    assert_eq!(fixture.read(&other, 0, 10), Ok((b"another".to_vec(), true)));
}

/// On a disk that becomes full in the middle of the data, in every manner of stability.
#[test]
fn a_write_that_the_file_system_takes_a_part_of_is_answered_with_that_part() {
    let Some(mounted) = Mounted::tmpfs() else {
        return;
    };
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(mounted.path(), open).expect("ours");
    let at = mounted.path().to_path_buf();
    let fixture = Fixture::with(|options| options.directory.clone_from(&at));
    let data = vec![7; 256 << 10];
    for stable in 0..3 {
        // Of its mebibyte an eighth is left.
        fs::write(at.join("filler"), vec![0; 896 << 10]).expect("room");
        let file = fixture.create(&fixture.root(), "file", 0o644);
        let file = file.expect("made");
        let count = u32::try_from(data.len()).expect("short");
        let words = Words::default().opaque(&file).long(0);
        let words = words.word(count).word(stable).opaque(&data);
        let results = fixture.nfs(7, &words);
        let there = fs::read(at.join("file")).expect("there");
        let is_part = (1..data.len()).contains(&there.len());
        assert!(is_part, "{stable}: {} of {}", there.len(), data.len());
        match results.status() {
            0 => {
                let end = &results.0[results.0.len() - 16..];
                let counted = u32::from_be_bytes(*end.first_chunk().expect("a word"));
                assert_eq!(counted as usize, there.len(), "{stable}");
                assert!(there.iter().all(|byte| *byte == 7));
            }
            status => {
                assert_eq!(status, Status::NoSpace as u32, "{stable}");
                assert_ne!(stable, 0, "what was taken can be told");
            }
        }
        // The server may have it open, and its blocks, for a while.
        fs::write(at.join("file"), b"").expect("emptied");
        fs::remove_file(at.join("file")).expect("removed");
        fs::remove_file(at.join("filler")).expect("removed");
    }
}
