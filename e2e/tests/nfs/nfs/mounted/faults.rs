//! Servers that are killed or relieved under writers, and handles that no server knows any more.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::mount::Mounted;
use flatpath_testkit::{Driver, Over, Server, Site, each_driver, noise, tools, until, until_true};
use rustix::io::Errno;
use rustix::process::Signal;

use crate::nfs::mounted::{Mount, start};

each_driver!(
    what_was_synced_is_there_after_kills,
    programs_run_on_through_hand_overs,
    handles_of_another_key_are_stale,
);

const BLOCK: usize = 4096;
/// How often the server ends under the writers.
const ENDS: usize = 3;

fn block(number: usize) -> Vec<u8> {
    noise(number as u64, BLOCK)
}

/// Writes and syncs blocks until it is over; how many.
///
/// A program of its own has the file open. Were it this process, each server that it starts would
/// wait for itself: what a process inherits it closes as its program begins, and such a close
/// waits until the server has what was written.
fn write_synced(directory: &Path, is_over: &Over) -> usize {
    let mut writer = Command::new("dd")
        .arg(format!("of={}", directory.join("synced").display()))
        .arg(format!("bs={BLOCK}"))
        .args(["iflag=fullblock", "oflag=sync", "status=none"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("coreutils are essential");
    let mut blocks = writer.stdin.take().expect("its input");
    let mut count = 0;
    while !is_over.is_set() {
        blocks.write_all(&block(count)).expect("it reads on");
        count += 1;
    }
    drop(blocks);
    let status = until("the end of the writer", || {
        writer.try_wait().expect("it is ours")
    });
    assert!(status.success(), "{status}");
    count
}

/// Runs a program with these arguments again and again until it is over, with the number of the run
/// as last argument; how often it ran.
fn repeat(program: &str, arguments: [&str; 2], directory: &Path, is_over: &Over) -> usize {
    let mut count = 0;
    while !is_over.is_set() {
        let mut command = Command::new(program);
        command.args(arguments).arg(count.to_string());
        let output = tools::run(command.current_dir(directory), long_patience());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {count}: {errors}");
        count += 1;
    }
    count
}

const COPY: [&str; 2] = ["-ec", "cp big copy; cmp big copy; rm copy"];

/// The same without calls that find their own work when they are repeated.
const COPY_OVER: [&str; 2] = ["-ec", "cp big copy; cmp big copy"];

/// Adds a file to a history, which is whole.
const COMMIT: [&str; 2] = [
    "-ec",
    "test -d g || git init -q g; cd g; echo $0 >f$0; git add f$0
     git -c user.name=a -c user.email=a@b commit -qm $0; git fsck --strict --no-progress",
];

/// Makes files of which each is new.
const CREATE_NEW: [&str; 2] = [
    "-c",
    "import os, sys
for number in range(20):
    fd = os.open(f'new-{sys.argv[1]}-{number}', os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o640)
    assert os.fstat(fd).st_mode & 0o7777 == 0o640; os.close(fd)",
];

/// Writes the number of the run to each page of a mapped file, and syncs it.
const MAP: [&str; 2] = [
    "-c",
    "import mmap, os, sys
fd = os.open('mapped', os.O_CREAT | os.O_RDWR); os.ftruncate(fd, 65536)
pages = mmap.mmap(fd, 65536); run = int(sys.argv[1])
for at in range(0, 65536, 4096):
    last = int.from_bytes(pages[at:at + 8], 'little'); assert last == run, (at, last)
    pages[at:at + 8] = (run + 1).to_bytes(8, 'little')
pages.flush()",
];

/// A writer that syncs, and programs with their arguments, on a mount while `change` ends its
/// server and starts the next, several times.
fn go_through(
    mount: Mount,
    driver: Driver,
    more: &[&str],
    programs: &[(&'static str, [&'static str; 2])],
    change: impl Fn(&mut Server, &dyn Fn() -> Server),
) {
    let Mount {
        at,
        mut server,
        site,
        state,
    } = mount;
    let address = server.address("nfs");
    let next = || start(driver, &site, &state, address, more);
    site.write("big", noise(3, 1_000_000));
    let over = Over::default();
    let written = std::thread::scope(|scope| {
        let _ends = over.at_end();
        let writer = scope.spawn(|| write_synced(at.path(), &over));
        let runs = programs.iter().map(|&(program, arguments)| {
            let (at, over) = (at.path(), &over);
            scope.spawn(move || repeat(program, arguments, at, over))
        });
        let runs: Vec<_> = runs.collect();
        for _ in 0..ENDS {
            let length = || site.at("synced").metadata().map_or(0, |data| data.len());
            let before = length();
            until_true("writes that go on", || {
                length() >= before + 10 * BLOCK as u64
            });
            change(&mut server, &next);
        }
        over.set();
        for run in runs {
            assert!(run.join().expect("it does not fail") > 0);
        }
        writer.join().expect("it does not fail")
    });
    let found = std::fs::read(site.at("synced")).expect("there");
    assert_eq!(found.len(), written * BLOCK);
    for (number, found) in found.chunks(BLOCK).enumerate() {
        assert!(found == block(number), "block {number} of {written}");
    }
    drop(at);
    server.end();
}

fn what_was_synced_is_there_after_kills(driver: Driver) {
    let more = ["--no-root-squash"];
    let Some(mount) = Mount::new(driver, "", &more) else {
        return;
    };
    // Not git, and nothing is removed: a server that is killed after it has made or removed a name,
    // and before it said so, finds the name there, or not, when the client repeats its call. An
    // exclusive create has a verifier, which the file has before its name.
    mount.site.write("copy", "old");
    let mut programs = vec![("sh", COPY_OVER)];
    if tools::find("python3").is_some() {
        programs.extend([("python3", MAP), ("python3", CREATE_NEW)]);
    }
    go_through(mount, driver, &more, &programs, |server, next| {
        server.process().signal(Signal::KILL);
        server.exit_status();
        *server = next();
    });
}

fn programs_run_on_through_hand_overs(driver: Driver) {
    let run = Site::new();
    let place = run.at("next");
    let more = [
        "--no-root-squash",
        "--handover",
        place.to_str().expect("a path in text"),
    ];
    let Some(mount) = Mount::new(driver, "", &more) else {
        return;
    };
    let mut programs = vec![("sh", COPY)];
    programs.extend(tools::find("git").map(|_| ("sh", COMMIT)));
    programs.extend(tools::find("python3").map(|_| ("python3", MAP)));
    go_through(mount, driver, &more, &programs, |server, next| {
        let mut old = std::mem::replace(server, next());
        assert!(old.exit_status().success(), "{}", old.log());
    });
}

/// A program sees ESTALE for what it has open, and a mount anew finds the files.
fn handles_of_another_key_are_stale(driver: Driver) {
    let Some(mount) = Mount::new(driver, ",noac,lookupcache=none", &[]) else {
        return;
    };
    let Mount {
        at,
        mut server,
        site,
        state: _,
    } = mount;
    site.write("file", "content");
    let mut open = File::open(at.path().join("file")).expect("there");
    let mut text = String::new();
    open.read_to_string(&mut text).expect("it can be read");
    assert_eq!(text, "content");
    let address = server.address("nfs");
    server.process().signal(Signal::KILL);
    server.exit_status();
    let other = Site::new();
    let server = start(driver, &site, &other, address, &[]);
    let seen = open.metadata().map(|_| ()).and_then(|()| {
        open.seek(SeekFrom::Start(0))?;
        open.read(&mut [0; 10]).map(|_| ())
    });
    let seen = seen.expect_err("its handle is of another key");
    assert_eq!(
        seen.raw_os_error(),
        Some(Errno::STALE.raw_os_error()),
        "{seen}"
    );
    let again = Mounted::nfs(address, Path::new("/"), "").expect("as before");
    let text = std::fs::read_to_string(again.path().join("file"));
    assert_eq!(text.expect("there"), "content");
    drop((open, again, at));
    server.end();
}
