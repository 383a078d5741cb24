//! Calls that are tried on the network thread: what they answer is what a worker answers, and what
//! would wait is not answered. (All other tests of procedures try first as well: `testing.rs`.)

use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::time::Duration;

use flatpath_rpc::{Arguments, Call, Credential, Programs, Route};
use flatpath_testkit::mount::Mounted;
use rustix::fs::Advice;

use crate::testing::{Fixture, Results, Words, is_root, system};

const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const ACCESS: u32 = 4;
const READLINK: u32 = 5;
const READ: u32 = 6;
const READDIR: u32 = 16;
const READDIRPLUS: u32 = 17;

const STALE: u32 = 70;
const REFUSED: u32 = 13;

fn call(procedure: u32, credential: Credential) -> Call {
    Call {
        xid: 1,
        program: 100_003,
        version: 3,
        procedure,
        credential,
        peer: None,
        ..Call::default()
    }
}

/// What the network thread answers.
fn here(fixture: &Fixture, procedure: u32, words: &Words) -> Option<Results> {
    let call = call(procedure, fixture.credential);
    assert_eq!(fixture.nfs.route(&call), Route::Prompt);
    fixture.prompt(&call, words)
}

/// Returns when the clock of files has ticked: a read from then on sets the time of access to a
/// later one than that of the last change, so that the reads after it set none and may be tried.
fn wait_for_a_tick() {
    const TICK: Duration = Duration::from_millis(30);
    std::thread::sleep(TICK);
}

/// What a worker answers.
fn there(fixture: &Fixture, procedure: u32, words: &Words) -> Results {
    fixture
        .pooled(&call(procedure, fixture.credential), words)
        .1
}

fn file(handle: &[u8]) -> Words {
    Words::default().opaque(handle)
}

fn read(handle: &[u8]) -> Words {
    file(handle).long(0).word(4096)
}

fn name(directory: &[u8], name: &str) -> Words {
    file(directory).opaque(name.as_bytes())
}

#[test]
fn what_a_worker_has_answered_once_is_answered_without_a_wait_and_the_same() {
    let fixture = Fixture::new();
    fs::write(fixture.path().join("file"), "content").expect("written");
    symlink("file", fixture.path().join("link")).expect("linked");
    wait_for_a_tick();
    let root = fixture.root();
    let handle = fixture.lookup(&["file"]).expect("it is there");
    let link = fixture.lookup(&["link"]).expect("it is there");
    let mut calls = vec![
        (GETATTR, file(&handle)),
        (LOOKUP, name(&root, "file")),
        (ACCESS, file(&handle).word(0x3f)),
        (READLINK, file(&link)),
        (READ, read(&handle)),
    ];
    // FSSTAT, FSINFO, PATHCONF
    calls.extend([18, 19, 20].map(|procedure| (procedure, file(&root))));
    for (procedure, words) in calls {
        there(&fixture, procedure, &words);
        let answered = here(&fixture, procedure, &words);
        let expected = there(&fixture, procedure, &words);
        // The space that is free changes while others write.
        let comparable = procedure != 18;
        match answered {
            Some(answered) if comparable => assert!(answered.0 == expected.0, "{procedure}"),
            Some(answered) => assert_eq!(answered.status(), 0),
            None => panic!("procedure {procedure} was not answered"),
        }
    }
}

#[test]
fn what_is_not_open_or_was_not_asked_is_for_a_worker() {
    let fixture = Fixture::with(|_| {});
    let path = fixture.path().join("file");
    fs::write(&path, "content").expect("written");
    wait_for_a_tick();
    let handle = fixture.lookup(&["file"]).expect("it is there");
    assert!(
        here(&fixture, GETATTR, &file(&handle)).is_none(),
        "not open"
    );
    there(&fixture, GETATTR, &file(&handle));
    assert!(here(&fixture, GETATTR, &file(&handle)).is_some());
    let access = file(&handle).word(1);
    assert!(here(&fixture, ACCESS, &access).is_none(), "not asked");
    there(&fixture, ACCESS, &access);
    assert!(here(&fixture, ACCESS, &access).is_some());
    assert!(here(&fixture, READ, &read(&handle)).is_none(), "no reader");
    there(&fixture, READ, &read(&handle));
    assert!(here(&fixture, READ, &read(&handle)).is_some());
    let root = fixture.root();
    let unknown = name(&root, "never-asked-for");
    assert!(here(&fixture, LOOKUP, &unknown).is_none(), "not cached");
    let above = name(&root, "..");
    assert!(here(&fixture, LOOKUP, &above).is_none());
    let changing = call(7, fixture.credential);
    assert_eq!(fixture.nfs.route(&changing), Route::Once);
}

#[test]
fn a_worker_does_not_ask_again_where_a_file_is_that_a_try_has_found() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().expect("a directory");
    let (path, moved) = (fixture.path().join("file"), outside.path().join("file"));
    fs::write(&path, "content").expect("written");
    let handle = fixture.lookup(&["file"]).expect("it is there");
    there(&fixture, GETATTR, &file(&handle));
    // No reader is open, so the try gives up, after it has found the file. That it moves is seen by
    // whoever asks where it is.
    let reads = call(READ, fixture.credential);
    let answer = fixture.handed_over(&reads, &read(&handle), || {
        fs::rename(&path, &moved).expect("moved");
    });
    assert_eq!(answer.status(), 0, "it was inside when the call was tried");
    assert!(answer.0.ends_with(b"content\0"));
    assert_eq!(there(&fixture, READ, &read(&handle)).status(), STALE);
    let answer = fixture.handed_over(&reads, &read(&handle), || {});
    assert_eq!(answer.status(), STALE, "this try found nothing");
}

#[test]
fn data_that_is_not_cached_is_for_a_worker() {
    let fixture = Fixture::new();
    let path = fixture.path().join("file");
    fs::write(&path, [7; 65_536]).expect("written");
    wait_for_a_tick();
    let handle = fixture.lookup(&["file"]).expect("it is there");
    there(&fixture, READ, &read(&handle));
    assert!(here(&fixture, READ, &read(&handle)).is_some());
    if fixture.export().files.is_in_memory() {
        return;
    }
    let opened = fs::File::open(&path).expect("opened");
    opened.sync_all().expect("on disk");
    // A fast disk may have brought it before the answer, so it is tried a few times.
    let forgotten = (0..200).any(|_| {
        rustix::fs::fadvise(&opened, 0, None, Advice::DontNeed).expect("advice");
        let answered = here(&fixture, READ, &read(&handle));
        let was_cached = answered.is_some_and(|results| results.0.ends_with(&[7; 4096]));
        !was_cached
    });
    assert!(forgotten);
    // A try copies what is cached: to move pages into a pipe may wait for others.
    let words = file(&handle).long(0).word(65_536);
    assert_eq!(there(&fixture, READ, &words).status(), 0);
    assert_eq!(fixture.state().pipes.close_idle(), 1);
    assert!(here(&fixture, READ, &words).is_some());
    assert_eq!(fixture.state().pipes.open(), 0);
    // Nor is a part of it an answer: a short READ has the client ask again.
    rustix::fs::fadvise(&opened, 0, None, Advice::Random).expect("advice");
    let words = file(&handle).long(32_768).word(16_384);
    for _ in 0..200 {
        rustix::fs::fadvise(&opened, 0, None, Advice::DontNeed).expect("advice");
        opened.read_exact_at(&mut [0; 4096], 32_768).expect("read");
        if let Some(results) = here(&fixture, READ, &words) {
            assert!(results.0.ends_with(&[7; 16_384]));
        }
    }
    let (data, _) = fixture.read(&handle, 0, 4096).expect("a worker waits");
    assert_eq!(data, [7; 4096]);
}

#[test]
fn each_caller_has_its_own_rights_on_the_network_thread() {
    if !is_root() {
        return;
    }
    let mut fixture = Fixture::new();
    for (file, mode) in [("private", 0o600), ("secret/file", 0o644)] {
        let path = fixture.path().join(file);
        fs::create_dir_all(path.parent().expect("below")).expect("made");
        fs::write(&path, "content").expect("written");
        fs::set_permissions(&path, PermissionsExt::from_mode(mode)).expect("chmod");
        std::os::unix::fs::chown(&path, Some(1000), Some(1000)).expect("chown");
    }
    let secret = fixture.path().join("secret");
    std::os::unix::fs::chown(&secret, Some(1000), Some(1000)).expect("chown");
    let private = fixture.lookup(&["private"]).expect("it is there");
    let directory = fixture.lookup(&["secret"]).expect("it is there");
    fixture.lookup(&["secret", "file"]).expect("it is there");
    fs::set_permissions(&secret, PermissionsExt::from_mode(0o700)).expect("chmod");
    let (access, inner) = (file(&private).word(1), name(&directory, "file"));
    wait_for_a_tick();
    there(&fixture, ACCESS, &access);
    there(&fixture, READ, &read(&private));
    there(&fixture, LOOKUP, &inner);
    let granted = |results: &Results| *results.0.last().expect("the rights");
    for _ in 0..3 {
        fixture.credential = system(1000);
        let results = here(&fixture, ACCESS, &access).expect("it was asked");
        assert_eq!(granted(&results), 1);
        let results = here(&fixture, READ, &read(&private)).expect("cached");
        assert_eq!(results.status(), 0);
        let results = here(&fixture, LOOKUP, &inner).expect("cached");
        assert_eq!(results.status(), 0);
        fixture.credential = system(1001);
        let results = here(&fixture, ACCESS, &access).expect("it was asked");
        assert_eq!(granted(&results), 0);
        let results = here(&fixture, READ, &read(&private)).expect("no data is needed");
        assert_eq!(results.status(), REFUSED);
        let refused = here(&fixture, LOOKUP, &inner);
        assert!(refused.is_none_or(|results| results.status() == REFUSED));
        assert_eq!(there(&fixture, LOOKUP, &inner).status(), REFUSED);
        // This thread is root again: it reads what nobody may.
        let own = fixture.path().join("own");
        fs::write(&own, "root's").expect("written");
        fs::set_permissions(&own, PermissionsExt::from_mode(0o000)).expect("chmod");
        assert_eq!(fs::read(&own).expect("as root"), b"root's");
        fs::remove_file(&own).expect("removed");
    }
}

#[test]
fn a_file_that_was_removed_replaced_or_moved_out_is_not_answered_as_it_was() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir_in(fixture.path().parent().expect("below")).expect("made");
    let path = |name: &str| fixture.path().join(name);
    let open = |name: &str| {
        fs::write(path(name), name).expect("written");
        wait_for_a_tick();
        let handle = fixture.lookup(&[name]).expect("it is there");
        there(&fixture, READ, &read(&handle));
        assert!(here(&fixture, READ, &read(&handle)).is_some(), "{name}");
        handle
    };
    let stale = |handle: &[u8]| {
        for words in [file(handle), read(handle)] {
            let procedure = if words.0.len() > file(handle).0.len() {
                READ
            } else {
                GETATTR
            };
            let answered = here(&fixture, procedure, &words);
            assert!(answered.is_none_or(|results| results.status() == STALE));
        }
        assert_eq!(fixture.attributes(handle), Err(STALE));
    };
    let removed = open("removed");
    fs::remove_file(path("removed")).expect("removed");
    stale(&removed);
    let moved = open("moved");
    fs::rename(path("moved"), outside.path().join("moved")).expect("the same file system");
    stale(&moved);
    // Replaced: the name leads to the other file, at once.
    let (old, new) = (open("old"), open("new"));
    fs::rename(path("new"), path("old")).expect("renamed");
    let results = here(&fixture, LOOKUP, &name(&fixture.root(), "old")).expect("cached");
    assert!(results.0.windows(new.len()).any(|part| part == new));
    stale(&old);
    wait_for_a_tick();
    there(&fixture, READ, &read(&new));
    let results = here(&fixture, READ, &read(&new)).expect("it has another name");
    assert!(results.0.windows(3).any(|part| part == b"new"));
}

#[test]
fn a_directory_is_not_listed_on_the_network_thread() {
    // Even in memory: the kernel takes the directory's lock, which whoever creates in it holds.
    let fixture = Fixture::new();
    for procedure in [READDIR, READDIRPLUS] {
        let call = call(procedure, fixture.credential);
        assert_eq!(fixture.nfs.route(&call), Route::Pooled);
    }
}

#[test]
fn data_that_a_file_system_never_tells_of_is_not_tried_again() {
    let lower = tempfile::tempdir().expect("a directory");
    fs::write(lower.path().join("file"), "content").expect("written");
    let Some(overlay) = Mounted::overlay(lower.path()) else {
        return;
    };
    let fixture = Fixture::with(|options| options.directory = overlay.path().to_path_buf());
    let handle = fixture.lookup(&["file"]).expect("it is there");
    let tries = || {
        let call = call(READ, fixture.credential);
        let tried = (0..5).filter(|_| {
            let words = read(&handle);
            let right = fixture.nfs.prompt_right(&call, Arguments::new(&words.0));
            let is_tried = right.is_some();
            assert!(!is_tried || fixture.prompt(&call, &read(&handle)).is_none());
            assert_eq!(there(&fixture, READ, &read(&handle)).status(), 0);
            is_tried
        });
        tried.count()
    };
    // The first has no reader yet, the second is refused.
    assert_eq!((tries(), tries()), (2, 0));
    assert!(here(&fixture, GETATTR, &file(&handle)).is_some());
}

#[test]
fn in_an_export_of_a_whole_file_system_a_file_is_inside_while_it_has_a_name() {
    let Some(mounted) = Mounted::tmpfs() else {
        return;
    };
    let at = mounted.path().to_path_buf();
    let fixture = Fixture::with(|options| options.directory.clone_from(&at));
    assert!(fixture.export().is_whole());
    assert!(!Fixture::new().export().is_whole());
    fs::create_dir(at.join("directory")).expect("made");
    let open = |path: &[&str]| {
        let handle = fixture.lookup(path).expect("it is there");
        there(&fixture, GETATTR, &file(&handle));
        assert!(here(&fixture, GETATTR, &file(&handle)).is_some());
        handle
    };
    let gone = |handle: &[u8]| {
        assert!(here(&fixture, GETATTR, &file(handle)).is_none());
        assert_eq!(fixture.attributes(handle), Err(STALE));
    };
    fs::write(at.join("directory/file"), "content").expect("written");
    let (directory, inner) = (open(&["directory"]), open(&["directory", "file"]));
    // Moved, with its directory and alone: still the same file, at once.
    fs::rename(at.join("directory"), at.join("renamed")).expect("renamed");
    assert!(here(&fixture, GETATTR, &file(&inner)).is_some());
    fs::rename(at.join("renamed/file"), at.join("file")).expect("renamed");
    assert!(here(&fixture, GETATTR, &file(&inner)).is_some());
    // Another name is as good as the first one, until it goes, too.
    fs::hard_link(at.join("file"), at.join("other")).expect("linked");
    fs::remove_file(at.join("file")).expect("removed");
    assert!(here(&fixture, GETATTR, &file(&inner)).is_some());
    fs::remove_file(at.join("other")).expect("removed");
    gone(&inner);
    fs::remove_dir(at.join("renamed")).expect("removed");
    gone(&directory);
}
