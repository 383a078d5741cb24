//! Arguments that are cut, or nothing but noise: an answer every time, and nothing changes.

use std::fs;
use std::os::unix::ffi::OsStrExt;

use flatpath_rpc::{Accepted, Arguments, Call, CallOutcome, Programs, Route};

use crate::limits::{DATA_BYTES_MAX, DIRECTORY_BYTES_MAX};
use crate::procedures::reply_bytes_max;
use crate::programs::MOUNT;
use crate::status::Status;
use crate::testing::{Fixture, Words};

fn call(fixture: &Fixture, procedure: u32) -> Call {
    let credential = fixture.credential;
    Call {
        program: 100_003,
        version: 3,
        procedure,
        credential,
        ..Call::default()
    }
}

/// Good arguments of every procedure.
fn good(root: &[u8], file: &[u8]) -> Vec<(u32, Words)> {
    let at = |name: &[u8]| Words::default().opaque(root).opaque(name);
    let of = |handle: &[u8]| Words::default().opaque(handle);
    vec![
        (1, of(file)),
        (2, of(file).mode(0o644).word(0)),
        (3, at(b"file")),
        (4, of(file).word(1)),
        (5, of(file)),
        (6, of(file).long(0).word(1)),
        (7, of(file).long(0).word(4).word(0).opaque(b"text")),
        (8, at(b"new").word(0).mode(0o644)),
        (9, at(b"dir").mode(0o755)),
        (10, at(b"link").mode(0o777).opaque(b"target")),
        (11, at(b"pipe").word(7).mode(0o644)),
        (12, at(b"none")),
        (13, at(b"none")),
        (14, at(b"none").opaque(root).opaque(b"other")),
        (15, of(file).opaque(root).opaque(b"name")),
        (16, of(root).long(0).long(0).word(4096)),
        (17, of(root).long(0).long(0).word(4096).word(4096)),
        (18, of(root)),
        (19, of(root)),
        (20, of(root)),
        (21, of(file).long(0).word(0)),
    ]
}

#[test]
fn every_cut_of_every_procedures_arguments_is_garbage_and_changes_nothing() {
    let fixture = Fixture::new();
    fs::write(fixture.path().join("file"), b"text").expect("a file");
    let (root, file) = (fixture.root(), fixture.lookup(&["file"]).expect("found"));
    for (procedure, words) in good(&root, &file) {
        for end in 0..words.0.len() {
            let cut = Words(words.0[..end].to_vec());
            let (served, _) = fixture.pooled(&call(&fixture, procedure), &cut);
            assert_eq!(
                served,
                CallOutcome::GarbageArguments,
                "procedure {procedure} cut at {end}"
            );
        }
    }
    assert_eq!(fs::read_dir(fixture.path()).expect("there").count(), 1);
    for (procedure, words) in good(&root, &file) {
        let (served, _) = fixture.pooled(&call(&fixture, procedure), &words);
        assert_eq!(served, CallOutcome::Results, "procedure {procedure}");
    }
}

#[test]
fn a_call_without_room_in_its_share_says_later_and_changes_nothing() {
    let fixture = Fixture::new();
    fs::write(fixture.path().join("file"), b"text").expect("a file");
    let (root, file) = (fixture.root(), fixture.lookup(&["file"]).expect("found"));
    for (procedure, words) in good(&root, &file) {
        let call = call(&fixture, procedure);
        let busy = fixture.busy(&call, &words);
        assert_eq!(busy.status(), Status::Later as u32, "procedure {procedure}");
        // What follows a status says that no attributes are known, in one to four words.
        assert!(busy.0[4..].iter().all(|byte| *byte == 0), "{procedure}");
    }
    assert_eq!(fs::read_dir(fixture.path()).expect("there").count(), 1);
    let mount = Call {
        program: MOUNT.number,
        ..call(&fixture, 1)
    };
    let own = fixture.path().as_os_str().as_bytes();
    let busy = fixture.busy(&mount, &Words::default().opaque(own));
    assert_eq!(busy.status(), Status::ServerFault as u32);
}

#[test]
fn noise_is_answered_and_leads_nowhere() {
    let fixture = Fixture::new();
    fs::write(fixture.path().join("file"), b"text").expect("a file");
    let (root, file) = (fixture.root(), fixture.lookup(&["file"]).expect("found"));
    let seed = u64::from(
        std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .expect("now")
            .subsec_nanos(),
    );
    println!("seed {seed}");
    let mut state = seed | 1;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).expect("31 bits")
    };
    for _ in 0..300 {
        for (procedure, mut words) in good(&root, &file) {
            for _ in 0..=random() % 4 {
                let at = random() % words.0.len();
                words.0[at] = random().to_le_bytes()[0];
            }
            // Whatever comes of it, it comes.
            let _ = fixture.pooled(&call(&fixture, procedure), &words);
        }
    }
    assert_eq!(fixture.pool.statistics().in_use_bytes, 0);
    assert!(fixture.attributes(&root).is_ok());
}

#[test]
fn what_is_not_offered_is_refused_by_the_right_word() {
    let fixture = Fixture::new();
    let route = |program, version, procedure| {
        fixture.nfs.route(&Call {
            program,
            version,
            procedure,
            ..Call::default()
        })
    };
    let mismatch = Accepted::ProgramMismatch { low: 3, high: 3 };
    assert_eq!(route(100_003, 4, 0), Route::Unavailable(mismatch));
    assert_eq!(route(100_003, 2, 1), Route::Unavailable(mismatch));
    assert_eq!(route(100_005, 1, 1), Route::Unavailable(mismatch));
    let versions = Accepted::ProgramMismatch { low: 2, high: 4 };
    assert_eq!(route(100_000, 5, 3), Route::Unavailable(versions));
    assert_eq!(
        route(100_021, 4, 1),
        Route::Unavailable(Accepted::ProgramUnavailable)
    );
    let none = Route::Unavailable(Accepted::ProcedureUnavailable);
    assert_eq!(route(100_003, 3, 22), none);
    assert_eq!(route(100_005, 3, 6), none);
    assert_eq!(route(100_000, 2, 6), none);
    assert_eq!(route(100_000, 2, 5), Route::Silent, "CALLIT is not spoken");
    assert_eq!(route(100_003, 3, 21), Route::Pooled);
    assert_eq!(route(100_003, 3, 12), Route::Once);
}

#[test]
fn room_for_a_reply_is_that_of_what_is_asked_for() {
    let room = |procedure: u32, count: u32| {
        let words = Words::default().opaque(&[7; 40]).long(0).word(count);
        reply_bytes_max(procedure, Arguments::new(&words.0))
    };
    let without = room(1, 0);
    assert_eq!(room(6, 4096), without + 4096);
    assert_eq!(room(6, u32::MAX), without + DATA_BYTES_MAX);
    assert_eq!(room(16, 4096), without + DIRECTORY_BYTES_MAX);
    assert_eq!(room(17, 4096), without + DIRECTORY_BYTES_MAX);
}
