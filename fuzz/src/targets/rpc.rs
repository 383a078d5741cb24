//! Target `rpc_records`: a stream of record fragments (RFC 5531 section 11), and the calls in it.
//!
//! Holds of every input
//! - The records, and whether the stream is broken, are those of a reading that has everything in
//!   one slice, however the stream arrives.
//! - Memory for a record is bounded by what has arrived of it, never by what a marker announces.
//! - The head of a call is read as RFC 5531 section 9 says, and written again it is the same call.

use flatpath::limits::BUFFER_CLASSES;
use flatpath::memory::{Pool, PoolHandle};
use flatpath_rpc::limits::{
    AUTH_BYTES_MAX, EMPTY_RECORD_FRAGMENTS_MAX, GROUPS_MAX, MACHINE_NAME_BYTES_MAX,
    RECORD_BYTES_MAX, RECORD_FRAGMENTS_MAX,
};
use flatpath_rpc::record::{Assembled, Assembly, Completion, Record, whole};
use flatpath_rpc::xdr::Writer;
use flatpath_rpc::{Accepted, Call, Credential, Refusal, open};
use flatpath_structures::pool::{PoolConfig, Zero};

use crate::random::pieces;

/// A pool with the engine's classes.
pub(crate) fn pool() -> Pool {
    Pool::new(PoolConfig {
        classes: BUFFER_CLASSES.to_vec(),
        budget_bytes: 64 << 20,
        zero: Zero::Never,
    })
}

/// The records of a stream, and whether what follows them cannot be followed.
type Stream = (Vec<Vec<u8>>, bool);

pub(crate) fn run(data: &[u8]) {
    let pool = pool();
    let expected = at_once(data);
    assert_eq!(
        assembled(std::iter::once(data), &pool),
        expected,
        "as one piece"
    );
    assert_eq!(assembled(pieces(data), &pool), expected, "in pieces");
    if let Some(record) = whole(data) {
        assert_eq!(expected.0.first().map(Vec::as_slice), Some(record));
    }
    for record in &expected.0 {
        check_call(record);
    }
    assert_eq!(pool.statistics().in_use_bytes, 0);
}

/// A reading of the whole stream, from the RFC and the limits alone.
fn at_once(data: &[u8]) -> Stream {
    let (mut records, mut rest) = (Vec::new(), data);
    let (mut record, mut fragments, mut empty) = (Vec::new(), 0, 0);
    while let Some((marker, behind)) = rest.split_first_chunk::<4>() {
        let marker = u32::from_be_bytes(*marker);
        let (is_last, length) = (marker >> 31 == 1, (marker & 0x7fff_ffff) as usize);
        fragments += 1;
        empty += u32::from(length == 0);
        let is_broken = record.len() + length > RECORD_BYTES_MAX
            || fragments > RECORD_FRAGMENTS_MAX
            || empty > EMPTY_RECORD_FRAGMENTS_MAX;
        if is_broken {
            return (records, true);
        }
        let Some((fragment, behind)) = behind.split_at_checked(length) else {
            break;
        };
        record.extend_from_slice(fragment);
        rest = behind;
        if is_last {
            records.push(std::mem::take(&mut record));
            (fragments, empty) = (0, 0);
        }
    }
    (records, false)
}

fn assembled<'a>(pieces: impl Iterator<Item = &'a [u8]>, pool: &Pool) -> Stream {
    let mut assembly = Assembly::default();
    let (mut records, mut input) = (Vec::new(), Vec::new());
    let mut source = PoolHandle::from(pool);
    for piece in pieces {
        input.extend_from_slice(piece);
        loop {
            let Ok((used, progress)) = assembly.feed(&input, &mut source, Completion::Allowed)
            else {
                return (records, true);
            };
            input.drain(..used);
            // A buffer has at most the class above what has arrived, and the classes grow by four.
            let bound = 2 * BUFFER_CLASSES[0] + 8 * assembly.received();
            let in_use = pool.statistics().in_use_bytes;
            assert!(
                in_use <= bound,
                "{in_use} bytes for {}",
                assembly.received()
            );
            match progress {
                Assembled::NeedMore => break,
                Assembled::Complete => {
                    let mut record = Record::default();
                    assembly.take(&mut record);
                    records.push(record.arguments(0).slices().collect::<Vec<_>>().concat());
                }
                Assembled::Withheld | Assembled::NoRoom => panic!("{progress:?}: nothing is short"),
            }
        }
        assert!(input.len() < 4, "only part of a marker is left");
    }
    (records, false)
}

/// What a head is by RFC 5531.
#[derive(Debug, PartialEq, Eq)]
enum Head {
    NoCall,
    Garbage(u32),
    Denied(u32),
    AsksForTls([u32; 4]),
    Call {
        words: [u32; 4],
        credential: Vec<u32>,
        arguments_at: usize,
    },
}

fn check_call(record: &[u8]) {
    let found = match open(record, None) {
        Err(Refusal::NoCall) => Head::NoCall,
        Err(Refusal::Accepted(xid, status)) => {
            assert_eq!(status, Accepted::GarbageArguments);
            Head::Garbage(xid)
        }
        Err(Refusal::Denied(xid, _)) => Head::Denied(xid),
        Err(Refusal::AsksForTls(probe)) => {
            Head::AsksForTls([probe.xid, probe.program, probe.version, probe.procedure])
        }
        Ok((call, arguments)) => {
            let written = write(&call);
            let again = open(&written, None).expect("it is a call");
            assert_eq!(again, (call, &[][..]), "written again it is another call");
            Head::Call {
                words: [call.xid, call.program, call.version, call.procedure],
                credential: words_of(&call.credential),
                arguments_at: record.len() - arguments.len(),
            }
        }
    };
    assert_eq!(found, reference(record));
}

fn words_of(credential: &Credential) -> Vec<u32> {
    match credential {
        Credential::None => vec![0],
        Credential::System {
            user,
            group,
            groups,
        } => [&[1, *user, *group], groups.as_slice()].concat(),
        _ => panic!("a credential that the model does not know"),
    }
}

fn write(call: &Call) -> Vec<u8> {
    let mut room = [0; 256];
    let mut writer = Writer::new(&mut room);
    for word in [call.xid, 0, 2, call.program, call.version, call.procedure] {
        writer.u32(word);
    }
    let words = words_of(&call.credential);
    writer.u32(words[0]);
    if let [1, user, group, groups @ ..] = &words[..] {
        // Stamp, name of the machine, user, group, groups.
        let body = [&[0, 0, *user, *group, groups.len() as u32], groups].concat();
        writer.u32(body.len() as u32 * 4);
        body.iter().for_each(|word| writer.u32(*word));
    } else {
        writer.u32(0);
    }
    writer.u64(0);
    assert!(!writer.overflowed());
    let written = writer.written();
    room[..written].to_vec()
}

/// Words by their place: no reader that could share a fault with the one that is tested.
fn reference(record: &[u8]) -> Head {
    let word = |at: usize| {
        let bytes = record.get(at..at.checked_add(4)?)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let (Some(xid), Some(0)) = (word(0), word(4)) else {
        return Head::NoCall;
    };
    let opaque = |at: usize| -> Option<(usize, usize)> {
        let bytes = word(at)? as usize;
        let end = at + 4 + bytes.div_ceil(4) * 4;
        (bytes <= AUTH_BYTES_MAX && end <= record.len()).then_some((bytes, end))
    };
    let head = || {
        if word(8)? != 2 {
            return Some(Head::Denied(xid));
        }
        let words = [xid, word(12)?, word(16)?, word(20)?];
        let (flavor, (bytes, verifier_at)) = (word(24)?, opaque(28)?);
        let (verifier, (verifier_bytes, end)) = (word(verifier_at)?, opaque(verifier_at + 4)?);
        let credential = match flavor {
            0 => Some(vec![0]),
            1 => system(&record[32..32 + bytes]),
            _ => None,
        };
        let is_empty = verifier == 0 && verifier_bytes == 0;
        if flavor == 7 && bytes == 0 && is_empty {
            return Some(Head::AsksForTls(words));
        }
        let accepted = credential
            .filter(|_| is_empty)
            .map(|credential| Head::Call {
                words,
                credential,
                arguments_at: end,
            });
        Some(accepted.unwrap_or(Head::Denied(xid)))
    };
    head().unwrap_or(Head::Garbage(xid))
}

/// AUTH_SYS (RFC 5531 appendix A).
fn system(body: &[u8]) -> Option<Vec<u32>> {
    let word = |at: usize| {
        let bytes = body.get(at..at + 4)?;
        Some(u32::from_be_bytes(bytes.try_into().ok()?))
    };
    let name = word(4)? as usize;
    let at = 8 + name.div_ceil(4) * 4;
    let count = word(at + 8)? as usize;
    let is_good =
        name <= MACHINE_NAME_BYTES_MAX && count <= GROUPS_MAX && body.len() == at + 12 + 4 * count;
    let words = (0..count).map(|group| word(at + 12 + 4 * group));
    let numbers = [Some(1), word(at), word(at + 4)].into_iter().chain(words);
    is_good.then(|| numbers.collect()).flatten()
}

/// A record of these bytes as one that arrived in fragments and pieces.
pub(crate) fn in_fragments(bytes: &[u8], pool: &Pool) -> Record {
    let mut stream = Vec::new();
    // Few enough for `RECORD_FRAGMENTS_MAX`, however long the record is.
    for piece in bytes.chunks(64.max(bytes.len() / 64)) {
        stream.extend((piece.len() as u32).to_be_bytes());
        stream.extend_from_slice(piece);
    }
    stream.extend((1_u32 << 31).to_be_bytes());
    let mut assembly = Assembly::default();
    let mut source = PoolHandle::from(pool);
    let mut used = 0;
    for end in [stream.len() / 2, stream.len()] {
        let fed = assembly.feed(&stream[used..end], &mut source, Completion::Allowed);
        used += fed.expect("it is within the limits").0;
    }
    let mut record = Record::default();
    assembly.take(&mut record);
    record
}
