//! SIGHUP: the configuration file is read again while clients are served.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use flatpath_testkit::deadline::long_patience;
use flatpath_testkit::{
    Client, Driver, Frozen, Launch, Over, Server, Site, binary, each_driver, tools, until_true,
};
use rustix::process::Signal;

each_driver!(
    clients_notice_nothing_of_a_reload,
    deadlines_and_levels_change_and_the_rest_is_named,
    limits_of_a_table_change,
    a_file_with_a_mistake_changes_nothing,
    the_manager_is_told_of_a_reload,
    the_manager_hears_of_each_network_thread_that_turns,
    a_terminal_that_closes_ends_the_server,
);

/// A directory to serve, and the file of settings beside it.
struct Configured {
    site: Site,
    run: Site,
}

impl Configured {
    fn new(settings: &str) -> Configured {
        let configured = Configured {
            site: Site::new().with("file", "contents"),
            run: Site::new(),
        };
        configured.write(settings);
        configured
    }

    fn write(&self, settings: &str) {
        let dir = self.site.path().display();
        let text = format!("dir = \"{dir}\"\nhttp = \"127.0.0.1:0\"\n{settings}");
        // As editors do: it is never half there.
        let (new, path) = (self.run.at("new"), self.run.at("flatpath.toml"));
        fs::write(&new, text).expect("written");
        fs::rename(new, path).expect("renamed");
    }

    fn launch(&self, driver: Driver) -> Launch {
        Launch::new(binary::flatpath().to_path_buf())
            .with(["serve", "--driver", driver.name(), "--config"])
            .with([self.run.at("flatpath.toml")])
    }

    /// Writes other settings and has them read; the log shows that it has happened.
    fn reload(&self, server: &Server, settings: &str) {
        self.write(settings);
        hang_up(server, "reloaded");
    }
}

fn count(log: &str, words: &str) -> usize {
    log.lines().filter(|line| line.contains(words)).count()
}

/// Sends SIGHUP, and waits for one more of these words.
fn hang_up(server: &Server, words: &str) {
    let before = count(&server.log(), words);
    server.process().signal(Signal::HUP);
    until_true(words, || count(&server.log(), words) > before);
}

fn ends_well(mut server: Server) {
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

/// One in the middle of a download, kept ones, and one after the other.
fn clients_notice_nothing_of_a_reload(driver: Driver) {
    let configured = Configured::new("");
    configured.site.write("large", vec![b'l'; 24 << 20]);
    let server = configured.launch(driver).start();
    let mut download = server.client();
    download.request("GET", "/large", &[]);
    until_true("the download to begin", || !download.is_quiet());
    let address = server.address("http");
    let is_over = Over::default();
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let anew = scope.spawn(|| {
            while !is_over.is_set() {
                let mut client = Client::connect(address).patient(long_patience());
                let reply = client.ask("/file", &[("Connection", "close")]);
                assert_eq!(reply.text(), "contents");
            }
        });
        let mut kept: Vec<Client> = (0..20).map(|_| server.client()).collect();
        for round in 0..10 {
            let settings = format!("idle-timeout = {}\nslow = 1\n", 100 + round);
            configured.reload(&server, &settings);
            for client in &mut kept {
                let reply = client.get("/file");
                assert_eq!(reply.text(), "contents");
                assert!(!reply.says_close());
            }
        }
        is_over.set();
        anew.join().expect("every request was answered");
    });
    assert_eq!(download.reply().body.len(), 24 << 20);
    ends_well(server);
}

fn deadlines_and_levels_change_and_the_rest_is_named(driver: Driver) {
    let configured = Configured::new("idle-timeout = \"1h\"\nlog = \"info\"\n");
    let launch = configured.launch(driver).with(["--head-timeout", "2h"]);
    let mut server = launch.start();
    let mut idle = server.client();
    assert_eq!(idle.get("/file").text(), "contents");
    configured.reload(
        &server,
        "idle-timeout = 0.2\nhead-timeout = \"1h\"\nmemory = \"128M\"\nlog = \"info\"\n\
         [[listener]]\nprotocol = \"echo\"\naddress = \"127.0.0.1:1\"\n",
    );
    idle.expect_closed();
    for line in [
        "idle-timeout is 0.2 now",
        "head-timeout changed in",
        "but the command line or the environment sets it",
        "memory changed in",
        "flatpath.toml: takes effect at the next restart",
        "[[listener]] echo 127.0.0.1:1 is new in",
    ] {
        server.await_log(line);
    }
    assert_eq!(server.client().get("/file").text(), "contents");
    // Back to what it was started with, which is nothing to tell, but written in another way.
    configured.reload(&server, "idle-timeout = 3600\nlog = \"info\"\n");
    server.await_log("idle-timeout is 3600 now");
    assert_eq!(count(&server.log(), "memory changed"), 1);
    configured.reload(&server, "idle-timeout = \"60m\"\nlog = \"info\"\n");
    assert_eq!(
        count(&server.log(), "idle-timeout is"),
        2,
        "{}",
        server.log()
    );
    configured.write("log = \"error\"\n");
    hang_up(&server, "log is \"error\" now");
    configured.write("");
    server.process().signal(Signal::HUP);
    // From then on it is silent, until the level is the usual one again.
    until_true("the level of the start", || {
        server.process().signal(Signal::HUP);
        std::thread::sleep(Duration::from_millis(20));
        server
            .log()
            .lines()
            .last()
            .is_some_and(|line| line.ends_with("reloaded"))
    });
    server.terminate();
    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
}

fn limits_of_a_table_change(driver: Driver) {
    let table = |settings: &str| {
        format!("[[listener]]\nprotocol = \"echo\"\naddress = \"127.0.0.1:0\"\n{settings}")
    };
    let configured = Configured::new(&table(""));
    let server = configured.launch(driver).start();
    let mut first = server.echo_client();
    let say = |client: &mut Client| {
        client.send(b"hello");
        assert_eq!(client.exactly(5), b"hello");
    };
    say(&mut first);
    configured.reload(&server, &table("max-connections = 1\n"));
    server.await_log("max-connections of [[listener]] echo 127.0.0.1:0 is 1 now");
    let newcomer = || {
        let mut client = server.echo_client();
        say(&mut client);
        client
    };
    let mut second = newcomer();
    // The longest idle one of the listener makes room for a newcomer, but not for one that comes
    // before the network thread has taken the limit.
    until_true("the first one to end", || {
        let is_open = first.is_quiet();
        if is_open {
            second = newcomer();
        }
        !is_open
    });
    first.expect_closed();
    configured.reload(&server, &table(""));
    // As above: until the network thread has taken the change, the newcomer gets the only place.
    until_true("two of them to have a place", || {
        let third = newcomer();
        let has_stayed = second.try_send(b"hello").is_ok() && second.is_open();
        match has_stayed {
            true => assert_eq!(second.exactly(5), b"hello"),
            false => second = third,
        }
        has_stayed
    });
    // A drain waits for clients that are there.
    drop(second);
    ends_well(server);
}

fn a_file_with_a_mistake_changes_nothing(driver: Driver) {
    let configured = Configured::new("idle-timeout = \"1h\"\n");
    let server = configured.launch(driver).start();
    let mut idle = server.client();
    assert_eq!(idle.get("/file").text(), "contents");
    for (mistake, words) in [
        ("idle-timeout = 0.1\nhiden = true\n", "flatpath.toml:4:1: "),
        ("idle-timeout = 0.1\nidle-timeout =\n", "flatpath.toml:4:"),
        ("idle-timeout = 0.1\nmemory = \"1K\"\n", "too little"),
    ] {
        configured.write(mistake);
        hang_up(&server, "nothing is changed");
        server.await_log(words);
    }
    fs::remove_file(configured.run.at("flatpath.toml")).expect("removed");
    hang_up(&server, "No such file");
    assert_eq!(idle.get("/file").text(), "contents");
    ends_well(server);
    let server = Launch::serve(driver)
        .directory(configured.site.path())
        .start();
    hang_up(&server, "there is no --config FILE");
    ends_well(server);
}

fn the_manager_is_told_of_a_reload(driver: Driver) {
    let configured = Configured::new("");
    let manager = UnixDatagram::bind(configured.run.at("notify")).expect("a free path");
    let patience = Some(long_patience());
    manager.set_read_timeout(patience).expect("a deadline");
    let told = || {
        let mut bytes = [0; 1_000];
        let count = manager.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..count]).into_owned()
    };
    let launch = configured.launch(driver);
    let launch = launch.variable("NOTIFY_SOCKET", configured.run.at("notify"));
    let server = launch.start();
    assert!(told().starts_with("READY=1\n"));
    for settings in ["idle-timeout = 5\n", "a mistake"] {
        configured.write(settings);
        server.process().signal(Signal::HUP);
        assert!(told().starts_with("RELOADING=1\nMONOTONIC_USEC="));
        assert!(told().starts_with("READY=1\n"), "{settings}");
    }
    ends_well(server);
}

/// `WATCHDOG=1` comes while every network thread takes turns, also without a client, and not while
/// one is stuck.
fn the_manager_hears_of_each_network_thread_that_turns(driver: Driver) {
    let configured = Configured::new("network-threads = 2\n");
    let manager = UnixDatagram::bind(configured.run.at("notify")).expect("a free path");
    let told = |within: Duration| {
        manager.set_read_timeout(Some(within)).expect("a deadline");
        let mut bytes = [0; 1_000];
        let count = manager.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..count]).into_owned())
    };
    let launch = configured.launch(driver);
    let launch = launch.variable("NOTIFY_SOCKET", configured.run.at("notify"));
    let server = launch.variable("WATCHDOG_USEC", "300000").start();
    assert!(
        told(long_patience())
            .expect("it serves")
            .starts_with("READY=1\n")
    );
    for _ in 0..3 {
        assert_eq!(told(long_patience()).as_deref(), Some("WATCHDOG=1\n"));
    }
    let Some(frozen) = Frozen::thread(server.process(), "flatpath-net-1") else {
        return;
    };
    // One was on its way; then nothing comes in many times the period.
    while told(Duration::from_millis(150)).is_some() {}
    assert_eq!(told(Duration::from_secs(1)), None, "a thread is stuck");
    drop(frozen);
    assert_eq!(told(long_patience()).as_deref(), Some("WATCHDOG=1\n"));
    ends_well(server);
}

/// `script` has the other end of the server's terminal, and is killed.
fn a_terminal_that_closes_ends_the_server(driver: Driver) {
    let Some(script) = tools::find("script") else {
        return;
    };
    let configured = Configured::new("");
    let at = |name| configured.run.at(name);
    let (config, pid, log) = (at("flatpath.toml"), at("pid"), at("log"));
    let command = format!(
        "stty -opost; echo $$ >{}; exec {} serve --driver {} --config {} 2>{}",
        pid.display(),
        binary::flatpath().display(),
        driver.name(),
        config.display(),
        log.display()
    );
    let launch = Launch::new(script).with(["-q", "-e", "-c", &command, "/dev/null"]);
    let mut server = launch.start();
    let pid = fs::read_to_string(pid).expect("the shell wrote it");
    let pid: u32 = pid.trim().parse().expect("a number");
    let is_there = || std::path::Path::new(&format!("/proc/{pid}/exe")).exists();
    let mut client = server.client();
    assert_eq!(client.get("/file").text(), "contents");
    // While the terminal is there, it is asked to reload.
    let process = rustix::process::Pid::from_raw(pid.cast_signed()).expect("not zero");
    for _ in 0..3 {
        rustix::process::kill_process(process, Signal::HUP).expect("it runs");
        assert_eq!(client.get("/file").text(), "contents");
    }
    let has_logged = |words| fs::read_to_string(&log).is_ok_and(|log| log.contains(words));
    until_true("a reload", || has_logged("reloaded"));
    assert!(!has_logged("draining"));
    server.process().signal(Signal::KILL);
    server.exit_status();
    until_true("the server to end", || !is_there());
    assert!(has_logged("draining"));
    client.expect_closed();
}
