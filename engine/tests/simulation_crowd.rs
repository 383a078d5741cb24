//! Clients that pipeline without end share the receive pages with the others, on the simulated
//! driver.

mod lines;

use flatpath::DriverConfig;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::Client;
use lines::Lines;

const PAGES: u32 = 32;
const PAGE_BYTES: u32 = 256;

/// Most turns until an answer to one of a few questions, beside clients that pipeline.
fn turns_beside(server: &mut SimulatedServer, crowd: &[Client]) -> usize {
    const QUESTIONS: usize = 20;
    const TURNS_MAX: usize = 1000;
    let innocent = server.connect();
    let pipeline = b"ping\n".repeat(4 * PAGE_BYTES as usize);
    let mut longest = 0;
    for number in 0..QUESTIONS {
        innocent.write(b"ping\n");
        let mut turns = 0;
        while innocent.read() != b"pong\n" {
            for client in crowd {
                client.read();
                client.write(&pipeline);
            }
            server.turn();
            turns += 1;
            assert!(turns < TURNS_MAX, "no answer");
        }
        // The first one meets what the crowd had sent before it was known to be one.
        longest = longest.max(if number == 0 { 0 } else { turns });
    }
    longest
}

#[test]
fn sim_pipelining_clients_leave_pages_to_the_others() {
    const TURNS_MAX: usize = 4;
    let mut conditions = Conditions::calm(1);
    conditions.driver = DriverConfig {
        receive_buffers: PAGES,
        receive_buffer_bytes: PAGE_BYTES,
        ..DriverConfig::default()
    };
    let mut server = SimulatedServer::new(conditions, Lines);
    let crowd: Vec<Client> = (0..40).map(|_| server.connect()).collect();
    for client in &crowd {
        client.write(b"ping\n");
    }
    server.turn();
    let longest = turns_beside(&mut server, &crowd);
    assert!(longest <= TURNS_MAX, "{longest} turns for an answer");
    assert!(server.statistics().crowding.read() > 0);
    for client in &crowd {
        client.reset();
    }
    server.force();
    for _ in 0..1000 {
        server.turn();
    }
    assert!(server.has_ended());
    let (leaks, pooled) = server.leaks();
    assert!(leaks.is_none() && pooled == 0, "{leaks:?} {pooled}");
}
