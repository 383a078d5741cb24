//! Deadlines of a kept connection, on a simulated server.

use std::time::Duration;

use flatpath_http::{Http, Request, Response};
use flatpath_test::{ClientState, Conditions, TestServer, each_seed};

/// A head that begins behind a request has the time of a head, not that of an idle connection.
#[test]
fn sim_the_next_head_that_has_begun_has_the_time_of_a_head() {
    const HEAD: Duration = Duration::from_secs(5);
    const IDLE: Duration = Duration::from_secs(50);
    each_seed(20, |seed| {
        let http = Http::pooled(|_: Request| Response::new("reply".into()));
        let mut conditions = Conditions::rough(seed);
        conditions.limits.head_timeout = HEAD;
        conditions.limits.idle_timeout = IDLE;
        let mut server = TestServer::new(conditions, http);
        let (late, idle) = (server.connect(), server.connect());
        late.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HT");
        idle.write(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        server.run_until(|| late.state() != ClientState::Open);
        assert_eq!(idle.state(), ClientState::Open, "seed {seed}");
    });
}
