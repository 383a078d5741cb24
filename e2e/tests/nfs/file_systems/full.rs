//! No room: on a disk, and within the quota of a project. Clients learn which it is, what they were
//! answered for is there, and room that is freed is used.

use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::image::{Format, Image};
use flatpath_testkit::nfs::{Connection, commit, write};
use flatpath_testkit::skipped::cannot_run;
use flatpath_testkit::{Driver, Server, Site, each_driver, tools, until_true};
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use super::{BTRFS, XFS, names, put, serve};

each_driver!(
    a_full_ext4_is_an_error_of_its_clients,
    a_full_xfs_is_an_error_of_its_clients,
    a_full_btrfs_is_an_error_of_its_clients,
    a_project_of_ext4_has_its_quota,
    a_project_of_xfs_has_its_quota,
);

const NO_SPACE: u32 = 28;
const OVER_QUOTA: u32 = 69;
/// What a project may have.
const QUOTA_BYTES: usize = 1 << 20;
/// What no longer fits in either case.
const BYTES: usize = 2 << 20;

/// Writes what does not fit by NFS, and has what was taken of it.
fn is_refused(nfs: &mut Connection, file: &[u8], status: u32) {
    let piece = [1; 64 << 10];
    let mut offset = 0;
    let failed = loop {
        assert!(offset < BYTES as u64, "there is no room for it");
        match nfs.status(&write(file, offset, &piece, 0)) {
            0 => offset += piece.len() as u64,
            failed => break failed,
        }
    };
    assert_eq!(failed, status);
    assert_eq!(nfs.status(&commit(file)), 0, "what was taken is there");
    if offset > 0 {
        assert_eq!(nfs.read(file, 4), [1; 4]);
    }
}

/// Writes by both protocols what does not fit into `directory`, which is served, once `fill` has
/// taken the room by a file; then there is room.
fn is_an_error(server: &Server, directory: &Path, status: u32, fill: impl FnOnce(&Path)) {
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    // There may be none for a name.
    let file = nfs.create(&root, "written");
    let filler = directory.join("filler");
    fill(&filler);
    let before = names(directory);
    assert_eq!(put(server, "/large", &vec![7; BYTES]), 507);
    until_true("nothing to be left", || names(directory) == before);
    is_refused(&mut nfs, &file, status);
    assert_eq!(server.client().get("/kept").body, b"kept");
    fs::remove_file(filler).expect("it is there");
    fs::remove_file(directory.join("written")).expect("it was made");
    until_true("the room to be found", || {
        matches!(put(server, "/large", &vec![7; BYTES / 4]), 201 | 204)
    });
    assert_eq!(server.client().get("/large").body.len(), BYTES / 4);
}

/// Takes all room of a file system but the last blocks.
fn fill(filler: &Path) {
    let file = File::create(filler).expect("there is room");
    let (mut length, mut piece) = (0, 64 << 20);
    while piece >= 4096 {
        match fallocate(&file, FallocateFlags::empty(), length, piece) {
            Ok(()) => length += piece,
            Err(Errno::NOSPC) => piece /= 2,
            Err(cause) => panic!("{cause}"),
        }
    }
    file.sync_all().expect("it is synced");
}

fn full(driver: Driver, format: Format) {
    let Some(image) = Image::try_new(format) else {
        return;
    };
    let (at, state) = (image.path(), Site::new());
    fs::write(at.join("kept"), "kept").expect("room");
    let server = serve(driver, at, &state);
    is_an_error(&server, at, NO_SPACE, fill);
    server.end();
}

fn a_full_ext4_is_an_error_of_its_clients(driver: Driver) {
    full(driver, Format::EXT4);
}

fn a_full_xfs_is_an_error_of_its_clients(driver: Driver) {
    full(driver, XFS);
}

fn a_full_btrfs_is_an_error_of_its_clients(driver: Driver) {
    full(driver, BTRFS);
}

/// Serves the directory of a project whose limit the command sets, with its arguments in which
/// `DIRECTORY` and `ROOT` are those of the file system.
fn within_quota(driver: Driver, format: Format, commands: &[&[&str]]) {
    let programs = commands.iter().map(|it| tools::find(it[0]));
    let (Some(programs), Some(image)) =
        (programs.collect::<Option<Vec<_>>>(), Image::try_new(format))
    else {
        return;
    };
    let root = image.path();
    let (directory, state) = (root.join("project"), Site::new());
    fs::create_dir(&directory).expect("a new name");
    for (program, command) in programs.iter().zip(commands) {
        let of_it = command[1..].iter().map(|argument| {
            let text = argument.replace("DIRECTORY", &directory.display().to_string());
            text.replace("ROOT", &root.display().to_string())
        });
        let output = tools::run(Command::new(program).args(of_it), patience());
        if !output.status.success() {
            let errors = String::from_utf8_lossy(&output.stderr);
            return cannot_run(&format!("quotas of projects: {errors}"));
        }
    }
    fs::write(directory.join("kept"), "kept").expect("room");
    let server = serve(driver, &directory, &state);
    // XFS has no other error for a project's.
    let status = if format.kind == "xfs" {
        NO_SPACE
    } else {
        OVER_QUOTA
    };
    is_an_error(&server, &directory, status, |filler| {
        fs::write(filler, vec![0; QUOTA_BYTES / 2]).expect("room");
    });
    server.end();
}

fn a_project_of_ext4_has_its_quota(driver: Driver) {
    let format = Format {
        make: &[
            "-q",
            "-F",
            "-O",
            "quota,project",
            "-E",
            "quotatype=prjquota",
        ],
        mount: "nosuid,prjquota",
        ..Format::EXT4
    };
    let commands: &[&[&str]] = &[
        &["chattr", "-p", "7", "+P", "DIRECTORY"],
        &["setquota", "-P", "7", "0", "1024", "0", "0", "ROOT"],
    ];
    within_quota(driver, format, commands);
}

fn a_project_of_xfs_has_its_quota(driver: Driver) {
    let format = Format {
        mount: "nosuid,prjquota",
        ..XFS
    };
    let set = "project -s -p DIRECTORY 7";
    let commands: &[&[&str]] = &[
        &["xfs_quota", "-x", "-c", set, "ROOT"],
        &["xfs_quota", "-x", "-c", "limit -p bhard=1m 7", "ROOT"],
    ];
    within_quota(driver, format, commands);
}
