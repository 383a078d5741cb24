//! A socket on a stream of HTTP/2 (RFC 8441): the conversation that a connection of its own has, in
//! the frames of a connection that carries others as well.

use std::any::Any;
use std::sync::Arc;

use bytes::Bytes;
use flatpath::lock::Lock;
use flatpath::memory::PoolHandle;
use flatpath::{NoRoom, Phase, Received, Stall};
use flatpath_http::{Tunnel, TunnelStream, TunnelWork};

use crate::conversation::{self, Link, Rules};
use crate::protocol;
use crate::session::{Open, Session, Work};
use crate::socket::{Flushed, Socket};

/// Messages of up to this many bytes are copied after the head of their frame.
const JOINED_BYTES_MAX: usize = 1024;

/// See the module.
pub(crate) struct StreamSocket {
    rules: Rules,
    slot: Arc<Lock<Session>>,
    open: Option<Box<Open>>,
}

/// On its way to a worker and back.
struct StreamWork {
    rules: Rules,
    work: Work,
}

impl StreamSocket {
    /// With the session that is in the slot by the time that its stream is there.
    pub(crate) fn new(rules: Rules, slot: Arc<Lock<Session>>) -> StreamSocket {
        StreamSocket {
            rules,
            slot,
            open: None,
        }
    }
}

impl Drop for StreamSocket {
    fn drop(&mut self) {
        if let Some(open) = self.open.take() {
            protocol::end(open);
        }
    }
}

/// A stream as what carries a socket.
struct OnStream<'s, 'a, 'io> {
    stream: &'s mut TunnelStream<'a, 'io>,
    rules: Rules,
}

impl Link for OnStream<'_, '_, '_> {
    fn pool(&self) -> PoolHandle<'_> {
        self.stream.io.pool()
    }

    fn is_full(&mut self, _: &Socket) -> bool {
        self.stream.has_output()
    }

    fn has_output(&mut self) -> bool {
        self.stream.has_output()
    }

    fn flush(&mut self, socket: &Socket) -> Result<Flushed, NoRoom> {
        if self.stream.has_output() {
            return Ok(Flushed::Full);
        }
        let mut taken = None;
        let flushed = socket.take(self.stream.io, |frame| taken = Some(frame.clone()))?;
        if let Some(frame) = taken {
            match frame.payload().len() <= JOINED_BYTES_MAX {
                true => self
                    .stream
                    .write([frame.head(), frame.payload()].concat().into()),
                false => {
                    self.stream.write(Bytes::copy_from_slice(frame.head()));
                    self.stream.write(frame.payload().clone());
                }
            }
        }
        Ok(flushed)
    }

    fn say(&mut self, head: &[u8], payload: &[u8]) -> Result<(), NoRoom> {
        let frame = Bytes::from([head, payload].concat());
        let frame = self.stream.io.hold(frame).map_err(|_| NoRoom)?;
        self.stream.write(frame);
        Ok(())
    }

    fn stall(&mut self, stall: Stall) {
        self.stream.stall(stall);
    }

    fn attach(&mut self, socket: &Socket) -> Result<(), NoRoom> {
        socket.connected(self.stream.io)
    }

    fn dispatch(&mut self, take: &mut dyn FnMut() -> (Work, bool)) -> Result<(), Stall> {
        if !self.stream.has_job() {
            return Err(Stall::Jobs);
        }
        let (work, is_heavy) = take();
        let rules = self.rules;
        self.stream
            .dispatch(Box::new(StreamWork { rules, work }), is_heavy);
        Ok(())
    }

    fn is_working(&self) -> bool {
        self.stream.is_working()
    }

    fn is_draining(&self) -> bool {
        self.stream.io.draining()
    }

    fn phase(&mut self, phase: Phase) {
        self.stream.phase(phase);
    }

    fn restart_phase(&mut self, phase: Phase) {
        self.stream.restart_phase(phase);
    }

    fn close_after_output(&mut self) {
        self.stream.close();
    }

    fn close_lingering(&mut self) {
        self.stream.close();
    }

    fn abort(&mut self) {
        self.stream.abort();
    }
}

impl StreamSocket {
    /// Lets `act` have the conversation. `None`: there is none.
    fn with<T>(
        &mut self,
        stream: &mut TunnelStream<'_, '_>,
        act: impl FnOnce(&mut Open, &mut OnStream<'_, '_, '_>) -> T,
    ) -> Option<T> {
        let rules = self.rules;
        let open = self.open.as_mut()?;
        Some(act(open, &mut OnStream { stream, rules }))
    }
}

impl Tunnel for StreamSocket {
    fn connected(&mut self, stream: &mut TunnelStream<'_, '_>) {
        let rules = self.rules;
        self.open = self.slot.lock().0.take();
        let connected = self.with(stream, |open, link| rules.connected(open, link));
        if connected.is_none() {
            stream.abort();
        }
    }

    fn received(&mut self, stream: &mut TunnelStream<'_, '_>, input: &[u8]) -> Received {
        let rules = self.rules;
        let received = self.with(stream, |open, link| rules.received(open, link, input));
        received.unwrap_or(Received::Consumed)
    }

    fn input_ended(&mut self, stream: &mut TunnelStream<'_, '_>) {
        self.with(stream, |open, link| conversation::input_ended(open, link));
    }

    fn finished(&mut self, stream: &mut TunnelStream<'_, '_>, work: Box<dyn TunnelWork>) {
        if let Ok(work) = work.into_any().downcast::<StreamWork>() {
            self.with(stream, |open, link| {
                conversation::finished(open, link, work.work);
            });
        }
    }

    fn woken(&mut self, stream: &mut TunnelStream<'_, '_>) {
        self.with(stream, |open, link| conversation::go_on(open, link, false));
    }

    fn draining(&mut self, stream: &mut TunnelStream<'_, '_>) {
        self.with(stream, |open, link| conversation::draining(open, link));
    }

    fn expired(&mut self, stream: &mut TunnelStream<'_, '_>, phase: Phase) {
        self.with(stream, |open, link| {
            conversation::expired(open, link, phase);
        });
    }
}

impl TunnelWork for StreamWork {
    fn run(&mut self) {
        self.rules.run(&mut self.work);
    }

    fn panicked(&mut self) {
        self.work.panicked();
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}
