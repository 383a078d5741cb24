//! READDIR, READDIRPLUS, and what a file system says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};

use flatpath_testkit::{fuse, patience};

use crate::limits::GRANT_AGE_MIN;
use crate::status::Status;
use crate::testing::{Fixture, Found, Results, Words};

#[derive(Debug)]
struct Entry {
    inode: u64,
    name: String,
    cookie: u64,
    handle: Option<Vec<u8>>,
}

struct Page {
    verifier: u64,
    entries: Vec<Entry>,
    ended: bool,
    bytes: usize,
}

fn page(
    fixture: &Fixture,
    directory: &[u8],
    (cookie, verifier): (u64, u64),
    bytes: u32,
    plus: bool,
) -> Result<Page, u32> {
    let words = Words::default()
        .opaque(directory)
        .long(cookie)
        .long(verifier)
        .word(bytes);
    let (procedure, words) = if plus {
        (17, words.word(bytes))
    } else {
        (16, words)
    };
    let results = fixture.nfs(procedure, &words);
    match results.status() {
        0 => Ok(read_page(&results, plus)),
        status => Err(status),
    }
}

fn read_page(results: &Results, plus: bool) -> Page {
    let mut reader = results.reader();
    assert_eq!(reader.u32(), Ok(0));
    assert_eq!(reader.boolean(), Ok(true));
    Found::read(&mut reader);
    let verifier = reader.u64().expect("a verifier");
    let mut entries = Vec::new();
    while reader.boolean().expect("a word") {
        let inode = reader.u64().expect("a number");
        let name = String::from_utf8(reader.opaque(255).expect("a name").to_vec()).expect("text");
        let cookie = reader.u64().expect("a cookie");
        let mut handle = None;
        if plus {
            if reader.boolean().expect("a word") {
                assert_eq!(Found::read(&mut reader).inode, inode, "{name}");
            }
            if reader.boolean().expect("a word") {
                handle = Some(reader.opaque(64).expect("a handle").to_vec());
            }
        }
        entries.push(Entry {
            inode,
            name,
            cookie,
            handle,
        });
    }
    let ended = reader.boolean().expect("a word");
    assert_eq!(reader.end(), Ok(()));
    Page {
        verifier,
        entries,
        ended,
        bytes: results.0.len() - 4,
    }
}

fn all(fixture: &Fixture, directory: &[u8], bytes: u32, plus: bool) -> Vec<Entry> {
    let (mut position, mut entries) = ((0, 0), Vec::new());
    for _ in 0..100_000 {
        let page = page(fixture, directory, position, bytes, plus).expect("a page");
        assert!(page.bytes <= bytes as usize, "no longer than asked for");
        assert!(page.ended || !page.entries.is_empty(), "something comes");
        if let Some(last) = page.entries.last() {
            position = (last.cookie, page.verifier);
        }
        entries.extend(page.entries);
        if page.ended {
            return entries;
        }
    }
    panic!("a listing ends");
}

fn names(entries: &[Entry]) -> BTreeSet<String> {
    entries.iter().map(|entry| entry.name.clone()).collect()
}

#[test]
fn every_entry_is_listed_once_whatever_the_size_of_the_pages() {
    let fixture = Fixture::new();
    let mut expected: BTreeSet<String> = [".", ".."].map(str::to_owned).into();
    for number in 0..2500 {
        let name = format!("file-{number}");
        fs::write(fixture.path().join(&name), b"").expect("a file");
        expected.insert(name);
    }
    let root = fixture.root();
    for (bytes, plus) in [
        (300, false),
        (4096, false),
        (32_768, false),
        (600, true),
        (1 << 20, true),
    ] {
        let entries = all(&fixture, &root, bytes.min(32_768), plus);
        assert_eq!(entries.len(), expected.len(), "{bytes}");
        assert_eq!(names(&entries), expected);
    }
}

#[test]
fn a_mount_below_is_listed_by_its_name_alone_and_not_asked() {
    const REFUSED: u32 = 13;
    let fixture = Fixture::new();
    fs::create_dir(fixture.path().join("sub")).expect("a directory");
    let mounted = fixture.path().join("sub/mounted");
    fs::create_dir(&mounted).expect("a directory");
    fs::write(fixture.path().join("sub/file"), b"").expect("a file");
    let Some(fuse) = fuse::try_mount(&mounted, Vec::new()) else {
        return;
    };
    // From then on entries are looked up by their names alone.
    std::thread::sleep(GRANT_AGE_MIN);
    let directory = fixture.lookup(&["sub"]).expect("there");
    fuse.pause();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let entries = all(&fixture, &directory, 32_768, true);
            let removed = Words::default().opaque(&directory).opaque(b"mounted");
            let statuses = [13, 12].map(|procedure| fixture.nfs(procedure, &removed).status());
            sender.send((entries, statuses)).expect("waited for");
        });
        let done = receiver.recv_timeout(patience());
        fuse.resume();
        let (entries, statuses) = done.expect("the mount hangs, and nobody asks it");
        let handles = entries
            .iter()
            .map(|entry| (&entry.name[..], entry.handle.is_some()));
        let handles: BTreeMap<_, _> = handles.collect();
        assert_eq!(
            handles,
            [
                (".", true),
                ("..", true),
                ("file", true),
                ("mounted", false)
            ]
            .into()
        );
        // RMDIR and REMOVE: a client that is told to ask again would do so for ever.
        assert_eq!(statuses[0], REFUSED);
        assert_ne!(statuses[1], Status::Later as u32);
    });
}

#[test]
fn a_listing_goes_on_while_what_it_listed_is_removed() {
    let fixture = Fixture::new();
    for number in 0..1000 {
        fs::write(fixture.path().join(format!("file-{number}")), b"").expect("a file");
    }
    let root = fixture.root();
    let (mut position, mut seen) = ((0, 0), BTreeSet::new());
    loop {
        let page = page(&fixture, &root, position, 1024, false).expect("a page");
        for entry in &page.entries {
            position = (entry.cookie, page.verifier);
            if !entry.name.starts_with('.') {
                assert!(seen.insert(entry.name.clone()), "{} comes once", entry.name);
                let words = Words::default().opaque(&root).opaque(entry.name.as_bytes());
                assert_eq!(fixture.nfs(12, &words).status(), 0);
            }
        }
        if page.ended {
            break;
        }
    }
    assert_eq!(seen.len(), 1000);
    assert_eq!(fs::read_dir(fixture.path()).expect("there").count(), 0);
}

#[test]
fn what_stays_is_listed_while_others_come_and_go() {
    let fixture = Fixture::new();
    for number in 0..500 {
        fs::write(fixture.path().join(format!("stays-{number}")), b"").expect("a file");
    }
    let root = fixture.root();
    let (mut position, mut seen, mut round) = ((0, 0), Vec::new(), 0);
    loop {
        let page = page(&fixture, &root, position, 600, true).expect("a page");
        for entry in page.entries {
            position = (entry.cookie, page.verifier);
            seen.push(entry.name);
        }
        if page.ended {
            break;
        }
        fs::write(fixture.path().join(format!("comes-{round}")), b"").expect("a file");
        if round > 0 {
            let _ = fs::remove_file(fixture.path().join(format!("comes-{}", round - 1)));
        }
        round += 1;
        assert!(round < 10_000, "a listing ends");
    }
    seen.retain(|name| name.starts_with("stays-"));
    assert_eq!(seen.len(), 500);
    assert_eq!(seen.into_iter().collect::<BTreeSet<String>>().len(), 500);
}

#[test]
fn cookies_outlive_the_server_and_belong_to_their_directory() {
    let state = tempfile::tempdir().expect("a directory");
    let keep = |options: &mut crate::Options| options.state = Some(state.path().to_owned());
    let fixture = Fixture::with(keep);
    fs::create_dir(fixture.path().join("dir")).expect("a directory");
    for number in 0..100 {
        fs::write(fixture.path().join(format!("dir/{number}")), b"").expect("a file");
    }
    let directory = fixture.lookup(&["dir"]).expect("found");
    let first = page(&fixture, &directory, (0, 0), 600, false).expect("a page");
    let position = (first.entries.last().expect("some").cookie, first.verifier);
    let fixture = fixture.restarted(keep);
    let rest = page(&fixture, &directory, position, 32_768, false).expect("a page");
    assert!(rest.ended);
    assert_eq!(first.entries.len() + rest.entries.len(), 102);
    let bad = Err(Status::BadCookie as u32);
    let page = |directory: &[u8], position| {
        page(&fixture, directory, position, 4096, false).map(|page| page.entries.len())
    };
    assert_eq!(page(&directory, (position.0, position.1 ^ 1)), bad);
    assert_eq!(page(&directory, (u64::MAX, position.1)), bad);
    assert_eq!(page(&fixture.root(), position), bad, "another directory");
}

#[test]
fn a_page_too_small_for_an_entry_is_refused() {
    let fixture = Fixture::new();
    let root = fixture.root();
    for bytes in [0, 100, 110] {
        let small = page(&fixture, &root, (0, 0), bytes, false).err();
        assert_eq!(small, Some(Status::TooSmall as u32), "{bytes}");
    }
    assert!(page(&fixture, &root, (0, 0), 140, false).is_ok());
}

#[test]
fn a_listing_with_handles_keeps_both_bounds() {
    let fixture = Fixture::new();
    for name in ["a", "four", "longer"] {
        fs::write(fixture.path().join(name), b"").expect("a file");
    }
    let root = fixture.root();
    let whole = all(&fixture, &root, 8192, true);
    // Whether another follows, number, length, name, cookie.
    let bytes = |entry: &Entry| 4 + 8 + 4 + entry.name.len().next_multiple_of(4) + 8;
    let mut names_bytes = 0;
    for (at, entry) in whole.iter().enumerate() {
        names_bytes += bytes(entry);
        for (less, expected) in [(0, at + 1), (1, at)] {
            let words = Words::default().opaque(&root).long(0).long(0);
            let most = u32::try_from(names_bytes - less).expect("few");
            let results = fixture.nfs(17, &words.word(most).word(8192));
            let listed = match results.status() {
                0 => names(&read_page(&results, true).entries),
                status => {
                    assert_eq!(status, Status::TooSmall as u32);
                    BTreeSet::new()
                }
            };
            assert_eq!(listed, names(&whole[..expected]), "{names_bytes} - {less}");
        }
    }
}

#[test]
fn handles_in_a_listing_are_those_that_lookup_gives() {
    for handles in [true, false] {
        let mut fixture = Fixture::new();
        if !handles {
            fixture = fixture.without_handles();
        }
        fs::create_dir(fixture.path().join("dir")).expect("a directory");
        fs::write(fixture.path().join("file"), b"").expect("a file");
        std::os::unix::fs::symlink("file", fixture.path().join("link")).expect("a link");
        for entry in all(&fixture, &fixture.root(), 8192, true) {
            let handle = entry.handle.expect("everything here is ours");
            assert_eq!(
                fixture.lookup(&[&entry.name]),
                Ok(handle.clone()),
                "{}",
                entry.name
            );
            assert_eq!(
                fixture.attributes(&handle).expect("there").inode,
                entry.inode
            );
        }
    }
}

/// Two files swap their names all the time: every handle must be that of the file with the number
/// beside it.
#[test]
fn handles_in_a_listing_are_those_of_their_entries_while_names_are_swapped() {
    let fixture = Fixture::new();
    let paths = ["one", "two"].map(|name| fixture.path().join(name));
    for path in &paths {
        fs::write(path, b"").expect("a file");
    }
    let handles = ["one", "two"].map(|name| {
        let handle = fixture.lookup(&[name]).expect("found");
        (fixture.attributes(&handle).expect("there").inode, handle)
    });
    let handles = BTreeMap::from(handles);
    let ended = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !ended.load(Ordering::Relaxed) {
                let flags = rustix::fs::RenameFlags::EXCHANGE;
                let swapped = rustix::fs::renameat_with(
                    rustix::fs::CWD,
                    &paths[0],
                    rustix::fs::CWD,
                    &paths[1],
                    flags,
                );
                // Not on every file system; then nothing is swapped.
                if swapped.is_err() {
                    return;
                }
            }
        });
        let _end = Ending(&ended);
        for _ in 0..500 {
            for entry in all(&fixture, &fixture.root(), 8192, true) {
                if let Some(handle) = handles.get(&entry.inode) {
                    assert_eq!(entry.handle.as_ref(), Some(handle), "{}", entry.name);
                }
            }
        }
    });
}

/// Ends the other thread, also by a panic.
struct Ending<'a>(&'a AtomicBool);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn nothing_above_the_export_is_shown() {
    let fixture = Fixture::new();
    fs::create_dir(fixture.path().join("dir")).expect("a directory");
    let root = fs::metadata(fixture.path()).expect("there").ino();
    for plus in [false, true] {
        for entry in all(&fixture, &fixture.root(), 8192, plus) {
            if entry.name == ".." {
                assert_eq!(entry.inode, root);
            }
        }
        let below = all(
            &fixture,
            &fixture.lookup(&["dir"]).expect("found"),
            8192,
            plus,
        );
        assert!(
            below
                .iter()
                .any(|entry| entry.name == ".." && entry.inode == root)
        );
    }
}

#[test]
fn a_file_is_no_directory_to_list() {
    let fixture = Fixture::new();
    fs::write(fixture.path().join("file"), b"").expect("a file");
    let file = fixture.lookup(&["file"]).expect("found");
    let refused = page(&fixture, &file, (0, 0), 4096, false).err();
    assert_eq!(refused, Some(Status::NotDirectory as u32));
}

#[test]
fn the_file_system_says_what_it_is() {
    let fixture = Fixture::new();
    let root = Words::default().opaque(&fixture.root());
    for (procedure, bytes) in [(18, 6 * 8 + 4), (19, 7 * 4 + 8 + 8 + 4), (20, 6 * 4)] {
        let results = fixture.nfs(procedure, &root);
        assert_eq!(results.status(), 0);
        assert_eq!(results.0.len(), 4 + 4 + 84 + bytes, "procedure {procedure}");
    }
    let words = |procedure: u32| -> Vec<u32> {
        let results = fixture.nfs(procedure, &root);
        let words = results.0[92..].chunks(4);
        words
            .map(|word| u32::from_be_bytes(word.try_into().expect("whole words")))
            .collect()
    };
    let mebibyte = 1 << 20;
    let mut fixed = [mebibyte, mebibyte, 4096].repeat(2);
    // READDIR; the longest file; times to the nanosecond; links of both kinds, homogeneous, times.
    fixed.extend([32_768, 0x7fff_ffff, 0xffff_ffff, 0, 1, 0x1b]);
    assert_eq!(words(19), fixed);
    // Links, names; no truncation, chown is restricted; case counts and is kept.
    let links_max = fixture.export().links_max;
    assert_eq!(words(20), [links_max, 255, 1, 1, 0, 1]);
    let bytes: Vec<u64> = words(18)
        .chunks_exact(2)
        .map(|pair| (u64::from(pair[0]) << 32) | u64::from(pair[1]))
        .collect();
    let system = rustix::fs::statvfs(fixture.path()).expect("there");
    assert_eq!(bytes[0], system.f_blocks * system.f_frsize);
    assert!(bytes[0] > bytes[1] && bytes[1] >= bytes[2] && bytes[2] > 0);
}

/// Directories one in the other, with names of 200 bytes, as a client makes them; outermost first.
fn dig(fixture: &Fixture, levels: usize) -> Vec<Vec<u8>> {
    let name = "d".repeat(200);
    let mut all = vec![fixture.root()];
    for level in 0..levels {
        let words = Words::default().opaque(&all[level]).opaque(name.as_bytes());
        let made = fixture.made(9, &words.mode(0o777));
        all.push(made.unwrap_or_else(|status| panic!("level {level}: {status}")));
    }
    all
}

/// In directories that have paths, files whose names make their own paths too long.
fn use_edge(fixture: &Fixture, directories: &[Vec<u8>]) {
    let name = "f".repeat(200);
    for (level, directory) in directories.iter().enumerate().skip(17).take(6) {
        let file = fixture.create(directory, &name, 0o666).expect("made");
        assert_eq!(fixture.write(&file, 0, b"text", 2), 0, "level {level}");
        let words = Words::default().opaque(directory).opaque(name.as_bytes());
        assert_eq!(fixture.nfs(3, &words).status(), 0, "level {level}");
        assert_eq!(fixture.read(&file, 0, 9).expect("read").0, b"text");
    }
}

/// Files that are deeper than the kernel has paths are made, found, used, moved and removed.
fn use_depth(fixture: &Fixture) {
    let directories = dig(fixture, 60);
    use_edge(fixture, &directories);
    let deep = &directories[60];
    let file = fixture.create(deep, "file", 0o666).expect("made");
    for _ in 0..2 {
        assert_eq!(fixture.write(&file, 0, b"text", 2), 0);
        assert_eq!(fixture.read(&file, 0, 9).expect("read").0, b"text");
        let words = Words::default().opaque(deep).opaque(b"file");
        assert_eq!(fixture.nfs(3, &words).status(), 0);
        let words = Words::default().opaque(deep).opaque(b"..");
        assert_eq!(fixture.nfs(3, &words).status(), 0);
    }
    let moved = Words::default().opaque(deep).opaque(b"file");
    let moved = moved.opaque(deep).opaque(b"moved");
    assert_eq!(fixture.nfs(14, &moved).status(), 0);
    assert_eq!(fixture.read(&file, 0, 9).expect("read").0, b"text");
    // Nothing of this took a scan of the tree.
    let other = fixture.create(deep, "other", 0o666).expect("made");
    assert_eq!(fixture.attributes(&other).expect("there").size, 0);
    let words = Words::default().opaque(deep).opaque(b"moved");
    assert_eq!(fixture.nfs(12, &words).status(), 0);
    let stale = Err(Status::Stale as u32);
    assert_eq!(fixture.attributes(&file), stale);
    assert!(fixture.attributes(&other).is_ok());
}

#[test]
fn files_deeper_than_the_kernel_has_paths_are_served_without_a_scan() {
    for fixture in [Fixture::new(), Fixture::new().without_handles()] {
        let export = fixture.export();
        let scan = export.scan_in_progress();
        std::thread::scope(|scope| {
            // A scan would wait for the one in progress.
            let used = scope.spawn(|| use_depth(&fixture));
            assert!(used.join().is_ok());
        });
        drop(scan);
    }
}

#[test]
fn a_deep_file_is_found_by_a_scan_and_is_stale_once_its_directory_is_moved_out() {
    let state = tempfile::tempdir().expect("a directory");
    let keep = |options: &mut crate::Options| options.state = Some(state.path().to_owned());
    for handles in [true, false] {
        let prepare = |fixture: Fixture| match handles {
            true => fixture,
            false => fixture.without_handles(),
        };
        let fixture = prepare(Fixture::with(keep));
        let deep = dig(&fixture, 60).pop().expect("the innermost");
        let file = fixture.create(&deep, "file", 0o666).expect("made");
        let fixture = prepare(fixture.restarted(keep));
        assert!(fixture.attributes(&file).is_ok(), "by handle: {handles}");
        assert!(fixture.attributes(&file).is_ok(), "by handle: {handles}");
        let outside = tempfile::tempdir_in(fixture.path().parent().expect("a parent"));
        let outside = outside.expect("a directory");
        let top = fixture.path().join("d".repeat(200));
        fs::rename(top, outside.path().join("moved")).expect("moved");
        let stale = Err(Status::Stale as u32);
        assert_eq!(fixture.attributes(&file), stale, "by handle: {handles}");
        assert_eq!(fixture.attributes(&deep), stale, "by handle: {handles}");
    }
}
