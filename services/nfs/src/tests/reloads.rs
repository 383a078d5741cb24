//! Exports that are replaced while they are served, and that come and go between two servers: which
//! handles stay good.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use flatpath_rpc::Call;
use flatpath_testkit::mount::Mounted;
use flatpath_testkit::until_true;

use super::exports::{exports, fixture, number};
use crate::Options;
use crate::status::Status;
use crate::testing::{Fixture, Words};

const OK: u32 = 0;
const DENIED: u32 = Status::Access as u32;
const STALE: u32 = Status::Stale as u32;
const READ_ONLY: u32 = Status::ReadOnly as u32;

#[test]
fn a_reload_keeps_the_handles_of_those_who_keep_their_right() {
    let mut fixture = fixture("DIR/a 10.0.0.0/8(rw)\nDIR/b 10.0.0.0/8(rw)\n");
    let (a, b) = (fixture.mount_below("a"), fixture.mount_below("b"));
    let (a, b) = (a.expect("exported"), b.expect("exported"));
    let file = fixture.find(&a, "file").expect("there");
    assert_eq!(fixture.write(&file, 0, b"x", 0), OK);
    let nodes = fixture.nfs.exports().files_open();
    let change = fixture.reload("DIR/a 10.1.0.0/16(rw) 10.0.0.0/8(ro)\n");
    assert_eq!((change.kept, change.opened, change.closed), (1, 0, 1));
    assert!(
        nodes > fixture.nfs.exports().files_open(),
        "what is gone is closed"
    );
    assert_eq!(fixture.write(&file, 0, b"x", 0), OK);
    assert_eq!(fixture.status_of(&b), STALE);
    assert_eq!(fixture.mount_below("b"), Err(DENIED));
    fixture.calls_from("10.2.0.1:1023");
    assert_eq!(fixture.write(&file, 0, b"x", 0), READ_ONLY);
    assert_eq!(fixture.status_of(&file), OK);
    let change = fixture.reload("DIR/b 10.0.0.0/8(rw)\nDIR/a 10.1.0.0/16(rw)\n");
    assert_eq!((change.kept, change.opened, change.closed), (1, 1, 0));
    assert_eq!(fixture.status_of(&file), STALE, "it has lost its right");
    assert_eq!(fixture.status_of(&b), OK, "the handle is good again");
    // A directory that was renamed with its entry is the same export.
    fs::rename(fixture.path().join("a"), fixture.path().join("z")).expect("renamed");
    let change = fixture.reload("DIR/z 10.0.0.0/8(rw)\n");
    assert_eq!((change.kept, change.opened, change.closed), (1, 0, 1));
    assert_eq!(fixture.write(&file, 0, b"x", 0), OK);
    // Another directory under its path is not.
    fs::rename(fixture.path().join("z"), fixture.path().join("old")).expect("renamed");
    fs::create_dir(fixture.path().join("z")).expect("a directory");
    let change = fixture.reload("DIR/z 10.0.0.0/8(rw)\n");
    assert_eq!((change.kept, change.opened, change.closed), (0, 1, 1));
    assert_eq!(fixture.status_of(&file), STALE);
}

#[test]
fn a_directory_that_is_removed_is_stale_and_its_path_is_exported_anew() {
    let fixture = fixture("DIR/a *(rw,insecure)\nDIR/b *(rw,insecure)\n");
    let (a, b) = (fixture.mount_below("a"), fixture.mount_below("b"));
    let (a, b) = (a.expect("exported"), b.expect("exported"));
    let exports = fixture.nfs.exports();
    let at = |name: &str| fixture.path().join(name);
    assert!(exports.gone().is_empty());
    // Another directory has the path, and the one that is exported lives.
    fs::rename(at("a"), at("old")).expect("renamed");
    fs::create_dir(at("a")).expect("made");
    assert!(exports.gone().is_empty());
    exports.renew();
    assert_eq!(fixture.status_of(&a), OK, "it lives");
    fs::remove_dir_all(at("old")).expect("removed");
    assert_eq!(exports.gone(), [at("a").canonicalize().expect("there")]);
    assert_eq!(fixture.status_of(&a), STALE);
    assert_eq!(fixture.find(&a, "file").expect_err("it is gone"), STALE);
    assert_eq!(fixture.mount_below("a"), Err(Status::NoEntry as u32));
    // To renew one is no reason to close another that lives.
    fs::rename(at("b"), at("other")).expect("renamed");
    fs::create_dir(at("b")).expect("made");
    exports.renew();
    assert_eq!((exports.gone().len(), fixture.status_of(&b)), (1, OK));
    fs::remove_dir(at("b")).expect("removed");
    fs::rename(at("other"), at("b")).expect("renamed");
    exports.renew();
    assert!(exports.gone().is_empty());
    let new = fixture.mount_below("a").expect("exported anew");
    assert_eq!(
        (fixture.status_of(&a), fixture.status_of(&new)),
        (STALE, OK)
    );
    assert_eq!(fixture.status_of(&b), OK);
}

#[test]
fn exports_with_a_mistake_change_nothing_and_the_mistake_has_its_place() {
    let fixture = fixture("DIR/a *(rw,insecure)\n");
    let handle = fixture.mount_below("a").expect("exported");
    for (lines, expected) in [
        ("DIR/b *(ro)\nDIR/none *(ro)\n", "exports:2:1: "),
        ("DIR/b *(ro)\nDIR/a/file *(ro)\n", "exports:2:1: "),
        ("DIR/b *(ro)\nDIR/b *(rw)\n", "exports:2:"),
        ("DIR/b no-such-host.invalid(ro)\n", "exports:1:"),
        ("", "there is no export"),
    ] {
        let prepared = fixture
            .nfs
            .exports()
            .prepare(exports(fixture.path(), lines));
        let why = prepared.expect_err(lines).to_string();
        assert!(why.starts_with(expected), "{lines}: {why}");
    }
    assert_eq!(fixture.status_of(&handle), OK);
    assert_eq!(fixture.mount_below("b"), Err(DENIED));
}

#[test]
fn the_key_lies_in_no_export_also_after_a_reload() {
    let fixture = Fixture::with(|options| {
        for name in ["a", "b"] {
            fs::create_dir(options.directory.join(name)).expect("a directory");
        }
        options.state = Some(options.directory.join("b/key"));
        options.exports = exports(&options.directory, "DIR/a *(rw,insecure)\n");
    });
    for lines in [
        "DIR/b *(ro)\n",
        "DIR *(ro)\n",
        "DIR/a *(ro)\nDIR/b/key *(ro)\n",
    ] {
        let prepared = fixture
            .nfs
            .exports()
            .prepare(exports(fixture.path(), lines));
        let why = prepared.expect_err(lines).to_string();
        assert!(why.contains("lies inside"), "{why}");
    }
}

#[test]
fn a_call_ends_as_it_began_and_what_is_gone_is_closed_behind_it() {
    let fixture = fixture("DIR/a *(rw,insecure)\nDIR/b *(rw,insecure)\n");
    let b = fixture.mount_below("b").expect("exported");
    let exports = fixture.nfs.exports();
    // As a call has it.
    let table = exports.table();
    let words = Words::default().opaque(&b);
    let call = Call {
        program: 100_003,
        procedure: 1,
        ..Call::default()
    };
    let arguments = flatpath_rpc::Arguments::new(&words.0);
    let gone = Arc::downgrade(&table.pick_any(&call, arguments).state.export);
    let is_applied = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reload = scope.spawn(|| {
            fixture.reload("DIR/a *(rw,insecure)\n");
            is_applied.store(true, Ordering::Relaxed);
        });
        until_true("the reload", || fixture.status_of(&b) == STALE);
        let picked = table.pick_any(&call, arguments);
        assert!(picked.denied.is_none());
        assert!(
            picked.state.export.resolve(&b).is_ok(),
            "it is served to its end"
        );
        drop(table);
        reload.join().expect("no panic");
    });
    assert!(is_applied.load(Ordering::Relaxed));
    until_true("it is closed", || gone.strong_count() == 0);
}

#[test]
fn exports_may_be_swapped_while_they_are_used() {
    const ROUNDS: u32 = 60;
    let fixture = fixture("DIR/a *(rw,insecure)\nDIR/b *(rw,insecure)\n");
    let (a, b) = (fixture.mount_below("a"), fixture.mount_below("b"));
    let (a, b) = (a.expect("exported"), b.expect("exported"));
    let is_over = AtomicBool::new(false);
    let (kept, gone) = (AtomicU32::new(0), AtomicU32::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    assert_eq!(fixture.status_of(&a), OK);
                    kept.fetch_add(1, Ordering::Relaxed);
                    match fixture.find(&b, "file") {
                        Ok(file) => {
                            let status = fixture.write(&file, 0, b"x", 0);
                            assert!([OK, STALE, READ_ONLY].contains(&status), "{status}");
                        }
                        Err(status) => {
                            assert_eq!(status, STALE);
                            gone.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
        // Two reloads at a time.
        let reloads = (0..2).map(|which| {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..ROUNDS {
                    let b = match (round + which) % 3 {
                        0 => "",
                        1 => "DIR/b *(ro,insecure)\n",
                        _ => "DIR/b *(rw,insecure)\n",
                    };
                    fixture.reload(&format!("DIR/a *(rw,insecure)\n{b}"));
                }
            })
        });
        let reloads: Vec<_> = reloads.collect();
        let ended: Vec<_> = reloads
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        is_over.store(true, Ordering::Relaxed);
        assert!(ended.iter().all(Result::is_ok));
    });
    assert!(kept.load(Ordering::Relaxed) > 0);
    fixture.reload("DIR/a *(rw,insecure)\nDIR/b *(rw,insecure)\n");
    assert_eq!((fixture.status_of(&a), fixture.status_of(&b)), (OK, OK));
}

#[test]
fn handles_of_a_single_export_are_good_among_several_and_the_other_way() {
    let state = tempfile::tempdir().expect("a directory");
    let keep = |options: &mut Options| options.state = Some(state.path().to_owned());
    let fixture = Fixture::with(keep);
    fs::write(fixture.path().join("file"), "text").expect("a file");
    let (root, file) = (fixture.root(), fixture.lookup(&["file"]).expect("there"));
    let other = tempfile::tempdir().expect("a directory");
    let fixture = fixture.restarted(|options| {
        keep(options);
        options.exports = exports(&options.directory, "DIR *(rw,insecure)\n");
        let more = exports(other.path(), "DIR *(rw,insecure)\n");
        options.exports.extend(more);
    });
    assert_eq!(
        (fixture.status_of(&root), fixture.status_of(&file)),
        (OK, OK)
    );
    let moved = fixture.mount(other.path().as_os_str().as_encoded_bytes());
    let moved = moved.expect("exported");
    let fixture = fixture.restarted(keep);
    assert_eq!(
        (fixture.status_of(&root), fixture.status_of(&file)),
        (OK, OK)
    );
    assert_eq!(
        fixture.status_of(&moved),
        STALE,
        "that one is not served now"
    );
}

#[test]
fn two_ways_to_one_directory_are_two_exports_with_their_own_handles() {
    let real = tempfile::tempdir().expect("a directory");
    fs::write(real.path().join("file"), "text").expect("a file");
    let Some(bound) = Mounted::bind(real.path()) else {
        return;
    };
    let lines = |rights: &str| {
        let mut all = exports(real.path(), &format!("DIR *({rights},insecure)\n"));
        all.extend(exports(bound.path(), "DIR *(ro,insecure)\n"));
        all
    };
    let both = |reverse: bool| {
        Fixture::with(|options| {
            options.exports = lines("rw");
            if reverse {
                options.exports.reverse();
            }
        })
    };
    let numbers = |fixture: &Fixture| {
        [real.path(), bound.path()].map(|path| {
            let root = fixture.mount(path.as_os_str().as_encoded_bytes());
            root.expect("exported")
        })
    };
    let fixture = both(false);
    let [one, other] = numbers(&fixture);
    assert_ne!(number(&one), number(&other));
    let in_one = fixture.find(&one, "file").expect("there");
    let in_other = fixture.find(&other, "file").expect("there");
    assert_ne!(in_one, in_other);
    // Each has the rights of its own.
    let mode = |handle: &[u8]| Words::default().opaque(handle).mode(0o666).word(0);
    assert_ne!(fixture.nfs(2, &mode(&in_one)).status(), READ_ONLY);
    assert_eq!(fixture.nfs(2, &mode(&in_other)).status(), READ_ONLY);
    // One that comes later does not take the handles of the first one away.
    let first = Fixture::with(|options| {
        options.exports = exports(real.path(), "DIR *(rw,insecure)\n");
    });
    let root = first.mount(real.path().as_os_str().as_encoded_bytes());
    let root = root.expect("exported");
    let prepared = first.nfs.exports().prepare(lines("rw"));
    prepared.expect("good exports").apply();
    assert_eq!(first.status_of(&root), OK);
    let [again, second] = numbers(&first);
    assert_eq!(number(&again), number(&root));
    assert_ne!(number(&second), number(&root));
    drop((fixture, both(true), first));
}
