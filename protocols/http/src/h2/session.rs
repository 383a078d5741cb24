//! All of a connection that speaks HTTP/2: `h2` between an input and an output, and its streams.
//!
//! There is no task and no runtime. `h2` is polled here, when bytes have arrived, the output has
//! drained, a job is back, the connection was woken, or there is memory again. Each of these ends
//! in [`Session::pump`], which goes on until nothing moves any more. Nothing of `h2` is touched by
//! another thread, so its wakers wake nothing: bodies that other threads feed wake the connection
//! by themselves (`feed`).
//!
//! Invariants
//! - L1: `h2` reads only while there is a buffer for what it writes. So all that a client can have
//!   it answer (PING, SETTINGS, refused streams) waits in the client's own output, in its bound.
//! - L2: at most `STREAMS_MAX` streams are open or have a job with a worker.
//! - L3: after a pump no buffer is held here: an idle connection has what `h2` keeps.
//! - L4: what `h2` keeps is charged (`account`) before it keeps it: a connection begins, and the
//!   head of a stream is read, where there is memory for it.
//! - L5: while a body that has arrived finds no memory, nothing more is read: of what follows it
//!   `h2` has `LENT_BYTES_MAX` at most.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use flatpath::{Job, Phase, Stall};
use h2::Reason;
use h2::server;

use super::account::Account;
use super::bounds::{
    CANCELLED_MAX, CONNECTION_WINDOW_BYTES, FAULTY_STREAMS_MAX, LENT_BYTES_MAX,
    OUTPUT_BUFFER_BYTES, SEND_BUFFER_BYTES, STREAM_WINDOW_BYTES, STREAMS_MAX, context,
};
use super::frames::Frames;
use super::request;
use super::stream::{Home, Stream};
use super::transport::Transport;
use crate::limits::{GATHER_BYTES_MAX, Limits, SCRATCH_KEPT_MAX};
use crate::service::Service;
use crate::state::{Connection, Http, Stage};
use crate::write;

/// See the module.
pub(crate) struct Session<S: Service> {
    state: State,
    transport: Transport,
    frames: Frames,
    account: Account,
    pub(super) streams: Vec<Stream<S>>,
    /// Streams that are over, of which `h2` may have something to write.
    unwritten: usize,
    /// Requests that the client has cancelled, less those that were answered.
    cancelled: usize,
    /// A part of a head waits in the input.
    has_part: bool,
    /// The client knows that it is to ask no more.
    is_leaving: bool,
    /// There was a request.
    has_asked: bool,
    /// There were streams when the deadline was looked at.
    had_streams: bool,
    /// Since when nothing is read, in the time of turns.
    stalled_since: Option<Duration>,
}

enum State {
    Greeting(server::Handshake<Transport, Bytes>),
    Open(server::Connection<Transport, Bytes>),
    Over,
}

/// Of a list entry that a head has beside its bytes (RFC 9113 section 6.5.2).
const HEADER_OVERHEAD_BYTES: usize = 32;

impl<S: Service> Session<S> {
    pub(super) fn new(limits: &Limits, account: Account) -> Self {
        let transport = Transport::default();
        let list_bytes = limits.target_bytes_max
            + limits.headers_bytes_max
            + limits.headers_max * HEADER_OVERHEAD_BYTES;
        let handshake = server::Builder::new()
            .max_concurrent_streams(STREAMS_MAX as u32)
            .max_header_list_size(list_bytes as u32)
            .initial_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_send_buffer_size(SEND_BUFFER_BYTES)
            .max_local_error_reset_streams(Some(FAULTY_STREAMS_MAX))
            .header_table_size(0)
            .enable_connect_protocol()
            .handshake(transport.clone());
        Self {
            state: State::Greeting(handshake),
            transport,
            frames: Frames::new(list_bytes),
            account,
            streams: Vec::new(),
            unwritten: 0,
            cancelled: 0,
            has_part: false,
            is_leaving: false,
            has_asked: false,
            had_streams: false,
            stalled_since: None,
        }
    }

    /// Reads what has arrived, but for what waits to be complete, and moves everything that can
    /// move. Returns how much of the input was read, and what the connection has to wait for.
    pub(super) fn received(
        &mut self,
        connection: &mut Connection<'_, S>,
        input: &[u8],
    ) -> (usize, Option<Stall>) {
        self.resume(connection);
        let (mut used, mut stall) = (0, None);
        loop {
            let rest = &input[used..];
            let streams = self.streams.len() + self.unwritten;
            let room = self.account.room(streams, connection.pool());
            let ready = match self
                .frames
                .ready(&rest[..rest.len().min(LENT_BYTES_MAX)], room)
            {
                0 => self.frames.ready(rest, room),
                bytes => bytes,
            };
            // There is something to move without input, too.
            let mut read = 0;
            if !self.has_table_room(connection, ready) {
                stall = Some(Stall::Memory);
            } else if ready > 0 || used == 0 {
                (read, stall) = self.lend(connection, &rest[..ready]);
                used += read;
            }
            if ready == 0 && stall.is_none() {
                stall = self.lacks_room(connection, rest, room);
            }
            // What is over reads nothing.
            if read == 0 || stall.is_some() {
                break;
            }
        }
        self.has_part = stall.is_none() && used < input.len();
        self.conclude(connection, stall);
        (used, stall)
    }

    /// Whether there is memory for what the client's table of headers may keep of so much input.
    fn has_table_room(&mut self, connection: &Connection<'_, S>, ready: usize) -> bool {
        let bytes = self.frames.table_bytes(ready);
        self.account.holds_table(bytes, connection.pool())
    }

    /// Has `h2` read input, and moves what it can. Returns how much was read.
    fn lend(&mut self, connection: &mut Connection<'_, S>, input: &[u8]) -> (usize, Option<Stall>) {
        let buffer = std::mem::take(&mut connection.thread.h2.input);
        self.transport.lend_input(buffer, input);
        let stall = self.turn(connection);
        let (buffer, read) = self.transport.take_input();
        if buffer.capacity() <= SCRATCH_KEPT_MAX {
            connection.thread.h2.input = buffer;
        }
        self.frames.advance(&input[..read]);
        (read, stall)
    }

    /// No stream's time has passed while nothing was read.
    fn resume(&mut self, connection: &Connection<'_, S>) {
        if let Some(since) = self.stalled_since.take() {
            let time = connection.turn().now().saturating_sub(since);
            let streams = self.streams.iter_mut();
            streams.for_each(|stream| stream.pace.stood_still(time));
        }
    }

    /// What the input has to wait for, if it is room for another stream.
    fn lacks_room(
        &self,
        connection: &Connection<'_, S>,
        rest: &[u8],
        room: usize,
    ) -> Option<Stall> {
        let waits = room == 0 && self.frames.ready(rest, 1) > 0;
        waits.then(|| match connection.jobs_out() {
            0 => Stall::Memory,
            _ => Stall::Pipeline,
        })
    }

    /// Moves everything that can move without more input. Returns what the connection has to wait
    /// for.
    pub(super) fn pump(&mut self, connection: &mut Connection<'_, S>) -> Option<Stall> {
        self.resume(connection);
        let stall = self.turn(connection);
        self.conclude(connection, stall);
        stall
    }

    fn turn(&mut self, connection: &mut Connection<'_, S>) -> Option<Stall> {
        if connection.leaving() && self.has_asked {
            self.leave();
        }
        let stall = self.run(connection);
        self.flush(connection);
        stall
    }

    fn run(&mut self, connection: &mut Connection<'_, S>) -> Option<Stall> {
        loop {
            if !self.transport.has_output() {
                if connection.output_is_full() {
                    connection.notify_drained();
                    return Some(Stall::Output);
                }
                let Some(buffer) = connection.pool().take(OUTPUT_BUFFER_BYTES) else {
                    return Some(Stall::Memory);
                };
                self.transport.lend_output(buffer);
            }
            self.poll(connection);
            let moved = match &self.state {
                State::Over => return None,
                _ => self.move_streams(connection),
            };
            let is_full = self.transport.is_full();
            if is_full {
                self.flush(connection);
            }
            match moved {
                Err(stall) => return Some(stall),
                Ok(false) if !is_full => {
                    self.unwritten = 0;
                    return None;
                }
                Ok(_) => {}
            }
        }
    }

    /// Has `h2` read and write, and takes the requests that have arrived.
    fn poll(&mut self, connection: &mut Connection<'_, S>) {
        loop {
            match &mut self.state {
                State::Greeting(handshake) => match Pin::new(handshake).poll(&mut context()) {
                    Poll::Pending => return,
                    Poll::Ready(Ok(open)) => self.state = State::Open(open),
                    Poll::Ready(Err(_)) => self.state = State::Over,
                },
                State::Open(open) => match open.poll_accept(&mut context()) {
                    Poll::Pending => return,
                    Poll::Ready(Some(Ok((request, respond)))) => {
                        self.accept(connection, request, respond);
                    }
                    Poll::Ready(Some(Err(error))) => {
                        log::debug!("an HTTP/2 connection ends: {error}");
                        self.state = State::Over;
                    }
                    Poll::Ready(None) => self.state = State::Over,
                },
                State::Over => return,
            }
        }
    }

    fn accept(
        &mut self,
        connection: &mut Connection<'_, S>,
        request: http::Request<h2::RecvStream>,
        mut respond: server::SendResponse<Bytes>,
    ) {
        if self.streams.len() >= STREAMS_MAX {
            // Those that were reset are with workers still (L2).
            return respond.send_reset(Reason::REFUSED_STREAM);
        }
        self.has_asked = true;
        let mut stream = request::serve(connection, request, respond);
        // Without memory it waits, like others, for the next look.
        let sent = stream.send(connection);
        stream.follow_phase(connection.turn(), sent == Ok(true));
        match stream.is_over() {
            true => self.end_stream(connection, stream),
            false => {
                if self.streams.capacity() == 0 {
                    // Most connections have one at a time.
                    self.streams.reserve_exact(1);
                }
                self.streams.push(stream);
            }
        }
    }

    /// A stream is over. What is left of it is with `h2`, which has not written all of it.
    fn end_stream(&mut self, connection: &mut Connection<'_, S>, stream: Stream<S>) {
        self.cancelled = match stream.is_cancelled() {
            true => self.cancelled + 1,
            false => self.cancelled.saturating_sub(1),
        };
        stream.end(connection);
        self.unwritten += 1;
        if self.cancelled > CANCELLED_MAX
            && let State::Open(open) = &mut self.state
        {
            open.abrupt_shutdown(Reason::ENHANCE_YOUR_CALM);
        }
    }

    /// Moves bodies in both directions. True: `h2` has something to write.
    fn move_streams(&mut self, connection: &mut Connection<'_, S>) -> Result<bool, Stall> {
        let (mut has_news, mut stall, mut at) = (false, None, 0);
        while let Some(stream) = self.streams.get_mut(at) {
            stream.find_reset(connection);
            stream.resume_deferred(connection);
            match stream.receive(connection) {
                Ok(news) => has_news |= news,
                Err(other) => stall = Some(other),
            }
            let sent = stream.send(connection);
            match sent {
                Ok(news) => has_news |= news,
                Err(other) => stall = Some(other),
            }
            stream.follow_phase(connection.turn(), sent == Ok(true));
            if stream.is_over() {
                let stream = self.streams.swap_remove(at);
                self.end_stream(connection, stream);
                has_news = true;
            } else {
                at += 1;
            }
        }
        stall.map_or(Ok(has_news), Err)
    }

    /// Queues what was written, as it is or copied after other output.
    fn flush(&mut self, connection: &mut Connection<'_, S>) {
        let Some(buffer) = self.transport.take_output() else {
            return;
        };
        let bytes = buffer.filled().len();
        let is_copied = bytes <= GATHER_BYTES_MAX && connection.write(buffer.filled()).is_ok();
        if bytes > 0 && !is_copied {
            connection.write_buffer(buffer);
        }
    }

    /// Ends the connection if it is over, and says what it waits for otherwise.
    fn conclude(&mut self, connection: &mut Connection<'_, S>, stall: Option<Stall>) {
        if matches!(self.state, State::Over) {
            // The client may be sending.
            connection.session.lingers = true;
            return write::close(connection);
        }
        self.stalled_since = stall.map(|_| connection.turn().now());
        let streams = self.streams.len() + self.unwritten;
        self.account.has_left(streams, self.frames.table_bytes(0));
        let had_streams = std::mem::replace(&mut self.had_streams, !self.streams.is_empty());
        if let Some((end, phase)) = self.deadline(connection) {
            return connection.phase_until(phase, end);
        }
        let phase = self.phase(connection);
        match had_streams {
            true => connection.restart_phase(phase),
            false => connection.phase(phase),
        }
    }

    /// What the connection waits for where no stream has a deadline.
    fn phase(&self, connection: &Connection<'_, S>) -> Phase {
        let is_within_head = self.has_part || self.frames.is_within_head();
        match self.has_asked || connection.leaving() {
            _ if !self.streams.is_empty() => Phase::Work,
            true if !is_within_head => Phase::Idle,
            _ => Phase::Head,
        }
    }

    /// The first deadline of a stream, and what that waits for.
    fn deadline(&self, connection: &Connection<'_, S>) -> Option<(Duration, Phase)> {
        let deadlines = self.streams.iter();
        let deadlines = deadlines.filter_map(|stream| stream.deadline(connection));
        deadlines.min_by_key(|(end, _)| *end)
    }

    /// A job is back.
    pub(super) fn finished(&mut self, connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
        let is_of = |stream: &&mut Stream<S>| stream.id == job.number;
        let Some(stream) = self.streams.iter_mut().find(is_of) else {
            return write::recycle(connection, job);
        };
        stream.came_back();
        if let Some(work) = job.work.take() {
            write::recycle(connection, job);
            return stream.tunnel_finished(connection, work);
        }
        if stream.is_cut {
            return match job.is_receiving() {
                true => stream.abandon(connection, job),
                false => {
                    stream.drop_body(connection);
                    write::recycle(connection, job);
                }
            };
        }
        if job.goes_on() {
            return stream.dispatch(connection, job);
        }
        if job.is_receiving() {
            stream.job = Home::Here(job);
            return;
        }
        // An early answer wants no more of the body.
        stream.drop_body(connection);
        if job.is_deferred() {
            return stream.defer(connection, job);
        }
        write::charge_job(connection, &mut job);
        stream.send_job(connection, job);
    }

    /// The client is to ask no more on this connection: GOAWAY, and what runs is finished (RFC 9113
    /// section 6.8). One that has asked for nothing yet may be about to: where its first request
    /// has come it is told, or when it has been silent for as long as an idle one may be.
    fn leave(&mut self) {
        if let State::Open(open) = &mut self.state
            && !self.is_leaving
        {
            self.is_leaving = true;
            open.graceful_shutdown();
        }
    }

    /// The server drains; the next turn says it to the client.
    pub(super) fn drain(&mut self, connection: &mut Connection<'_, S>) {
        let streams = self.streams.iter_mut();
        streams.for_each(|stream| stream.drain(connection));
    }

    /// A deadline has passed. True: the connection ends.
    pub(super) fn expired(&mut self, connection: &mut Connection<'_, S>, phase: Phase) -> bool {
        if !connection.is_evicted() && !self.streams.is_empty() {
            let now = connection.turn().now();
            for stream in &mut self.streams {
                if stream
                    .deadline(connection)
                    .is_some_and(|(end, _)| end <= now)
                {
                    stream.expired(connection);
                }
            }
            return false;
        }
        let is_told_now = phase == Phase::Idle && connection.draining() && !self.is_leaving;
        if is_told_now && !connection.is_evicted() {
            self.leave();
            return !self.is_leaving;
        }
        if let State::Open(open) = &mut self.state {
            open.abrupt_shutdown(Reason::NO_ERROR);
        }
        true
    }

    /// After a deadline: until the next one, or a phase that begins now, which the engine asks for.
    pub(super) fn goes_on(&self, connection: &mut Connection<'_, S>) {
        match self.deadline(connection) {
            Some((end, phase)) => connection.phase_until(phase, end),
            None => {
                let phase = self.phase(connection);
                connection.restart_phase(phase);
            }
        }
    }

    /// Ends all streams.
    pub(super) fn end_streams(&mut self, connection: &mut Connection<'_, S>) {
        for stream in self.streams.drain(..) {
            stream.end(connection);
        }
        self.state = State::Over;
    }

    /// Whether the connection is over.
    pub(super) fn is_over(connection: &Connection<'_, S>) -> bool {
        connection.session.stage != Stage::Http2
    }

    /// Memory is short: what has gathered of uploads goes to workers now.
    pub(super) fn pressed(&mut self, connection: &mut Connection<'_, S>) {
        for stream in &mut self.streams {
            // There is no last piece among them.
            let _passed = stream.pass_piece(connection, crate::upload::When::Short);
        }
    }
}
