//! A portmapper of the server's own, asked by the clients that others wrote and by bytes as no
//! client sends them; and MOUNT over UDP.
//!
//! Port 111 is one for the machine, so clients that cannot be told another are run in a network
//! name space of their own.

use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::process::{Command, Output};
use std::time::Duration;

use flatpath_testkit::nfs::{self, Call, Connection, Datagrams, Words};
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, tools};
use nix::sched::{CloneFlags, unshare};

each_driver!(
    clients_without_an_option_for_ports_find_nfs_and_mount,
    forged_datagrams_get_little_and_strange_ones_nothing,
    a_mount_by_datagrams_has_the_handle_and_the_rights_of_one_by_a_connection,
    a_taken_port_and_missing_options_are_named,
    a_portmapper_stays_while_servers_relieve_each_other,
);

const SELF: u32 = 100_000;
const NFS: u32 = 100_003;
const MOUNT: u32 = 100_005;
const GETPORT: u32 = 3;
const DUMP: u32 = 4;
const CALLIT: u32 = 5;

/// Bytes of a reply without results.
const HEAD: usize = 24;
const SYSTEM_ERROR: u8 = 5;
const GARBAGE: u8 = 4;

fn launch(driver: Driver, site: &Site, state: &Site) -> Launch {
    Launch::serve(driver)
        .directory(site.path())
        .with(["--nfs-state"])
        .with([state.path()])
}

/// A portmapper at a free port.
fn start(driver: Driver, site: &Site, state: &Site, more: &[&str]) -> Server {
    let portmapper = ["--nfs", "127.0.0.1:0", "--nfs-portmapper", "127.0.0.1:0"];
    launch(driver, site, state)
        .with(portmapper)
        .with(more)
        .start()
}

fn portmap(version: u32, procedure: u32, arguments: Words) -> Call {
    Call::of(SELF, version, procedure, arguments)
}

fn get_port(program: u32, protocol: u32) -> Call {
    let words = [program, 3, protocol, 0];
    portmap(
        2,
        GETPORT,
        words.into_iter().fold(Words::default(), Words::word),
    )
}

fn port_of(results: &[u8]) -> u32 {
    u32::from_be_bytes(results.try_into().expect("one word"))
}

/// Runs a program to its end, in the name space of this thread; its words if it ended well.
fn says(program: &str, arguments: &[&str]) -> Result<String, Output> {
    let mut command = Command::new(tools::find(program).expect("found before"));
    let output = tools::run(command.args(arguments), Duration::from_secs(60));
    match output.status.success() {
        true => Ok(String::from_utf8(output.stdout).expect("text")),
        false => Err(output),
    }
}

/// The lines that name a program, each as its words.
fn rows(text: &str) -> Vec<Vec<&str>> {
    let rows = text.lines().map(|line| line.split_whitespace().collect());
    rows.filter(|words: &Vec<&str>| words.first().is_some_and(|it| it.parse::<u32>().is_ok()))
        .collect()
}

fn clients_without_an_option_for_ports_find_nfs_and_mount(driver: Driver) {
    let wanted = ["rpcinfo", "nfs-ls", "ip"].map(tools::find);
    if wanted.iter().any(Option::is_none) {
        return;
    }
    // This thread and what it starts; the other tests keep theirs.
    if let Err(cause) = unshare(CloneFlags::CLONE_NEWNET) {
        tools::refused::<()>(&format!("a network name space: {cause}"));
        return;
    }
    tools::loopback_up().expect("it is ours");
    let host = "192.0.2.1";
    tools::ip(&["addr", "add", "192.0.2.1/32", "dev", "lo"]).expect("it is ours");
    let (site, state) = (Site::new().with("found.txt", "text"), Site::new());
    let server = launch(driver, &site, &state)
        .with(["--nfs", "0.0.0.0:0", "--nfs-portmapper", "0.0.0.0"])
        .start();
    let tcp = server.address("nfs").port().to_string();
    let udp = server.address("nfs-udp").port().to_string();
    let listed = says("rpcinfo", &["-p", host]).expect("it is there");
    let mut expected = Vec::new();
    for (transport, mount) in [("tcp", &tcp), ("udp", &udp)] {
        for version in ["2", "3", "4"] {
            expected.push(vec!["100000", version, transport, "111", "portmapper"]);
        }
        expected.push(vec!["100005", "3", transport, mount, "mountd"]);
    }
    expected.push(vec!["100003", "3", "tcp", &tcp, "nfs"]);
    let mut found = rows(&listed);
    expected.sort_unstable();
    found.sort_unstable();
    assert_eq!(found, expected, "{listed}");
    let short = says("rpcinfo", &["-s", host]).expect("it is there");
    let programs: Vec<_> = rows(&short).iter().map(|row| row[0].to_owned()).collect();
    assert_eq!(programs, ["100000", "100005", "100003"], "{short}");
    check_pings(host, &tcp, &udp);
    if tools::find("showmount").is_some() {
        let exports = says("showmount", &["-e", host]).expect("they are listed");
        let path = site.path().to_str().expect("text");
        assert!(exports.contains(path), "{exports}");
        let clients = says("showmount", &["-a", host]).expect("none is known");
        assert!(
            !clients.contains(host) || clients.lines().count() == 1,
            "{clients}"
        );
    }
    let names = says("nfs-ls", &[&format!("nfs://{host}/")]).expect("it needs no ports");
    assert!(names.contains("found.txt"), "{names}");
    let text = says("nfs-cat", &[&format!("nfs://{host}//found.txt")]).expect("a file");
    assert_eq!(text, "text");
}

/// `rpcinfo` asks where a program is, and calls its procedure 0.
fn check_pings(host: &str, tcp: &str, udp: &str) {
    let ping = |arguments: &[&str]| says("rpcinfo", arguments);
    let ready = |found: Result<String, Output>, what: &str| {
        let words = found.expect(what);
        assert!(words.contains("ready and waiting"), "{what}: {words}");
    };
    for version in ["2", "3", "4"] {
        ready(ping(&["-T", "udp", host, "100000", version]), "portmapper");
        ready(ping(&["-T", "tcp", host, "100000", version]), "portmapper");
    }
    for transport in ["udp", "tcp"] {
        ready(ping(&["-T", transport, host, "100005", "3"]), transport);
        ready(ping(&["-T", transport, host, "100005"]), "any version");
        ping(&["-T", transport, host, "100005", "1"]).expect_err("no such version");
        ping(&["-T", transport, host, "100021", "4"]).expect_err("no locks");
    }
    ready(ping(&["-T", "tcp", host, "100003", "3"]), "NFS");
    ping(&["-T", "udp", host, "100003", "3"]).expect_err("no NFS by UDP");
    ready(
        ping(&["-u", host, "100005", "3"]),
        "version 2 of the portmapper",
    );
    ready(
        ping(&["-t", host, "100003", "3"]),
        "version 2 of the portmapper",
    );
    ready(ping(&["-n", tcp, "-t", host, "100003", "3"]), "its port");
    ready(ping(&["-n", udp, "-u", host, "100005", "3"]), "its port");
}

fn forged_datagrams_get_little_and_strange_ones_nothing(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let server = start(driver, &site, &state, &[]);
    let (tcp, udp) = (
        server.address("portmapper"),
        server.address("portmapper-udp"),
    );
    let datagrams = Datagrams::open(udp);
    // A stranger's list would be longer than three times its call.
    for version in [2, 3, 4] {
        let call = portmap(version, DUMP, Words::default()).datagram(1);
        let reply = datagrams.exchange(&call);
        assert_eq!((reply.len(), reply[HEAD - 1]), (HEAD, SYSTEM_ERROR));
    }
    // Each of these is dropped: the next reply is that to the call after them.
    let null = portmap(2, 0, Words::default()).datagram(2);
    let reply_to = |xid: u32| [&xid.to_be_bytes()[..], &[0, 0, 0, 1], &[0; 16]].concat();
    let arguments = [NFS, 3, 0, 0]
        .into_iter()
        .fold(Words::default(), Words::word);
    let mut strange = vec![Vec::new(), b"x".to_vec(), vec![0xff; 1400], reply_to(3)];
    strange.extend((2..=4).map(|it| portmap(it, CALLIT, arguments.clone()).datagram(4)));
    for bytes in &strange {
        datagrams.send(bytes);
        assert_eq!(datagrams.exchange(&null), reply_to(2), "after {bytes:?}");
    }
    // A call that was cut, and credentials that lie about their lengths.
    let whole = get_port(NFS, 6).datagram(5);
    for end in (8..whole.len()).step_by(4) {
        let reply = datagrams.exchange(&whole[..end]);
        assert!(reply.len() <= 3 * end, "cut at {end}");
        assert_eq!(reply[HEAD - 1], GARBAGE, "cut at {end}");
    }
    for length in [1_u32, 4, 400, 401, u32::MAX] {
        let mut call = whole.clone();
        call[28..32].copy_from_slice(&length.to_be_bytes());
        let reply = datagrams.exchange(&call);
        assert_ne!(reply[..], reply_to(5)[..], "{length}");
        assert!(reply.len() <= HEAD, "{length}: {reply:?}");
    }
    assert_eq!(server.address("nfs").port(), port_at(&datagrams, NFS, 6));
    // Over TCP, CALLIT has no answer either, and the list is whole.
    let mut connection = Connection::open(tcp);
    connection.send(&portmap(2, CALLIT, arguments).record(6));
    let list = connection.call(&portmap(2, DUMP, Words::default()));
    assert_eq!(list.results.len(), 9 * 20 + 4);
    // Now the address has shown that it is one, and gets the list by UDP, too.
    let by_datagram = datagrams.call(&portmap(2, DUMP, Words::default()));
    assert_eq!(by_datagram, list.results);
}

fn port_at(datagrams: &Datagrams, program: u32, protocol: u32) -> u16 {
    let port = port_of(&datagrams.call(&get_port(program, protocol)));
    u16::try_from(port).expect("a port")
}

fn a_mount_by_datagrams_has_the_handle_and_the_rights_of_one_by_a_connection(driver: Driver) {
    let (site, state) = (Site::new().with("sub/file", "text"), Site::new());
    let server = start(driver, &site, &state, &[]);
    let portmapper = Datagrams::open(server.address("portmapper-udp"));
    let port = port_at(&portmapper, MOUNT, 17);
    let at = server.address("nfs-udp");
    assert_eq!(at.port(), port, "the true port");
    assert_eq!(port_of(&portmapper.call(&get_port(NFS, 17))), 0);
    let datagrams = Datagrams::open(at);
    for path in ["/", "/sub"] {
        let call = nfs::mount(path).datagram(9);
        let reply = datagrams.exchange(&call);
        assert!(reply.len() <= 3 * call.len(), "to a stranger");
        let by_connection = Connection::open(server.address("nfs")).call(&nfs::mount(path));
        assert_eq!(reply[HEAD..], by_connection.results, "{path}");
        assert_eq!(by_connection.status(), 0);
    }
    let status = |results: Vec<u8>| u32::from_be_bytes(*results.first_chunk().expect("a word"));
    assert_eq!(
        status(datagrams.call(&nfs::mount("/none"))),
        2,
        "MNT3ERR_NOENT"
    );
    let of_mount = |procedure, words| Call::of(MOUNT, 3, procedure, words);
    assert_eq!(datagrams.call(&of_mount(0, Words::default())), b"");
    assert_eq!(datagrams.call(&of_mount(2, Words::default())), [0; 4]);
    assert_eq!(
        datagrams.call(&of_mount(3, Words::default().opaque(b"/"))),
        b""
    );
    assert_eq!(datagrams.call(&of_mount(4, Words::default())), b"");
    let path = site.path().to_str().expect("text");
    let listed = Words::default()
        .word(1)
        .opaque(path.as_bytes())
        .word(0)
        .word(0);
    let exports = of_mount(5, Words::default());
    assert_eq!(
        Connection::open(server.address("nfs"))
            .call(&exports)
            .results,
        listed.0
    );
    // NFS is not there: PROG_UNAVAIL.
    let reply = datagrams.exchange(&nfs::getattr(b"handle").datagram(1));
    assert_eq!((reply.len(), reply[HEAD - 1]), (HEAD, 1));
    server.terminate();
    // Rules of addresses and ports hold for senders of datagrams; this one has a high port.
    let refused = start(driver, &site, &state, &["--nfs-secure-ports"]);
    let too_weak = |at: SocketAddr, call: &Call| {
        let reply = Datagrams::open(at).exchange(&call.datagram(1));
        reply[4..] == *nfs::TOO_WEAK
    };
    assert!(too_weak(refused.address("nfs-udp"), &nfs::mount("/")));
    assert!(!too_weak(
        refused.address("portmapper-udp"),
        &get_port(NFS, 6)
    ));
    refused.terminate();
    let refused = start(driver, &site, &state, &["--nfs-allow", "192.0.2.0/24"]);
    assert!(too_weak(refused.address("nfs-udp"), &nfs::mount("/")));
    assert!(too_weak(
        refused.address("portmapper-udp"),
        &get_port(NFS, 6)
    ));
}

fn a_portmapper_stays_while_servers_relieve_each_other(driver: Driver) {
    let (site, state, run) = (Site::new(), Site::new(), Site::new());
    let path = run.at("next");
    let handover = ["--handover", path.to_str().expect("text")];
    let mut current = start(driver, &site, &state, &handover);
    let at = |server: &Server| server.address("portmapper-udp");
    let first = at(&current);
    for _ in 0..2 {
        let mut next = start(driver, &site, &state, &handover);
        std::mem::swap(&mut current, &mut next);
        assert_eq!(next.exit_status().code(), Some(0), "{}", next.log());
        assert_eq!(at(&current), first, "the same socket");
        let port = port_at(&Datagrams::open(first), NFS, 6);
        assert_eq!(port, current.address("nfs").port());
    }
}

fn a_taken_port_and_missing_options_are_named(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let fails = |more: &[&str]| {
        let started = launch(driver, &site, &state).with(more).try_start();
        started.err().expect("it cannot start").log
    };
    let tcp = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let udp = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    let taken = [tcp.local_addr(), udp.local_addr()];
    for at in taken.map(|at| at.expect("bound").to_string()) {
        let log = fails(&["--nfs", "127.0.0.1:0", "--nfs-portmapper", &at]);
        let expected = format!("--nfs-portmapper {at}: ");
        assert!(log.contains(&expected) && log.contains("stop it"), "{log}");
    }
    let log = fails(&["--http", "127.0.0.1:0", "--nfs-portmapper", "127.0.0.1:0"]);
    assert!(log.contains("name one with --nfs ADDR"), "{log}");
}
