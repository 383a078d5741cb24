//! Files that are removed give their space back, and idle files block no other use.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use flatpath_testkit::deadline::until;
use flatpath_testkit::nfs::{Connection, commit, remove, rename, set_length, write};
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver};

use crate::nfs::{launch, serve};

each_driver!(
    what_a_client_removes_or_replaces_is_closed_before_the_reply,
    what_is_removed_on_the_server_is_closed,
    a_program_that_a_client_wrote_can_be_started,
    a_limit_on_the_length_of_files_is_an_error_and_not_the_end,
);

/// A file that was written, committed and read.
fn used(client: &mut Connection, root: &[u8], name: &str, data: &[u8]) -> Vec<u8> {
    let file = client.create(root, name);
    assert_eq!(client.status(&write(&file, 0, data, 0)), 0);
    assert_eq!(client.status(&commit(&file)), 0);
    assert!(data.starts_with(&client.read(&file, 100)));
    file
}

/// Descriptors of the server on files of the site that have no name any more.
fn unnamed(server: &Server, site: &Site) -> Vec<String> {
    let open = server.process().open_files().into_iter();
    open.filter(|path| path.starts_with(site.path()))
        .map(|path| path.to_string_lossy().into_owned())
        .filter(|path| path.ends_with(" (deleted)"))
        .collect()
}

fn what_a_client_removes_or_replaces_is_closed_before_the_reply(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    used(&mut client, &root, "removed", &[1; 100_000]);
    assert_eq!(client.status(&remove(&root, "removed")), 0);
    assert_eq!(unnamed(&server, &site), [""; 0]);
    used(&mut client, &root, "replaced", &[2; 100_000]);
    used(&mut client, &root, "moved", &[3; 100_000]);
    let renamed = rename(&root, "moved", "replaced");
    assert_eq!(client.status(&renamed), 0);
    assert_eq!(unnamed(&server, &site), [""; 0]);
}

fn what_is_removed_on_the_server_is_closed(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    used(&mut client, &root, "removed", &[1; 100_000]);
    std::fs::remove_file(site.at("removed")).expect("removed");
    until("the file to be closed", || {
        unnamed(&server, &site).is_empty().then_some(())
    });
}

fn a_program_that_a_client_wrote_can_be_started(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = serve(driver, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    let program = std::fs::read("/bin/true").expect("every Linux has it");
    used(&mut client, &root, "program", &program);
    let path = site.at("program");
    let executable = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&path, executable).expect("our own file");
    let ended = until("the program to be closed", || {
        match Command::new(&path).status() {
            Err(error) if error.kind() == ErrorKind::ExecutableFileBusy => None,
            other => Some(other.expect("it starts")),
        }
    });
    assert!(ended.success());
}

fn a_limit_on_the_length_of_files_is_an_error_and_not_the_end(driver: Driver) {
    const LIMIT: u64 = 1 << 20;
    const TOO_BIG: u32 = 27;
    let (site, state) = (Site::new(), Site::new());
    let limited = Launch::serve(driver).file_size(LIMIT);
    let server = launch(limited, &site, &state, &[]);
    let mut client = Connection::open(server.address("nfs"));
    let root = client.root();
    let file = client.create(&root, "file");
    let beyond = write(&file, LIMIT + 1, b"data", 0);
    assert_eq!(client.status(&beyond), TOO_BIG);
    assert_eq!(client.status(&write(&file, 0, b"data", 0)), 0);
    let length = set_length(&file, LIMIT + 1);
    assert_eq!(client.status(&length), TOO_BIG, "SETATTR");

    let mut client = server.client();
    let body = vec![7; usize::try_from(2 * LIMIT).expect("small")];
    let bytes = body.len().to_string();
    client.request("PUT", "/put", &[("Content-Length", bytes.as_str())]);
    client.send(&body);
    assert_eq!(client.reply().status, 413);
    assert!(!site.at("put").exists());
}
