//! Replies on the simulated driver: a client that reads none gets few of its calls executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flatpath::Limits;
use flatpath::memory::PoolHandle;
use flatpath::prompt::PromptRight;
use flatpath::simulation::{Client, ClientState, Conditions, Random, SimulatedServer, each_seed};
use flatpath_rpc::limits::{CALLS_MAX, REPLY_HEAD_BYTES};
use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{Arguments, Call, CallOutcome, Found, Programs, Reply, ReplyCounts, Route, Rpc};

/// Data of each reply, in bytes.
const DATA_BYTES: usize = 256 * 1024;
/// A reply as it is sent: a record marker, the head and the data.
const SENT_BYTES: usize = 4 + 24 + DATA_BYTES;

/// Every call reads [`DATA_BYTES`], on a worker.
struct Reads;

impl Programs for Reads {
    fn name(&self) -> &'static str {
        "reads"
    }

    fn route(&self, _: &Call) -> Route {
        Route::Pooled
    }

    fn reply_bytes_max(&self, _: &Call, _: Arguments<'_>) -> usize {
        REPLY_HEAD_BYTES + DATA_BYTES
    }

    fn inline(&self, _: &Call, _: Arguments<'_>, _: &mut Writer<'_>) -> CallOutcome {
        CallOutcome::SystemError
    }

    fn pooled(
        &self,
        _: &Call,
        _: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let room = reply.data(0, DATA_BYTES, pool).expect("room");
        assert_eq!(
            room.iter().map(|slice| slice.len()).sum::<usize>(),
            DATA_BYTES
        );
        reply.commit(0, DATA_BYTES, |_| ());
        CallOutcome::Results
    }
}

/// A call of procedure 1 without arguments.
pub(crate) fn call(xid: u32) -> Vec<u8> {
    call_of(1, xid)
}

fn call_of(procedure: u32, xid: u32) -> Vec<u8> {
    call_with(procedure, xid, 0)
}

/// A call without arguments (RFC 5531, section 9), with an empty credential of this flavor, in a
/// record of its own.
pub(crate) fn call_with(procedure: u32, xid: u32, flavor: u32) -> Vec<u8> {
    let words = [xid, 0, 2, 1, 1, procedure, flavor, 0, 0, 0];
    let marker = 1 << 31 | u32::try_from(4 * words.len()).expect("short");
    let words = [marker].into_iter().chain(words);
    words.flat_map(u32::to_be_bytes).collect()
}

#[test]
fn sim_calls_wait_while_replies_are_not_read() {
    let mut conditions = Conditions::calm(7);
    conditions.limits = Limits {
        buffer_bytes_max: 256 << 20,
        ..Limits::default()
    };
    let unsent_max = conditions.limits.unsent_bytes_max();
    let mut server = SimulatedServer::new(conditions, Rpc::new(Reads));
    let client = server.connect();
    server.world().set_window_bytes(1);
    let calls: Vec<u8> = (0..CALLS_MAX).flat_map(call).collect();
    client.write(&calls);
    (0..200).for_each(|_| server.turn());
    let executed = usize::try_from(server.statistics().jobs_dispatched).expect("few");
    assert!(executed > 0, "the first replies are on their way");
    assert!(
        executed * DATA_BYTES <= unsent_max,
        "{executed} replies of {DATA_BYTES} bytes are more than {unsent_max}"
    );

    // All of them are executed when the client reads.
    server.world().set_window_bytes(1 << 20);
    let mut read_bytes = 0;
    for _ in 0..10_000 {
        server.turn();
        read_bytes += client.read().len();
        if read_bytes == CALLS_MAX as usize * SENT_BYTES {
            return;
        }
    }
    panic!("{read_bytes} bytes of replies came");
}

/// Procedure 1 needs no wait, 2 does, 3 fails before it does, and 4 has a long reply. Each answers
/// with who did it.
struct Tries(Arc<PromptRight>);

const HERE: u32 = 1;
const THERE: u32 = 2;
/// A worker, after a try.
const AFTER: u32 = 3;
const FOUND: Found = Found(7);
const LONG_BYTES: usize = 100_000;

impl Programs for Tries {
    fn name(&self) -> &'static str {
        "tries"
    }

    fn route(&self, _: &Call) -> Route {
        Route::Prompt
    }

    fn reply_bytes_max(&self, call: &Call, _: Arguments<'_>) -> usize {
        REPLY_HEAD_BYTES + if call.procedure == 4 { LONG_BYTES } else { 4 }
    }

    fn inline(&self, _: &Call, _: Arguments<'_>, _: &mut Writer<'_>) -> CallOutcome {
        CallOutcome::SystemError
    }

    fn prompt_right(&self, _: &Call, _: Arguments<'_>) -> Option<Arc<PromptRight>> {
        Some(Arc::clone(&self.0))
    }

    fn reply_classes(&self) -> usize {
        10
    }

    /// By procedure, and whether there are results.
    fn reply_class(&self, call: &Call, accepted: u32, result: Option<u32>) -> Option<usize> {
        assert_eq!(accepted == 0, result.is_some());
        Some(2 * call.procedure as usize + usize::from(accepted == 0))
    }

    fn prompt(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> Result<CallOutcome, Found> {
        assert_ne!(call.procedure, 4, "its reply is long");
        assert_eq!(arguments.reader.end(), Ok(()));
        let written = reply.write(4, pool, |writer| writer.u32(HERE));
        written.expect("room");
        match call.procedure {
            1 => Ok(CallOutcome::Results),
            3 => Ok(CallOutcome::GarbageArguments),
            _ => Err(FOUND),
        }
    }

    fn pooled_after(
        &self,
        found: Found,
        call: &Call,
        _: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        let who = if found == FOUND { AFTER } else { THERE };
        let written = reply.write(4, pool, |writer| writer.u32(who));
        written.expect("room");
        match call.procedure {
            3 => CallOutcome::GarbageArguments,
            _ => CallOutcome::Results,
        }
    }

    fn pooled(
        &self,
        call: &Call,
        arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        self.pooled_after(Found::default(), call, arguments, reply, pool)
    }
}

/// Takes the whole replies off what came: number, status, and who answered.
fn take_replies(bytes: &mut Vec<u8>) -> Vec<[u32; 3]> {
    let mut replies = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(4) {
        let length = u32::from_be_bytes(head.try_into().expect("four")) & 0x7fff_ffff;
        let Some(reply) = rest.get(..length as usize) else {
            break;
        };
        let word = |at: usize| {
            let word = reply.get(at..at + 4)?;
            Some(u32::from_be_bytes(word.try_into().expect("four")))
        };
        replies.push([0, 20, 24].map(|at| word(at).unwrap_or(0)));
        bytes.drain(..4 + length as usize);
    }
    replies
}

/// The replies that came, in the order of their calls.
fn replies(server: &mut SimulatedServer, client: &Client, count: usize) -> Vec<[u32; 3]> {
    let (mut bytes, mut replies) = (Vec::new(), Vec::new());
    for _ in 0..10_000 {
        server.turn();
        bytes.extend(client.read());
        replies.extend(take_replies(&mut bytes));
        if replies.len() >= count {
            break;
        }
    }
    replies.sort_unstable();
    replies
}

fn trying(conditions: Conditions) -> (SimulatedServer, Client, ReplyCounts) {
    let programs = Tries(Arc::new(PromptRight::granted("the test")));
    let protocol = Rpc::new(programs);
    let counts = protocol.reply_counts();
    let server = SimulatedServer::new(conditions, protocol);
    let client = server.connect();
    (server, client, counts)
}

#[test]
fn sim_a_call_that_came_alone_is_answered_where_it_arrived() {
    let (mut server, client, counts) = trying(Conditions::calm(1));
    let mut ask = |calls: &[(u32, u32)]| {
        let bytes = calls
            .iter()
            .flat_map(|(procedure, xid)| call_of(*procedure, *xid));
        client.write(&bytes.collect::<Vec<_>>());
        replies(&mut server, &client, calls.len())
    };
    assert_eq!(ask(&[(1, 1)]), [[1, 0, HERE]]);
    assert_eq!(
        ask(&[(2, 2)]),
        [[2, 0, AFTER]],
        "of the try, what it found is left"
    );
    assert_eq!(ask(&[(3, 3)]), [[3, 4, 0]], "garbage");
    assert_eq!(ask(&[(4, 4)]), [[4, 0, THERE]]);
    assert_eq!(ask(&[(1, 5), (2, 6)]), [[5, 0, THERE], [6, 0, THERE]]);
    assert_eq!(ask(&[(1, 7)]), [[7, 0, HERE]]);
    assert_eq!(server.statistics().jobs_dispatched, 4);
    // Wherever they were answered.
    let counted = [
        (1, true, 3),
        (2, true, 2),
        (3, false, 1),
        (3, true, 0),
        (4, true, 1),
    ];
    for (procedure, has_results, count) in counted {
        let class = 2 * procedure + usize::from(has_results);
        assert_eq!(counts.of_class(class), count, "{procedure}");
    }
    assert_eq!((counts.repeated(), counts.refused()), (0, 0));
}

#[test]
fn sim_every_call_is_answered_once_whoever_does_it() {
    let here = AtomicUsize::new(0);
    each_seed(200, |seed| {
        let (mut server, client, counts) = trying(Conditions::rough(seed));
        let mut random = Random::new(seed);
        let (mut asked, mut answered) = (0, Vec::new());
        while asked < 60 {
            let burst = 1 + random.below(3) as u32;
            for xid in asked..asked + burst {
                client.write(&call_of(1 + random.below(4) as u32, xid));
            }
            asked += burst;
            let waits = random.below(4);
            if waits > 0 {
                let left = asked as usize - answered.len();
                answered.extend(replies(&mut server, &client, left));
            }
        }
        let left = asked as usize - answered.len();
        answered.extend(replies(&mut server, &client, left));
        let numbers: Vec<u32> = answered.iter().map(|reply| reply[0]).collect();
        assert_eq!(numbers, (0..asked).collect::<Vec<_>>(), "seed {seed}");
        let counted: u64 = (0..10).map(|class| counts.of_class(class)).sum();
        assert_eq!(counted, u64::from(asked), "seed {seed}");
        // ORDER: the seeds run one after the other.
        let prompt = answered.iter().filter(|reply| reply[2] == HERE).count();
        here.fetch_add(prompt, Ordering::Relaxed);
    });
    let here = here.into_inner();
    assert!(here > 100, "{here} came alone");
}

#[test]
fn sim_a_client_that_calls_is_not_the_longest_idle() {
    const PLACES: usize = 16;
    let mut conditions = Conditions::calm(1);
    conditions.limits.connections_max = PLACES;
    let programs = Tries(Arc::new(PromptRight::granted("the test")));
    let mut server = SimulatedServer::new(conditions, Rpc::new(programs));
    let caller = server.connect();
    let silent: Vec<_> = (1..PLACES).map(|_| server.connect()).collect();
    // Each call is answered on the network thread, so the connection never waits for a worker.
    for xid in 0..5 {
        caller.write(&call_of(1, xid));
        assert_eq!(replies(&mut server, &caller, 1), [[xid, 0, HERE]]);
        server.advance(Duration::from_millis(500));
    }
    let newcomers: Vec<_> = (0..4).map(|_| server.connect()).collect();
    (0..100).for_each(|_| server.turn());
    assert_eq!(caller.state(), ClientState::Open);
    let is_open = |client: &&Client| client.state() == ClientState::Open;
    assert_eq!(newcomers.iter().filter(is_open).count(), newcomers.len());
    assert!(silent.iter().filter(is_open).count() < silent.len());
}

/// Calls that come while the server drains are not executed, and cost no reply that is on its way.
#[test]
fn sim_a_drain_answers_what_it_has_taken_and_ends_in_order() {
    let executed_in_all = AtomicUsize::new(0);
    each_seed(100, |seed| {
        let (mut server, client, counts) = trying(Conditions::rough(seed));
        server.world().set_window_bytes(100);
        let mut random = Random::new(seed);
        let mut asked = 0;
        let mut ask = |calls: usize| {
            let first = asked;
            asked += calls as u32;
            let calls = (first..asked).flat_map(|xid| call_of(1 + xid % 4, xid));
            client.write(&calls.collect::<Vec<_>>());
        };
        ask(1 + random.below(40));
        while server.statistics().connections_accepted == 0 {
            server.turn();
        }
        (0..random.below(20)).for_each(|_| server.turn());
        server.drain();
        ask(20);
        let mut bytes = Vec::new();
        for _ in 0..20_000 {
            server.turn();
            let state = client.state();
            bytes.extend(client.read());
            if state != ClientState::Open {
                break;
            }
        }
        assert_eq!(client.state(), ClientState::Finished, "seed {seed}");
        let got = take_replies(&mut bytes);
        assert!(bytes.is_empty(), "seed {seed}: a part of a reply");
        let counted: u64 = (0..10).map(|class| counts.of_class(class)).sum();
        assert_eq!(
            got.len() as u64,
            counted,
            "seed {seed}: each that was executed"
        );
        executed_in_all.fetch_add(got.len(), Ordering::Relaxed);
    });
    assert!(executed_in_all.into_inner() > 100);
}
