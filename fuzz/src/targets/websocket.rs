//! Target `websocket_frames`: a stream of a client's frames (RFC 6455 section 5). The first byte
//! says whether messages may be compressed.
//!
//! Holds of every input
//! - The events, and the fault that ends them, are those of a reading that has everything in one
//!   slice, however the stream arrives.
//! - Memory is bounded by what has arrived of a message, never by what a head announces, and none
//!   is held between messages.

use flatpath::memory::Pool;
use flatpath_websocket::{Close, Decoder, Event, Fault, Limits, Received, Stopped};

use super::rpc::pool;
use crate::random::pieces;

const LIMITS: Limits = Limits {
    message_bytes_max: 2_000,
    fragments_max: 5,
    queued_bytes_max: 0,
};

/// What a stream says, and what is wrong with it.
type Stream = (Vec<Event>, Option<Fault>);

pub(crate) fn run(data: &[u8]) {
    let Some((options, stream)) = data.split_first() else {
        return;
    };
    let may_compress = options % 2 == 1;
    let pool = pool();
    let expected = Reading::new(may_compress).read(stream);
    let whole = decoded(std::iter::once(stream), may_compress, &pool);
    assert_eq!(whole, expected, "as one piece");
    assert_eq!(
        decoded(pieces(stream), may_compress, &pool),
        expected,
        "in pieces"
    );
    assert_eq!(pool.statistics().in_use_bytes, 0);
}

fn decoded<'a>(pieces: impl Iterator<Item = &'a [u8]>, may_compress: bool, pool: &Pool) -> Stream {
    let mut decoder = Decoder::new(may_compress);
    let (mut events, mut kept) = (Vec::new(), Vec::new());
    for piece in pieces {
        kept.extend_from_slice(piece);
        let mut input = &kept[..];
        loop {
            match decoder.next(&mut input, &LIMITS, pool.into()) {
                Ok(Some(event)) => events.push(copied(event)),
                Ok(None) => break,
                Err(Stopped::Fault(fault)) => return (events, Some(fault)),
                Err(Stopped::NoRoom) => panic!("nothing is short"),
            }
        }
        let in_use = pool.statistics().in_use_bytes;
        assert!(in_use <= 4 * 4096, "{in_use} bytes for 2,000 at most");
        if !decoder.is_within_message() {
            assert_eq!(in_use, 0, "between messages");
        }
        assert!(input.len() < 139, "only a part of a control frame is left");
        kept = input.to_vec();
    }
    (events, None)
}

/// The same event, whose payload lies in no buffer of the pool.
fn copied(event: Event) -> Event {
    match event {
        Event::Message(received) => Event::Message(Received {
            payload: received.payload.to_vec().into(),
            ..received
        }),
        other => other,
    }
}

/// A reading of the whole stream, from the RFC and the limits alone.
struct Reading {
    may_compress: bool,
    events: Vec<Event>,
    /// Whether the message that has begun is text, and whether it is compressed.
    begun: Option<(bool, bool)>,
    message: Vec<u8>,
    fragments: u32,
}

impl Reading {
    fn new(may_compress: bool) -> Self {
        Self {
            may_compress,
            events: Vec::new(),
            begun: None,
            message: Vec::new(),
            fragments: 0,
        }
    }

    fn read(mut self, mut stream: &[u8]) -> Stream {
        loop {
            match self.frame(stream) {
                Ok(Some(rest)) => stream = rest,
                Ok(None) => return (self.events, None),
                Err(fault) => return (self.events, Some(fault)),
            }
        }
    }

    /// Reads one frame; what follows it, if it is complete.
    fn frame<'a>(&mut self, stream: &'a [u8]) -> Result<Option<&'a [u8]>, Fault> {
        let &[first, second, ref rest @ ..] = stream else {
            return Ok(None);
        };
        let (is_last, opcode, short) = (first >> 7 == 1, first & 15, second & 127);
        let is_compressed = self.may_compress && first & 0x40 != 0 && (opcode == 1 || opcode == 2);
        if first & 0x70 != 0 && !(is_compressed && first & 0x30 == 0) {
            return Err(Fault::ReservedBit);
        }
        if second >> 7 == 0 {
            return Err(Fault::Unmasked);
        }
        match opcode {
            0 if self.begun.is_none() => return Err(Fault::Fragment),
            1 | 2 if self.begun.is_some() => return Err(Fault::Fragment),
            3..=7 | 11..=15 => return Err(Fault::ReservedOpcode),
            8..=10 if !is_last || short > 125 => return Err(Fault::Control),
            _ => {}
        }
        let extended = [0, 2, 8][usize::from(short.saturating_sub(125))];
        let Some((length, rest)) = rest.split_at_checked(extended) else {
            return Ok(None);
        };
        let long = length
            .iter()
            .fold(0, |sum, byte| sum << 8 | u64::from(*byte));
        let length = if extended == 0 {
            u64::from(short)
        } else {
            long
        };
        let shortest = [0, 126, 65_536][usize::from(short.saturating_sub(125))];
        if length < shortest || length >> 63 == 1 {
            return Err(Fault::Length);
        }
        let Some((mask, rest)) = rest.split_at_checked(4) else {
            return Ok(None);
        };
        let arrived = usize::try_from(length).map_or(rest.len(), |length| length.min(rest.len()));
        let is_whole = arrived as u64 == length;
        let unmasked = rest[..arrived].iter().zip(mask.iter().cycle());
        let payload: Vec<u8> = unmasked.map(|(byte, mask)| byte ^ mask).collect();
        if opcode >= 8 {
            if !is_whole {
                return Ok(None);
            }
            self.control(opcode, &payload)?;
        } else {
            if self.message.len() as u64 + length > LIMITS.message_bytes_max as u64 {
                return Err(Fault::TooLong);
            }
            self.data(opcode, is_compressed, &payload, is_whole && is_last)?;
        }
        Ok(is_whole.then(|| &rest[arrived..]))
    }

    fn control(&mut self, opcode: u8, payload: &[u8]) -> Result<(), Fault> {
        self.events.push(match opcode {
            8 => Event::Close(close(payload)?),
            9 => Event::Ping(payload.to_vec()),
            _ => Event::Pong,
        });
        Ok(())
    }

    fn data(
        &mut self,
        opcode: u8,
        is_compressed: bool,
        payload: &[u8],
        completes: bool,
    ) -> Result<(), Fault> {
        if self.fragments == LIMITS.fragments_max {
            return Err(Fault::TooManyFragments);
        }
        self.fragments += 1;
        let (is_text, is_compressed) = *self.begun.get_or_insert((opcode == 1, is_compressed));
        self.message.extend_from_slice(payload);
        if is_text && !is_compressed {
            match std::str::from_utf8(&self.message) {
                Err(error) if completes || error.error_len().is_some() => return Err(Fault::Utf8),
                _ => {}
            }
        }
        if completes {
            self.begun = None;
            self.fragments = 0;
            self.events.push(Event::Message(Received {
                is_text,
                is_compressed,
                payload: std::mem::take(&mut self.message).into(),
            }));
        }
        Ok(())
    }
}

/// Sections 5.5.1, 7.4.1 and 7.4.2.
fn close(payload: &[u8]) -> Result<Close, Fault> {
    let (code, reason) = match payload {
        [] => (1005, &[][..]),
        [_] => return Err(Fault::CloseCode),
        [high, low, reason @ ..] => (u16::from(*high) << 8 | u16::from(*low), reason),
    };
    let is_known = matches!(code, 1000..=1014) && !matches!(code, 1004..=1006);
    if !payload.is_empty() && !is_known && !matches!(code, 3000..=4999) {
        return Err(Fault::CloseCode);
    }
    let reason = std::str::from_utf8(reason).map_err(|_| Fault::Utf8)?;
    Ok(Close {
        code,
        reason: reason.into(),
    })
}
