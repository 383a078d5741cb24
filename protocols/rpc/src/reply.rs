//! A reply as a worker builds it: a head in a buffer that was taken before the call was queued, and
//! more buffers when there is data.
//!
//! Data is read straight into its place in the buffers: [`Reply::data`] hands out the room after a
//! head of known length, [`Reply::commit`] writes the head when it is known how much came. Data
//! that lies in a pipe is put after its head as it is, by [`Reply::commit_piped`].
//!
//! Invariants
//! - Y1: the marker is written last, when the length is known; a reply is one fragment.
//! - Y2: there is room for an answer whatever happens: the first buffer is never given up.

use std::io::IoSliceMut;
use std::ops::{Deref, DerefMut};

use flatpath::NoRoom;
use flatpath::memory::{Buffer, Piped, PoolHandle};

use crate::limits::REPLY_HEAD_BYTES;
use crate::message::{self, Accepted};
use crate::xdr::{Writer, padding};

/// Pieces of one reply: what a send takes in one go.
const PIECES_MAX: usize = 8;

/// The head, and the versions that [`Accepted::ProgramMismatch`] names.
const STATUS_BYTES_MAX: usize = REPLY_HEAD_BYTES + 8;

/// Room for data, in as many slices as a reply may have pieces.
#[derive(Debug)]
pub struct DataRoom<'a> {
    room: [IoSliceMut<'a>; PIECES_MAX],
    count: usize,
}

impl Default for DataRoom<'_> {
    fn default() -> Self {
        DataRoom {
            room: std::array::from_fn(|_| IoSliceMut::new(&mut [])),
            count: 0,
        }
    }
}

impl<'a> Deref for DataRoom<'a> {
    type Target = [IoSliceMut<'a>];

    fn deref(&self) -> &[IoSliceMut<'a>] {
        &self.room[..self.count]
    }
}

impl<'a> DerefMut for DataRoom<'a> {
    fn deref_mut(&mut self) -> &mut [IoSliceMut<'a>] {
        &mut self.room[..self.count]
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct Reply {
    pieces: Vec<Buffer>,
    /// After the pieces.
    piped: Option<Piped>,
    xid: u32,
}

impl Reply {
    /// Takes the first buffer (Y2).
    pub(crate) fn prepare(&mut self, buffer: Buffer) {
        self.reset();
        self.pieces.push(buffer);
    }

    /// True between [`Reply::prepare`] and [`Reply::reset`].
    pub(crate) fn is_prepared(&self) -> bool {
        !self.pieces.is_empty()
    }

    /// Gives back everything but the empty vector.
    pub(crate) fn reset(&mut self) {
        self.pieces.clear();
        self.piped = None;
    }

    /// Begins a successful reply to `xid`, without results.
    pub(crate) fn begin(&mut self, xid: u32) {
        self.xid = xid;
        self.restart(Accepted::Success);
    }

    /// Forgets all results and begins anew with `status`.
    pub fn restart(&mut self, status: Accepted) {
        self.piped = None;
        self.pieces.truncate(1);
        let front = &mut self.pieces[0];
        front.clear();
        let mut writer = Writer::new(front.spare_up_to(STATUS_BYTES_MAX));
        message::write_accepted(&mut writer, self.xid, status);
        let written = writer.written();
        front.advance(written);
    }

    /// Writes results of at most `bytes_max` bytes; takes a larger buffer when needed.
    ///
    /// # Errors
    /// [`NoRoom`] when there is none, when none is large enough, or when `encode` wrote more than
    /// it said: nothing was written.
    pub fn write(
        &mut self,
        bytes_max: usize,
        pool: PoolHandle<'_>,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), NoRoom> {
        debug_assert_eq!(self.pieces.len(), 1, "results are written before data");
        if self.pieces[0].room() < bytes_max {
            let needed = self.pieces[0].filled().len() + bytes_max;
            let mut larger = pool.take(needed).ok_or(NoRoom)?;
            if larger.capacity() < needed {
                return Err(NoRoom);
            }
            larger.append(self.pieces[0].filled());
            self.pieces[0] = larger;
        }
        let front = &mut self.pieces[0];
        // No more than was asked for: what is lent is zeroed.
        let mut writer = Writer::new(front.spare_up_to(bytes_max));
        encode(&mut writer);
        if writer.overflowed() {
            return Err(NoRoom);
        }
        let written = writer.written();
        front.advance(written);
        Ok(())
    }

    /// Room for up to `bytes` of data after results of exactly `head_bytes`, in at most eight
    /// slices; less when the memory budget is nearly used up, but something. It is for what writes
    /// it without reading, as a system call does: what another reply has left may lie there.
    ///
    /// # Errors
    /// [`NoRoom`] when there is no room for data at all.
    pub fn data(
        &mut self,
        head_bytes: usize,
        bytes: usize,
        pool: PoolHandle<'_>,
    ) -> Result<DataRoom<'_>, NoRoom> {
        // Data can be less; short replies are what the reserve is for.
        let pool = pool.for_bulk();
        let padded = bytes + padding(bytes);
        let before = self.pieces[0].filled().len() + head_bytes;
        if self.pieces[0].room() < head_bytes + padded
            && let Some(mut larger) = pool.take(before + padded)
            && larger.capacity() > self.pieces[0].capacity()
        {
            larger.append(self.pieces[0].filled());
            self.pieces[0] = larger;
        }
        let mut room = self.pieces[0]
            .room()
            .checked_sub(head_bytes)
            .ok_or(NoRoom)?;
        while room < padded && self.pieces.len() < PIECES_MAX {
            let Some(next) = pool.take(padded - room) else {
                break;
            };
            room += next.room();
            self.pieces.push(next);
        }
        // Four bytes are kept for padding when the data has to be shorter than asked for.
        let mut left = if room >= padded {
            bytes
        } else {
            room.saturating_sub(4)
        };
        if left == 0 && bytes > 0 {
            return Err(NoRoom);
        }
        let mut skip = head_bytes;
        let mut slices = DataRoom::default();
        for piece in &mut self.pieces {
            let skipped = std::mem::take(&mut skip);
            let room = piece.overwrite_mut();
            let end = room.len().min(skipped + left);
            let spare = &mut room[skipped..end];
            left -= spare.len();
            if !spare.is_empty() {
                slices.room[slices.count] = IoSliceMut::new(spare);
                slices.count += 1;
            }
        }
        Ok(slices)
    }

    /// Writes the results before the data, and accepts the first `bytes` of the room handed out by
    /// [`Reply::data`] with the same `head_bytes`. Adds the padding.
    ///
    /// # Panics
    /// When `encode` does not write `head_bytes` exactly.
    pub fn commit(
        &mut self,
        head_bytes: usize,
        bytes: usize,
        encode: impl FnOnce(&mut Writer<'_>),
    ) {
        let front = &mut self.pieces[0];
        let mut writer = Writer::new(front.spare_up_to(head_bytes));
        encode(&mut writer);
        assert!(
            !writer.overflowed() && writer.left() == 0,
            "the head has the length it was given"
        );
        front.advance(head_bytes);
        let mut left = bytes;
        for piece in &mut self.pieces {
            let length = piece.room().min(left);
            piece.advance(length);
            left -= length;
        }
        assert_eq!(left, 0, "no more is accepted than room was given for");
        let mut zeros = &[0; 3][..padding(bytes)];
        for piece in &mut self.pieces {
            zeros = &zeros[piece.append(zeros)..];
        }
        assert!(zeros.is_empty(), "room for padding was kept");
        self.pieces.retain(|piece| !piece.filled().is_empty());
    }

    /// Writes the results before the data, and puts the data after them as it lies in a pipe. Adds
    /// the padding.
    ///
    /// # Errors
    /// [`NoRoom`] when there is no room for the head or the padding: nothing was written.
    pub fn commit_piped(
        &mut self,
        head_bytes: usize,
        mut piped: Piped,
        pool: PoolHandle<'_>,
        encode: impl FnOnce(&mut Writer<'_>),
    ) -> Result<(), NoRoom> {
        let zeros = &[0; 3][..padding(piped.len())];
        piped.pad(zeros).map_err(|_| NoRoom)?;
        self.write(head_bytes, pool, encode)?;
        self.piped = Some(piped);
        Ok(())
    }

    /// A reply for tests of programs without an engine.
    ///
    /// # Panics
    /// When the pool has no buffer.
    pub fn for_tests(pool: PoolHandle<'_>) -> Reply {
        let buffer = pool
            .take(crate::limits::REPLY_BYTES_MIN)
            .expect("the pool has a buffer");
        let mut reply = Reply::default();
        reply.prepare(buffer);
        reply.begin(0);
        reply
    }

    /// The results written so far, without the head of the reply; for tests.
    ///
    /// # Panics
    /// When data does not come out of its pipe.
    pub fn into_results(self) -> Vec<u8> {
        let bytes = self.pieces.iter().flat_map(Buffer::filled);
        let mut all: Vec<u8> = bytes.skip(REPLY_HEAD_BYTES).copied().collect();
        if let Some(piped) = self.piped {
            all.extend_from_slice(
                &piped
                    .into_bytes()
                    .expect("what was put in a pipe comes out"),
            );
        }
        all
    }

    /// Puts a reply that was sent before in the place of this one; `bytes` is without marker.
    pub(crate) fn repeat(&mut self, bytes: &[u8]) {
        self.piped = None;
        self.pieces.truncate(1);
        self.pieces[0].clear();
        self.pieces[0].append(&[0; 4]);
        let copied = self.pieces[0].append(bytes);
        debug_assert_eq!(
            copied,
            bytes.len(),
            "what is remembered fits the smallest reply buffer"
        );
    }

    /// The reply without its marker, if it is in one piece.
    pub(crate) fn one_piece(&self) -> Option<&[u8]> {
        match (&self.pieces[..], &self.piped) {
            ([piece], None) => piece.filled().get(4..),
            _ => None,
        }
    }

    /// How the call was accepted, and the first word of the results if there is one.
    pub(crate) fn status(&self) -> (u32, Option<u32>) {
        let front = self.pieces.first().map_or(&[][..], Buffer::filled);
        let word = |at: usize| {
            let bytes = front.get(at..at + 4)?.first_chunk()?;
            Some(u32::from_be_bytes(*bytes))
        };
        let accepted = word(REPLY_HEAD_BYTES - 4).unwrap_or_default();
        (accepted, word(REPLY_HEAD_BYTES))
    }

    /// Writes the marker and hands out the pieces, and what lies in a pipe after them.
    pub(crate) fn seal(&mut self) -> (std::vec::Drain<'_, Buffer>, Option<Piped>) {
        let gathered: usize = self.pieces.iter().map(|piece| piece.filled().len()).sum();
        let bytes = gathered + self.piped.as_ref().map_or(0, Piped::len);
        if let Some(front) = self.pieces.first_mut() {
            front.filled_mut()[..4].copy_from_slice(&message::marker(bytes));
        }
        (self.pieces.drain(..), self.piped.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::REPLY_BYTES_MIN;
    use crate::testing::pool;

    fn reply(pool: PoolHandle<'_>) -> Reply {
        let buffer = pool.take(REPLY_BYTES_MIN).expect("there is room");
        let mut reply = Reply::default();
        reply.prepare(buffer);
        reply.begin(7);
        reply
    }

    /// True when the program wrote no results.
    fn is_bare(reply: &Reply) -> bool {
        let head = reply.one_piece();
        head.is_some_and(|head| head.len() + 4 <= REPLY_HEAD_BYTES)
    }

    fn bytes(mut reply: Reply) -> Vec<u8> {
        let (pieces, piped) = reply.seal();
        let pieces: Vec<Buffer> = pieces.collect();
        let mut all: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| piece.filled().to_vec())
            .collect();
        if let Some(piped) = piped {
            all.extend_from_slice(&piped.into_bytes().expect("the bytes come out"));
        }
        all
    }

    #[test]
    fn a_reply_is_one_last_fragment_of_its_length() {
        let pool = pool(1 << 20);
        let mut reply = reply((&pool).into());
        assert!(is_bare(&reply));
        reply
            .write(8, (&pool).into(), |writer| writer.u64(5))
            .expect("there is room");
        let bytes = bytes(reply);
        assert_eq!(bytes[..4], [0x80, 0, 0, 32]);
        assert_eq!(bytes.len(), 36);
        assert_eq!(bytes[28..], 5_u64.to_be_bytes());
    }

    #[test]
    fn results_move_to_a_larger_buffer_and_keep_what_was_written() {
        let pool = pool(1 << 20);
        let mut reply = reply((&pool).into());
        reply
            .write(4, (&pool).into(), |writer| writer.u32(1))
            .expect("there is room");
        reply
            .write(9000, (&pool).into(), |writer| writer.raw(&[3; 9000]))
            .expect("there is room");
        let bytes = bytes(reply);
        assert_eq!(bytes.len(), 28 + 4 + 9000);
        assert_eq!(bytes[28..33], [0, 0, 0, 1, 3]);
    }

    #[test]
    fn more_than_promised_leaves_nothing_written() {
        let pool = pool(1 << 20);
        let mut reply = reply((&pool).into());
        let room = vec![1; 300_000];
        assert_eq!(
            reply.write(300_000, (&pool).into(), |writer| writer.raw(&room)),
            Err(NoRoom)
        );
        assert_eq!(
            reply.write(8, (&pool).into(), |writer| writer.raw(&room)),
            Err(NoRoom)
        );
        assert!(is_bare(&reply));
    }

    #[test]
    fn data_of_every_length_follows_its_head_with_padding() {
        let pool = pool(16 << 20);
        for asked in [0, 1, 3, 4, 4096, 65_535, 262_144, 1_048_576] {
            for came in [0, asked / 2, asked] {
                let mut reply = reply((&pool).into());
                let mut slices = reply.data(8, asked, (&pool).into()).expect("there is room");
                assert_eq!(slices.iter().map(|slice| slice.len()).sum::<usize>(), asked);
                let mut next = 0_u8;
                for slice in slices.iter_mut() {
                    for byte in slice.iter_mut() {
                        *byte = next;
                        next = next.wrapping_add(1);
                    }
                }
                reply.commit(8, came, |writer| writer.u64(came as u64));
                let bytes = bytes(reply);
                assert_eq!(bytes.len(), 28 + 8 + came + padding(came), "{asked} {came}");
                let data = &bytes[36..36 + came];
                let right = data
                    .iter()
                    .enumerate()
                    .all(|(at, byte)| *byte == at.to_le_bytes()[0]);
                assert!(right, "{asked} {came}");
                assert!(
                    bytes[36 + came..].iter().all(|byte| *byte == 0),
                    "padding is zero"
                );
            }
        }
        assert_eq!(pool.statistics().in_use_bytes, 0);
    }

    /// A READ would otherwise write each byte twice.
    #[test]
    fn room_for_data_is_not_zeroed_and_only_what_is_accepted_is_shown() {
        const BYTES: usize = 4096;
        let pool = pool(16 << 20);
        let fill = |value: u8, bytes: usize| {
            let mut reply = reply((&pool).into());
            let mut slices = reply.data(8, BYTES, (&pool).into()).expect("there is room");
            let before = slices[0].to_vec();
            slices[0][..bytes].fill(value);
            reply.commit(8, bytes, |writer| writer.u64(0));
            (before, self::bytes(reply))
        };
        fill(7, BYTES);
        let (before, shown) = fill(8, 5);
        assert_eq!(before, [7; BYTES], "as the reply before has left it");
        assert_eq!(shown[28..36], [0; 8]);
        assert_eq!(shown[36..], [8, 8, 8, 8, 8, 0, 0, 0]);
    }

    #[test]
    fn data_is_shorter_when_the_budget_is_nearly_used_up() {
        let pool = pool(20 * 1024);
        let mut reply = reply((&pool).into());
        let slices = reply.data(8, 1 << 20, (&pool).into()).expect("some room");
        let given: usize = slices.iter().map(|slice| slice.len()).sum();
        assert!(given > 0 && given <= 20 * 1024);
        reply.commit(8, given, |writer| writer.u64(0));
        assert_eq!(bytes(reply).len(), 36 + given + padding(given));
    }

    #[test]
    fn data_in_a_pipe_follows_its_head_with_padding() {
        let (pool, pipes) = (pool(1 << 20), flatpath::memory::Pipes::new(1));
        let mut file = tempfile::tempfile().expect("a file");
        let content: Vec<u8> = (0..200_000_u32).map(|at| at.to_le_bytes()[0]).collect();
        std::io::Write::write_all(&mut file, &content).expect("written");
        for (offset, length) in [(0, 65_536), (5, 99_999), (4096, 70_002), (1, 199_999)] {
            let mut reply = reply((&pool).into());
            let piped = pipes
                .splice_file(&file, offset, length, 1)
                .expect("readable");
            let piped = piped.expect("the pipe is free");
            reply
                .commit_piped(8, piped, (&pool).into(), |writer| writer.u64(length as u64))
                .expect("there is room");
            assert!(reply.one_piece().is_none() && !is_bare(&reply));
            let bytes = bytes(reply);
            let end = 36 + length;
            assert_eq!(bytes.len(), end + padding(length));
            let marker = message::marker(bytes.len());
            assert_eq!(bytes[..4], marker);
            let from = usize::try_from(offset).expect("small");
            assert!(bytes[36..end] == content[from..from + length], "{length}");
            assert!(bytes[end..].iter().all(|byte| *byte == 0));
        }
        assert_eq!(pipes.open(), 1, "the same pipe each time");
    }

    #[test]
    fn a_restart_forgets_results_and_data() {
        let pool = pool(1 << 20);
        let mut reply = reply((&pool).into());
        reply
            .data(8, 100_000, (&pool).into())
            .expect("there is room");
        reply.restart(Accepted::SystemError);
        let bytes = bytes(reply);
        assert_eq!(bytes[24..], [0, 0, 0, 5]);
    }
}
