//! Where in which frame the input of a connection is (RFC 9113 section 4.1), as far as deadlines
//! and memory ask.
//!
//! `h2` is given no part of a header block that is not complete: half a block is a list of headers
//! there, of up to a hundred times the bytes that brought it. It waits in the input instead, as
//! half a head of HTTP/1 does, in a buffer that is charged. What the rules do not allow is passed
//! on, for `h2` to refuse.
//!
//! `h2` announces no table of headers (RFC 7541 section 2.3.2), but a client has one until it has
//! heard that. What the table holds is seen here, too: each entry keeps the memory that it arrived
//! in, so a client that cares to could have a hundred times the table's size kept.
//!
//! Cost: a step for each frame; of a block that waits, `BLOCK_FRAMES_MAX` again with each receive.

use super::bounds::{
    BLOCK_FRAMES_MAX, LENT_FRAMES_MAX, PIECE_BYTES_MAX, PREFACE, TABLE_BYTES_FREE, TABLE_BYTES_MAX,
    TABLE_BYTES_OF_INPUT,
};

const FRAME_HEAD_BYTES: usize = 9;
const DATA: u8 = 0x0;
const HEADERS: u8 = 0x1;
const SETTINGS: u8 = 0x4;
const CONTINUATION: u8 = 0x9;
const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;
const PADDED: u8 = 0x8;
const PRIORITY: u8 = 0x20;

/// What a client's first header block begins with once it knows that there is no table: its size is
/// 0 (RFC 7541 section 6.3).
const TABLE_IS_EMPTY: u8 = 0x20;

/// The longest frame that is taken: `h2` announces no other (RFC 9113 section 4.2).
const FRAME_BYTES_MAX: usize = 16 * 1024;

/// See the module.
pub(super) struct Frames {
    /// Of the preface.
    preface_left: usize,
    head: [u8; FRAME_HEAD_BYTES],
    head_bytes: usize,
    payload_left: usize,
    /// A header block has begun and not ended.
    is_in_block: bool,
    /// Input that entries of the table may keep. `None`: the client has no table any more.
    table_input: Option<usize>,
    /// Input since then: the next entry may keep it, too.
    since_block: usize,
    /// The client knows that it is to have no table.
    knows_settings: bool,
    /// The longest header block that waits to be complete.
    block_bytes_max: usize,
}

/// What the head of a frame says.
struct Kind {
    payload_bytes: usize,
    kind: u8,
    flags: u8,
}

impl Kind {
    fn of(head: &[u8; FRAME_HEAD_BYTES]) -> Kind {
        let [a, b, c, kind, flags, ..] = *head;
        Kind {
            payload_bytes: usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c),
            kind,
            flags,
        }
    }

    fn is_of_block(&self) -> bool {
        self.kind == HEADERS || self.kind == CONTINUATION
    }

    fn ends_block(&self) -> bool {
        self.flags & END_HEADERS != 0
    }

    /// Whether the payload is a header block that begins with an empty table.
    fn empties_table(&self, payload: &[u8]) -> bool {
        let padding = usize::from(self.flags & PADDED != 0);
        let priority = 5 * usize::from(self.flags & PRIORITY != 0);
        self.kind == HEADERS && payload.get(padding + priority) == Some(&TABLE_IS_EMPTY)
    }
}

impl Frames {
    /// Before the preface. Header blocks of up to `block_bytes_max` wait to be complete.
    pub(super) fn new(block_bytes_max: usize) -> Frames {
        Frames {
            preface_left: PREFACE.len(),
            head: [0; FRAME_HEAD_BYTES],
            head_bytes: 0,
            payload_left: 0,
            is_in_block: false,
            table_input: Some(0),
            since_block: 0,
            knows_settings: false,
            block_bytes_max,
        }
    }

    /// How much of what comes next may be passed on: all but a header block, or the head of a
    /// frame, that begins in it and does not end, and what comes after so many blocks, or after
    /// `LENT_FRAMES_MAX`.
    pub(super) fn ready(&self, input: &[u8], mut blocks_max: usize) -> usize {
        if self.head_bytes > 0 || self.is_in_block {
            // It was passed on in part, so the rest of it is.
            return input.len();
        }
        let mut at = self.preface_left + self.payload_left;
        for _ in 0..LENT_FRAMES_MAX {
            if at >= input.len() {
                return input.len();
            }
            let is_block = input.get(at + 3) == Some(&HEADERS);
            match self.unit_bytes(&input[at..]) {
                Some(_) if is_block && blocks_max == 0 => return at,
                Some(bytes) => at += bytes,
                None => return at,
            }
            blocks_max -= usize::from(is_block);
        }
        at.min(input.len())
    }

    /// The length of the frame, or of the block of frames, that begins here; `None` if it has to
    /// wait.
    fn unit_bytes(&self, input: &[u8]) -> Option<usize> {
        let (mut at, mut block_bytes) = (0, 0);
        for _ in 0..BLOCK_FRAMES_MAX {
            let head = Kind::of(input[at..].first_chunk()?);
            let is_block = match at {
                0 => head.kind == HEADERS,
                _ => head.kind == CONTINUATION,
            };
            at += FRAME_HEAD_BYTES + head.payload_bytes;
            block_bytes += head.payload_bytes;
            let is_too_long =
                head.payload_bytes > FRAME_BYTES_MAX || block_bytes > self.block_bytes_max;
            if !is_block || is_too_long {
                return Some(at);
            }
            if input.len() < at {
                return None;
            }
            if head.ends_block() {
                return Some(at);
            }
        }
        Some(at)
    }

    /// The most memory that the client's table of headers keeps after so many more bytes, beside
    /// what every connection has for it.
    pub(super) fn table_bytes(&self, more: usize) -> usize {
        self.table_input.map_or(0, |input| {
            let more = if more > 0 { self.since_block + more } else { 0 };
            let bytes = (input + more).saturating_mul(TABLE_BYTES_OF_INPUT);
            bytes.min(TABLE_BYTES_MAX).saturating_sub(TABLE_BYTES_FREE)
        })
    }

    /// Follows what was passed on.
    pub(super) fn advance(&mut self, mut input: &[u8]) {
        self.since_block = (self.since_block + input.len()).min(PIECE_BYTES_MAX);
        let preface = self.preface_left.min(input.len());
        self.preface_left -= preface;
        input = &input[preface..];
        while !input.is_empty() {
            let payload = self.payload_left.min(input.len());
            self.payload_left -= payload;
            input = &input[payload..];
            let wanted = (FRAME_HEAD_BYTES - self.head_bytes).min(input.len());
            let end = self.head_bytes + wanted;
            self.head[self.head_bytes..end].copy_from_slice(&input[..wanted]);
            self.head_bytes = end;
            input = &input[wanted..];
            if self.head_bytes == FRAME_HEAD_BYTES {
                self.begin(input);
            }
        }
    }

    /// A frame begins, its payload with `input`.
    fn begin(&mut self, input: &[u8]) {
        let head = Kind::of(&self.head);
        self.knows_settings |= head.kind == SETTINGS && head.flags & ACK != 0;
        if self.knows_settings && head.empties_table(input) {
            self.table_input = None;
        }
        if let Some(bytes) = &mut self.table_input
            && head.is_of_block()
        {
            *bytes += std::mem::take(&mut self.since_block) + head.payload_bytes;
        }
        self.payload_left = head.payload_bytes;
        self.head_bytes = 0;
        if head.is_of_block() {
            self.is_in_block = !head.ends_block();
        }
    }

    /// Whether a part of something other than a body has been passed on, and not all of it.
    pub(super) fn is_within_head(&self) -> bool {
        let kind = self.head[3];
        self.preface_left > 0
            || self.head_bytes > 0
            || self.is_in_block
            || self.payload_left > 0 && kind != DATA
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: u8 = 0x6;
    const BLOCK_BYTES_MAX: usize = 1000;

    fn frame(kind: u8, flags: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = (payload.len() as u32).to_be_bytes()[1..].to_vec();
        frame.extend([kind, flags, 0, 0, 0, 1]);
        frame.extend(payload);
        frame
    }

    /// After the preface.
    fn frames() -> Frames {
        let mut frames = Frames::new(BLOCK_BYTES_MAX);
        frames.advance(PREFACE);
        frames
    }

    /// A block of two frames, a PING, a body, a head in one frame.
    fn said() -> (Vec<u8>, Vec<std::ops::Range<usize>>) {
        let parts = [
            [
                frame(HEADERS, 0, b"xy"),
                frame(CONTINUATION, END_HEADERS, b"z"),
            ]
            .concat(),
            frame(PING, 0, &[7; 8]),
            frame(DATA, 0, &[7; 300]),
            frame(HEADERS, END_HEADERS, b"xyz"),
        ];
        let mut waits = Vec::new();
        let mut said = Vec::new();
        for (index, part) in parts.iter().enumerate() {
            let whole = said.len()..said.len() + part.len();
            let heads = whole.start..whole.start + FRAME_HEAD_BYTES;
            waits.push(if index % 3 == 0 { whole } else { heads });
            said.extend(part);
        }
        (said, waits)
    }

    #[test]
    fn half_a_block_waits_and_everything_else_is_passed_on() {
        let (said, waits) = said();
        for end in 0..=said.len() {
            let expected = match waits.iter().find(|waits| waits.contains(&end)) {
                Some(waits) => waits.start,
                None => end,
            };
            assert_eq!(frames().ready(&said[..end], usize::MAX), expected, "{end}");
        }
    }

    #[test]
    fn what_was_passed_on_is_followed_whatever_its_parts() {
        let (said, _) = said();
        for step in 1..said.len() {
            let (mut frames, mut at) = (frames(), 0);
            for end in (step..said.len()).step_by(step).chain([said.len()]) {
                let ready = frames.ready(&said[at..end], usize::MAX);
                frames.advance(&said[at..at + ready]);
                at += ready;
                let is_body = frames.payload_left > 0;
                assert_eq!(frames.is_within_head(), is_body && frames.head[3] != DATA);
            }
            assert_eq!(at, said.len(), "in steps of {step}");
        }
    }

    #[test]
    fn no_more_blocks_are_passed_on_than_there_is_room_for() {
        let (said, waits) = said();
        for (blocks_max, end) in [(0, 0), (1, waits[3].start), (2, said.len())] {
            assert_eq!(frames().ready(&said, blocks_max), end);
        }
    }

    #[test]
    fn a_flood_of_small_frames_is_passed_on_in_parts() {
        let small = frame(DATA, 0, b"x");
        let said = small.repeat(3 * LENT_FRAMES_MAX);
        let ready = frames().ready(&said, usize::MAX);
        assert_eq!(ready, LENT_FRAMES_MAX * small.len());
    }

    #[test]
    fn a_table_counts_until_a_client_that_knows_better_has_given_it_up() {
        let input = 3 * TABLE_BYTES_FREE / TABLE_BYTES_OF_INPUT;
        let gives_up = frame(HEADERS, END_HEADERS, &[TABLE_IS_EMPTY, 0x82]);
        let acknowledged = frame(SETTINGS, ACK, b"");
        let padding = frame(HEADERS, END_HEADERS | PADDED, &[1, TABLE_IS_EMPTY, 0]);
        let priority = [0, 0, 0, 0, 16, TABLE_IS_EMPTY];
        let priority = frame(HEADERS, END_HEADERS | PRIORITY, &priority);
        let other = frame(DATA, 0, &[TABLE_IS_EMPTY; 30]);
        let kept = frame(HEADERS, END_HEADERS, &[0x82]);
        for (said, is_left) in [
            (vec![&gives_up], true),
            (vec![&gives_up, &acknowledged], true),
            (vec![&acknowledged, &kept, &other], true),
            (vec![&acknowledged, &gives_up], false),
            (vec![&acknowledged, &padding], false),
            (vec![&acknowledged, &other, &kept, &priority], false),
        ] {
            let mut frames = frames();
            frames.advance(&frame(HEADERS, END_HEADERS, &vec![0x82; input]));
            assert!(frames.table_bytes(0) >= 2 * TABLE_BYTES_FREE);
            said.iter().for_each(|frame| frames.advance(frame));
            assert_eq!(frames.table_bytes(0) > 0, is_left, "{said:?}");
            assert_eq!(frames.table_bytes(usize::MAX / 2) > 0, is_left);
        }
    }

    #[test]
    fn an_entry_keeps_what_came_just_before_it() {
        let mut frames = frames();
        (0..9).for_each(|_| frames.advance(&frame(DATA, 0, &[0; FRAME_BYTES_MAX])));
        assert_eq!(frames.table_bytes(0), 0);
        frames.advance(&frame(HEADERS, END_HEADERS, b"x"));
        let kept = TABLE_BYTES_OF_INPUT * (PIECE_BYTES_MAX + 1) - TABLE_BYTES_FREE;
        assert_eq!(frames.table_bytes(0), kept);
    }

    #[test]
    fn a_table_has_a_bound_and_a_little_for_nothing() {
        let free = TABLE_BYTES_FREE / TABLE_BYTES_OF_INPUT - PREFACE.len();
        assert_eq!(frames().table_bytes(free), 0);
        assert_eq!(frames().table_bytes(free + 1), TABLE_BYTES_OF_INPUT);
        let most = TABLE_BYTES_MAX - TABLE_BYTES_FREE;
        assert_eq!(frames().table_bytes(TABLE_BYTES_MAX), most);
    }

    #[test]
    fn the_preface_is_passed_on_as_it_comes() {
        let said = [PREFACE, &frame(HEADERS, 0, b"x")].concat();
        let mut frames = Frames::new(BLOCK_BYTES_MAX);
        for at in 0..PREFACE.len() {
            assert!(frames.is_within_head());
            assert_eq!(frames.ready(&said[at..=at], usize::MAX), 1);
            assert_eq!(frames.ready(&said[at..], usize::MAX), PREFACE.len() - at);
            frames.advance(&said[at..=at]);
        }
        assert!(!frames.is_within_head());
    }

    #[test]
    fn blocks_that_are_refused_do_not_wait() {
        let broken = [frame(HEADERS, 0, b"x"), frame(PING, 0, &[7; 8])].concat();
        let mut long = frame(HEADERS, 0, &[7; BLOCK_BYTES_MAX]);
        long.extend(&frame(CONTINUATION, 0, &[7; 100])[..50]);
        let small = frame(CONTINUATION, 0, b"x").repeat(BLOCK_FRAMES_MAX - 1);
        let many = [frame(HEADERS, 0, b"x"), small].concat();
        let long_frame = [1, 0, 0, HEADERS, 0, 0, 0, 0, 1].to_vec();
        for said in [broken, long, many, long_frame] {
            let mut frames = frames();
            assert_eq!(frames.ready(&said, usize::MAX), said.len());
            frames.advance(&said);
            let more = frame(CONTINUATION, 0, b"more");
            assert_eq!(frames.ready(&more, usize::MAX), more.len());
        }
    }

    #[test]
    fn partial_heads_that_were_passed_on_are_seen_at_every_byte() {
        let headers = [0, 0, 2, HEADERS, 0, 0, 0, 0, 1, b'x', b'y'];
        let rest = [0, 0, 1, CONTINUATION, END_HEADERS, 0, 0, 0, 1, b'z'];
        let head = [&headers[..], &rest].concat();
        let data = frame(DATA, 0, &[1, 2, 3]);
        let mut frames = frames();
        for (at, byte) in head.iter().enumerate() {
            frames.advance(&[*byte]);
            assert_eq!(frames.is_within_head(), at + 1 < head.len(), "after {at}");
        }
        for (at, byte) in data.iter().enumerate() {
            frames.advance(&[*byte]);
            let is_within = at + 1 < FRAME_HEAD_BYTES;
            assert_eq!(frames.is_within_head(), is_within, "after {at}");
        }
    }
}
