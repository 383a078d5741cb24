//! What a real rpcbind names, while servers that register with it relieve each other.
//!
//! Port 111 is one for the machine, so the test has a network name space of its own.

use std::process::{Command, Stdio};
use std::time::Duration;

use flatpath_testkit::child::{self, Child};
use flatpath_testkit::nfs::Connection;
use flatpath_testkit::{Driver, Server, Site, each_driver, tools, until};
use nix::sched::{CloneFlags, unshare};
use rustix::process::Signal;

each_driver!(rpcbind_names_the_server_that_serves);

/// Ports of NFS and MOUNT, as rpcbind has them; `None` where it does not answer.
fn table() -> Option<Vec<(u32, u16)>> {
    let mut command = Command::new("rpcinfo");
    let output = tools::run(command.args(["-p", "127.0.0.1"]), Duration::from_secs(20));
    let listed = String::from_utf8(output.stdout).expect("text");
    let programs = listed.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [program, "3", "tcp", port, ..] = words[..] else {
            return None;
        };
        Some((program.parse().ok()?, port.parse().ok()?))
    });
    let mut ours: Vec<_> = programs
        .filter(|(program, _)| *program != 100_000)
        .collect();
    ours.sort_unstable();
    output.status.success().then_some(ours)
}

/// In the present name space, with a directory for its own state.
fn start_rpcbind() -> Child {
    let mut command = child::command("unshare", &[]);
    let inside = "mount -t tmpfs none /run && exec rpcbind -f";
    command
        .args(["--mount", "sh", "-c", inside])
        .stdout(Stdio::null());
    let rpcbind = Child::start(&mut command).expect("unshare is there");
    until("rpcbind to answer", table);
    rpcbind
}

fn rpcbind_names_the_server_that_serves(driver: Driver) {
    let wanted = ["rpcbind", "rpcinfo", "unshare", "ip"].map(tools::find);
    if wanted.iter().any(Option::is_none) {
        return;
    }
    // This thread and what it starts; the other tests keep theirs.
    if let Err(cause) = unshare(CloneFlags::CLONE_NEWNET) {
        tools::refused::<()>(&format!("a network name space: {cause}"));
        return;
    }
    tools::loopback_up().expect("it is ours");
    let _rpcbind = start_rpcbind();
    let (site, state, run) = (Site::new().with("file", "text"), Site::new(), Site::new());
    let path = run.at("next");
    let path = path.to_str().expect("a path in text");
    let flags = ["--handover", path, "--nfs-register"];
    let start = |more: &[&str]| crate::nfs::serve(driver, &site, &state, &[&flags, more].concat());
    let named = |server: &Server| {
        let port = server.address("nfs").port();
        Some(vec![(100_003, port), (100_005, port)])
    };
    let mut current = start(&[]);
    assert_eq!(table(), named(&current));
    let root = Connection::open(current.address("nfs")).root();
    for _ in 0..3 {
        let next = start(&[]);
        assert_eq!(table(), named(&next));
        std::mem::replace(&mut current, next).ended_well();
        assert_eq!(table(), named(&current), "the old one took nothing back");
        assert_eq!(Connection::open(current.address("nfs")).root(), root);
    }
    // One that ends before it is ready, having all sockets.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let at = taken.local_addr().expect("bound").to_string();
    let failed = flatpath_testkit::Launch::serve(driver)
        .with(flags)
        .with(["--nfs", "127.0.0.1:0", "--http", &at, "--nfs-state"])
        .with([state.path()])
        .directory(site.path())
        .try_start();
    assert!(failed.is_err(), "the address is taken");
    assert_eq!(table(), named(&current));
    // One that is killed leaves its registration to the next.
    current.process().signal(Signal::KILL);
    current.exit_status();
    let last = start(&[]);
    assert_eq!(table(), named(&last));
    last.terminate();
    last.ended_well();
    assert_eq!(table(), Some(vec![]));
}
