//! The network thread's side of a body that is taken piece by piece; `sink` is the worker's.
//!
//! The job is at home (in `sending`) or with a worker. What arrives meanwhile gathers in
//! `incoming`, in the pages where it was received. When the job is at home and enough has gathered,
//! or the body is complete, it goes to a worker with all of it.
//!
//! Invariants
//! - U1: an upload's reply is the one that is due: a body is begun only when no reply is owed.
//! - U2: the end of the body is taken only when the job is at home, so that it can bring it.
//! - U3: what waits is bounded: by the fragments that a connection may hold, and what had to be
//!   copied by `UPLOAD_WAITING_BYTES_MAX`.

use flatpath::{Job, NoRoom, Pages, Payload, Stall};

use crate::body::Piece;
use crate::exchange::{Exchange, State};
use crate::fault::Fault;
use crate::hand::{Hand, Step};
use crate::head::{Framing, Head};
use crate::incoming::Incoming;
use crate::intake::Fed;
use crate::limits::{
    REPLY_BUFFER_BYTES, UPLOAD_COPY_BYTES_MAX, UPLOAD_LARGE_BYTES, UPLOAD_PIECE_BYTES,
    UPLOAD_PIECE_PARTS, UPLOAD_PRESSED_BYTES, UPLOAD_WAITING_BYTES_MAX,
};
use crate::protocol::Http;
use crate::reply::Frame;
use crate::service::Service;
use crate::session::Stage;

/// When what has gathered of a body goes to its sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// When it is worth a worker.
    Enough,
    /// Now, whatever there is: no memory for more.
    Short,
    /// Now: the body is complete.
    Last,
}

impl Exchange {
    /// Whether this is an upload that waits for more of its body.
    pub(crate) fn is_receiving(&self) -> bool {
        self.state == State::Receiving
    }
}

impl<S: Service> Hand<'_, '_, S> {
    /// Takes the head of a request whose body is streamed, and lets a worker open it.
    pub(crate) fn begin_upload(&mut self, head: &Head<'_>, input: &[u8]) -> Step {
        if self.context.session.owed() > 0 {
            // U1.
            return Step::Blocked(0, Stall::Pipeline);
        }
        let Some(mut job) = self.context.job() else {
            return Step::Blocked(0, Stall::Jobs);
        };
        if !self.context.lasts(&mut job) {
            self.recycle(job);
            return Step::Blocked(0, Stall::Lasting);
        }
        if let Err(fault) = job.draft.fill(head, &mut self.context.thread.names) {
            self.recycle(job);
            return self.refuse(fault, input);
        }
        let frame = Frame::of(head);
        let mut incoming = self.context.thread.incoming.pop().unwrap_or_default();
        incoming.begin(frame, head.framing());
        incoming.is_streamed = true;
        self.context.session.incoming = Some(incoming);
        self.context.session.follows_upload = true;
        self.head_taken();
        self.context.session.owes_continue = head.expect_continue();
        let is_large =
            !matches!(head.framing(), Framing::Length(length) if length <= UPLOAD_LARGE_BYTES);
        if is_large {
            self.context.receive_into(Pages::Listener);
        }
        job.begin_upload(self.context.session.take_number(), frame);
        self.context.dispatch(job);
        self.enter_body();
        Step::On(head.bytes())
    }

    /// True from the head of a streamed body to the end of the body.
    pub(crate) fn is_uploading(&self) -> bool {
        let incoming = self.context.session.incoming.as_ref();
        self.context.session.stage == Stage::Body
            && incoming.is_some_and(|incoming| incoming.is_streamed)
    }

    /// Takes what belongs to a streamed body.
    pub(crate) fn feed_upload(
        &mut self,
        incoming: &mut Incoming,
        input: &[u8],
    ) -> Result<Fed, Fault> {
        let mut rest = input;
        loop {
            let (decoder_before, rest_before) = (incoming.decoder, rest);
            let piece = incoming.decoder.next(&mut rest)?;
            let data: &[u8] = match piece {
                Piece::Data(data) => data,
                Piece::More | Piece::End => &[],
            };
            let is_complete = incoming.decoder.is_complete();
            let is_home = self.context.session.sending.is_some();
            let stall = if is_complete && !is_home {
                // U2.
                Some(Stall::Pipeline)
            } else if !is_home && incoming.piece.len() >= UPLOAD_WAITING_BYTES_MAX {
                // U3.
                Some(Stall::Pipeline)
            } else {
                let is_whole = data.len() == input.len();
                let kept = match is_complete {
                    true => self.take_head_buffer(),
                    false => Ok(()),
                };
                let kept = kept.and_then(|()| self.gather(&mut incoming.piece, data, is_whole));
                kept.err().map(|_| Stall::Memory)
            };
            if let Some(stall) = stall {
                // As if this piece had not been looked at: it is offered again.
                incoming.decoder = decoder_before;
                let due = match stall {
                    Stall::Memory => Due::Short,
                    _ => Due::Enough,
                };
                self.pass_piece(incoming, due);
                // What is with a worker now makes room when it is back.
                let is_away = self.context.session.sending.is_none();
                let stall = if is_away { Stall::Pipeline } else { stall };
                return Ok(Fed::Stalled(input.len() - rest_before.len(), stall));
            }
            incoming.bytes += data.len() as u64;
            self.context.session.owes_continue &= data.is_empty();
            if is_complete {
                self.pass_piece(incoming, Due::Last);
                return Ok(Fed::Complete(input.len() - rest.len()));
            }
            if piece == Piece::More {
                self.pass_piece(incoming, Due::Enough);
                return Ok(Fed::More(input.len()));
            }
        }
    }

    /// The reply of an upload whose last piece is here gets its buffer.
    fn take_head_buffer(&mut self) -> Result<(), NoRoom> {
        let Some(job) = &mut self.context.session.sending else {
            return Ok(());
        };
        if job.head.is_none() {
            job.head = self.context.io.pool().take(REPLY_BUFFER_BYTES);
        }
        job.head.as_ref().map(|_| ()).ok_or(NoRoom)
    }

    /// Keeps data where it lies. What is short and has framing around it is copied: a page for each
    /// would cost more.
    fn gather(&mut self, piece: &mut Payload, data: &[u8], is_whole: bool) -> Result<(), NoRoom> {
        if data.is_empty() {
            return Ok(());
        }
        let follows_copy = matches!(piece.parts().last(), Some(flatpath::Part::Copied(_)));
        if !is_whole && data.len() < UPLOAD_COPY_BYTES_MAX && (follows_copy || !piece.is_empty()) {
            return self.context.copy(data, piece);
        }
        self.context.retain_or_copy(data, piece)
    }

    /// Sends what has gathered to a worker, if one can take it and it is worth one: less is while
    /// memory runs short, so that slow clients cannot fill it with what waits to be more.
    fn pass_piece(&mut self, incoming: &mut Incoming, due: Due) {
        let enough_bytes = match due {
            Due::Short => 1,
            _ if self.context.pool().is_pressed() => UPLOAD_PRESSED_BYTES,
            _ => UPLOAD_PIECE_BYTES,
        };
        let is_enough = incoming.piece.len() >= enough_bytes
            || incoming.piece.parts_count() >= UPLOAD_PIECE_PARTS;
        let is_last = due == Due::Last;
        if !is_enough && !is_last {
            return;
        }
        let Some(mut job) = self.context.session.sending.take() else {
            return;
        };
        if let Some(upload) = &mut job.upload {
            upload.piece = std::mem::take(&mut incoming.piece);
            upload.is_last = is_last;
        }
        self.context.dispatch(job);
        let ends = !incoming.frame.keep_alive || self.context.draining();
        if is_last && ends {
            self.context.session.stage = Stage::Over;
            self.context.end_input();
        }
    }

    /// Memory is short: what has gathered of an upload goes to a worker now.
    pub(crate) fn pressed(&mut self) {
        if !self.is_uploading() {
            return;
        }
        if let Some(mut incoming) = self.context.session.incoming.take() {
            self.pass_piece(&mut incoming, Due::Short);
            self.context.session.incoming = Some(incoming);
        }
    }

    /// A job is back: an upload that wants more stays here, anything else is handed through.
    pub(crate) fn upload_returned(&mut self, job: Job<Http<S>>) -> Option<Job<Http<S>>> {
        if job.is_receiving() {
            if !self.is_uploading() {
                // Its body will never be complete.
                if !self.pass_remainder(job) {
                    self.skip_reply();
                }
                return None;
            }
            self.context.session.sending = Some(job);
            if let Some(mut incoming) = self.context.session.incoming.take() {
                self.pass_piece(&mut incoming, Due::Enough);
                self.context.session.incoming = Some(incoming);
            }
            return None;
        }
        if self.is_uploading() && job.number == self.context.session.next_reply {
            // The service wants no more of the body, and says why.
            self.context.session.lingers = true;
            self.drop_incoming();
            self.end_input();
        }
        if let Some(incoming) = self.context.session.incoming.take_if(|it| it.is_abandoned) {
            // Nor can it use the rest.
            self.context.thread.recycle_incoming(incoming);
        }
        Some(job)
    }

    /// The body of an upload will never be complete. A sink that can use what arrived of it gets
    /// that first; one that is with a worker gets it when it is back.
    pub(crate) fn abandon_upload(&mut self) {
        match self
            .context
            .session
            .sending
            .take_if(|job| job.is_receiving())
        {
            Some(job) => {
                if !self.pass_remainder(job) {
                    self.context.session.next_reply =
                        self.context.session.next_reply.wrapping_add(1);
                }
            }
            None => {
                if let Some(incoming) = &mut self.context.session.incoming {
                    incoming.is_abandoned = incoming.is_streamed;
                }
            }
        }
    }

    /// Sends what gathered of an abandoned body to a worker, if the sink can use it; the job is
    /// recycled otherwise.
    fn pass_remainder(&mut self, mut job: Job<Http<S>>) -> bool {
        let mut incoming = self.context.session.incoming.take();
        let mut is_passed = false;
        if let (Some(upload), Some(incoming)) = (&mut job.upload, &mut incoming)
            && !incoming.piece.is_empty()
            && upload.keeps_parts()
        {
            upload.piece = std::mem::take(&mut incoming.piece);
            is_passed = true;
        }
        if let Some(incoming) = incoming {
            self.context.thread.recycle_incoming(incoming);
        }
        match is_passed {
            true => self.context.dispatch(job),
            false => self.recycle(job),
        }
        is_passed
    }

    /// The reply that is due will never be made; what waits behind it goes out.
    fn skip_reply(&mut self) {
        self.context.session.next_reply = self.context.session.next_reply.wrapping_add(1);
        self.deliver_or_stall();
        if !self.context.session.is_closed
            && self.context.session.stage == Stage::Over
            && self.context.session.owed() == 0
        {
            self.close();
        }
    }
}
