//! What the server reports of itself: in flight work when it is asked, and few descriptors at
//! start.

use flatpath_testkit::ingest::told;
use flatpath_testkit::{Driver, Frozen, Launch, Site, each_driver, until};

each_driver!(
    work_that_waits_is_reported_with_its_age,
    few_descriptors_are_a_warning_and_too_few_an_error,
);

fn work_that_waits_is_reported_with_its_age(driver: Driver) {
    let site = Site::new();
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(["--workers", "1..1"])
        .start();
    assert_eq!(told(&server, "http ")["flatpath_jobs{state=queued}"], 0);
    let Some(frozen) = Frozen::thread(server.process(), "flatpath-worker") else {
        return;
    };
    let mut client = server.client();
    client.request("GET", "/no-such-file", &[]);
    until("the request to be reported with its age", || {
        let figures = told(&server, "http ");
        let jobs = |state| figures[&*format!("flatpath_jobs{{state={state}}}")];
        let log = server.log();
        // It has none in its first moment.
        let has_age = ["oldest_queued", "longest_running"]
            .into_iter()
            .any(|age| log.contains(&format!(" flatpath_{age}_seconds=")));
        (jobs("queued") + jobs("running") == 1 && has_age).then_some(())
    });
    drop(frozen);
    assert_eq!(client.reply().status, 404);
    let counters = told(&server, "http ");
    for name in [
        "flatpath_handler_panics_total",
        "flatpath_stalls_refused_total",
        "flatpath_accept_pauses_total",
    ] {
        assert_eq!(counters[name], 0, "{name}");
    }
}

fn few_descriptors_are_a_warning_and_too_few_an_error(driver: Driver) {
    let site = Site::new().with("hello", "hello");
    let serve = |descriptors: u64| {
        Launch::serve(driver)
            .directory(site.path())
            .descriptors(descriptors)
    };
    let server = serve(64).start();
    server.await_log("connection limit");
    for (descriptors, words) in [
        (8, "ulimit -n"),
        (23, "may open 23 descriptors, and needs 24"),
    ] {
        let Err(failed) = serve(descriptors).try_start() else {
            panic!("{descriptors} descriptors are too few");
        };
        let last = failed.log.lines().last().unwrap_or_default();
        assert!(last.contains(words), "{}", failed.log);
    }
    // The least that is named is enough for a client.
    let server = serve(24).start();
    assert_eq!(server.client().get("/hello").text(), "hello");
}
