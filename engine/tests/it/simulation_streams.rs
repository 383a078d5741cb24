//! Streams on the simulated driver while memory runs short: what they hold, and who runs for them.

use std::time::Duration;

use crate::hoard::{CHUNK_BYTES, Hoard};
use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};

const SECOND: Duration = Duration::from_secs(1);

/// Memory without the reserve, in bytes.
const MEMORY_BYTES: usize = 7 * 1024 * 1024;

/// A server, and what its protocol counts.
struct Site {
    server: SimulatedServer,
    hoard: Hoard,
}

impl Site {
    fn new() -> Site {
        let mut conditions = Conditions::calm(7);
        conditions.limits = Limits {
            buffer_bytes_max: MEMORY_BYTES / 7 * 8,
            write_timeout: Duration::from_secs(1_000),
            ..Limits::default()
        };
        let hoard = Hoard::default();
        Site {
            server: SimulatedServer::new(conditions, hoard.clone()),
            hoard,
        }
    }

    /// Holds that many buffers, in shares that stall none of the holders.
    fn hold(&mut self, buffers: usize) -> Vec<flatpath_driver::simulation::Client> {
        let mut left = buffers;
        let mut holders = Vec::new();
        while left > 0 {
            let client = self.server.connect();
            client.write(format!("bulk {}\n", left.min(64)).as_bytes());
            left -= left.min(64);
            holders.push(client);
            self.pass(1);
        }
        holders
    }

    fn pass(&mut self, steps: u64) {
        for _ in 0..steps {
            self.server.world().advance(SECOND / 100);
            (0..8).for_each(|_| self.server.turn());
        }
    }
}

#[test]
fn sim_a_job_without_memory_waits_without_a_worker() {
    let mut site = Site::new();
    let holders = site.hold(MEMORY_BYTES / CHUNK_BYTES);
    let waits = site.server.connect();
    waits.write(b"job\n");
    site.pass(200);
    assert_eq!(site.hoard.runs(), 1, "there is no memory");
    assert_eq!(waits.read(), b"");
    holders[0].write(b"free\n");
    site.pass(20);
    assert_eq!(waits.read(), b"ok\n");
    assert_eq!(site.hoard.runs(), 2);
}

#[test]
fn sim_a_stream_that_is_not_read_holds_little_while_memory_is_short() {
    for (held_part, chunks) in [(0, 5), (80, 1)] {
        let mut site = Site::new();
        let _holders = site.hold(MEMORY_BYTES / CHUNK_BYTES * held_part / 100);
        let stream = site.server.connect();
        site.server.world().set_window_bytes(1);
        stream.write(b"stream\n");
        site.pass(50);
        let made = site.hoard.chunks();
        assert_eq!(made, chunks, "with {held_part} % in use");
    }
}
