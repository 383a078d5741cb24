//! Threads that hang: signals end the server all the same, and the log names what hung.

use flatpath_testkit::{Driver, Frozen, Launch, Server, Site, binary, each_driver};
use rustix::process::Signal;

each_driver!(
    a_hung_network_thread_outlives_no_drain,
    a_second_signal_ends_a_server_whose_network_thread_hangs,
    a_hung_worker_outlives_no_drain,
    a_hung_thread_of_the_command_outlives_no_drain,
    a_hung_housekeeper_holds_up_no_drain,
    a_hang_up_that_is_ignored_does_nothing,
    a_hang_up_reloads_where_a_program_has_asked_for_that,
    the_signal_that_means_nothing_does_nothing,
);

fn serve(driver: Driver, site: &Site, drain: &str) -> Server {
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(["--drain-timeout", drain, "--workers", "1..1"])
        .start();
    assert_eq!(server.client().get("/hello").text(), "hello");
    server
}

fn site() -> Site {
    Site::new().with("hello", "hello")
}

/// It ends by itself, and says what hung.
fn expect_left_behind(mut server: Server, frozen: Frozen, name: &str) {
    frozen.await_end();
    assert_eq!(server.exit_status().code(), Some(1), "{}", server.log());
    server.await_log(name);
}

fn a_hung_network_thread_outlives_no_drain(driver: Driver) {
    let site = site();
    let server = serve(driver, &site, "1");
    if let Some(frozen) = Frozen::thread(server.process(), "flatpath-net-0") {
        server.terminate();
        expect_left_behind(server, frozen, "network thread 0");
    }
}

fn a_second_signal_ends_a_server_whose_network_thread_hangs(driver: Driver) {
    let site = site();
    let server = serve(driver, &site, "3600");
    if let Some(frozen) = Frozen::thread(server.process(), "flatpath-net-0") {
        server.terminate();
        server.await_log("draining");
        server.force();
        expect_left_behind(server, frozen, "network thread 0");
    }
}

fn a_hung_worker_outlives_no_drain(driver: Driver) {
    let site = site();
    let server = serve(driver, &site, "1");
    if let Some(frozen) = Frozen::thread(server.process(), "flatpath-worker") {
        let mut client = server.client();
        client.request("GET", "/no-such-file", &[]);
        server.terminate();
        expect_left_behind(server, frozen, "worker");
    }
}

/// What the engine does not wait for: the command's own watchdog ends the process.
fn a_hung_thread_of_the_command_outlives_no_drain(driver: Driver) {
    let site = site();
    let server = Launch::serve(driver)
        .directory(site.path())
        .with(["--drain-timeout", "1", "--handover"])
        .with([site.at("next")])
        .start();
    // The kernel keeps 15 bytes of the name.
    if let Some(frozen) = Frozen::thread(server.process(), "flatpath-handov") {
        server.terminate();
        expect_left_behind(server, frozen, "left behind: flatpath-handov");
    }
}

fn a_hung_housekeeper_holds_up_no_drain(driver: Driver) {
    let site = site();
    let mut server = serve(driver, &site, "30");
    if let Some(frozen) = Frozen::thread(server.process(), "flatpath-keeper") {
        server.terminate();
        frozen.await_end();
        assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
    }
}

fn a_hang_up_that_is_ignored_does_nothing(driver: Driver) {
    let site = site();
    let server = Launch::new("nohup".into())
        .with([binary::flatpath()])
        .with(["serve", "--driver", driver.name(), "--http", "127.0.0.1:0"])
        .directory(site.path())
        .start();
    server.process().signal(Signal::HUP);
    server.process().signal(Signal::USR2);
    // Signals are handled in the order of their numbers or later: this one shows that both were.
    server.await_log("does nothing");
    assert_eq!(server.client().get("/hello").text(), "hello");
    assert!(!server.log().contains("draining"), "{}", server.log());
}

fn a_hang_up_reloads_where_a_program_has_asked_for_that(driver: Driver) {
    let mut server = Launch::handlers(driver).start();
    server.process().signal(Signal::HUP);
    server.await_log("reloading");
    assert_eq!(server.client().get("/hello").text(), "hello");
    assert!(!server.log().contains("draining"), "{}", server.log());
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn the_signal_that_means_nothing_does_nothing(driver: Driver) {
    let site = site();
    let mut server = serve(driver, &site, "30");
    server.process().signal(Signal::USR2);
    server.await_log("does nothing");
    assert_eq!(server.client().get("/hello").text(), "hello");
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}
