//! HTTP/2 (RFC 9113): the same services, limits and rules as over HTTP/1.
//!
//! ```text
//! input ─► core: frames ─► hpack: a head ─► fields ─► request ─► inline service ─► send
//!            │     └─► data ─► (body) ─► job ─► worker ─► finished ────────────────┤
//!            └── out ◄── a block as it is, data as the windows and the output have room ─┘
//! ```
//!
//! A connection speaks it when its first bytes are the preface (RFC 9113 section 3.4), which a
//! client sends by prior knowledge, or because TLS has chosen `h2` by ALPN. Until then it is one of
//! HTTP/1, and pays nothing.
//!
//! | file        | what it does                                                      | does I/O |
//! |-------------|-------------------------------------------------------------------|----------|
//! | `wire`      | frames as bytes, error codes                                      | no       |
//! | `hpack`     | fields as bytes                                                   | no       |
//! | `flow`      | one stream: its sides and windows                                 | no       |
//! | `input`     | which frame is where                                              | no       |
//! | `patience`  | what a client may do for nothing                                  | no       |
//! | `priority`  | whose reply is sent first                                         | no       |
//! | `core`      | who may say what when, windows, goodbyes                          | no       |
//! | `fields`    | the head that a request's fields are                              | no       |
//! | `bounds`    | windows, buffers, how many of what                                | no       |
//! | `account`   | the charge for what a connection holds                            |          |
//! | `link`      | a connection beside its core                                      | yes      |
//! | `request`   | heads to their admission, bodies to workers                       | yes      |
//! | `stream`    | a request and its reply, and their ends                           | yes      |
//! | `send`      | replies, as the windows have room                                 | yes      |
//! | `streams`   | those of a connection, found by their number                      | no       |
//! | `tunnel`    | other protocols on a stream (RFC 8441)                            | yes      |
//! | `first_due` | the first deadline of a stream                                    | no       |
//! | `frames`    | what each frame does                                              | yes      |
//! | `session`   | the loop: input, rounds, deadlines                                | yes      |
//!
//! What it does not do: server push, CONNECT to other hosts.

use flatpath::access_log::LogEnd;
use flatpath::{Job, Phase, Received, Stall};

use crate::connection::state::{self, Connection, Due, Http, Http2Streams, Stage};
use crate::h1::write;
use crate::service::Service;

mod wire;
pub(crate) mod hpack;
mod flow;
mod input;
mod patience;
mod priority;
mod core;
mod fields;
mod bounds;
mod account;
mod link;
mod stream;
mod streams;
mod tunnel;
mod send;
mod request;
mod first_due;
mod frames;
mod session;

use account::Account;
use session::Session;

impl<S: Service> Http<S> {
    /// Speaks HTTP/1.1 only, whatever a client prefers. Without this a client has HTTP/2 that asks
    /// for it, in the handshake of TLS (ALPN) or by its first bytes.
    #[must_use]
    pub fn without_http2(self) -> Self {
        Self {
            http2: false,
            ..self
        }
    }

    /// Does not announce that WebSockets are taken over HTTP/2 (extended CONNECT, RFC 8441), so
    /// that browsers open theirs over HTTP/1.1: for a service that takes them there alone, such as
    /// a [`Proxy`](crate::Proxy).
    #[must_use]
    pub fn without_tunnels(self) -> Self {
        Self {
            tunnels: false,
            ..self
        }
    }
}

/// Calls `act` with the streams beside the connection they are part of.
fn with<S: Service, T>(
    connection: &mut Connection<'_, S>,
    act: impl FnOnce(&mut Connection<'_, S>, &mut Session<S>) -> T,
) -> Option<T> {
    let mut streams = connection.session.due.take_http2()?;
    let session = streams.0.downcast_mut::<Session<S>>()?;
    let value = act(connection, session);
    if Session::is_over(connection) {
        session.end_streams(connection);
    } else {
        connection.session.due = Due::Http2(streams);
    }
    Some(value)
}

/// Bytes have arrived; the first of them are the preface.
pub(crate) fn received<S: Service>(connection: &mut Connection<'_, S>, input: &[u8]) -> Received {
    if matches!(connection.session.due, Due::Nothing) {
        let Some(account) = Account::open(connection.pool()) else {
            let on = Stall::Memory;
            return Received::Blocked { consumed: 0, on };
        };
        let out = std::mem::take(&mut connection.thread.h2.out);
        let session = Session::<S>::new(connection.protocol, account, out);
        connection.session.due = Due::Http2(Box::new(Http2Streams(Box::new(session))));
    }
    let pumped = with(connection, |connection, session| {
        session.received(connection, input)
    });
    match pumped {
        Some((consumed, Some(on))) if !Session::is_over(connection) => {
            Received::Blocked { consumed, on }
        }
        Some((consumed, _)) => Received::NeedMore { consumed },
        None => Received::Consumed,
    }
}

/// Something else has happened: `act` says what, and everything moves that can.
fn moved<S: Service>(
    connection: &mut Connection<'_, S>,
    act: impl FnOnce(&mut Connection<'_, S>, &mut Session<S>),
) {
    with(connection, |connection, session| {
        act(connection, session);
        if let Some(stall) = session.pump(connection)
            && stall != Stall::Output
        {
            connection.io.stall(stall);
        }
    });
}

/// The output has room, or the connection was woken.
pub(crate) fn woken<S: Service>(connection: &mut Connection<'_, S>) {
    moved(connection, |_, session| session.moves_all = true);
}

/// A job is back.
pub(crate) fn finished<S: Service>(connection: &mut Connection<'_, S>, job: Job<Http<S>>) {
    moved(connection, |connection, session| {
        session.finished(connection, job);
    });
}

/// A deadline has passed.
pub(crate) fn expired<S: Service>(connection: &mut Connection<'_, S>, phase: Phase) {
    let mut ends = false;
    moved(connection, |connection, session| {
        ends = session.expired(connection, phase);
        session.moves_all = true;
    });
    if ends {
        close(connection);
    } else if connection.session.stage == Stage::Http2 {
        with(connection, |connection, session| {
            session.goes_on(connection);
        });
    }
}

/// The server drains.
pub(crate) fn draining<S: Service>(connection: &mut Connection<'_, S>) {
    moved(connection, |connection, session| {
        session.drain(connection);
        session.moves_all = true;
    });
    if connection.session.stage == Stage::Http2 {
        let has_streams = with(connection, |_, session| !session.streams.is_empty());
        if has_streams != Some(true) {
            connection.restart_phase(Phase::Idle);
        }
    }
}

/// Memory is short.
pub(crate) fn memory_short<S: Service>(connection: &mut Connection<'_, S>) {
    with(connection, |connection, session| {
        session.memory_short(connection);
    });
}

/// The client sends no more. It can open no window any more, and a client that still reads is not
/// one of HTTP/2.
pub(crate) fn close<S: Service>(connection: &mut Connection<'_, S>) {
    if connection.session.stage == Stage::Http2
        && with(connection, |connection, _| write::close(connection)).is_none()
    {
        // It has said nothing.
        write::close(connection);
    }
}

/// The engine ends the connection: the words of HTTP/1 would be taken for a frame.
pub(crate) fn abandoned<S: Service>(connection: &mut Connection<'_, S>) {
    if with(connection, |connection, _| write::abort(connection)).is_none() {
        connection.abort();
    }
}

/// Writes the lines of what has not ended.
pub(crate) fn log_rest<S: Service>(session: &mut state::Session<S>, mut end: LogEnd<'_>) {
    let Due::Http2(streams) = &mut session.due else {
        return;
    };
    let Some(own) = streams.0.downcast_mut::<Session<S>>() else {
        return;
    };
    let known = session.known.as_ref();
    let Some(records) = known.and_then(|known| known.records.as_ref()) else {
        return;
    };
    for stream in own.streams.iter_mut() {
        if let Some(mut record) = stream.record.take() {
            records.log_stream(&mut record, stream.sent, &mut end);
        }
    }
}
