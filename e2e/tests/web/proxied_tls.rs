//! `--proxy https://…`: the server is asked over TLS, and only the right one.

use std::io::Read;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

use flatpath_testkit::authority::Authority;
use flatpath_testkit::https::Certificates;
use flatpath_testkit::{Driver, Launch, Server, Site, each_driver, https};

each_driver!(
    requests_and_replies_pass_over_tls,
    a_server_of_another_program_is_asked_over_tls,
    only_a_server_that_shows_the_right_certificate_is_asked,
    a_server_is_shown_a_certificate_where_it_wants_one,
    what_is_no_tls_is_502_and_a_line,
    a_handshake_that_stalls_is_504,
);

/// A server of files over TLS.
fn upstream(driver: Driver, site: &Site, certificates: &Certificates, options: &[&str]) -> Server {
    let launch = https::launch(driver).with(certificates.options(&["server"]));
    let options = ["--writable"].iter().chain(options);
    launch.with(options).directory(site.path()).start()
}

/// A proxy to this server, with these settings.
fn proxy(driver: Driver, to: SocketAddr, run: &Site, settings: &str) -> Server {
    run.write(
        "flatpath.toml",
        format!("http = \"127.0.0.1:0\"\nproxy = \"https://{to}\"\n{settings}"),
    );
    Launch::configured(driver, run.path()).start()
}

fn trusting(certificates: &Certificates) -> String {
    let path = certificates.at("server.crt");
    format!("proxy-tls-ca = \"{}\"\n", path.display())
}

fn certificates(hosts: &[&str]) -> Certificates {
    let certificates = Certificates::default();
    certificates.make("server", hosts);
    certificates
}

fn requests_and_replies_pass_over_tls(driver: Driver) {
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let large = https::content(3_000_000);
    site.write("large", &large);
    let certificates = certificates(&["127.0.0.1"]);
    let server = upstream(driver, &site, &certificates, &[]);
    let at = server.address("https");
    let front = proxy(driver, at, &run, &trusting(&certificates));
    let mut client = front.client();
    for _ in 0..3 {
        assert_eq!(client.get("/file").text(), "contents");
        assert!(client.get("/large").body == large);
    }
    let chunked = "3\r\n123\r\n2\r\n45\r\n0\r\n\r\n";
    let request = format!(
        "PUT /new HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n{chunked}"
    );
    assert!([201, 204].contains(&client.exchange(request).status));
    assert_eq!(client.get("/new").text(), "12345");
    front.end();
    server.end();
}

/// Python's own server, by OpenSSL, which shows this certificate; and the port that it listens at.
fn python(certificates: &Certificates, client_ca: Option<&str>) -> (Child, SocketAddr) {
    let verify = client_ca.map_or(String::new(), |path| {
        format!("c.load_verify_locations({path:?}); c.verify_mode = ssl.CERT_REQUIRED\n")
    });
    let (crt, key) = (certificates.at("server.crt"), certificates.at("server.key"));
    let script = format!(
        "import http.server, ssl, threading\n\
         class H(http.server.BaseHTTPRequestHandler):\n\
         \x20 protocol_version = 'HTTP/1.1'\n\
         \x20 def do_GET(self):\n\
         \x20   got = self.connection.selected_alpn_protocol() or 'none'\n\
         \x20   got = (self.connection.version() + ' ' + got).encode()\n\
         \x20   self.send_response(200)\n\
         \x20   self.send_header('Content-Length', str(len(got)))\n\
         \x20   self.end_headers()\n\
         \x20   self.wfile.write(got)\n\
         \x20 def log_message(self, *a): pass\n\
         s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n\
         c = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
         c.load_cert_chain({crt:?}, {key:?})\n\
         c.set_alpn_protocols(['http/1.1'])\n\
         {verify}\
         s.socket = c.wrap_socket(s.socket, server_side=True, do_handshake_on_connect=False)\n\
         print(s.server_address[1], flush=True)\n\
         s.serve_forever()\n"
    );
    let mut command = Command::new("python3");
    let child = command.args(["-c", &script]).stdout(Stdio::piped()).spawn();
    let mut child = child.expect("Python is there");
    let mut port = Vec::new();
    let mut output = child.stdout.take().expect("piped");
    let mut byte = [0];
    while output.read(&mut byte).expect("read") == 1 && byte[0] != b'\n' {
        port.push(byte[0]);
    }
    let port = String::from_utf8_lossy(&port)
        .parse::<u16>()
        .expect("a port");
    (child, ([127, 0, 0, 1], port).into())
}

fn end(mut child: Child) {
    child.kill().expect("it runs");
    child.wait().expect("ended");
}

fn a_server_of_another_program_is_asked_over_tls(driver: Driver) {
    let run = Site::new();
    let certificates = certificates(&["127.0.0.1"]);
    let (child, at) = python(&certificates, None);
    let front = proxy(driver, at, &run, &trusting(&certificates));
    let mut client = front.client();
    for _ in 0..3 {
        assert_eq!(client.get("/").text(), "TLSv1.3 http/1.1");
    }
    front.end();
    end(child);
}

fn only_a_server_that_shows_the_right_certificate_is_asked(driver: Driver) {
    let site = Site::new().with("file", "contents");
    let (right, other) = (
        certificates(&["app.internal"]),
        certificates(&["127.0.0.1"]),
    );
    let expired = Certificates::default();
    expired.make_until("server", &["127.0.0.1"], 2001);
    let named = "proxy-tls-name = \"app.internal\"\n";
    for (shown, settings, status) in [
        (&right, format!("{}{named}", trusting(&right)), 200),
        // Its name is another one.
        (&right, trusting(&right), 502),
        (&other, format!("{}{named}", trusting(&other)), 502),
        // Its authority is not known.
        (&other, trusting(&right), 502),
        (&expired, trusting(&expired), 502),
    ] {
        let run = Site::new();
        let log = run.at("log").display().to_string();
        let server = upstream(driver, &site, shown, &["--access-log", &log]);
        let at = server.address("https");
        let front = proxy(driver, at, &run, &settings);
        let mut client = front.client();
        assert_eq!(client.get("/file").status, status, "{settings}");
        if status == 502 {
            let words = "TLS failed: the server's certificate does not hold (";
            front.await_log(&format!("server {at}: {words}"));
        }
        front.end();
        server.end();
        let asked = std::fs::read_to_string(run.at("log")).unwrap_or_default();
        assert_eq!(asked.is_empty(), status == 502, "{asked}");
    }
}

fn a_server_is_shown_a_certificate_where_it_wants_one(driver: Driver) {
    let authority = Authority::new("clients");
    let own = authority.issue("flatpath", 7, 2090);
    let files = Site::new()
        .with("ca.pem", authority.certificate())
        .with("own.pem", own.certificate)
        .with("own.key", own.key);
    let path = |name: &str| files.at(name).display().to_string();
    let certificates = certificates(&["127.0.0.1"]);
    let (child, at) = python(&certificates, Some(&path("ca.pem")));
    let run = Site::new();
    let front = proxy(driver, at, &run, &trusting(&certificates));
    assert_eq!(front.client().get("/").status, 502);
    front.await_log(&format!("server {at}: "));
    front.end();
    let run = Site::new();
    let shown = format!(
        "{}proxy-tls-cert = \"{}\"\nproxy-tls-key = \"{}\"\n",
        trusting(&certificates),
        path("own.pem"),
        path("own.key")
    );
    let front = proxy(driver, at, &run, &shown);
    assert_eq!(front.client().get("/").text(), "TLSv1.3 http/1.1");
    front.end();
    end(child);
}

/// A listener whose connections a function has, one after the other.
fn listener(act: fn(TcpStream)) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let at = listener.local_addr().expect("an address");
    std::thread::spawn(move || listener.incoming().flatten().for_each(act));
    at
}

fn what_is_no_tls_is_502_and_a_line(driver: Driver) {
    let certificates = certificates(&["127.0.0.1"]);
    let (site, run) = (Site::new().with("file", "contents"), Site::new());
    let server = Launch::serve(driver).directory(site.path()).start();
    // What is not read has the kernel reset the connection; a byte is, so that it stands.
    let resets = listener(|mut stream| {
        let read = stream.read(&mut [0]).expect("read");
        assert_eq!(read, 1, "a hello");
    });
    for (at, words) in [
        (server.address("http"), "the server does not speak TLS"),
        (resets, "the connection has ended within the handshake"),
    ] {
        let front = proxy(driver, at, &run, &trusting(&certificates));
        let mut client = front.client();
        // Its connection loses nothing.
        assert_eq!(client.get("/file").status, 502);
        assert_eq!(client.get("/file").status, 502);
        front.await_log(&format!("server {at}: TLS failed: {words}"));
        front.end();
    }
    server.end();
}

fn a_handshake_that_stalls_is_504(driver: Driver) {
    let certificates = certificates(&["127.0.0.1"]);
    let run = Site::new();
    let silent = listener(|mut stream| {
        std::io::copy(&mut stream, &mut std::io::sink()).ok();
    });
    let front = proxy(driver, silent, &run, &trusting(&certificates));
    assert_eq!(front.client().get("/file").status, 504);
    front.await_log(&format!(
        "server {silent}: TLS failed: nothing came back in time"
    ));
    front.end();
}
