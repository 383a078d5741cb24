//! The fan-out and the services that it asks, all of them servers of this library, with both
//! drivers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use flatpath::{DriverChoice, Running, Server};
use flatpath_example_fan_out::{Service, router};
use flatpath_http::http::StatusCode;
use flatpath_http::{Deferred, Http, Path, Responder, Router, State};
use flatpath_testkit::{Client, drivers_here, until_true};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// What takes this long has failed.
const LONG: Duration = Duration::from_secs(60);
/// What never comes is not awaited for longer.
const SHORT: Duration = Duration::from_millis(50);

/// What the services know of those who ask.
#[derive(Clone, Default)]
struct Asked {
    /// Who wait for an answer.
    waiting: Arc<Mutex<Vec<Responder>>>,
    gone: Arc<AtomicUsize>,
}

impl Asked {
    fn count(&self) -> usize {
        self.waiting.lock().expect("whole").len()
    }

    fn router(&self) -> Router {
        Router::new()
            .get("/say/{word}", |Path(word): Path<String>| {
                format!("{word:?}")
            })
            .get("/wait", wait)
            .get("/text", || "no JSON")
            .get("/long", || format!("[{}]", " ".repeat(256 * 1024)))
            .get("/fail", || StatusCode::SERVICE_UNAVAILABLE)
            .with_state(self.clone())
    }

    fn answer_all(&self) {
        for responder in self.waiting.lock().expect("whole").drain(..) {
            responder.send("true").expect("it is awaited");
        }
    }
}

/// Answered by the test, or never.
fn wait(State(asked): State<Asked>) -> Deferred {
    let (responder, deferred) = Deferred::new();
    let gone = Arc::clone(&asked.gone);
    responder.on_close(move || {
        gone.fetch_add(1, Ordering::Relaxed);
    });
    asked.waiting.lock().expect("whole").push(responder);
    deferred
}

/// A server with the services and one that asks them, which has one worker.
struct Servers {
    asked: Asked,
    services: Running,
    fan_out: Running,
    _runtime: Runtime,
}

impl Servers {
    fn start(choice: DriverChoice, paths: &[(&str, Duration)]) -> Self {
        let asked = Asked::default();
        let start = |server: Server, router| {
            let server = server.driver(choice);
            let server = server.listen("127.0.0.1:0", Http::service(router));
            server.start().expect("it starts")
        };
        let services = start(Server::new(), asked.router());
        let address = services.addresses()[0].address;
        let service = |&(path, time_max): &(&str, Duration)| Service {
            name: path.to_owned(),
            url: format!("http://{address}/{path}"),
            time_max,
        };
        let runtime = Runtime::new().expect("a runtime");
        let router = router(runtime.handle(), paths.iter().map(service).collect());
        Self {
            asked,
            services,
            fan_out: start(Server::new().workers(1..=1), router.expect("a client")),
            _runtime: runtime,
        }
    }

    fn client(&self) -> Client {
        Client::connect(self.fan_out.addresses()[0].address)
    }

    fn end(self) {
        for running in [self.fan_out, self.services] {
            running.handle().drain();
            running.wait().expect("it ends");
        }
    }
}

fn overview(client: &mut Client, status: u16) -> Value {
    let reply = client.reply();
    assert_eq!(reply.status, status);
    serde_json::from_str(reply.text()).expect("JSON")
}

#[test]
fn all_services_are_asked_at_once_and_no_worker_waits_for_them() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let paths = ["wait?1", "wait?2", "wait?3"].map(|path| (path, LONG));
        let servers = Servers::start(choice, &paths);
        let mut clients = [servers.client(), servers.client()];
        for client in &mut clients {
            client.request("GET", "/overview", &[]);
        }
        // None is answered before the last is asked.
        until_true("six requests", || servers.asked.count() == 6);
        servers.asked.answer_all();
        for client in &mut clients {
            let all = json!({"wait?1": true, "wait?2": true, "wait?3": true});
            assert_eq!(overview(client, 200), all);
        }
        servers.end();
    }
}

#[test]
fn what_some_have_answered_comes_without_the_others() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let paths = [("say/hello", LONG), ("wait", SHORT), ("fail", LONG)];
        let more = [("text", LONG), ("long", LONG)];
        let servers = Servers::start(choice, &[&paths[..], &more].concat());
        let mut client = servers.client();
        client.request("GET", "/overview", &[]);
        let all = json!({
            "say/hello": "hello",
            "wait": {"error": "it takes too long"},
            "fail": {"error": "it has failed"},
            "text": {"error": "its answer is no JSON"},
            "long": {"error": "its answer is too long"},
        });
        assert_eq!(overview(&mut client, 200), all);
        servers.end();
    }
}

#[test]
fn where_no_service_answers_neither_do_we() {
    let servers = Servers::start(DriverChoice::Epoll, &[("fail", LONG), ("wait", SHORT)]);
    let mut client = servers.client();
    client.request("GET", "/overview", &[]);
    assert_eq!(overview(&mut client, 502)["fail"]["error"], "it has failed");
    servers.end();
}

#[test]
fn a_client_that_goes_away_drops_the_requests_that_were_made_for_it() {
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let paths = ["wait?1", "wait?2", "wait?3"].map(|path| (path, LONG));
        let servers = Servers::start(choice, &paths);
        let (mut leaver, mut stayer) = (servers.client(), servers.client());
        leaver.request("GET", "/overview", &[]);
        until_true("three requests", || servers.asked.count() == 3);
        assert_eq!(servers.asked.gone.load(Ordering::Relaxed), 0);
        drop(leaver);
        let gone = || servers.asked.gone.load(Ordering::Relaxed) == 3;
        until_true("the services know", gone);
        servers.asked.waiting.lock().expect("whole").clear();
        // Another client's requests are its own.
        stayer.request("GET", "/overview", &[]);
        until_true("three more", || servers.asked.count() == 3);
        servers.asked.answer_all();
        assert_eq!(overview(&mut stayer, 200)["wait?3"], true);
        assert_eq!(servers.asked.gone.load(Ordering::Relaxed), 3);
        servers.end();
    }
}
