//! The threads of the command beside those that serve: workers and network threads.

use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, noise, until_true};
use rustix::process::Signal;

each_driver!(
    a_server_of_all_services_has_nine_threads_of_its_own,
    what_takes_long_has_a_thread_while_it_lasts,
    a_hot_file_wakes_no_worker,
);

/// As the kernel cuts them off. `flatpath-key` and `flatpath-sweep` are those of NFS.
const OF_ALL_SERVICES: [&str; 9] = [
    "flatpath",
    "flatpath-access",
    "flatpath-keeper",
    "flatpath-key",
    "flatpath-log",
    "flatpath-scaler",
    "flatpath-signal",
    "flatpath-sweep",
    "flatpath-watchd",
];

fn own_threads(server: &Server) -> Vec<String> {
    let mut names = server.process().thread_names();
    names.retain(|name| !name.contains("-net-") && !name.ends_with("-worker"));
    names
}

fn serve(driver: Driver, site: &Site, state: &Site) -> Server {
    const ANY: &str = "127.0.0.1:0";
    let launch = Launch::serve(driver).directory(site.path());
    let launch = launch.with(["--writable", "--upload-expires", "1s", "--slow", "1s"]);
    let launch = launch
        .with(["--nfs", ANY, "--nfs-state"])
        .with([state.path()]);
    let launch = launch.with(["--relay", ANY, "--echo", ANY, "--admin", ANY]);
    launch
        .with(["--access-log"])
        .with([state.at("log")])
        .start()
}

fn a_server_of_all_services_has_nine_threads_of_its_own(driver: Driver) {
    let (site, state) = (Site::new().with("file", "contents"), Site::new());
    let server = serve(driver, &site, &state);
    let mut client = server.client();
    assert_eq!(client.get("/file").text(), "contents");
    // A sweep of uploads has a thread for a moment, whose name is the same.
    until_true("nine threads", || own_threads(&server) == OF_ALL_SERVICES);
}

fn what_takes_long_has_a_thread_while_it_lasts(driver: Driver) {
    let (site, state) = (Site::new().with("file", "contents"), Site::new());
    let server = serve(driver, &site, &state);
    for signal in [Signal::HUP, Signal::USR1] {
        server.process().signal(signal);
    }
    server.await_log("reload: there is no --config FILE to read again");
    server.await_log("metrics of server: ");
    until_true("nine threads", || own_threads(&server) == OF_ALL_SERVICES);
}

/// Of any length: what has been copied into the output is dropped there.
fn a_hot_file_wakes_no_worker(driver: Driver) {
    const REQUESTS: u64 = 400;
    let site = Site::new();
    for length in [100, 2_000, 4_096, 16_000, 60_000] {
        site.write(&length.to_string(), noise(1, length));
    }
    let server = Launch::serve(driver).directory(site.path()).start();
    let mut client = server.client();
    for length in [100, 2_000, 4_096, 16_000, 60_000] {
        let path = format!("/{length}");
        let ask = |client: &mut Client| assert_eq!(client.get(&path).body.len(), length);
        // A file that has just been written is not kept: until workers have nothing to do.
        until_true("a file that is hot", || {
            let before = server.process().sleeps("flatpath-worker");
            (0..20).for_each(|_| ask(&mut client));
            server.process().sleeps("flatpath-worker") < before + 5
        });
        let before = server.process().sleeps("flatpath-worker");
        (0..REQUESTS).for_each(|_| ask(&mut client));
        let sleeps = server.process().sleeps("flatpath-worker") - before;
        assert!(sleeps < REQUESTS / 10, "{sleeps} for {length} bytes");
    }
}
