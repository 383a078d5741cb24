//! What both sides of a connection may say when, by frames and without I/O: the server's half of
//! RFC 9113. Input comes as slices, output gathers in `out`, streams (`flow`) are the session's,
//! which asks here what a frame means to one of them.
//!
//! ```text
//!  preface ──► SETTINGS ──► open ──► GOAWAY(2^31-1), PING ──► pong: GOAWAY(last) ──► over
//!     │           │          │               (drain)              and no stream       ▲
//!     └───────────┴──────────┴── an error: GOAWAY(last, code) ────────────────────────┘
//! ```
//!
//! | what the client does                                 | what comes                  | section |
//! |------------------------------------------------------|-----------------------------|---------|
//! | no preface                                           | the end                     | 3.4     |
//! | another frame than SETTINGS first                    | PROTOCOL_ERROR              | 3.4     |
//! | a frame of more than 16 KiB                          | FRAME_SIZE_ERROR            | 4.2     |
//! | a block that is none                                 | COMPRESSION_ERROR           | 4.3     |
//! | within a block another frame, or another stream's    | PROTOCOL_ERROR              | 4.3     |
//! | a block of too many bytes or frames                  | ENHANCE_YOUR_CALM           | 10.5.1  |
//! | a frame on an idle stream, but for HEADERS, PRIORITY | PROTOCOL_ERROR              | 5.1     |
//! | DATA on a closed stream                              | S: STREAM_CLOSED            | 5.1     |
//! | HEADERS on the latest stream, which is closed        | STREAM_CLOSED               | 5.1     |
//! | HEADERS on an even stream, or before the latest      | PROTOCOL_ERROR              | 5.1.1   |
//! | more than `STREAMS_MAX` streams                      | S: REFUSED_STREAM           | 5.1.2   |
//! | padding as long as its frame                         | PROTOCOL_ERROR              | 6.1     |
//! | a stream where there is none, or none where there is | PROTOCOL_ERROR              | 6       |
//! | a frame of another length than its kind has          | FRAME_SIZE_ERROR            | 6       |
//! | PRIORITY of another length than 5                    | S: FRAME_SIZE_ERROR         | 6.3     |
//! | the same on an idle stream, which cannot be reset    | FRAME_SIZE_ERROR            | 5.1     |
//! | a setting that cannot be                             | as 6.5.2 says               | 6.5.2   |
//! | PUSH_PROMISE                                         | PROTOCOL_ERROR              | 8.4     |
//! | more than the connection's window, or a stream's     | FLOW_CONTROL_ERROR, S: same | 6.9.1   |
//! | a window above 2^31-1, or opened by 0                | C or S, as 6.9 says         | 6.9     |
//! | CONTINUATION without a block                         | PROTOCOL_ERROR              | 6.10    |
//! | much for nothing, resets, broken streams             | ENHANCE_YOUR_CALM           | 10.5    |
//!
//! (S: an error of the stream, RST_STREAM; all others are of the connection, GOAWAY.)
//!
//! Invariants
//! - C1: what a client has the server say waits in `out`, and no frame is read while that is long.
//! - C2: streams are closed whose number is at most `last_stream` and that the session has not;
//!   those above are idle. Of the last few that this side has reset all frames are let pass
//!   (section 5.1), as their client may have sent them before it knew.
//!
//! It does not push. It keeps to the priorities of RFC 9218 (`priority`), and ignores PRIORITY.

use super::bounds::{CONNECTION_WINDOW_BYTES, RESETS_KEPT, STREAM_WINDOW_BYTES, STREAMS_MAX};
use super::flow::Flow;
use super::hpack::Decoder;
use super::input::{Input, PRIORITY_BYTES, SETTING_BYTES};
use super::patience::Patience;
use super::priority::Priority;
use super::wire::{
    self, ACK, Code, END_STREAM, FRAME_BYTES_MAX, FRAME_HEAD_BYTES, Frame, Kind, WINDOW_FIRST,
    WINDOW_MAX,
};

/// See the module.
pub(super) struct Core {
    pub(super) input: Input,
    pub(super) patience: Patience,
    /// Said, and not with the connection.
    pub(super) out: Vec<u8>,
    pub(super) decoder: Decoder,
    /// What each stream's window begins with, for replies.
    stream_window: u32,
    /// What the client takes more on all streams.
    send_window: i64,
    /// What the client may send more on all streams.
    receive_window: u32,
    /// Bytes that were taken, and that the client does not know of.
    released: u32,
    last_stream: u32,
    goodbye: Goodbye,
    client_leaves: bool,
    /// Windows have opened that any stream may have waited for.
    pub(super) has_opened: bool,
    /// A stream has a request that is to be opened before its body is there.
    pub(super) has_unopened: bool,
    /// The latest streams that this side has reset.
    resets: [u32; RESETS_KEPT],
    resets_at: u8,
}

/// What the server has said of its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goodbye {
    Nothing,
    /// There will be one.
    First,
    /// No stream after this one is served.
    Last(u32),
}

/// What a stream is that the session does not have (C2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    Idle,
    Closed,
    /// By this side, lately.
    Reset,
}

/// The answer to which says that the client has seen the first goodbye.
const GOODBYE_PING: [u8; 8] = *b"goodbye!";

impl Core {
    /// Before the preface; the server's own (RFC 9113 section 3.4) is in `out`. Blocks may have
    /// `block_bytes_max`, as many as the list of their fields.
    pub(super) fn new(block_bytes_max: usize, takes_tunnels: bool, out: Vec<u8>) -> Core {
        let mut core = Core {
            input: Input::new(block_bytes_max),
            patience: Patience::default(),
            out,
            decoder: Decoder::default(),
            stream_window: WINDOW_FIRST,
            send_window: WINDOW_FIRST.into(),
            receive_window: CONNECTION_WINDOW_BYTES,
            released: 0,
            last_stream: 0,
            goodbye: Goodbye::Nothing,
            client_leaves: false,
            has_opened: false,
            has_unopened: false,
            resets: [0; RESETS_KEPT],
            resets_at: 0,
        };
        let settings = [
            (HEADER_TABLE_SIZE, 0),
            (MAX_CONCURRENT_STREAMS, STREAMS_MAX as u32),
            (INITIAL_WINDOW_SIZE, STREAM_WINDOW_BYTES),
            (MAX_HEADER_LIST_SIZE, block_bytes_max as u32),
            (ENABLE_CONNECT_PROTOCOL, takes_tunnels.into()),
            (NO_RFC7540_PRIORITIES, 1),
        ];
        let mut payload = [0; 6 * SETTING_BYTES];
        for (place, (id, value)) in payload.chunks_exact_mut(SETTING_BYTES).zip(settings) {
            place[..2].copy_from_slice(&id.to_be_bytes());
            place[2..].copy_from_slice(&value.to_be_bytes());
        }
        wire::put(&mut core.out, Kind::Settings, 0, 0, &payload);
        let more = CONNECTION_WINDOW_BYTES - WINDOW_FIRST;
        wire::put_number(&mut core.out, Kind::WindowUpdate, 0, more);
        core
    }

    /// What a stream is that the session does not have.
    pub(super) fn gone(&self, stream: u32) -> Gone {
        match stream {
            stream if stream.is_multiple_of(2) || stream > self.last_stream => Gone::Idle,
            stream if self.resets.contains(&stream) => Gone::Reset,
            _ => Gone::Closed,
        }
    }

    /// HEADERS of a stream that the session does not have. True: it is to be served, and not one of
    /// those that the client could know not to be.
    ///
    /// # Errors
    /// That of the connection.
    pub(super) fn opens(&mut self, frame: &Frame) -> Result<bool, Code> {
        let stream = frame.stream;
        match self.gone(stream) {
            // RFC 9113 5.1.1: "Streams initiated by a client MUST use odd-numbered stream
            // identifiers".
            Gone::Idle if stream.is_multiple_of(2) => Err(Code::Protocol),
            Gone::Idle => {
                self.last_stream = stream;
                let is_served = !matches!(self.goodbye, Goodbye::Last(_));
                if !is_served {
                    self.note_reset(stream);
                }
                Ok(is_served)
            }
            Gone::Reset => Ok(false),
            Gone::Closed if stream == self.last_stream => Err(Code::StreamClosed),
            Gone::Closed => Err(Code::Protocol),
        }
    }

    /// A new stream.
    pub(super) fn flow(&self, frame: &Frame) -> Flow {
        Flow::new(frame.stream, self.stream_window, frame.has(END_STREAM))
    }

    /// A body's frame begins. Its bytes are offered, and its end; after an error of its stream
    /// neither. Returns that error: its stream is to be reset.
    ///
    /// # Errors
    /// That of the connection.
    pub(super) fn data(
        &mut self,
        frame: &Frame,
        padding: usize,
        flow: Option<&mut Flow>,
    ) -> Result<Option<Code>, Code> {
        let left = self.receive_window.checked_sub(frame.bytes as u32);
        self.receive_window = left.ok_or(Code::FlowControl)?;
        let body_bytes = frame.bytes - padding;
        let is_end = frame.has(END_STREAM);
        match flow.is_none() || body_bytes == 0 && !is_end {
            // What was on its way when its stream was reset is as long as its window.
            true => self.patience.idles(FRAME_HEAD_BYTES)?,
            false => self.patience.busy(body_bytes),
        }
        let error = match (flow, self.gone(frame.stream)) {
            (Some(flow), _) => match flow.data(body_bytes, frame.bytes) {
                Ok(()) => {
                    self.release(Some(flow), padding);
                    let padding = padding.saturating_sub(1);
                    self.input.begin_body(frame, body_bytes, padding);
                    return Ok(None);
                }
                Err(code) => Some(code),
            },
            (None, Gone::Idle) => return Err(Code::Protocol),
            (None, Gone::Reset) => None,
            (None, Gone::Closed) => Some(Code::StreamClosed),
        };
        // The length of the padding is done with.
        self.input.skip((frame.bytes - padding.min(1)) as u32, true);
        self.release(None, frame.bytes);
        if error.is_some() {
            self.patience.faults()?;
        }
        Ok(error)
    }

    /// So much that the client has sent was taken: its windows open anew.
    pub(super) fn release(&mut self, flow: Option<&mut Flow>, bytes: usize) {
        // At most a window.
        let bytes = bytes as u32;
        self.released += bytes;
        if self.released >= CONNECTION_WINDOW_BYTES / 2 {
            let told = std::mem::take(&mut self.released);
            self.receive_window += told;
            wire::put_number(&mut self.out, Kind::WindowUpdate, 0, told);
        }
        if let Some(flow) = flow
            && let Some(told) = flow.release(bytes)
        {
            wire::put_number(&mut self.out, Kind::WindowUpdate, flow.id, told);
        }
    }

    /// SETTINGS, and the streams that there are.
    pub(super) fn settings<'f>(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        flows: impl Iterator<Item = &'f mut Flow>,
    ) -> Result<(), Code> {
        if frame.has(ACK) {
            self.decoder.told();
            return self.patience.idles(frame.whole_bytes());
        }
        self.input.open();
        let before = self.stream_window;
        for setting in payload.chunks_exact(SETTING_BYTES) {
            let [a, b, value @ ..] = setting else {
                continue;
            };
            let value = value.first_chunk().map_or(0, |it| u32::from_be_bytes(*it));
            match u16::from_be_bytes([*a, *b]) {
                ENABLE_PUSH | ENABLE_CONNECT_PROTOCOL | NO_RFC7540_PRIORITIES if value > 1 => {
                    return Err(Code::Protocol);
                }
                INITIAL_WINDOW_SIZE if value > WINDOW_MAX => return Err(Code::FlowControl),
                INITIAL_WINDOW_SIZE => self.stream_window = value,
                MAX_FRAME_SIZE if !MAX_FRAME_SIZES.contains(&value) => return Err(Code::Protocol),
                // The others bound what is not done here, and "an endpoint that receives a SETTINGS
                // frame with any unknown or unsupported identifier MUST ignore that setting".
                _ => {}
            }
        }
        let by = i64::from(self.stream_window) - i64::from(before);
        if by != 0 {
            for flow in flows {
                flow.resized(by)?;
            }
        }
        self.has_opened |= by > 0;
        wire::put(&mut self.out, Kind::Settings, ACK, 0, &[]);
        self.patience.idles(frame.whole_bytes())
    }

    /// PING. The answer to the one that followed the first goodbye brings the last one (RFC 9113
    /// section 6.8).
    pub(super) fn ping(&mut self, frame: &Frame, payload: &[u8]) -> Result<(), Code> {
        if !frame.has(ACK) {
            wire::put(&mut self.out, Kind::Ping, ACK, 0, payload);
        } else if self.goodbye == Goodbye::First && payload == GOODBYE_PING {
            self.put_goodbye(self.last_stream, Code::NoError);
            self.goodbye = Goodbye::Last(self.last_stream);
            return Ok(());
        }
        self.patience.idles(frame.whole_bytes())
    }

    /// WINDOW_UPDATE. Returns an error of its stream.
    ///
    /// # Errors
    /// That of the connection.
    pub(super) fn window(
        &mut self,
        frame: &Frame,
        payload: &[u8],
        flow: Option<&mut Flow>,
    ) -> Result<Option<Code>, Code> {
        self.patience.idles(frame.whole_bytes())?;
        let bytes = wire::number(payload).unwrap_or(0);
        match (frame.stream, flow) {
            (0, _) if bytes == 0 => Err(Code::Protocol),
            (0, _) => {
                self.send_window += i64::from(bytes);
                self.has_opened = true;
                let is_right = self.send_window <= WINDOW_MAX.into();
                is_right.then_some(None).ok_or(Code::FlowControl)
            }
            (_, Some(flow)) => {
                let error = flow.opens(bytes).err();
                if error.is_some() {
                    self.patience.faults()?;
                }
                Ok(error)
            }
            (stream, None) if self.gone(stream) == Gone::Idle => Err(Code::Protocol),
            _ => Ok(None),
        }
    }

    /// RST_STREAM; `has_stream`: it ends one of the session's.
    pub(super) fn reset(&mut self, frame: &Frame, has_stream: bool) -> Result<(), Code> {
        self.patience.idles(frame.whole_bytes())?;
        match !has_stream && self.gone(frame.stream) == Gone::Idle {
            true => Err(Code::Protocol),
            false => Ok(()),
        }
    }

    /// PRIORITY, which means nothing (RFC 9113 section 5.3.2). Returns an error of its stream.
    ///
    /// # Errors
    /// That of the connection: too many, or one of an idle stream. A client that gets a reset of an
    /// idle stream has to end the connection (RFC 9113 section 5.1).
    pub(super) fn priority(&mut self, frame: &Frame, payload: &[u8]) -> Result<Option<Code>, Code> {
        self.patience.idles(frame.whole_bytes())?;
        let error = match payload.len() {
            PRIORITY_BYTES => {
                // RFC 7540 5.3.1: "A stream cannot depend on itself."
                let is_own = wire::number(payload) == Some(frame.stream);
                is_own.then_some(Code::Protocol)
            }
            _ => Some(Code::FrameSize),
        };
        match error {
            Some(code) if self.gone(frame.stream) == Gone::Idle => Err(code),
            Some(code) => self.patience.faults().map(|()| Some(code)),
            None => Ok(None),
        }
    }

    /// PRIORITY_UPDATE (RFC 9218 section 7.1): the stream that it is about, and what it says.
    ///
    /// # Errors
    /// That of the connection: there is no such stream, and will be none.
    pub(super) fn priority_update(
        &mut self,
        frame: &Frame,
        payload: &[u8],
    ) -> Result<(u32, Priority), Code> {
        self.patience.idles(frame.whole_bytes())?;
        let (stream, value) = payload.split_first_chunk().ok_or(Code::FrameSize)?;
        let stream = u32::from_be_bytes(*stream) & WINDOW_MAX;
        // Those of even numbers are pushed.
        match stream.is_multiple_of(2) {
            true => Err(Code::Protocol),
            false => Ok((stream, Priority::of([value].into_iter()))),
        }
    }

    /// GOAWAY.
    pub(super) fn others(&mut self, frame: &Frame) -> Result<(), Code> {
        self.client_leaves |= frame.kind == Kind::GoAway;
        self.patience.idles(frame.whole_bytes())
    }

    /// Whether the connection ends once there is no stream.
    pub(super) fn is_leaving(&self) -> bool {
        self.client_leaves || matches!(self.goodbye, Goodbye::Last(_))
    }

    /// Whether the client was told to ask no more.
    pub(super) fn has_said_goodbye(&self) -> bool {
        self.goodbye != Goodbye::Nothing
    }

    /// The client is to ask no more. RFC 9113 6.8: "A server that is attempting to gracefully shut
    /// down a connection SHOULD send an initial GOAWAY frame with the last stream identifier set to
    /// 2^31-1 and a NO_ERROR code. ... After allowing time for any in-flight stream creation (at
    /// least one round-trip time), the server MAY send another GOAWAY frame with an updated last
    /// stream identifier."
    pub(super) fn leave(&mut self) {
        if self.goodbye == Goodbye::Nothing && !self.input.is_over() {
            self.put_goodbye(WINDOW_MAX, Code::NoError);
            wire::put(&mut self.out, Kind::Ping, 0, 0, &GOODBYE_PING);
            self.goodbye = Goodbye::First;
        }
    }

    /// The connection is over, for this reason.
    pub(super) fn end(&mut self, code: Code) {
        if self.input.is_greeted() {
            let is_said = code == Code::NoError && matches!(self.goodbye, Goodbye::Last(_));
            if !is_said {
                let last = match self.goodbye {
                    Goodbye::Last(last) => last,
                    _ => self.last_stream,
                };
                self.put_goodbye(last, code);
            }
        }
        self.input.end();
    }

    pub(super) fn is_over(&self) -> bool {
        self.input.is_over()
    }

    fn put_goodbye(&mut self, last: u32, code: Code) {
        let mut payload = [0; 8];
        payload[..4].copy_from_slice(&last.to_be_bytes());
        payload[4..].copy_from_slice(&(code as u32).to_be_bytes());
        wire::put(&mut self.out, Kind::GoAway, 0, 0, &payload);
    }

    /// Ends a stream, which the session forgets. Of its frame, if that has begun, the rest means
    /// nothing any more.
    pub(super) fn put_reset(&mut self, stream: u32, code: Code) {
        wire::put_number(&mut self.out, Kind::Reset, stream, code as u32);
        self.note_reset(stream);
        let left = self.input.forget_body(stream);
        self.release(None, left);
    }

    fn note_reset(&mut self, stream: u32) {
        self.resets[usize::from(self.resets_at)] = stream;
        self.resets_at = (self.resets_at + 1) % RESETS_KEPT as u8;
    }

    /// What may be sent now of a reply's body, in one frame.
    pub(super) fn send_room(&self, flow: &Flow) -> usize {
        let room = usize::try_from(self.send_window).unwrap_or(0);
        room.min(flow.send_room()).min(FRAME_BYTES_MAX)
    }

    /// So much was sent of a body.
    pub(super) fn sent(&mut self, flow: &mut Flow, bytes: usize) {
        flow.sent(bytes);
        self.send_window -= bytes as i64;
        self.patience.busy(bytes);
    }
}

const HEADER_TABLE_SIZE: u16 = 0x1;
const ENABLE_PUSH: u16 = 0x2;
const MAX_CONCURRENT_STREAMS: u16 = 0x3;
const INITIAL_WINDOW_SIZE: u16 = 0x4;
const MAX_FRAME_SIZE: u16 = 0x5;
const MAX_HEADER_LIST_SIZE: u16 = 0x6;
/// RFC 8441 section 3.
const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
/// RFC 9218 section 2.1.
const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// RFC 9113 section 6.5.2.
const MAX_FRAME_SIZES: std::ops::Range<u32> = 1 << 14..1 << 24;

#[cfg(test)]
mod tests;
