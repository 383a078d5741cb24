//! Handshakes of connections that this server opens: what is there before `Connected`.
//!
//! Such a connection begins with [`ClientHandshakes`] in the place of its own protocol, as one of a
//! listener with TLS begins with that of `handshakes.rs`; when the handshake is complete, a record
//! layer is between the protocol and the socket, the same one. A worker does it, as a request.
//!
//! | state  | records that arrive | what ends it                |
//! |--------|---------------------|-----------------------------|
//! | New    | wait                | a place for a job           |
//! | AtWork | wait                | the worker's answer         |
//! | Waits  | continue it         | the next whole records      |
//! | Over   | wait                | the connection's next state |
//!
//! Invariants
//! - The connection's own protocol is called for nothing before the handshake is complete, but for
//!   `ConnectFailed`.
//! - A handshake has the time that is left of [`Connect::timeout`](crate::Connect::timeout).
//!
//! Cost: as of a listener's handshakes: two jobs and 12 KiB of memory while it lasts.

use std::sync::{Arc, LazyLock};

use rustls::ClientConfig;
use rustls::pki_types::ServerName;

use super::client_session::{RustlsClient, fit};
use super::handshakes::{Charged, charge_certificate};
use super::{
    Established, Failure, FailureCause, Handshake, PAYLOAD_BYTES_MAX_12, Progress, whole_records,
};
use crate::protocol::connect::{Connect, ConnectError, ConnectReason, ConnectStep, TlsFault};
use crate::protocol::context::{Context, Job};
use crate::protocol::hand_over::{Becomes, HandOver};
use crate::protocol::phase::Stall;
use crate::protocol::successor::Successor;
use crate::protocol::{Event, Protocol, Received};
use crate::server::options::ListenerOptions;
use crate::workers::scope::WorkerScope;

/// One for the process: each network thread has what it needs of it from its first handshake on.
static HANDSHAKES: LazyLock<Successor<ClientHandshakes>> =
    LazyLock::new(|| Successor::new(ClientHandshakes));

impl Connect {
    /// Has the connection secured by TLS before it is [`Connected`](crate::Event::Connected), after
    /// [`Secured`](crate::Event::Secured). `name` is whom the certificate has to be for, and is
    /// sent (SNI) unless it is an address. Roots, a certificate of this side, and protocols (ALPN)
    /// are those of the configuration; what was agreed on is in [`Io::tls`](crate::Io::tls), with
    /// the server's certificate in the place of a client's. [`Connect::timeout`] is for both,
    /// the connection and its TLS.
    ///
    /// Build the configuration with [`tls::provider`](crate::tls::provider): a server that chooses
    /// a cipher with AES-128 cannot be talked to. Without `enable_secret_extraction`, or with
    /// `enable_early_data`, the configuration is copied for each connection, and changed.
    pub fn tls(self, config: Arc<ClientConfig>, name: ServerName<'static>) -> Connect {
        let begin = move || Session {
            state: State::New(Box::new((fit(config), name))),
            charged: Charged::default(),
        };
        let secure: HandOver = HANDSHAKES.begin(begin);
        Connect {
            secure: Some(secure),
            ..self
        }
    }
}

/// See the module.
struct ClientHandshakes;

#[derive(Default)]
struct Session {
    state: State,
    charged: Charged,
}

/// Whom to talk to, and how.
type Begin = Box<(Arc<ClientConfig>, ServerName<'static>)>;

#[derive(Default)]
enum State {
    New(Begin),
    AtWork,
    Waits(Box<dyn Handshake>),
    #[default]
    Over,
}

/// Records of the server on their way to a worker, and what follows from them on the way back.
#[derive(Default)]
struct Work {
    step: Step,
    records: Vec<u8>,
    reply: Vec<u8>,
}

#[derive(Default)]
enum Step {
    #[default]
    Nothing,
    Begins(Begin),
    Continues(Box<dyn Handshake>),
    Waits(Box<dyn Handshake>),
    Done(Box<Established>),
    Failed(Failure),
}

impl Protocol for ClientHandshakes {
    type ThreadState = ();
    type Session = Session;
    type Job = Work;

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("tls-connect")
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let whole = match context.session.state {
            State::New(_) => 0,
            State::Waits(_) => match whole_records(input, PAYLOAD_BYTES_MAX_12) {
                Ok((0, _)) => return Received::NeedMore { consumed: 0 },
                Ok((whole, _)) => whole,
                Err(_) => {
                    fail(context, &no_tls());
                    return Received::Consumed;
                }
            },
            State::AtWork => {
                return Received::Blocked {
                    consumed: 0,
                    on: Stall::Step,
                };
            }
            // They are the next protocol's.
            State::Over => return Received::NeedMore { consumed: 0 },
        };
        match step(context, &input[..whole]) {
            Ok(()) => Received::Blocked {
                consumed: whole,
                on: Stall::Step,
            },
            Err(on) => Received::Blocked { consumed: 0, on },
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Connected => {
                let on = step(context, &[]).err().unwrap_or(Stall::Step);
                context.stall(on);
            }
            other => other.by_default(context),
        }
    }

    fn run(&self, job: &mut Work, _scope: &mut WorkerScope<'_>) {
        job.step = match std::mem::take(&mut job.step) {
            Step::Begins(begin) => {
                let (config, name) = *begin;
                match RustlsClient::begin(config, name, &mut job.reply) {
                    Ok(handshake) => Step::Waits(handshake),
                    Err(cause) => Step::Failed(cause),
                }
            }
            Step::Continues(handshake) => match handshake.advance(&job.records, &mut job.reply) {
                Progress::Waits(handshake) => Step::Waits(handshake),
                Progress::Done(established) => Step::Done(established),
                Progress::Answered => Step::Failed(Failure::other("a client answers no challenge")),
                Progress::Failed(cause) => Step::Failed(cause),
            },
            _ => Step::Failed(Failure::other("a handshake is gone")),
        };
        job.records.clear();
    }

    fn panicked(&self, job: &mut Work) {
        *job = Work::default();
        job.step = Step::Failed(Failure::other("the handshake panicked; this is a bug"));
    }

    fn finished(&self, context: &mut Context<'_, Self>, mut job: Job<Self>) {
        if !job.reply.is_empty() {
            // It is charged with the handshake.
            let reply = std::mem::take(&mut job.reply);
            context.write_held(reply.into());
        }
        context.session.state = State::Over;
        match std::mem::take(&mut job.step) {
            Step::Waits(handshake) => context.session.state = State::Waits(handshake),
            Step::Done(mut established) => {
                context.session.charged = Charged::default();
                match charge_certificate(context, &mut established) {
                    true => context.io.connection.becomes(Becomes::Secured(established)),
                    false => context.abort(),
                }
            }
            Step::Failed(failure) => fail(context, &failure),
            Step::Nothing | Step::Begins(_) | Step::Continues(_) => {
                debug_assert!(false, "no worker had it");
                context.abort();
            }
        }
        *job = Work::default();
        context.recycle(job);
    }

    fn retire(&self, _thread: &mut (), job: &mut Work) {
        *job = Work::default();
    }
}

fn no_tls() -> Failure {
    Failure {
        cause: FailureCause::NoTls,
        words: "the server does not speak TLS".into(),
    }
}

/// Has a worker begin the handshake, or go on with it. Nothing has changed where it has to wait.
fn step(context: &mut Context<'_, ClientHandshakes>, records: &[u8]) -> Result<(), Stall> {
    let mut job = context.job().ok_or(Stall::Jobs)?;
    let pool = context.io.pool().for_bulk();
    if !context.session.charged.add(records.len(), pool) {
        context.recycle(job);
        return Err(Stall::Memory);
    }
    job.records.extend_from_slice(records);
    let before = std::mem::replace(&mut context.session.state, State::AtWork);
    job.step = match before {
        State::New(begin) => Step::Begins(begin),
        State::Waits(handshake) => Step::Continues(handshake),
        State::AtWork | State::Over => Step::Nothing,
    };
    context.dispatch(job);
    Ok(())
}

/// The connection ends when its last words are sent; its own protocol is told why then.
fn fail(context: &mut Context<'_, ClientHandshakes>, failure: &Failure) {
    let fault = match failure.cause {
        FailureCause::NoTls => TlsFault::NoTls,
        FailureCause::NothingInCommon => TlsFault::NothingInCommon,
        FailureCause::ClientCertificate => TlsFault::Certificate,
        FailureCause::Refused => TlsFault::Refused,
        FailureCause::Other => TlsFault::Other,
    };
    let error = ConnectError::new(ConnectStep::Tls, ConnectReason::Tls(fault));
    let connection = &mut *context.io.connection;
    connection.securing_failed(error.saying(&failure.words));
    context.close_after_output();
}
