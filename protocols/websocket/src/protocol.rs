//! The engine's protocol: what happens on a connection after its handshake.
//!
//! | the client is      | phase  | at its deadline                                             |
//! |--------------------|--------|-------------------------------------------------------------|
//! | silent             | `Idle` | a ping; after another without a sign of life it is cut off  |
//! | amid a head        | `Head` | 1008                                                        |
//! | amid a message     | `Body` | 1008                                                        |
//! | being answered     | `Work` | none: only sending has one                                  |
//! | to answer a close  | `Head` | the connection is closed; sooner while the server drains    |
//!
//! Invariants
//! - W1: messages are handled one after the other, in their order. Of a pooled handler the messages
//!   that arrived meanwhile wait in the session; beyond [`WAITING_BYTES_MAX`] nothing is read.
//! - W2: pings are answered while a worker is busy, up to the first message that has to wait.
//! - W3: an end, whatever its reason, comes after the messages before it are handled and what their
//!   handler sent is queued.
//! - W5: a handler is opened once, before its first message and after the answer to the handshake:
//!   its first call is on a connection that sends.
//! - W6: a pooled handler gets messages while its answers find room: where its client does not
//!   read, or there is no memory for what waits, its input waits instead of a worker.
//! - W7: what one connection has inflated at a time is bounded ([`INFLATED_BYTES_MAX`]): its next
//!   messages come after what waits of others, on a worker as on the network thread.
//! - W4: after our close frame nothing is sent; what the client still sends is dropped until it
//!   answers.

use std::marker::PhantomData;

use bytes::Bytes;
use flatpath::{
    Context, Io, Job, ListenerOptions, NoRoom, Phase, Protocol, Stall, WorkerScope, discard,
};
use flatpath_structures::panics::contain;

use crate::close::{Close, code};
use crate::decoder::{Event, Received, Stopped};
use crate::encode::{Frame, Opcode};
use crate::fault::Fault;
use crate::handler::Handler;
use crate::limits::{INFLATED_BYTES_MAX, Limits, WAITING_BYTES_MAX};
use crate::session::{Desk, End, Open, Session, Work};
use crate::socket::Flushed;

/// A close frame with 1013: there is no memory for this connection now.
const REFUSAL: [u8; 4] = [0x88, 2, 0x03, 0xF5];

/// A ping that carries nothing.
const PING: [u8; 2] = [0x89, 0];

/// Where the messages of a socket are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Inline,
    Pooled,
}

/// The protocol behind a [`WebSocket`](crate::WebSocket).
pub(crate) struct Sockets<H> {
    place: Place,
    limits: Limits,
    handlers: PhantomData<fn() -> H>,
}

impl<H> Sockets<H> {
    pub(crate) fn new(place: Place, limits: Limits) -> Sockets<H> {
        Sockets {
            place,
            limits,
            handlers: PhantomData,
        }
    }
}

impl<H: Handler> Sockets<H> {
    /// Takes the next event from the input. False: there is none.
    fn step(&self, context: &mut Context<'_, Self>, input: &mut &[u8]) -> Result<bool, Stall> {
        let Some(open) = &mut context.session.0 else {
            return Ok(false);
        };
        flush(open, &mut context.io)?;
        if open.end.is_some() {
            // W4, and after a fault: none of it counts.
            *input = &[];
            return Ok(false);
        }
        if open.socket.is_full(&mut context.io) {
            return Err(Stall::Output);
        }
        if open.inflated_bytes >= INFLATED_BYTES_MAX && !input.is_empty() {
            return Err(Stall::Turn);
        }
        if open.waiting_bytes >= WAITING_BYTES_MAX || open.drains && !open.is_handled() {
            Self::hand_on(context)?;
            return Err(Stall::Pipeline);
        }
        let before = *input;
        let event = open.decoder.next(input, &self.limits, context.io.pool());
        match event {
            Ok(None) => Ok(false),
            Ok(Some(event)) => {
                let taken = self.event(context, event);
                if taken.is_err() {
                    *input = before;
                }
                taken.map(|()| true).map_err(|NoRoom| Stall::Memory)
            }
            Err(Stopped::NoRoom) => Err(Stall::Memory),
            Err(Stopped::Fault(fault)) => {
                open.ends(End::Fault(fault));
                Ok(true)
            }
        }
    }

    /// Does what an event asks for.
    ///
    /// # Errors
    /// There is no memory for the answer to a ping; the event is to come again.
    fn event(&self, context: &mut Context<'_, Self>, event: Event) -> Result<(), NoRoom> {
        let Some(open) = &mut context.session.0 else {
            return Ok(());
        };
        match event {
            Event::Ping(payload) if !open.said_close => {
                let pong = Frame::new(Opcode::Pong, payload);
                context.io.reply(|io| {
                    io.write(pong.head())?;
                    io.write(pong.payload())
                })?;
            }
            Event::Message(received) if !open.said_close => match self.place {
                Place::Inline => self.handle(open, received),
                Place::Pooled => open.wait(received),
            },
            Event::Close(close) => open.ends(End::Received(Box::new(close))),
            Event::Ping(_) | Event::Pong | Event::Message(_) => {}
        }
        Ok(())
    }

    /// Handles a message on the network thread.
    fn handle(&self, open: &mut Open<H>, received: Received) {
        let limits = &self.limits;
        Self::inline(open, |desk| desk.message(received, limits));
    }

    /// Calls the handler on the network thread.
    fn inline(open: &mut Open<H>, act: impl FnOnce(&mut Desk<H>) -> Result<(), Fault>) {
        let Some(desk) = &mut open.desk else {
            return;
        };
        let handled = open.socket.inline(|| contain(|| act(desk)));
        let inflated_bytes = desk.reader.take_inflated_bytes();
        open.inflated_bytes = open.inflated_bytes.saturating_add(inflated_bytes);
        if let Err(fault) = handled.unwrap_or(Err(Fault::Handler)) {
            open.ends(End::Fault(fault));
        }
    }

    /// Gives what waits to a worker, unless one is busy with this connection.
    fn hand_on(context: &mut Context<'_, Self>) -> Result<(), Stall> {
        let is_due = |open: &Open<H>| open.desk.is_some() && !open.is_handled();
        let Some(open) = context.session.0.as_deref().filter(|it| is_due(it)) else {
            return Ok(());
        };
        // Handed on while its answers find room (W6).
        if let Some(next) = open.waiting.front() {
            if open.socket.is_full(&mut context.io) {
                return Err(Stall::Output);
            }
            if !open.socket.has_room_for(next.payload.len()) {
                // It has its part, until the client has read it, or nothing that could be read.
                return Err(match context.io.common_is_full(1) {
                    true => Stall::Output,
                    false => Stall::Memory,
                });
            }
        }
        let job = context.job().ok_or(Stall::Jobs)?;
        Self::dispatch(context, job);
        Ok(())
    }

    /// Outside of `received`: sends what was sent, and hands on what waits.
    fn go_on(context: &mut Context<'_, Self>) {
        let Some(open) = &mut context.session.0 else {
            return;
        };
        let flushed = flush(open, &mut context.io);
        if let Err(stall) = flushed.and_then(|()| Self::hand_on(context)) {
            context.stall(stall);
        }
    }

    fn dispatch(context: &mut Context<'_, Self>, mut job: Job<Self>) {
        if let Some(open) = &mut context.session.0 {
            job.desk = open.desk.take();
            job.messages = open.take_batch();
            job.is_heavy = false;
            if open.is_heavy {
                return context.dispatch_after_others(job);
            }
        }
        context.dispatch(job);
    }

    /// After each event: sends what can be sent, ends what is at its end, and says what the
    /// connection waits for.
    fn settle(context: &mut Context<'_, Self>, has_moved: bool) {
        let (jobs_out, is_draining) = (context.jobs_out(), context.draining());
        let Some(open) = &mut context.session.0 else {
            return;
        };
        let io = &mut context.io;
        let said_close = open.said_close;
        if flush(open, io).is_ok() && open.is_handled() {
            conclude(open, io);
        }
        let is_said_now = open.said_close && !said_close;
        let phase = if open.said_close {
            // The client has its time to answer, less of it while the server drains.
            if is_draining {
                Phase::Idle
            } else {
                Phase::Head
            }
        } else if jobs_out > 0 || !open.waiting.is_empty() {
            Phase::Work
        } else if open.decoder.is_within_message() {
            Phase::Body
        } else if open.has_left {
            Phase::Head
        } else {
            Phase::Idle
        };
        if is_said_now || has_moved && !open.said_close {
            io.restart_phase(phase);
        } else {
            io.phase(phase);
        }
    }
}

/// Moves what was sent to the output; what does not fit yet brings another call.
fn flush<H: Handler>(open: &mut Open<H>, io: &mut Io<'_>) -> Result<(), Stall> {
    match open.socket.flush(io) {
        Ok(Flushed::All) => Ok(()),
        Ok(Flushed::Closed) => {
            open.said_close = true;
            Ok(())
        }
        Ok(Flushed::Full) => Err(Stall::Output),
        Err(NoRoom) => {
            io.stall(Stall::Memory);
            Err(Stall::Memory)
        }
    }
}

/// Brings a conversation to its end if it has one: everything before is handled and sent.
fn conclude<H: Handler>(open: &mut Open<H>, io: &mut Io<'_>) {
    let close = match &open.end {
        None if open.drains => Close::new(code::GOING_AWAY, ""),
        None => return,
        Some(End::Broken) => {
            open.socket.end(Close::unsaid(code::ABNORMAL));
            return io.close_after_output();
        }
        Some(End::Received(close)) => Close::clone(close),
        Some(End::Fault(fault)) => Close::from(*fault),
    };
    if !open.said_close {
        open.socket.finish(&close);
        if flush(open, io).is_err() {
            return;
        }
    }
    // Where nothing was received, its close frame is to come.
    if open.end.is_some() {
        open.socket.end(close);
        // It may be sending, and is to read how this ends.
        io.close_lingering();
    }
}

impl<H: Handler> Protocol for Sockets<H> {
    type ThreadState = ();
    type Session = Session<H>;
    type Job = Work<H>;

    fn name(&self) -> &'static str {
        "websocket"
    }

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            refusal: Bytes::from_static(&REFUSAL),
            ..ListenerOptions::default()
        }
    }

    fn thread_state(&self) {}

    fn connected(&self, context: &mut Context<'_, Self>) {
        match &mut context.session.0 {
            Some(open) => {
                if open.socket.connected(&context.io).is_err() {
                    return context.abort();
                }
                if self.place == Place::Inline {
                    Self::inline(open, |desk| {
                        desk.peer.open();
                        Ok(())
                    });
                }
            }
            // A listener of its own has no handshake.
            None => context.abort(),
        }
        // W5: the answer to the handshake is queued, so the handler may wait for its client.
        if let Err(stall) = Self::hand_on(context) {
            context.stall(stall);
        }
        Self::settle(context, true);
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> flatpath::Received {
        let has_moved = !input.is_empty();
        let mut rest = input;
        if let Some(open) = &mut context.session.0 {
            open.awaits_pong &= !has_moved;
            open.inflated_bytes = 0;
        }
        let stepped = loop {
            match self.step(context, &mut rest) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(stall) => break Err(stall),
            }
        };
        let handed_on = Self::hand_on(context);
        if let Some(open) = &mut context.session.0 {
            open.has_left = !rest.is_empty();
        }
        Self::settle(context, has_moved);
        let consumed = input.len() - rest.len();
        match handed_on.and(stepped) {
            Ok(()) => flatpath::Received::NeedMore { consumed },
            Err(on) => flatpath::Received::Blocked { consumed, on },
        }
    }

    fn input_ended(&self, context: &mut Context<'_, Self>, _: &[u8]) {
        if let Some(open) = &mut context.session.0 {
            open.ends(End::Broken);
        }
        Self::settle(context, false);
    }

    fn run(&self, work: &mut Work<H>, _: &mut WorkerScope<'_>) {
        let Some(desk) = &mut work.desk else {
            return;
        };
        if !desk.peer.open() {
            return work.messages.clear();
        }
        let mut inflated_bytes = 0_u32;
        while inflated_bytes < INFLATED_BYTES_MAX
            && let Some(received) = work.messages.pop_front()
        {
            if let Err(fault) = desk.message(received, &self.limits) {
                work.fault = Some(fault);
                work.messages.clear();
            }
            inflated_bytes = inflated_bytes.saturating_add(desk.reader.take_inflated_bytes());
            // W6: the first was weighed when it was handed on. The others go back.
            let next = work.messages.front();
            if next.is_some_and(|next| !desk.peer.socket.has_room_for(next.payload.len())) {
                break;
            }
        }
        work.is_heavy = inflated_bytes >= INFLATED_BYTES_MAX;
    }

    fn panicked(&self, work: &mut Work<H>) {
        work.fault = Some(Fault::Handler);
        work.messages.clear();
    }

    fn finished(&self, context: &mut Context<'_, Self>, mut job: Job<Self>) {
        let (desk, fault) = (job.desk.take(), job.fault.take());
        let Some(open) = &mut context.session.0 else {
            return context.recycle(job);
        };
        open.desk = desk;
        open.is_heavy = job.is_heavy;
        if let Some(fault) = fault {
            open.take_waiting();
            open.end = Some(End::Fault(fault));
        }
        open.put_back(&mut job.messages);
        context.recycle(job);
        Self::go_on(context);
        Self::settle(context, true);
    }

    fn retire(&self, (): &mut (), work: &mut Work<H>) {
        work.messages.clear();
        work.fault = None;
        // It calls the handler.
        if let Some(desk) = work.desk.take() {
            discard(desk);
        }
    }

    fn drained(&self, context: &mut Context<'_, Self>) {
        // What waits may be all that came: no input brings another call.
        Self::go_on(context);
        Self::settle(context, false);
    }

    fn notified(&self, context: &mut Context<'_, Self>) {
        Self::settle(context, false);
    }

    fn draining(&self, context: &mut Context<'_, Self>) {
        if let Some(open) = &mut context.session.0 {
            open.drains = true;
        }
        Self::settle(context, false);
    }

    fn expired(&self, context: &mut Context<'_, Self>, phase: Phase) {
        let is_evicted = context.is_evicted();
        let (Some(open), io) = (&mut context.session.0, &mut context.io) else {
            return context.close_after_output();
        };
        if is_evicted && !open.said_close {
            let close = Close::new(code::TRY_AGAIN_LATER, "");
            // Without memory for it the client learns nothing.
            let _ = open.socket.last_words(io, &close);
            open.socket.end(close);
            io.close_after_output();
        } else if open.said_close {
            io.close_after_output();
        } else if phase != Phase::Idle {
            open.ends(End::Fault(Fault::TooSlow));
            Self::settle(context, false);
        } else if open.awaits_pong {
            io.abort();
        } else {
            // Without memory for it the client is asked the next time.
            open.awaits_pong = io.write(&PING).is_ok();
            open.socket.rest();
            io.restart_phase(Phase::Idle);
        }
    }

    fn abandoned(&self, context: &mut Context<'_, Self>) {
        if let Some(open) = &mut context.session.0 {
            open.decoder.abandon();
            open.take_waiting();
            open.socket.end(Close::new(code::TRY_AGAIN_LATER, ""));
        }
    }

    fn closed(&self, (): &mut (), session: &mut Session<H>) {
        if let Some(open) = session.0.take() {
            // Whoever waits for room learns of it, also while a worker has the handler.
            open.socket.end(Close::unsaid(code::ABNORMAL));
            // It calls the handler.
            discard(open);
        }
    }
}
