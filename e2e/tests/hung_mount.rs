//! A mount below the served directory hangs: everything else is answered as before.

use flatpath_e2e::deadline::until;
use flatpath_e2e::fuse::{Content, Fuse};
use flatpath_e2e::{Client, Driver, Launch, Server, Site, each_driver};

each_driver!(
    a_cached_file_on_a_hung_mount_does_not_stop_the_others,
    a_mount_that_appears_over_a_cached_file_is_not_walked_to,
    a_cached_file_is_answered_within_its_age_while_its_mount_hangs,
);

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
        Content::new("large", vec![b'x'; 1 << 20]),
    ];
    let fuse = Fuse::mount(&site.at("remote"), files)?;
    let server = start(driver, &site, flags);
    Some((site, server, fuse))
}

fn start(driver: Driver, site: &Site, flags: &[&str]) -> Server {
    let launch = Launch::serve(driver).with(["--rings", "1"]).with(flags);
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
    }
    // The first two may have been answered from the cache.
    assert!(hung[2..].iter_mut().all(Client::is_quiet));
    fuse.resume();
    let statuses = hung.iter_mut().map(|client| client.reply().status);
    assert_eq!(statuses.collect::<Vec<_>>(), [200, 200, 200, 404, 200]);
}

fn a_mount_that_appears_over_a_cached_file_is_not_walked_to(driver: Driver) {
    let site = site();
    site.write("covered/file", "below");
    site.settle();
    let server = start(driver, &site, &[]);
    warm(&server, "/covered/file", "below");
    let files = vec![Content::new("file", "above")];
    let Some(fuse) = Fuse::mount(&site.at("covered"), files) else {
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
