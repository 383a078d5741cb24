//! WebSockets with a client of others: Python's `websockets` runs the cases of Autobahn's suite,
//! which is itself in a language that nothing runs any more, against an echo on both drivers, with
//! handlers inline and pooled.
//!
//! `FLATPATH_WEBSOCKETS` is the directory of a Python that has the package.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use flatpath::{Running, Server};
use flatpath_http::{Http, Proxy, Request, Service, Upstream};
use flatpath_testkit::{Driver, each_driver, tools};
use flatpath_websocket::{Deflate, Limits, Message, Socket, WebSocket};

use flatpath_e2e::choice;

each_driver!(
    inline_sockets_pass_the_cases,
    pooled_sockets_pass_the_cases,
    sockets_that_keep_their_windows_pass_the_cases,
    sockets_of_a_server_behind_a_proxy_pass_the_cases,
);

/// Far beyond what all cases take.
const TIME_MAX: Duration = Duration::from_secs(300);

/// The longest messages of the cases, in as many fragments as they come.
const LIMITS: Limits = Limits {
    message_bytes_max: 16 << 20,
    fragments_max: 1 << 20,
    queued_bytes_max: 256 * 1024,
};

fn python() -> Option<std::path::PathBuf> {
    if let Some(directory) = std::env::var_os("FLATPATH_WEBSOCKETS") {
        return Some(Path::new(&directory).join("python"));
    }
    let python = tools::find("python3")?;
    let mut import = Command::new(&python);
    import.args(["-c", "import websockets.sync.client"]);
    if tools::run(&mut import, TIME_MAX).status.success() {
        return Some(python);
    }
    tools::find("Python's package websockets").map(|_| python)
}

fn check(driver: Driver, websocket: WebSocket) {
    let Some(python) = python() else {
        return;
    };
    let running = echo(driver, websocket);
    cases(&python, &running);
    end(running);
}

/// A server that sends every message back.
fn echo(driver: Driver, websocket: WebSocket) -> Running {
    let echo: fn(&Socket, Message) = |socket, message| {
        let _ = socket.send(message);
    };
    let websocket = websocket.limits(LIMITS);
    start(
        driver,
        Http::pooled(move |request: Request| websocket.accept(&request, echo)),
    )
}

fn start<S: Service>(driver: Driver, http: Http<S>) -> Running {
    // A connection may hold a sixteenth of it: the longest message, and more.
    let limits = flatpath::Limits {
        buffer_bytes_max: 1 << 30,
        ..flatpath::Limits::default()
    };
    let server = Server::new().driver(choice(driver)).limits(limits);
    server.listen("127.0.0.1:0", http).start().expect("started")
}

fn cases(python: &Path, running: &Running) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("clients/websocket_client.py");
    let port = running.addresses()[0].address.port().to_string();
    let output = tools::run(Command::new(python).arg(script).arg(port), TIME_MAX);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{output:?}");
    assert!(text.ends_with(" cases\n"), "{text}");
}

fn end(running: Running) {
    running.handle().drain();
    running.wait().expect("it ends");
}

fn sockets_of_a_server_behind_a_proxy_pass_the_cases(driver: Driver) {
    let Some(python) = python() else {
        return;
    };
    let behind = echo(driver, WebSocket::pooled());
    let upstream = Upstream::to(&format!("http://{}", behind.addresses()[0].address));
    let proxy = Proxy::to(&upstream.expect("a server"));
    let front = start(driver, Http::service(proxy));
    cases(&python, &front);
    end(front);
    end(behind);
}

fn inline_sockets_pass_the_cases(driver: Driver) {
    check(driver, WebSocket::inline());
}

fn pooled_sockets_pass_the_cases(driver: Driver) {
    check(driver, WebSocket::pooled());
}

fn sockets_that_keep_their_windows_pass_the_cases(driver: Driver) {
    let deflate = Deflate {
        server_takeover: true,
        client_takeover: true,
        ..Deflate::default()
    };
    check(driver, WebSocket::pooled().deflate(Some(deflate)));
}
