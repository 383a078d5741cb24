//! A protocol made of a framing and a handler.
//!
//! It does what every protocol of requests and replies has to do: says which deadline guards the
//! connection, stops at a client that does not read, takes back half a reply, refuses a message
//! that can never be whole, gathers bodies, ends after a drain.
//!
//! Invariants
//! - FM1: a message is given to the handler once, but for one whose reply found no room.
//! - FM2: at most `at_work_max` messages of a connection are with workers or wait, answered, for
//!   their turn to be sent. One that is alone has none beside it, before or after.
//! - FM3: replies have the order of their messages, unless the protocol sends them as they are
//!   ready (`replies.rs`). In order, what the network thread writes waits until no worker has a
//!   message. Out of order it does not, but never divides a reply.
//! - FM4: a message, or a body, whose reply is not written yet is consumed only if the session or a
//!   job holds it.
//! - FM5: after the end that a handler asked for no message is begun.
//!
//! Cost: a message that is answered on the network thread looks at a few words of the session; one
//! for a worker is copied into a job that is used again, so that after warm-up none is allocated.

use std::marker::PhantomData;

use super::handler::{Handler, Inline, Input, Next, Place, Pooled};
use super::replies::{Order, Replies};
use super::reply::Reply;
use super::{Framing, TooLong};
use crate::error::NoRoom;
use crate::limits::AT_WORK_MAX;
use crate::memory::Payload;
use crate::protocol::context::{Context, Job};
use crate::protocol::io::Io;
use crate::protocol::phase::{Phase, Stall};
use crate::protocol::{Event, Protocol, Received};
use crate::server::options::ListenerOptions;
use crate::workers::scope::WorkerScope;

/// A protocol of messages: `F` finds them, `H` answers them. See [the module](super).
///
/// ```
/// use flatpath::framing::{Framed, LengthPrefix, Next};
///
/// // Answered at once, on the network thread; a new connection has a new count.
/// let counts = Framed::inline("counts", LengthPrefix::u16(1024), |count: &mut u64, io, message| {
///     *count += message.len() as u64;
///     io.write(&count.to_be_bytes())?;
///     Ok(Next::Message)
/// });
/// # let _ = counts;
/// ```
pub struct Framed<F, H> {
    name: &'static str,
    framing: F,
    handler: H,
    too_long: &'static [u8],
    at_work_max: u32,
    order: Order,
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

    /// A protocol whose messages are answered on workers by a function that writes the reply, and
    /// may block. One message of a connection is answered at a time, unless
    /// [`Framed::at_work_max`] allows more.
    ///
    /// ```
    /// use flatpath::framing::{Framed, Lines, Next};
    ///
    /// let sizes = Framed::pooled("sizes", Lines::new(4096), |path, reply| {
    ///     match std::fs::metadata(String::from_utf8_lossy(path).as_ref()) {
    ///         Ok(data) => reply.write(format!("{}\n", data.len()).as_bytes()),
    ///         Err(error) => reply.write(format!("ERROR {error}\n").as_bytes()),
    ///     }
    ///     Next::Message
    /// });
    /// # let _ = sizes;
    /// ```
    pub fn pooled<T>(name: &'static str, framing: F, answer: T) -> Framed<F, Pooled<T>>
    where
        T: Fn(&[u8], &mut Reply) -> Next + Send + Sync + 'static,
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
            at_work_max: 1,
            order: Order::Kept,
        }
    }

    /// The reply to a message that is too long, before the connection ends.
    #[must_use]
    pub fn too_long(mut self, words: &'static [u8]) -> Framed<F, H> {
        self.too_long = words;
        self
    }

    /// How many messages of one connection may be with workers at a time
    /// ([`Place::Worker`]); one unless set. As many replies may wait for one that is before them,
    /// or for memory.
    ///
    /// # Panics
    /// For 0, and for more than [`AT_WORK_MAX`].
    #[must_use]
    #[track_caller]
    pub fn at_work_max(mut self, messages: u32) -> Framed<F, H> {
        assert!(
            (1..=AT_WORK_MAX).contains(&messages),
            "{messages} messages at work are not 1 to {AT_WORK_MAX}"
        );
        self.at_work_max = messages;
        self
    }

    /// Sends replies in the order in which they are ready, and answers on the network thread what
    /// is to be answered there while workers have other messages: for protocols whose replies name
    /// their request.
    #[must_use]
    pub fn replies_as_ready(mut self) -> Framed<F, H> {
        self.order = Order::AsReady;
        self
    }
}

/// One connection.
pub struct Session<F: Framing, H: Handler> {
    handler: H::Session,
    /// Bytes that are to come of a body; none between bodies.
    missing: Option<usize>,
    body: Payload,
    /// What workers have, and replies of theirs that are not written yet.
    replies: Replies<Job<Framed<F, H>>>,
    /// A reply is due, or the greeting, that found no room.
    owes: bool,
    /// The handler has seen the connection.
    is_greeted: bool,
    /// A worker has a message that is alone, or its reply is not written.
    is_alone: bool,
    /// The client has sent its last byte.
    has_ended: bool,
    /// Input was left unconsumed.
    has_left: bool,
    end: End,
}

flatpath_structures::opaque_debug! {
    impl[F, H] Framed<F, H> as "Framed";
    impl[F: Framing, H: Handler] Session<F, H> as "Session";
    impl[W] Task<W> as "Task";
}

/// How far the connection is with its end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    No,
    /// Nothing is begun any more (FM5).
    Nears,
    /// Nothing is written any more.
    Closes,
}

impl<F: Framing, H: Handler> Default for Session<F, H> {
    fn default() -> Self {
        Session {
            handler: H::Session::default(),
            missing: None,
            body: Payload::new(),
            replies: Replies::default(),
            owes: false,
            is_greeted: false,
            is_alone: false,
            has_ended: false,
            has_left: false,
            end: End::No,
        }
    }
}

/// One message on its way to a worker, and its reply.
pub struct Task<W> {
    number: u32,
    is_alone: bool,
    /// None once the session has it, and after a panic.
    work: Option<W>,
    input: Input,
    reply: Reply,
    next: Next,
}

impl<W> Default for Task<W> {
    fn default() -> Self {
        Task {
            number: 0,
            is_alone: false,
            work: None,
            input: Input::default(),
            reply: Reply::default(),
            next: Next::Message,
        }
    }
}

impl<W> Task<W> {
    /// Drops what it holds, but for memory that is used again.
    fn empty(&mut self) {
        self.work = None;
        self.input.message.clear();
        self.input.body = Payload::new();
        self.reply.clear();
    }
}

/// What a step did: used bytes of the input, or found nothing to do.
type Step = Result<Option<usize>, Stall>;

impl<F: Framing, H: Handler> Framed<F, H> {
    /// Continues with the front of the input: how many bytes were used, none if it needs more, or
    /// why it has to wait.
    fn step(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Step {
        if context.session.owes {
            self.pay(context).map_err(|NoRoom| Stall::Memory)?;
        }
        let session = &*context.session;
        let needs_input = session.missing != Some(0);
        if session.end != End::No || needs_input && input.is_empty() {
            return Ok(None);
        }
        if session.is_alone || session.replies.at_work() >= self.at_work_max {
            return Err(Stall::Pipeline);
        }
        // A body that is whole leaves no input, with whose offer a stall would end.
        if needs_input && context.output_is_full() {
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
                    Self::expect_none_at_work(context)?;
                    context.write_static(self.too_long);
                    context.session.end = End::Nears;
                    Ok(None)
                }
            },
        }
    }

    fn expect_none_at_work(context: &Context<'_, Self>) -> Result<(), Stall> {
        match context.session.replies.at_work() {
            0 => Ok(()),
            _ => Err(Stall::Pipeline),
        }
    }

    /// Whether the network thread may write now (FM3).
    fn expect_turn(&self, context: &Context<'_, Self>) -> Result<(), Stall> {
        match self.order {
            Order::Kept => Self::expect_none_at_work(context),
            Order::AsReady => Ok(()),
        }
    }

    fn give(&self, context: &mut Context<'_, Self>, message: &[u8]) -> Result<(), Stall> {
        let place = self.handler.place(&context.session.handler, message);
        let Some(mut job) = self.job(context, place)? else {
            let (io, session) = (&mut context.io, &mut context.session.handler);
            let answer = |io: &mut Io<'_>| self.handler.message(session, io, message);
            let next = io.reply(answer).map_err(|NoRoom| Stall::Memory)?;
            Self::follow(context, next);
            return Ok(());
        };
        job.input.message.extend_from_slice(message);
        context.dispatch(job);
        Ok(())
    }

    /// A job for a message that goes to a worker. None: the network thread may answer it now.
    fn job(
        &self,
        context: &mut Context<'_, Self>,
        place: Place<H::Work>,
    ) -> Result<Option<Job<Self>>, Stall> {
        let (work, is_alone) = match place {
            Place::Here => return self.expect_turn(context).map(|()| None),
            Place::Worker(work) => (work, false),
            Place::Alone(work) => {
                Self::expect_none_at_work(context)?;
                (work, true)
            }
        };
        let mut job = context.job().ok_or(Stall::Jobs)?;
        job.number = context.session.replies.begin();
        (job.is_alone, context.session.is_alone) = (is_alone, is_alone);
        job.work = Some(work);
        Ok(Some(job))
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
        let session = &*context.session;
        let place = self.handler.place_body(&session.handler, &session.body);
        let job = self.job(context, place)?;
        let (io, session) = (&mut context.io, &mut *context.session);
        if let Some(mut job) = job {
            session.missing = None;
            job.input.body = std::mem::take(&mut session.body);
            context.dispatch(job);
            return Ok(());
        }
        let (state, body) = (&mut session.handler, &session.body);
        let next = io.reply(|io| self.handler.body(state, io, body));
        let next = next.map_err(|NoRoom| Stall::Memory)?;
        session.missing = None;
        session.body = Payload::new();
        Self::follow(context, next);
        Ok(())
    }

    /// Gives a body that has waited for its turn: there may be no input with which it would be.
    fn give_waiting(&self, context: &mut Context<'_, Self>) {
        if context.session.missing == Some(0)
            && let Err(on @ (Stall::Memory | Stall::Jobs)) = self.step(context, &[])
        {
            context.stall(on);
        }
    }

    fn follow(context: &mut Context<'_, Self>, next: Next) {
        match next {
            Next::Message => {}
            Next::Body(bytes) => context.session.missing = Some(bytes),
            Next::Close => context.session.end = End::Nears,
        }
    }

    /// Ends the connection after its output. The client may be sending: it gets no reset.
    fn close(context: &mut Context<'_, Self>) {
        context.session.end = End::Closes;
        Self::drop_late(context);
        context.close_lingering();
    }

    /// Drops replies of workers that are no longer sent.
    fn drop_late(context: &mut Context<'_, Self>) {
        for job in context.session.replies.take_all() {
            Self::reuse(context, job);
        }
    }

    fn reuse(context: &mut Context<'_, Self>, mut job: Job<Self>) {
        job.empty();
        context.recycle(job);
    }

    /// Greets, and writes the replies that are due.
    fn pay(&self, context: &mut Context<'_, Self>) -> Result<(), NoRoom> {
        context.session.owes = true;
        if !context.session.is_greeted {
            let (io, session) = (&mut context.io, &mut context.session.handler);
            let next = io.reply(|io| self.handler.connected(session, io))?;
            context.session.is_greeted = true;
            Self::follow(context, next);
        }
        while context.session.end != End::Closes {
            let (io, session) = (&mut context.io, &mut *context.session);
            let Some(job) = session.replies.due() else {
                break;
            };
            if let Some(work) = job.work.take() {
                self.handler.worked(&mut session.handler, work);
            }
            job.reply.send(io)?;
            self.paid(context);
        }
        context.session.owes = false;
        Ok(())
    }

    /// A reply is written.
    fn paid(&self, context: &mut Context<'_, Self>) {
        let Some(job) = context.session.replies.finish() else {
            return;
        };
        let (next, is_alone) = (job.next, job.is_alone);
        Self::reuse(context, job);
        if is_alone {
            context.session.is_alone = false;
        }
        match next {
            Next::Body(_) if !is_alone => {
                debug_assert!(false, "{}: a body after work beside others", self.name);
                context.session.end = End::Nears;
            }
            // What is after it in the order is after the end.
            Next::Close if self.order == Order::Kept => Self::close(context),
            next => Self::follow(context, next),
        }
    }

    fn greet(&self, context: &mut Context<'_, Self>) {
        if let Err(NoRoom) = self.pay(context) {
            context.stall(Stall::Memory);
        } else if context.session.end != End::No {
            Self::close(context);
        }
    }

    fn end_input(&self, context: &mut Context<'_, Self>) {
        context.session.has_ended = true;
        if context.session.missing == Some(0) {
            self.give_waiting(context);
            return Self::settle(context, true);
        }
        // A body that is incomplete stays so.
        context.session.missing = None;
        if Self::rests(context) {
            context.close_after_output();
        }
    }

    /// Whether nothing of the connection is in work.
    fn rests(context: &Context<'_, Self>) -> bool {
        let session = &*context.session;
        session.replies.at_work() == 0 && !session.owes && session.missing.is_none()
    }

    /// Says what the connection waits for now, and ends it if nothing is to come any more.
    fn settle(context: &mut Context<'_, Self>, has_moved: bool) {
        let session = &*context.session;
        let (has_left, is_at_work) = (session.has_left, session.replies.at_work() > 0);
        let phase = if is_at_work {
            Phase::Work
        } else if session.missing.is_some() {
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
        let session = &*context.session;
        match session.end {
            End::No if has_left || !Self::rests(context) => {}
            End::No if session.has_ended => context.close_after_output(),
            End::No if context.draining() => Self::close(context),
            End::Nears if !is_at_work && !session.owes => Self::close(context),
            _ => {}
        }
    }
}

impl<F: Framing, H: Handler> Protocol for Framed<F, H> {
    type ThreadState = ();
    type Session = Session<F, H>;
    type Job = Task<H::Work>;

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named(self.name)
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let (mut consumed, mut has_moved) = (0, context.session.owes);
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

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Connected => self.greet(context),
            Event::InputEnded(_) => self.end_input(context),
            Event::Draining if Self::rests(context) => Self::close(context),
            Event::Draining => {}
            Event::Abandoned => {
                context.session.body = Payload::new();
                Self::drop_late(context);
            }
            other => other.by_default(context),
        }
    }

    fn run(&self, task: &mut Task<H::Work>, _: &mut WorkerScope<'_>) {
        if let Some(work) = &mut task.work {
            task.next = self.handler.work(work, &mut task.input, &mut task.reply);
        }
    }

    fn panicked(&self, task: &mut Task<H::Work>) {
        task.empty();
        task.next = Next::Close;
    }

    fn finished(&self, context: &mut Context<'_, Self>, job: Job<Self>) {
        let number = job.number;
        context.session.replies.came_back(self.order, number, job);
        if context.session.end == End::Closes {
            return Self::drop_late(context);
        }
        if let Err(NoRoom) = self.pay(context) {
            context.stall(Stall::Memory);
        } else {
            self.give_waiting(context);
        }
        Self::settle(context, true);
    }

    fn retire(&self, (): &mut (), task: &mut Task<H::Work>) {
        task.empty();
    }
}
