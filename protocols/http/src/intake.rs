//! Taking requests from the input: heads, bodies, and the stalls that leave them where they are.
//!
//! Whatever a stall leaves undone is left in the input, at least one byte of it, because only input
//! that was left is offered again.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flatpath::{Buffer, Job, NoRoom, Pages, Phase, Stall};

use crate::body::Piece;
use crate::fault::Fault;
use crate::hand::{Hand, Step};
use crate::head::{Framing, Head, HeaderSlots};
use crate::incoming::Incoming;
use crate::limits::{
    DISCARD_BYTES_MAX, INLINE_REPLY_BYTES, PIPELINE_MAX, REPLY_BUFFER_BYTES, UPLOAD_LARGE_BYTES,
    UPLOAD_PIECE_PARTS,
};
use crate::parse::copy_as_1_1;
use crate::protocol::{Http, Lane};
use crate::reply::{Frame, Reply};
use crate::scan::Scan;
use crate::service::{Disposition, Service};
use crate::session::Stage;

/// How far a body has come.
pub(crate) enum Fed {
    /// So many bytes were taken, and more are needed.
    More(usize),
    /// So many bytes were taken, and the others wait for room.
    Stalled(usize, Stall),
    /// So many bytes were taken, and the body is complete.
    Complete(usize),
}

/// What a request needs on its way to a worker: its job, and a buffer for its reply.
pub(crate) type Passage<S> = (Job<Http<S>>, Buffer);

impl<S: Service> Hand<'_, '_, S> {
    /// Takes the next request's head, and the request with it where it has no body.
    pub(crate) fn take_head(&mut self, input: &[u8]) -> Step {
        if input.is_empty() {
            return Step::NeedMore(0);
        }
        self.context.session.follows_upload &= self.context.session.owed() > 0;
        if self.context.session.owed() >= PIPELINE_MAX || self.context.session.follows_upload {
            return Step::Blocked(0, Stall::Pipeline);
        }
        if self.context.output_is_full() {
            return Step::Blocked(0, Stall::Output);
        }
        let mut scan = self.context.session.scan;
        let head_bytes = match scan.advance(input, &self.context.protocol.limits) {
            Ok(Some(head_bytes)) => head_bytes,
            Ok(None) => {
                self.context.session.scan = scan;
                return Step::NeedMore(0);
            }
            Err(fault) => return self.refuse(fault, input),
        };
        let mut slots = HeaderSlots::new();
        match crate::parse(input, head_bytes, &mut slots, &self.context.protocol.limits) {
            Ok(head) => self.take_request(&head, input),
            Err(Fault::Version) => self.take_later_minor(head_bytes, input),
            Err(fault) => self.refuse(fault, input),
        }
    }

    /// Takes a head of HTTP/1.2 to 1.9 as one of 1.1, and refuses every other version.
    #[cold]
    fn take_later_minor(&mut self, head_bytes: usize, input: &[u8]) -> Step {
        let mut copy = std::mem::take(&mut self.context.thread.later_minor);
        let step = if copy_as_1_1(&input[..head_bytes], &mut copy) {
            let mut slots = HeaderSlots::new();
            match crate::parse(&copy, head_bytes, &mut slots, &self.context.protocol.limits) {
                Ok(head) => self.take_request(&head, input),
                Err(fault) => self.refuse(fault, input),
            }
        } else {
            self.refuse(Fault::Version, input)
        };
        self.context.thread.later_minor = copy;
        step
    }

    fn take_request(&mut self, head: &Head<'_>, input: &[u8]) -> Step {
        let streams =
            head.framing() != Framing::Empty && self.context.protocol.service.streams(head);
        if let Framing::Length(length) = head.framing()
            && length > self.context.protocol.limits.body_bytes_max
            && !streams
        {
            return self.refuse(Fault::BodyTooLong, input);
        }
        if self.context.session.owed() == 0
            && let Some(step) = self.answer_inline(head, input)
        {
            return step;
        }
        if head.framing() == Framing::Empty {
            self.pass_on(head, input)
        } else if streams {
            self.begin_upload(head, input)
        } else {
            self.begin_body(head, input)
        }
    }

    /// The head is taken: the next one begins from scratch.
    pub(crate) fn head_taken(&mut self) {
        self.context.session.scan = Scan::new();
        self.context.session.is_next_head = true;
    }

    /// Lets the service answer here and now; None when it leaves the request to workers.
    fn answer_inline(&mut self, head: &Head<'_>, input: &[u8]) -> Option<Step> {
        if self.context.reserve(INLINE_REPLY_BYTES).is_none() {
            return Some(Step::Blocked(0, Stall::Memory));
        }
        let has_body = head.framing() != Framing::Empty;
        let body_is_short =
            matches!(head.framing(), Framing::Length(length) if length <= DISCARD_BYTES_MAX);
        let discards = body_is_short && !head.expect_continue();
        let mut frame = Frame::of(head);
        frame.keep_alive &= !self.context.draining() && (discards || !has_body);

        let turn = self.context.turn();
        let Lane {
            service: lane,
            scratch,
            date,
            ..
        } = &mut *self.context.thread;
        let mut reply = Reply::new(scratch, date.at(turn.wall_seconds), frame);
        let service = &self.context.protocol.service;
        match catch_unwind(AssertUnwindSafe(|| {
            service.inline(lane, turn, head, &mut reply)
        })) {
            Ok(Disposition::Answered) => {}
            Ok(Disposition::Pooled) => return None,
            Err(_) => reply.fail(),
        }
        let written = reply.written();
        self.head_taken();
        if !written.keep_alive {
            self.context.session.lingers |= has_body || input.len() > head.bytes();
        } else if discards {
            let mut incoming = self.context.thread.incoming.pop().unwrap_or_default();
            incoming.begin(frame, head.framing());
            incoming.is_discarded = true;
            self.context.session.incoming = Some(incoming);
            self.enter_body();
        }
        Some(self.queue_inline(written, head.bytes()))
    }

    /// Sends a request without a body to the workers.
    fn pass_on(&mut self, head: &Head<'_>, input: &[u8]) -> Step {
        let (mut job, buffer) = match self.passage() {
            Ok(passage) => passage,
            Err(stall) => return Step::Blocked(0, stall),
        };
        if let Err(fault) = job.draft.fill(head, &mut self.context.thread.names) {
            self.recycle(job);
            return self.refuse(fault, input);
        }
        self.head_taken();
        self.context.session.lingers |= !head.keep_alive() && input.len() > head.bytes();
        self.dispatch((job, buffer), Frame::of(head));
        Step::On(head.bytes())
    }

    /// The request's body comes first.
    fn begin_body(&mut self, head: &Head<'_>, input: &[u8]) -> Step {
        let mut incoming = self.context.thread.incoming.pop().unwrap_or_default();
        let filled = incoming.draft.fill(head, &mut self.context.thread.names);
        incoming.begin(Frame::of(head), head.framing());
        if matches!(head.framing(), Framing::Length(length) if length > UPLOAD_LARGE_BYTES) {
            incoming.is_kept = true;
            self.context.receive_into(Pages::Listener);
        }
        self.context.session.incoming = Some(incoming);
        if let Err(fault) = filled {
            return self.refuse(fault, input);
        }
        self.head_taken();
        self.context.session.owes_continue = head.expect_continue();
        self.enter_body();
        Step::On(head.bytes())
    }

    pub(crate) fn enter_body(&mut self) {
        self.context.session.stage = Stage::Body;
        self.context.restart_phase(Phase::Body);
    }

    /// Takes what belongs to the body, and the request with it when that is all.
    pub(crate) fn take_body(&mut self, input: &[u8]) -> Step {
        if input.is_empty() {
            return Step::NeedMore(0);
        }
        let Some(mut incoming) = self.context.session.incoming.take() else {
            debug_assert!(false, "the body's request is kept while it arrives");
            self.context.session.stage = Stage::Head;
            return Step::On(0);
        };
        let fed = if incoming.is_streamed {
            self.feed_upload(&mut incoming, input)
        } else {
            self.feed(&mut incoming, input)
        };
        self.context.session.incoming = Some(incoming);
        match fed {
            Ok(Fed::More(bytes)) => Step::NeedMore(bytes),
            Ok(Fed::Stalled(bytes, stall)) => Step::Blocked(bytes, stall),
            Ok(Fed::Complete(bytes)) => {
                self.drop_incoming();
                self.context.receive_into(Pages::Common);
                if self.context.session.stage == Stage::Body {
                    self.context.session.stage = Stage::Head;
                }
                self.context.session.lingers |=
                    self.context.session.stage == Stage::Over && bytes < input.len();
                Step::On(bytes)
            }
            Err(fault) => self.refuse(fault, input),
        }
    }

    fn feed(&mut self, incoming: &mut Incoming, input: &[u8]) -> Result<Fed, Fault> {
        let mut rest = input;
        loop {
            let (decoder_before, rest_before) = (incoming.decoder, rest);
            let piece = incoming.decoder.next(&mut rest)?;
            let data: &[u8] = match piece {
                Piece::Data(data) => data,
                Piece::More | Piece::End => &[],
            };
            let announced = incoming.decoder.announced();
            let bytes = incoming
                .bytes
                .saturating_add(data.len() as u64)
                .saturating_add(announced);
            if bytes > self.context.protocol.limits.body_bytes_max && !incoming.is_discarded {
                return Err(Fault::BodyTooLong);
            }
            let is_complete = incoming.decoder.is_complete();
            let is_due = is_complete && !incoming.is_discarded;
            let passage = if is_due {
                self.passage().map(Some)
            } else {
                Ok(None)
            };
            let appended = passage.and_then(|passage| {
                let appended = self.append(incoming, data, announced);
                appended.map(|()| passage).map_err(|_| Stall::Memory)
            });
            let passage = match appended {
                Ok(passage) => passage,
                Err(stall) => {
                    // As if this piece had not been looked at: it is offered again.
                    incoming.decoder = decoder_before;
                    return Ok(Fed::Stalled(input.len() - rest_before.len(), stall));
                }
            };
            // A client that sends its body does not wait for leave any more.
            self.context.session.owes_continue &= data.is_empty();
            if let Some((mut job, buffer)) = passage {
                std::mem::swap(&mut job.draft, &mut incoming.draft);
                job.draft.set_body(incoming.take_body());
                self.dispatch((job, buffer), incoming.frame);
            }
            if is_complete {
                return Ok(Fed::Complete(input.len() - rest.len()));
            }
            if piece == Piece::More {
                return Ok(Fed::More(input.len()));
            }
        }
    }

    /// Keeps data of a body that arrives completely first: a large one where it lies, as long as
    /// that cannot use up what the connection may hold.
    fn append(&mut self, incoming: &mut Incoming, data: &[u8], more: u64) -> Result<(), NoRoom> {
        if !incoming.is_kept {
            return incoming.append(self.context.pool(), data, more);
        }
        if self.context.held() < UPLOAD_PIECE_PARTS as u32 {
            self.context.retain_or_copy(data, &mut incoming.piece)?;
        } else {
            self.context.copy(data, &mut incoming.piece)?;
        }
        incoming.bytes += data.len() as u64;
        Ok(())
    }

    /// What a request needs on its way to a worker, or what it has to wait for.
    fn passage(&mut self) -> Result<Passage<S>, Stall> {
        let buffer = self
            .context
            .pool()
            .take(REPLY_BUFFER_BYTES)
            .ok_or(Stall::Memory)?;
        let job = self.context.job().ok_or(Stall::Jobs)?;
        Ok((job, buffer))
    }

    /// Sends a request to the workers; its draft is filled.
    fn dispatch(&mut self, (mut job, buffer): Passage<S>, frame: Frame) {
        job.begin(self.context.session.take_number(), frame, Some(buffer));
        self.context.dispatch(job);
        if !frame.keep_alive || self.context.draining() {
            self.context.session.stage = Stage::Over;
            self.context.end_input();
        }
    }

    pub(crate) fn refuse(&mut self, fault: Fault, input: &[u8]) -> Step {
        self.fault(fault);
        Step::On(input.len())
    }
}
