//! A full disk: the client at fault learns of it, nothing half is left, and the space comes back.

use std::path::{Path, PathBuf};

use flatpath_testkit::deadline::until;
use flatpath_testkit::nfs::{Connection, commit, remove, write};
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, tools};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

each_driver!(a_full_disk_is_an_error_of_one_client_and_gives_its_space_back);

const NO_SPACE: u32 = 28;

/// A file system of 2 MiB.
struct Disk(PathBuf);

impl Disk {
    /// `None` after saying that it cannot be mounted here.
    fn mount(at: PathBuf) -> Option<Disk> {
        std::fs::create_dir(&at).expect("a new name");
        match mount("tmpfs", &at, "tmpfs", MountFlags::empty(), Some(c"size=2m")) {
            Ok(()) => Some(Disk(at)),
            Err(errno) => tools::refused(&format!("a tmpfs mount: {errno}")),
        }
    }

    fn free(&self) -> u64 {
        let found = rustix::fs::statvfs(&self.0).expect("it is mounted");
        found.f_bfree * found.f_frsize
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).expect("it is mounted");
        let names = entries.map(|entry| entry.expect("an entry").file_name());
        names
            .map(|name| name.to_string_lossy().into_owned())
            .collect()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::DETACH);
    }
}

fn serve(driver: Driver, disk: &Path, state: &Site) -> Server {
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(disk, open).expect("our own directory");
    let state = state.path().to_str().expect("a path in text");
    Launch::serve(driver)
        .directory(disk)
        .with(["--nfs", "127.0.0.1:0", "--nfs-state", state])
        .with(["--writable", "--uploads-bytes", "1G"])
        .start()
}

/// Sends a body that may be refused before its end; the status.
fn send(client: &mut Client, head: (&str, &str), fields: &[(&str, &str)], bytes: usize) -> u16 {
    let length = bytes.to_string();
    let fields = [fields, &[("Content-Length", length.as_str())]].concat();
    client.request(head.0, head.1, &fields);
    let _ = client.try_send(vec![7; bytes]);
    client.reply().status
}

fn a_full_disk_is_an_error_of_one_client_and_gives_its_space_back(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let Some(disk) = Disk::mount(site.at("disk")) else {
        return;
    };
    let server = serve(driver, &disk.0, &state);
    assert_eq!(
        send(&mut server.client(), ("PUT", "/kept"), &[], 100_000),
        201
    );
    let free = disk.free();
    let nothing_is_left = || {
        until("the space to come back", || {
            (disk.free() == free).then_some(())
        });
        assert_eq!(disk.names(), ["kept"]);
        assert_eq!(server.client().get("/kept").body, [7; 100_000]);
    };

    assert_eq!(
        send(&mut server.client(), ("PUT", "/large"), &[], 4_000_000),
        507
    );
    nothing_is_left();

    put_in_parts(&server, &disk);
    until("records to be gone", || {
        let _ = std::fs::remove_dir(disk.0.join(".flatpath-uploads"));
        (disk.names() == ["kept"]).then_some(())
    });
    nothing_is_left();

    write_by_nfs(&server);
    nothing_is_left();
    assert_eq!(
        send(&mut server.client(), ("PUT", "/other"), &[], 1_000_000),
        201
    );
}

/// An upload by tus: what arrived counts, and goes with it.
fn put_in_parts(server: &Server, disk: &Disk) {
    let version = ("Tus-Resumable", "1.0.0");
    let mut client = server.client();
    client.request("POST", "/parts", &[version, ("Upload-Length", "4000000")]);
    let reply = client.reply();
    assert_eq!(reply.status, 201);
    let address = reply.field("location").expect("an address").to_owned();
    let kind = ("Content-Type", "application/offset+octet-stream");
    let fields = [version, kind, ("Upload-Offset", "0")];
    assert_eq!(
        send(
            &mut server.client(),
            ("PATCH", &address),
            &fields,
            4_000_000
        ),
        507
    );
    assert!(disk.free() < 100_000, "what arrived is kept");
    // Others are served meanwhile, with the same status.
    assert_eq!(server.client().get("/kept").status, 200);
    assert_eq!(
        send(&mut server.client(), ("PUT", "/other"), &[], 1_000_000),
        507
    );
    let mut client = server.client();
    client.request("DELETE", &address, &[version]);
    assert_eq!(client.reply().status, 204);
}

/// WRITE until the disk is full, COMMIT, and REMOVE.
fn write_by_nfs(server: &Server) {
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    let file = nfs.create(&root, "written");
    let piece = [1; 64 << 10];
    let mut offset = 0;
    let status = loop {
        assert!(offset < 4 << 20, "the disk has an end");
        let reply = nfs.call(&write(&file, offset, &piece, 0));
        if reply.status() != 0 {
            break reply.status();
        }
        offset += piece.len() as u64;
    };
    assert_eq!(status, NO_SPACE);
    assert_eq!(nfs.status(&commit(&file)), 0, "what was taken is there");
    assert_eq!(nfs.read(&file, 4), [1; 4]);
    assert_eq!(nfs.status(&write(&file, offset, &piece, 2)), NO_SPACE);
    assert_eq!(nfs.status(&remove(&root, "written")), 0);
}
