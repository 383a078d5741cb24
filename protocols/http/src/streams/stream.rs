//! The body of a reply that workers read, one chunk in each run.
//!
//! A body that is short as a whole is a short reply: its buffer may come from the reserve. The
//! chunks of a long one may not, so that streams leave the reserve to the others. Where trailers
//! end the body (`trailers`), the network thread writes its end.

use std::io::{self, Read, Write as _};

use flatpath::WorkerScope;
use flatpath::blocking::Entry;
use flatpath::memory::{Buffer, PoolHandle};

use crate::connection::exchange::{Exchange, State};
use crate::limits::{STREAM_CHUNK_BYTES, STREAM_SCARCE_BYTES, STREAM_SHORT_BYTES};
use crate::message::{Body, Reader};
use crate::respond::encode::ReplyFraming;

/// The size of a chunk: always five digits, because it is written before the size is known.
const CHUNK_PREFIX: &[u8] = b"00000\r\n";

/// What ends a chunked body.
pub(crate) const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// Framing around the data of one chunk.
const CHUNK_OVERHEAD_BYTES: usize = CHUNK_PREFIX.len() + "\r\n".len() + LAST_CHUNK.len();

const _: () = assert!(
    STREAM_CHUNK_BYTES <= 0xf_ffff,
    "the size of a chunk has five digits"
);

impl Exchange {
    /// Reads the next chunk of the stream where that may block now. None is read when there is no
    /// buffer for it, or when its turn to read has not come.
    pub(crate) fn read_in_turn(&mut self, scope: &mut WorkerScope<'_>) {
        let share = match self.reply.as_ref().map(|reply| &reply.body) {
            Some(Body::Reader(reader)) => reader.share.clone(),
            _ => None,
        };
        let _inside = match share.map(|share| share.enter(scope)) {
            Some(Entry::Parked) => return,
            Some(Entry::Refused) => {
                // What it reads from is stuck: it breaks off, as after an error.
                return self.break_off();
            }
            Some(Entry::Entered(inside)) => Some(inside),
            None => None,
        };
        self.read_chunk(scope.pool());
    }

    /// Reads the next chunk of the stream, framed as it goes out, if there is a buffer for it.
    pub(crate) fn read_chunk(&mut self, pool: PoolHandle<'_>) {
        debug_assert!(self.chunk.is_none(), "the last chunk has been queued");
        let Some(reply) = &mut self.reply else {
            return self.break_off();
        };
        let is_short = reply.is_short();
        let is_chunked = reply.framing == ReplyFraming::Chunked;
        let Body::Reader(Reader { source, length, .. }) = &mut reply.body else {
            return self.break_off();
        };
        let left = length.map_or(usize::MAX, |left| {
            usize::try_from(left).unwrap_or(usize::MAX)
        });
        let chunk_bytes_max = match pool.fair_bytes() {
            0 if !is_short => STREAM_SCARCE_BYTES,
            0..STREAM_SHORT_BYTES => STREAM_SHORT_BYTES,
            _ => STREAM_CHUNK_BYTES,
        };
        let wanted = left.min(chunk_bytes_max) + CHUNK_OVERHEAD_BYTES;
        let pool = if is_short { pool } else { pool.for_bulk() };
        let buffer = pool
            .take(wanted)
            .filter(|buffer| buffer.room() > CHUNK_OVERHEAD_BYTES);
        let Some(mut buffer) = buffer else {
            return;
        };
        let data_bytes_max = (buffer.room() - CHUNK_OVERHEAD_BYTES)
            .min(chunk_bytes_max)
            .min(left);
        if is_chunked {
            buffer.append(CHUNK_PREFIX);
        }
        match read_some(source, buffer.spare_up_to(data_bytes_max)) {
            Ok(0) if length.is_none() => {
                buffer.clear();
                if is_chunked && reply.trailing().is_none() {
                    buffer.append(LAST_CHUNK);
                }
                self.end_stream(buffer);
            }
            Ok(bytes) if bytes > 0 => {
                buffer.advance(bytes);
                if is_chunked {
                    close_chunk(&mut buffer, bytes);
                }
                *length = length.map(|left| left - bytes as u64);
                if *length == Some(0) {
                    self.end_stream(buffer);
                } else {
                    self.chunk = Some(buffer);
                }
            }
            // An error, or an end before the stated length: nothing that looks like the end
            // of the reply may follow.
            _ => self.break_off(),
        }
    }

    fn end_stream(&mut self, last: Buffer) {
        self.chunk = Some(last).filter(|last| !last.filled().is_empty());
        if let Some(reply) = &mut self.reply {
            reply.discard_body();
        }
        self.state = State::Answered;
    }
}

/// One read that was not merely interrupted; it cannot have read more than there is room for.
fn read_some(source: &mut dyn Read, room: &mut [u8]) -> io::Result<usize> {
    loop {
        match source.read(room) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(bytes) if bytes > room.len() => return Err(io::ErrorKind::InvalidData.into()),
            result => return result,
        }
    }
}

/// Puts the size of the data in front of it and the line end after it.
fn close_chunk(buffer: &mut Buffer, data_bytes: usize) {
    let written = write!(buffer.filled_mut(), "{data_bytes:05x}");
    debug_assert!(written.is_ok(), "CHUNK_PREFIX has five digits");
    buffer.append(b"\r\n");
}

#[cfg(test)]
mod tests {
    use flatpath::memory::Pool;
    use flatpath_structures::pool::{PoolConfig, Zero};

    use super::*;
    use crate::head::RequestMeta;
    use crate::respond::outgoing::{Outgoing, OutgoingHead};

    #[test]
    fn only_a_body_that_is_short_as_a_whole_has_the_reserve() {
        let pool = |budget_bytes| {
            Pool::new(PoolConfig {
                classes: vec![4 * 1024, 16 * 1024],
                budget_bytes,
                zero: Zero::Never,
            })
        };
        let (main, reserve) = (pool(16 * 1024), pool(64 * 1024));
        let _all = main.take(16 * 1024).expect("room");
        let handle = PoolHandle::new(&main, 0).with_reserve(&reserve, 16 * 1024);
        for (bytes, has_chunk) in [(10_000, true), (100_000, false)] {
            let head = OutgoingHead::QUEUED;
            let mut reply = Outgoing::new(200, head, RequestMeta::default());
            reply.body = Body::reader(io::repeat(b'x'), Some(bytes));
            reply.framing = ReplyFraming::Length(bytes);
            let mut exchange = Exchange::default();
            exchange.reply_with(reply);
            exchange.read_chunk(handle);
            assert_eq!(exchange.chunk.is_some(), has_chunk, "{bytes} bytes");
        }
    }
}
