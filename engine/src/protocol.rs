//! What a listener speaks: the border between the engine and every protocol above it.
//!
//! The engine owns sockets, buffers, deadlines, workers and order of events; a [`Protocol`] owns
//! the meaning of bytes. It is called on two kinds of threads:
//!
//! | called on          | methods                                   | may block |
//! |--------------------|-------------------------------------------|-----------|
//! | the network thread | everything but `run` and `panicked`       | no        |
//! | a worker           | [`Protocol::run`], [`Protocol::panicked`] | yes       |
//!
//! Invariants
//! - P1: a session is touched by one network thread only; a job is owned by exactly one side at a
//!   time: the network thread until [`Context::dispatch`], then a worker, then the network thread
//!   again.
//! - P2: a job that comes back for a connection that is gone is given to nobody: it is reset by
//!   [`Protocol::retire`] and kept for the next request.
//! - P3: `received` is offered the same unconsumed bytes again only with more bytes behind them, or
//!   after the reason it gave in [`Context::stall`] is over.
//!
//! Not here: framing (a protocol crate's duty), TLS, and datagrams.

use std::time::SystemTime;

use bytes::Bytes;
use flatpath_driver::{Region, RegionConfig};

pub use crate::context::{Context, Job, NoRoom, Pages, Stall};
use crate::descriptors::DescriptorBudget;
pub use crate::end::End;
use crate::scope::WorkerScope;

/// One pass of a network thread over everything that has arrived.
///
/// Every byte offered during a turn had been received before the turn's number was given out, so
/// what a service looks up during the turn is never older than the requests it answers.
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Counts up from 1; never repeats on one network thread.
    pub number: u64,
    /// Monotonic nanoseconds, read once per turn.
    pub now_ns: u64,
    /// Wall clock in whole seconds since the epoch, read once per turn.
    pub wall_seconds: u64,
}

impl Turn {
    /// The wall clock of this turn as the standard library's type. Whole seconds.
    pub fn wall(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(self.wall_seconds)
    }
}

/// What a connection is waiting for; it decides which deadline guards it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nothing of a request has arrived. Guarded by `idle_ns_max` from the start of the phase.
    Idle,
    /// Part of a request's head has arrived. Guarded by `head_ns_max`, absolute: bytes that trickle
    /// in do not move it. A new connection starts here, counted from its accept.
    Head,
    /// A body is arriving. Guarded by a bound on silence, `body_grace_ns`, and by a minimum rate.
    Body,
    /// A request is with a worker or its reply is going out. No deadline but the one on writing.
    Work,
    /// The client waits for something that is not its own to bring: another client, say. Guarded by
    /// `wait_ns_max`.
    Wait,
    /// Joined to another connection ([`Context::join`] says so by itself). Guarded by
    /// `joined_ns_max`, which counts from the last byte in either direction.
    Joined,
}

/// Which network threads accept for a protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spread {
    /// All of them: connections are shared out by the kernel.
    EveryRing,
    /// One: all connections of the listener are on the same thread, so that any two of them can be
    /// joined, and get that thread's share of `connections_max`.
    OneRing,
}

/// A protocol with its service, as a listener has it.
pub trait Protocol: Send + Sync + Sized + 'static {
    /// What one network thread keeps for this listener: caches, scratch space. Never shared.
    type Lane: 'static;
    /// What one connection keeps. Made by `Default` at accept; keep it small, idle ones count.
    type Session: Default + 'static;
    /// One request on its way to a worker and back. Recycled: after warm-up none is allocated.
    type Job: Default + Send + 'static;

    /// The word in `listening NAME ADDR` and in logs.
    fn name(&self) -> &'static str;

    /// True where the client speaks first and connections are short: accept then waits for the
    /// first bytes ([`Listener::defer_accept`](flatpath_driver::Listener::defer_accept)). The head
    /// deadline of a client that says nothing begins about a second after it has connected.
    fn defer_accept(&self) -> bool {
        false
    }

    /// Which network threads accept for this protocol. By default all.
    fn spread(&self) -> Spread {
        Spread::EveryRing
    }

    /// The server starts. What the protocol keeps open beside its connections and for longer than a
    /// job is counted in `descriptors` from now on. Called once, before any other thread knows the
    /// protocol.
    fn starts(&self, descriptors: &DescriptorBudget) {
        let _ = descriptors;
    }

    /// Called once on each network thread.
    fn lane(&self) -> Self::Lane;

    /// Bytes have arrived. Consumes whole messages, or what it can use, from the front of `input`
    /// and returns how many bytes that was. The rest is kept and offered again (P3); at most
    /// [`INPUT_BYTES_MAX`](crate::limits::INPUT_BYTES_MAX) are kept: a protocol refuses a message
    /// whose unconsumed part would not fit. `input` is empty when a stall for room is over that
    /// left nothing unconsumed.
    fn received(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
        input: &[u8],
    ) -> usize;

    /// The peer has sent its last byte; `left` was not consumed and never will be. The connection
    /// stays open for output until the protocol closes it. By default: close after the output.
    fn input_ended(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
        left: &[u8],
    ) {
        let _ = (lane, session, left);
        context.close_after_output();
    }

    /// Runs one job on a worker; may block for as long as it likes. A protocol that dispatches
    /// nothing leaves this, `panicked` and `finished` as they are.
    fn run(&self, job: &mut Self::Job, scope: &mut WorkerScope<'_>) {
        let _ = (job, scope);
        debug_assert!(false, "{} dispatches jobs and runs none", self.name());
    }

    /// `run` panicked and the panic was caught: turn the job into the protocol's word for it.
    fn panicked(&self, job: &mut Self::Job) {
        let _ = job;
    }

    /// A job has come back. Ends with [`Context::recycle`], or with [`Context::dispatch`] to let a
    /// worker go on with it.
    fn finished(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
        job: Job<Self>,
    ) {
        let _ = (lane, session);
        context.recycle(job);
    }

    /// Makes a job that comes back to no connection fit for reuse: drops what it holds.
    fn retire(&self, lane: &mut Self::Lane, job: &mut Self::Job) {
        let _ = (lane, job);
    }

    /// Output has fallen to the low-water mark; called once after each
    /// [`Context::notify_drained`].
    fn drained(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
    ) {
        let _ = (lane, session, context);
    }

    /// The deadline of `phase` has passed. [`Context::restart_phase`] with the same phase gives it
    /// another period; otherwise the connection is closed after its output, which is the default.
    /// It is closed either way where its place is wanted for another.
    fn expired(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
        phase: Phase,
    ) {
        let _ = (lane, session, phase);
        context.close_after_output();
    }

    /// The server has begun to drain. A session with a request finishes it and tells its client.
    /// One without may close, or wait in [`Phase::Idle`] for one that is on its way: that deadline
    /// is shorter now. [`Context::draining`] is true from now on. By default: close after the
    /// output.
    fn draining(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
    ) {
        let _ = (lane, session);
        context.close_after_output();
    }

    /// Connections wait for memory, and this one holds more than the smallest buffer: what the
    /// session has gathered should go on to where it is written, if it can. By default: nothing.
    fn pressed(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
    ) {
        let _ = (lane, session, context);
    }

    /// The engine ends this connection for want of memory, in the words of [`Protocol::refusal`]
    /// where no other reply is under way. What the session holds of the request is to be dropped
    /// now: the connection may stay for a while until its peer has read. By default: nothing.
    fn abandoned(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
    ) {
        let _ = (lane, session, context);
    }

    /// Somebody on this thread wanted the connection to be called; see
    /// [`Rouser`](crate::Rouser).
    fn roused(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
    ) {
        let _ = (lane, session, context);
    }

    /// The connection is joined; see [`Context::join`]. What is written here goes out before the
    /// first byte of the other. From now on only `expired`, `draining` and `closed` are called.
    fn joined(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
    ) {
        let _ = (lane, session, context);
    }

    /// The connection could not be joined and is as it was; see [`Context::join`]. By default it
    /// is closed after its output.
    fn join_refused(
        &self,
        lane: &mut Self::Lane,
        session: &mut Self::Session,
        context: &mut Context<'_, Self>,
    ) {
        let _ = (lane, session);
        context.close_after_output();
    }

    /// What a client is told when there is no room for it or its request, before it is closed.
    /// Must not need memory: a static text. Empty: nothing is said.
    fn refusal(&self) -> Bytes {
        Bytes::new()
    }

    /// Receive memory of this listener's own, on each network thread; a connection that asks for it
    /// ([`Context::receive_into`]) is received into it page by page, with one receive at a time.
    /// What is left unconsumed there with a [`Stall`] stays in its page. By default none.
    fn region(&self) -> Option<RegionConfig> {
        None
    }

    /// The region of network thread `ring` is there. Called on that thread, before any connection.
    fn region_made(&self, ring: usize, region: &Region) {
        let _ = (ring, region);
    }

    /// Where connections receive to from their first byte on, until
    /// [`Context::receive_into`] says otherwise.
    fn first_pages(&self) -> Pages {
        Pages::Common
    }

    /// Most fragments that one connection's users may hold before it stops receiving; `None`: as
    /// [`Limits::pages_per_connection_max`](crate::Limits::pages_per_connection_max) says.
    fn pages_max(&self) -> Option<u32> {
        None
    }

    /// Workers that jobs of this listener may occupy at a time; the others wait, and leave workers
    /// to other listeners. `None`: as
    /// [`Limits::workers_per_listener`](crate::Limits::workers_per_listener) says.
    fn workers_max(&self) -> Option<u32> {
        None
    }

    /// The end of a turn in which one of this listener's connections was called.
    fn turn_ended(&self, lane: &mut Self::Lane) {
        let _ = lane;
    }

    /// The connection is gone. Its jobs that are still with workers come back through `retire`.
    fn closed(&self, lane: &mut Self::Lane, session: &mut Self::Session) {
        let _ = (lane, session);
    }
}
