//! One call of the engine for one connection: what it does with the session, step by step.
//!
//! `intake` takes requests from the input, `delivery` queues replies in order; here is what binds
//! them: the order of a call, the phases that deadlines follow, and the ends of a connection.

use flatpath::{Context, Job, Phase, Received, Stall};

use crate::encode::{self, Persistence};
use crate::fault::Fault;
use crate::incoming::Incoming;
use crate::protocol::Http;
use crate::service::Service;
use crate::session::{Stage, Text, Waiting};

/// What the next step of taking input has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Took so many bytes; there may be more to take.
    On(usize),
    /// Took so many bytes; the others are the beginning of something.
    NeedMore(usize),
    /// Took so many bytes; the others have to wait.
    Blocked(usize, Stall),
}

const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// See the module.
pub(crate) struct Hand<'a, 'c, S: Service> {
    pub(crate) context: &'a mut Context<'c, Http<S>>,
}

impl<S: Service> Hand<'_, '_, S> {
    pub(crate) fn received(&mut self, input: &[u8]) -> Received {
        let (mut used, mut blocked) = (0, None);
        if self.context.session.skips_byte && !input.is_empty() {
            if let Err(on) = self.deliver_due() {
                return Received::Blocked { consumed: 0, on };
            }
            if self.context.session.owed() > 0 {
                return Received::NeedMore { consumed: 0 };
            }
            self.context.session.skips_byte = false;
            used = 1;
        }
        while !self.context.session.is_closed {
            let step = match self.context.session.stage {
                Stage::Head => self.take_head(&input[used..]),
                Stage::Body => self.take_body(&input[used..]),
                Stage::Over => break,
            };
            match step {
                Step::On(bytes) => used += bytes,
                Step::NeedMore(bytes) => {
                    used += bytes;
                    break;
                }
                Step::Blocked(bytes, on) => {
                    used += bytes;
                    blocked = Some(on);
                    break;
                }
            }
        }
        self.conclude();
        if self.context.session.stage == Stage::Over || self.context.session.is_closed {
            used = input.len();
        }
        match blocked {
            Some(on) => Received::Blocked { consumed: used, on },
            None => Received::NeedMore { consumed: used },
        }
    }

    /// The client has said all that it will say. What it did not finish is never served.
    pub(crate) fn input_ended(&mut self) {
        self.context.session.stage = Stage::Over;
        self.abandon_upload();
        self.drop_incoming();
        if self.context.session.owed() == 0 {
            self.close();
        }
    }

    pub(crate) fn finished(&mut self, job: Job<Http<S>>) {
        if self.context.session.is_closed {
            return self.recycle(job);
        }
        let Some(job) = self.upload_returned(job) else {
            return self.conclude();
        };
        if job.number != self.context.session.next_reply {
            return self.keep_job(job);
        }
        if self.send_job(job) {
            self.deliver_or_stall();
        }
        self.conclude();
    }

    /// The output has room: the stream goes on.
    pub(crate) fn drained(&mut self) {
        if let Some(job) = self
            .context
            .session
            .sending
            .take_if(|job| !job.is_receiving())
        {
            if self.context.session.is_closed {
                return self.recycle(job);
            }
            self.context.dispatch(job);
        }
    }

    pub(crate) fn expired(&mut self, phase: Phase) {
        match phase {
            Phase::Head if !self.context.session.scan.is_untouched() => {
                self.fault(Fault::HeadTimeout);
            }
            Phase::Body => self.fault(Fault::BodyTimeout),
            // It has asked for nothing, so it is told nothing.
            Phase::Idle | Phase::Head | Phase::Work | Phase::Wait | Phase::Joined => self.close(),
        }
    }

    pub(crate) fn draining(&mut self) {
        if self.is_uploading() {
            // It has been begun, and is the last of its connection.
            return;
        }
        let is_partial =
            self.context.session.stage == Stage::Body || !self.context.session.scan.is_untouched();
        if self.context.session.owed() > 0 {
            // What has not been taken yet is for another connection to ask again.
            self.context.session.lingers |= is_partial;
            self.end_input();
        } else if !is_partial {
            // A request may be on its way: it is answered, and told that it is the last. Who stays
            // silent is let go by the deadline for idle connections, which a drain shortens.
            self.context.restart_phase(Phase::Idle);
        }
    }

    /// The engine ends the connection, and says why.
    pub(crate) fn abandoned(&mut self) {
        self.end_input();
        if let Some(job) = self.context.session.sending.take() {
            self.recycle(job);
        }
        self.context.session.is_closed = true;
    }

    /// No request is taken any more.
    pub(crate) fn end_input(&mut self) {
        self.context.session.stage = Stage::Over;
        self.abandon_upload();
        self.drop_incoming();
        self.context.end_input();
    }

    /// Answers what cannot be served, in its turn, and ends the connection behind it.
    pub(crate) fn fault(&mut self, fault: Fault) {
        if self.context.session.is_closed {
            return;
        }
        self.end_input();
        self.context.session.lingers = true;
        let number = self.context.session.take_number();
        self.write_fault(fault);
        if self.context.session.owed() > 1 {
            let text = Text {
                bytes: self.context.thread.scratch.clone(),
                shared: None,
                keep_alive: false,
            };
            return self.keep(number, Waiting::Text(Box::new(text)));
        }
        // Without room for words the end has to do.
        let _ = self.context.io.write(&self.context.thread.scratch);
        self.reply_done(false);
    }

    fn write_fault(&mut self, fault: Fault) {
        let wall_seconds = self.context.turn().wall_seconds;
        let out = &mut self.context.thread.scratch;
        out.clear();
        encode::status_line(out, fault.status());
        encode::header(out, b"Content-Type", b"text/plain; charset=utf-8");
        let sentence = fault.sentence().as_bytes();
        encode::length_header(out, sentence.len() as u64 + 1);
        let date_line = self.context.thread.date.at(wall_seconds);
        encode::end_of_head(out, date_line, Persistence::Close);
        out.extend_from_slice(sentence);
        out.push(b'\n');
    }

    /// Keeps a reply until its turn.
    pub(crate) fn keep(&mut self, number: u32, waiting: Waiting<S>) {
        let rings = &mut self.context.thread.rings;
        self.context
            .session
            .keep(number, waiting, || rings.pop().unwrap_or_default());
    }

    /// A reply is queued completely.
    pub(crate) fn reply_done(&mut self, keep_alive: bool) {
        self.context.session.next_reply = self.context.session.next_reply.wrapping_add(1);
        self.context.session.is_streaming = false;
        if !keep_alive {
            // Requests behind it stay without an answer, so their bytes may be unread.
            self.context.session.lingers |= self.context.session.owed() > 0;
            self.close();
        } else if self.context.session.stage == Stage::Over && self.context.session.owed() == 0 {
            self.close();
        }
    }

    /// The connection ends behind what is queued.
    pub(crate) fn close(&mut self) {
        self.context.session.is_closed = true;
        if self.context.session.lingers {
            self.context.close_lingering();
        } else {
            self.context.close_after_output();
        }
    }

    /// The connection ends at once, and visibly so.
    pub(crate) fn abort(&mut self) {
        self.context.session.is_closed = true;
        self.context.abort();
    }

    /// Keeps a job for the next request.
    pub(crate) fn recycle(&mut self, mut job: Job<Http<S>>) {
        job.reset();
        self.context.recycle(job);
    }

    /// The request whose body was arriving is not served. What waits for an upload that is with a
    /// worker stays until that is back.
    pub(crate) fn drop_incoming(&mut self) {
        self.context.session.owes_continue = false;
        let is_unwanted = |incoming: &mut Box<Incoming>| !incoming.is_abandoned;
        if let Some(incoming) = self.context.session.incoming.take_if(is_unwanted) {
            self.context.thread.recycle_incoming(incoming);
        }
    }

    /// What every call ends with: `100 Continue` where it is due, the phase, the empty ring.
    pub(crate) fn conclude(&mut self) {
        if self.context.session.is_closed {
            return;
        }
        if let Some(ring) = self.context.session.take_ring() {
            self.context.thread.recycle_ring(ring);
        }
        let owed = self.context.session.owed();
        let is_uploading = self.is_uploading();
        let is_due = owed == 0 || is_uploading && self.context.session.sending.is_some();
        if self.context.session.owes_continue && is_due {
            self.context.session.owes_continue = self.context.write(CONTINUE).is_err();
        }
        let is_next_head = std::mem::take(&mut self.context.session.is_next_head);
        let phase = match self.context.session.stage {
            Stage::Body if is_uploading => Phase::Body,
            _ if owed > 0 => Phase::Work,
            Stage::Head if self.context.session.scan.is_untouched() => Phase::Idle,
            Stage::Head => Phase::Head,
            Stage::Body => Phase::Body,
            Stage::Over => return,
        };
        if is_next_head && matches!(phase, Phase::Head | Phase::Idle) {
            // A request has been taken since: this deadline is the next one's.
            self.context.restart_phase(phase);
        } else {
            self.context.phase(phase);
        }
    }
}
