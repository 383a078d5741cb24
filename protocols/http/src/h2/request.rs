//! Requests of streams: from a head to the service, and bodies as they arrive.
//!
//! What becomes of a request is decided as over HTTP/1 (`admission`). A stream that finds no job or
//! no memory is answered with 503 at once, where HTTP/1 leaves the request in the input: what else
//! has arrived on the connection must not wait for it.
//!
//! Data is charged as it arrives, or stays in the input; the windows are opened anew
//! for what was taken, but for an upload whose worker is busy: then its client has to wait. So
//! `take_data` and `gather` are others than those of HTTP/1 (`upload`): there a decoder says where
//! the end is and data stays in the pages that it came in, here frames are copied and windows kept.

use std::collections::VecDeque;

use flatpath::{Job, NoRoom, Stall};
use httparse::Header;

use super::bounds::is_streamed;
use super::fields::{Asked, Refusal};
use super::flow::Flow;
use super::hpack::{FieldList, put_status};
use super::link::Link;
use super::priority::{self, Priority};
use super::stream::{Home, Incoming, Stream};
use super::wire::{self, Code};
use crate::connection::admission::{self, Admission, Channel, Facts};
use crate::connection::pending_body::PendingBody;
use crate::connection::state::{Http, log};
use crate::connection::upload::{self, When};
use crate::head::dots;
use crate::head::fault::Fault;
use crate::head::{Framing, Head, KnownHeader, RequestMeta};
use crate::limits::UPLOAD_PIECE_BYTES;
use crate::service::{Opening, Service, log_number};
use crate::trailers::Trailers;

/// Takes a request that has arrived. Its stream is new, and has come as far as it can.
///
/// # Errors
/// It is malformed, and has no stream.
pub(super) fn serve<S: Service>(
    connection: &mut Link<'_, '_, S>,
    list: &mut FieldList,
    stream: &mut Stream<S>,
) -> Result<(), Code> {
    let cookies = list.join_cookies();
    let list = &*list;
    let mut headers = std::mem::take(&mut connection.thread.h2.headers);
    let served = match Asked::of((list, cookies), &mut headers) {
        Ok(asked) => stream.serve(connection, &asked, (list, &headers)),
        // What is missing may be beyond the bounds.
        Err(_) if list.is_over() => stream.serve(connection, &Asked::default(), (list, &[])),
        Err(_) => Err(Code::Protocol),
    };
    connection.thread.h2.headers = emptied(headers);
    served
}

/// An empty list for other headers, in the memory of this one.
fn emptied<'a>(mut headers: Vec<Header<'_>>) -> Vec<Header<'a>> {
    headers.clear();
    let none = headers.into_iter();
    none.map(|_| httparse::EMPTY_HEADER).collect()
}

impl<S: Service> Stream<S> {
    /// Takes it. `listed`: its fields, and its headers.
    ///
    /// # Errors
    /// It is malformed.
    fn serve<'c: 'h, 'h>(
        &mut self,
        connection: &mut Link<'_, 'c, S>,
        asked: &Asked<'h>,
        listed: (&'h FieldList, &'h [Header<'h>]),
    ) -> Result<(), Code> {
        self.is_head = asked.is_head();
        if asked.has_priority {
            let said = listed.0.iter();
            let said = said.filter(|(name, _)| *name == priority::FIELD.as_bytes());
            self.priority = Priority::of(said.map(|(_, value)| value));
        }
        let served = match listed.0.is_over() {
            true => Err(Fault::HeadersTooLong.into()),
            false => self.take_asked(connection, asked, listed),
        };
        match served {
            Ok(()) => Ok(()),
            Err(Refusal::Malformed) => Err(Code::Protocol),
            Err(Refusal::Fault(fault)) => {
                if self.record.is_none() && connection.session.is_logged() {
                    self.record = Some(log(connection).of_unread_stream(&asked.line()));
                }
                self.fault(connection, fault);
                Ok(())
            }
        }
    }

    fn take_asked<'c: 'h, 'h>(
        &mut self,
        connection: &mut Link<'_, 'c, S>,
        asked: &Asked<'h>,
        (list, headers): (&'h FieldList, &'h [Header<'h>]),
    ) -> Result<(), Refusal> {
        let spelled = asked.target()?;
        let resolved;
        let target = match asked.parse(spelled) {
            Err(Fault::DotSegments) => {
                resolved = dots::without(spelled)?.concat();
                (spelled, &*resolved, asked.parse(&resolved))
            }
            parsed => (spelled, spelled, parsed),
        };
        let limits = &connection.protocol.limits;
        let known_host = &connection.thread.host.name;
        let head = asked.head(target, (headers, list.text_bytes()), limits, known_host)?;
        self.take_parsed(connection, head, asked.asks_tunnel())
    }

    // The one call that is not cold had better not copy the head.
    #[inline(always)]
    fn take_parsed<'c: 'h, 'h>(
        &mut self,
        connection: &mut Link<'_, 'c, S>,
        mut head: Head<'h>,
        asks_tunnel: bool,
    ) -> Result<(), Refusal> {
        let has_length = head.known(KnownHeader::ContentLength).is_some();
        let announced = match head.framing {
            _ if !has_length || asks_tunnel => None,
            Framing::Length(length) => Some(length),
            _ => Some(0),
        };
        let is_right = self.flow.announced(announced);
        is_right.map_err(|_| Refusal::Malformed)?;
        if asks_tunnel {
            self.asked_tunnel = Some(VecDeque::new());
        }
        if !self.is_unread() {
            head.framing = Framing::Empty;
        } else if head.framing == Framing::Empty && !has_length {
            // RFC 9113 8.1.1 has no length for it, as for chunks of HTTP/1.1.
            head.framing = Framing::Chunked;
            head.expect_continue = head.known(KnownHeader::Expect).is_some();
        }
        // One of length 0 is answered as over HTTP/1, before its end has come (RFC 9113 8.1):
        // nothing that is still to come of it matters.
        let has_body = self.is_unread() && announced != Some(0);
        let facts = Facts {
            has_body,
            is_next: true,
            request: RequestMeta::of(&head),
            channel: Channel::Stream(&mut self.watched),
        };
        let admission = admission::admit(connection, &mut head, facts);
        if connection.session.is_logged() {
            let number = log_number(&connection.protocol.service, &head);
            self.record = Some(log(connection).of_stream(&head, number));
        }
        match admission {
            Admission::Refuse(fault) => return Err(fault.into()),
            // What else has arrived must not wait for it.
            Admission::Wait(_) => self.refuse(connection),
            Admission::Answered(reply) => self.reply(connection, reply),
            Admission::Worker(job) => self.begin_job(connection, job),
            Admission::Whole(pending, refusal) => {
                let opening = pending.opening;
                self.arrives(pending);
                match (refusal, opening) {
                    (Some(fault), _) => return Err(fault.into()),
                    (None, Opening::Never) => self.say_continue(connection),
                    // When what has arrived is taken.
                    (None, Opening::Due | Opening::Begun) => connection.core.has_unopened = true,
                }
            }
            Admission::Upload(job, pending) => {
                self.arrives(pending);
                self.begin_job(connection, job);
            }
        }
        Ok(())
    }

    /// Sends its job to the workers.
    pub(super) fn begin_job(&mut self, connection: &mut Link<'_, '_, S>, mut job: Job<Http<S>>) {
        job.number = self.flow.id;
        self.dispatch(connection, job);
    }

    /// The body is read from now on.
    fn arrives(&mut self, pending: Box<PendingBody>) {
        self.incoming = Some(Incoming {
            pending,
            unreleased: 0,
        });
    }

    /// Has the request opened, if its body is still to come: see `upload`.
    pub(super) fn open(&mut self, connection: &mut Link<'_, '_, S>) {
        let (Home::Nothing, Some(incoming)) = (&self.job, &mut self.incoming) else {
            return;
        };
        match upload::opening_job(connection, &mut incoming.pending, None) {
            Some(job) => self.begin_job(connection, job),
            None => self.say_continue(connection),
        }
    }

    /// The client is to send the body, if it waits to hear that.
    pub(super) fn say_continue(&mut self, connection: &mut Link<'_, '_, S>) {
        let pending = self.incoming.as_mut().map(|incoming| &mut incoming.pending);
        if pending.is_some_and(|pending| std::mem::take(&mut pending.owes_continue)) {
            let mut block = Vec::new();
            put_status(&mut block, 100);
            wire::put_block(&mut connection.core.out, self.flow.id, &block, false);
        }
    }

    /// Takes what has arrived of the body, all of it or nothing.
    ///
    /// # Errors
    /// There is no memory for it: what the connection has to wait for.
    pub(super) fn take_data(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        data: &[u8],
    ) -> Result<(), Stall> {
        if self.is_cut {
            connection.core.release(None, data.len());
            return Ok(());
        }
        if self.tunneled.is_some() || self.asked_tunnel.is_some() {
            return self.take_tunnel_data(connection, data);
        }
        if let Some(incoming) = &mut self.incoming
            && incoming.pending.refusal.is_some()
        {
            connection.core.release(Some(&mut self.flow), data.len());
        } else if let Some(incoming) = &mut self.incoming {
            let is_too_long = incoming.pending.is_too_long(data.len() as u64);
            if !is_streamed(&incoming.pending) && is_too_long {
                self.fault(connection, Fault::BodyTooLong);
            } else if incoming.gather(connection, &mut self.flow, data).is_err() {
                self.pass_piece(connection, When::Short)?;
                return Err(match self.job {
                    // What is with a worker now makes room when it is back.
                    Home::Away => Stall::Body,
                    _ => Stall::Memory,
                });
            }
        }
        if self.incoming.is_none() && !self.is_cut {
            // Nothing reads it. Of a stream that was reset just now nothing is left.
            connection.core.release(Some(&mut self.flow), data.len());
        }
        let turn = connection.turn();
        self.pace.received(data.len(), turn, connection.limits());
        Ok(())
    }

    /// Takes what comes after the body, which ends with it.
    pub(super) fn take_trailers(&mut self, connection: &mut Link<'_, '_, S>, list: &FieldList) {
        let Some(incoming) = &mut self.incoming else {
            return;
        };
        let gathered = match list.is_over() {
            true => Err(Fault::TrailerTooLong),
            false => Trailers::gather(list.iter(), &connection.protocol.limits),
        };
        match gathered {
            Ok(trailers) => incoming.pending.trailers = trailers,
            Err(fault) => self.fault(connection, fault),
        }
    }

    /// Passes on what has arrived.
    ///
    /// # Errors
    /// There is no memory for what comes of it: what the connection has to wait for.
    pub(super) fn receive(&mut self, connection: &mut Link<'_, '_, S>) -> Result<(), Stall> {
        if self.tunneled.is_some() {
            return self.receive_tunnel(connection);
        }
        let Some(incoming) = &self.incoming else {
            return Ok(());
        };
        match (is_streamed(&incoming.pending), self.flow.is_received) {
            (true, false) => self.pass_piece(connection, When::Enough),
            (true, true) => self.pass_piece(connection, When::Last),
            (false, true) if incoming.pending.is_opened() => self.pass_opened(connection),
            (false, true) => {
                self.pass_whole(connection);
                Ok(())
            }
            (false, false) => Ok(()),
        }
    }

    /// The body is complete: sends the request to the workers.
    fn pass_whole(&mut self, connection: &mut Link<'_, '_, S>) {
        let Some(Incoming { mut pending, .. }) = self.incoming.take() else {
            return;
        };
        let passage = admission::passage(connection);
        let turn = connection.turn();
        let job = passage.map(|passage| admission::completed(passage, &mut pending, turn));
        connection.thread.recycle_pending_body(pending);
        match job {
            Ok(job) => self.begin_job(connection, job),
            Err(_) => self.refuse(connection),
        }
    }

    /// The same where layers have run already, or do so.
    ///
    /// # Errors
    /// There is no memory for the head of the reply.
    fn pass_opened(&mut self, connection: &mut Link<'_, '_, S>) -> Result<(), Stall> {
        let (Home::Here(job), Some(incoming)) = (&mut self.job, &mut self.incoming) else {
            return Ok(());
        };
        upload::take_head_buffer(job, connection.io.pool()).map_err(|_| Stall::Memory)?;
        upload::bring_whole(job, &mut incoming.pending, connection.turn());
        self.drop_body(connection);
        if let Home::Here(job) = std::mem::take(&mut self.job) {
            self.dispatch(connection, job);
        }
        Ok(())
    }

    /// Sends what has gathered of an upload to its worker, if that can take it and it is worth one.
    ///
    /// # Errors
    /// There is no memory for the head of the reply, which the last piece brings.
    pub(super) fn pass_piece(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        when: When,
    ) -> Result<(), Stall> {
        let (Home::Here(job), Some(incoming)) = (&mut self.job, &mut self.incoming) else {
            return Ok(());
        };
        let is_last = when == When::Last;
        let is_taken = job.is_receiving() && is_streamed(&incoming.pending);
        if !is_taken || !upload::is_enough(connection, &incoming.pending.piece, when) {
            return Ok(());
        }
        if is_last {
            upload::take_head_buffer(job, connection.io.pool()).map_err(|_| Stall::Memory)?;
        }
        if let Some(upload) = &mut job.upload {
            upload.bring(&mut incoming.pending, is_last);
        }
        incoming.release(connection, &mut self.flow);
        if is_last {
            self.drop_body(connection);
        }
        if let Home::Here(job) = std::mem::take(&mut self.job) {
            self.dispatch(connection, job);
        }
        Ok(())
    }
}

impl Incoming {
    /// Keeps a copy of data, all of it or nothing.
    fn gather<S: Service>(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        flow: &mut Flow,
        data: &[u8],
    ) -> Result<(), NoRoom> {
        let pending = &mut *self.pending;
        if is_streamed(pending) {
            connection.copy(data, &mut pending.piece)?;
        } else {
            let pool = connection.pool();
            pending.gathered.append(pool, data, 0)?;
        }
        pending.came(data.len() as u64);
        self.unreleased += data.len();
        if self.pending.piece.len() <= UPLOAD_PIECE_BYTES {
            self.release(connection, flow);
        }
        Ok(())
    }

    /// Opens the windows for what was taken.
    pub(super) fn release<S: Service>(
        &mut self,
        connection: &mut Link<'_, '_, S>,
        flow: &mut Flow,
    ) {
        let bytes = std::mem::take(&mut self.unreleased);
        connection.core.release(Some(flow), bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_is_emptied_keeps_its_memory() {
        let (name, value) = (String::from("name"), b"value");
        let headers = vec![Header { name: &name, value }; 9];
        let (at, room) = (headers.as_ptr() as usize, headers.capacity());
        let empty: Vec<Header<'static>> = emptied(headers);
        assert_eq!((empty.as_ptr() as usize, empty.capacity()), (at, room));
        assert!(empty.is_empty());
    }
}
