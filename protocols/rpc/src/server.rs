//! ONC RPC as a protocol of the engine: records in, calls to workers, replies in any order.
//!
//! A call whose record lies whole in a receive buffer is opened there; an inline procedure is
//! answered there and then, and so is a short one that needs no wait, if it is all that has arrived
//! (`Route::Prompt`): its arguments are read where they lie. Any other goes to a worker with a copy
//! of its record and with a buffer for its reply, taken before, so that a worker can always answer.
//! Several calls of one connection are with workers at once, and a reply goes out when its call is
//! done.
//!
//! | on the network thread                                      | on a worker                    |
//! |------------------------------------------------------------|--------------------------------|
//! | `Programs::route`, `Programs::inline`, `Programs::prompt`  | `Programs::pooled`, the cache  |
//!
//! Invariants
//! - G1: a record is completed only when its call can be dispatched; until then its last bytes stay
//!   unconsumed, so a stalled connection is offered them again.
//! - G2: at most `CALLS_MAX` calls of a connection are with workers.
//! - G3: a connection that has begun to end takes no more calls and sends FIN after its last reply:
//!   a reset for calls that came too late, which the client sends again, would take replies along.
//! - G4: a call goes to a worker only when its reply fits what the connection may have on its way,
//!   unless nothing is: a client that does not read its replies holds no more than that. A call
//!   that came in parts may exceed it once.

mod here;

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use flatpath::access_log::LogEnd;
use flatpath::descriptors::DescriptorBudget;
use flatpath::memory::RegionConfig;
use flatpath::{
    Context, Event, Job, ListenerOptions, Pages, PerThread, Phase, Protocol, Received, Stall,
    TlsVersion, WorkerScope,
};

use crate::datagrams::RpcDatagrams;
use crate::duplicate_requests::DuplicateRequestCache;
use crate::job::RpcJob;
use crate::limits::{
    CACHED_REPLIES_MAX, CALLS_MAX, CONTIGUOUS_BYTES_MAX, IDLE_PERIODS_MAX, PAGE_BYTES,
    PAGES_PER_CONNECTION_MAX, PAGES_PER_LISTENER, PAGES_RESERVED, PROMPT_REPLY_BYTES_MAX,
    REPLY_BYTES_MIN,
};
use crate::message::{self, Call, Denied, Refusal};
use crate::origin::Origin;
use crate::programs::{Found, Programs, Route};
use crate::record::{self, Arguments, Assembled, Assembly, Completion, Source as _};
use crate::record_source::RecordSource;
use crate::reply::Reply;
use crate::reply_counts::{Beside, ReplyCounts, ThreadCounts};
use here::send;

/// Programs as a protocol of the engine.
pub struct Rpc<S: Programs> {
    programs: Arc<S>,
    duplicates: DuplicateRequestCache,
    page_bytes: u32,
    counts: ReplyCounts,
}

flatpath::opaque_debug! {
    impl[S: Programs] Rpc<S> as "Rpc";
}

impl<S: Programs> Rpc<S> {
    /// Serves `programs`; keeps the replies of [`CACHED_REPLIES_MAX`] calls.
    pub fn new(programs: S) -> Rpc<S> {
        Rpc {
            programs: Arc::new(programs),
            duplicates: DuplicateRequestCache::new(CACHED_REPLIES_MAX),
            page_bytes: PAGE_BYTES,
            counts: ReplyCounts::default(),
        }
    }

    /// What is served.
    pub fn programs(&self) -> &S {
        &self.programs
    }

    /// What its replies come to, to be read while it serves.
    pub fn reply_counts(&self) -> ReplyCounts {
        self.counts.clone()
    }

    /// The same programs over datagrams, for
    /// [`Server::listen_datagrams`](flatpath::Server::listen_datagrams). They are told by
    /// [`Call::transport`] what a call came by.
    pub fn datagrams(&self) -> RpcDatagrams<S> {
        RpcDatagrams::new(Arc::clone(&self.programs), &self.counts)
    }

    /// With less memory: pages of `page_bytes` (a multiple of the machine's page, at most
    /// [`PAGE_BYTES`]) for long records, and the replies of `cached_replies` calls. Smaller pages
    /// cost more receives for each record.
    pub fn bounded(self, page_bytes: u32, cached_replies: usize) -> Rpc<S> {
        Rpc {
            duplicates: DuplicateRequestCache::new(cached_replies),
            page_bytes: page_bytes.min(PAGE_BYTES),
            ..self
        }
    }
}

/// What one connection keeps: a record on its way in.
#[derive(Debug, Default)]
#[doc(hidden)]
pub struct RpcSession {
    assembly: Assembly,
    idle_periods: u8,
    ending: bool,
    /// What the calls with workers may answer, in bytes (G4).
    promised_bytes: usize,
    /// Where the connection comes from and what it came to, asked once, and whether it has TLS.
    peer: Option<SocketAddr>,
    local: Option<IpAddr>,
    is_secured: bool,
    /// Made with the first call that must not be executed twice.
    origin: Option<Arc<Origin>>,
}

/// What a network thread keeps: what replies are built with here, between two, and what it counts.
#[derive(Debug)]
#[doc(hidden)]
pub struct RpcThread {
    reply: Reply,
    counts: ThreadCounts,
}

impl<S: Programs> PerThread<Rpc<S>> for RpcThread {
    fn new(rpc: &Rpc<S>) -> RpcThread {
        RpcThread {
            reply: Reply::default(),
            counts: rpc.counts.enter(rpc.programs.reply_classes()),
        }
    }
}

/// What became of a record.
enum Progress {
    /// Answered or dispatched.
    Done,
    /// It waits.
    Stalled(Stall),
    /// It is no call: the connection ends.
    NoCall,
    /// The reply says that TLS begins behind it.
    StartsTls,
}

impl<S: Programs> Rpc<S> {
    /// The call in a record, where its arguments begin, and where it is answered.
    fn route(&self, record: &[u8], session: &RpcSession) -> Result<(Call, usize, Route), Refusal> {
        let (mut call, arguments) = message::open(record, session.peer)?;
        (call.local, call.is_secured) = (session.local, session.is_secured);
        match self.programs.route(&call) {
            Route::Unavailable(status) => Err(Refusal::Accepted(call.xid, status)),
            Route::Refused(status) => Err(Refusal::Denied(call.xid, Denied::Auth(status))),
            route => Ok((call, record.len() - arguments.len(), route)),
        }
    }

    /// A record that lies whole in the input; `is_alone` says that nothing else does, and
    /// `left` how many bytes do behind it.
    fn handle_whole(
        &self,
        context: &mut Context<'_, Self>,
        bytes: &[u8],
        (is_alone, left): (bool, usize),
    ) -> Progress {
        match self.route(bytes, context.session) {
            Ok((call, arguments_at, route)) if !route.ends_here() => {
                let mut arguments = Arguments::new(bytes);
                arguments.skip(arguments_at);
                let promised_bytes = self.programs.reply_bytes_max(&call, arguments);
                if let Some(stall) = reply_wait(context, promised_bytes) {
                    return Progress::Stalled(stall);
                }
                let is_short = promised_bytes <= PROMPT_REPLY_BYTES_MAX;
                let mut found = Found::default();
                if route == Route::Prompt && is_alone && is_short {
                    match self.try_promptly(context, &call, arguments) {
                        Ok(()) => return Progress::Done,
                        Err(so_far) => found = so_far,
                    }
                }
                let Some(mut job) = context.job() else {
                    return Progress::Stalled(Stall::Jobs);
                };
                let retained = (bytes.len() > CONTIGUOUS_BYTES_MAX)
                    .then(|| RecordSource(&mut context.io).retain(bytes, 0))
                    .flatten();
                if let Some(fragment) = retained {
                    job.record.retain(fragment);
                } else if job.record.copy(bytes, context.pool()).is_none() {
                    context.recycle(job);
                    return Progress::Stalled(Stall::Memory);
                }
                job.origin = (route == Route::Once).then(|| context.session.origin());
                (job.promised_bytes, job.found) = (promised_bytes, found);
                self.dispatch(context, job, (call, arguments_at))
            }
            routed => self.answer_here(context, routed, Arguments::new(bytes), left),
        }
    }

    /// A record that came in parts. Room was found before it was completed (G1). So many bytes are
    /// left of the input.
    fn handle_assembled(
        &self,
        context: &mut Context<'_, Self>,
        mut job: Job<Self>,
        left: usize,
    ) -> Progress {
        context.session.assembly.take(&mut job.record);
        match self.route(job.record.front(), context.session) {
            Ok((call, arguments_at, route)) if !route.ends_here() => {
                let arguments = job.record.arguments(arguments_at);
                job.promised_bytes = self.programs.reply_bytes_max(&call, arguments);
                job.origin = (route == Route::Once).then(|| context.session.origin());
                self.dispatch(context, job, (call, arguments_at))
            }
            routed => {
                let record = job.record.arguments(0);
                let progress = self.answer_here(context, routed, record, left);
                job.reset();
                context.recycle(job);
                progress
            }
        }
    }

    fn dispatch(
        &self,
        context: &mut Context<'_, Self>,
        mut job: Job<Self>,
        (call, arguments_at): (Call, usize),
    ) -> Progress {
        if !job.reply.is_prepared() {
            let Some(buffer) = context.pool().take(REPLY_BYTES_MIN) else {
                job.reset();
                context.recycle(job);
                return Progress::Stalled(Stall::Memory);
            };
            job.reply.prepare(buffer);
        }
        job.reply.begin(call.xid);
        job.call = call;
        job.arguments_at = arguments_at;
        job.begun_ns = context.turn().now().as_nanos() as u64;
        (job.silent, job.repeated) = (false, false);
        context.session.promised_bytes += job.promised_bytes;
        context.dispatch(job);
        Progress::Done
    }

    /// What a call needs before the last byte of its record is taken (G1).
    fn ready_job(context: &mut Context<'_, Self>) -> Result<Job<Self>, Stall> {
        if let Some(stall) = reply_wait(context, REPLY_BYTES_MIN) {
            return Err(stall);
        }
        let mut job = context.job().ok_or(Stall::Jobs)?;
        let Some(buffer) = context.pool().take(REPLY_BYTES_MIN) else {
            context.recycle(job);
            return Err(Stall::Memory);
        };
        job.reply.prepare(buffer);
        Ok(job)
    }

    /// Assembles a record that does not lie whole in the input. Returns the bytes used.
    fn assemble(&self, context: &mut Context<'_, Self>, input: &[u8]) -> (usize, Option<Progress>) {
        let ready = Self::ready_job(context);
        let completion = match ready {
            Ok(_) => Completion::Allowed,
            Err(_) => Completion::Withheld,
        };
        let fed =
            context
                .session
                .assembly
                .feed(input, &mut RecordSource(&mut context.io), completion);
        if context.session.assembly.is_long() {
            context.receive_into(Pages::Listener);
        }
        match (fed, ready) {
            (Ok((used, Assembled::Complete)), Ok(job)) => {
                let left = input.len() - used;
                return (used, Some(self.handle_assembled(context, job, left)));
            }
            (Ok((used, Assembled::Withheld)), Err(stall)) => {
                return (used, Some(Progress::Stalled(stall)));
            }
            (_, Ok(mut job)) => {
                job.reset();
                context.recycle(job);
            }
            _ => {}
        }
        match fed {
            Ok((used, Assembled::NoRoom)) => (used, Some(Progress::Stalled(Stall::Memory))),
            Ok((used, _)) => (used, None),
            Err(error) => {
                log::debug!("a record was refused: {error}");
                (input.len(), Some(Progress::NoCall))
            }
        }
    }

    /// Says what the connection waits for, which sets its deadline. A call that was taken restarts
    /// the phase: a connection is idle, and its next record is awaited, since its last call.
    fn set_phase(context: &mut Context<'_, Self>, left: usize, took_call: bool) {
        let phase = if !context.session.assembly.is_idle() || left > 0 {
            if context.session.assembly.received() > 0 {
                Phase::Body
            } else {
                Phase::Head
            }
        } else if context.jobs_out() > 0 {
            Phase::Work
        } else {
            // Data comes in runs: the large pages are left when a run is over.
            context.receive_into(Pages::Common);
            Phase::Idle
        };
        if took_call {
            context.restart_phase(phase);
        } else {
            context.phase(phase);
        }
    }

    fn start_tls(context: &mut Context<'_, Self>) -> Received {
        if !context.start_tls() {
            // What was promised cannot be kept.
            context.abort();
        }
        Received::Consumed
    }

    fn end(context: &mut Context<'_, Self>) {
        context.session.ending = true;
        context.end_input();
        if context.jobs_out() == 0 {
            context.close_lingering();
        }
    }
}

/// What a call has to wait for whose reply may have `bytes` (G4).
///
/// Other names: the reply room that the kernel's server reserves before it takes a call from a
/// transport (`svc_xprt_has_something_to_do` in net/sunrpc/svc_xprt.c).
fn reply_wait<S: Programs>(context: &Context<'_, Rpc<S>>, bytes: usize) -> Option<Stall> {
    let unsent_bytes = context.queued_bytes() + context.session.promised_bytes;
    let fits = unsent_bytes == 0 || unsent_bytes + bytes <= context.limits().unsent_bytes_max();
    match (fits, context.jobs_out()) {
        (true, _) => None,
        (false, 0) => Some(Stall::Output),
        (false, _) => Some(Stall::Pipeline),
    }
}

impl RpcSession {
    fn origin(&mut self) -> Arc<Origin> {
        let origin = self.origin.get_or_insert_with(|| Origin::new(self.peer));
        Arc::clone(origin)
    }
}

impl<S: Programs> Protocol for Rpc<S> {
    type ThreadState = RpcThread;
    type Session = RpcSession;
    type Job = RpcJob;

    fn starts(&self, descriptors: &DescriptorBudget, _network_threads: usize) {
        self.programs.starts(descriptors);
    }

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            name: self.programs.name(),
            region: Some(RegionConfig {
                pages: PAGES_PER_LISTENER,
                page_bytes: self.page_bytes,
                reserve_pages: PAGES_RESERVED,
                ..RegionConfig::default()
            }),
            pages_max: Some(PAGES_PER_CONNECTION_MAX),
            alpn: &["sunrpc"],
            // RFC 9289 section 5.
            tls_oldest: TlsVersion::V1_3,
            ..ListenerOptions::default()
        }
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        context.session.idle_periods = 0;
        if context.session.peer.is_none() {
            context.session.peer = context.peer();
            context.session.local = context.local().map(|local| local.ip().to_canonical());
            context.session.is_secured = context.is_secured();
        }
        let (mut used, mut blocked, mut took_call) = (0, None, false);
        while used < input.len() {
            if context.session.ending {
                return Received::Consumed;
            }
            if context.output_is_full() {
                blocked = Some(Stall::Output);
                break;
            }
            if context.jobs_out() >= CALLS_MAX {
                blocked = Some(Stall::Pipeline);
                break;
            }
            let offered = &input[used..];
            let here = context
                .session
                .assembly
                .is_idle()
                .then(|| record::whole(offered))
                .flatten();
            let (progress, bytes) = match here {
                Some(bytes) => {
                    let length = bytes.len() + 4;
                    let left = offered.len() - length;
                    let place = (length == input.len(), left);
                    let progress = self.handle_whole(context, bytes, place);
                    (Some(progress), length)
                }
                None => {
                    let (bytes, progress) = self.assemble(context, offered);
                    (progress, bytes)
                }
            };
            match progress {
                Some(Progress::Stalled(stall)) => {
                    // What was assembled is used; a record that lies here stays where it is.
                    used += if here.is_none() { bytes } else { 0 };
                    blocked = Some(stall);
                    break;
                }
                Some(Progress::NoCall) => {
                    Self::end(context);
                    return Received::Consumed;
                }
                Some(Progress::Done) => {
                    used += bytes;
                    took_call = true;
                }
                Some(Progress::StartsTls) => return Self::start_tls(context),
                None => {
                    used += bytes;
                    break;
                }
            }
        }
        Self::set_phase(context, input.len() - used, took_call);
        match blocked {
            Some(on) => Received::Blocked { consumed: used, on },
            None => Received::NeedMore { consumed: used },
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::InputEnded(_) => {
                let replied = context.jobs_out() == 0 && context.queued_bytes() == 0;
                if let Some(origin) = context.session.origin.as_ref().filter(|_| replied) {
                    origin.mark_answered();
                }
                Self::end(context);
            }
            Event::Expired(phase) => {
                context.session.idle_periods += 1;
                if phase == Phase::Idle && context.session.idle_periods < IDLE_PERIODS_MAX {
                    context.restart_phase(Phase::Idle);
                } else {
                    Self::end(context);
                }
            }
            Event::Draining => Self::end(context),
            Event::Abandoned => {
                context.session.assembly = Assembly::default();
                context.session.ending = true;
            }
            other => other.by_default(context),
        }
    }

    fn run(&self, job: &mut RpcJob, scope: &mut WorkerScope<'_>) {
        job.run(&*self.programs, &self.duplicates, scope);
    }

    fn panicked(&self, job: &mut RpcJob) {
        job.fail();
    }

    fn finished(&self, context: &mut Context<'_, Self>, mut job: Job<Self>) {
        // G4: it was counted since the call was dispatched; an overflow is a fault of ours.
        context.session.promised_bytes -= job.promised_bytes;
        if job.silent {
            context.thread.counts.add_beside(Beside::InProgress);
        } else {
            if job.repeated {
                context.thread.counts.add_beside(Beside::Repeated);
            }
            self.count(context, &job.call, job.reply.status());
            send(context, &mut job.reply);
        }
        job.reset();
        context.recycle(job);
        if context.session.ending && context.jobs_out() == 0 {
            context.close_lingering();
        } else if context.jobs_out() == 0 && context.session.assembly.is_idle() {
            context.receive_into(Pages::Common);
            context.phase(Phase::Idle);
        }
    }

    fn retire(&self, _: &mut RpcThread, job: &mut RpcJob) {
        job.reset();
    }

    fn closed(&self, _: &mut RpcThread, session: &mut RpcSession, _: Option<LogEnd<'_>>) {
        if let Some(origin) = &session.origin {
            origin.close();
        }
        *session = RpcSession::default();
    }
}
