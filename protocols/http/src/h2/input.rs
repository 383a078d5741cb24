//! Where in which frame the input of a connection is (RFC 9113 sections 3.4, 4.1 and 4.3), and what
//! the head of a frame alone says is wrong with it.
//!
//! A frame is offered when it is there as a whole, a body as it comes, a block with all of its
//! frames: half of one waits in the input, in a buffer that is charged, as half a head of HTTP/1
//! does.
//!
//! Cost: a step for each frame; of a block that waits, `BLOCK_FRAMES_MAX` again with each receive.

use super::bounds::BLOCK_FRAMES_MAX;
use super::wire::{
    self, ACK, Code, END_HEADERS, END_STREAM, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, Frame, Kind,
    PADDED, PREFACE, PRIORITY,
};

/// See the module.
#[derive(Debug)]
pub(super) struct Input {
    stage: Stage,
    payload: Payload,
    /// What a block may have, and the list of its fields.
    pub(super) block_bytes_max: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// So much of the preface has come.
    Preface(u8),
    /// SETTINGS are to come.
    Settings,
    Open,
    Over,
}

/// What is left of the frame that has begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Payload {
    /// There is none.
    Nothing,
    /// Of a body, then padding.
    Body {
        stream: u32,
        left: u32,
        padding: u32,
        is_end: bool,
    },
    /// What means nothing; `is_body`: to this server alone.
    Skipped { left: u32, is_body: bool },
}

/// What comes next of the input.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next<'i> {
    /// There has to be more of it.
    More,
    /// So much of it is done with.
    Done(usize),
    /// A frame of an unknown kind begins; its payload is done with.
    Unknown(Frame),
    /// A frame with its payload.
    Frame(Frame, &'i [u8]),
    /// A body's frame begins. With it, the bytes of padding, their length included.
    Data(Frame, usize),
    /// Part of a body.
    Body(u32, &'i [u8]),
    /// The end of a body.
    BodyEnd(u32),
    /// A block of so many bytes with the heads of its frames.
    Block(Frame, usize),
}

impl Input {
    /// Before the preface.
    pub(super) fn new(block_bytes_max: usize) -> Input {
        Input {
            stage: Stage::Preface(0),
            payload: Payload::Nothing,
            block_bytes_max,
        }
    }

    /// The preface is over, and SETTINGS may have come.
    pub(super) fn is_greeted(&self) -> bool {
        matches!(self.stage, Stage::Settings | Stage::Open)
    }

    /// SETTINGS have come.
    pub(super) fn open(&mut self) {
        self.stage = Stage::Open;
    }

    /// Nothing more is read.
    pub(super) fn end(&mut self) {
        (self.stage, self.payload) = (Stage::Over, Payload::Nothing);
    }

    pub(super) fn is_over(&self) -> bool {
        self.stage == Stage::Over
    }

    /// What the input begins with.
    ///
    /// # Errors
    /// That of the connection.
    pub(super) fn next<'i>(&mut self, input: &'i [u8]) -> Result<Next<'i>, Code> {
        match (self.stage, self.payload) {
            (Stage::Over, _) => Ok(Next::More),
            (Stage::Preface(at), _) => self.preface(usize::from(at), input),
            (_, Payload::Nothing) => self.frame(input),
            (_, Payload::Skipped { left, is_body }) => {
                let bytes = input.len().min(left as usize);
                self.skip(left - bytes as u32, is_body);
                Ok(match bytes {
                    0 => Next::More,
                    bytes => Next::Done(bytes),
                })
            }
            (_, Payload::Body { stream, left, .. }) => Ok(match (left, input) {
                (0, _) => Next::BodyEnd(stream),
                (_, []) => Next::More,
                (left, input) => Next::Body(stream, &input[..input.len().min(left as usize)]),
            }),
        }
    }

    fn preface<'i>(&mut self, at: usize, input: &'i [u8]) -> Result<Next<'i>, Code> {
        let expected = &PREFACE[at..];
        let bytes = expected.len().min(input.len());
        if input[..bytes] != expected[..bytes] {
            return Err(Code::Protocol);
        }
        self.stage = match at + bytes {
            end if end == PREFACE.len() => Stage::Settings,
            end => Stage::Preface(end as u8),
        };
        Ok(match bytes {
            0 => Next::More,
            bytes => Next::Done(bytes),
        })
    }

    /// So much of a frame means nothing; `is_body`: to this server alone.
    pub(super) fn skip(&mut self, left: u32, is_body: bool) {
        self.payload = match left {
            0 => Payload::Nothing,
            left => Payload::Skipped { left, is_body },
        };
    }

    fn frame<'i>(&mut self, input: &'i [u8]) -> Result<Next<'i>, Code> {
        let Some(frame) = Frame::read(input) else {
            return Ok(Next::More);
        };
        check(&frame)?;
        if self.stage == Stage::Settings && (frame.kind != Kind::Settings || frame.has(ACK)) {
            return Err(Code::Protocol);
        }
        match frame.kind {
            Kind::Headers => self.block(frame, input),
            Kind::Data => {
                let payload = &input[FRAME_HEAD_BYTES..];
                if !frame.has(PADDED) {
                    return Ok(Next::Data(frame, 0));
                }
                // RFC 9113 6.1: "If the length of the padding is the length of the frame payload or
                // greater, the recipient MUST treat this as a connection error".
                match (frame.bytes, payload) {
                    (0, _) => Err(Code::Protocol),
                    (_, []) => Ok(Next::More),
                    (bytes, [padding, ..]) if usize::from(*padding) >= bytes => Err(Code::Protocol),
                    (_, [padding, ..]) => Ok(Next::Data(frame, 1 + usize::from(*padding))),
                }
            }
            Kind::Unknown => {
                self.skip(frame.bytes as u32, false);
                Ok(Next::Unknown(frame))
            }
            _ => {
                let payload = input.get(FRAME_HEAD_BYTES..frame.whole_bytes());
                Ok(payload.map_or(Next::More, |payload| Next::Frame(frame, payload)))
            }
        }
    }

    /// RFC 9113 4.3: "Each field block is processed as a discrete unit. Field blocks MUST be
    /// transmitted as a contiguous sequence of frames, with no interleaved frames of any other type
    /// or from any other stream."
    fn block<'i>(&self, first: Frame, input: &'i [u8]) -> Result<Next<'i>, Code> {
        let (mut at, mut block_bytes, mut frame) = (0, 0, first);
        for _ in 0..BLOCK_FRAMES_MAX {
            at += frame.whole_bytes();
            block_bytes += frame.bytes;
            if block_bytes > self.block_bytes_max {
                return Err(Code::EnhanceYourCalm);
            }
            let Some(rest) = input.get(at..) else {
                return Ok(Next::More);
            };
            if frame.has(END_HEADERS) {
                return Ok(Next::Block(first, at));
            }
            frame = match Frame::read(rest) {
                None => return Ok(Next::More),
                Some(next) if next.bytes > FRAME_BYTES_MAX => return Err(Code::FrameSize),
                Some(next) if next.kind != Kind::Continuation || next.stream != first.stream => {
                    return Err(Code::Protocol);
                }
                Some(next) => next,
            };
        }
        Err(Code::EnhanceYourCalm)
    }

    /// A body's frame begins, with so much of it, and so much padding after it.
    pub(super) fn begin_body(&mut self, frame: &Frame, left: usize, padding: usize) {
        let is_end = frame.has(END_STREAM);
        self.payload = Payload::Body {
            stream: frame.stream,
            left: left as u32,
            padding: padding as u32,
            is_end,
        };
        if left == 0 && !is_end {
            self.end_body();
        }
    }

    /// So much of the body was taken, or thrown away.
    pub(super) fn body_taken(&mut self, bytes: usize) {
        match &mut self.payload {
            Payload::Body { left, .. } => {
                *left -= bytes as u32;
                let is_over = *left == 0;
                if is_over && !self.is_body_end() {
                    self.end_body();
                }
            }
            // Its stream was reset meanwhile.
            Payload::Skipped { left, is_body } => {
                let (left, is_body) = (*left - bytes as u32, *is_body);
                self.skip(left, is_body);
            }
            Payload::Nothing => {}
        }
    }

    fn is_body_end(&self) -> bool {
        matches!(self.payload, Payload::Body { is_end: true, .. })
    }

    /// The end of the body is known; padding may follow.
    pub(super) fn end_body(&mut self) {
        if let Payload::Body { padding, .. } = self.payload {
            self.skip(padding, true);
        }
    }

    /// What is left of this stream's frame means nothing any more. Returns how much of the body
    /// that is.
    pub(super) fn forget_body(&mut self, stream: u32) -> usize {
        match self.payload {
            Payload::Body {
                stream: of,
                left,
                padding,
                ..
            } if of == stream => {
                self.skip(left + padding, true);
                left as usize
            }
            _ => 0,
        }
    }

    /// Whether part of something other than a body has come, and not all of it.
    pub(super) fn is_within_head(&self) -> bool {
        let is_skipped = matches!(self.payload, Payload::Skipped { is_body: false, .. });
        matches!(self.stage, Stage::Preface(_)) || is_skipped
    }
}

/// The fields of a whole block, without padding and priority: where they are, or a copy of them
/// where they are in several frames. With RFC 7540's priority comes the number of the stream that
/// it depends on.
///
/// # Errors
/// That of the connection.
pub(super) fn fields_of<'b>(
    first: Frame,
    input: &'b [u8],
    copy: &'b mut Vec<u8>,
) -> Result<(&'b [u8], Option<u32>), Code> {
    let mut fields = &input[FRAME_HEAD_BYTES..first.whole_bytes()];
    if first.has(PADDED) {
        let (padding, rest) = fields.split_first().ok_or(Code::Protocol)?;
        let end = rest.len().checked_sub(usize::from(*padding));
        fields = &rest[..end.ok_or(Code::Protocol)?];
    }
    let mut parent = None;
    if first.has(PRIORITY) {
        parent = wire::number(fields);
        fields = fields.get(PRIORITY_BYTES..).ok_or(Code::FrameSize)?;
    }
    if first.has(END_HEADERS) {
        return Ok((fields, parent));
    }
    copy.clear();
    copy.extend_from_slice(fields);
    let mut rest = &input[first.whole_bytes()..];
    while let Some(frame) = Frame::read(rest) {
        copy.extend_from_slice(&rest[FRAME_HEAD_BYTES..frame.whole_bytes()]);
        rest = &rest[frame.whole_bytes()..];
    }
    Ok((copy, parent))
}

pub(super) const SETTING_BYTES: usize = 6;
pub(super) const PRIORITY_BYTES: usize = 5;

/// What the head of a frame alone says is wrong with it.
fn check(frame: &Frame) -> Result<(), Code> {
    let has_length = match frame.kind {
        _ if frame.bytes > FRAME_BYTES_MAX => false,
        Kind::Settings if frame.has(ACK) => frame.bytes == 0,
        Kind::Settings => frame.bytes.is_multiple_of(SETTING_BYTES),
        Kind::Reset | Kind::WindowUpdate => frame.bytes == 4,
        Kind::Ping => frame.bytes == 8,
        Kind::GoAway => frame.bytes >= 8,
        Kind::PriorityUpdate => frame.bytes >= 4,
        _ => true,
    };
    let has_place = match frame.kind {
        Kind::Settings | Kind::Ping | Kind::GoAway | Kind::PriorityUpdate => frame.stream == 0,
        Kind::Data | Kind::Headers | Kind::Priority | Kind::Reset => frame.stream != 0,
        // A server gets none; a block is taken as a whole.
        Kind::PushPromise | Kind::Continuation => false,
        Kind::WindowUpdate | Kind::Unknown => true,
    };
    match (has_length, has_place) {
        (false, _) => Err(Code::FrameSize),
        (true, false) => Err(Code::Protocol),
        (true, true) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOCK_BYTES_MAX: usize = 1000;

    /// Everything that may come, and what it is as it is taken.
    fn taken(said: &[u8], step: usize) -> Result<Vec<String>, Code> {
        let mut input = Input::new(BLOCK_BYTES_MAX);
        let (mut events, mut used, mut end) = (Vec::new(), 0, 0);
        let mut body = Vec::new();
        while end < said.len() {
            end = said.len().min(end + step);
            loop {
                let rest = &said[used..end];
                used += match input.next(rest)? {
                    Next::More => break,
                    Next::Done(bytes) => bytes,
                    Next::Unknown(_) => FRAME_HEAD_BYTES,
                    Next::Frame(frame, payload) => {
                        if frame.kind == Kind::Settings {
                            input.open();
                        }
                        events.push(format!("{:?} {payload:?}", frame.kind));
                        frame.whole_bytes()
                    }
                    Next::Data(frame, padding) => {
                        let left = frame.bytes - padding;
                        input.begin_body(&frame, left, padding.saturating_sub(1));
                        FRAME_HEAD_BYTES + padding.min(1)
                    }
                    Next::Body(_, data) => {
                        body.extend_from_slice(data);
                        let bytes = data.len();
                        input.body_taken(bytes);
                        bytes
                    }
                    Next::BodyEnd(stream) => {
                        events.push(format!("{stream}: {:?}", std::mem::take(&mut body)));
                        input.end_body();
                        0
                    }
                    Next::Block(frame, bytes) => {
                        let mut copy = Vec::new();
                        let (fields, _) = fields_of(frame, &rest[..bytes], &mut copy)?;
                        events.push(format!("block {fields:?}"));
                        bytes
                    }
                };
            }
        }
        assert_eq!(used, said.len());
        Ok(events)
    }

    fn frame(kind: Kind, flags: u8, payload: &[u8]) -> Vec<u8> {
        let stream = u32::from(!matches!(kind, Kind::Settings | Kind::Ping));
        let mut out = Vec::new();
        wire::put(&mut out, kind, flags, stream, payload);
        out
    }

    fn greeting() -> Vec<u8> {
        [PREFACE, &frame(Kind::Settings, 0, &[])].concat()
    }

    #[test]
    fn frames_are_the_same_in_whatever_pieces_they_come() {
        let with_priority = END_HEADERS | PRIORITY | PADDED;
        let said = [
            greeting(),
            frame(Kind::Headers, 0, b"xy"),
            frame(Kind::Continuation, 0, b""),
            frame(Kind::Continuation, END_HEADERS, b"z"),
            frame(Kind::Ping, 0, &[7; 8]),
            frame(Kind::Unknown, 0xff, &[7; 30]),
            frame(Kind::Data, 0, b"ab"),
            frame(Kind::Data, 0, b""),
            frame(Kind::Data, PADDED, b"\x02cd__"),
            frame(Kind::Data, PADDED | END_STREAM, b"\x02e__"),
            frame(Kind::Headers, with_priority, b"\x01\0\0\0\0\x10xyz_"),
            frame(Kind::Data, END_STREAM, b""),
        ]
        .concat();
        let expected = [
            "Settings []".to_owned(),
            format!("block {:?}", b"xyz"),
            format!("Ping {:?}", [7; 8]),
            format!("1: {:?}", b"abcde"),
            format!("block {:?}", b"xyz"),
            "1: []".to_owned(),
        ];
        for step in 1..=said.len() {
            assert_eq!(taken(&said, step).as_deref(), Ok(&expected[..]), "{step}");
        }
    }

    #[test]
    fn blocks_without_an_end_do_not_wait() {
        let begins = || [greeting(), frame(Kind::Headers, 0, b"x")].concat();
        let many = frame(Kind::Continuation, 0, b"x").repeat(BLOCK_FRAMES_MAX);
        let long = frame(Kind::Continuation, 0, &[b'x'; BLOCK_BYTES_MAX]);
        for more in [many, long[..FRAME_HEAD_BYTES].to_vec()] {
            let said = [begins(), more].concat();
            assert_eq!(taken(&said, said.len()), Err(Code::EnhanceYourCalm));
        }
        let other = [begins(), frame(Kind::Ping, 0, &[7; 8])].concat();
        assert_eq!(taken(&other, other.len()), Err(Code::Protocol));
    }

    #[test]
    fn a_block_goes_on_in_its_own_frames_alone() {
        let mut input = Input::new(2 * FRAME_BYTES_MAX);
        input.open();
        let mut after_heads = |kind, stream, payload: &[u8]| {
            let mut said = frame(Kind::Headers, 0, b"x");
            wire::put(&mut said, kind, END_HEADERS, stream, payload);
            input
                .next(&said)
                .map(|next| matches!(next, Next::Block(..)))
        };
        let whole = vec![b'x'; FRAME_BYTES_MAX];
        assert_eq!(after_heads(Kind::Continuation, 1, &whole), Ok(true));
        for kind in [Kind::Headers, Kind::Data, Kind::Priority, Kind::Unknown] {
            assert_eq!(after_heads(kind, 1, b"xxxxx"), Err(Code::Protocol));
        }
        let other = after_heads(Kind::Continuation, 3, b"");
        assert_eq!(other, Err(Code::Protocol));
        let mut said = frame(Kind::Headers, 0, b"x");
        said.extend([0, 0x40, 1, 9, END_HEADERS, 0, 0, 0, 1]);
        assert_eq!(input.next(&said), Err(Code::FrameSize));
    }

    #[test]
    fn the_first_frame_is_settings_that_acknowledge_nothing() {
        for (kind, flags, is_right) in [
            (Kind::Settings, 0, true),
            (Kind::Settings, ACK, false),
            (Kind::Ping, 0, false),
            (Kind::Headers, END_HEADERS, false),
            (Kind::Unknown, 0, false),
        ] {
            let payload: &[u8] = if kind == Kind::Ping { &[7; 8] } else { b"" };
            let said = [PREFACE, &frame(kind, flags, payload)].concat();
            let taken = taken(&said, said.len());
            let expected = if is_right {
                Ok(())
            } else {
                Err(Code::Protocol)
            };
            assert_eq!(taken.map(|_| ()), expected, "{kind:?} {flags}");
        }
    }

    #[test]
    fn a_frame_of_another_length_is_no_frame_wherever_it_is() {
        let code_of = |kind, stream, bytes| {
            let frame = Frame {
                kind,
                flags: 0,
                stream,
                bytes,
            };
            check(&frame).err()
        };
        assert_eq!(code_of(Kind::Ping, 0, 8), None);
        assert_eq!(code_of(Kind::Ping, 1, 8), Some(Code::Protocol));
        assert_eq!(code_of(Kind::Ping, 1, 7), Some(Code::FrameSize));
        assert_eq!(code_of(Kind::Reset, 0, 5), Some(Code::FrameSize));
    }

    #[test]
    fn half_of_a_preface_or_of_a_frame_of_no_kind_is_part_of_a_head_and_of_a_body_is_not() {
        let mut input = Input::new(BLOCK_BYTES_MAX);
        assert!(input.is_within_head() && !input.is_greeted());
        assert_eq!(input.next(&PREFACE[..9]), Ok(Next::Done(9)));
        assert!(input.is_within_head() && !input.is_greeted());
        assert_eq!(input.next(&PREFACE[9..]), Ok(Next::Done(15)));
        assert!(!input.is_within_head() && input.is_greeted());
        input.open();
        assert!(!input.is_within_head() && input.is_greeted());
        let unknown = frame(Kind::Unknown, 0, b"xyz");
        assert!(matches!(input.next(&unknown), Ok(Next::Unknown(_))));
        assert_eq!(input.next(b"xy"), Ok(Next::Done(2)));
        assert!(input.is_within_head());
        assert_eq!(input.next(b"z"), Ok(Next::Done(1)));
        assert!(!input.is_within_head());
        let data = frame(Kind::Data, PADDED, b"\x02b__");
        let head = Frame::read(&data).expect("a frame");
        input.begin_body(&head, 1, 2);
        assert!(!input.is_within_head());
        input.body_taken(1);
        assert_eq!(input.next(b"_"), Ok(Next::Done(1)));
        assert!(!input.is_within_head(), "padding is of a body");
        input.end();
        assert!(!input.is_greeted() && input.is_over());
    }

    #[test]
    fn what_is_left_of_a_body_can_be_forgotten() {
        let mut input = Input::new(BLOCK_BYTES_MAX);
        input.open();
        let head = Frame::read(&frame(Kind::Data, END_STREAM, b"body")).expect("a frame");
        input.begin_body(&head, 4, 3);
        assert_eq!(input.forget_body(3), 0, "another stream's");
        assert_eq!(input.next(b"bo"), Ok(Next::Body(1, b"bo")));
        assert_eq!(input.forget_body(1), 4);
        input.body_taken(2);
        assert_eq!(input.next(b"dy___next"), Ok(Next::Done(5)));
        assert_eq!(input.next(b""), Ok(Next::More));
    }
}
