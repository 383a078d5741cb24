//! Spliced connections with TLS on the simulated driver: many seeds, every fault.
//!
//! Two listeners share their names, one with TLS and one without, so that pairs of each kind meet.
//! Ends say a name, then each sends and reads at its own pace; those with TLS in records cut
//! anywhere, with new keys now and then. Checked are
//! - without losses: each hears `tied` and then exactly what the other said, and the end behind it,
//!   with TLS as close_notify and FIN;
//! - with losses, and where a stream with TLS is cut off: what is heard is the beginning of that,
//!   and no end;
//! - always: every pair that was spliced is unspliced, and the server gives everything back.
//!
//! `FLATPATH_SEED=N cargo test -p flatpath --test it simulation_splice_tls` runs one seed alone.

use std::sync::Arc;

use crate::knots::Knots;
use crate::tls_client::{TURNS_MAX, TlsClient, VERSIONS, client_config, server_config};
use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::tls::rustls::ClientConfig;
use flatpath::tls::rustls::version::TLS13;
use flatpath_driver::simulation::{Client, ClientState, Faults, Random, each_seed};

const SEEDS: u64 = 100;

/// How an end leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaves {
    WhenAllIsSaid,
    /// By FIN after all that it says, with TLS without close_notify.
    CutOff,
    /// By a reset, at any time.
    Early,
}

/// One end of a pair.
struct End {
    client: Client,
    tls: Option<TlsClient>,
    script: Vec<u8>,
    /// Bytes of the name in front.
    name_bytes: usize,
    said: usize,
    /// Bytes on their way to the server.
    out: Vec<u8>,
    chunk_bytes_max: usize,
    has_finished: bool,
    heard: Vec<u8>,
    ended: bool,
    leaves: Leaves,
    /// Before the drain it was told that it has heard all.
    was_told: bool,
    reads_rarely: usize,
}

impl End {
    fn new(
        server: &SimulatedServer,
        configs: &[Arc<ClientConfig>],
        pair: usize,
        dice: &mut Random,
    ) -> End {
        let length = [0, 10, 3_000, 40_000][dice.below(4)];
        let salt = dice.below(250) as u8;
        let name = format!("{pair}\n").into_bytes();
        let words = (0..length).map(|at: u32| (at % 251) as u8 ^ salt);
        // The first listener has TLS.
        let listener = dice.below(3) / 2;
        let is_secured = listener == 0;
        End {
            client: server.connect_to(listener, None),
            tls: is_secured.then(|| TlsClient::new(&configs[dice.below(configs.len())])),
            name_bytes: name.len(),
            script: name.into_iter().chain(words).collect(),
            said: 0,
            out: Vec::new(),
            chunk_bytes_max: [50, 2_000, 100_000][dice.below(3)],
            has_finished: false,
            heard: Vec::new(),
            ended: false,
            leaves: Leaves::WhenAllIsSaid,
            was_told: false,
            reads_rarely: 1 + dice.below(8),
        }
    }

    fn hear(&mut self) {
        let bytes = self.client.read();
        match &mut self.tls {
            Some(tls) => {
                tls.feed(&bytes);
                self.heard.append(&mut tls.heard);
            }
            None => self.heard.extend(bytes),
        }
    }

    fn say(&mut self, count: usize, dice: &mut Random) {
        let words = &self.script[self.said..self.said + count];
        self.said += count;
        match &mut self.tls {
            Some(tls) => {
                tls.say(words);
                let has_others = tls.tls.protocol_version() == Some(TLS13.version);
                if has_others && dice.below(8) == 0 {
                    tls.tls.refresh_traffic_keys().expect("TLS 1.3");
                }
            }
            None => self.out.extend_from_slice(words),
        }
    }

    /// Sends some of what is on its way. True: that was all.
    fn send(&mut self, dice: &mut Random) -> bool {
        if let Some(tls) = &mut self.tls {
            self.out.append(&mut tls.take());
        }
        let count = self.out.len().min(1 + dice.below(self.chunk_bytes_max));
        let chunk: Vec<u8> = self.out.drain(..count).collect();
        if count > 0 {
            self.client.write(&chunk);
        }
        self.out.is_empty()
    }

    fn step(&mut self, dice: &mut Random) {
        if self.ended {
            return;
        }
        if self.client.state() == ClientState::Reset {
            self.hear();
            self.ended = true;
            return;
        }
        let handshakes = self.tls.as_ref().is_some_and(|it| it.tls.is_handshaking());
        if handshakes || dice.below(self.reads_rarely) == 0 {
            self.hear();
        }
        let heard_tied = self.heard.starts_with(b"tied\n");
        // A name whose owner finished while it waited would be forgotten.
        let may_say = match self.said < self.name_bytes || heard_tied {
            true => self.script.len(),
            false => self.script.len().min(self.name_bytes + 8),
        };
        if self.has_finished {
            return self.look_for_the_end(dice);
        }
        if !handshakes && self.said < may_say {
            let count = (1 + dice.below(20_000)).min(may_say - self.said);
            self.say(count, dice);
        }
        let all_is_sent = self.send(dice);
        if self.leaves == Leaves::Early && dice.below(60) == 0 {
            self.client.abort();
            self.ended = true;
        } else if all_is_sent && heard_tied && self.said == may_say && dice.below(4) == 0 {
            self.finish();
        }
    }

    fn finish(&mut self) {
        if let Some(tls) = &mut self.tls
            && self.leaves != Leaves::CutOff
        {
            tls.tls.send_close_notify();
            self.client.write(&tls.take());
        }
        self.client.shutdown_write();
        self.has_finished = true;
    }

    fn look_for_the_end(&mut self, dice: &mut Random) {
        if self.leaves == Leaves::Early && dice.below(60) == 0 {
            self.client.abort();
            self.ended = true;
        } else if self.client.state() != ClientState::Open {
            self.hear();
            self.ended = true;
        }
    }

    /// What the other one is to hear.
    fn owed(&self) -> Vec<u8> {
        [b"tied\n", &self.script[self.name_bytes..]].concat()
    }

    /// How far it has come, for a run that does not end.
    fn place(&self) -> String {
        format!(
            "{}: said {} of {}, {} on the way, heard {}, {:?}, handshakes {:?}, finished {}",
            match self.tls {
                Some(_) => "TLS",
                None => "plain",
            },
            self.said,
            self.script.len(),
            self.out.len(),
            self.heard.len(),
            self.client.state(),
            self.tls.as_ref().map(|it| it.tls.is_handshaking()),
            self.has_finished,
        )
    }

    fn look_at_the_end(&mut self) {
        let is_finished = self.client.state() == ClientState::Finished;
        self.was_told = match &mut self.tls {
            Some(tls) => is_finished && tls.broken.is_none() && tls.was_told_of_the_end(),
            None => is_finished,
        };
    }
}

fn conditions(seed: u64, dice: &mut Random, faults: Faults) -> Conditions {
    let drawn = Conditions::drawn(seed, dice, faults);
    Conditions {
        tls: Some(server_config()),
        without_tls: &[1],
        limits: Limits {
            // A few buffers, or plenty.
            buffer_bytes_max: [400 << 10, 256 << 20][dice.below(2)],
            ..drawn.limits
        },
        ..drawn
    }
}

/// Runs pairs of ends, of which `leave` decides how they leave.
fn run(seed: u64, faults: Faults, leave: impl Fn(&mut Random, &mut End)) -> (u64, Vec<[End; 2]>) {
    let mut dice = Random::new(seed);
    let conditions = conditions(seed, &mut dice, faults);
    let knots = Knots::default();
    let mut server = SimulatedServer::with_two(conditions, (knots.clone(), knots));
    let configs = VERSIONS.map(client_config);
    let pairs = 1 + dice.below(4);
    let mut pairs: Vec<[End; 2]> = (0..pairs)
        .map(|pair| [(); 2].map(|()| End::new(&server, &configs, pair, &mut dice)))
        .collect();
    for end in pairs.iter_mut().flatten() {
        leave(&mut dice, end);
    }
    let is_lossless = |pair: &[End; 2]| pair.iter().all(|it| it.leaves == Leaves::WhenAllIsSaid);
    // One whose other end is gone, or that has met none, may wait without end: the drain ends it.
    let is_over = |pair: &[End; 2]| match is_lossless(pair) {
        true => pair.iter().all(|end| end.ended),
        false => pair.iter().any(|end| end.ended),
    };
    let mut turns = 0;
    while !pairs
        .iter()
        .all(|pair| is_over(pair) || !is_lossless(pair) && turns > 5_000)
    {
        server.turn();
        for end in pairs.iter_mut().flatten() {
            end.step(&mut dice);
        }
        turns += 1;
        if turns >= TURNS_MAX {
            let ends: Vec<String> = pairs.iter().flatten().map(End::place).collect();
            panic!("seed {seed}: stuck: {ends:#?} {:?}", server.statistics());
        }
    }
    // What they are told of the others' leaving.
    for _ in 0..200 {
        server.turn();
        pairs.iter_mut().flatten().for_each(End::hear);
    }
    pairs.iter_mut().flatten().for_each(End::look_at_the_end);
    server.drain();
    for end in pairs.iter().flatten().filter(|end| !end.ended) {
        end.client.abort();
    }
    server.end(TURNS_MAX);
    let statistics = server.statistics();
    assert_eq!(
        statistics.spliced_pairs, statistics.unspliced,
        "seed {seed}"
    );
    (statistics.spliced_pairs, pairs)
}

fn check_whole(seed: u64, pairs: &[[End; 2]]) {
    for [one, other] in pairs {
        for (end, owed) in [(one, other.owed()), (other, one.owed())] {
            let (heard, owed_bytes) = (end.heard.len(), owed.len());
            assert!(end.heard == owed, "seed {seed}: {heard} of {owed_bytes}");
            assert!(end.was_told, "seed {seed}: cut off");
        }
    }
}

#[test]
fn sim_streams_arrive_whole_in_a_calm_world() {
    let spliced = each_seed(SEEDS, |seed| {
        let (spliced, pairs) = run(seed, Faults::none(), |_, _| {});
        check_whole(seed, &pairs);
        spliced
    });
    assert!(spliced.iter().sum::<u64>() > 0);
}

#[test]
fn sim_streams_arrive_whole_while_no_connection_is_lost() {
    let spliced = each_seed(SEEDS, |seed| {
        let faults = Faults::mixed(seed).without_losses();
        let (spliced, pairs) = run(seed, faults, |_, _| {});
        check_whole(seed, &pairs);
        spliced
    });
    assert!(spliced.iter().sum::<u64>() > 0);
}

#[test]
fn sim_a_stream_that_is_cut_off_ends_for_nobody() {
    let cut_off = each_seed(SEEDS, |seed| {
        let faults = Faults::mixed(seed).without_losses();
        let (_, pairs) = run(seed, faults, |dice, end| {
            if end.tls.is_some() && dice.below(2) == 0 {
                end.leaves = Leaves::CutOff;
            }
        });
        let mut cut_off = 0;
        for [one, other] in &pairs {
            for (end, source) in [(one, other), (other, one)] {
                assert!(source.owed().starts_with(&end.heard), "seed {seed}");
                if source.leaves == Leaves::CutOff && source.has_finished {
                    assert!(!end.was_told, "seed {seed}: a part was taken for the whole");
                    cut_off += 1;
                }
            }
        }
        cut_off
    });
    assert!(cut_off.iter().sum::<u64>() > 0);
}

#[test]
fn sim_lost_ends_part_their_pairs_and_leak_nothing() {
    let spliced = each_seed(SEEDS, |seed| {
        let (spliced, pairs) = run(seed, Faults::mixed(seed), |dice, end| {
            // Any connection may be lost.
            end.leaves = match dice.below(4) {
                0 => Leaves::Early,
                _ => Leaves::CutOff,
            };
        });
        for [one, other] in &pairs {
            assert!(other.owed().starts_with(&one.heard), "seed {seed}");
            assert!(one.owed().starts_with(&other.heard), "seed {seed}");
        }
        spliced
    });
    assert!(spliced.iter().sum::<u64>() > 0);
}
