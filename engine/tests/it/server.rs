//! The whole engine over real sockets, every test on io_uring and on epoll.

use std::net::Shutdown;
use std::time::Duration;

use crate::lines::{Site, on_both};
use flatpath::{DriverConfig, Limits, OperationMode};
use flatpath_testkit::stretched;

#[test]
fn inline_and_pooled_requests_are_answered() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server);
        let mut client = site.client();
        assert_eq!(client.ask("ping\n"), "pong\n");
        assert_eq!(client.ask("work 7\n"), "done 7\n");
        assert_eq!(client.ask("ping\n"), "pong\n");
        assert_eq!(client.ask("bye\n"), "bye\n");
        assert!(client.rest().is_empty());
        site.end();
    });
}

#[test]
fn dispatch_is_counted_always_and_timed_when_somebody_asks() {
    on_both(|choice| {
        for observed in [false, true] {
            let site = Site::new(choice, |server| match observed {
                true => server.observe_dispatch(),
                false => server,
            });
            let mut client = site.client();
            assert_eq!(client.ask("ping\n"), "pong\n");
            assert_eq!(client.ask("work 7\n"), "done 7\n");
            assert_eq!(client.ask("work 8\n"), "done 8\n");
            let handle = site.running().handle();
            let figures = handle.figures();
            // What is inline is not dispatched.
            assert_eq!(figures.total().jobs_dispatched, 2);
            assert_eq!(!figures.threads[0].dispatch.is_zero(), observed);
            drop(client);
            site.end();
        }
    });
}

#[test]
fn requests_may_arrive_byte_by_byte_and_many_at_once() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server);
        let mut client = site.client();
        for byte in "ping\nping\n".chars() {
            client.say(&byte.to_string());
        }
        assert_eq!(
            (client.line(), client.line()),
            ("pong\n".into(), "pong\n".into())
        );
        client.say(&"ping\n".repeat(5000));
        for _ in 0..5000 {
            assert_eq!(client.line(), "pong\n");
        }
        site.end();
    });
}

#[test]
fn a_panic_costs_its_own_request_only() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server);
        let mut other = site.client();
        let mut client = site.client();
        assert_eq!(client.ask("panic\n"), "panicked\n");
        assert_eq!(client.ask("ping\n"), "pong\n");
        client.say("boom\n");
        assert!(
            client.rest().is_empty(),
            "an inline panic cuts its connection"
        );
        assert_eq!(other.ask("ping\n"), "pong\n");
        assert_eq!(site.running().handle().statistics().handler_panics, 1);
        site.end();
    });
}

#[test]
fn a_half_closed_client_gets_everything_it_asked_for() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server);
        let mut client = site.client();
        client.say("ping\nsleep 30\nwork 1\n");
        client
            .stream()
            .shutdown(Shutdown::Write)
            .expect("half closed");
        let mut replies: Vec<String> = String::from_utf8(client.rest())
            .expect("text")
            .lines()
            .map(str::to_owned)
            .collect();
        replies.sort();
        assert_eq!(replies, ["done 1", "pong", "slept 30"]);
        site.end();
    });
}

#[test]
fn a_reader_that_stops_stalls_only_itself() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server);
        let mut slow = site.client();
        let total = 40_000_000;
        slow.say(&format!("big {total}\nping\n"));
        let mut other = site.client();
        assert_eq!(other.ask("ping\n"), "pong\n");
        assert_eq!(slow.line().len(), total + 1);
        assert_eq!(slow.line(), "pong\n");
        site.end();
    });
}

#[test]
fn more_requests_than_places_wait_for_their_turn() {
    on_both(|choice| {
        let limits = Limits {
            in_flight_max: 4,
            ..Limits::default()
        };
        let site = Site::new(choice, |server| server.limits(limits).workers(2..=4));
        let mut clients: Vec<_> = (0..20).map(|_| site.client()).collect();
        for client in &mut clients {
            client.say("sleep 5\nwork 1\nwork 2\n");
        }
        for client in &mut clients {
            let mut replies = [client.line(), client.line(), client.line()];
            replies.sort();
            assert_eq!(replies, ["done 1\n", "done 2\n", "slept 5\n"]);
        }
        site.end();
    });
}

#[test]
fn who_finds_no_room_for_too_long_is_told_so() {
    on_both(|choice| {
        let limits = Limits {
            in_flight_max: 1,
            stall_timeout: Duration::from_millis(20),
            linger_timeout: Duration::from_millis(50),
            ..Limits::default()
        };
        let site = Site::new(choice, |server| server.limits(limits));
        let long = format!(
            "sleep {}\n",
            stretched(Duration::from_millis(700)).as_millis()
        );
        let mut first = site.client();
        first.say(&long);
        let mut second = site.client();
        // Asks until the first one's request is surely in: one of the two is refused.
        second.say(&long);
        let (one, two) = (first.line(), second.line());
        assert!(
            [one.as_str(), two.as_str()].contains(&"full\n"),
            "{one:?} {two:?}: one is refused, the other served"
        );
        site.end();
    });
}

#[test]
fn four_receive_buffers_serve_hundreds_of_clients() {
    on_both(|choice| {
        let config = DriverConfig {
            receive_buffers: 4,
            ..DriverConfig::default()
        };
        let site = Site::new(choice, |server| server.driver_config(config));
        let mut clients: Vec<_> = (0..300).map(|_| site.client()).collect();
        for round in 0..3 {
            for client in &mut clients {
                client.say("ping\n");
            }
            for client in &mut clients {
                assert_eq!(client.line(), "pong\n", "round {round}");
            }
        }
        site.end();
    });
}

#[test]
fn a_completion_queue_of_eight_loses_nobody() {
    on_both(|choice| {
        let config = DriverConfig {
            submission_entries: 4,
            completion_entries: 8,
            ..DriverConfig::default()
        };
        let site = Site::new(choice, |server| server.driver_config(config));
        let mut clients: Vec<_> = (0..300).map(|_| site.client()).collect();
        for client in &mut clients {
            client.say("ping\nwork 3\n");
        }
        for client in &mut clients {
            assert_eq!(client.line(), "pong\n");
            assert_eq!(client.line(), "done 3\n");
        }
        site.end();
    });
}

#[test]
fn single_accept_serves_as_well() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server.accept(OperationMode::Single));
        let mut clients: Vec<_> = (0..100).map(|_| site.client()).collect();
        for client in &mut clients {
            assert_eq!(client.ask("ping\n"), "pong\n");
        }
        site.end();
    });
}

#[test]
fn at_the_connection_limit_newcomers_are_served_and_idlers_give_their_places() {
    on_both(|choice| {
        let limits = Limits {
            connections_max: 3,
            ..Limits::default()
        };
        let site = Site::new(choice, |server| server.limits(limits));
        let mut idle: Vec<_> = (0..3).map(|_| site.client()).collect();
        for client in &mut idle {
            assert_eq!(client.ask("ping\n"), "pong\n");
        }
        for _ in 0..10 {
            let mut newcomer = site.client();
            assert_eq!(newcomer.ask("ping\n"), "pong\n");
            idle.push(newcomer);
        }
        for mut closed in idle.drain(..10) {
            assert!(closed.rest().is_empty());
        }
        site.end();
    });
}

#[test]
fn deadlines_close_who_says_nothing() {
    on_both(|choice| {
        let limits = Limits {
            head_timeout: Duration::from_millis(30),
            ..Limits::default()
        };
        let site = Site::new(choice, |server| server.limits(limits));
        let mut silent = site.client();
        assert!(silent.rest().is_empty(), "closed without a word");
        assert_eq!(
            site.running().handle().statistics().connections_expired(),
            1
        );
        site.end();
    });
}

#[test]
fn drain_finishes_what_is_in_flight() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server);
        let mut client = site.client();
        assert_eq!(client.ask("ping\n"), "pong\n");
        let handle = site.running().handle();
        handle.drain();
        site.end();
        assert!(client.rest().is_empty());
    });
}

#[test]
fn a_forced_end_does_not_wait_for_a_handler() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server);
        let mut client = site.client();
        client.say("ping\nsleep 300\n");
        assert_eq!(client.line(), "pong\n");
        site.running().handle().force();
        site.end_forced();
        assert!(client.rest().is_empty());
    });
}

#[test]
fn the_worker_pool_grows_while_every_worker_blocks() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server.workers(1..=64));
        let mut clients: Vec<_> = (0..32).map(|_| site.client()).collect();
        for client in &mut clients {
            client.say("sleep 100\n");
        }
        for client in &mut clients {
            assert_eq!(client.line(), "slept 100\n");
        }
        assert!(site.running().handle().workers() > 1);
        assert!(site.running().handle().figures().workers.started > 0);
        site.end();
    });
}

#[test]
fn two_rings_share_one_port() {
    on_both(|choice| {
        let site = Site::new(choice, |server| server.network_threads(2));
        let mut clients: Vec<_> = (0..50).map(|_| site.client()).collect();
        for client in &mut clients {
            assert_eq!(client.ask("work 5\n"), "done 5\n");
        }
        site.end();
    });
}

#[test]
fn a_limit_that_cannot_be_is_an_error() {
    for (in_flight_max, threads) in [(1 << 24, 1), (1 << 23, 2), (usize::MAX, 2), (0, 1)] {
        let limits = Limits {
            in_flight_max,
            ..Limits::default()
        };
        let server = flatpath::Server::new()
            .limits(limits)
            .network_threads(threads);
        let started = server.listen("127.0.0.1:0", crate::lines::Lines).start();
        let error = started.expect_err("refused");
        assert!(error.to_string().contains("in_flight_max"), "{error}");
    }
}

#[test]
fn a_taken_port_and_a_missing_listener_are_named() {
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = holder.local_addr().expect("bound");
    let server = flatpath::Server::new().listen(address, crate::lines::Lines);
    let error = server.start().expect_err("refused");
    assert!(error.to_string().contains(&address.to_string()), "{error}");
    assert!(flatpath::Server::new().start().is_err());
    drop(holder);
    std::thread::sleep(Duration::from_millis(1));
}
