//! Handshakes of a listener: what is there before the protocol's first byte.
//!
//! A connection of a listener with TLS begins with [`Handshakes`] in the place of the listener's
//! protocol, as one behind a load balancer begins with the PROXY header
//! (`connection/behind_proxy.rs`; where a listener has both, the header is first). When the
//! handshake is complete the connection is *secured*: it becomes one of the listener's protocol,
//! with a record layer between that and the socket (`network/secure.rs`).
//!
//! A handshake takes as long as tens of requests, so a worker does it, after the jobs that are
//! requests ([`Rank::AfterOthers`](crate::workers::Rank)): a storm of new clients leaves workers to
//! those that are there, and a part of the workers' turns is for handshakes however many requests
//! there are. Some workers are kept for them ([`PartSize::Kept`](crate::PartSize::Kept)), so
//! handlers that wait keep none out. What is done on the network thread is to find whole records.
//!
//! Invariants
//! - The listener's protocol is called for no connection before its handshake is complete.
//! - A handshake has the deadline of a head, from accept; the protocol's own begin behind it.
//! - A client whose first records are not whole costs the server what it has sent, and no more.
//! - A handshake is begun once: records that arrive while a worker has it wait, whatever the reason
//!   for which they are offered.
//!
//! Cost: for a connection two jobs, and [`HANDSHAKE_BYTES`] of memory while it lasts; more where
//! the client's messages are long, charged before they are read.

use std::sync::Arc;

use bytes::Bytes;
use flatpath_structures::pool::{Charge, PoolHandle};
use rustls::ServerConfig;

use crate::protocol::context::{Context, Job};
use crate::protocol::erased::{DynProtocol, ErasedListener};
use crate::protocol::hand_over::Becomes;
use crate::protocol::io::Io;
use crate::protocol::phase::{Phase, Stall};
use crate::protocol::{Event, Protocol, Received};
use crate::server::options::{ListenerOptions, TlsVersion};
use crate::tls::{
    Established, Failure, FailureCause, Handshake, PAYLOAD_BYTES_MAX_12, Progress, Rustls,
    TlsConfig, whole_records,
};
use crate::workers::scope::WorkerScope;

/// What rustls holds for a client during its handshake, about: buffers, keys, the transcript, and
/// messages of [`MESSAGES_BYTES`].
const HANDSHAKE_BYTES: usize = 12 * 1024;
/// A hello with a key after the next computers, and the rest without a certificate.
const MESSAGES_BYTES: usize = 4 * 1024;
/// A message is kept until it is whole; of it there is a copy, or one in the transcript later.
const MESSAGES_COPIES: usize = 2;

/// What speaks HTTP where TLS is awaited is told so, in its own words.
const PLAIN_HTTP: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\
    Content-Length: 40\r\nConnection: close\r\n\r\nThis port speaks HTTPS: use https://...\n";

/// A client for which there is no room is told so by the alert `internal_error`, which is for a
/// lack of memory too (RFC 8446 section 6.2): in the clear, as all is before the handshake. A reply
/// of the listener's protocol would take a handshake, the most expensive thing that a client can
/// ask for, at the moment of least room; clients report the alert (curl, OpenSSL, Go), and try
/// again as they do after a 503.
const REFUSAL: &[u8] = &[21, 3, 3, 0, 2, 2, 80];

/// See the module.
pub(crate) struct Handshakes {
    config: TlsConfig,
    protocols: &'static [&'static str],
    oldest: TlsVersion,
    /// Of the workers, by its number of the listener's: the last one.
    part: u16,
}

impl Handshakes {
    /// Those of a listener whose protocol has these options.
    pub(crate) fn new(config: TlsConfig, options: &ListenerOptions) -> Handshakes {
        Handshakes {
            config,
            protocols: options.alpn,
            oldest: options.tls_oldest,
            part: u16::try_from(options.parts.len()).unwrap_or(u16::MAX),
        }
    }
}

/// The configuration that the network thread has made for its listener, and of which version it is.
#[derive(Default)]
pub(crate) struct Current(Option<(u64, Arc<ServerConfig>)>);

impl Current {
    fn get(&mut self, handshakes: &Handshakes) -> Arc<ServerConfig> {
        let version = handshakes.config.version();
        if self.0.as_ref().is_none_or(|(made, _)| *made != version) {
            let current = handshakes.config.current(handshakes.protocols);
            self.0 = Some((version, current));
        }
        let (_, config) = self.0.as_ref().expect("it was made");
        Arc::clone(config)
    }
}

/// A client's.
#[derive(Default)]
pub(crate) struct Session {
    state: State,
    charged: Charged,
}

/// How far a client's handshake has come. That it is with a worker is a state like the others:
/// only a client of which nothing was taken begins one.
///
/// | state  | records that arrive | what ends it                |
/// |--------|---------------------|-----------------------------|
/// | New    | begin it            | the first whole record      |
/// | AtWork | wait                | the worker's answer         |
/// | Waits  | continue it         | the next whole records      |
/// | Over   | wait                | the connection's next state |
#[derive(Default)]
enum State {
    #[default]
    New,
    AtWork,
    Waits(Box<dyn Handshake>),
    Over,
}

/// The memory of a handshake.
#[derive(Default)]
pub(super) struct Charged {
    /// Of all the peer's records so far.
    bytes: usize,
    charge: Option<Charge>,
}

impl Charged {
    /// Charges what the handshake takes once `more` bytes of records are added. False: there is no
    /// memory for it.
    pub(super) fn add(&mut self, more: usize, pool: PoolHandle<'_>) -> bool {
        let long = (self.bytes + more).saturating_sub(MESSAGES_BYTES);
        let wanted = HANDSHAKE_BYTES + MESSAGES_COPIES * long;
        let has = self.charge.as_ref().map_or(0, Charge::bytes);
        if wanted > has {
            let Some(charge) = pool.charge(wanted - has) else {
                return false;
            };
            match &mut self.charge {
                Some(before) => before.merge(charge),
                none => *none = Some(charge),
            }
        }
        self.bytes += more;
        true
    }
}

/// Records of a client on their way to a worker, and what follows from them on the way back.
#[derive(Default)]
pub(crate) struct Work {
    step: Step,
    records: Vec<u8>,
    reply: Vec<u8>,
}

/// What a worker is to do with the records, and then what it has come to.
#[derive(Default)]
enum Step {
    #[default]
    Nothing,
    Begins(Arc<ServerConfig>),
    Continues(Box<dyn Handshake>),
    Waits(Box<dyn Handshake>),
    Done(Box<Established>),
    Answered,
    Failed(Failure),
}

impl Work {
    fn clear(&mut self) {
        *self = Work::default();
    }
}

impl Protocol for Handshakes {
    type ThreadState = Current;
    type Session = Session;
    type Job = Work;

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            refusal: Bytes::from_static(REFUSAL),
            ..ListenerOptions::named("tls-handshake")
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let stalled = |consumed, on| Received::Blocked { consumed, on };
        match context.session.state {
            State::New | State::Waits(_) => {}
            State::AtWork => return stalled(0, Stall::Step),
            // They are the next protocol's.
            State::Over => return Received::NeedMore { consumed: 0 },
        }
        // Those of a handshake are not encrypted, or no longer than those of TLS 1.2.
        let Ok((whole, _)) = whole_records(input, PAYLOAD_BYTES_MAX_12) else {
            return self.refuse_plain(context, input);
        };
        if whole == 0 {
            return Received::NeedMore { consumed: 0 };
        }
        let Some(mut job) = context.job() else {
            return stalled(0, Stall::Jobs);
        };
        let pool = context.io.pool().for_bulk();
        if !context.session.charged.add(whole, pool) {
            context.recycle(job);
            return stalled(0, Stall::Memory);
        }
        job.records.extend_from_slice(&input[..whole]);
        let before = std::mem::replace(&mut context.session.state, State::AtWork);
        job.step = match before {
            State::Waits(handshake) => Step::Continues(handshake),
            _ => Step::Begins(context.thread.get(self)),
        };
        let part = self.part;
        context.dispatch_late_in(job, part);
        stalled(whole, Stall::Step)
    }

    fn run(&self, job: &mut Work, _scope: &mut WorkerScope<'_>) {
        let begun = match std::mem::take(&mut job.step) {
            Step::Begins(config) => Rustls::begin(config, self.oldest).map_err(Failure::from),
            Step::Continues(handshake) => Ok(handshake),
            _ => Err(Failure::other("a handshake is gone")),
        };
        job.step = match begun {
            Ok(handshake) => match handshake.advance(&job.records, &mut job.reply) {
                Progress::Waits(handshake) => Step::Waits(handshake),
                Progress::Done(established) => Step::Done(established),
                Progress::Answered => Step::Answered,
                Progress::Failed(cause) => Step::Failed(cause),
            },
            Err(cause) => Step::Failed(cause),
        };
        job.records.clear();
    }

    fn panicked(&self, job: &mut Work) {
        job.clear();
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
                    true => context.io.secure(established),
                    false => context.abort(),
                }
            }
            Step::Answered => {
                log::debug!("TLS handshake: the challenge of an authority is answered");
                context.close_lingering();
            }
            Step::Failed(cause) => {
                context.io.handshake_failed(&cause);
                context.close_lingering();
            }
            Step::Nothing | Step::Begins(_) | Step::Continues(_) => {
                debug_assert!(false, "no worker had it");
                context.abort();
            }
        }
        job.clear();
        context.recycle(job);
    }

    fn retire(&self, _thread: &mut Current, job: &mut Work) {
        job.clear();
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        let is_new = matches!(context.session.state, State::New);
        match event {
            // One whose first record is on its way is served.
            Event::Draining if !is_new || context.io.connection.has_received() => {
                context.restart_phase(Phase::Head);
            }
            other => other.by_default(context),
        }
    }
}

impl Handshakes {
    /// Ends a connection whose client does not speak TLS.
    fn refuse_plain(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let is_http = self.protocols.iter().any(|name| name.starts_with("http/"));
        if is_http && input.first().is_some_and(u8::is_ascii_uppercase) {
            context.write_static(PLAIN_HTTP);
        }
        context.io.handshake_failed(&Failure {
            cause: FailureCause::NoTls,
            words: "the client does not speak TLS".into(),
        });
        context.close_lingering();
        Received::Consumed
    }
}

/// The peer's certificate is charged to its connection. False: there is no memory for it.
pub(super) fn charge_certificate<P: Protocol>(
    context: &Context<'_, P>,
    established: &mut Established,
) -> bool {
    let Some(certificate) = established.certificate() else {
        return true;
    };
    let charge = context.pool().for_bulk().charge(certificate.bytes());
    let is_charged = charge.is_some();
    if let Some(charge) = charge {
        certificate.charged(charge);
    }
    is_charged
}

/// What connections of a listener begin with whose protocol has these options.
pub(crate) fn handshakes(
    config: TlsConfig,
    options: &ListenerOptions,
    places: usize,
) -> Box<dyn DynProtocol> {
    let handshakes = Handshakes::new(config, options);
    Box::new(ErasedListener::new(Arc::new(handshakes), places))
}

impl Io<'_> {
    /// The handshake is complete: after this call the connection is one of its listener's protocol.
    fn secure(&mut self, established: Box<Established>) {
        let counters = self.counters();
        match established.terms.is_resumed() {
            true => counters.tls_resumed.add(1),
            false => counters.tls_full.add(1),
        }
        match established.terms.version() {
            "1.3" => counters.tls_13.add(1),
            _ => counters.tls_12.add(1),
        }
        self.connection.becomes(Becomes::Secured(established));
    }

    /// It has failed: counted and, as any client can cause it, logged for those who look for it.
    fn handshake_failed(&self, failure: &Failure) {
        let counters = self.counters();
        let counter = match failure.cause {
            FailureCause::NoTls => &counters.tls_none,
            FailureCause::NothingInCommon => &counters.tls_incompatible,
            FailureCause::ClientCertificate => &counters.tls_client_certificate,
            FailureCause::Refused => &counters.tls_refused,
            FailureCause::Other => &counters.tls_unshaken,
        };
        counter.add(1);
        log::debug!("TLS handshake: {}", failure.words);
    }
}
