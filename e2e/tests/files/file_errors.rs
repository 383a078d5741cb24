//! What clients and the log are told of errors of files, and of targets that are hardly any.

use flatpath_testkit::mount::Mounted;
use flatpath_testkit::reply::Reply;
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver};

each_driver!(
    a_name_that_is_too_long_is_that_for_a_write,
    a_file_system_that_is_read_only_is_named_in_the_log,
    a_query_may_have_any_text,
);

fn put(server: &Server, target: &str) -> Reply {
    let mut client = server.client();
    client.request("PUT", target, &[("Content-Length", "1")]);
    client.send(b"x");
    client.reply()
}

fn a_name_that_is_too_long_is_that_for_a_write(driver: Driver) {
    let site = Site::new();
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(["--writable"])
        .start();
    let name = |bytes| format!("/{}", "n".repeat(bytes));
    assert_eq!(put(&server, &name(255)).status, 201);
    assert_eq!(put(&server, &name(256)).status, 414);
    // A path of names that are short, but longer than any path can be.
    let deep = format!("{}/x", "/directory".repeat(410));
    assert_eq!(put(&server, &deep).status, 414);
    assert_eq!(
        server.client().get(&name(256)).status,
        404,
        "nothing has it"
    );
    server.end();
}

fn a_file_system_that_is_read_only_is_named_in_the_log(driver: Driver) {
    let site = Site::new();
    let at = site.at("mounted");
    let empty = Site::new().with("old", "old");
    let files = Site::new();
    std::fs::create_dir(&at).expect("made");
    let Ok(mounted) = Mounted::overlay_at(&at, empty.path(), files.path()) else {
        return flatpath_testkit::skipped::cannot_run("mounting an overlay");
    };
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(["--writable"])
        .start();
    assert_eq!(put(&server, "/mounted/new").status, 403);
    server.await_log("an uploaded file cannot be written: Read-only file system");
    server.end();
    drop(mounted);
}

fn a_query_may_have_any_text(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let server = Launch::serve(driver).directory(site.path()).start();
    for _ in 0..2 {
        for target in ["/file?q=\u{e9}", "/file?\u{4e2d}\u{6587}=1&x"] {
            let reply = server.client().get(target);
            assert_eq!((reply.status, reply.text()), (200, "contents"), "{target}");
        }
    }
    // A redirect keeps it, and a path has to be encoded.
    let moved = server.client().get("/?sort=\u{e9}");
    assert_eq!(moved.status, 200);
    assert_eq!(server.client().get("/fil\u{e9}").status, 400);
    server.end();
}
