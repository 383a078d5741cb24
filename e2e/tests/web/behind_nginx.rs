//! nginx in front: its `stream` names the client in a PROXY header, version 1, and its `http` sends
//! requests of all clients on connections that it keeps, over TCP and to a Unix socket.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;

use flatpath_testkit::child::{self, Child};
use flatpath_testkit::{Client, Driver, Launch, Server, Site, each_driver, tools, until_true};

each_driver!(
    its_stream_names_the_client,
    it_keeps_connections_for_requests_of_all_clients,
    its_http_names_the_client_of_each_request,
);

/// Where Debian has it; the program itself is built without.
const STREAM: &str = "/usr/lib/nginx/modules/ngx_stream_module.so";

/// nginx with this configuration below the lines that each has.
pub(crate) fn nginx(directory: &Path, configuration: &str) -> Option<Child> {
    let program = tools::find("nginx")?;
    let file = directory.join("nginx.conf");
    // One process: a worker of its own would be another user's, without a right to the sockets.
    let head = "daemon off;\nmaster_process off;\npid nginx.pid;\nerror_log stderr;\nevents {}\n";
    fs::write(&file, configuration.replace("HEAD", head)).expect("written");
    let mut command = child::command(program, &[]);
    command.args(["-e", "stderr", "-p"]).arg(directory);
    command.arg("-c").arg(&file);
    Some(Child::start(&mut command).expect("it starts"))
}

/// A server at a TCP address and a Unix socket in this directory, with a log of its requests there.
fn serve(driver: Driver, site: &Site, directory: &Path, options: &[&str]) -> Server {
    let socket = format!("unix:{}", directory.join("http").display());
    Launch::serve(driver)
        .with(["--http", &socket, "--access-log"])
        .with([directory.join("log")])
        .with(options)
        .directory(site.path())
        .start()
}

pub(crate) fn free() -> SocketAddr {
    child::free_address().expect("an address")
}

/// The address at the start of each line of the log.
fn peers(directory: &Path) -> Vec<String> {
    let log = fs::read_to_string(directory.join("log")).unwrap_or_default();
    let peer = |line: &str| line.split(' ').next().unwrap_or_default().to_string();
    log.lines().map(peer).collect()
}

fn its_stream_names_the_client(driver: Driver) {
    if !Path::new(STREAM).exists() {
        tools::refused::<()>("nginx has no module for `stream` (libnginx-mod-stream)");
        return;
    }
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let server = serve(driver, &site, run.path(), &["--proxy-from", "127.0.0.1"]);
    let (tcp, unix, local) = (free(), free(), run.at("local"));
    let configuration = format!(
        "load_module {STREAM};\nHEADstream {{\n    proxy_protocol on;\n\
         \x20   server {{ listen {tcp}; proxy_pass {server}; }}\n\
         \x20   server {{ listen {unix}; proxy_pass unix:{socket}; }}\n\
         \x20   server {{ listen unix:{local}; proxy_pass {server}; }}\n}}\n",
        server = server.address("http"),
        socket = run.at("http").display(),
        local = local.display(),
    );
    let Some(mut nginx) = nginx(run.path(), &configuration) else {
        return;
    };
    let mut expected = Vec::new();
    for (host, address) in [(2, tcp), (3, unix), (4, tcp)] {
        nginx.await_port(address.port()).expect("it listens");
        let mut client = Client::connect_from(SocketAddr::from(([127, 0, 0, host], 0)), address);
        for _ in 0..2 {
            assert_eq!(client.get("/file").text(), "contents");
            expected.push(format!("127.0.0.{host}"));
        }
    }
    if let Some(curl) = tools::find("curl") {
        // A client without an address: nginx says so, and the connection counts as nginx's own.
        let mut command = std::process::Command::new(curl);
        command.args(["--silent", "--show-error", "--unix-socket"]);
        command.arg(&local).arg("http://localhost/file");
        let output = tools::run(&mut command, flatpath_testkit::deadline::patience());
        assert_eq!(String::from_utf8_lossy(&output.stdout), "contents");
        expected.push("127.0.0.1".into());
    }
    until_true("a line for each request", || {
        peers(run.path()).len() == expected.len()
    });
    assert_eq!(peers(run.path()), expected);
    // Who comes to the server itself, past nginx, is not served.
    let mut stranger = Client::connect(server.address("http"));
    stranger.request("GET", "/file", &[]);
    assert_eq!(stranger.rest().0, b"");
}

/// nginx with a proxy to each address of the server, which keeps connections to it and sends it
/// these headers as well; and where the two listen.
fn proxies(server: &Server, run: &Site, headers: &str) -> Option<(Child, [SocketAddr; 2])> {
    let addresses = [free(), free()];
    let proxy = |name: &str, listen: SocketAddr, to: &str| {
        format!(
            "    upstream {name} {{ server {to}; keepalive 4; }}\n    server {{ listen {listen}; \
             location / {{ proxy_pass http://{name}; proxy_http_version 1.1; \
             proxy_set_header Connection \"\"; {headers}}} }}\n"
        )
    };
    let unix = format!("unix:{}", run.at("http").display());
    let configuration = format!(
        "HEADhttp {{\n    access_log off;\n{}{}}}\n",
        proxy("tcp", addresses[0], &server.address("http").to_string()),
        proxy("unix", addresses[1], &unix),
    );
    let mut nginx = nginx(run.path(), &configuration)?;
    for address in addresses {
        nginx.await_port(address.port()).expect("it listens");
    }
    Some((nginx, addresses))
}

fn it_keeps_connections_for_requests_of_all_clients(driver: Driver) {
    const REQUESTS: usize = 20;
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    // nginx sends the name of the upstream as the host.
    let options = ["--admin", "127.0.0.1:0", "--hosts", "tcp,unix"];
    let server = serve(driver, &site, run.path(), &options);
    let Some((_nginx, addresses)) = proxies(&server, &run, "") else {
        return;
    };
    for address in addresses {
        for _ in 0..REQUESTS {
            let reply = Client::connect(address).get("/file");
            assert_eq!((reply.status, reply.text()), (200, "contents"));
        }
    }
    until_true("a line for each request", || {
        peers(run.path()).len() == 2 * REQUESTS
    });
    let metrics = Client::connect(server.address("admin")).get("/metrics");
    let accepted = metrics
        .text()
        .lines()
        .filter(|line| line.starts_with("flatpath_connections_accepted_total{"))
        .filter_map(|line| line.rsplit(' ').next()?.parse::<u32>().ok())
        .sum::<u32>();
    assert_eq!(accepted, 2, "one connection of nginx to each socket");
}

fn its_http_names_the_client_of_each_request(driver: Driver) {
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let options = ["--hosts", "tcp,unix", "--forwarded-from", "127.0.0.1"];
    let server = serve(driver, &site, run.path(), &options);
    // It keeps one connection to each, for the requests of all clients.
    let header = "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; ";
    let Some((_nginx, addresses)) = proxies(&server, &run, header) else {
        return;
    };
    let mut expected = Vec::new();
    for address in addresses {
        for host in [2, 3, 2] {
            let from = SocketAddr::from(([127, 0, 0, host], 0));
            let mut client = Client::connect_from(from, address);
            // What a client claims is not believed.
            client.request("GET", "/file", &[("X-Forwarded-For", "192.0.2.1")]);
            assert_eq!(client.reply().text(), "contents");
            expected.push(format!("127.0.0.{host}"));
        }
    }
    until_true("a line for each request", || {
        peers(run.path()).len() == expected.len()
    });
    assert_eq!(peers(run.path()), expected);
    // A client that connects directly is not a trusted proxy.
    let from = SocketAddr::from(([127, 0, 0, 4], 0));
    let mut stranger = Client::connect_from(from, server.address("http"));
    stranger.request("GET", "/file", &[("X-Forwarded-For", "192.0.2.1")]);
    assert_eq!(stranger.reply().text(), "contents");
    expected.push("127.0.0.4".into());
    until_true("its line", || peers(run.path()).len() == expected.len());
    assert_eq!(peers(run.path()), expected);
}
