//! The proxy over real sockets, on every driver, to servers that others have written.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flatpath::{DriverChoice, Running};
use flatpath_http::http::{Method, StatusCode};
use flatpath_http::{Body, Bytes, Http, Proxy, Request, Response, Router, Upstream, routing};
use flatpath_test::{HttpClient, Requests};
use flatpath_testkit::until_true;

use crate::on_each_driver;
use crate::serve::serve;

on_each_driver!(
    a_server_of_ours_is_asked_through_a_proxy,
    a_server_in_python_is_asked_through_a_proxy,
    a_server_that_closes_after_each_reply_loses_no_request,
    nginx_is_asked_through_a_proxy,
);

fn proxied(choice: DriverChoice, to: &str) -> (Running, SocketAddr, Upstream) {
    let upstream = Upstream::to(to).expect("an address");
    let router: Router = Router::new().nest_service("/app", Proxy::to(&upstream));
    let (running, address) = serve(choice, Http::service(router));
    (running, address, upstream)
}

/// What goes wrong is said at the end of a test, not by hanging.
fn end(running: Running) {
    running.handle().drain();
    running.wait().expect("a clean end");
}

fn a_server_of_ours_is_asked_through_a_proxy(choice: DriverChoice) {
    let echo = |method: Method, body: Bytes| format!("{method} {} bytes", body.len());
    let long = || {
        let (sender, body) = Body::channel(64 * 1024);
        thread::spawn(move || (0..64).try_for_each(|_| sender.send(vec![b'x'; 100_000])));
        Response::new(body)
    };
    let host = |request: Request| {
        let of = |name: &str| request.headers().get(name).cloned();
        format!("{:?} {:?}", of("host"), of("x-forwarded-for"))
    };
    let far: Router = Router::new()
        .route("/echo", routing::any(echo))
        .get("/long", long)
        .get("/host", host)
        .get("/none", || StatusCode::NO_CONTENT);
    let (far, at) = serve(choice, Http::service(far));
    let (running, address, upstream) = proxied(choice, &format!("http://{at}"));
    let mut client = HttpClient::connect(address);
    for bytes in [0, 1, 10_000, 500_000] {
        let reply = client.put("/app/echo").body(vec![b'x'; bytes]).expect(200);
        assert_eq!(reply.text(), format!("PUT {bytes} bytes"));
        let mut upload = client.post("/app/echo").upload(None);
        upload.piece(vec![b'x'; bytes]);
        assert_eq!(
            upload.finish().expect(200).text(),
            format!("POST {bytes} bytes")
        );
    }
    assert_eq!(client.get("/app/long").expect(200).body.len(), 6_400_000);
    client.get("/app/none").expect(204);
    client.get("/app/nothing").expect(404);
    assert_eq!(client.head("/app/echo").expect(200).body, b"");
    let host = client.get("/app/host").expect(200);
    assert_eq!(host.text(), "Some(\"localhost\") Some(\"127.0.0.1\")");
    until_true("the connection is kept", || upstream.idle() == 1);
    drop(client);
    end(running);
    assert_eq!(upstream.idle(), 0);
    end(far);
}

/// A server that is another program, until it is dropped.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        let _gone = self.0.kill();
        let _status = self.0.wait();
    }
}

fn a_server_in_python_is_asked_through_a_proxy(choice: DriverChoice) {
    let program = "import http.server, sys\n\
        class H(http.server.BaseHTTPRequestHandler):\n\
        \x20 protocol_version = sys.argv[1]\n\
        \x20 def do_GET(self):\n\
        \x20   self.answer(self.path.encode())\n\
        \x20 def do_POST(self):\n\
        \x20   self.answer(self.rfile.read(int(self.headers['Content-Length'])))\n\
        \x20 def answer(self, body):\n\
        \x20   self.send_response(200)\n\
        \x20   if sys.argv[1] == 'HTTP/1.1': self.send_header('Content-Length', str(len(body)))\n\
        \x20   self.end_headers()\n\
        \x20   self.wfile.write(body)\n\
        s = http.server.ThreadingHTTPServer(('127.0.0.1', 0), H)\n\
        print(s.server_port, flush=True)\n\
        s.serve_forever()\n";
    for version in ["HTTP/1.0", "HTTP/1.1"] {
        let mut command = Command::new("python3");
        command.args(["-c", program, version]);
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        let Ok(mut child) = command.spawn() else {
            flatpath_testkit::skipped::not_run("there is no python3");
            return;
        };
        let mut port = String::new();
        let stdout = child.stdout.take().expect("it was asked for");
        let program = Program(child);
        BufReader::new(stdout)
            .read_line(&mut port)
            .expect("its port");
        let (running, address, _) = proxied(choice, &format!("http://127.0.0.1:{}", port.trim()));
        let mut client = HttpClient::connect(address);
        for _ in 0..5 {
            assert_eq!(client.get("/app/path?q").expect(200).text(), "/path?q");
            let body = "x".repeat(100_000);
            let reply = client.post("/app/").body(&body).expect(200);
            assert!(reply.text() == body);
        }
        drop(client);
        end(running);
        drop(program);
    }
}

/// Every second reply is the last of its connection, which does not say so: what is sent after it
/// meets the close. Threads of this server end with their connections.
fn a_server_that_closes_after_each_reply_loses_no_request(choice: DriverChoice) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let at = listener.local_addr().expect("it is bound");
    let count = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&count);
    thread::spawn(move || {
        for connection in listener.incoming() {
            let Ok(connection) = connection else {
                return;
            };
            let counted = Arc::clone(&counted);
            thread::spawn(move || answer(connection, &counted));
        }
    });
    let (running, address, _) = proxied(choice, &format!("http://{at}"));
    let clients: Vec<_> = (0..4)
        .map(|_| {
            thread::spawn(move || {
                let mut client = HttpClient::connect(address);
                for _ in 0..50 {
                    assert_eq!(client.get("/app/").expect(200).text(), "ok");
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("each request was answered");
    }
    assert!(count.load(Ordering::SeqCst) >= 200);
    end(running);
}

fn answer(mut connection: TcpStream, counted: &AtomicUsize) {
    let Ok(reading) = connection.try_clone() else {
        return;
    };
    let mut lines = BufReader::new(reading).lines();
    for _ in 0..2 {
        loop {
            match lines.next() {
                Some(Ok(line)) if line.is_empty() => break,
                Some(Ok(_)) => {}
                _ => return,
            }
        }
        counted.fetch_add(1, Ordering::SeqCst);
        let reply = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        if connection.write_all(reply).is_err() {
            return;
        }
    }
}

/// A folder until it is dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("flatpath-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).expect("a folder of its own");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.0);
    }
}

fn nginx_is_asked_through_a_proxy(choice: DriverChoice) {
    let folder = Folder::new(&format!("proxy-nginx-{choice:?}"));
    let folder = &folder.0;
    let port = TcpListener::bind("127.0.0.1:0")
        .and_then(|it| it.local_addr())
        .expect("one")
        .port();
    std::fs::write(folder.join("page"), "x".repeat(300_000)).expect("a file");
    let at = folder.display();
    let config = format!(
        "daemon off; pid {at}/pid; error_log stderr; user root;\n\
         events {{ }}\n\
         http {{ access_log off; client_body_temp_path {at}/b; proxy_temp_path {at}/p;\n\
         fastcgi_temp_path {at}/f; uwsgi_temp_path {at}/u; scgi_temp_path {at}/s;\n\
         keepalive_requests 7;\n\
         server {{ listen 127.0.0.1:{port}; root {at};\n\
         location /status {{ return 418 \"tea\"; }} }} }}"
    );
    std::fs::write(folder.join("conf"), config).expect("a file");
    let mut command = Command::new("nginx");
    command
        .arg("-c")
        .arg(folder.join("conf"))
        .stderr(Stdio::null());
    let Ok(child) = command.spawn() else {
        flatpath_testkit::skipped::not_run("there is no nginx");
        return;
    };
    let _program = Program(child);
    until_true("nginx listens", || {
        TcpStream::connect(("127.0.0.1", port)).is_ok()
    });
    let (running, address, _) = proxied(choice, &format!("http://127.0.0.1:{port}"));
    let mut client = HttpClient::connect(address);
    for _ in 0..20 {
        assert_eq!(client.get("/app/page").expect(200).body.len(), 300_000);
        assert_eq!(client.get("/app/status").expect(418).text(), "tea");
        assert_eq!(client.head("/app/page").expect(200).body, b"");
    }
    drop(client);
    end(running);
}
