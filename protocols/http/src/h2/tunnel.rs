//! A stream that is a tunnel (RFC 8441): bytes from the client's frames to it, and back.
//!
//! Extended CONNECT is served as the `GET` with `Upgrade` that it stands for (section 5): routes,
//! rules of origins and handlers are those of HTTP/1.1; the handler's 101 becomes a 200.
//!
//! Invariants
//! - T1: the window is opened for what the tunnel has consumed. What it leaves is charged: a client
//!   whose messages are not taken has to wait, and costs no more than its window.
//! - T2: one thing of a tunnel is with a worker at a time (`Home::Away`).

use std::collections::VecDeque;

use bytes::Bytes;
use flatpath::{Received, Stall};

use super::link::Link;
use super::stream::{Home, Stream};
use crate::h1::write;
use crate::service::Service;
use crate::takeover::tunnel::{Tunnel, TunnelEnd, TunnelStream, TunnelWork, Wishes};

/// See the module.
pub(super) struct Tunneled {
    tunnel: Box<dyn Tunnel>,
    pub(super) wishes: Wishes,
    /// What it has left; the first of it is the beginning of more where `needs_more`.
    input: VecDeque<Bytes>,
    needs_more: bool,
    /// It takes no more now, for this.
    stall: Option<Stall>,
    is_ended: bool,
}

impl Tunneled {
    /// What was said to it before it began comes first.
    pub(super) fn new(tunnel: Box<dyn Tunnel>, input: VecDeque<Bytes>) -> Tunneled {
        Tunneled {
            tunnel,
            wishes: Wishes::default(),
            input,
            needs_more: false,
            stall: None,
            is_ended: false,
        }
    }

    /// What its connection has to wait for before it takes more.
    fn waits(&mut self) -> Option<Stall> {
        let stall = self.stall.take();
        stall.filter(|on| matches!(on, Stall::Jobs | Stall::Memory))
    }

    /// Bytes that it has not taken.
    pub(super) fn input_bytes(&self) -> usize {
        self.input.iter().map(Bytes::len).sum()
    }

    /// What was kept, with the beginning that waits for it.
    fn next(&mut self) -> Option<Bytes> {
        if !self.needs_more {
            return self.input.pop_front();
        }
        let more = self.input.len() > 1;
        let (part, next) = more.then(|| (self.input.pop_front(), self.input.pop_front()))?;
        self.needs_more = false;
        Some(
            [part, next]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .concat()
                .into(),
        )
    }
}

impl<S: Service> Stream<S> {
    /// Calls the tunnel, and sends to a worker what it has for one.
    pub(super) fn call_tunnel<T>(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        act: impl FnOnce(&mut dyn Tunnel, &mut TunnelStream<'_, '_>) -> T,
    ) -> Option<T> {
        let is_working = matches!(self.job, Home::Away);
        let has_front = self.sending.as_ref().is_some_and(|it| !it.front.is_empty());
        let tunneled = self.tunneled.as_mut()?;
        let job = match is_working {
            true => None,
            false => connection.job(),
        };
        let wishes = &mut tunneled.wishes;
        (wishes.has_job, wishes.stall) = (job.is_some(), None);
        (wishes.is_working, wishes.has_front) = (is_working, has_front);
        let mut stream = TunnelStream {
            io: &mut connection.io,
            wishes,
        };
        let result = act(&mut *tunneled.tunnel, &mut stream);
        let work = tunneled.wishes.work.take();
        match (job, work) {
            (Some(mut job), Some((work, is_heavy))) => {
                job.begin_work(self.flow.id, work);
                self.job = Home::Away;
                match is_heavy {
                    true => connection.dispatch_after_others(job),
                    false => connection.dispatch(job),
                }
            }
            (Some(job), None) => write::recycle(connection, job),
            (None, _) => {}
        }
        Some(result)
    }

    /// Takes what has arrived, all of it or nothing: gives it to the tunnel, or keeps it (T1).
    ///
    /// # Errors
    /// There is no job or no memory for it: what the connection has to wait for.
    pub(super) fn take_tunnel_data(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        data: &[u8],
    ) -> Result<(), Stall> {
        let end = self.tunneled.as_ref().map(|it| it.wishes.end);
        if end.flatten().is_some() {
            connection.core.release(Some(&mut self.flow), data.len());
            return Ok(());
        }
        let is_first = self.tunneled.as_ref().is_some_and(|it| it.input.is_empty());
        let taken = match is_first {
            true => self.offer(connection, data),
            false => 0,
        };
        if is_first
            && taken == 0
            && let Some(tunneled) = &mut self.tunneled
            && let Some(on) = tunneled.waits()
        {
            return Err(on);
        }
        let left = &data[taken..];
        let kept = match left {
            [] => return Ok(()),
            left => Bytes::copy_from_slice(left),
        };
        let kept = match (connection.io.hold(kept), is_first) {
            (Ok(held), _) => held,
            // The tunnel has seen it: it is less than a frame.
            (Err(data), true) => data,
            (Err(_), false) => return Err(Stall::Memory),
        };
        let input = match (&mut self.tunneled, &mut self.asked_tunnel) {
            (Some(tunneled), _) => &mut tunneled.input,
            (None, Some(early)) => early,
            (None, None) => return Ok(()),
        };
        match is_first {
            // What has come meanwhile is nothing: a tunnel is called by its own thread.
            true => input.push_front(kept),
            false => input.push_back(kept),
        }
        Ok(())
    }

    /// Offers bytes to the tunnel. Returns how many it has consumed.
    fn offer(&mut self, connection: &mut Link<'_, '_, S>, data: &[u8]) -> usize {
        let turn = connection.turn();
        self.pace.received(data.len(), turn, connection.limits());
        let received = self.call_tunnel(connection, |tunnel, stream| tunnel.received(stream, data));
        let (consumed, stall) = match received {
            Some(Received::NeedMore { consumed }) => (consumed, None),
            Some(Received::Blocked { consumed, on }) => (consumed, Some(on)),
            Some(Received::Consumed) | None => (data.len(), None),
        };
        connection.core.release(Some(&mut self.flow), consumed);
        if let Some(tunneled) = &mut self.tunneled {
            tunneled.needs_more = stall.is_none() && consumed < data.len();
            tunneled.stall = stall;
        }
        if stall == Some(Stall::Turn) {
            connection.handle().wake();
        }
        consumed
    }

    /// Gives the tunnel what was kept for it, and the end after the last of it.
    ///
    /// # Errors
    /// As [`Stream::take_tunnel_data`].
    pub(super) fn receive_tunnel(&mut self, connection: &mut Link<'_, '_, S>) -> Result<(), Stall> {
        while !self.is_cut
            && let Some(tunneled) = &mut self.tunneled
            && tunneled.wishes.end.is_none()
        {
            let Some(data) = tunneled.next() else {
                let is_end = self.flow.is_received && !tunneled.is_ended;
                if is_end {
                    tunneled.is_ended = true;
                    self.call_tunnel(connection, |tunnel, stream| tunnel.input_ended(stream));
                }
                break;
            };
            let taken = self.offer(connection, &data);
            let Some(tunneled) = &mut self.tunneled else {
                break;
            };
            if taken < data.len() {
                tunneled.input.push_front(data.slice(taken..));
            }
            if tunneled.stall.is_some() {
                break;
            }
        }
        let waits = self.tunneled.as_mut().and_then(|it| it.waits());
        waits.map_or(Ok(()), Err)
    }

    /// The next that the tunnel sends. `None`: nothing now, or its stream has ended.
    pub(super) fn next_of_tunnel(&mut self, connection: &mut Link<'_, '_, S>) -> Option<Bytes> {
        let next = |stream: &mut Self| stream.tunneled.as_mut()?.wishes.output.pop_front();
        if let Some(bytes) = next(self) {
            return Some(bytes);
        }
        self.call_tunnel(connection, |tunnel, stream| tunnel.woken(stream));
        next(self)
    }

    /// What the tunnel, which sends nothing now, has to wait for.
    pub(super) fn tunnel_waits(&mut self) -> Result<(), Stall> {
        let stall = self.tunneled.as_mut().and_then(|it| it.wishes.stall.take());
        match stall {
            Some(stall @ (Stall::Memory | Stall::Jobs)) => Err(stall),
            _ => Ok(()),
        }
    }

    /// How the tunnel has ended the stream, once all is sent.
    pub(super) fn tunnel_end(&self) -> Option<TunnelEnd> {
        self.tunneled.as_ref()?.wishes.end
    }

    /// What a worker had of the tunnel is back.
    pub(super) fn tunnel_finished(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        work: Box<dyn TunnelWork>,
    ) {
        let mut work = Some(work);
        self.call_tunnel(connection, |tunnel, stream| {
            if let Some(work) = work.take() {
                tunnel.finished(stream, work);
            }
        });
        if let Some(work) = work {
            // Its stream is gone.
            flatpath::discard(work);
        }
    }

    /// The tunnel begins: its reply is on its way.
    pub(super) fn begin_tunnel(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        tunnel: Box<dyn Tunnel>,
        early: VecDeque<Bytes>,
    ) {
        self.tunneled = Some(Box::new(Tunneled::new(tunnel, early)));
        self.call_tunnel(connection, |tunnel, stream| tunnel.connected(stream));
        if connection.draining() {
            self.call_tunnel(connection, |tunnel, stream| tunnel.draining(stream));
        }
    }
}
