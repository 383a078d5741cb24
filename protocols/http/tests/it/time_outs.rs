//! Time-outs of handlers, in simulations: one, and several around each other.

use std::panic::panic_any;
use std::time::Duration;

use flatpath_http::{
    Answer, Http, Next, Parameters, Request, Response, Router, State, TimeOut, Upload, routing,
};
use flatpath_test::{Conditions, TestServer, each_seed};

use crate::deferred::{Count, SEEDS, Waiting, get};
use crate::h2_client::Peer;

/// Conditions in which time-outs of 100 ms are a matter of turns.
const TIME: Duration = Duration::from_millis(100);

/// A layer that says which status has passed it.
fn mark(name: &'static str) -> impl Fn(Request, &Next<'_>) -> Answer + Send + Sync + 'static {
    move |request, next| {
        next.run(request).map(move |response: Response| {
            let seen = response.status().as_u16().to_string();
            ([(name, seen)], response)
        })
    }
}

/// Handlers that are too slow, as far as a test says, around which a layer is.
fn timed(waiting: &Waiting) -> Router {
    let defer = |State(waiting): State<Waiting>, parameters: Parameters| {
        waiting.wait(parameters.get("name").unwrap_or_default())
    };
    let fails = || -> &'static str { panic_any("the handler panics on purpose") };
    let upload = |State(waiting): State<Waiting>| Upload::new(Count(0, waiting));
    Router::new()
        .get("/defer/{name}", defer)
        .get("/now", || "now")
        .post("/echo", |body: String| body)
        .get("/fails", fails)
        .route("/inline", routing::get(|| "inline").inline())
        .route("/upload", routing::put(upload).streamed())
        .layer(TimeOut::after(TIME))
        .layer(mark("x-seen"))
        .with_state(waiting.clone())
}

#[test]
fn sim_a_time_out_answers_in_place_of_what_is_too_slow() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(timed(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        for path in [
            "/now",
            "/defer/slow",
            "/fails",
            "/defer/quick",
            "/inline",
            "/none",
        ] {
            client.write(get(path).as_bytes());
        }
        client.write(b"POST /echo HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\nbody");
        server.run_until(|| waiting.count() == 2);
        waiting.take("quick").send("quick").expect("it waits");
        // Its responder learns of it.
        server.run_until(|| waiting.closed() == 1);
        let responder = waiting.take("slow");
        assert!(
            responder.send("slow").is_err(),
            "seed {seed}: it is too late"
        );
        client.write(
            get("/now")
                .replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n")
                .as_bytes(),
        );
        let replies = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        let seen = replies
            .lines()
            .filter_map(|line| line.strip_prefix("X-Seen: "));
        let seen: Vec<_> = seen.collect();
        let expected = ["200", "503", "500", "200", "200", "404", "200", "200"];
        assert_eq!(seen, expected, "seed {seed}: {replies}");
        assert_eq!(waiting.closed(), 1, "seed {seed}");
        assert!(replies.contains("took too long"), "seed {seed}: {replies}");
    });
}

#[test]
fn sim_uploads_have_deadlines_of_their_own() {
    let waiting = Waiting::default();
    let http = Http::service(timed(&waiting));
    let mut server = TestServer::new(Conditions::calm(1), http);
    let client = server.connect();
    client.write(b"PUT /upload HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\n\r\n");
    let end = server.world().now() + 2 * TIME;
    while server.world().now() < end {
        server.turn();
    }
    client.write(b"body");
    server.run_until(|| waiting.count() == 1);
    waiting.take("4 bytes").send("all of it").expect("it waits");
    while server.read_line(&client) != "\r\n" {}
    assert_eq!(server.read_exact(&client, 9), b"all of it");
}

#[test]
fn streams_have_each_a_time_out_of_its_own() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(timed(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let mut peer = Peer::new(&mut server);
        let asked = ["/defer/a", "/now", "/defer/b", "/defer/c", "/fails"];
        let asked = asked.map(|path| peer.get(path));
        peer.until(&mut server, |_| waiting.count() == 3);
        waiting.take("b").send("b").expect("it waits");
        peer.finish(&mut server);
        let status = |index: &usize| peer.reply(*index).status.map(|status| status.as_u16());
        let statuses: Vec<_> = asked.iter().filter_map(status).collect();
        assert_eq!(statuses, [503, 200, 200, 503, 500], "seed {seed}");
        let all_seen = asked
            .iter()
            .all(|index| peer.reply(*index).headers.contains_key("x-seen"));
        assert!(all_seen, "seed {seed}");
        assert_eq!(waiting.closed(), 2, "seed {seed}");
    });
}

/// Longer than any test.
const LONG: Duration = Duration::from_secs(3600);

/// Handlers with time-outs around them and layers between.
fn nested(waiting: &Waiting) -> Router {
    let defer = |State(waiting): State<Waiting>, parameters: Parameters| {
        waiting.wait(parameters.get("name").unwrap_or_default())
    };
    let within = |inner| {
        let route = routing::get(defer).layer(mark("x-first"));
        route.layer(TimeOut::after(inner)).layer(mark("x-second"))
    };
    Router::new()
        .route("/short/{name}", within(TIME))
        .route("/long/{name}", within(LONG))
        .layer(TimeOut::after(3 * TIME))
        .layer(mark("x-third"))
        .layer(TimeOut::after(LONG))
        .with_state(waiting.clone())
}

/// What each of the layers has seen, of a reply with these headers.
const SEEN: [&str; 3] = ["x-first", "x-second", "x-third"];

#[test]
fn sim_of_several_time_outs_that_which_is_over_first_answers() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(nested(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let client = server.connect();
        for path in ["/short/a", "/long/b", "/short/quick", "/long/quick"] {
            client.write(get(path).as_bytes());
        }
        server.run_until(|| waiting.count() == 4);
        for _ in 0..2 {
            waiting.take("quick").send("quick").expect("it waits");
        }
        server.run_until(|| waiting.closed() == 2);
        let all = [Some("503"), Some("200")].map(|it| it.map(str::to_owned));
        let [over, quick] = all;
        let expected = [
            // The layers around the time-out that is over, and no others.
            [None, over.clone(), over.clone()],
            [None, None, over],
            [quick.clone(), quick.clone(), quick.clone()],
            [quick.clone(), quick.clone(), quick],
        ];
        for expected in expected {
            let mut seen = [const { None }; 3];
            let mut bytes = 0;
            loop {
                let line = server.read_line(&client).to_ascii_lowercase();
                let Some((name, value)) = line.trim_end().split_once(": ") else {
                    match line.as_str() {
                        "\r\n" => break,
                        _ => continue,
                    }
                };
                if let Some(at) = SEEN.iter().position(|it| *it == name) {
                    seen[at] = Some(value.to_owned());
                }
                if name == "content-length" {
                    bytes = value.parse().expect("a number");
                }
            }
            server.read_exact(&client, bytes);
            assert_eq!(seen, expected, "seed {seed}");
        }
        for name in ["a", "b"] {
            let late = waiting.take(name).send("late");
            assert!(late.is_err(), "seed {seed}: {name}");
        }
    });
}

#[test]
fn streams_have_several_time_outs_each() {
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(nested(&waiting));
        let mut server = TestServer::new(Conditions::rough(seed), http);
        let mut peer = Peer::new(&mut server);
        let asked = ["/short/a", "/long/b", "/short/quick"].map(|path| peer.get(path));
        peer.until(&mut server, |_| waiting.count() == 3);
        waiting.take("quick").send("quick").expect("it waits");
        peer.finish(&mut server);
        let seen = asked.map(|index| {
            let headers = &peer.reply(index).headers;
            SEEN.map(|name| headers.get(name).map(|value| value.as_bytes().to_vec()))
        });
        let (over, quick) = (Some(b"503".to_vec()), Some(b"200".to_vec()));
        let expected = [
            [None, over.clone(), over.clone()],
            [None, None, over],
            [quick.clone(), quick.clone(), quick],
        ];
        assert_eq!(seen, expected, "seed {seed}");
        assert_eq!(waiting.closed(), 2, "seed {seed}");
    });
}

#[test]
fn sim_where_no_worker_has_room_for_an_inner_time_out_its_client_learns_of_it() {
    // Every job is for a request, and those inside of time-outs need one more each.
    each_seed(SEEDS, |seed| {
        let waiting = Waiting::default();
        let http = Http::service(nested(&waiting));
        let mut conditions = Conditions::rough(seed);
        conditions.limits.in_flight_max = 4;
        let mut server = TestServer::new(conditions, http);
        let clients: Vec<_> = (0..8).map(|_| server.connect()).collect();
        for client in &clients {
            client.write(get("/short/a").as_bytes());
        }
        for client in &clients {
            let line = server.read_line(client);
            assert!(line.starts_with("HTTP/1.1 503 "), "seed {seed}: {line}");
        }
    });
}
