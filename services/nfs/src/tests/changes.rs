//! CREATE, MKDIR, SYMLINK, MKNOD, REMOVE, RMDIR, RENAME, LINK, SETATTR.

use std::fs;
use std::mem::MaybeUninit;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use crate::status::Status;
use crate::testing::{Fixture, Found, Results, Words};

pub(super) fn exclusive(fixture: &Fixture, name: &str, verifier: u64) -> Result<Vec<u8>, u32> {
    let root = fixture.root();
    let words = Words::default()
        .opaque(&root)
        .opaque(name.as_bytes())
        .word(2)
        .long(verifier);
    fixture.made(8, &words)
}

/// `wcc_data`: size, modification and change before, and the attributes after.
fn change(results: &Results, skip: usize) -> (Option<(u64, u64, u64)>, Option<Found>) {
    let mut reader = flatpath_rpc::xdr::Reader::new(&results.0[skip..]);
    let before = reader.boolean().expect("a word").then(|| {
        let mut long = || reader.u64().expect("a word");
        (long(), long(), long())
    });
    let after = reader
        .boolean()
        .expect("a word")
        .then(|| Found::read(&mut reader));
    (before, after)
}

#[test]
fn an_exclusive_create_is_known_again_by_its_verifier_even_after_a_restart() {
    let state = tempfile::tempdir().expect("a directory");
    let keep = |options: &mut crate::Options| options.state = Some(state.path().to_owned());
    let fixture = Fixture::with(keep);
    let made = exclusive(&fixture, "file", 0x1234_5678_9abc_def0).expect("made");
    assert_eq!(
        exclusive(&fixture, "file", 0x1234_5678_9abc_def0),
        Ok(made.clone())
    );
    // Another verifier, in any of its halves, is another client's.
    for other in [7, 0x1234_5678_9abc_def1, 0x1234_5679_9abc_def0] {
        let taken = exclusive(&fixture, "file", other);
        assert_eq!(taken, Err(Status::Exists as u32), "{other:#x}");
    }
    let fixture = fixture.restarted(keep);
    assert_eq!(
        exclusive(&fixture, "file", 0x1234_5678_9abc_def0),
        Ok(made.clone())
    );
    assert_eq!(fixture.write(&made, 0, b"x", 0), 0);
    let again = exclusive(&fixture, "file", 0x1234_5678_9abc_def0);
    assert_eq!(again, Err(Status::Exists as u32), "it is in use by now");
}

/// A process may be killed between any two steps, so the kernel is asked in which order they were:
/// after the name there is none.
#[test]
fn the_name_of_an_exclusive_create_comes_after_its_verifier() {
    let fixture = Fixture::new();
    let watch = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK).expect("a watch");
    let steps = WatchFlags::CREATE | WatchFlags::ATTRIB | WatchFlags::MODIFY;
    inotify::add_watch(&watch, fixture.path(), steps).expect("watched");
    let made = exclusive(&fixture, "file", 7).expect("made");
    let mut room = [MaybeUninit::uninit(); 4096];
    let mut reader = inotify::Reader::new(&watch, &mut room);
    let mut seen = Vec::new();
    while let Ok(event) = reader.next() {
        seen.push((event.events(), event.file_name() == Some(c"file")));
    }
    assert_eq!(seen.last(), Some(&(ReadFlags::CREATE, true)), "{seen:?}");
    assert_eq!(exclusive(&fixture, "file", 7), Ok(made), "it is known");
    let found = fs::metadata(fixture.path().join("file")).expect("there");
    assert_eq!((found.nlink(), found.mode() & 0o7777), (1, 0o600));
}

#[test]
fn who_may_not_write_in_a_directory_is_told_of_a_name_that_is_taken() {
    let fixture = Fixture::new();
    let within = fixture.path().join("within");
    fs::create_dir(&within).expect("made");
    fs::write(within.join("file"), "text").expect("made");
    let closed = fs::Permissions::from_mode(0o555);
    fs::set_permissions(&within, closed).expect("ours");
    let handle = fixture.lookup(&["within"]).expect("there");
    let create = |name: &str| {
        let words = Words::default().opaque(&handle).opaque(name.as_bytes());
        fixture.made(8, &words.word(2).long(7))
    };
    assert_eq!(create("file"), Err(Status::Exists as u32));
    assert_eq!(create("new"), Err(Status::Access as u32));
    assert_eq!(fs::read_dir(&within).expect("there").count(), 1);
}

#[test]
fn a_repeat_of_an_exclusive_create_is_of_a_file_that_nothing_was_done_with() {
    const VERIFIER: u64 = 0x1234_5678_9abc_def0;
    let fixture = Fixture::new();
    let path = fixture.path().join("file");
    let times = |path: &std::path::Path| {
        let found = fs::metadata(path).expect("there");
        let times = fs::FileTimes::new().set_accessed(found.accessed().expect("known"));
        times.set_modified(found.modified().expect("known"))
    };
    // Data of another client, or of a program here, and the times as the create has left them.
    let made = exclusive(&fixture, "file", VERIFIER).expect("made");
    let as_made = times(&path);
    assert_eq!(fixture.write(&made, 0, b"data", 2), 0);
    let file = fs::File::options().write(true).open(&path).expect("there");
    file.set_times(as_made).expect("set");
    let taken = exclusive(&fixture, "file", VERIFIER);
    assert_eq!(taken, Err(Status::Exists as u32), "it has data");
    assert_eq!(fs::read(&path).expect("there"), b"data");
    // Empty again, it is as it was made.
    file.set_len(0).expect("emptied");
    file.set_times(as_made).expect("set");
    assert_eq!(exclusive(&fixture, "file", VERIFIER), Ok(made));
    // What is no file is none that was made so, whatever its times.
    fs::create_dir(fixture.path().join("directory")).expect("made");
    let directory = fs::File::open(fixture.path().join("directory")).expect("there");
    directory.set_times(as_made).expect("set");
    let taken = exclusive(&fixture, "directory", VERIFIER);
    assert_eq!(taken, Err(Status::Exists as u32));
}

#[test]
fn a_guarded_create_fails_where_an_unchecked_one_empties_the_file() {
    let fixture = Fixture::new();
    let root = fixture.root();
    let at = |how: u32| Words::default().opaque(&root).opaque(b"file").word(how);
    let made = fixture.made(8, &at(1).mode(0o644)).expect("made");
    assert_eq!(fixture.write(&made, 0, b"text", 0), 0);
    assert_eq!(
        fixture.made(8, &at(1).mode(0o644)),
        Err(Status::Exists as u32)
    );
    assert_eq!(fixture.made(8, &at(0).mode(0o600)), Ok(made.clone()));
    let found = fs::metadata(fixture.path().join("file")).expect("there");
    assert_eq!(
        (found.len(), found.mode() & 0o777),
        (4, 0o644),
        "only a size is set"
    );
    let emptied = [0, 0, 0, 1, 0, 0, 0, 0]
        .into_iter()
        .fold(at(0), Words::word);
    assert_eq!(fixture.made(8, &emptied), Ok(made));
    assert_eq!(
        fs::metadata(fixture.path().join("file"))
            .expect("there")
            .len(),
        0
    );
    fs::create_dir(fixture.path().join("dir")).expect("a directory");
    let words = Words::default()
        .opaque(&root)
        .opaque(b"dir")
        .word(0)
        .unset();
    assert_eq!(fixture.made(8, &words), Err(Status::Exists as u32));
}

#[test]
fn a_new_file_has_the_size_that_was_named() {
    let fixture = Fixture::new();
    let at = Words::default().opaque(&fixture.root()).opaque(b"file");
    let sized = [0, 0, 0, 0, 1, 0, 5, 0, 0];
    let made = fixture.made(8, &sized.into_iter().fold(at, Words::word));
    assert_eq!(
        fixture.read(&made.expect("made"), 0, 9),
        Ok((vec![0; 5], true))
    );
}

#[test]
fn a_create_never_follows_a_link() {
    let fixture = Fixture::new();
    let outside = tempfile::tempdir().expect("a directory");
    let target = outside.path().join("target");
    std::os::unix::fs::symlink(&target, fixture.path().join("link")).expect("a link");
    let made = fixture.create(&fixture.root(), "link", 0o644);
    assert_eq!(made, Err(Status::Exists as u32));
    assert!(!target.exists());
}

#[test]
fn links_sockets_and_pipes_are_made_and_other_kinds_refused() {
    let fixture = Fixture::new();
    let root = fixture.root();
    let at = |name: &[u8]| Words::default().opaque(&root).opaque(name);
    let link = fixture
        .made(10, &at(b"link").unset().opaque(b"some/where"))
        .expect("made");
    let read = fixture.nfs(5, &Words::default().opaque(&link));
    assert!(read.0.ends_with(b"\0\0\0\x0asome/where\0\0"));
    let short = fixture.made(10, &at(b"short").unset().opaque(b"x"));
    let read = fixture.nfs(5, &Words::default().opaque(&short.expect("made")));
    assert!(read.0.ends_with(b"\0\0\0\x01x\0\0\0"));
    let long = vec![b'x'; 4096];
    let refused = fixture.made(10, &at(b"long").unset().opaque(&long));
    assert_eq!(refused, Err(Status::NameTooLong as u32));
    let link = fixture
        .made(10, &at(b"most").unset().opaque(&long[..4095]))
        .expect("made");
    let read = fixture.nfs(5, &Words::default().opaque(&link));
    assert!(read.0.ends_with(&[b'x', 0]) && read.0.len() > 4095);
    for target in [&b""[..], b"a\0b"] {
        let refused = fixture.made(10, &at(b"no link").unset().opaque(target));
        assert_eq!(refused, Err(Status::Invalid as u32));
    }
    // What has no size is made, whatever size is named; nor has a link a mode.
    let sized = |words: Words| {
        [1, 0o640, 0, 0, 1, 0, 5, 0, 0]
            .into_iter()
            .fold(words, Words::word)
    };
    assert!(fixture.made(9, &sized(at(b"sized dir"))).is_ok());
    let link = sized(at(b"sized link")).opaque(b"target");
    assert!(fixture.made(10, &link).is_ok());
    for (name, kind) in [(b"socket", 6), (b"a pipe", 7)] {
        let made = fixture.made(11, &sized(at(name).word(kind)));
        let found = fixture.attributes(&made.expect("made")).expect("there");
        assert_eq!((found.kind, found.mode), (kind, 0o640));
    }
    let pipe = fixture.lookup(&["a pipe"]).expect("made");
    assert_eq!(
        fixture.made(11, &at(b"x").word(1)),
        Err(Status::BadType as u32)
    );
    let read = fixture.nfs(5, &Words::default().opaque(&pipe));
    assert_eq!(read.status(), Status::Invalid as u32);
}

#[test]
fn what_is_removed_is_gone_and_kinds_are_not_mixed_up() {
    let fixture = Fixture::new();
    let root = fixture.root();
    fs::create_dir_all(fixture.path().join("dir/below")).expect("directories");
    fs::write(fixture.path().join("file"), b"").expect("a file");
    let call = |procedure, name: &[u8]| {
        fixture
            .nfs(procedure, &Words::default().opaque(&root).opaque(name))
            .status()
    };
    assert_eq!(call(12, b"dir"), Status::IsDirectory as u32);
    assert_eq!(call(13, b"file"), Status::NotDirectory as u32);
    assert_eq!(call(13, b"dir"), Status::NotEmpty as u32);
    assert_eq!(call(12, b"none"), Status::NoEntry as u32);
    assert_eq!(call(13, b"."), Status::Invalid as u32);
    assert_eq!(call(13, b".."), Status::Exists as u32);
    assert_eq!(call(12, b"file"), 0);
    fs::remove_dir(fixture.path().join("dir/below")).expect("removed");
    assert_eq!(call(13, b"dir"), 0);
    assert_eq!(fs::read_dir(fixture.path()).expect("there").count(), 0);
}

#[test]
fn a_rename_moves_between_directories_and_over_what_is_there() {
    let fixture = Fixture::new();
    let path = fixture.path();
    fs::create_dir(path.join("a")).expect("a directory");
    fs::create_dir(path.join("b")).expect("a directory");
    fs::write(path.join("a/file"), b"new").expect("a file");
    fs::write(path.join("b/other"), b"old").expect("a file");
    let (a, b) = (
        fixture.lookup(&["a"]).expect("a"),
        fixture.lookup(&["b"]).expect("b"),
    );
    let file = fixture.lookup(&["a", "file"]).expect("found");
    let rename = |from: &[u8], name: &[u8], to: &[u8], new: &[u8]| {
        let words = Words::default()
            .opaque(from)
            .opaque(name)
            .opaque(to)
            .opaque(new);
        fixture.nfs(14, &words)
    };
    let results = rename(&a, b"file", &b, b"other");
    assert_eq!(results.status(), 0);
    assert_eq!(fs::read(path.join("b/other")).expect("there"), b"new");
    assert_eq!(fixture.lookup(&["b", "other"]), Ok(file));
    let (before, after) = change(&results, 4);
    assert!(before.is_some() && after.is_some_and(|after| after.kind == 2));
    let into_itself = rename(&fixture.root(), b"a", &a, b"x");
    assert_eq!(into_itself.status(), Status::Invalid as u32);
    assert_eq!(
        rename(&a, b"none", &b, b"x").status(),
        Status::NoEntry as u32
    );
    assert_eq!(rename(&a, b"..", &b, b"x").status(), Status::Invalid as u32);
}

#[test]
fn a_link_is_another_name_of_the_same_file() {
    let fixture = Fixture::new();
    let root = fixture.root();
    let file = fixture.create(&root, "file", 0o644).expect("made");
    let words = Words::default().opaque(&file).opaque(&root).opaque(b"name");
    let results = fixture.nfs(15, &words);
    assert_eq!(results.status(), 0);
    assert_eq!(fixture.lookup(&["name"]), Ok(file.clone()));
    assert_eq!(fixture.attributes(&file).expect("there").links, 2);
    assert_eq!(fixture.nfs(15, &words).status(), Status::Exists as u32);
    let words = Words::default().opaque(&root).opaque(&root).opaque(b"loop");
    assert_eq!(fixture.nfs(15, &words).status(), Status::IsDirectory as u32);
    let words = Words::default()
        .opaque(&root)
        .opaque(b"link")
        .unset()
        .opaque(b"file");
    let link = fixture.made(10, &words).expect("made");
    let words = Words::default()
        .opaque(&link)
        .opaque(&root)
        .opaque(b"link2");
    assert_eq!(
        fixture.nfs(15, &words).status(),
        0,
        "a link to the link, not to its target"
    );
    assert!(
        fs::symlink_metadata(fixture.path().join("link2"))
            .expect("there")
            .is_symlink()
    );
}

#[test]
fn names_that_are_no_names_are_refused_everywhere() {
    let fixture = Fixture::new();
    let root = fixture.root();
    let long = vec![b'n'; 256];
    for (name, status) in [
        (&b""[..], Status::Invalid),
        (b"a/b", Status::Invalid),
        (b"/etc/passwd", Status::Invalid),
        (b"a\0b", Status::Invalid),
        (&long, Status::NameTooLong),
    ] {
        let at = Words::default().opaque(&root).opaque(name);
        assert_eq!(fixture.nfs(3, &at).status(), status as u32);
        for (procedure, tail) in [(8, &[0; 7][..]), (9, &[0; 6]), (12, &[]), (13, &[])] {
            let at = Words::default().opaque(&root).opaque(name);
            let words = tail.iter().copied().fold(at, Words::word);
            assert_eq!(
                fixture.nfs(procedure, &words).status(),
                status as u32,
                "{procedure}"
            );
        }
    }
    for name in [&b"."[..], b".."] {
        let words = Words::default().opaque(&root).opaque(name).unset();
        assert_eq!(fixture.nfs(9, &words).status(), Status::Exists as u32);
    }
    assert_eq!(
        fixture.lookup(&[".."]),
        Ok(fixture.root()),
        "the root is its own parent"
    );
    assert_eq!(fixture.lookup(&["."]), Ok(fixture.root()));
}

#[test]
fn attributes_are_set_and_a_guard_keeps_late_changes_off() {
    let fixture = Fixture::new();
    let file = fixture
        .create(&fixture.root(), "file", 0o644)
        .expect("made");
    assert_eq!(fixture.write(&file, 0, b"0123456789", 0), 0);
    let changed = fixture.attributes(&file).expect("there").changed;
    // Mode, no user, no group, size 4, access time now, modification time of the client.
    let wanted = [1, 0o600, 0, 0, 1, 0, 4, 1, 2, 1000, 500];
    let words = wanted
        .into_iter()
        .fold(Words::default().opaque(&file), Words::word);
    let words = words.word(1).word(changed.0).word(changed.1);
    let results = fixture.nfs(2, &words);
    assert_eq!(results.status(), 0);
    let (before, after) = change(&results, 4);
    assert_eq!(before.map(|before| before.0), Some(10));
    let after = after.expect("attributes");
    assert_eq!(
        (after.size, after.mode, after.modified),
        (4, 0o600, (1000, 500))
    );
    assert_eq!(
        fixture.nfs(2, &words).status(),
        Status::NotSynchronised as u32
    );
    assert_eq!(
        fs::read(fixture.path().join("file")).expect("there"),
        b"0123"
    );
    let link = Words::default()
        .opaque(&fixture.root())
        .opaque(b"link")
        .unset()
        .opaque(b"x");
    let link = fixture.made(10, &link).expect("made");
    let set = |times: &[u32]| {
        let words = [0; 4].iter().chain(times).copied();
        let words = words.fold(Words::default().opaque(&link), Words::word);
        assert_eq!(fixture.nfs(2, &words.word(0)).status(), 0);
        // Of the link, not of its target.
        let found = fs::symlink_metadata(fixture.path().join("link")).expect("there");
        (found.atime(), found.mtime())
    };
    assert_eq!(set(&[2, 7, 0, 2, 9, 0]), (7, 9));
    assert_eq!(set(&[2, 11, 0, 0]), (11, 9), "one alone");
    assert_eq!(set(&[0, 2, 13, 0]), (11, 13), "the other alone");
}

#[test]
fn a_change_of_a_directory_tells_what_it_was_before_and_after() {
    let fixture = Fixture::new();
    let root = fixture.root();
    let before = fixture.attributes(&root).expect("there");
    let words = Words::default().opaque(&root).opaque(b"dir").mode(0o755);
    let results = fixture.nfs(9, &words);
    assert_eq!(results.status(), 0);
    let handle = 4 + 4 + 4 + fixture.lookup(&["dir"]).expect("found").len();
    let (was, is) = change(&results, handle + 4 + 84);
    let time = |time: (u32, u32)| (u64::from(time.0) << 32) | u64::from(time.1);
    assert_eq!(
        was,
        Some((before.size, time(before.modified), time(before.changed)))
    );
    assert_eq!(is, fixture.attributes(&root).ok());
}
