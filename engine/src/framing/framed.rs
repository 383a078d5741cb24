//! A protocol made of a framing and a handler.
//!
//! It does what every protocol of requests and replies has to do: says which deadline guards the
//! connection, stops at a client that does not read, takes back half a reply, refuses a message
//! that can never be whole, gathers bodies, ends after a drain.
//!
//! Invariants
//! - A message is given to the handler once, but for one whose reply found no room.
//! - Replies have the order of their messages: while a worker has one of a connection's
//!   messages, none of its later ones is begun.
//! - A message, or a body, whose reply is not written yet is consumed only if the session or a
//!   job holds it.

use std::marker::PhantomData;

use bytes::Bytes;

use super::handler::{Handler, Inline, Next, Pooled};
use super::{Framing, TooLong};
use crate::context::{Context, Job};
use crate::error::NoRoom;
use crate::io::Io;
use crate::limits::SHARED_COPY_BYTES_MAX;
use crate::memory::Payload;
use crate::phase::{Phase, Stall};
use crate::protocol::{Protocol, Received};
use crate::scope::WorkerScope;

/// A protocol of messages: `F` finds them, `H` answers them. See [the module](super).
pub struct Framed<F, H> {
    name: &'static str,
    framing: F,
    handler: H,
    too_long: &'static [u8],
}

impl<F: Framing> Framed<F, ()> {
    /// A protocol whose messages are answered on the network thread by a function of the
    /// connection's state, the connection, and the message. It must not block; what it writes is
    /// sent as a whole or not at all, as with a [`Handler`].
    pub fn inline<S, T>(name: &'static str, framing: F, answer: T) -> Framed<F, Inline<S, T>>
    where
        S: Default + 'static,
        T: Fn(&mut S, &mut Io<'_>, &[u8]) -> Result<Next, NoRoom> + Send + Sync + 'static,
    {
        Framed::new(name, framing, Inline(answer, PhantomData))
    }

    /// A protocol whose messages are answered on workers by a function that appends the reply, and
    /// may block. One message of a connection is answered at a time.
    pub fn pooled<T>(name: &'static str, framing: F, answer: T) -> Framed<F, Pooled<T>>
    where
        T: Fn(&[u8], &mut Vec<u8>) + Send + Sync + 'static,
    {
        Framed::new(name, framing, Pooled(answer))
    }
}

impl<F: Framing, H: Handler> Framed<F, H> {
    /// A protocol called `name` in logs.
    pub fn new(name: &'static str, framing: F, handler: H) -> Framed<F, H> {
        Framed {
            name,
            framing,
            handler,
            too_long: b"",
        }
    }

    /// What a client is told whose message is too long, before the connection ends.
    #[must_use]
    pub fn too_long(mut self, words: &'static [u8]) -> Framed<F, H> {
        self.too_long = words;
        self
    }
}

/// One connection.
pub struct Session<F: Framing, H: Handler> {
    handler: H::Session,
    /// Bytes that are to come of a body; none between bodies.
    missing: Option<usize>,
    body: Payload,
    /// A reply of a worker that is not written yet.
    held: Option<Job<Framed<F, H>>>,
    /// The client has sent its last byte.
    has_ended: bool,
    /// Input was left unconsumed.
    has_left: bool,
    is_closing: bool,
}

impl<F: Framing, H: Handler> Default for Session<F, H> {
    fn default() -> Self {
        Session {
            handler: H::Session::default(),
            missing: None,
            body: Payload::new(),
            held: None,
            has_ended: false,
            has_left: false,
            is_closing: false,
        }
    }
}

/// One message on its way to a worker, and its reply.
#[derive(Debug, Default)]
pub struct Work {
    message: Vec<u8>,
    reply: Vec<u8>,
    has_panicked: bool,
}

/// What a step did: used bytes of the input, or found nothing to do.
type Step = Result<Option<usize>, Stall>;

impl<F: Framing, H: Handler> Framed<F, H> {
    /// Goes on with the front of the input: how many bytes were used, none if it needs more, or why
    /// it has to wait.
    fn step(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Step {
        self.write_held(context).map_err(|NoRoom| Stall::Memory)?;
        let needs_input = context.session.missing != Some(0);
        if context.session.is_closing || needs_input && input.is_empty() {
            return Ok(None);
        }
        if context.jobs_out() > 0 {
            return Err(Stall::Pipeline);
        }
        if context.output_is_full() {
            return Err(Stall::Output);
        }
        match context.session.missing {
            Some(0) => self.give_body(context).map(|()| Some(0)),
            Some(missing) => Self::gather(context, missing, input),
            None => match self.framing.first(input) {
                Ok(Some(frame)) => {
                    self.give(context, frame.message)?;
                    Ok(Some(frame.bytes))
                }
                Ok(None) => Ok(None),
                Err(TooLong { .. }) => {
                    context.write_static(self.too_long);
                    Self::close(context);
                    Ok(None)
                }
            },
        }
    }

    fn give(&self, context: &mut Context<'_, Self>, message: &[u8]) -> Result<(), Stall> {
        if self.handler.is_pooled(&context.session.handler, message) {
            let mut job = context.job().ok_or(Stall::Jobs)?;
            job.message.clear();
            job.message.extend_from_slice(message);
            context.dispatch(job);
            return Ok(());
        }
        let (io, session) = (&mut context.io, &mut context.session.handler);
        let answer = |io: &mut Io<'_>| self.handler.message(session, io, message);
        let next = io.reply(answer).map_err(|NoRoom| Stall::Memory)?;
        Self::follow(context, next);
        Ok(())
    }

    fn gather(context: &mut Context<'_, Self>, missing: usize, input: &[u8]) -> Step {
        let taken = missing.min(input.len());
        let (io, session) = (&mut context.io, &mut *context.session);
        let copied = io.copy(&input[..taken], &mut session.body);
        copied.map_err(|NoRoom| Stall::Memory)?;
        session.missing = Some(missing - taken);
        Ok(Some(taken))
    }

    fn give_body(&self, context: &mut Context<'_, Self>) -> Result<(), Stall> {
        let (io, session) = (&mut context.io, &mut *context.session);
        let (state, body) = (&mut session.handler, &session.body);
        let next = io.reply(|io| self.handler.body(state, io, body));
        let next = next.map_err(|NoRoom| Stall::Memory)?;
        session.missing = None;
        session.body = Payload::new();
        Self::follow(context, next);
        Ok(())
    }

    fn follow(context: &mut Context<'_, Self>, next: Next) {
        match next {
            Next::Message => {}
            Next::Body(bytes) => context.session.missing = Some(bytes),
            Next::Close => Self::close(context),
        }
    }

    /// Ends the connection after its output. The client may be sending: it gets no reset.
    fn close(context: &mut Context<'_, Self>) {
        context.session.is_closing = true;
        context.close_lingering();
    }

    /// Writes the reply that a worker brought, if there is one.
    fn write_held(&self, context: &mut Context<'_, Self>) -> Result<(), NoRoom> {
        let Some(mut job) = context.session.held.take() else {
            return Ok(());
        };
        if job.reply.len() > SHARED_COPY_BYTES_MAX {
            let reply = Bytes::from(std::mem::take(&mut job.reply));
            context.write_shared(reply)?;
        } else if let Err(NoRoom) = context.write(&job.reply) {
            context.session.held = Some(job);
            return Err(NoRoom);
        }
        let has_panicked = job.has_panicked;
        Self::empty(&mut job);
        context.recycle(job);
        if has_panicked {
            Self::close(context);
        }
        Ok(())
    }

    fn empty(work: &mut Work) {
        work.message.clear();
        work.reply.clear();
        work.has_panicked = false;
    }

    /// Whether nothing of the connection is in work.
    fn rests(context: &Context<'_, Self>) -> bool {
        let session = &*context.session;
        context.jobs_out() == 0 && session.held.is_none() && session.missing.is_none()
    }

    /// Says what the connection waits for now, and ends it if nothing is to come any more.
    fn settle(context: &mut Context<'_, Self>, has_moved: bool) {
        let has_left = context.session.has_left;
        let phase = if context.jobs_out() > 0 || context.session.held.is_some() {
            Phase::Work
        } else if context.session.missing.is_some() {
            Phase::Body
        } else if has_left {
            Phase::Head
        } else {
            Phase::Idle
        };
        if has_moved {
            context.restart_phase(phase);
        } else {
            context.phase(phase);
        }
        if !has_left && Self::rests(context) && !context.session.is_closing {
            if context.session.has_ended {
                context.close_after_output();
            } else if context.draining() {
                Self::close(context);
            }
        }
    }
}

impl<F: Framing, H: Handler> Protocol for Framed<F, H> {
    type ThreadState = ();
    type Session = Session<F, H>;
    type Job = Work;

    fn name(&self) -> &'static str {
        self.name
    }

    fn thread_state(&self) {}

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let (mut consumed, mut has_moved) = (0, context.session.held.is_some());
        let blocked = loop {
            let began_body = context.session.missing;
            match self.step(context, &input[consumed..]) {
                Ok(Some(used)) => {
                    consumed += used;
                    // More of the same body is no new phase: its deadline looks at its rate.
                    has_moved |= began_body.is_none() || context.session.missing.is_none();
                }
                Ok(None) => break None,
                Err(on) => break Some(on),
            }
        };
        context.session.has_left = consumed < input.len();
        Self::settle(context, has_moved);
        match blocked {
            Some(on) => Received::Blocked { consumed, on },
            None => Received::NeedMore { consumed },
        }
    }

    fn input_ended(&self, context: &mut Context<'_, Self>, _: &[u8]) {
        context.session.has_ended = true;
        // A body that is incomplete stays so.
        context.session.missing = None;
        if Self::rests(context) {
            context.close_after_output();
        }
    }

    fn run(&self, work: &mut Work, _: &mut WorkerScope<'_>) {
        self.handler.work(&work.message, &mut work.reply);
    }

    fn panicked(&self, work: &mut Work) {
        work.reply.clear();
        work.has_panicked = true;
    }

    fn finished(&self, context: &mut Context<'_, Self>, work: Job<Self>) {
        context.session.held = Some(work);
        if let Err(NoRoom) = self.write_held(context) {
            context.stall(Stall::Memory);
        }
        Self::settle(context, true);
    }

    fn retire(&self, (): &mut (), work: &mut Work) {
        Self::empty(work);
    }

    fn draining(&self, context: &mut Context<'_, Self>) {
        if Self::rests(context) {
            Self::close(context);
        }
    }

    fn abandoned(&self, context: &mut Context<'_, Self>) {
        context.session.body = Payload::new();
    }
}
