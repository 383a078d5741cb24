//! The memory budget on the simulated driver: who is stalled, for how long, and who is not.
//!
//! Simulated time makes deadlines exact: each test moves the clock in steps and says at which step
//! what must have happened.

use std::time::Duration;

use crate::hoard::{Hoard, LARGE_BYTES};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{DriverConfig, Limits};
use flatpath_driver::simulation::{Client, ClientState};

/// Bytes of sends that the engine starts in one turn before long ones wait.
const TURN_SENDS_BYTES: usize = 2 * 1024 * 1024;
const SECOND: Duration = Duration::from_secs(1);

/// Buffers of the smallest class that the budget of these tests has.
const BUFFERS: usize = 8;

/// A server with memory for [`BUFFERS`] of the smallest buffers, and a clock for the test to move.
struct Site {
    server: SimulatedServer,
    hoard: Hoard,
}

impl Site {
    fn new(adjust: impl FnOnce(&mut Limits)) -> Site {
        Site::with(DriverConfig::default(), adjust)
    }

    fn with(driver: DriverConfig, adjust: impl FnOnce(&mut Limits)) -> Site {
        Site::with_threads(1, driver, adjust)
    }

    fn with_threads(threads: u16, driver: DriverConfig, adjust: impl FnOnce(&mut Limits)) -> Site {
        let mut conditions = Conditions::calm(7);
        conditions.limits = Limits {
            buffer_bytes_max: BUFFERS * 4096,
            head_timeout: Duration::from_secs(100_000),
            stall_timeout: Duration::from_secs(5),
            ..Limits::default()
        };
        adjust(&mut conditions.limits);
        conditions.driver = driver;
        let hoard = Hoard::default();
        Site {
            server: SimulatedServer::with_threads(conditions, threads, hoard.clone()),
            hoard,
        }
    }

    fn client(&mut self, words: &str) -> Client {
        self.client_on(0, words)
    }

    fn client_on(&mut self, thread: usize, words: &str) -> Client {
        let client = self.server.connect_on(thread);
        client.write(words.as_bytes());
        self.pass(0);
        client
    }

    /// Clients that hold all memory, one smallest buffer each, for which none of them is ended.
    fn hoarders(&mut self) -> Vec<Client> {
        (0..BUFFERS).map(|_| self.client("hold 1\n")).collect()
    }

    /// Lets some seconds pass, with turns in between.
    fn pass(&mut self, seconds: u64) {
        for _ in 0..20 {
            self.server.turn();
        }
        for _ in 0..seconds * 4 {
            self.server.advance(SECOND / 4);
            for _ in 0..4 {
                self.server.turn();
            }
        }
    }
}

fn is_open(client: &Client) -> bool {
    client.state() == ClientState::Open
}

#[test]
fn sim_a_stall_has_one_deadline_from_its_beginning_whatever_trickles() {
    let mut site = Site::new(|_| ());
    let hoarders = site.hoarders();
    let stalled = site.client("half a li");
    let mut heard = Vec::new();
    for second in 0..30 {
        stalled.write(b".");
        site.pass(1);
        heard.extend(stalled.read());
        if !heard.is_empty() {
            break;
        }
        assert!(second < 20, "no word after {second} s");
    }
    assert_eq!(heard, b"full\n");
    assert_eq!(site.server.statistics().stalls_refused, 1);
    assert!(
        hoarders.iter().all(is_open),
        "they are not the ones that wait for memory"
    );
}

#[test]
fn sim_time_of_a_stall_is_not_charged_to_the_peer_nor_given_to_it() {
    for completes in [true, false] {
        let mut site = Site::new(|limits| {
            limits.head_timeout = Duration::from_secs(10);
            limits.stall_timeout = Duration::from_secs(1000);
        });
        let hoarders = site.hoarders();
        let stalled = site.client("");
        site.pass(4);
        stalled.write(b"half a li");
        site.pass(30);
        assert!(is_open(&stalled), "the server did not read meanwhile");
        hoarders[0].write(b"free\n");
        site.pass(4);
        assert!(is_open(&stalled), "eight of its ten seconds have passed");
        if completes {
            stalled.write(b"ne\n");
            site.pass(0);
            assert_eq!(stalled.read(), b"ok\n");
        } else {
            site.pass(4);
            assert!(!is_open(&stalled), "twelve seconds were its own");
        }
    }
}

#[test]
fn sim_a_holder_that_does_not_move_is_ended_for_those_that_wait() {
    let mut site = Site::new(|limits| limits.buffer_bytes_max = 1024 * 1024);
    // With these, nothing large can be had any more: a quarter of the budget is in reserve.
    let mover = site.client("hold 32\n");
    let still = site.client("hold 32\n");
    let small = site.client("hold 4\n");
    let _fill: Vec<Client> = (0..4).map(|_| site.client("hold 31\n")).collect();
    let waits = site.client("");
    for second in 0..20 {
        // More than a sixteenth of what it holds.
        mover.write("anything\n".repeat(2_000).as_bytes());
        site.pass(1);
        drop(mover.read());
        if second == 1 {
            waits.write(&[b'.'; 6000]);
        }
        if site.server.statistics().connections_ended_for_memory > 0 {
            break;
        }
    }
    site.pass(1);
    assert_eq!(still.read(), b"full\n", "it held most and did not move");
    assert!(is_open(&mover), "it held as much, but moved");
    assert!(is_open(&small), "it held little");
    assert!(is_open(&waits), "there is room for it now");
    assert_eq!(site.server.statistics().connections_ended_for_memory, 1);
    waits.write(b"\n");
    site.pass(0);
    assert_eq!(waits.read(), b"ok\n");
}

#[test]
fn sim_a_holder_whose_peer_reads_what_its_socket_holds_is_not_ended() {
    let mut site = Site::new(|limits| limits.buffer_bytes_max = 1024 * 1024);
    // For seconds its socket takes nothing more, as a third of this has to be read first.
    site.server.world().set_window_bytes(4 * LARGE_BYTES);
    site.server.world().drain_sockets_first();
    let reads = site.client(&"large\n".repeat(6));
    reads.write(b"hold 96\n");
    let still = site.client("hold 64\n");
    let _fill = site.client("hold 32\n");
    let waits = site.client("");
    waits.write(&[b'.'; 6000]);
    for _ in 0..4 {
        site.pass(1);
        assert!(!reads.read_at_most(LARGE_BYTES / 8).is_empty());
    }
    assert!(is_open(&reads), "it held most, but its peer reads");
    assert_eq!(still.read(), b"full\n");
}

#[test]
fn sim_a_holder_that_gives_back_when_memory_is_short_is_not_ended() {
    let mut site = Site::new(|limits| limits.buffer_bytes_max = 1024 * 1024);
    // All that is not in reserve.
    let lender = site.client("lend 192\n");
    let waits = site.client("");
    waits.write(&[b'.'; 6000]);
    site.pass(1);
    waits.write(b"\n");
    site.pass(0);
    assert_eq!(waits.read(), b"ok\n");
    assert!(is_open(&lender));
}

#[test]
fn sim_holders_of_another_thread_are_ended_for_those_that_wait() {
    // One large holder; or 256 halves of lines, which are in no list of holders.
    let large = ".".repeat(6000);
    for (count, words, waiting) in [(1, "hold 192\n", &*large), (256, "half a li", "another")] {
        let mut site = Site::with_threads(3, DriverConfig::default(), |limits| {
            limits.buffer_bytes_max = 1024 * 1024;
        });
        let still: Vec<Client> = (0..count).map(|_| site.client_on(1, words)).collect();
        let waits = site.client_on(2, waiting);
        waits.write(b" line\n");
        site.pass(4);
        assert_eq!(waits.read(), b"ok\n", "{words}");
        let ended = still
            .iter()
            .filter(|client| client.read() == b"full\n")
            .count() as u64;
        assert!((1..=32).contains(&ended), "{ended} were ended");
        let statistics = site.server.statistics();
        assert_eq!(statistics.connections_ended_for_memory, ended);
        assert_eq!(statistics.stalls_refused, 0);
    }
}

/// A thread with a holder and a client that waits for memory, and one with the largest holder.
fn short_beside_the_largest() -> (Site, [Client; 3]) {
    let mut site = Site::with_threads(2, DriverConfig::default(), |limits| {
        limits.buffer_bytes_max = 1024 * 1024;
    });
    let largest = site.client_on(1, "hold 128\n");
    let smaller = site.client_on(0, "hold 64\n");
    let waits = site.client_on(0, "");
    waits.write(&[b'.'; 6000]);
    (site, [largest, smaller, waits])
}

#[test]
fn sim_the_largest_holder_is_ended_before_those_of_the_thread_that_is_short() {
    let (mut site, [largest, smaller, waits]) = short_beside_the_largest();
    site.pass(4);
    assert!(is_open(&waits) && is_open(&smaller));
    assert_eq!(largest.read(), b"full\n");
    assert_eq!(site.server.statistics().connections_ended_for_memory, 1);
}

#[test]
fn sim_a_thread_whose_appeal_does_not_help_ends_a_holder_of_its_own() {
    let (mut site, [largest, smaller, waits]) = short_beside_the_largest();
    let mut heard = Vec::new();
    for _ in 0..6 {
        // More than a sixteenth of what it holds: it is not to be ended.
        for _ in 0..8 {
            largest.write("anything\n".repeat(1_000).as_bytes());
            site.pass(0);
            drop(largest.read());
        }
        site.pass(1);
        heard.extend(smaller.read());
    }
    assert_eq!(heard, b"full\n", "it asks the other thread without end");
    assert!(is_open(&largest) && is_open(&waits));
}

#[test]
fn sim_a_holder_with_a_job_out_is_cut_off_without_words() {
    let mut site = Site::new(|limits| limits.buffer_bytes_max = 1024 * 1024);
    // Its job waits for memory that the connection holds.
    let busy = site.client("hold 192\njob\n");
    let waits = site.client("");
    waits.write(&[b'.'; 6000]);
    for second in 0.. {
        assert!(second < 6, "it is still there");
        site.pass(1);
        if !is_open(&busy) {
            break;
        }
    }
    assert_eq!(busy.read(), b"", "words would be taken for its reply");
    assert_eq!(busy.state(), ClientState::Reset);
    assert_eq!(site.server.statistics().connections_ended_for_memory, 1);
}

#[test]
fn sim_a_connection_with_its_share_stalls_alone() {
    let mut site = Site::new(|limits| limits.buffer_bytes_max = 64 * 1024 * 1024);
    let greedy = site.client("hold 1024\nanything\n");
    let other = site.client("anything\n");
    site.pass(0);
    assert_eq!(other.read(), b"ok\n");
    greedy.write(b"more\n");
    site.pass(1);
    assert_eq!(greedy.read(), b"ok\n", "what came with it");
    assert_eq!(site.server.statistics().share_stalls, 1);
    site.pass(10);
    assert!(!is_open(&greedy), "nothing can give its share back");
    assert_eq!(greedy.read(), b"full\n");
    assert!(is_open(&other));
}

#[test]
fn sim_a_full_budget_stops_no_short_request() {
    let mut site = Site::new(|limits| limits.buffer_bytes_max = 1024 * 1024);
    // All that is not in reserve.
    let _hoarder = site.client("hold 192\n");
    let large = site.client("");
    large.write(&[b'.'; 6000]);
    let short = site.client("half a li");
    site.pass(0);
    short.write(b"ne\n");
    site.pass(0);
    assert_eq!(short.read(), b"ok\n");
    large.write(b"\n");
    site.pass(0);
    assert_eq!(large.read(), b"", "it waits for memory");
}

#[test]
fn sim_parts_of_bodies_leave_the_reserve_to_short_requests() {
    let mut site = Site::new(|limits| limits.buffer_bytes_max = 1024 * 1024);
    // All that is not in reserve; more parts than there are buffers in reserve.
    let _hoarder = site.client("hold 192\n");
    let _slow: Vec<Client> = (0..80).map(|_| site.client("body\npart")).collect();
    let short = site.client("half a li");
    site.pass(0);
    short.write(b"ne\n");
    site.pass(0);
    assert_eq!(short.read(), b"ok\n");
}

#[test]
fn sim_holders_of_one_buffer_that_do_not_move_are_ended_for_those_that_wait() {
    let mut site = Site::new(|limits| limits.buffer_bytes_max = 1024 * 1024);
    // Halves of lines in all buffers, the reserve's too.
    let slow: Vec<Client> = (0..256).map(|_| site.client("half a li")).collect();
    let moves = &slow[3];
    let waits = site.client("half of a nother");
    let mut open = slow.len();
    for _ in 0..20 {
        // Whole lines, and the half of one.
        moves.write("ne\nhalf a li".repeat(100).as_bytes());
        site.pass(1);
        drop(moves.read());
        open = slow.iter().filter(|client| is_open(client)).count();
        if open < slow.len() {
            break;
        }
    }
    waits.write(b" line\n");
    site.pass(1);
    assert_eq!(waits.read(), b"ok\n");
    assert!(is_open(moves), "it moved");
    let ended = site.server.statistics().connections_ended_for_memory;
    assert!(
        (1..=32).contains(&ended),
        "{ended} were ended, {open} are left"
    );
    assert_eq!(site.server.statistics().stalls_refused, 0);
}

#[test]
fn sim_pages_that_are_kept_or_held_leave_some_to_the_others() {
    const PAGES: u32 = 16;
    let config = DriverConfig {
        receive_buffers: PAGES,
        receive_buffer_bytes: 256,
        ..DriverConfig::default()
    };
    let mut site = Site::with(config, |_| ());
    let hoarders = site.hoarders();
    // As many pages as may be kept, and more halves of bodies than there are pages.
    let _keepers: Vec<Client> = (0..PAGES / 4).map(|_| site.client("keep\n")).collect();
    let bodies: Vec<Client> = (0..2 * PAGES).map(|_| site.client("body\n")).collect();
    for body in &bodies {
        body.write(&[b'.'; 200]);
    }
    site.pass(0);
    let other = site.client("anything\n");
    assert_eq!(other.read(), b"ok\n");
    let refused = site.server.statistics().stalls_refused;
    let all = u64::from(2 * PAGES);
    assert!(
        (1..all).contains(&refused),
        "{refused} of {all} were refused"
    );
    assert!(hoarders.iter().all(is_open));
}

#[test]
fn sim_input_that_waits_in_many_pages_moves_to_memory_before_a_connection_is_refused() {
    const PAGES: u32 = 32;
    const PAGE_BYTES: usize = 16 * 1024;
    const LINES: usize = 32;
    let config = DriverConfig {
        receive_buffers: PAGES,
        receive_buffer_bytes: PAGE_BYTES as u32,
        ..DriverConfig::default()
    };
    let mut site = Site::with(config, |limits| limits.buffer_bytes_max = 64 << 20);
    // What comes after it is received piece by piece, as much as there is.
    let clients: Vec<Client> = (0..4).map(|_| site.client("first\n")).collect();
    let line = [vec![b'.'; PAGE_BYTES - 1], vec![b'\n']].concat();
    for client in &clients {
        assert_eq!(client.read(), b"ok\n");
        client.write(&[b"wait\n", &line.repeat(LINES)[..]].concat());
    }
    site.pass(1);
    let mut answered = vec![Vec::new(); clients.len()];
    for _ in 0..100 {
        site.hoard.wake();
        site.pass(1);
        for (client, answered) in clients.iter().zip(&mut answered) {
            answered.extend(client.read());
        }
    }
    assert_eq!(site.server.statistics().stalls_refused, 0);
    for answered in answered {
        assert_eq!(answered, b"ok\n".repeat(LINES), "all lines, once each");
    }
    assert!(clients.iter().all(is_open));
}

#[test]
fn sim_long_replies_wait_for_the_next_turns_and_short_ones_do_not() {
    let mut site = Site::new(|_| ());
    let large: Vec<Client> = (0..64).map(|_| site.client("")).collect();
    let short = site.client("");
    for client in &large {
        client.write(b"large\n");
    }
    short.write(b"anything\n");
    let mut received = vec![0; large.len()];
    let mut turns_with_bytes = 0;
    while received.iter().any(|bytes| *bytes < LARGE_BYTES) {
        let before: usize = received.iter().sum();
        site.server.turn();
        for (client, bytes) in large.iter().zip(&mut received) {
            *bytes += client.read().len();
        }
        let in_this_turn = received.iter().sum::<usize>() - before;
        assert!(
            in_this_turn <= TURN_SENDS_BYTES + LARGE_BYTES,
            "{in_this_turn} bytes in one turn"
        );
        if in_this_turn > 0 && turns_with_bytes == 0 {
            assert_eq!(short.read(), b"ok\n", "it was asked last");
        }
        turns_with_bytes += usize::from(in_this_turn > 0);
        assert!(turns_with_bytes < 1_000, "{received:?}");
    }
}
