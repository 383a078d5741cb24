//! Removed files give their space back, and a handle of one is stale for every client.

use std::fs;
use std::path::{Path, PathBuf};

use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::until_true;

use crate::status::Status;
use crate::testing::{Fixture, Words};

/// Files below `directory` that this process has open, by the names the kernel has for them.
fn open_below(directory: &Path) -> Vec<PathBuf> {
    let list = fs::read_dir("/proc/self/fd").expect("there");
    list.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|path| path.starts_with(directory) && path != directory)
        .collect()
}

/// A file that was written and read: three descriptors.
fn used(fixture: &Fixture, name: &str) -> Vec<u8> {
    let handle = fixture.create(&fixture.root(), name, 0o666).expect("made");
    assert_eq!(fixture.write(&handle, 0, &[7; 5000], 0), 0);
    assert_eq!(fixture.read(&handle, 0, 1).expect("read").0, [7]);
    handle
}

fn both(test: impl Fn(Fixture)) {
    test(Fixture::new());
    test(Fixture::new().without_handles());
}

fn named(fixture: &Fixture, name: &str) -> Words {
    Words::default()
        .opaque(&fixture.root())
        .opaque(name.as_bytes())
}

#[test]
fn what_is_removed_or_replaced_is_closed_before_the_reply() {
    both(|fixture| {
        used(&fixture, "removed");
        assert_eq!(fixture.nfs(12, &named(&fixture, "removed")).status(), 0);
        assert_eq!(open_below(fixture.path()), [""; 0].map(PathBuf::from));

        let (replaced, moved) = (used(&fixture, "replaced"), used(&fixture, "moved"));
        let words = named(&fixture, "moved").opaque(&fixture.root());
        assert_eq!(fixture.nfs(14, &words.opaque(b"replaced")).status(), 0);
        let open = open_below(fixture.path());
        assert!(
            open.iter().all(|path| path.ends_with("replaced")),
            "{open:?}"
        );
        assert_eq!(fixture.attributes(&replaced), Err(Status::Stale as u32));
        assert!(fixture.attributes(&moved).is_ok());

        let words = named(&fixture, "directory").mode(0o755);
        let directory = fixture.made(9, &words).expect("made");
        fixture.create(&directory, "below", 0o666).expect("made");
        let words = Words::default().opaque(&directory).opaque(b"below");
        assert_eq!(fixture.nfs(12, &words).status(), 0);
        assert_eq!(fixture.nfs(13, &named(&fixture, "directory")).status(), 0);
        let open = open_below(fixture.path());
        assert!(
            open.iter().all(|path| path.ends_with("replaced")),
            "{open:?}"
        );
    });
}

#[test]
fn one_of_two_names_is_removed_and_the_file_stays() {
    both(|fixture| {
        let handle = used(&fixture, "one");
        fs::hard_link(fixture.path().join("one"), fixture.path().join("two")).expect("linked");
        assert_eq!(fixture.nfs(12, &named(&fixture, "one")).status(), 0);
        assert_eq!(fixture.attributes(&handle).expect("there").links, 1);
        assert_eq!(fixture.nfs(12, &named(&fixture, "two")).status(), 0);
        assert_eq!(fixture.attributes(&handle), Err(Status::Stale as u32));
        assert_eq!(open_below(fixture.path()), [""; 0].map(PathBuf::from));
    });
}

#[test]
fn what_is_removed_on_the_server_is_closed_without_a_call() {
    both(|fixture| {
        used(&fixture, "removed");
        fs::remove_file(fixture.path().join("removed")).expect("removed");
        until_true("it is closed", || open_below(fixture.path()).is_empty());
    });
}

#[test]
fn a_file_that_no_call_uses_is_open_for_its_path_alone_and_is_served_again() {
    both(|fixture| {
        let handle = used(&fixture, "file");
        until_true("data is closed", || open_below(fixture.path()).len() == 1);
        assert_eq!(fixture.read(&handle, 0, 2).expect("read").0, [7; 2]);
        assert_eq!(fixture.write(&handle, 0, &[8; 2], 2), 0);
    });
}

#[test]
fn what_this_server_removed_is_stale_for_all_while_another_scan_is_on_its_way() {
    let fixture = Fixture::new().without_handles();
    let handles: Vec<Vec<u8>> = ["removed", "replaced", "locally"]
        .iter()
        .map(|name| used(&fixture, name))
        .collect();
    used(&fixture, "moved");
    let export = fixture.export();
    let scan = export.scan_in_progress();
    assert_eq!(fixture.nfs(12, &named(&fixture, "removed")).status(), 0);
    let words = named(&fixture, "moved").opaque(&fixture.root());
    assert_eq!(fixture.nfs(14, &words.opaque(b"replaced")).status(), 0);
    fs::remove_file(fixture.path().join("locally")).expect("removed");
    for _ in 0..2 {
        for handle in &handles {
            assert_eq!(fixture.attributes(handle), Err(Status::Stale as u32));
        }
    }
    drop(scan);
}

#[test]
fn stress_a_removed_file_is_stale_while_others_take_its_inode() {
    use std::sync::atomic::{AtomicBool, Ordering};
    let fixture = Fixture::new();
    let (root, done) = (fixture.root(), AtomicBool::new(false));
    let asked = std::thread::scope(|scope| {
        for number in 0..3 {
            let (path, done) = (fixture.path().join(format!("other-{number}")), &done);
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    fs::write(&path, b"").expect("made");
                    fs::remove_file(&path).expect("removed");
                }
            });
        }
        let ask = || {
            for _ in 0..if is_slow() { 100 } else { 400 } {
                let handle = fixture.create(&root, "file", 0o666)?;
                fixture.attributes(&handle)?;
                match fixture.nfs(12, &named(&fixture, "file")).status() {
                    0 => {}
                    status => return Err(status),
                }
                for _ in 0..20 {
                    match fixture.attributes(&handle) {
                        Err(status) if status == Status::Stale as u32 => {}
                        other => return Err(other.err().unwrap_or(0)),
                    }
                }
            }
            Ok(())
        };
        let asked = ask();
        done.store(true, Ordering::Relaxed);
        asked
    });
    assert_eq!(asked, Ok(()));
}

#[test]
fn a_second_asker_waits_for_the_scan_that_is_on_its_way() {
    let state = tempfile::tempdir().expect("a directory");
    let keep = |options: &mut crate::Options| options.state = Some(state.path().to_owned());
    let fixture = Fixture::with(keep).without_handles();
    let names: Vec<String> = (0..4).map(|number| format!("file-{number}")).collect();
    let handles: Vec<Vec<u8>> = names.iter().map(|name| used(&fixture, name)).collect();
    fs::remove_file(fixture.path().join(&names[0])).expect("removed");
    // Nothing is remembered about any of them.
    let fixture = fixture.restarted(keep).without_handles();
    let export = fixture.export();
    let scan = export.scan_in_progress();
    std::thread::scope(|scope| {
        let fixture = &fixture;
        let askers: Vec<_> = handles
            .iter()
            .map(|handle| scope.spawn(|| fixture.attributes(handle).map(|found| found.size)))
            .collect();
        until_true("all wait", || {
            fixture.export().scan_waiters() == handles.len()
        });
        drop(scan);
        let found: Vec<_> = askers
            .into_iter()
            .map(std::thread::ScopedJoinHandle::join)
            .collect();
        for (number, found) in found.into_iter().enumerate() {
            let found = found.expect("no panic");
            let wanted = if number == 0 {
                Err(Status::Stale as u32)
            } else {
                Ok(5000)
            };
            assert_eq!(found, wanted, "{number}");
        }
    });
}

#[test]
fn no_more_than_a_few_wait_for_a_scan() {
    use crate::limits::SCAN_WAITERS_MAX;
    let state = tempfile::tempdir().expect("a directory");
    let keep = |options: &mut crate::Options| options.state = Some(state.path().to_owned());
    let fixture = Fixture::with(keep).without_handles();
    let handle = used(&fixture, "file");
    let fixture = fixture.restarted(keep).without_handles();
    let export = fixture.export();
    let scan = export.scan_in_progress();
    std::thread::scope(|scope| {
        let ask = || fixture.attributes(&handle).map(|found| found.size);
        let askers: Vec<_> = (0..SCAN_WAITERS_MAX).map(|_| scope.spawn(ask)).collect();
        until_true("as many wait as may", || {
            fixture.export().scan_waiters() == SCAN_WAITERS_MAX
        });
        assert_eq!(ask(), Err(Status::Later as u32));
        drop(scan);
        for asker in askers {
            assert_eq!(asker.join().expect("no panic"), Ok(5000));
        }
    });
}
