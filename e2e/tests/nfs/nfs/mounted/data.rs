//! Bytes and owners beyond the ordinary: what a program sees on a mount is what it sees in
//! a local directory, where NFSv3 can say it.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::mount::Mounted;
use flatpath_testkit::{Driver, Launch, Site, binary, each_driver, tools};

use crate::nfs::mounted::{Mount, by};

each_driver!(
    direct_appended_and_sparse_data_is_that_of_a_local_file,
    owners_are_given_as_in_a_local_directory,
    an_export_says_who_its_clients_are,
);

/// What a program of python prints as this user, in a directory.
fn printed(user: u32, groups: &[u32], program: &str, within: &Path) -> String {
    let mut command = by(user, groups, "python3", within);
    let output = tools::run(command.args(["-c", program]), long_patience());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

const DATA: &str = "import ctypes, errno, mmap, os
def of(path): return open(path, 'rb').read()
def say(*what): print(*what)
fd = os.open('direct', os.O_CREAT | os.O_RDWR | os.O_DIRECT)
pages = mmap.mmap(-1, 65536); pages[:] = bytes(range(256)) * 256
say('direct', os.pwritev(fd, [pages], 0), os.pwritev(fd, [pages], 8192))
again = mmap.mmap(-1, 65536)
say('read', os.preadv(fd, [again], 8192), again[:] == pages[:], os.fstat(fd).st_size)
say('past its end', os.preadv(fd, [again], 1 << 20)); os.close(fd)
say('whole', of('direct') == pages[:8192] + pages[:])
a, b = (os.open('log', os.O_CREAT | os.O_WRONLY | os.O_APPEND) for _ in 'ab')
for i in range(20): os.write(a, b'aaaa'); os.fsync(a); os.write(b, b'bbbb'); os.fsync(b)
os.close(a); os.close(b); say('appended', of('log') == b'aaaabbbb' * 20)
fd = os.open('synced', os.O_CREAT | os.O_RDWR | os.O_SYNC)
say('synced', os.write(fd, b'x' * 100000), os.pread(fd, 10, 99995), os.pread(fd, 10, 200000))
os.close(fd)
fd = os.open('sparse', os.O_CREAT | os.O_RDWR)
for at in (0, 1 << 20, 1 << 30, 1 << 40): os.pwrite(fd, b'data', at)
os.fsync(fd); s = os.fstat(fd); say('sparse', s.st_size, s.st_blocks < 200)
say('hole', os.pread(fd, 8, (1 << 30) - 4), os.pread(fd, 8, 1 << 29))
os.ftruncate(fd, (1 << 20) + 2); os.ftruncate(fd, 1 << 21); os.fsync(fd)
say('cut', os.fstat(fd).st_size, os.pread(fd, 8, 1 << 20)); os.close(fd)
fd = os.open('room', os.O_CREAT | os.O_RDWR); os.posix_fallocate(fd, 0, 50000)
os.fsync(fd); say('room', os.fstat(fd).st_size, of('room') == bytes(50000)); os.close(fd)
s, t = os.open('direct', os.O_RDONLY), os.open('copy', os.O_CREAT | os.O_WRONLY)
while os.copy_file_range(s, t, 1 << 20): pass
os.close(s); os.close(t); say('copied', of('copy') == of('direct'))
for name in ('x' * 255, 'ü' * 127): os.close(os.open(name, os.O_CREAT | os.O_EXCL)); os.stat(name)
for call in (os.stat, os.mkdir, os.unlink, os.readlink):
    try: call('x' * 256)
    except OSError as e: say('too long', e.errno == errno.ENAMETOOLONG)
say(sorted(map(len, os.listdir('.'))))";

/// NFSv3 has no call that takes room or gives it back.
const ROOM: &str = "import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
fd = os.open('f', os.O_CREAT | os.O_RDWR); os.write(fd, b'kept' * 4096)
for mode in (0, 1, 3):
    assert libc.fallocate(fd, mode, ctypes.c_long(0), ctypes.c_long(4096)) == -1
    assert ctypes.get_errno() == errno.EOPNOTSUPP
os.fsync(fd); assert os.pread(fd, 1 << 20, 0) == b'kept' * 4096";

fn direct_appended_and_sparse_data_is_that_of_a_local_file(driver: Driver) {
    let (Some(_), Some(mount)) = (tools::find("python3"), Mount::new(driver, "", &[])) else {
        return;
    };
    for name in ["local", "mounted"] {
        let directory = mount.site.at(name);
        std::fs::create_dir(&directory).expect("a new one");
        chown(&directory, Some(1000), Some(1000)).expect("we are root");
    }
    let expected = printed(1000, &[], DATA, &mount.site.at("local"));
    let found = printed(1000, &[], DATA, &mount.path().join("mounted"));
    assert_eq!(found, expected);
    printed(1000, &[], ROOM, &mount.path().join("mounted"));
    mount.end();
}

const OWNERS: &str = "import os, itertools
def give(path, *to):
    try: os.chown(path, *to)
    except OSError as e: return e.errno
for name, mode in (('f', 0o6755), ('g', 0o2644), ('d', 0o2755)):
    for to in ((-1, 2000), (-1, 3000), (1001, -1), (1001, 2000), (1000, 2000)):
        path = name + '.%d.%d' % to
        if name == 'd': os.mkdir(path)
        else: os.close(os.open(path, os.O_CREAT))
        os.chmod(path, mode); failed = give(path, *to); s = os.stat(path)
        print(path, failed, oct(s.st_mode), s.st_uid, s.st_gid)
os.symlink('nowhere', 'link'); os.chown('link', -1, 2000, follow_symlinks=False)
print(os.lstat('link').st_gid, os.path.lexists('nowhere'))";

/// By root, which this export does not squash, and by a user in two groups. (The client sends
/// nothing for a chown(2) that changes nothing: the set-user-ID bit stays.)
fn owners_are_given_as_in_a_local_directory(driver: Driver) {
    let more = ["--no-root-squash"];
    let (Some(_), Some(mount)) = (tools::find("python3"), Mount::new(driver, "", &more)) else {
        return;
    };
    for user in [0, 1000] {
        let [here, there] = ["local", "mounted"].map(|name| format!("{name}-{user}"));
        for name in [&here, &there] {
            let directory = mount.site.at(name);
            std::fs::create_dir(&directory).expect("a new one");
            chown(&directory, Some(user), Some(user)).expect("we are root");
        }
        let expected = printed(user, &[2000], OWNERS, &mount.site.at(&here));
        let found = printed(user, &[2000], OWNERS, &mount.path().join(&there));
        assert_eq!(found, expected, "by {user}");
    }
    mount.end();
}

/// User and group.
type Owner = (u32, u32);

/// Whose a file is that root and a user make, by the options of the export.
fn an_export_says_who_its_clients_are(driver: Driver) {
    const RULES: &[(&str, Owner, Owner)] = &[
        ("root_squash", (65534, 65534), (1000, 1000)),
        ("root_squash,anonuid=77,anongid=78", (77, 78), (1000, 1000)),
        ("no_root_squash", (0, 0), (1000, 1000)),
        ("all_squash", (65534, 65534), (65534, 65534)),
        ("all_squash,anonuid=77,anongid=78", (77, 78), (77, 78)),
    ];
    let (site, run) = (Site::new(), Site::new());
    let mut lines = String::new();
    for (number, (options, ..)) in RULES.iter().enumerate() {
        let directory = site.at(&number.to_string());
        std::fs::create_dir(&directory).expect("a new one");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&directory, open).expect("our own");
        lines += &format!("{} 127.0.0.1(rw,insecure,{options})\n", directory.display());
    }
    run.write("exports", lines);
    let server = Launch::new(binary::flatpath().to_path_buf())
        .with(["serve", "--driver", driver.name(), "--nfs", "127.0.0.1:0"])
        .with(["--nfs-state".as_ref(), run.path().as_os_str()])
        .with(["--nfs-exports".as_ref(), run.at("exports").as_os_str()])
        .start();
    for (number, (options, root, user)) in RULES.iter().enumerate() {
        let directory = site.at(&number.to_string());
        let Some(at) = Mounted::nfs(server.address("nfs"), &directory, "") else {
            return;
        };
        for (who, expected) in [(0, root), (1000, user)] {
            let made = by(who, &[], "touch", at.path())
                .arg(who.to_string())
                .status();
            assert!(made.expect("it starts").success(), "{options} by {who}");
            let found = directory.join(who.to_string()).metadata().expect("made");
            assert_eq!((found.uid(), found.gid()), *expected, "{options} by {who}");
        }
    }
    server.end();
}
