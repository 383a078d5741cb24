//! What a connection still has to send: segments in order, and a tail that small writes gather in.
//!
//! Replies written in one turn land in one buffer and go out with one send. A buffer is taken when
//! the first byte is written and leaves with the send, so a connection with nothing to say holds
//! none.
//!
//! Of a file a range is queued. Window by window it is asked whether the pages are at hand
//! ([`Taken`]); of a window that is, each send takes a part. A range that waits takes no memory,
//! but it counts as output: nothing more is read from a client that has so much to come.
//!
//! Invariants
//! - `queued_bytes` is the sum over `segments`, `tail` and what is in flight.
//! - The tail is younger than every segment; whatever is pushed seals the tail first.
//!
//! Cost: O(1) per write, plus the copy.

mod taking;
mod to_memory;
mod window;

use std::collections::VecDeque;

use bytes::Bytes;
use flatpath_driver::{FileRange, SEGMENTS_MAX, Segment};
use flatpath_structures::pool::{Buffer, PoolHandle};

use crate::error::NoRoom;
use crate::limits::{SHARED_COPY_BYTES_MAX, UNCHARGED_BYTES};

pub(crate) use self::taking::Taken;
use self::window::Window;
pub(crate) use self::window::{Awaited, FILE_WINDOW_BYTES, first_read};

/// See the module.
#[derive(Default)]
pub(crate) struct Output {
    segments: VecDeque<Segment>,
    tail: Option<Buffer>,
    waiting_bytes: usize,
    /// Fits: a send has few segments, each of `SEGMENT_BYTES_MAX` (`taking.rs`).
    in_flight_bytes: u32,
    /// See `sent_bytes`; below 0 for as long as the first record is on its way.
    sent_bytes: u64,
    window: Window,
    width: Width,
}

/// How much of an output the kernel takes before it sends it: see `network/wide.rs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Width {
    /// As much as of most.
    #[default]
    Narrow,
    /// More.
    Wide {
        /// The kernel paces it: see [`Driver::is_paced`](flatpath_driver::Driver::is_paced).
        is_paced: bool,
    },
    /// No more than of most from now on, but it may hold more of before.
    Leaving,
    /// The same, until the send that has begun since is over.
    LeavesNext,
}

impl Output {
    /// Bytes that the kernel has taken since the connection began; of a connection with TLS, about
    /// that number of bytes of content.
    pub(crate) fn sent_bytes(&self) -> u64 {
        u64::try_from(self.sent_bytes.cast_signed()).unwrap_or(0)
    }

    /// All that was queued since the connection began, sent or not.
    pub(crate) fn bytes_so_far(&self) -> u64 {
        self.sent_bytes.wrapping_add(self.queued_bytes() as u64)
    }

    /// Bytes not yet taken by the kernel, in flight or not.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.in_flight_bytes as usize + self.waiting_bytes()
    }

    /// True when something is to be sent that no send has taken up.
    pub(crate) fn has_waiting(&self) -> bool {
        self.waiting_bytes() > 0
    }

    /// Where the output ends now, for [`Output::roll_back`].
    pub(crate) fn mark(&self) -> Mark {
        Mark {
            segments: self.segments.len(),
            tail_bytes: self.tail_bytes(),
        }
    }

    /// Drops what was queued since the mark, of which no send has taken anything.
    pub(crate) fn roll_back(&mut self, mark: Mark) {
        // What was the tail then is the first segment after those of then, if it was sealed.
        let was_sealed = self.segments.len() > mark.segments;
        match &mut self.tail {
            Some(tail) if !was_sealed => tail.truncate(mark.tail_bytes),
            tail => *tail = None,
        }
        let kept = mark.segments + usize::from(was_sealed && mark.tail_bytes > 0);
        for segment in self.segments.drain(kept..) {
            self.waiting_bytes -= segment.len();
        }
        if kept > mark.segments
            && let Some(Segment::Pooled { from, to, .. }) = self.segments.back_mut()
        {
            let end = *from + small(mark.tail_bytes);
            self.waiting_bytes -= (*to - end) as usize;
            *to = end;
        }
    }

    fn tail_bytes(&self) -> usize {
        self.tail.as_ref().map_or(0, |tail| tail.filled().len())
    }

    /// Room for `bytes` more in one piece.
    pub(crate) fn reserve(&mut self, pool: PoolHandle<'_>, bytes: usize) -> Option<&mut Buffer> {
        if self.tail.as_ref().is_none_or(|tail| tail.room() < bytes) {
            let fresh = pool.take(bytes)?;
            if fresh.room() < bytes {
                return None;
            }
            self.seal();
            self.tail = Some(fresh);
        }
        self.tail.as_mut()
    }

    /// Queues a copy, all or nothing.
    pub(crate) fn write(&mut self, pool: PoolHandle<'_>, bytes: &[u8]) -> Result<(), NoRoom> {
        if let Some(tail) = &mut self.tail
            && tail.room() >= bytes.len()
        {
            tail.append(bytes);
            return Ok(());
        }
        self.write_slow(pool, bytes)
    }

    /// Fills what is left of the tail and takes as many buffers as the rest needs; gives back what
    /// it took when the budget ends half-way.
    fn write_slow(&mut self, pool: PoolHandle<'_>, bytes: &[u8]) -> Result<(), NoRoom> {
        let room = self.tail.as_ref().map_or(0, Buffer::room);
        let mut taken: VecDeque<Buffer> = VecDeque::new();
        let mut covered = room.min(bytes.len());
        while covered < bytes.len() {
            let buffer = pool.take(bytes.len() - covered).ok_or(NoRoom)?;
            covered += buffer.room();
            taken.push_back(buffer);
        }
        let mut rest = bytes;
        if let Some(tail) = &mut self.tail {
            rest = &rest[tail.append(rest)..];
        }
        for mut buffer in taken {
            rest = &rest[buffer.append(rest)..];
            self.seal();
            self.tail = Some(buffer);
        }
        debug_assert!(rest.is_empty(), "the buffers taken cover what is written");
        Ok(())
    }

    /// Queues shared bytes; copies them when they are few.
    pub(crate) fn write_shared(
        &mut self,
        pool: PoolHandle<'_>,
        bytes: Bytes,
    ) -> Result<(), NoRoom> {
        if bytes.len() <= SHARED_COPY_BYTES_MAX {
            return self.write(pool, &bytes);
        }
        self.push(bytes.into());
        Ok(())
    }

    /// Queues a copy of three parts in one buffer; false when there is none.
    pub(crate) fn copy_piece(&mut self, bulk: PoolHandle<'_>, parts: [&[u8]; 3]) -> bool {
        let Some(buffer) = self.reserve(bulk, parts.iter().map(|part| part.len()).sum()) else {
            return false;
        };
        for part in parts {
            buffer.append(part);
        }
        true
    }

    /// Queues shared bytes between two framings. It needs no buffer: a smallest one for a few bytes
    /// of framing each would be more than what is framed.
    pub(crate) fn share_piece(&mut self, head: &[u8], payload: Bytes, end: &'static [u8]) {
        match &mut self.tail {
            Some(tail) if tail.room() >= head.len() => {
                tail.append(head);
            }
            _ => self.push(Bytes::copy_from_slice(head).into()),
        }
        self.push(payload.into());
        self.push(Bytes::from_static(end).into());
    }

    /// Queues a segment as it is.
    pub(crate) fn push(&mut self, segment: Segment) {
        self.seal();
        let bytes = segment.len();
        if bytes > 0 {
            self.waiting_bytes += bytes;
            self.segments.push_back(segment);
        }
    }

    /// Ends the tail: it becomes the youngest segment.
    fn seal(&mut self) {
        if let Some(buffer) = self.tail.take() {
            let bytes = buffer.filled().len();
            if bytes > 0 {
                self.waiting_bytes += bytes;
                self.segments.push_back(whole(buffer));
            }
        }
    }

    /// The first file that the next send reaches.
    fn first_file(&self) -> Option<&FileRange> {
        let mut first = self.segments.iter().take(SEGMENTS_MAX);
        first.find_map(|segment| match segment {
            Segment::File(range) => Some(range),
            _ => None,
        })
    }

    /// Has output that waits with a file hold no buffer for the few bytes of a head before it.
    pub(crate) fn compact(&mut self) {
        self.seal();
        if let Some(Segment::File(_)) = self.segments.get(1)
            && let Some(head @ Segment::Pooled { .. }) = self.segments.front_mut()
            && let Some(bytes) = head.memory().filter(|it| it.len() <= UNCHARGED_BYTES)
        {
            *head = Bytes::copy_from_slice(bytes).into();
        }
    }

    /// The window that is to be asked for before anything can be sent.
    pub(crate) fn unasked(&self) -> Option<FileRange> {
        let file = self.first_file().filter(|_| self.window.is_unasked())?;
        Some(file.front(FILE_WINDOW_BYTES))
    }

    /// What a worker is to read while what is at hand is sent, of a file that comes from a disk.
    pub(crate) fn next_read(&self) -> Option<FileRange> {
        self.window.next_read(self.first_file()?)
    }

    pub(crate) fn width(&self) -> Width {
        self.width
    }

    pub(crate) fn set_width(&mut self, width: Width) {
        self.width = width;
    }

    /// The first window of the first file is at hand.
    pub(crate) fn is_at_hand(&mut self) {
        self.window.is_at_hand();
    }

    /// The [first part](first_read) of it is at hand.
    pub(crate) fn first_is_at_hand(&mut self) {
        self.window.first_is_at_hand();
    }

    /// Whether a worker has read what it would read of it first.
    pub(crate) fn first_was_read(&self) -> bool {
        self.window.first_was_read()
    }

    /// Whether workers have read of its files.
    pub(crate) fn uses_disk(&self) -> bool {
        self.window.uses_disk()
    }

    /// The first window is not at hand: awaits that a worker reads of it. Nothing is awaited when
    /// one reads something else.
    pub(crate) fn awaits_read(&mut self) -> Awaited {
        self.window.awaits()
    }

    /// It is to be read, and others are first.
    pub(crate) fn waits_for_disk(&mut self) {
        self.window.waits();
    }

    /// Whether nothing can be sent, whatever waits, before a file was read: who is woken for that
    /// sends on.
    pub(crate) fn awaits_disk(&self) -> bool {
        self.window.awaits_disk()
    }

    /// A worker reads of the first file: the first window, or what comes after what is at hand.
    pub(crate) fn begins_read(&mut self) {
        self.window.begins_read();
    }

    /// It has.
    pub(crate) fn has_read(&mut self) {
        self.window.has_read();
    }

    /// `sealed_bytes` are in flight now, made of `bytes`.
    pub(crate) fn is_sealed(&mut self, sealed_bytes: usize, bytes: usize) {
        self.in_flight_bytes += small(sealed_bytes);
        // What is counted is content: this is more than what was queued.
        let added = sealed_bytes.saturating_sub(bytes);
        self.sent_bytes = self.sent_bytes.wrapping_sub(added as u64);
    }

    /// Bytes that no send has taken up.
    pub(crate) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes + self.tail_bytes()
    }

    /// Drops what no send has taken up.
    pub(crate) fn drop_waiting(&mut self) {
        self.segments.clear();
        self.tail = None;
        self.waiting_bytes = 0;
        self.window.forget();
    }

    /// The kernel has taken `bytes` of what was in flight.
    pub(crate) fn sent(&mut self, bytes: usize) {
        debug_assert!(
            bytes <= self.in_flight_bytes as usize,
            "more sent than was in flight"
        );
        self.in_flight_bytes -= small(bytes);
        self.sent_bytes = self.sent_bytes.wrapping_add(bytes as u64);
    }

    /// Gives back a tail that was reserved and not written to: a later answer takes its own.
    pub(crate) fn release_unused(&mut self) {
        self.tail.take_if(|tail| tail.is_empty());
    }

    /// Frees room for segments that are not there: the connection may rest for long.
    pub(crate) fn shrink(&mut self) {
        self.segments.shrink_to_fit();
    }

    /// Drops everything: the connection is being cut off.
    pub(crate) fn clear(&mut self) {
        self.drop_waiting();
        self.in_flight_bytes = 0;
    }
}

/// An end of an output; see [`Output::mark`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    segments: usize,
    tail_bytes: usize,
}

/// Of a pooled buffer, or of a send.
fn small(bytes: usize) -> u32 {
    u32::try_from(bytes).expect("these are below 4 GiB")
}

/// All that a buffer holds.
pub(crate) fn whole(buffer: Buffer) -> Segment {
    let to = small(buffer.filled().len());
    Segment::Pooled {
        buffer,
        from: 0,
        to,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatpath_driver::SendList;
    use flatpath_structures::pool::{Pool, PoolConfig, Zero};

    fn pool(budget_bytes: usize) -> Pool {
        Pool::new(PoolConfig {
            classes: vec![64, 256],
            budget_bytes,
            zero: Zero::WhenLent,
        })
    }

    fn drain(output: &mut Output) -> Vec<u8> {
        let mut all = Vec::new();
        while output.has_waiting() {
            let mut list = SendList::new();
            assert!(matches!(
                output.take(&mut list),
                Taken::Next { has_file: false }
            ));
            all.extend(list.slices().flatten());
            output.sent(list.bytes());
        }
        assert_eq!(output.queued_bytes(), 0);
        all
    }

    #[test]
    fn small_writes_gather_in_one_segment() {
        let pool = pool(4096);
        let mut output = Output::default();
        output.write((&pool).into(), b"one ").expect("room");
        output.write((&pool).into(), b"two").expect("room");
        let mut list = SendList::new();
        assert!(matches!(
            output.take(&mut list),
            Taken::Next { has_file: false }
        ));
        assert_eq!(list.segments(), 1);
        assert_eq!(list.slices().next(), Some(&b"one two"[..]));
    }

    #[test]
    fn what_was_written_comes_out_in_order() {
        let pool = pool(1 << 20);
        let mut output = Output::default();
        let mut expected = Vec::new();
        for round in 0..50_usize {
            let bytes: Vec<u8> = (0..round * 37).map(|at| (at + round) as u8).collect();
            match round % 3 {
                0 => output.push(Bytes::from(bytes.clone()).into()),
                1 => output.write((&pool).into(), &bytes).expect("room"),
                _ => output
                    .write_shared((&pool).into(), bytes.clone().into())
                    .expect("room"),
            }
            expected.extend_from_slice(&bytes);
            assert_eq!(output.queued_bytes(), expected.len());
        }
        assert_eq!(drain(&mut output), expected);
    }

    #[test]
    fn a_write_that_does_not_fit_the_budget_queues_nothing() {
        let pool = pool(128);
        let mut output = Output::default();
        output.write((&pool).into(), b"kept").expect("room");
        assert_eq!(output.write((&pool).into(), &[7; 1000]), Err(NoRoom));
        assert_eq!(drain(&mut output), b"kept");
        drop(output);
        assert_eq!(pool.statistics().in_use_bytes, 0, "every buffer went back");
    }

    #[test]
    fn model_rolled_back_output_is_as_it_was_at_the_mark() {
        let pool = pool(1 << 20);
        for seed in 0..500 {
            let mut dice = fastrand::Rng::with_seed(seed);
            let (mut output, mut expected) = (Output::default(), Vec::new());
            for _ in 0..dice.usize(..10) {
                let mark = output.mark();
                let before = expected.clone();
                for _ in 0..dice.usize(..6) {
                    let bytes = vec![dice.u8(..); dice.usize(..300)];
                    match dice.u8(..3) {
                        0 => output.push(Bytes::from(bytes.clone()).into()),
                        1 => assert!(output.reserve((&pool).into(), 100).is_some()),
                        _ => output.write((&pool).into(), &bytes).expect("room"),
                    }
                    // What was reserved holds nothing yet.
                    let queued = output.queued_bytes() - expected.len();
                    expected.extend_from_slice(&bytes[..queued]);
                }
                if dice.bool() {
                    output.roll_back(mark);
                    expected = before;
                }
                assert_eq!(output.queued_bytes(), expected.len(), "seed {seed}");
            }
            assert_eq!(drain(&mut output), expected, "seed {seed}");
        }
        assert_eq!(pool.statistics().in_use_bytes, 0, "every buffer went back");
    }

    #[test]
    fn a_reservation_beyond_the_largest_buffer_is_refused() {
        let pool = pool(4096);
        let mut output = Output::default();
        assert!(output.reserve((&pool).into(), 257).is_none());
        assert!(
            output
                .reserve((&pool).into(), 256)
                .is_some_and(|buffer| buffer.room() >= 256)
        );
    }

    #[test]
    fn an_output_with_nothing_to_say_holds_no_buffer() {
        let pool = pool(4096);
        let mut output = Output::default();
        output.write((&pool).into(), b"reply").expect("room");
        let mut list = SendList::new();
        assert!(matches!(
            output.take(&mut list),
            Taken::Next { has_file: false }
        ));
        output.sent(list.bytes());
        drop(list);
        assert_eq!(pool.statistics().in_use_bytes, 0);
    }
}
