//! The directory of an export is removed or replaced while clients have it mounted.

use std::fs;

use flatpath_testkit::nfs::{Connection, getattr, lookup, mount};
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, until, until_true};
use rustix::process::Signal;

each_driver!(
    an_export_that_is_removed_is_stale_and_a_new_one_can_be_mounted,
    an_export_that_is_replaced_stays_until_it_is_loaded_again,
);

const OK: u32 = 0;
const STALE: u32 = 70;

fn made(site: &Site) {
    fs::create_dir(site.at("export")).expect("made");
    fs::write(site.at("export/file"), "content").expect("written");
}

fn serve(driver: Driver, site: &Site) -> Server {
    made(site);
    Launch::serve(driver)
        .directory(&site.at("export"))
        .with(["--nfs", "127.0.0.1:0", "--admin", "127.0.0.1:0"])
        .with(["--nfs-state".as_ref(), site.at("state").as_os_str()])
        .start()
}

fn an_export_that_is_removed_is_stale_and_a_new_one_can_be_mounted(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let path = site.at("export").display().to_string();
    let mut calls = Connection::open(server.address("nfs"));
    let root = calls.try_handle(&mount(&path)).expect("exported");
    let file = calls.lookup(&root, "file");
    fs::remove_dir_all(site.at("export")).expect("removed");
    until_true("its handles are stale", || {
        let calls = &mut calls;
        [getattr(&root), getattr(&file), lookup(&root, "file")]
            .iter()
            .all(|call| calls.status(call) == STALE)
    });
    server.await_log("was removed: its handles are stale");
    let admin = server.address("admin");
    let ready = until("it is not ready", || {
        let reply = Client::connect(admin).get("/readyz");
        (reply.status == 503).then_some(reply)
    });
    assert!(ready.text().contains(&path), "{}", ready.text());
    made(&site);
    let new = until("the new one is exported", || {
        calls.try_handle(&mount(&path)).ok()
    });
    assert_ne!(new, root);
    calls.lookup(&new, "file");
    assert_eq!(calls.status(&getattr(&root)), STALE);
    let log = server.log();
    let lines = log.lines().filter(|line| line.contains("was removed: its"));
    assert_eq!(lines.count(), 1, "{log}");
    drop(calls);
    server.end();
}

fn an_export_that_is_replaced_stays_until_it_is_loaded_again(driver: Driver) {
    let site = Site::new();
    let server = serve(driver, &site);
    let path = site.at("export").display().to_string();
    let mut calls = Connection::open(server.address("nfs"));
    let root = calls.try_handle(&mount(&path)).expect("exported");
    fs::rename(site.at("export"), site.at("before")).expect("renamed");
    made(&site);
    fs::write(site.at("export/new"), "content").expect("written");
    // HTTP has it by now, so whoever looks has looked.
    until_true("the new one is served", || {
        server.client().get("/new").status == 200
    });
    assert_eq!(calls.status(&getattr(&root)), OK, "the directory lives");
    server.process().signal(Signal::HUP);
    until_true("it is loaded again", || {
        calls.status(&getattr(&root)) == STALE
    });
    let new = calls.try_handle(&mount(&path)).expect("exported");
    calls.lookup(&new, "new");
    drop(calls);
    server.end();
}
