//! What datagrams are answered with: bytes in, bytes out, without a socket.

use std::cell::Cell;
use std::time::Duration;

use flatpath::blocking::WaitLimits;

use super::*;
use crate::programs::CallOutcome;
use crate::{Rpc, limits::AUTH_BYTES_MAX};

const NULL: u32 = 0;
const TELL: u32 = 1;
const WORDS: u32 = 2;
const ONCE: u32 = 3;
const SILENT: u32 = 4;
const REFUSED: u32 = 5;
const GARBAGE: u32 = 6;
const LONG: u32 = 7;
const UNKNOWN: u32 = 8;
const LIMITED: u32 = 9;
/// What a call answers that finds no room.
const BUSY: u32 = 99;

/// Procedures that end in every way there is.
struct Ways;

impl Programs for Ways {
    fn name(&self) -> &'static str {
        "ways"
    }

    fn route(&self, call: &Call) -> Route {
        match call.procedure {
            NULL | TELL | GARBAGE | LONG => Route::Inline,
            WORDS | LIMITED => Route::Pooled,
            ONCE => Route::Once,
            SILENT => Route::Silent,
            REFUSED => Route::Refused(AuthStatus::TooWeak),
            _ => Route::Unavailable(Accepted::ProgramMismatch { low: 2, high: 4 }),
        }
    }

    fn inline(&self, call: &Call, _: Arguments<'_>, results: &mut Writer<'_>) -> CallOutcome {
        match call.procedure {
            GARBAGE => return CallOutcome::GarbageArguments,
            TELL => {
                results.boolean(call.transport == Transport::Datagram);
                results.opaque(call.peer.expect("told").to_string().as_bytes());
            }
            LONG => (0..INLINE_REPLY_BYTES_MAX).for_each(|_| results.u32(1)),
            _ => {}
        }
        CallOutcome::Results
    }

    fn reply_classes(&self) -> usize {
        2
    }

    fn reply_class(&self, _: &Call, accepted: u32, _: Option<u32>) -> Option<usize> {
        Some(usize::from(accepted != 0))
    }

    fn limit(&self, call: &Call, _: Arguments<'_>) -> Option<BlockingLimit> {
        let waits = WaitLimits {
            waiting_max: 1,
            stuck_after: Duration::from_secs(3_600),
        };
        (call.procedure == LIMITED).then(|| BlockingLimit::new("a mount", waits))
    }

    fn busy(
        &self,
        _: &Call,
        _: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        match reply.write(4, pool, |writer| writer.u32(BUSY)) {
            Ok(()) => CallOutcome::Results,
            Err(_) => CallOutcome::SystemError,
        }
    }

    fn pooled(
        &self,
        call: &Call,
        mut arguments: Arguments<'_>,
        reply: &mut Reply,
        pool: PoolHandle<'_>,
    ) -> CallOutcome {
        assert_ne!(call.procedure, LIMITED, "it is not inside its limit");
        let Ok(count) = arguments.reader.u32() else {
            return CallOutcome::GarbageArguments;
        };
        let written = reply.write(count as usize * 4, pool, |writer| {
            (0..count).for_each(|word| writer.u32(word));
        });
        match written {
            Ok(()) => CallOutcome::Results,
            Err(_) => CallOutcome::SystemError,
        }
    }
}

fn words(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_be_bytes()).collect()
}

fn call(procedure: u32, arguments: &[u32]) -> Vec<u8> {
    let head = words(&[7, 0, 2, 200, 3, procedure, 0, 0, 0, 0]);
    [head, words(arguments)].concat()
}

/// What a limit says to a call.
#[derive(Clone, Copy, Debug)]
enum Said {
    Later,
    Never,
}

impl Said {
    fn entry(self) -> Entry {
        match self {
            Self::Later => Entry::Parked,
            Self::Never => Entry::Refused,
        }
    }
}

struct Server {
    rpc: Rpc<Ways>,
    datagrams: RpcDatagrams<Ways>,
    entry: Cell<Said>,
}

impl Server {
    fn new() -> Server {
        let rpc = Rpc::new(Ways);
        let datagrams = rpc.datagrams();
        let entry = Cell::new(Said::Later);
        Server {
            rpc,
            datagrams,
            entry,
        }
    }

    /// What the engine would send, and whether a worker had to say it.
    fn answers(&self, datagram: Datagram<'_>) -> (Vec<u8>, Next) {
        let mut space = vec![0; datagram.room()];
        let mut answer = Answer::new(&mut space);
        let next = self.datagrams.receive(&datagram, &mut answer);
        if next == Next::Work {
            answer.clear();
            let enter = |_: BlockingLimit| self.entry.get().entry();
            self.datagrams
                .answer_on_worker(&datagram, &mut answer, enter);
        }
        assert!(!answer.is_too_long(), "the engine would drop it");
        (answer.bytes().to_vec(), next)
    }

    /// To a stranger.
    fn answer(&self, bytes: &[u8]) -> Vec<u8> {
        let (answer, _) = self.answers(from(bytes));
        assert!(answer.len() <= 3 * bytes.len(), "an amplifier");
        answer
    }
}

fn from(bytes: &[u8]) -> Datagram<'_> {
    let peer = "192.0.2.7:600".parse().expect("an address");
    Datagram::new(bytes, peer)
}

#[test]
fn a_call_and_its_reply_have_no_mark() {
    let server = Server::new();
    let accepted = words(&[7, 1, 0, 0, 0, 0]);
    assert_eq!(server.answer(&call(NULL, &[])), accepted);
    let (told, next) = server.answers(from(&call(TELL, &[])).answered());
    let mut reader = crate::xdr::Reader::new(&told[accepted.len()..]);
    assert_eq!((reader.boolean(), next), (Ok(true), Next::Answer));
    assert_eq!(reader.opaque(64), Ok(&b"192.0.2.7:600"[..]));
    assert_eq!(reader.end(), Ok(()));
}

#[test]
fn a_worker_answers_what_may_block() {
    let server = Server::new();
    let request = call(WORDS, &[3]);
    let (answer, next) = server.answers(from(&request));
    assert_eq!(next, Next::Work);
    assert_eq!(answer, words(&[7, 1, 0, 0, 0, 0, 0, 1, 2]));
}

#[test]
fn a_reply_that_is_too_long_says_so_in_one_that_is_not() {
    let server = Server::new();
    let failed = words(&[7, 1, 0, 0, 0, 5]);
    let request = call(WORDS, &[27]);
    assert_eq!(server.answer(&request).len(), 3 * request.len());
    let request = call(WORDS, &[28]);
    assert_eq!(server.answer(&request), failed, "a word too many");
    let (answer, _) = server.answers(from(&request).answered());
    assert_eq!(answer.len(), 24 + 4 * 28, "to one that has a connection");
    let request = call(WORDS, &[1 << 20]);
    let (answer, _) = server.answers(from(&request).answered());
    assert_eq!(answer, failed, "longer than any buffer");
    let request = call(LONG, &[]);
    let (answer, next) = server.answers(from(&request).answered());
    assert_eq!(
        (answer, next),
        (failed, Next::Answer),
        "longer than one here may be"
    );
}

#[test]
fn what_is_no_call_and_what_is_silent_gets_no_answer() {
    let server = Server::new();
    let reply = words(&[7, 1, 0, 0, 0, 0]);
    for bytes in [&b""[..], b"x", b"\0\0\0\x07\0\0\0", &reply] {
        assert_eq!(server.answer(bytes), b"", "{bytes:?}");
    }
    assert_eq!(server.answer(&call(SILENT, &[])), b"");
    assert_eq!(server.rpc.reply_counts().refused(), 5);
}

#[test]
fn every_refusal_is_a_short_reply() {
    let server = Server::new();
    let cases = [
        (call(GARBAGE, &[]), words(&[7, 1, 0, 0, 0, 4])),
        (call(WORDS, &[]), words(&[7, 1, 0, 0, 0, 4])),
        (call(ONCE, &[]), words(&[7, 1, 0, 0, 0, 3])),
        (call(REFUSED, &[]), words(&[7, 1, 1, 1, 5])),
        (call(UNKNOWN, &[]), words(&[7, 1, 0, 0, 0, 2, 2, 4])),
        (words(&[7, 0]), words(&[7, 1, 0, 0, 0, 4])),
        (words(&[7, 0, 3]), words(&[7, 1, 1, 0, 2, 2])),
    ];
    for (request, answer) in cases {
        assert_eq!(server.answer(&request), answer, "{request:?}");
    }
    let counts = server.rpc.reply_counts();
    assert_eq!((counts.refused(), counts.of_class(1)), (5, 2));
}

#[test]
fn a_call_that_asks_for_tls_is_refused() {
    let server = Server::new();
    let request = words(&[7, 0, 2, 200, 3, NULL, 7, 0, 0, 0]);
    assert_eq!(server.answer(&request), words(&[7, 1, 1, 1, 1]));
}

#[test]
fn a_credential_that_lies_about_its_length_is_read_no_further_than_the_datagram() {
    let server = Server::new();
    let garbage = words(&[7, 1, 0, 0, 0, 4]);
    let most = u32::try_from(AUTH_BYTES_MAX).expect("small");
    for flavor in [0, 1, 6] {
        for length in [1, 4, most, most + 1, u32::MAX - 3, u32::MAX] {
            let request = words(&[7, 0, 2, 200, 3, NULL, flavor, length]);
            let answer = server.answer(&request);
            let denied = answer.starts_with(&words(&[7, 1, 1, 1]));
            assert!(answer == garbage || denied, "{flavor} {length}: {answer:?}");
        }
    }
}

#[test]
fn a_call_that_was_cut_anywhere_is_refused_or_dropped() {
    let server = Server::new();
    let whole = call(WORDS, &[2]);
    for end in 0..whole.len() {
        let answer = server.answer(&whole[..end]);
        let is_refused = answer == words(&[7, 1, 0, 0, 0, 4]);
        assert!(is_refused || end < 8 && answer.is_empty(), "cut at {end}");
    }
}

#[test]
fn answers_are_counted_with_those_of_connections() {
    let server = Server::new();
    server.answer(&call(NULL, &[]));
    server.answer(&call(WORDS, &[1]));
    server.answer(&call(WORDS, &[100]));
    let counts = server.rpc.reply_counts();
    assert_eq!((counts.of_class(0), counts.of_class(1)), (2, 1));
}

#[test]
fn a_call_waits_for_its_limit_or_answers_that_there_is_no_room() {
    let server = Server::new();
    let bytes = call(LIMITED, &[1, 2]);
    assert_eq!(server.answers(from(&bytes)), (Vec::new(), Next::Work));
    server.entry.set(Said::Never);
    let answer = server.answer(&bytes);
    assert_eq!(answer[24..], BUSY.to_be_bytes(), "{answer:?}");
}
