//! Queueing replies, each in its turn, and streaming the bodies of those that are read.
//!
//! A streamed body has at most one chunk with a worker and what the output holds below its
//! low-water mark, so its memory is bounded however slow the client is.

use bytes::Bytes;
use flatpath::limits::SHARED_COPY_BYTES_MAX;
use flatpath::{Buffer, Job, NoRoom, Stall, Wanted};

use crate::exchange::{self, State};
use crate::hand::{Hand, Step};
use crate::limits::{GATHER_BYTES_MAX, REPLY_BUFFER_BYTES, SCRATCH_KEPT_MAX};
use crate::message::{Body, Reader};
use crate::protocol::{Http, REFUSAL};
use crate::reply::{Frame, Written};
use crate::respond::Transfer;
use crate::service::Service;
use crate::session::{Text, Waiting};

impl<S: Service> Hand<'_, '_, S> {
    /// Queues an inline answer, which is the only one that is owed.
    pub(crate) fn queue_inline(&mut self, written: Written, head_bytes: usize) -> Step {
        let number = self.context.session.take_number();
        let Written {
            keep_alive,
            shared,
            reader,
            transfer,
        } = written;
        if let Some(reader) = reader {
            self.stream_inline(number, keep_alive, reader, transfer);
            return Step::On(head_bytes);
        }
        let queued = self.queue_scratch(shared.as_ref());
        if queued.is_ok() {
            self.reply_done(keep_alive);
            return Step::On(head_bytes);
        }
        // The answer is there and must not be asked for twice: it waits, and so does one byte of
        // its request, which brings the input back when there is room.
        let bytes = self.context.thread.scratch.clone();
        self.keep(
            number,
            Waiting::Text(Box::new(Text {
                bytes,
                shared,
                keep_alive,
            })),
        );
        self.context.session.skips_byte = true;
        Step::Blocked(head_bytes - 1, Stall::Memory)
    }

    /// Queues what stands in the scratch space and a shared body behind it; all or nothing.
    fn queue_scratch(&mut self, shared: Option<&Bytes>) -> Result<(), NoRoom> {
        let scratch = &mut self.context.thread.scratch;
        let copied = shared.filter(|shared| shared.len() <= SHARED_COPY_BYTES_MAX);
        let bytes = scratch.len() + copied.map_or(0, Bytes::len);
        if let Some(buffer) = self.context.io.reserve(bytes) {
            buffer.append(scratch);
            if let Some(copied) = copied {
                buffer.append(copied);
            }
        } else {
            // More than one buffer holds, or no buffer.
            scratch.extend_from_slice(copied.map_or(&[], |copied| &copied[..]));
            let written = self.context.io.write(scratch);
            if written.is_err() {
                scratch.truncate(bytes - copied.map_or(0, Bytes::len));
                return written;
            }
        }
        if scratch.capacity() > SCRATCH_KEPT_MAX {
            *scratch = Vec::new();
        }
        if let Some(shared) = shared
            && copied.is_none()
        {
            return self.context.write_shared(shared.clone());
        }
        Ok(())
    }

    /// An inline answer whose body has to be read: workers take over behind its head.
    fn stream_inline(&mut self, number: u32, keep_alive: bool, reader: Reader, transfer: Transfer) {
        let head_bytes = self.context.thread.scratch.len();
        let buffer = self.context.pool().take(head_bytes.max(REPLY_BUFFER_BYTES));
        let buffer = buffer.filter(|buffer| buffer.room() >= head_bytes);
        let (Some(mut head), Some(mut job)) = (buffer, self.context.job()) else {
            // The handler has run and cannot run again: the client is told to come back.
            self.send_words(REFUSAL);
            return;
        };
        head.append(&self.context.thread.scratch);
        job.keep_alive = keep_alive;
        job.transfer = transfer;
        job.begin_stream(number, head, reader);
        if job.state == State::Streaming {
            self.context.dispatch(job);
        } else {
            self.send_job(job);
        }
    }

    /// Queues the replies whose turn has come, outside of `received`.
    pub(crate) fn deliver_or_stall(&mut self) {
        if let Err(stall) = self.deliver_due() {
            self.context.stall(stall);
        }
    }

    /// Queues the replies whose turn has come.
    pub(crate) fn deliver_due(&mut self) -> Result<(), Stall> {
        while !self.context.session.is_closed {
            match self.context.session.take_due() {
                None => break,
                Some(Waiting::Job(job)) => {
                    if !self.send_job(job) {
                        break;
                    }
                }
                Some(Waiting::Text(text)) => self.send_text(text)?,
            }
        }
        Ok(())
    }

    fn send_text(&mut self, mut text: Box<Text>) -> Result<(), Stall> {
        std::mem::swap(&mut self.context.thread.scratch, &mut text.bytes);
        if self.queue_scratch(text.shared.as_ref()).is_err() {
            std::mem::swap(&mut self.context.thread.scratch, &mut text.bytes);
            self.keep(self.context.session.next_reply, Waiting::Text(text));
            return Err(Stall::Memory);
        }
        self.reply_done(text.keep_alive);
        Ok(())
    }

    /// Queues what a job has brought, in its turn. True when its reply is complete.
    pub(crate) fn send_job(&mut self, mut job: Job<Http<S>>) -> bool {
        debug_assert_eq!(
            job.number, self.context.session.next_reply,
            "replies go out in order"
        );
        if job.head.is_some() && job.is_long() && !self.context.lasts(&mut job) {
            self.recycle(job);
            return self.send_words(REFUSAL);
        }
        if let Some(head) = job.head.take() {
            if job.is_long() {
                self.stream_begins();
            }
            self.send_head(&mut job, head);
            if !job.note.is_empty() {
                let turn = self.context.turn();
                self.context.protocol.service.response_ready(
                    &mut self.context.thread.service,
                    turn,
                    &mut job.note,
                );
                job.note.clear();
            }
        }
        let has_chunk = job.chunk.is_some();
        match job.chunk.take() {
            // To copy it would take another buffer of the size, perhaps from the reserve.
            Some(chunk) if chunk.capacity() <= GATHER_BYTES_MAX => self.context.write_buffer(chunk),
            Some(chunk) => self.queue_buffer(chunk),
            None => {}
        }
        match job.state {
            State::Answered => {
                let keep_alive = job.keep_alive;
                self.recycle(job);
                self.reply_done(keep_alive);
                true
            }
            State::Streaming if has_chunk => {
                self.context.session.sending = Some(job);
                self.context.notify_drained();
                false
            }
            // The worker found no buffer for a chunk.
            State::Streaming => {
                let wanted = if job.is_long() {
                    Wanted::Large
                } else {
                    Wanted::Small
                };
                self.context.dispatch_with_memory(job, wanted);
                false
            }
            State::Refused(words) => {
                self.recycle(job);
                self.send_words(words)
            }
            State::Fresh | State::Failed | State::Opening | State::Receiving => {
                self.break_off(job);
                false
            }
        }
    }

    /// Queues constant words as the reply that is due, and the last one.
    fn send_words(&mut self, words: &'static str) -> bool {
        self.context.write_static(words.as_bytes());
        self.reply_done(false);
        true
    }

    /// The reply that is due will last, and so will what waits behind it.
    fn stream_begins(&mut self) {
        self.context.session.is_streaming = true;
        for behind in 1..self.context.session.owed() as u32 {
            let number = self.context.session.next_reply.wrapping_add(behind);
            if let Some(job) = self.context.session.take_kept(number) {
                self.keep_job(job);
            }
        }
    }

    /// Keeps a reply that came back before its turn. Behind a stream it waits as long as that, so
    /// it is refused where no more may.
    pub(crate) fn keep_job(&mut self, mut job: Job<Http<S>>) {
        let number = job.number;
        if !self.context.session.is_streaming || self.context.lasts(&mut job) {
            return self.keep(number, Waiting::Job(job));
        }
        self.recycle(job);
        let text = Text {
            bytes: REFUSAL.into(),
            shared: None,
            keep_alive: false,
        };
        self.keep(number, Waiting::Text(Box::new(text)));
    }

    /// A stream ended before its end. The client must be able to tell: a length is cut short, the
    /// last chunk is missing; where only the close ends a body, it is a reset instead.
    fn break_off(&mut self, job: Job<Http<S>>) {
        let ends_with_close = job.transfer == Transfer::UntilClose;
        self.recycle(job);
        if ends_with_close {
            self.abort();
        } else {
            self.close();
        }
    }

    /// Queues the head of a reply, and its body where that is in memory.
    fn send_head(&mut self, job: &mut Job<Http<S>>, mut head: Buffer) {
        if !job.head_is_complete {
            job.keep_alive &= !self.context.session.owes_only_the_last();
            let frame = Frame {
                keep_alive: job.keep_alive,
                ..job.frame
            };
            let wall_seconds = self.context.turn().wall_seconds;
            let date_line = self.context.thread.date.at(wall_seconds);
            exchange::end_head(&mut head, date_line, frame);
        }
        match std::mem::take(&mut job.body) {
            Body::Empty => self.queue_buffer(head),
            Body::Bytes(bytes) if bytes.len() <= head.room() => {
                head.append(&bytes);
                self.queue_buffer(head);
            }
            Body::Pooled(body) if body.filled().len() <= head.room() => {
                head.append(body.filled());
                self.queue_buffer(head);
            }
            Body::Bytes(bytes) => {
                self.queue_buffer(head);
                self.queue_shared(job, bytes);
            }
            Body::Pooled(body) => {
                self.queue_buffer(head);
                self.context.write_buffer(body);
            }
            Body::Parts(parts) => {
                self.queue_buffer(head);
                parts
                    .into_iter()
                    .for_each(|part| self.context.write_buffer(part));
            }
            Body::Reader(_) | Body::Payload(_) => {
                debug_assert!(false, "a body that is read became a stream");
            }
        }
    }

    /// Queues shared bytes; where they would have to be copied and there is no room, they are sent
    /// like a stream, as room comes.
    fn queue_shared(&mut self, job: &mut Job<Http<S>>, bytes: Bytes) {
        if self.context.write_shared(bytes.clone()).is_err() {
            let length = Some(bytes.len() as u64);
            job.stream_body(Reader::new(Box::new(std::io::Cursor::new(bytes)), length));
        }
    }

    /// Queues a buffer: as it is, or copied behind other output where that saves a segment.
    fn queue_buffer(&mut self, buffer: Buffer) {
        let gathers = buffer.filled().len() <= GATHER_BYTES_MAX && self.context.queued_bytes() > 0;
        if gathers && self.context.write(buffer.filled()).is_ok() {
            return;
        }
        self.context.write_buffer(buffer);
    }
}
