//! Three servers behind HAProxy are restarted one after the other, and no request fails.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use flatpath_testkit::child::{self, Child};
use flatpath_testkit::deadline::LONG_PATIENCE;
use flatpath_testkit::{
    Client, Driver, Launch, Server, Site, binary, each_driver, tools, until_true,
};

each_driver!(no_request_fails_while_servers_behind_a_balancer_are_restarted);

const CLIENTS: usize = 3;

/// A balancer that checks the servers by requests, and sends to another one what a server refuses
/// or closes without an answer: a connection may reach the kernel while the server's socket closes.
fn configuration(front: SocketAddr, servers: &[SocketAddr]) -> String {
    let mut text = format!(
        "defaults\n mode http\n timeout connect 10s\n timeout client 60s\n timeout server 60s\n \
         retries 5\n retry-on conn-failure empty-response\n option redispatch 1\n\
         frontend front\n bind {front}\n default_backend servers\n\
         backend servers\n option httpchk GET /file\n http-reuse safe\n \
         default-server check inter 50ms fall 1 rise 1\n"
    );
    for (number, server) in servers.iter().enumerate() {
        writeln!(text, " server s{number} {server}").expect("a string grows");
    }
    text
}

fn serve(driver: Driver, site: &Site, address: SocketAddr) -> Server {
    let at = address.to_string();
    let flags = ["serve", "--driver", driver.name(), "--http", &at];
    let launch = Launch::new(binary::flatpath().to_path_buf()).with(flags);
    // HAProxy keeps connections to the servers, and may be asleep for a while on a busy machine.
    let launch = launch.with(["--drain-delay", "300ms", "--drain-idle-timeout", "20"]);
    launch.directory(site.path()).start()
}

fn no_request_fails_while_servers_behind_a_balancer_are_restarted(driver: Driver) {
    let Some(haproxy) = tools::find("haproxy") else {
        return;
    };
    let site = Site::new().with("file", "contents");
    let run = Site::new();
    let addresses: Vec<SocketAddr> = (0..3)
        .map(|_| child::free_address().expect("an address"))
        .collect();
    let start = |address: &SocketAddr| serve(driver, &site, *address);
    let mut servers: Vec<Server> = addresses.iter().map(start).collect();
    let front = child::free_address().expect("an address");
    run.write("haproxy.cfg", configuration(front, &addresses));
    let mut command = Command::new(haproxy);
    command.args(["-db", "-f"]).arg(run.at("haproxy.cfg"));
    let mut balancer = Child::start(&mut command).expect("it starts");
    balancer.await_port(front.port()).expect("it listens");
    let (is_over, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let ask = || {
            while !is_over.load(Ordering::Relaxed) {
                let mut client = Client::connect(front).patient(LONG_PATIENCE);
                for _ in 0..4 {
                    let reply = client.get("/file");
                    assert_eq!(reply.text(), "contents");
                    asked.fetch_add(1, Ordering::Relaxed);
                }
            }
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(ask)).collect();
        for (server, address) in servers.iter_mut().zip(&addresses) {
            server.terminate();
            assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
            *server = start(address);
            let before = asked.load(Ordering::Relaxed);
            until_true("more requests to be answered", || {
                let fails = clients.iter().any(ScopedJoinHandle::is_finished);
                fails || asked.load(Ordering::Relaxed) > before + 50
            });
        }
        is_over.store(true, Ordering::Relaxed);
        for client in clients {
            client.join().expect("no request failed");
        }
    });
    drop(balancer);
}
