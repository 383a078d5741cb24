//! What happens on a socket after its handshake, whatever carries it: a connection of its own
//! (`protocol`), or a stream of HTTP/2 (`stream`).
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

use flatpath::memory::PoolHandle;
use flatpath::{NoRoom, Phase, Stall};
use flatpath_structures::panics::contain;

use crate::close::{Close, code};
use crate::decoder::{Event, Received, Stopped};
use crate::encode::{Frame, Opcode};
use crate::fault::Fault;
use crate::limits::{INFLATED_BYTES_MAX, Limits, WAITING_BYTES_MAX};
use crate::session::{Desk, End, Open, Work};
use crate::socket::{Flushed, Socket};

/// A ping that carries nothing.
const PING: [u8; 2] = [0x89, 0];

/// Where the messages of a socket are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Inline,
    Pooled,
}

/// What carries a socket.
pub(crate) trait Link {
    fn pool(&self) -> PoolHandle<'_>;
    /// Whether so much waits for the client that it is to read first; it is called when it has.
    fn is_full(&mut self, socket: &Socket) -> bool;
    /// The same for anything that waits.
    fn has_output(&mut self) -> bool;
    /// Moves what is queued to the output.
    fn flush(&mut self, socket: &Socket) -> Result<Flushed, NoRoom>;
    /// Writes a frame of this side's own, as a whole or not at all.
    fn say(&mut self, head: &[u8], payload: &[u8]) -> Result<(), NoRoom>;
    /// What waits has to wait for this, though no input of this call does.
    fn stall(&mut self, stall: Stall);
    /// The connection is there.
    fn attach(&mut self, socket: &Socket) -> Result<(), NoRoom>;
    /// Sends work that `take` has to a worker, if there is a job for it.
    fn dispatch(&mut self, take: &mut dyn FnMut() -> (Work, bool)) -> Result<(), Stall>;
    fn is_working(&self) -> bool;
    fn is_draining(&self) -> bool;
    fn phase(&mut self, phase: Phase);
    fn restart_phase(&mut self, phase: Phase);
    fn close_after_output(&mut self);
    fn close_lingering(&mut self);
    fn abort(&mut self);
}

/// How the sockets of one kind are handled; see the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) place: Place,
    pub(crate) limits: Limits,
}

impl Rules {
    pub(crate) fn connected(&self, open: &mut Open, link: &mut impl Link) {
        if link.attach(&open.socket).is_err() {
            return link.abort();
        }
        if self.place == Place::Inline {
            inline(open, |desk| {
                desk.peer.open();
                Ok(())
            });
        }
        // W5: the answer to the handshake is queued, so the handler may wait for its client.
        if let Err(stall) = hand_on(open, link) {
            link.stall(stall);
        }
        settle(open, link, true);
    }

    pub(crate) fn received(
        &self,
        open: &mut Open,
        link: &mut impl Link,
        input: &[u8],
    ) -> flatpath::Received {
        let has_moved = !input.is_empty();
        let mut rest = input;
        open.awaits_pong &= !has_moved;
        open.inflated_bytes = 0;
        let stepped = loop {
            match self.step(open, link, &mut rest) {
                Ok(true) => {}
                Ok(false) => break Ok(()),
                Err(stall) => break Err(stall),
            }
        };
        let handed_on = hand_on(open, link);
        open.has_left = !rest.is_empty();
        settle(open, link, has_moved);
        let consumed = input.len() - rest.len();
        match handed_on.and(stepped) {
            Ok(()) => flatpath::Received::NeedMore { consumed },
            Err(on) => flatpath::Received::Blocked { consumed, on },
        }
    }

    /// Takes the next event from the input. False: there is none.
    fn step(
        &self,
        open: &mut Open,
        link: &mut impl Link,
        input: &mut &[u8],
    ) -> Result<bool, Stall> {
        flush(open, link)?;
        if open.end.is_some() {
            // W4, and after a fault: none of it counts.
            *input = &[];
            return Ok(false);
        }
        if link.is_full(&open.socket) {
            return Err(Stall::Output);
        }
        if open.inflated_bytes >= INFLATED_BYTES_MAX && !input.is_empty() {
            return Err(Stall::Turn);
        }
        if open.waiting_bytes >= WAITING_BYTES_MAX || open.drains && !open.is_handled() {
            hand_on(open, link)?;
            return Err(Stall::Pipeline);
        }
        let before = *input;
        let event = open.decoder.next(input, &self.limits, link.pool());
        match event {
            Ok(None) => Ok(false),
            Ok(Some(event)) => {
                let taken = self.event(open, link, event);
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
    fn event(&self, open: &mut Open, link: &mut impl Link, event: Event) -> Result<(), NoRoom> {
        match event {
            Event::Ping(payload) if !open.said_close => {
                let pong = Frame::new(Opcode::Pong, payload);
                link.say(pong.head(), pong.payload())?;
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
    fn handle(&self, open: &mut Open, received: Received) {
        let limits = &self.limits;
        inline(open, |desk| desk.message(received, limits));
    }

    /// Runs on a worker.
    pub(crate) fn run(&self, work: &mut Work) {
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
}

/// The client's stream has ended.
pub(crate) fn input_ended(open: &mut Open, link: &mut impl Link) {
    open.ends(End::Broken);
    settle(open, link, false);
}

/// A worker has given back what it had.
pub(crate) fn finished(open: &mut Open, link: &mut impl Link, mut work: Work) {
    open.desk = work.desk.take();
    open.is_heavy = work.is_heavy;
    if let Some(fault) = work.fault.take() {
        open.take_waiting();
        open.end = Some(End::Fault(fault));
    }
    open.put_back(&mut work.messages);
    go_on(open, link, true);
}

/// Outside of `received`: sends what was sent, and hands on what waits.
pub(crate) fn go_on(open: &mut Open, link: &mut impl Link, has_moved: bool) {
    let flushed = flush(open, link);
    if let Err(stall) = flushed.and_then(|()| hand_on(open, link)) {
        link.stall(stall);
    }
    settle(open, link, has_moved);
}

/// The server drains.
pub(crate) fn draining(open: &mut Open, link: &mut impl Link) {
    open.drains = true;
    settle(open, link, false);
}

/// The time of a phase is over.
pub(crate) fn expired(open: &mut Open, link: &mut impl Link, phase: Phase) {
    if open.said_close {
        link.close_after_output();
    } else if phase != Phase::Idle {
        open.ends(End::Fault(Fault::TooSlow));
        settle(open, link, false);
    } else if open.awaits_pong {
        link.abort();
    } else {
        // Without memory for it the client is asked the next time.
        open.awaits_pong = link.say(&PING, &[]).is_ok();
        open.socket.rest();
        link.restart_phase(Phase::Idle);
    }
}

/// Calls the handler on the network thread.
fn inline(open: &mut Open, act: impl FnOnce(&mut Desk) -> Result<(), Fault>) {
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

/// Gives what waits to a worker, unless one is busy with this socket.
fn hand_on(open: &mut Open, link: &mut impl Link) -> Result<(), Stall> {
    if open.desk.is_none() || open.is_handled() {
        return Ok(());
    }
    // Handed on while its answers find room (W6).
    if let Some(next) = open.waiting.front() {
        if link.is_full(&open.socket) {
            return Err(Stall::Output);
        }
        if !open.socket.has_room_for(next.payload.len()) {
            // It has its part, until the client has read it, or nothing that could be read.
            return Err(match link.has_output() {
                true => Stall::Output,
                false => Stall::Memory,
            });
        }
    }
    link.dispatch(&mut || {
        let work = Work {
            desk: open.desk.take(),
            messages: open.take_batch(),
            ..Work::default()
        };
        (work, open.is_heavy)
    })
}

/// After each event: sends what can be sent, ends what is at its end, and says what the
/// client is waited for.
pub(crate) fn settle(open: &mut Open, link: &mut impl Link, has_moved: bool) {
    let said_close = open.said_close;
    if flush(open, link).is_ok() && open.is_handled() {
        conclude(open, link);
    }
    let is_said_now = open.said_close && !said_close;
    let phase = if open.said_close {
        // The client has its time to answer, less of it while the server drains.
        if link.is_draining() {
            Phase::Idle
        } else {
            Phase::Head
        }
    } else if link.is_working() || !open.waiting.is_empty() {
        Phase::Work
    } else if open.decoder.is_within_message() {
        Phase::Body
    } else if open.has_left {
        Phase::Head
    } else {
        Phase::Idle
    };
    if is_said_now || has_moved && !open.said_close {
        link.restart_phase(phase);
    } else {
        link.phase(phase);
    }
}

/// Moves what was sent to the output; what does not fit yet brings another call.
fn flush(open: &mut Open, link: &mut impl Link) -> Result<(), Stall> {
    match link.flush(&open.socket) {
        Ok(Flushed::All) => Ok(()),
        Ok(Flushed::Closed) => {
            open.said_close = true;
            Ok(())
        }
        Ok(Flushed::Full) => Err(Stall::Output),
        Err(NoRoom) => {
            link.stall(Stall::Memory);
            Err(Stall::Memory)
        }
    }
}

/// Brings a conversation to its end if it has one: everything before is handled and sent.
fn conclude(open: &mut Open, link: &mut impl Link) {
    let close = match &open.end {
        None if open.drains => Close::new(code::GOING_AWAY, ""),
        None => return,
        Some(End::Broken) => {
            open.socket.end(Close::unsaid(code::ABNORMAL));
            return link.close_after_output();
        }
        Some(End::Received(close)) => Close::clone(close),
        Some(End::Fault(fault)) => Close::from(*fault),
    };
    if !open.said_close {
        open.socket.finish(&close);
        if flush(open, link).is_err() {
            return;
        }
    }
    // Where nothing was received, its close frame is to come.
    if open.end.is_some() {
        open.socket.end(close);
        // It may be sending, and is to read how this ends.
        link.close_lingering();
    }
}
