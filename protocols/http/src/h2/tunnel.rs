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
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use flatpath::{Received, Stall};
use h2::RecvStream;

use super::bounds::context;
use super::stream::{Home, Stream};
use crate::service::Service;
use crate::state::Connection;
use crate::tunnel::{Tunnel, TunnelEnd, TunnelStream, TunnelWork, Wishes};
use crate::write;

/// See the module.
pub(super) struct Tunneled {
    tunnel: Box<dyn Tunnel>,
    pub(super) wishes: Wishes,
    body: RecvStream,
    /// What it has left; the first of it is the beginning of more where `needs_more`.
    input: VecDeque<Bytes>,
    needs_more: bool,
    is_ended: bool,
}

/// The next of the input.
enum Next {
    Data(Bytes),
    End,
    Nothing,
    Reset,
}

impl Tunneled {
    pub(super) fn new(tunnel: Box<dyn Tunnel>, body: RecvStream) -> Tunneled {
        Tunneled {
            tunnel,
            wishes: Wishes::default(),
            body,
            input: VecDeque::new(),
            needs_more: false,
            is_ended: false,
        }
    }

    /// What was kept comes first, behind the beginning that waits for it.
    fn next(&mut self) -> Next {
        let part = match self.needs_more {
            true => self.input.pop_front(),
            false => None,
        };
        let next = match self.input.pop_front() {
            Some(data) => Next::Data(data),
            None if self.is_ended => Next::Nothing,
            None => match self.body.poll_data(&mut context()) {
                Poll::Pending => Next::Nothing,
                Poll::Ready(Some(Ok(data))) => Next::Data(data),
                Poll::Ready(None) => Next::End,
                Poll::Ready(Some(Err(_))) => Next::Reset,
            },
        };
        match (part, next) {
            (Some(part), Next::Data(data)) => {
                self.needs_more = false;
                let mut joined = BytesMut::with_capacity(part.len() + data.len());
                joined.extend_from_slice(&part);
                joined.extend_from_slice(&data);
                Next::Data(joined.freeze())
            }
            (Some(part), other) => {
                self.input.push_front(part);
                other
            }
            (None, next) => next,
        }
    }

    /// Keeps what has arrived, charged (T1), while the tunnel takes nothing.
    fn keep<S: Service>(&mut self, connection: &mut Connection<'_, S>) -> Result<(), Stall> {
        while !self.is_ended
            && let Poll::Ready(Some(Ok(data))) = self.body.poll_data(&mut context())
        {
            match connection.io.hold(Bytes::copy_from_slice(&data)) {
                Ok(held) => self.input.push_back(held),
                Err(data) => {
                    self.input.push_back(data);
                    return Err(Stall::Memory);
                }
            }
        }
        Ok(())
    }
}

impl<S: Service> Stream<S> {
    /// Calls the tunnel, and sends to a worker what it has for one.
    pub(super) fn call_tunnel<T>(
        &mut self,
        connection: &mut Connection<'_, S>,
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
                job.begin_work(self.id, work);
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

    /// Gives the tunnel what has arrived. True: `h2` has something to write.
    ///
    /// # Errors
    /// There is no job or no memory for it: what the connection has to wait for.
    pub(super) fn receive_tunnel(
        &mut self,
        connection: &mut Connection<'_, S>,
    ) -> Result<bool, Stall> {
        let mut has_news = false;
        while !self.is_cut
            && let Some(tunneled) = &mut self.tunneled
            && tunneled.wishes.end.is_none()
        {
            let data = match tunneled.next() {
                Next::Data(data) => data,
                Next::Nothing => break,
                Next::Reset => {
                    self.cut(connection);
                    return Ok(true);
                }
                Next::End => {
                    tunneled.is_ended = true;
                    self.call_tunnel(connection, |tunnel, stream| tunnel.input_ended(stream));
                    break;
                }
            };
            let turn = connection.turn();
            self.pace.received(data.len(), turn, connection.limits());
            let received =
                self.call_tunnel(connection, |tunnel, stream| tunnel.received(stream, &data));
            let (consumed, stall) = match received {
                Some(Received::NeedMore { consumed }) => (consumed, None),
                Some(Received::Blocked { consumed, on }) => (consumed, Some(on)),
                Some(Received::Consumed) | None => (data.len(), None),
            };
            let Some(tunneled) = &mut self.tunneled else {
                break;
            };
            has_news |= consumed > 0;
            let _opened = tunneled.body.flow_control().release_capacity(consumed);
            let left = data.slice(consumed..);
            if !left.is_empty() {
                tunneled.needs_more = stall.is_none();
                tunneled.input.push_front(left);
            }
            match stall {
                None => {}
                Some(on @ (Stall::Jobs | Stall::Memory)) => {
                    tunneled.keep(connection)?;
                    return Err(on);
                }
                Some(on) => {
                    if on == Stall::Turn {
                        connection.handle().wake();
                    }
                    tunneled.keep(connection)?;
                    break;
                }
            }
        }
        Ok(has_news)
    }

    /// The next that the tunnel sends. `None`: nothing now, or its stream has ended.
    pub(super) fn next_of_tunnel(&mut self, connection: &mut Connection<'_, S>) -> Option<Bytes> {
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
        connection: &mut Connection<'_, S>,
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
        connection: &mut Connection<'_, S>,
        tunnel: Box<dyn Tunnel>,
        body: RecvStream,
    ) {
        self.tunneled = Some(Box::new(Tunneled::new(tunnel, body)));
        self.call_tunnel(connection, |tunnel, stream| tunnel.connected(stream));
        if connection.draining() {
            self.call_tunnel(connection, |tunnel, stream| tunnel.draining(stream));
        }
    }
}
