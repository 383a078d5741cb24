//! What a tunnel waits for: its client, for as long as it says; a job and memory, until there are
//! some again.

use bytes::Bytes;
use flatpath_test::{Conditions, each_seed};

use crate::h2_client::Peer;
use crate::tunnels::{Talk, asked};

const SEEDS: u64 = 20;

#[test]
fn sim_a_tunnel_may_begin_its_time_anew() {
    let mut talk = Talk::begin(Conditions::calm(1));
    let time = Conditions::calm(1).limits.idle_timeout;
    for round in 0..4 {
        talk.server.advance(time * 2 / 3);
        talk.say("anew\n");
        (0..20).for_each(|_| talk.peer.step(&mut talk.server));
        assert!(!talk.told.has("Idle is over"), "round {round}");
    }
    talk.server.advance(time);
    talk.until_told("Idle is over");
}

/// The one job of the server is another's when the tunnel has work.
#[test]
fn sim_a_tunnel_without_a_job_waits_for_one() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.in_flight_max = 1;
        let mut talk = Talk::begin(conditions);
        let other = talk.server.connect();
        other.write(b"GET /page HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n");
        (0..20).for_each(|_| talk.server.turn_without_workers());
        talk.say("work\nlate\n");
        (0..20).for_each(|_| talk.peer.step_without_workers(&mut talk.server));
        let stalls = talk.server.statistics().jobs_stalls;
        assert!(stalls > 0, "seed {seed}: the job is with a worker");
        let index = talk.index;
        let is_whole = |peer: &Peer| peer.reply(index).body.len() >= "hello\nworked\nlate\n".len();
        talk.peer.until(&mut talk.server, is_whole);
        let mut lines: Vec<_> = talk.peer.reply(index).text().lines().collect();
        lines.sort_unstable();
        assert_eq!(lines, ["hello", "late", "worked"], "seed {seed}");
    });
}

/// The same with what was said before it began, which it gets when it begins.
#[test]
fn sim_a_tunnel_that_begins_without_a_job_waits_for_one() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.in_flight_max = 2;
        let mut talk = Talk::begin(conditions);
        let second = talk.peer.ask(asked("/lines"), Some(Bytes::new()));
        talk.peer.feed(second, b"work\n", false);
        (0..20).for_each(|_| talk.peer.step_without_workers(&mut talk.server));
        // Whose turn it is to have the second job the seed decides.
        talk.say("work\nwork\nwork\n");
        let (first, heard) = (talk.index, "hello\nworked\n");
        let are_whole = |peer: &Peer| {
            let has = |index: usize, bytes| peer.reply(index).body.len() >= bytes;
            has(first, heard.len() + 2 * "worked\n".len()) && has(second, heard.len())
        };
        talk.peer.until(&mut talk.server, are_whole);
        assert_eq!(talk.peer.reply(second).text(), heard, "seed {seed}");
    });
}

/// All memory is another conversation's when the tunnel wants some.
#[test]
fn sim_a_tunnel_without_memory_waits_for_some() {
    each_seed(SEEDS, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.limits.buffer_bytes_max = 1 << 20;
        let mut talk = Talk::begin(conditions);
        let mut other = Peer::new(&mut talk.server);
        let index = other.ask(asked("/lines"), Some(Bytes::new()));
        other.feed(index, b"take all\nall\n", false);
        let has_all = |peer: &Peer| peer.reply(index).text().ends_with("all\n");
        other.until(&mut talk.server, has_all);
        talk.say("hold\nlate\n");
        (0..100).for_each(|_| talk.peer.step(&mut talk.server));
        assert_eq!(talk.peer.reply(talk.index).text(), "hello\n", "seed {seed}");
        other.reset(index);
        (0..20).for_each(|_| other.step(&mut talk.server));
        talk.until_heard("hello\nheld\nlate\n");
    });
}
