//! What people run in their directories: copies, archives, git, a database, programs that map files
//! or keep open what they have removed.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use flatpath_testkit::deadline::{is_slow, long_patience};
use flatpath_testkit::{Driver, Over, Site, each_driver, noise, tools};
use nix::sched::{CloneFlags, unshare};

use crate::nfs::mounted::{Mount, shell, start, succeeds};

each_driver!(
    files_are_copied_packed_and_listed,
    what_is_open_outlives_its_name,
    git_keeps_a_history,
    a_database_keeps_its_rows,
    a_mapped_file_is_written,
    several_connections_and_small_transfers_carry_the_same,
    a_mount_without_ports_asks_the_portmapper,
    names_that_stay_are_listed_once_while_others_go,
);

fn files_are_copied_packed_and_listed(driver: Driver) {
    let Some(mount) = Mount::new(driver, "", &[]) else {
        return;
    };
    let bytes: Vec<u8> = noise(7, 9_000_001);
    mount.site.write("big", &bytes);
    shell(
        "cp big copy; cmp big copy; cp -r /usr/share/doc/bash doc; diff -r /usr/share/doc/bash doc",
        mount.path(),
    );
    assert!(fs::read(mount.site.at("copy")).expect("there") == bytes);
    // Names that begin with 1 are removed first.
    let (count, left) = if is_slow() { (200, 89) } else { (600, 489) };
    let many = format!(
        "mkdir many; cd many; for i in $(seq {count}); do : >f$i; done
         test $(ls | wc -l) = {count}; ls -la >/dev/null; rm f1*
         test $(ls | wc -l) = {left}; cd ..; rm -r many"
    );
    shell(&many, mount.path());
    shell(
        "mkdir in; tar cf - doc | (cd in; tar xf -); diff -r doc in/doc; rm -r doc in",
        mount.path(),
    );
    let links = "echo a >x; ln x y; ln -s x z; test $(stat -c %h x) = 2; test $(cat z) = a
                 mv x w; test $(cat y) = a; rm w y z; mkfifo p; test -p p; rm p; df . >/dev/null";
    shell(links, mount.path());
    let left = fs::read_dir(mount.site.path()).expect("there").count();
    assert_eq!(left, 2, "big and copy");
    mount.end();
}

/// The client renames what is removed while it is open, and removes it at the close.
fn what_is_open_outlives_its_name(driver: Driver) {
    let Some(mount) = Mount::new(driver, "", &[]) else {
        return;
    };
    let lines = "echo kept >f; exec 3<f; rm f; test \"$(cat <&3)\" = kept
                 test -n \"$(ls -A)\"; exec 3<&-; test -z \"$(ls -A)\"
                 echo old >a; echo new >b; exec 3<a; mv b a; test \"$(cat <&3)\" = old
                 test \"$(cat a)\" = new; exec 3<&-; rm a; test -z \"$(ls -A)\"";
    shell(lines, mount.path());
    mount.end();
}

fn git_keeps_a_history(driver: Driver) {
    let (Some(_), Some(mount)) = (tools::find("git"), Mount::new(driver, "", &[])) else {
        return;
    };
    let lines = "git init -q g; cd g; cp -r /usr/share/doc/coreutils .; git add -A
                 who='-c user.name=a -c user.email=a@b'; git $who commit -qm one
                 echo x >f; git add f; git $who commit -qm two; git repack -adq; git fsck --strict
                 git clone -q . ../h; test $(git -C ../h log --oneline | wc -l) = 2";
    shell(lines, mount.path());
    mount.end();
}

fn a_database_keeps_its_rows(driver: Driver) {
    let (Some(_), Some(mount)) = (tools::find("python3"), Mount::new(driver, "", &[])) else {
        return;
    };
    // The mount has no locks.
    let program = "import sqlite3
c = sqlite3.connect('file:db?nolock=1', uri=True)
c.execute('create table t(a)')
for i in range(300): c.execute('insert into t values(?)', (i,))
c.commit(); c.close()
c = sqlite3.connect('file:db?nolock=1', uri=True)
assert c.execute('select count(*), sum(a) from t').fetchone() == (300, 44850)
assert c.execute('pragma integrity_check').fetchone()[0] == 'ok'";
    succeeds("python3", &["-c", program], mount.path());
    mount.end();
}

fn a_mapped_file_is_written(driver: Driver) {
    let (Some(_), Some(mount)) = (tools::find("python3"), Mount::new(driver, "", &[])) else {
        return;
    };
    let program = "import mmap, os
f = open('m', 'w+b'); f.truncate(1 << 20); m = mmap.mmap(f.fileno(), 0)
m[0:5] = b'first'; m[1048572:1048576] = b'last'; m.flush(); m.close(); f.close()
fd = os.open('t', os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o640)
os.write(fd, b'x' * 100000); os.ftruncate(fd, 10); assert os.fstat(fd).st_size == 10; os.close(fd)
os.chmod('t', 0o400); assert os.stat('t').st_mode & 0o777 == 0o400
os.utime('t', ns=(10**18 + 1, 10**18 + 2)); assert os.stat('t').st_mtime_ns == 10**18 + 2
try: os.open('t', os.O_CREAT | os.O_EXCL | os.O_WRONLY); assert False
except FileExistsError: pass
fd = os.open('sparse', os.O_RDWR | os.O_CREAT); os.pwrite(fd, b'end', 1 << 30); os.fsync(fd)
s = os.fstat(fd); assert s.st_size == (1 << 30) + 3 and s.st_blocks < 100, s
assert os.pread(fd, 10, 1 << 29) == bytes(10)";
    succeeds("python3", &["-c", program], mount.path());
    let mapped = fs::read(mount.site.at("m")).expect("there");
    assert_eq!(
        (&mapped[..5], &mapped[1_048_572..]),
        (&b"first"[..], &b"last"[..])
    );
    mount.end();
}

fn several_connections_and_small_transfers_carry_the_same(driver: Driver) {
    for options in [
        ",nconnect=4",
        ",rsize=4096,wsize=4096",
        ",rsize=32768,wsize=32768",
        ",rsize=1048576,wsize=1048576",
    ] {
        let Some(mount) = Mount::new(driver, options, &[]) else {
            return;
        };
        let bytes: Vec<u8> = noise(9, 2_000_003);
        mount.site.write("big", &bytes);
        shell("cp big copy; cmp big copy", mount.path());
        assert!(
            fs::read(mount.site.at("copy")).expect("there") == bytes,
            "{options}"
        );
        mount.end();
    }
}

/// As `mount(8)` does it, in a name space of the network that has a port 111 for each test.
fn a_mount_without_ports_asks_the_portmapper(driver: Driver) {
    let found = ["ip", "mount", "mount.nfs", "umount"].map(tools::find);
    let ([Some(_), Some(mount), Some(_), Some(umount)], Some(known)) =
        (found, Mount::new(driver, "", &[]))
    else {
        return;
    };
    // It was to see that the kernel has a client.
    known.end();
    if let Err(cause) = unshare(CloneFlags::CLONE_NEWNET) {
        tools::refused::<()>(&format!("a name space: {cause}"));
        return;
    }
    tools::loopback_up().expect("it is ours");
    let (site, state, at) = (Site::new(), Site::new(), Site::new());
    site.write("file", "content");
    let anywhere = "0.0.0.0:0".parse().expect("an address");
    let more = ["--nfs-portmapper", "0.0.0.0"];
    let server = start(driver, &site, &state, anywhere, &more);
    let run = |program: &Path, arguments: &[&str]| {
        let mut command = Command::new(program);
        let output = tools::run(command.args(arguments).arg(at.path()), long_patience());
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {errors}");
    };
    for options in ["vers=3,nolock", "vers=3,nolock,mountproto=udp"] {
        run(&mount, &["-t", "nfs", "-o", options, "127.0.0.1:/"]);
        let text = fs::read_to_string(at.at("file")).expect("it is mounted");
        assert_eq!(text, "content", "{options}");
        run(&umount, &[]);
    }
    server.end();
}

/// How many names a directory has at first: more by far than one READDIR brings, also where each
/// takes long.
fn names_at_first() -> usize {
    if is_slow() { 6_000 } else { 20_000 }
}

/// One of ten stays; of the others one of 45 is removed by the client, which takes a sync each, and
/// the rest on the server.
fn names_that_stay_are_listed_once_while_others_go(driver: Driver) {
    let Some(mount) = Mount::new(driver, "", &["--no-root-squash"]) else {
        return;
    };
    let [here, there] = [&mount.site.at("many"), &mount.path().join("many")];
    let names = names_at_first();
    fs::create_dir(here).expect("a new one");
    let name = |number: usize| format!("name-{number}");
    for number in 0..names {
        File::create(here.join(name(number))).expect("room");
    }
    let stays = |number: usize| number.is_multiple_of(10);
    let remove = |within: &Path, whose: bool| {
        let wanted = |number: &usize| !stays(*number) && (number % 50 == 1) == whose;
        for number in (0..names).filter(wanted) {
            fs::remove_file(within.join(name(number))).expect("it was there");
        }
    };
    let listed = || {
        let entries = fs::read_dir(there).expect("there");
        let names = entries.map(|entry| entry.expect("it goes on").file_name());
        let names: Vec<String> = names.filter_map(|it| it.into_string().ok()).collect();
        let once: BTreeSet<String> = names.iter().cloned().collect();
        assert_eq!(once.len(), names.len(), "a name is listed twice");
        once
    };
    let left: BTreeSet<String> = (0..names).filter(|it| stays(*it)).map(name).collect();
    let over = Over::default();
    std::thread::scope(|scope| {
        let lister = scope.spawn(|| {
            while !over.is_set() {
                assert!(left.is_subset(&listed()), "a name that stays is not listed");
            }
        });
        let _ends = over.at_end();
        let server = scope.spawn(|| remove(here, false));
        remove(there, true);
        server.join().expect("all are removed");
        over.set();
        lister.join().expect("all is listed");
    });
    assert!(listed() == left);
    mount.end();
}
