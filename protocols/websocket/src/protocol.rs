//! A socket on a connection of its own: the engine's protocol after the handshake of HTTP/1.1.

use bytes::Bytes;
use flatpath::access_log::LogEnd;
use flatpath::memory::PoolHandle;
use flatpath::{
    Context, Event, ListenerOptions, NoRoom, Phase, Protocol, Stall, WorkerScope, discard,
};

use crate::close::{Close, code};
use crate::conversation::{self, Link, Rules};
use crate::session::{Open, Session, Work};
use crate::socket::{Flushed, Socket};

/// A close frame with 1013: there is no memory for this connection now.
const REFUSAL: [u8; 4] = [0x88, 2, 0x03, 0xF5];

/// The protocol behind a [`WebSocket`](crate::WebSocket).
pub(crate) struct Sockets {
    rules: Rules,
}

impl Sockets {
    pub(crate) fn new(rules: Rules) -> Sockets {
        Sockets { rules }
    }
}

impl Link for Context<'_, Sockets> {
    fn pool(&self) -> PoolHandle<'_> {
        self.io.pool()
    }

    fn is_full(&mut self, socket: &Socket) -> bool {
        socket.is_full(&mut self.io)
    }

    fn has_output(&mut self) -> bool {
        self.io.common_is_full(1)
    }

    fn flush(&mut self, socket: &Socket) -> Result<Flushed, NoRoom> {
        socket.flush(&mut self.io)
    }

    fn say(&mut self, head: &[u8], payload: &[u8]) -> Result<(), NoRoom> {
        self.io.reply(|io| {
            io.write(head)?;
            io.write(payload)
        })
    }

    fn stall(&mut self, stall: Stall) {
        self.io.stall(stall);
    }

    fn attach(&mut self, socket: &Socket) -> Result<(), NoRoom> {
        socket.connected(&self.io)
    }

    fn dispatch(&mut self, take: &mut dyn FnMut() -> (Work, bool)) -> Result<(), Stall> {
        let mut job = self.job().ok_or(Stall::Jobs)?;
        let (work, is_heavy) = take();
        *job = work;
        match is_heavy {
            true => self.dispatch_after_others(job),
            false => Context::dispatch(self, job),
        }
        Ok(())
    }

    fn is_working(&self) -> bool {
        self.io.jobs_out() > 0
    }

    fn is_draining(&self) -> bool {
        self.io.draining()
    }

    fn phase(&mut self, phase: Phase) {
        self.io.phase(phase);
    }

    fn restart_phase(&mut self, phase: Phase) {
        self.io.restart_phase(phase);
    }

    fn close_after_output(&mut self) {
        self.io.close_after_output();
    }

    fn close_lingering(&mut self) {
        self.io.close_lingering();
    }

    fn abort(&mut self) {
        self.io.abort();
    }
}

/// Lets `act` have the session beside the connection. `None`: there is none.
fn with<T>(
    context: &mut Context<'_, Sockets>,
    act: impl FnOnce(&mut Open, &mut Context<'_, Sockets>) -> T,
) -> Option<T> {
    let mut open = context.session.0.take()?;
    let result = act(&mut open, context);
    context.session.0 = Some(open);
    Some(result)
}

impl Protocol for Sockets {
    type ThreadState = ();
    type Session = Session;
    type Job = Work;

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            refusal: Bytes::from_static(&REFUSAL),
            ..ListenerOptions::named("websocket")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> flatpath::Received {
        let received = with(context, |open, link| self.rules.received(open, link, input));
        received.unwrap_or(flatpath::Received::NeedMore { consumed: 0 })
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        let happened = with(context, |open, link| match event {
            Event::Connected => self.rules.connected(open, link),
            Event::InputEnded(_) => conversation::input_ended(open, link),
            // What waits may be all that came: no input brings another call.
            Event::OutputLow => conversation::go_on(open, link, false),
            Event::Woken => conversation::settle(open, link, false),
            Event::Draining => conversation::draining(open, link),
            Event::Expired(_) if link.is_evicted() && !open.said_close => {
                let close = Close::new(code::TRY_AGAIN_LATER, "");
                // Without memory for it the client learns nothing.
                let _ = open.socket.last_words(&mut link.io, &close);
                open.socket.end(close);
                link.io.close_after_output();
            }
            Event::Expired(phase) => conversation::expired(open, link, phase),
            Event::Abandoned => {
                open.decoder.abandon();
                open.take_waiting();
                open.socket.end(Close::new(code::TRY_AGAIN_LATER, ""));
            }
            other => other.by_default(link),
        });
        if happened.is_none() {
            // A listener of its own has no handshake.
            context.abort();
        }
    }

    fn run(&self, work: &mut Work, _: &mut WorkerScope<'_>) {
        self.rules.run(work);
    }

    fn panicked(&self, work: &mut Work) {
        work.panicked();
    }

    fn finished(&self, context: &mut Context<'_, Self>, mut job: flatpath::Job<Self>) {
        let work = std::mem::take(&mut *job);
        context.recycle(job);
        with(context, |open, link| {
            conversation::finished(open, link, work);
        });
    }

    fn retire(&self, (): &mut (), work: &mut Work) {
        work.messages.clear();
        work.fault = None;
        // It calls the handler.
        if let Some(desk) = work.desk.take() {
            discard(desk);
        }
    }

    fn closed(&self, (): &mut (), session: &mut Session, _: Option<LogEnd<'_>>) {
        if let Some(open) = session.0.take() {
            end(open);
        }
    }
}

/// What carries the socket is gone.
pub(crate) fn end(open: Box<Open>) {
    // Whoever waits for room learns of it, also while a worker has the handler.
    open.socket.end(Close::unsaid(code::ABNORMAL));
    // It calls the handler.
    discard(open);
}
