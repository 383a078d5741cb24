//! Calls that the network thread answers itself: only what needs no wait, as the caller, and
//! nothing on a mount that may hang.

use std::os::unix::fs::{PermissionsExt, chown};

use flatpath_testkit::deadline::until;
use flatpath_testkit::fuse::{self, Content};
use flatpath_testkit::nfs::{ACCESS, Connection, READ, access, getattr, lookup, null, read};
use flatpath_testkit::{Client, Driver, Server, Site, each_driver};
use rustix::process::geteuid;

use crate::nfs::serve;

each_driver!(
    calls_that_need_no_wait_are_answered_without_a_worker,
    calls_on_a_mount_that_hangs_stop_no_other_client,
    each_caller_has_its_own_rights_whichever_thread_answers,
);

const REFUSED: u32 = 13;

/// Calls that workers have got so far.
fn dispatched(server: &Server) -> u64 {
    let metrics = Client::connect(server.address("admin")).get("/metrics");
    let text = metrics.text();
    let counts = text
        .lines()
        .filter(|line| line.starts_with("flatpath_jobs_dispatched_total"));
    let numbers = counts.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok());
    numbers.sum()
}

fn calls_that_need_no_wait_are_answered_without_a_worker(driver: Driver) {
    let (site, state) = (Site::new().with("file", "content"), Site::new());
    site.settle();
    for threads in ["1", "2"] {
        let flags = ["--admin", "127.0.0.1:0", "--network-threads", threads];
        let server = serve(driver, &site, &state, &flags);
        let mut client = Connection::open(server.address("nfs"));
        let root = client.root();
        let handle = client.lookup(&root, "file");
        let calls = [
            getattr(&handle),
            lookup(&root, "file"),
            access(&handle, 0x3f),
            read(&handle, 0, 100),
        ];
        // The first round opens the file; rounds that a sweep came between need a worker again.
        until("a round without a worker", || {
            let before = dispatched(&server);
            for call in &calls {
                let reply = client.call(call);
                assert_eq!(reply.status(), 0, "procedure {}", call.procedure);
                if call.procedure == READ {
                    assert_eq!(reply.data(), b"content");
                }
            }
            (dispatched(&server) == before).then_some(())
        });
        // A change is seen at once.
        site.write("file", "changed");
        assert_eq!(client.read(&handle, 100), b"changed");
        site.write("file", "content");
        site.settle();
    }
}

fn calls_on_a_mount_that_hangs_stop_no_other_client(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let files = vec![Content::new("file", "remote")];
    let Some(fuse) = fuse::try_mount(&site.at("mount"), files) else {
        return;
    };
    let flags = ["--network-threads", "1"];
    let server = serve_mount(driver, &site, &state, &flags);
    let mut clients: Vec<_> = (0..4)
        .map(|_| Connection::open(server.address("nfs")))
        .collect();
    let root = clients[0].root();
    let handle = clients[0].lookup(&root, "file");
    let calls = [
        getattr(&handle),
        access(&handle, 1),
        read(&handle, 0, 100),
        lookup(&root, "file"),
    ];
    // All that a try could need is open: still none is made here. One round and no more: what is
    // tried on a slow mount soon loses the right, and this is not about that.
    for call in &calls {
        assert_eq!(clients[0].status(call), 0);
    }
    let mut other = Connection::open(server.address("nfs"));
    fuse.pause();
    for (call, client) in calls.iter().zip(&mut clients) {
        client.send(&call.record(7));
    }
    for _ in 0..20 {
        // NULL needs no file.
        other.call(&null());
    }
    fuse.resume();
    for client in &mut clients {
        let reply = client.reply();
        assert_eq!((reply.xid, reply.status()), (7, 0));
    }
}

/// The server exports the mount in the site.
fn serve_mount(driver: Driver, site: &Site, state: &Site, more: &[&str]) -> Server {
    let state = state.path().to_str().expect("a path in text");
    let launch = flatpath_testkit::Launch::serve(driver);
    launch
        .directory(&site.at("mount"))
        .with(["--writable", "--nfs", "127.0.0.1:0", "--nfs-state", state])
        .with(more)
        .start()
}

fn each_caller_has_its_own_rights_whichever_thread_answers(driver: Driver) {
    if !geteuid().is_root() {
        return;
    }
    let (site, state) = (Site::new().with("private", "content"), Site::new());
    let path = site.at("private");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600)).expect("chmod");
    chown(&path, Some(1000), Some(1000)).expect("chown");
    site.settle();
    for threads in ["1", "2"] {
        let server = serve(driver, &site, &state, &["--network-threads", threads]);
        let mut one = Connection::open(server.address("nfs"));
        let mut two = Connection::open(server.address("nfs"));
        let root = one.root();
        let handle = one.lookup(&root, "private");
        let calls = [access(&handle, 1), read(&handle, 0, 100)];
        let check = |user: u32, client: &mut Connection| {
            let reply = client.reply();
            let (procedure, allowed) = (reply.xid, user == 1000);
            let rights = |reply: &flatpath_testkit::nfs::Reply| reply.results.last().copied();
            match (procedure, allowed) {
                (ACCESS, _) => assert_eq!(rights(&reply), Some(u8::from(allowed)), "{user}"),
                (_, true) => assert_eq!(reply.data(), b"content"),
                (_, false) => assert_eq!(reply.status(), REFUSED, "{user}"),
            }
        };
        for round in 0..20 {
            for call in &calls {
                let record = |user| call.record_by(user, call.procedure);
                // One after the other on one connection, and at once on two.
                for user in [1000, 1001] {
                    one.send(&record(user));
                    check(user, &mut one);
                }
                one.send(&record(1001 - round % 2));
                two.send(&record(1000 + round % 2));
                check(1001 - round % 2, &mut one);
                check(1000 + round % 2, &mut two);
            }
        }
    }
}
