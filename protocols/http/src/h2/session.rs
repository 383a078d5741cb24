//! All of a connection that speaks HTTP/2: the core between an input and an output, and its
//! streams.
//!
//! There is no task and no runtime. Something moves when bytes have arrived, the output has
//! drained, a job is back, the connection was woken, or there is memory again. A frame and a job
//! move their own stream; what may concern any of them moves all, in rounds.
//!
//! Invariants
//! - L1: no frame is read while there is no room for what is said to it. So all that a client can
//!   have this side answer (PING, SETTINGS, refused streams) waits in the client's own output, in
//!   its bound.
//! - L2: at most `STREAMS_MAX` streams are open or have a job with a worker.
//! - L3: between calls no buffer is held here: an idle connection has this and the core.
//! - L4: what is kept is charged (`account`) before it is: a connection begins, and the head of a
//!   stream is read, where there is memory for it.
//! - L5: while a body that has arrived finds no memory, nothing more is read.

use std::time::Duration;

use flatpath::{Job, Phase, Stall};

use super::account::Account;
use super::bounds::{OUT_BYTES_HIGH, SENT_ALONE_BYTES, SENT_AT_ONCE_BYTES};
use super::core::Core;
use super::first_due::FirstDue;
use super::frames::Stop;
use super::hpack::ENTRY_OVERHEAD_BYTES;
use super::link::Link;
use super::priority::{Early, Round};
use super::streams::Streams;
use super::wire::Code;
use crate::connection::state::{Connection, Http, Stage};
use crate::h1::write;
use crate::service::Service;

/// See the module.
pub(crate) struct Session<S: Service> {
    pub(super) core: Core,
    pub(super) account: Account,
    pub(super) streams: Streams<S>,
    /// Where the stream is that moves first in the next round, of those that share.
    first: usize,
    /// What was said of streams that have not begun.
    pub(super) early: Early,
    /// Any stream may have something to move.
    pub(super) moves_all: bool,
    /// A part of a head waits in the input.
    has_part: bool,
    /// There was a request.
    pub(super) has_asked: bool,
    /// There were streams when the deadline was looked at.
    had_streams: bool,
    /// What the connection has to wait for, as of the latest frame or job.
    waits: Option<Stall>,
    /// Since when nothing is read, in the time of turns.
    stalled_since: Option<Duration>,
    first_due: FirstDue,
    times: Times,
}

/// What deadlines are made of, beside what a stream knows: the site of a request may change it, and
/// so may the program.
#[derive(Clone, Copy, Default, PartialEq)]
struct Times {
    phases: [Option<Duration>; 3],
    linger_timeout: Duration,
    body_rate_min: u64,
}

impl Times {
    fn of<S: Service>(connection: &Connection<'_, S>) -> Self {
        let phases = [Phase::Body, Phase::Head, Phase::Push];
        let limits = connection.limits();
        Self {
            phases: phases.map(|phase| connection.time_of(phase)),
            linger_timeout: limits.linger_timeout,
            body_rate_min: limits.body_rate_min,
        }
    }
}

impl<S: Service> Session<S> {
    pub(super) fn new(http: &Http<S>, account: Account, out: Vec<u8>) -> Self {
        let limits = &http.limits;
        let list_bytes = limits.target_bytes_max
            + limits.headers_bytes_max
            + limits.headers_max * ENTRY_OVERHEAD_BYTES;
        Self {
            core: Core::new(list_bytes, http.tunnels, out),
            account,
            streams: Streams::new(),
            first: 0,
            early: Early::default(),
            moves_all: false,
            has_part: false,
            has_asked: false,
            had_streams: false,
            waits: None,
            stalled_since: None,
            first_due: FirstDue::default(),
            times: Times::default(),
        }
    }

    /// Reads what has arrived, but for what waits to be complete, and moves everything that can
    /// move. Returns how much of the input was read, and what the connection has to wait for.
    pub(super) fn received(
        &mut self,
        connection: &mut Connection<'_, S>,
        input: &[u8],
    ) -> (usize, Option<Stall>) {
        self.begin(connection);
        let mut used = 0;
        while self.waits.is_none() && !self.is_done() {
            if let Err(on) = self.makes_room(connection) {
                self.waits = Some(on);
                break;
            }
            match self.step(connection, &input[used..]) {
                Ok(0) => break,
                Ok(bytes) => used += bytes,
                Err(Stop::Waits(on)) => self.waits = Some(on),
                Err(Stop::Ends(code)) => self.end(code),
            }
        }
        let stall = self.waits.take();
        self.open_streams(connection);
        self.has_part = stall.is_none() && used < input.len();
        let moved = self.move_streams(connection);
        let stall = self.conclude(connection, stall.or(moved));
        (used, stall)
    }

    /// Moves everything that can move without more input. Returns what the connection has to wait
    /// for.
    pub(super) fn pump(&mut self, connection: &mut Connection<'_, S>) -> Option<Stall> {
        self.begin(connection);
        let waits = self.waits.take();
        let moved = self.move_streams(connection);
        self.conclude(connection, waits.or(moved))
    }

    /// Whether the connection ends: it is over, or is left and its last stream has ended. What
    /// comes after that is not looked at, in whatever pieces it comes.
    fn is_done(&self) -> bool {
        self.core.is_over() || self.core.is_leaving() && self.streams.is_empty()
    }

    fn begin(&mut self, connection: &mut Connection<'_, S>) {
        if let Some(since) = self.stalled_since.take() {
            // No stream's time has passed while nothing was read.
            let time = connection.turn().now().saturating_sub(since);
            let streams = self.streams.iter_mut();
            streams.for_each(|stream| stream.pace.stood_still(time));
            // Each says then where its deadline is.
            self.moves_all = true;
        }
        if self.core.out.capacity() == 0 {
            self.core.out = std::mem::take(&mut connection.thread.h2.out);
        }
        if connection.leaving() && self.has_asked {
            self.core.leave();
        }
    }

    /// The connection ends with GOAWAY.
    pub(super) fn end(&mut self, code: Code) {
        log::debug!("an HTTP/2 connection ends: {code:?}");
        self.core.end(code);
    }

    /// Sees to room for what a frame may have this side say (L1).
    fn makes_room(&mut self, connection: &mut Connection<'_, S>) -> Result<(), Stall> {
        let core = &mut self.core;
        if core.out.len() >= OUT_BYTES_HIGH {
            let mut link = Link { connection, core };
            link.flush().map_err(|_| Stall::Memory)?;
        }
        match connection.output_is_full() {
            true => Err(Stall::Output),
            false => Ok(()),
        }
    }

    /// Moves what can move of one stream, after something that concerns it alone.
    pub(super) fn move_stream(&mut self, connection: &mut Connection<'_, S>, at: usize) {
        let (sent, stall) = self.advance(connection, at, SENT_AT_ONCE_BYTES);
        // It goes on in its turn.
        self.moves_all |= sent >= SENT_AT_ONCE_BYTES;
        self.waits = self.waits.take().or(stall);
    }

    /// The same; how much was sent, and what it has to wait for.
    fn advance(
        &mut self,
        connection: &mut Connection<'_, S>,
        at: usize,
        bytes_max: usize,
    ) -> (usize, Option<Stall>) {
        let core = &mut self.core;
        let mut link = Link { connection, core };
        let stream = &mut self.streams[at];
        stream.resume_deferred(&mut link);
        let received = stream.receive(&mut link);
        let sent = match bytes_max {
            0 => {
                stream.waits_for_others(&link);
                Ok(0)
            }
            bytes_max => stream.send(&mut link, bytes_max),
        };
        stream.follow_phase(link.turn(), matches!(sent, Ok(1..)));
        // What a tunnel has sent makes room for what it takes.
        self.moves_all |= stream.tunneled.is_some() && matches!(sent, Ok(1..));
        let stall = sent.err().or(received.err());
        let is_over = stream.is_over();
        let deadline = match is_over {
            true => None,
            false => stream.deadline(&link),
        };
        self.first_due.moved(stream.flow.id, deadline);
        if is_over {
            self.end_stream(connection, at);
        }
        (sent.unwrap_or(0), stall)
    }

    /// What has arrived is taken: what is still to come of bodies has to be waited for.
    fn open_streams(&mut self, connection: &mut Connection<'_, S>) {
        if std::mem::take(&mut self.core.has_unopened) {
            let core = &mut self.core;
            let link = &mut Link { connection, core };
            self.streams.iter_mut().for_each(|stream| stream.open(link));
        }
    }

    /// A stream is over.
    fn end_stream(&mut self, connection: &mut Connection<'_, S>, at: usize) {
        let core = &mut self.core;
        let ended = self.streams[at].end(&mut Link { connection, core });
        self.streams.swap_remove(at);
        if let Err(code) = ended {
            self.end(code);
        }
    }

    /// Moves all streams that may have something to move, in rounds in which each has its turn; the
    /// most urgent of them send. Returns what one of them has to wait for.
    fn move_streams(&mut self, connection: &mut Connection<'_, S>) -> Option<Stall> {
        let mut stall = None;
        while std::mem::take(&mut self.moves_all) && stall.is_none() {
            let mut round = self.round();
            for turn in 0..self.streams.len() {
                if self.streams.is_empty() || self.core.is_over() {
                    break;
                }
                let count = self.streams.len();
                let at = match &round {
                    None => self.first % count,
                    Some(round) => match self.streams.place_of(round.stream(turn)) {
                        Some(at) => at,
                        None => continue,
                    },
                };
                if connection.output_is_full() {
                    (self.first, self.moves_all) = (at, true);
                    return Some(Stall::Output);
                }
                let priority = self.streams[at].priority;
                let bytes_max = match &round {
                    Some(round) if !round.lets_send(priority) => 0,
                    _ if count == 1 => SENT_ALONE_BYTES,
                    _ => SENT_AT_ONCE_BYTES,
                };
                let (sent, other) = self.advance(connection, at, bytes_max);
                stall = stall.or(other);
                if let Some(round) = &mut round
                    && sent > 0
                {
                    round.has_sent(priority);
                }
                // Where one is gone another has its place.
                let is_gone = self.streams.len() < count;
                self.first = if is_gone { at } else { at + 1 };
                self.moves_all |= sent > 0 || is_gone;
            }
        }
        stall
    }

    /// The next round. `None`: all have the same priority.
    fn round(&self) -> Option<Round> {
        let streams = self.streams.iter();
        let first = self.streams.get(self.first).map_or(0, |it| it.flow.id);
        Round::of(streams.map(|it| (it.flow.id, it.priority)), first)
    }

    /// Queues what was said, and ends the connection if it is over; says what it waits for
    /// otherwise.
    fn conclude(
        &mut self,
        connection: &mut Connection<'_, S>,
        mut stall: Option<Stall>,
    ) -> Option<Stall> {
        if self.is_done() {
            self.core.end(Code::NoError);
        }
        let core = &mut self.core;
        if (Link { connection, core }).end().is_err() {
            stall = Some(Stall::Memory);
        }
        if self.core.is_over() {
            // The client may be sending.
            connection.session.lingers = true;
            write::close(connection);
            return stall;
        }
        if connection.output_is_full() {
            connection.notify_output_low();
            self.moves_all = true;
            stall = stall.or(Some(Stall::Output));
        }
        self.stalled_since = stall.map(|_| connection.turn().now());
        self.streams.shrink();
        self.account
            .has_left(self.streams.len(), self.core.decoder.has_table());
        let had_streams = std::mem::replace(&mut self.had_streams, !self.streams.is_empty());
        if let Some((end, phase)) = self.deadline(connection) {
            connection.phase_until(phase, end);
            return stall;
        }
        let phase = self.phase(connection);
        match had_streams {
            true => connection.restart_phase(phase),
            false => connection.phase(phase),
        }
        stall
    }

    /// What the connection waits for where no stream has a deadline.
    fn phase(&self, connection: &Connection<'_, S>) -> Phase {
        let is_within_head = self.has_part || self.core.input.is_within_head();
        match self.has_asked || connection.leaving() {
            _ if !self.streams.is_empty() => Phase::Work,
            true if !is_within_head => Phase::Idle,
            _ => Phase::Head,
        }
    }

    /// The first deadline of a stream, and what that waits for.
    fn deadline(&mut self, connection: &Connection<'_, S>) -> Option<(Duration, Phase)> {
        match &self.streams[..] {
            [] => return None,
            [only] => return only.deadline(connection),
            _ => {}
        }
        let times = Times::of(connection);
        if std::mem::replace(&mut self.times, times) != times {
            self.first_due.forget();
        }
        let streams = self.streams.iter();
        self.first_due.get(|| {
            let due = streams.filter_map(|stream| {
                let (end, phase) = stream.deadline(connection)?;
                Some((stream.flow.id, end, phase))
            });
            due.min_by_key(|(_, end, _)| *end)
        })
    }

    /// A job is back.
    pub(super) fn finished(&mut self, connection: &mut Connection<'_, S>, mut job: Job<Http<S>>) {
        let Some(at) = self.streams.place_of(job.number) else {
            return write::recycle(connection, job);
        };
        let core = &mut self.core;
        let link = &mut Link { connection, core };
        let stream = &mut self.streams[at];
        stream.came_back();
        if let Some(work) = job.work.take() {
            write::recycle(link, job);
            stream.tunnel_finished(link, work);
        } else if stream.is_cut {
            match job.is_receiving() {
                true => stream.abandon(link, job),
                false => {
                    stream.drop_body(link);
                    write::recycle(link, job);
                }
            }
        } else if job.goes_on() {
            stream.dispatch(link, job);
        } else if job.is_receiving() {
            stream.receives(link, job);
        } else {
            // An early answer wants no more of the body.
            stream.drop_body(link);
            if job.is_deferred() {
                stream.defer(link, job);
            } else {
                write::charge_job(link, &mut job);
                stream.send_job(link, job);
            }
        }
        self.move_stream(connection, at);
    }

    /// The server drains; the next turn says it to the client.
    pub(super) fn drain(&mut self, connection: &mut Connection<'_, S>) {
        let core = &mut self.core;
        let link = &mut Link { connection, core };
        let streams = self.streams.iter_mut();
        streams.for_each(|stream| stream.drain(link));
    }

    /// A deadline has passed. True: the connection ends.
    pub(super) fn expired(&mut self, connection: &mut Connection<'_, S>, phase: Phase) -> bool {
        if connection.is_evicted() {
            self.core.end(Code::NoError);
            return true;
        }
        if !self.streams.is_empty() {
            let now = connection.turn().now();
            let core = &mut self.core;
            let link = &mut Link { connection, core };
            for stream in self.streams.iter_mut() {
                if stream.deadline(link).is_some_and(|(end, _)| end <= now) {
                    stream.expired(link);
                }
            }
            return false;
        }
        let is_told_now =
            phase == Phase::Idle && connection.draining() && !self.core.has_said_goodbye();
        if is_told_now {
            self.core.leave();
            return false;
        }
        self.core.end(Code::NoError);
        true
    }

    /// After a deadline: until the next one, or a phase that begins now, which the engine asks for.
    pub(super) fn goes_on(&mut self, connection: &mut Connection<'_, S>) {
        self.first_due.forget();
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
        let core = &mut self.core;
        let link = &mut Link { connection, core };
        for mut stream in self.streams.take_all() {
            stream.leave(link);
        }
        self.core.out = Vec::new();
    }

    /// Whether the connection is over.
    pub(super) fn is_over(connection: &Connection<'_, S>) -> bool {
        connection.session.stage != Stage::Http2
    }

    /// Memory is short: what has gathered of uploads goes to workers now.
    pub(super) fn memory_short(&mut self, connection: &mut Connection<'_, S>) {
        let core = &mut self.core;
        let link = &mut Link { connection, core };
        for stream in self.streams.iter_mut() {
            // There is no last piece among them.
            let _passed = stream.pass_piece(link, crate::connection::upload::When::Short);
        }
    }
}
