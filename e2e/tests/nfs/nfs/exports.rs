//! Several exports of one server, from a file as Linux's server has it and from tables: real
//! clients mount each, and keep what they mounted while the file is loaded again.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;

use flatpath_testkit::nfs::{
    Connection, Reply, create, getattr, lookup, mount, read, rename, write,
};
use flatpath_testkit::{Driver, Launch, Over, Server, Site, binary, each_driver, until_true};
use rustix::process::Signal;
use socket2::{Domain, Socket, Type};

use crate::nfs::tools::{run, url};

each_driver!(
    libnfs_mounts_each_export_with_its_rights,
    a_client_has_the_rights_of_its_own_address,
    handles_stay_in_their_export,
    clients_keep_what_they_mounted_while_exports_are_loaded_again,
    tables_of_the_configuration_are_exports_too,
    a_file_with_a_mistake_is_refused_with_its_place,
    groups_are_those_that_the_machine_knows,
);

const OK: u32 = 0;
const DENIED: u32 = 13;
const CROSS_DEVICE: u32 = 18;
const READ_ONLY: u32 = 30;
const STALE: u32 = 70;

/// Directories to export, and a file that names them.
struct Place {
    site: Site,
    run: Site,
}

impl Place {
    /// Directories `a`, `a/sub` and `b` with a file each; `DIR` in lines is what they are in.
    fn new(lines: &str) -> Place {
        let site = Site::new();
        for name in ["a", "a/sub", "b"] {
            let path = site.at(name);
            fs::create_dir(&path).expect("made");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).expect("ours");
            let file = path.join("file");
            fs::write(&file, name).expect("made");
            fs::set_permissions(&file, fs::Permissions::from_mode(0o666)).expect("ours");
        }
        let place = Place {
            site,
            run: Site::new(),
        };
        place.write(lines);
        place
    }

    fn with_directory(&self, lines: &str) -> String {
        lines.replace("DIR", &self.site.path().display().to_string())
    }

    fn write(&self, lines: &str) {
        // As editors do: it is never half there.
        let new = self.run.at("new");
        fs::write(&new, self.with_directory(lines)).expect("written");
        fs::rename(new, self.run.at("exports")).expect("renamed");
    }

    fn launch(&self, driver: Driver) -> Launch {
        let at = |name: &str| self.run.at(name).display().to_string();
        Launch::new(binary::flatpath().to_path_buf())
            .with(["serve", "--driver", driver.name(), "--nfs", "127.0.0.1:0"])
            .with(["--nfs-state", &at("key"), "--nfs-exports", &at("exports")])
    }

    /// Writes other lines and has them loaded.
    fn reload(&self, server: &Server, lines: &str) {
        const DONE: &str = "NFS exports: ";
        self.write(lines);
        let count = || server.log().matches(DONE).count();
        let before = count();
        server.process().signal(Signal::HUP);
        until_true(DONE, || count() > before);
    }

    fn path(&self, name: &str) -> String {
        self.site.at(name).display().to_string()
    }
}

/// A connection from an address of this machine.
fn connect(server: &Server, from: [u8; 4]) -> Connection {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from = std::net::SocketAddr::from((from, 0));
    socket
        .bind(&from.into())
        .expect("all of 127.0.0.0/8 is ours");
    socket
        .connect(&server.address("nfs").into())
        .expect("the server listens");
    let stream = TcpStream::from(socket);
    let patience = Some(flatpath_testkit::patience());
    stream.set_read_timeout(patience).expect("a socket has it");
    Connection::of(stream)
}

fn libnfs_mounts_each_export_with_its_rights(driver: Driver) {
    let place = Place::new(
        "# for everybody\nDIR/a *(ro,insecure)\n\"DIR/b\" \\\n  127.0.0.0/8(rw,insecure,fsid=7)\n",
    );
    let server = place.launch(driver).start();
    let of = |name: &str| url(&server, &place.path(name));
    let Some(listed) = run("nfs-ls", &[&of("a")]) else {
        return;
    };
    assert!(listed.status.success(), "{listed:?}");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert_eq!(listed.lines().count(), 2, "{listed}");
    let text = run("nfs-cat", &[&of("b/file")]).expect("installed");
    assert_eq!(text.stdout, b"b");
    let local = place.run.at("local");
    fs::write(&local, "uploaded").expect("written");
    let local = local.to_str().expect("a path in text");
    let up = run("nfs-cp", &[local, &of("b/up")]).expect("installed");
    assert!(up.status.success(), "{up:?}");
    assert_eq!(fs::read(place.site.at("b/up")).expect("there"), b"uploaded");
    let refused = run("nfs-cp", &[local, &of("a/up")]).expect("installed");
    assert!(!refused.status.success() && !place.site.at("a/up").exists());
    let outside = url(&server, &place.path("file"));
    let refused = run("nfs-cat", &[&outside]).expect("installed");
    assert!(!refused.status.success(), "{refused:?}");
}

fn a_client_has_the_rights_of_its_own_address(driver: Driver) {
    let place = Place::new("DIR/a 127.0.0.0/8(ro,insecure) 127.0.0.2(rw,insecure) 127.0.0.3\n");
    let server = place.launch(driver).start();
    for (last, written) in [(1, READ_ONLY), (2, OK)] {
        let mut calls = connect(&server, [127, 0, 0, last]);
        let root = calls
            .try_handle(&mount(&place.path("a")))
            .expect("exported");
        let file = calls.lookup(&root, "file");
        assert_eq!(calls.status(&write(&file, 0, b"x", 2)), written, "{last}");
        assert_eq!(
            calls.read(&file, 1),
            if written == OK { b"x" } else { b"a" }
        );
    }
    let mut calls = connect(&server, [127, 0, 0, 3]);
    let refused = calls.status(&mount(&place.path("a")));
    assert_eq!(refused, DENIED, "its port is too high");
}

fn handles_stay_in_their_export(driver: Driver) {
    let place = Place::new(
        "DIR/a 127.0.0.1(rw,insecure)\nDIR/a/sub *(rw,insecure)\nDIR/b *(ro,insecure)\n",
    );
    let server = place.launch(driver).start();
    let mut calls = connect(&server, [127, 0, 0, 1]);
    let root = |calls: &mut Connection, name| calls.try_handle(&mount(&place.path(name)));
    let [a, sub, b] = ["a", "a/sub", "b"].map(|name| root(&mut calls, name).expect("exported"));
    let file = calls.lookup(&a, "file");
    let up = calls.lookup(&sub, "..");
    assert_eq!(up, sub);
    // The same handle, as if it were of another export.
    let mut forged = file.clone();
    forged[4..8].copy_from_slice(&sub[4..8]);
    let mut other = connect(&server, [127, 0, 0, 2]);
    assert!(root(&mut other, "a").is_err());
    assert_eq!(other.status(&getattr(&file)), STALE);
    assert_eq!(other.status(&getattr(&forged)), STALE);
    assert_eq!(other.status(&lookup(&sub, "file")), OK);
    assert_eq!(other.status(&create(&b, "new")), READ_ONLY);
    let below = calls.lookup(&a, "sub");
    let inside = calls.status(&create(&below, "through-a"));
    assert_eq!(
        inside, OK,
        "what lies below is a part of the export above, too"
    );
    assert_eq!(calls.status(&across(&a, "file", &sub)), CROSS_DEVICE);
    assert_eq!(calls.status(&rename(&a, "file", "renamed")), OK);
}

/// RENAME to the same name in another directory.
fn across(from: &[u8], name: &str, to: &[u8]) -> flatpath_testkit::nfs::Call {
    let words = flatpath_testkit::nfs::Words::default();
    let words = words.opaque(from).opaque(name.as_bytes());
    flatpath_testkit::nfs::Call::nfs(14, words.opaque(to).opaque(name.as_bytes()))
}

fn clients_keep_what_they_mounted_while_exports_are_loaded_again(driver: Driver) {
    let both = "DIR/a *(rw,insecure)\nDIR/b *(rw,insecure)\n";
    let place = Place::new(both);
    let server = place.launch(driver).start();
    let mut calls = connect(&server, [127, 0, 0, 1]);
    let a = calls
        .try_handle(&mount(&place.path("a")))
        .expect("exported");
    let b = calls
        .try_handle(&mount(&place.path("b")))
        .expect("exported");
    let (in_a, in_b) = (calls.lookup(&a, "file"), calls.lookup(&b, "file"));
    let is_over = Over::default();
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let clients = (1..=3).map(|last| {
            let (mut calls, file, is_over) = (connect(&server, [127, 0, 0, last]), &in_a, &is_over);
            scope.spawn(move || {
                while !is_over.is_set() {
                    assert_eq!(calls.status(&write(file, 0, b"a", 0)), OK);
                    let reply: Reply = calls.call(&read(file, 0, 10));
                    assert_eq!(reply.data(), b"a");
                }
            })
        });
        let clients: Vec<_> = clients.collect();
        for round in 0..6 {
            place.reload(&server, "DIR/a *(rw,insecure)\n");
            assert_eq!(calls.status(&getattr(&in_b)), STALE);
            assert_eq!(calls.status(&mount(&place.path("b"))), DENIED);
            let lines = [
                "DIR/b 127.0.0.1(rw,insecure) *(ro,insecure)\n",
                "DIR/b *(ro,insecure)\n",
            ];
            place.reload(
                &server,
                &format!("DIR/a *(rw,insecure)\n{}", lines[round % 2]),
            );
            let written = calls.status(&write(&in_b, 0, b"b", 0));
            assert_eq!(
                written,
                [OK, READ_ONLY][round % 2],
                "the handle is good again"
            );
        }
        is_over.set();
        assert!(clients.into_iter().all(|it| it.join().is_ok()));
    });
    // A mistake changes nothing.
    place.write("DIR/a *(rw,insecure)\nDIR/b *(rw,insecur)\n");
    server.process().signal(Signal::HUP);
    until_true("the mistake", || server.log().contains("exports:2:"));
    assert!(server.log().contains("nothing is changed"));
    assert_eq!(calls.status(&write(&in_b, 0, b"b", 0)), READ_ONLY);
    assert_eq!(calls.status(&write(&in_a, 0, b"a", 0)), OK);
}

fn tables_of_the_configuration_are_exports_too(driver: Driver) {
    let place = Place::new("DIR/a *(ro,insecure)\n");
    let configure = |table: &str| {
        let text = format!(
            "nfs = \"127.0.0.1:0\"\nnfs-state = \"{}\"\nnfs-exports = \"{}\"\n{table}",
            place.run.at("key").display(),
            place.run.at("exports").display()
        );
        fs::write(place.run.at("toml"), place.with_directory(&text)).expect("written");
    };
    let table = "[[export]]\npath = \"DIR/b\"\noptions = \"insecure\"\n";
    configure(&format!("{table}clients = [\"127.0.0.1(rw)\"]\n"));
    let launch = Launch::new(binary::flatpath().to_path_buf());
    let server = launch
        .with(["serve", "--driver", driver.name(), "--config"])
        .with([place.run.at("toml")])
        .start();
    let mut calls = connect(&server, [127, 0, 0, 1]);
    let b = calls
        .try_handle(&mount(&place.path("b")))
        .expect("exported");
    assert!(calls.try_handle(&mount(&place.path("a"))).is_ok());
    let file = calls.lookup(&b, "file");
    assert_eq!(calls.status(&write(&file, 0, b"x", 0)), OK);
    configure(&format!("{table}clients = \"*\"\n"));
    place.reload(&server, "DIR/a *(ro,insecure)\n");
    assert_eq!(calls.status(&write(&file, 0, b"x", 0)), READ_ONLY);
}

fn a_file_with_a_mistake_is_refused_with_its_place(driver: Driver) {
    let place = Place::new("DIR/a *(ro,insecure)\nDIR/b *.example.org(rw)\n");
    let failed = place.launch(driver).try_start().err().expect("refused");
    let at = format!("{}:2:", place.run.at("exports").display());
    assert_eq!(failed.status.code(), Some(2));
    assert!(
        failed.log.contains(&at) && failed.log.contains("wildcards"),
        "{}",
        failed.log
    );
}

/// Root is in its own groups, and no call can say otherwise.
fn groups_are_those_that_the_machine_knows(driver: Driver) {
    const UNKNOWN: u32 = 4_000_000_001;
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let place = Place::new("DIR/a *(rw,insecure)\n");
    let secret = place.site.at("a/secret");
    fs::write(&secret, "secret").expect("made");
    std::os::unix::fs::chown(&secret, Some(1), Some(4711)).expect("root gives files away");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o640)).expect("ours");
    for (more, expected) in [(&[][..], OK), (&["--manage-gids"], DENIED)] {
        let server = place.launch(driver).with(more).start();
        let mut calls = connect(&server, [127, 0, 0, 1]);
        let a = calls
            .try_handle(&mount(&place.path("a")))
            .expect("exported");
        let handle = calls.lookup(&a, "secret");
        // A user that the machine does not know names the group of the file.
        let credential = [1, 24, 0, 0, UNKNOWN, UNKNOWN, 1, 4711, 0, 0];
        for xid in 1000..1003 {
            calls.send(&read(&handle, 0, 10).record_with(&credential, xid));
            assert_eq!(calls.reply().status(), expected, "{more:?}");
        }
    }
}
