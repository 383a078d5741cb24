//! What each frame does: to its stream, to all of them, or to its connection.

use flatpath::Stall;

use super::bounds::STREAMS_MAX;
use super::core::Gone;
use super::fields;
use super::hpack::FieldList;
use super::input::{self, Next};
use super::link::Link;
use super::priority::Priority;
use super::request;
use super::session::Session;
use super::stream::Stream;
use super::wire::{Code, END_STREAM, FRAME_HEAD_BYTES, Frame, Kind};
use crate::connection::state::Connection;
use crate::limits::SCRATCH_KEPT_MAX;
use crate::service::Service;

/// Why a frame is not taken.
pub(super) enum Stop {
    /// It has to wait.
    Waits(Stall),
    /// The connection ends.
    Ends(Code),
}

impl From<Code> for Stop {
    fn from(code: Code) -> Stop {
        Stop::Ends(code)
    }
}

impl From<Stall> for Stop {
    fn from(stall: Stall) -> Stop {
        Stop::Waits(stall)
    }
}

impl<S: Service> Session<S> {
    /// Takes what the input begins with. Returns how much that was; 0: it has to be more.
    pub(super) fn step(
        &mut self,
        connection: &mut Connection<'_, S>,
        input: &[u8],
    ) -> Result<usize, Stop> {
        match self.core.input.next(input)? {
            Next::More => Ok(0),
            Next::Done(bytes) => Ok(bytes),
            Next::Unknown(frame) => {
                self.core.patience.idles(frame.whole_bytes())?;
                Ok(FRAME_HEAD_BYTES)
            }
            Next::Frame(frame, payload) => {
                self.frame(connection, &frame, payload)?;
                Ok(frame.whole_bytes())
            }
            Next::Data(frame, padding) => {
                let found = self.streams.place_of(frame.stream);
                let flow = found.map(|at| &mut self.streams[at].flow);
                if let Some(code) = self.core.data(&frame, padding, flow)? {
                    self.reset(connection, frame.stream, code);
                }
                Ok(frame.whole_bytes() - frame.bytes + padding.min(1))
            }
            Next::Body(stream, data) => {
                let found = self.streams.place_of(stream);
                match found {
                    Some(at) => {
                        let core = &mut self.core;
                        let mut link = Link { connection, core };
                        self.streams[at].take_data(&mut link, data)?;
                        self.core.input.body_taken(data.len());
                        self.move_stream(connection, at);
                    }
                    None => {
                        self.core.release(None, data.len());
                        self.core.input.body_taken(data.len());
                    }
                }
                Ok(data.len())
            }
            Next::BodyEnd(stream) => {
                self.core.input.end_body();
                self.body_ended(connection, stream)?;
                // It may have no byte of its own: what follows is looked at in the same way.
                match input {
                    [] => Ok(0),
                    input => self.step(connection, input),
                }
            }
            Next::Block(frame, bytes) => {
                self.block(connection, frame, &input[..bytes])?;
                Ok(bytes)
            }
        }
    }

    /// The client has ended its side of a stream.
    fn body_ended(&mut self, connection: &mut Connection<'_, S>, stream: u32) -> Result<(), Stop> {
        let Some(at) = self.streams.place_of(stream) else {
            return Ok(());
        };
        if let Err(code) = self.streams[at].flow.ended() {
            self.core.patience.faults()?;
            self.reset(connection, stream, code);
            return Ok(());
        }
        self.move_stream(connection, at);
        Ok(())
    }

    /// A frame that is neither of a body nor of a block.
    fn frame(
        &mut self,
        connection: &mut Connection<'_, S>,
        frame: &Frame,
        payload: &[u8],
    ) -> Result<(), Stop> {
        let found = self.streams.place_of(frame.stream);
        let flow = found.map(|at| &mut self.streams[at].flow);
        let error = match frame.kind {
            Kind::Settings => {
                let flows = self.streams.iter_mut().map(|it| &mut it.flow);
                self.core.settings(frame, payload, flows)?;
                None
            }
            Kind::Ping => {
                self.core.ping(frame, payload)?;
                None
            }
            Kind::WindowUpdate => {
                let error = self.core.window(frame, payload, flow)?;
                if error.is_none()
                    && let Some(at) = found
                {
                    self.move_stream(connection, at);
                }
                error
            }
            Kind::Reset => {
                self.core.reset(frame, found.is_some())?;
                if let Some(at) = found {
                    let core = &mut self.core;
                    let mut link = Link { connection, core };
                    self.streams[at].cut_by_client(&mut link);
                    self.move_stream(connection, at);
                }
                None
            }
            Kind::Priority => self.core.priority(frame, payload)?,
            Kind::PriorityUpdate => {
                let (stream, priority) = self.core.priority_update(frame, payload)?;
                self.prioritize(stream, priority);
                None
            }
            _ => {
                self.core.others(frame)?;
                None
            }
        };
        self.moves_all |= std::mem::take(&mut self.core.has_opened);
        if let Some(code) = error {
            self.reset(connection, frame.stream, code);
        }
        Ok(())
    }

    /// The client says how urgent a stream is, which may not have begun.
    fn prioritize(&mut self, stream: u32, priority: Priority) {
        match self.streams.place_of(stream) {
            // What can be sent is on its way: it is asked anew when the output has room.
            Some(at) => self.streams[at].priority = priority,
            None if self.core.gone(stream) == Gone::Idle => self.early.put(stream, priority),
            None => {}
        }
    }

    /// Resets a stream that may be there.
    fn reset(&mut self, connection: &mut Connection<'_, S>, stream: u32, code: Code) {
        match self.streams.place_of(stream) {
            Some(at) => {
                let core = &mut self.core;
                let mut link = Link { connection, core };
                self.streams[at].reset(&mut link, code);
                self.move_stream(connection, at);
            }
            None => self.core.put_reset(stream, code),
        }
    }

    /// A whole block: the head of a request, or trailers.
    fn block(
        &mut self,
        connection: &mut Connection<'_, S>,
        frame: Frame,
        input: &[u8],
    ) -> Result<(), Stop> {
        let found = self.streams.place_of(frame.stream);
        let pool = connection.pool();
        if found.is_none() && !self.account.has_room(self.streams.len(), pool)
            || self.core.decoder.may_take_table() && !self.account.holds_table(pool)
        {
            return Err(Stop::Waits(match connection.jobs_out() {
                0 => Stall::Memory,
                _ => Stall::Pipeline,
            }));
        }
        let scratch = &mut connection.thread.h2;
        let mut list = scratch.fields.take().unwrap_or_default();
        let decoded = self.decode(frame, input, (&mut list, &mut scratch.block));
        let taken = decoded.and_then(|error| match (found, error) {
            (Some(at), error) => self.trailers(connection, &frame, &list, (at, error)),
            (None, error) => self.head(connection, &frame, &mut list, error),
        });
        list.trim(SCRATCH_KEPT_MAX);
        connection.thread.h2.fields = Some(list);
        taken
    }

    /// Reads a block's fields. Returns an error of its stream.
    fn decode(
        &mut self,
        frame: Frame,
        input: &[u8],
        (list, copy): (&mut FieldList, &mut Vec<u8>),
    ) -> Result<Option<Code>, Stop> {
        let (block, parent) = input::fields_of(frame, input, copy)?;
        list.begin(self.core.input.block_bytes_max);
        let decoded = self.core.decoder.decode(block, list);
        decoded.map_err(|_| Code::Compression)?;
        // RFC 7540 5.3.1: "A stream cannot depend on itself."
        Ok((parent == Some(frame.stream)).then_some(Code::Protocol))
    }

    /// RFC 9113 8.1: "a request ... consists of ... one HEADERS frame (followed by zero or more
    /// CONTINUATION frames) ..., optionally one HEADERS frame ... containing the trailer section",
    /// which "terminates with a frame bearing the END_STREAM flag".
    fn trailers(
        &mut self,
        connection: &mut Connection<'_, S>,
        frame: &Frame,
        list: &FieldList,
        (at, error): (usize, Option<Code>),
    ) -> Result<(), Stop> {
        let is_right = frame.has(END_STREAM) && fields::are_trailers(list);
        let error = match (error, self.streams[at].flow.is_received) {
            (None, false) if is_right => {
                let core = &mut self.core;
                self.streams[at].take_trailers(&mut Link { connection, core }, list);
                return self.body_ended(connection, frame.stream);
            }
            (None, true) => Code::StreamClosed,
            (error, _) => error.unwrap_or(Code::Protocol),
        };
        self.core.patience.faults()?;
        self.reset(connection, frame.stream, error);
        Ok(())
    }

    /// The head of a request.
    fn head(
        &mut self,
        connection: &mut Connection<'_, S>,
        frame: &Frame,
        list: &mut FieldList,
        error: Option<Code>,
    ) -> Result<(), Stop> {
        if !self.core.opens(frame)? {
            return Ok(self.core.patience.idles(frame.whole_bytes())?);
        }
        if self.streams.len() >= STREAMS_MAX {
            // Some of them may be with workers still (L2).
            self.core.put_reset(frame.stream, Code::Refused);
            return Ok(self.core.patience.idles(frame.whole_bytes())?);
        }
        self.core.patience.busy(frame.whole_bytes());
        if let Some(code) = error {
            return self.refuse(frame.stream, code);
        }
        self.has_asked = true;
        let mut stream = Stream::new(self.core.flow(frame), connection.turn());
        let core = &mut self.core;
        let link = &mut Link { connection, core };
        if let Err(code) = request::serve(link, list, &mut stream) {
            return self.refuse(frame.stream, code);
        }
        if let Some(priority) = self.early.take(frame.stream) {
            stream.priority = priority;
        }
        if stream.is_over() {
            // As most are: it never was among the others.
            return Ok(stream.end(link)?);
        }
        let at = self.streams.push(stream);
        self.move_stream(connection, at);
        Ok(())
    }

    /// A request is malformed, and has no stream.
    fn refuse(&mut self, stream: u32, code: Code) -> Result<(), Stop> {
        self.core.put_reset(stream, code);
        Ok(self.core.patience.faults()?)
    }
}
