//! Directories of ext4 in which names that differ only in case are one: each spelling leads to the
//! one file, and none to what it was before.

use std::fs;
use std::process::Command;

use flatpath_testkit::deadline::patience;
use flatpath_testkit::image::{Format, Image};
use flatpath_testkit::nfs::{Connection, lookup, remove, rename};
use flatpath_testkit::{Driver, Site, each_driver, tools};

use super::{names, put, serve};

each_driver!(a_file_is_served_by_each_spelling_of_its_name);

const FOLDING: Format = Format {
    make: &["-q", "-F", "-O", "casefold"],
    ..Format::EXT4
};
const MISSING: u32 = 2;

fn a_file_is_served_by_each_spelling_of_its_name(driver: Driver) {
    let (Some(chattr), Some(image)) = (tools::find("chattr"), Image::try_new(FOLDING)) else {
        return;
    };
    let folding = image.path().join("folding");
    fs::create_dir(&folding).expect("a new name");
    let folds = tools::run(Command::new(chattr).arg("+F").arg(&folding), patience());
    let errors = String::from_utf8_lossy(&folds.stderr);
    assert!(folds.status.success(), "{errors}");
    let state = Site::new();
    fs::write(folding.join("Read.Me"), "zero").expect("room");
    let server = serve(driver, &folding, &state);
    let mut nfs = Connection::open(server.address("nfs"));
    let root = nfs.root();
    let file = nfs.lookup(&root, "Read.Me");
    let spelled = ["Read.Me", "READ.ME", "read.me"];
    let is_served = |nfs: &mut Connection, content: &[u8]| {
        for name in spelled.into_iter().chain(spelled) {
            let reply = server.client().get(&format!("/{name}"));
            assert_eq!(reply.body, content, "{name}");
            let found = nfs.lookup(&root, name);
            assert_eq!(nfs.read(&found, 100), content, "{name} by NFS");
        }
    };
    is_served(&mut nfs, b"zero");
    assert_eq!(nfs.lookup(&root, "read.ME"), file, "one file, one handle");
    for (name, content) in [("/read.me", "one"), ("/READ.ME", "two"), ("/Read.Me", "3")] {
        assert_eq!(put(&server, name, content.as_bytes()), 204, "{name}");
        is_served(&mut nfs, content.as_bytes());
        assert_eq!(names(&folding).len(), 1);
    }
    let file = nfs.lookup(&root, "READ.me");
    assert_eq!(nfs.status(&rename(&root, "READ.me", "rEAD.mE")), 0);
    // To the kernel that is one name, which it leaves as it is.
    assert_eq!(names(&folding).len(), 1);
    is_served(&mut nfs, b"3");
    assert_eq!(nfs.lookup(&root, "read.me"), file);
    assert_eq!(nfs.status(&remove(&root, "READ.ME")), 0);
    for name in spelled {
        assert_eq!(server.client().get(&format!("/{name}")).status, 404);
        assert_eq!(nfs.status(&lookup(&root, name)), MISSING);
    }
    server.end();
}
