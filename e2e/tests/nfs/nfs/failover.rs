//! Two servers of one directory, and an address that belongs to the one that serves: the real
//! keepalived moves it when that one dies, and a client's handles go on.
//!
//! The machines are network name spaces, joined by a bridge in a name space of this test.

use std::fs;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use flatpath_testkit::child::{self, Child};
use flatpath_testkit::nfs::{Connection, getattr, null};
use flatpath_testkit::{Driver, Launch, Server, Site, binary, each_driver, tools, until};
use nix::sched::{CloneFlags, unshare};
use rustix::process::Signal;

each_driver!(handles_go_on_at_the_floating_address_when_its_server_dies);

const FLOATING: &str = "10.77.0.100:2049";

/// One of the two machines.
struct Machine {
    /// Holds the name space.
    holder: Child,
    server: Server,
    keepalived: Child,
}

fn run(program: &str, arguments: &str) {
    let mut command = Command::new(program);
    let output = tools::run(command.args(arguments.split(' ')), Duration::from_secs(20));
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program} {arguments}: {told}");
}

impl Machine {
    /// The machine with this last number in its address, on the bridge.
    fn start(number: u8, driver: Driver, site: &Site, state: &Site) -> Self {
        let mut sleep = child::command("unshare", &[]);
        sleep.args(["--net", "sleep", "1h"]).stdout(Stdio::null());
        let holder = Child::start(&mut sleep).expect("unshare is there");
        let process = holder.id();
        let own = fs::read_link("/proc/thread-self/ns/net").expect("a name space");
        until("a name space of its own", || {
            let its = fs::read_link(format!("/proc/{process}/ns/net")).ok()?;
            (its != own).then_some(())
        });
        let inside = format!("-t {process} -n ip");
        let link = format!("link add machine{number} type veth peer name eth0 netns {process}");
        run("ip", &link);
        run("ip", &format!("link set machine{number} master bridge0 up"));
        run(
            "nsenter",
            &format!("{inside} address add 10.77.0.{number}/24 dev eth0"),
        );
        run("nsenter", &format!("{inside} link set eth0 up"));
        run("nsenter", &format!("{inside} link set lo up"));
        let keys = state.path().to_str().expect("a path in text");
        let server = Launch::new("nsenter".into())
            .with(["-t", &process.to_string(), "-n", "--"])
            .with([binary::flatpath()])
            .with(["serve", "--driver", driver.name(), "--nfs", "0.0.0.0:2049"])
            .with(["--writable", "--nfs-state", keys])
            .with(["--admin", "127.0.0.1:9180"])
            .directory(site.path())
            .start();
        let keepalived = keepalived(number, process, state);
        Self {
            holder,
            server,
            keepalived,
        }
    }
}

/// The shipped configuration with this machine's addresses, run in its name space.
fn keepalived(number: u8, process: u32, state: &Site) -> Child {
    let other = if number == 2 { 3 } else { 2 };
    let shipped = include_str!("../../../../dist/keepalived/keepalived.conf");
    let own = shipped
        .replace("10.77.0.2\n", "OWN\n")
        .replace("10.77.0.3\n", &format!("10.77.0.{other}\n"))
        .replace("OWN\n", &format!("10.77.0.{number}\n"))
        .replace("priority 100\n", &format!("priority {}\n", 100 - number));
    let name = format!("keepalived{number}");
    state.write(&name, own);
    let mut command = child::command("nsenter", &[]);
    command.args(["-t", &process.to_string(), "-n", "keepalived"]);
    command.args(["--dont-fork", "--log-console", "--vrrp", "--use-file"]);
    command.arg(state.at(&name));
    command.arg("--pid").arg(state.at(&format!("{name}.pid")));
    command
        .arg("--vrrp_pid")
        .arg(state.at(&format!("{name}.vrrp")));
    Child::start(&mut command).expect("keepalived is there")
}

/// A connection to whichever machine has the address and answers. A killed server's listener may
/// take a connection and reset it, and one to a machine that has just lost the address hears
/// nothing more: clients try again.
fn connect() -> Connection {
    let address = FLOATING.parse().expect("an address");
    until("an answer at the floating address", || {
        let stream = TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
        let mut connection = Connection::of(stream);
        connection.stream.write_all(&null().record(1)).ok()?;
        connection.message().ok()?;
        let patience = Some(flatpath_testkit::patience());
        connection.stream.set_read_timeout(patience).ok()?;
        Some(connection)
    })
}

fn handles_go_on_at_the_floating_address_when_its_server_dies(driver: Driver) {
    let wanted = ["keepalived", "curl", "ip", "nsenter"].map(tools::find);
    if wanted.iter().any(Option::is_none) {
        return;
    }
    // This thread and what it starts; the other tests keep theirs.
    if let Err(cause) = unshare(CloneFlags::CLONE_NEWNET) {
        tools::refused::<()>(&format!("a network name space: {cause}"));
        return;
    }
    tools::loopback_up().expect("it is ours");
    run("ip", "link add bridge0 type bridge");
    run("ip", "address add 10.77.0.1/24 dev bridge0");
    run("ip", "link set bridge0 up");
    let (site, state) = (Site::new().with("file", "before"), Site::new());
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(site.path(), open).expect("our own directory");
    let mut machines = [2, 3].map(|number| Machine::start(number, driver, &site, &state));
    let mut client = connect();
    let root = client.root();
    let file = client.lookup(&root, "file");
    let made = client.create(&root, "made");
    assert_eq!(client.read(&file, 100), b"before");
    // The address is with the machine that the client's connection is to.
    let serving = until("a machine with the address", || {
        machines.iter().position(|machine| {
            let inside = format!("-t {} -n ip address show eth0", machine.holder.id());
            let mut command = Command::new("nsenter");
            let output = tools::run(command.args(inside.split(' ')), Duration::from_secs(20));
            String::from_utf8_lossy(&output.stdout).contains("10.77.0.100/24")
        })
    });
    machines[serving].server.process().signal(Signal::KILL);
    machines[serving].server.exit_status();
    let mut client = connect();
    assert_eq!(client.read(&file, 100), b"before");
    assert_eq!(client.status(&getattr(&made)), 0);
    let log = machines[1 - serving].keepalived.log();
    assert!(log.contains("MASTER"), "{log}");
}
