//! What is counted is what has happened: by the causes of stalls and of connections that expired.

use std::time::Duration;

use flatpath::Limits;
use flatpath::simulation::{ClientState, Conditions, SimulatedServer};

use crate::lines::Lines;

const TURNS: usize = 40;

fn server(limits: Limits) -> SimulatedServer {
    let conditions = Conditions {
        limits,
        ..Conditions::calm(1)
    };
    SimulatedServer::new(conditions, Lines)
}

fn turns(server: &mut SimulatedServer) {
    (0..TURNS).for_each(|_| server.turn());
}

#[test]
fn sim_a_client_that_says_nothing_expires_as_idle_and_one_with_a_part_of_a_head_does_not() {
    for (said, expected) in [("", (1, 0)), ("pi", (0, 1)), ("ping\n", (1, 0))] {
        let mut server = server(Limits::default());
        let client = server.connect();
        turns(&mut server);
        client.write(said.as_bytes());
        turns(&mut server);
        for _ in 0..20 {
            client.read();
            server.advance(Duration::from_secs(30));
            turns(&mut server);
        }
        assert_ne!(client.state(), ClientState::Open, "{said}");
        let statistics = server.statistics();
        let counted = (statistics.expired_idle, statistics.expired_head);
        assert_eq!(counted, expected, "{said}");
        assert_eq!(statistics.connections_expired(), 1, "{said}");
    }
}
