//! What is promised of files, on the file systems that people have: ext4, XFS, btrfs, an overlay
//! and memory; with a quota, full, and where names differ only in case.
//!
//! Each is made on a disk that is a file. One that this kernel or this machine lacks is named.

mod case;
mod full;

use std::fs::{self, File, Permissions};
use std::num::NonZeroU64;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::image::{Format, Image};
use flatpath_testkit::mount::Mounted;
use flatpath_testkit::nfs::{Call, Connection, Words, create, getattr, lookup, mount, read};
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, noise, tools, until_true};
use rustix::fs::{Advice, copy_file_range, fadvise, ioctl_ficlone};
use rustix::process::Signal;

each_driver!(
    ext4_serves_as_promised,
    xfs_serves_as_promised,
    btrfs_serves_as_promised,
    an_overlay_serves_as_promised,
    memory_serves_as_promised,
    a_subvolume_of_btrfs_is_not_entered_and_none_is_taken_for_another,
);

const XFS: Format = Format {
    kind: "xfs",
    make: &["-q", "-f"],
    mount: "nosuid",
    bytes: 320 << 20,
};
const BTRFS: Format = Format {
    kind: "btrfs",
    make: &["-q", "-f"],
    mount: "nosuid",
    bytes: 160 << 20,
};

// Statuses of NFSv3.
const DENIED: u32 = 13;
const EXISTS: u32 = 17;
const TOO_LONG: u32 = 63;
const STALE: u32 = 70;

/// The longest name: 255 bytes, of which most are half a letter.
fn long_name() -> String {
    format!("{}x", "ü".repeat(127))
}

/// A server of a directory by HTTP and NFS, for everyone to write.
fn serve(driver: Driver, at: &Path, state: &Site) -> Server {
    fs::set_permissions(at, Permissions::from_mode(0o777)).expect("our own directory");
    Launch::serve(driver)
        .directory(at)
        .with(["--writable", "--uploads-bytes", "1G"])
        .with(["--nfs", "127.0.0.1:0", "--nfs-state"])
        .with([state.path()])
        .start()
}

/// Sends a file, which may be refused before its end; the status.
fn put(server: &Server, target: &str, bytes: &[u8]) -> u16 {
    let mut client = server.client();
    let length = bytes.len().to_string();
    client.request("PUT", target, &[("Content-Length", length.as_str())]);
    let _ = client.try_send(bytes);
    client.reply().status
}

/// What is in a directory, sorted.
fn names(at: &Path) -> Vec<String> {
    let entries = fs::read_dir(at).expect("it is mounted");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn serves_as_promised(driver: Driver, at: &Path) {
    let state = Site::new();
    let mut server = serve(driver, at, &state);
    names_have_up_to_255_bytes(&server);
    what_changed_is_served_anew(&server, at);
    what_no_memory_has_is_read_from_the_disk(&server, at);
    an_upload_is_whole_or_nothing(&server, at);
    handles_of_removed_files_are_stale(&server, at);
    let exclusive = an_exclusive_create_is_whole(&server, at);
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    fs::create_dir(at.join("here")).expect("a new name");
    fs::write(at.join("here/file"), "of a handle").expect("room");
    let directory = nfs.lookup(&root, "here");
    let file = nfs.lookup(&directory, "file");
    fs::rename(at.join("here"), at.join("there")).expect("a new name");
    fs::rename(at.join("there/file"), at.join("moved")).expect("a new name");
    assert_eq!(nfs.read(&file, 100), b"of a handle", "after it was renamed");
    server.process().signal(Signal::KILL);
    server.exit_status();
    fs::rename(at.join("moved"), at.join("there/again")).expect("a new name");
    let server = serve(driver, at, &state);
    let mut nfs = Connection::open(server.address("nfs"));
    assert_eq!(nfs.read(&file, 100), b"of a handle", "after a restart");
    assert_eq!(nfs.lookup(&directory, "again"), file);
    assert_eq!(nfs.status(&create_exclusively(&root, 1)), 0, "after a kill");
    assert_eq!(nfs.lookup(&root, "exclusive"), exclusive);
    drop(nfs);
    server.end();
}

fn names_have_up_to_255_bytes(server: &Server) {
    let name = long_name();
    let target = format!("/{}x", "%C3%BC".repeat(127));
    assert_eq!(put(server, &target, b"long"), 201);
    assert_eq!(server.client().get(&target).body, b"long");
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    let file = nfs.lookup(&root, &name);
    assert_eq!(nfs.read(&file, 100), b"long");
    let longer = format!("{name}x");
    assert_eq!(nfs.status(&lookup(&root, &longer)), TOO_LONG);
    assert_eq!(nfs.status(&create(&root, &longer)), TOO_LONG);
    let refused = put(server, &format!("{target}x"), b"longer");
    assert!((400..500).contains(&refused), "{refused}");
    assert_eq!(server.client().get(&format!("{target}x")).status, 404);
}

/// A file that is served from memory is looked at before each reply. Its bytes also change when it
/// gets those of another by reference.
fn what_changed_is_served_anew(server: &Server, at: &Path) {
    const BYTES: usize = 3 * 65_536;
    let (old, new): (Vec<u8>, Vec<u8>) = (noise(1, BYTES), noise(2, BYTES));
    let (file, other) = (at.join("file"), at.join("other"));
    fs::write(&file, &old).expect("room");
    fs::write(&other, &new).expect("room");
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    let handle = nfs.lookup(&root, "file");
    let mut is_served = |expected: &[u8], how: &str| {
        for _ in 0..3 {
            assert!(server.client().get("/file").body == expected, "{how}");
        }
        let count = u32::try_from(BYTES).expect("few");
        assert!(nfs.read(&handle, count) == expected, "by NFS: {how}");
    };
    is_served(&old, "as written");
    let writable = || File::options().write(true).open(&file).expect("ours");
    let from = || File::open(&other).expect("ours");
    // Of a range: by reference where the file system can.
    let (mut source, mut target) = (65_536, 65_536);
    let copied = copy_file_range(
        from(),
        Some(&mut source),
        writable(),
        Some(&mut target),
        65_536,
    );
    assert_eq!(copied.expect("within one file system"), 65_536);
    let mixed = [&old[..65_536], &new[65_536..131_072], &old[131_072..]].concat();
    is_served(&mixed, "after a range was copied");
    if ioctl_ficlone(writable(), from()).is_ok() {
        is_served(&new, "after all became a reference");
    }
}

/// A network thread reads what it can without waiting (`RWF_NOWAIT`), a worker the rest: no byte is
/// lost between them, whatever part of a file is in memory. (Files in memory stay there.)
fn what_no_memory_has_is_read_from_the_disk(server: &Server, at: &Path) {
    const BYTES: usize = 5 * 65_536 + 17;
    let bytes: Vec<u8> = noise(4, BYTES);
    let path = at.join("read");
    fs::write(&path, &bytes).expect("room");
    let file = File::open(&path).expect("ours");
    file.sync_all()
        .expect("only what is on the disk is dropped");
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    let handle = nfs.lookup(&root, "read");
    // All of it; its end and its middle, of which a READ wants a part that is in memory; nothing.
    let part = Some(65_536);
    for (offset, length) in [(0, None), (147_456, None), (81_920, part), (1 << 30, None)] {
        let length = length.map(|length| NonZeroU64::new(length).expect("more than none"));
        let forget = || fadvise(&file, offset, length, Advice::DontNeed).expect("a regular file");
        forget();
        assert!(server.client().get("/read").body == bytes, "from {offset}");
        forget();
        let mut found = Vec::new();
        while found.len() < BYTES {
            let part = nfs.call(&read(&handle, found.len() as u64, 32_768)).data();
            assert!(!part.is_empty(), "an end at {}", found.len());
            found.extend(part);
        }
        assert!(found == bytes, "by NFS from {offset}");
    }
}

/// The file of an upload has no name until it is whole, where the file system has such files.
fn an_upload_is_whole_or_nothing(server: &Server, at: &Path) {
    assert_eq!(put(server, "/upload", b"first"), 201);
    let before = names(at).len();
    let mut client = server.client();
    client.send("PUT /upload HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\nhalf");
    client.reset();
    until_true("nothing to be left", || names(at).len() == before);
    assert_eq!(server.client().get("/upload").body, b"first");
    let whole: Vec<u8> = noise(3, 1_000_000);
    assert_eq!(put(server, "/upload", &whole), 204);
    assert!(server.client().get("/upload").body == whole);
    assert_eq!(names(at).len(), before);
}

/// A file system uses the numbers of removed files again, soon or never.
fn handles_of_removed_files_are_stale(server: &Server, at: &Path) {
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    let removed: Vec<Vec<u8>> = (0..20)
        .map(|number| {
            let name = format!("n{number}");
            let file = nfs.create(&root, &name);
            fs::remove_file(at.join(&name)).expect("it is there");
            file
        })
        .collect();
    let names: Vec<String> = (20..40).map(|number| format!("n{number}")).collect();
    let made = names.iter().map(|name| nfs.create(&root, name));
    let there: Vec<Vec<u8>> = made.collect();
    for file in &removed {
        assert_eq!(nfs.status(&getattr(file)), STALE);
        assert!(!there.contains(file));
    }
    for (file, name) in there.iter().zip(&names) {
        assert_eq!(nfs.status(&getattr(file)), 0, "{name}");
        fs::remove_file(at.join(name)).expect("it is there");
    }
}

/// CREATE with a verifier: by a file that has its name last, where the file system has such files.
fn create_exclusively(directory: &[u8], verifier: u64) -> Call {
    let entry = Words::default().opaque(directory).opaque(b"exclusive");
    Call::nfs(8, entry.word(2).long(verifier))
}

/// Its handle stays.
fn an_exclusive_create_is_whole(server: &Server, at: &Path) -> Vec<u8> {
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    let before = names(at);
    assert_eq!(nfs.status(&create_exclusively(&root, 1)), 0);
    let file = nfs.lookup(&root, "exclusive");
    assert_eq!(nfs.status(&create_exclusively(&root, 1)), 0, "again");
    assert_eq!(nfs.status(&create_exclusively(&root, 2)), EXISTS);
    assert_eq!(nfs.lookup(&root, "exclusive"), file);
    let mut after = names(at);
    after.retain(|name| name != "exclusive");
    assert_eq!(after, before, "nothing else");
    file
}

fn on_disk(driver: Driver, format: Format) {
    if let Some(image) = Image::try_new(format) {
        serves_as_promised(driver, image.path());
    }
}

fn ext4_serves_as_promised(driver: Driver) {
    on_disk(driver, Format::EXT4);
}

fn xfs_serves_as_promised(driver: Driver) {
    on_disk(driver, XFS);
}

fn btrfs_serves_as_promised(driver: Driver) {
    on_disk(driver, BTRFS);
}

fn an_overlay_serves_as_promised(driver: Driver) {
    let layers = Site::new();
    let [lower, upper, work, at] = ["lower", "upper", "work", "at"].map(|name| {
        let directory = layers.at(name);
        fs::create_dir(&directory).expect("a new name");
        directory
    });
    // What changes of it moves to the upper layer, where it has another number.
    fs::write(lower.join("file"), "of the lower layer").expect("room");
    let options = format!(
        "lowerdir={},upperdir={},workdir={}",
        lower.display(),
        upper.display(),
        work.display()
    );
    match Mounted::new(&at, c"overlay", options.as_bytes()) {
        Ok(mounted) => serves_as_promised(driver, mounted.path()),
        Err(cause) => drop(tools::refused::<()>(&format!("a mount: {cause}"))),
    }
}

fn memory_serves_as_promised(driver: Driver) {
    let site = Site::new();
    match Mounted::new(site.path(), c"tmpfs", b"size=32m") {
        Ok(mounted) => serves_as_promised(driver, mounted.path()),
        Err(cause) => drop(tools::refused::<()>(&format!("a mount: {cause}"))),
    }
}

/// Inodes and times of birth of a snapshot are those of what it was taken of. So NFS, whose clients
/// know files by their numbers, serves none but the export's own subvolume.
fn a_subvolume_of_btrfs_is_not_entered_and_none_is_taken_for_another(driver: Driver) {
    let (Some(btrfs), Some(image)) = (tools::find("btrfs"), Image::try_new(BTRFS)) else {
        return;
    };
    let at = image.path();
    let subvolume = |arguments: &[&str]| {
        let mut command = Command::new(&btrfs);
        command.arg("subvolume").args(arguments).current_dir(at);
        let output = tools::run(&mut command, patience());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
    };
    subvolume(&["create", "now"]);
    fs::write(at.join("now/file"), "old").expect("room");
    subvolume(&["snapshot", "now", "now/then"]);
    fs::write(at.join("now/file"), "new").expect("room");
    let state = Site::new();
    let server = serve(driver, &at.join("now"), &state);
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    for _ in 0..2 {
        let mut http = server.client();
        assert_eq!(http.get("/file").body, b"new");
        assert_eq!(http.get("/then/file").body, b"old");
        let file = nfs.lookup(&root, "file");
        assert_eq!(nfs.read(&file, 100), b"new");
        assert_eq!(nfs.status(&lookup(&root, "then")), DENIED);
    }
    assert!(nfs.try_handle(&mount("/then")).is_err());
    drop(nfs);
    server.end();
}
