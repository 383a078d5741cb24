//! A mount below the served directory hangs: everything else is answered as before.

use flatpath_testkit::deadline::{long_patience, until};
use flatpath_testkit::fuse::{self, Content, Fuse};
use flatpath_testkit::mount::Mounted;
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, noise};
use rustix::process::Signal;

each_driver!(
    a_cached_file_on_a_hung_mount_does_not_stop_the_others,
    an_overlay_whose_layer_hangs_stops_no_network_thread,
    a_download_from_an_overlay_whose_layer_hangs_keeps_its_client_waiting_and_no_other,
    a_mount_that_appears_over_a_cached_file_is_not_walked_to,
    a_cached_file_is_answered_within_its_age_while_its_mount_hangs,
    a_hung_mount_does_not_take_all_workers,
    a_link_to_a_hung_mount_does_not_take_all_workers,
    downloads_from_a_hung_mount_do_not_take_all_workers,
    a_server_ends_in_time_while_a_mount_hangs,
    reading_that_fails_is_logged,
    a_handler_that_hangs_is_named_while_it_runs,
);

fn a_handler_that_hangs_is_named_while_it_runs(driver: Driver) {
    let flags = ["--slow", "0.05", "--admin", "127.0.0.1:0"];
    let Some((_site, server, fuse)) = serve(driver, &flags) else {
        return;
    };
    fuse.pause();
    let mut client = server.client();
    client.request("GET", "/remote/file", &[]);
    server.await_log("slow handler of http 127.0.0.1:");
    let metrics = Client::connect(server.address("admin")).get("/metrics");
    let mut slow = metrics.text().lines();
    assert!(slow.any(|line| line.starts_with("flatpath_slow_handlers{") && line.ends_with(" 1")));
    fuse.resume();
    assert_eq!(client.reply().text(), "remote");
    server.await_log("has returned");
}

const LARGE_BYTES: usize = 4 << 20;

fn site() -> Site {
    let site = Site::new().with("local", "local");
    site.settle();
    site
}

/// A server over a site with a mount that can hang. Dropped from the last to the first: a site is
/// removed by walking through it.
fn serve(driver: Driver, flags: &[&str]) -> Option<(Site, Server, Fuse)> {
    let site = site();
    let files = vec![
        Content::new("file", "remote"),
        Content::new("large", vec![b'x'; LARGE_BYTES]),
    ];
    let fuse = fuse::try_mount(&site.at("remote"), files)?;
    let server = start(driver, &site, flags);
    Some((site, server, fuse))
}

fn start(driver: Driver, site: &Site, flags: &[&str]) -> Server {
    let launch = Launch::serve(driver)
        .with(["--network-threads", "1"])
        .with(flags);
    launch.directory(site.path()).start()
}

/// Asks often enough that the file is cached.
fn warm(server: &Server, target: &str, text: &str) {
    let mut client = server.client();
    for _ in 0..4 {
        assert_eq!(client.get(target).text(), text);
    }
}

fn a_cached_file_on_a_hung_mount_does_not_stop_the_others(driver: Driver) {
    let Some((_site, server, fuse)) = serve(driver, &["--stat-age", "0.001"]) else {
        return;
    };
    warm(&server, "/remote/file", "remote");
    warm(&server, "/local", "local");
    fuse.pause();
    // More than one of each kind: cached, not cached, not there.
    let mut hung: Vec<_> = ["file", "file", "large", "none", ""]
        .into_iter()
        .map(|name| {
            let mut client = server.client();
            client.request("GET", &format!("/remote/{name}"), &[]);
            client
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(server.client().get("/local").text(), "local");
        assert_eq!(server.client().get("/none").status, 404);
        assert_eq!(
            server.client().get("/").status,
            200,
            "its mount point is listed"
        );
    }
    // The first two may have been answered from the cache.
    assert!(hung[2..].iter_mut().all(Client::is_quiet));
    fuse.resume();
    let statuses = hung.iter_mut().map(|client| client.reply().status);
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 200, 404, 200]);
}

fn an_overlay_whose_layer_hangs_stops_no_network_thread(driver: Driver) {
    let lower = Site::new();
    let files = vec![Content::new("file", "remote")];
    let Some(fuse) = fuse::try_mount(lower.path(), files) else {
        return;
    };
    let Some(overlay) = Mounted::overlay(lower.path()) else {
        return;
    };
    let launch = Launch::serve(driver).with(["--network-threads", "1", "--stat-age", "0.001"]);
    let server = launch.directory(overlay.path()).start();
    warm(&server, "/file", "remote");
    let mut innocent = server.client();
    assert_eq!(innocent.get("/.hidden").status, 404);
    // Cached, and its age is over: whoever answers asks the file system.
    fuse.pause();
    let mut hung: Vec<_> = (0..3)
        .map(|_| {
            let mut client = server.client();
            client.request("GET", "/file", &[]);
            client
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(innocent.get("/.hidden").status, 404, "it needs no file");
    }
    fuse.resume();
    assert!(hung.iter_mut().all(|client| client.reply().status == 200));
}

/// In the middle, and cached or not: an overlay is as local as its layers are.
fn a_download_from_an_overlay_whose_layer_hangs_keeps_its_client_waiting_and_no_other(
    driver: Driver,
) {
    let lower = Site::new();
    let content = noise(1, LARGE_BYTES);
    let files = vec![Content::new("large", &content[..])];
    let Some(fuse) = fuse::try_mount(lower.path(), files) else {
        return;
    };
    let Some(overlay) = Mounted::overlay(lower.path()) else {
        return;
    };
    let launch = Launch::serve(driver).with(["--network-threads", "1"]);
    let server = launch.directory(overlay.path()).start();
    let mut innocent = server.client();
    let begun = (0..3).map(|_| {
        let mut client = Client::connect_with_window(server.address("http"), 4_096);
        client.request("GET", "/large", &[]);
        assert_eq!(client.reply_to_head().status, 200);
        client
    });
    let begun: Vec<_> = begun.collect();
    fuse.pause();
    let readers = begun.into_iter().map(|client| {
        let mut client = client.patient(long_patience());
        std::thread::spawn(move || client.exactly(LARGE_BYTES))
    });
    let readers: Vec<_> = readers.collect();
    for _ in 0..50 {
        assert_eq!(innocent.get("/.hidden").status, 404, "it needs no file");
    }
    assert!(readers.iter().all(|reader| !reader.is_finished()));
    fuse.resume();
    for reader in readers {
        let received = reader.join().expect("the reader does not panic");
        assert!(received == content, "each byte comes once");
    }
}

fn a_mount_that_appears_over_a_cached_file_is_not_walked_to(driver: Driver) {
    let site = site();
    site.write("covered/file", "below");
    site.settle();
    let server = start(driver, &site, &[]);
    warm(&server, "/covered/file", "below");
    let files = vec![Content::new("file", "above")];
    let Some(fuse) = fuse::try_mount(&site.at("covered"), files) else {
        return;
    };
    until("the mount to be seen", || {
        let text = server.client().get("/covered/file").text().to_string();
        (text == "above").then_some(())
    });
    fuse.pause();
    let mut hung = server.client();
    // As long as it is answered from the cache, it is not there yet where it hangs.
    until("the age to pass", || {
        hung.request("GET", "/covered/file", &[]);
        std::thread::sleep(std::time::Duration::from_millis(200));
        if hung.is_quiet() {
            return Some(());
        }
        assert_eq!(hung.reply().text(), "above");
        None
    });
    assert_eq!(server.client().get("/local").text(), "local");
    fuse.resume();
    assert_eq!(hung.reply().text(), "above");
}

fn a_cached_file_is_answered_within_its_age_while_its_mount_hangs(driver: Driver) {
    let Some((_site, server, fuse)) = serve(driver, &["--stat-age", "3600"]) else {
        return;
    };
    warm(&server, "/remote/file", "remote");
    fuse.pause();
    assert_eq!(server.client().get("/remote/file").text(), "remote");
}

/// Half of four workers may be in one mount; others are told to come back, and the rest of the
/// workers serve the rest of the directory.
fn a_hung_mount_does_not_take_all_workers(driver: Driver) {
    let Some((_site, server, fuse)) = serve(driver, &["--workers", "1..4"]) else {
        return;
    };
    let mut hung = keeps_its_share(&server, &fuse, "/remote/file");
    server.process().signal(Signal::USR1);
    server.await_log("flatpath_mount_jobs{mount=remote,state=running}=2");
    are_answered(&fuse, &mut hung);
}

/// The same where only a link leads to the mount.
fn a_link_to_a_hung_mount_does_not_take_all_workers(driver: Driver) {
    let Some((site, server, fuse)) = serve(driver, &["--workers", "1..4"]) else {
        return;
    };
    std::os::unix::fs::symlink("remote", site.at("link")).expect("a link can be made");
    let mut hung = keeps_its_share(&server, &fuse, "/link/file");
    are_answered(&fuse, &mut hung);
}

fn are_answered(fuse: &Fuse, hung: &mut [Client]) {
    fuse.resume();
    for client in hung {
        assert_eq!(client.reply().text(), "remote");
    }
}

/// Asks more often than there are workers while the mount hangs. Gives back those that a worker
/// asks the mount for.
fn keeps_its_share(server: &Server, fuse: &Fuse, target: &str) -> Vec<Client> {
    const ASKED: usize = 12;
    fuse.pause();
    let asked = (0..ASKED).map(|_| {
        let mut client = server.client();
        client.request("GET", target, &[]);
        client
    });
    let mut hung: Vec<_> = asked.collect();
    for _ in 0..20 {
        assert_eq!(server.client().get("/none").status, 404);
    }
    let refused = server.client().get(target);
    assert_eq!(refused.status, 503);
    assert_eq!(refused.field("Retry-After"), Some("1"));
    until("all but the share to be refused", || {
        hung.retain_mut(|client| client.is_quiet() || client.reply().status != 503);
        (hung.len() == 2).then_some(())
    });
    hung
}

/// Downloads hold no worker between two pieces, but each piece is read within the share.
fn downloads_from_a_hung_mount_do_not_take_all_workers(driver: Driver) {
    const DOWNLOADS: usize = 12;
    let Some((_site, server, fuse)) = serve(driver, &["--workers", "1..4"]) else {
        return;
    };
    let begun = (0..DOWNLOADS).map(|_| {
        let mut client = Client::connect_with_window(server.address("http"), 4_096);
        client.request("GET", "/remote/large", &[("Connection", "close")]);
        assert!(client.exactly(100).starts_with(b"HTTP/1.1 200 "));
        client
    });
    let begun: Vec<_> = begun.collect();
    fuse.pause();
    let readers = begun
        .into_iter()
        .map(|mut client| std::thread::spawn(move || client.rest()));
    let readers: Vec<_> = readers.collect();
    for _ in 0..20 {
        assert_eq!(server.client().get("/none").status, 404);
        assert_eq!(server.client().get("/local").text(), "local");
    }
    until("all but the share to be broken off", || {
        let running = readers.iter().filter(|reader| !reader.is_finished());
        (running.count() <= 2).then_some(())
    });
    fuse.resume();
    for reader in readers {
        // Those inside are finished; what the others have is short of its length.
        let (bytes, _) = reader.join().expect("the reader does not panic");
        assert!(bytes.len() <= LARGE_BYTES + 1_000);
    }
}

/// Handlers that never return are named in the log, in the metrics and to the status page while the
/// server serves and while it drains, and the drain ends all the same.
fn a_server_ends_in_time_while_a_mount_hangs(driver: Driver) {
    let flags = ["--drain-timeout", "3", "--stat-age", "0.001"];
    let named = ["--slow", "0.05", "--admin", "127.0.0.1:0"];
    let Some((_site, mut server, fuse)) = serve(driver, &[flags, named].concat()) else {
        return;
    };
    fuse.pause();
    let mut hung: Vec<_> = ["file", "large", "none"].map(|_| server.client()).into();
    for client in &mut hung {
        client.request("GET", "/remote/file", &[]);
    }
    assert_eq!(server.client().get("/none").status, 404);
    let http = server.address("http").to_string();
    server.await_log(&format!("slow handler of http {http}, worker "));
    let admin = server.address("admin");
    let is_named = || {
        let metrics = Client::connect(admin).get("/metrics");
        let sample = format!("flatpath_slow_handlers{{listener=\"http\",address=\"{http}\"}} ");
        let mut lines = metrics.text().lines();
        let count = lines.find_map(|line| line.strip_prefix(&sample)?.parse::<u32>().ok());
        let status = Client::connect(admin).get("/status.json");
        let status: serde_json::Value = serde_json::from_str(status.text()).expect("JSON");
        let slow = &status["slow_handlers"][0];
        count > Some(0) && slow["address"] == http.as_str() && slow["inline"] == false
    };
    assert!(is_named());
    server.terminate();
    server.await_log("draining");
    assert!(is_named(), "also while it drains");
    let _forced = server.exit_status();
    server.await_log("left behind");
    assert!(!server.log().contains("panicked"));
    fuse.resume();
}

fn reading_that_fails_is_logged(driver: Driver) {
    let site = site();
    let broken = |at| vec![b'x'; at];
    let files = vec![
        Content::new("first", broken(LARGE_BYTES)).broken_at(0),
        Content::new("late", broken(LARGE_BYTES)).broken_at(400_000),
    ];
    let Some(_fuse) = fuse::try_mount(&site.at("remote"), files) else {
        return;
    };
    let server = start(driver, &site, &[]);
    for name in ["first", "late"] {
        let mut client = server.client();
        client.request("GET", &format!("/remote/{name}"), &[]);
        let (bytes, _) = client.rest();
        assert!(bytes.len() < LARGE_BYTES);
        server.await_log(&format!("/remote/{name}: the file cannot be read"));
    }
}
