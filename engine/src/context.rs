//! What a protocol may do to its connection while it is called.
//!
//! A context collects wishes; the network thread carries them out after the call returns. So a
//! protocol never sees the driver, and no call re-enters it.
//!
//! Cost: every method is O(1); `write` copies its bytes.

use std::any::Any;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use flatpath_driver::{Fragment, Piece, Piped, Quota, Region, Segment, Socket};
use flatpath_structures::pool::{Buffer, PoolHandle};

use crate::connection::{Closing, Control};
use crate::end::{ConnectionId, End};
use crate::limits::{Limits, OUTPUT_BYTES_HIGH};
use crate::output::Output;
use crate::payload::Payload;
use crate::protocol::{Phase, Protocol, Turn};
use crate::returns::{Resumer, Returns, number_of};
use crate::rouser::Rouser;
use crate::scope::WorkerScope;
use crate::spares::Spares;
use crate::statistics::Statistics;
use crate::worker::{JobDesk, Reservation, Task};

/// No buffer could be had within the memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

impl std::fmt::Display for NoRoom {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("the memory budget for buffers is used up")
    }
}

impl std::error::Error for NoRoom {}

/// Why a protocol left input unconsumed that it could have understood. Receiving stops, TCP does
/// the rest, and the input is offered again when the reason is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stall {
    /// The peer does not read: until output has fallen to the low-water mark.
    Output,
    /// As many requests of this connection are with workers as the protocol allows: until one is
    /// back.
    Pipeline,
    /// As many requests are in flight as the server allows: until one is back. Refused when
    /// nothing moves for `stall_ns_max` from its beginning.
    Jobs,
    /// As many requests that last are in flight as the server allows, see [`Context::lasts`]: until
    /// one of them has ended. Refused like `Jobs`.
    Lasting,
    /// The memory budget is used up: until buffers come back. Refused like `Jobs`.
    Memory,
    /// This connection holds its share of the memory budget: until it holds half of that. A
    /// protocol need not say so, the engine looks by itself.
    Share,
    /// Something outside the engine is not ready: until [`Resumer::resume`]. It has no deadline.
    Outside,
}

impl Stall {
    /// Whether it ends when the server has room again, and is refused when that takes too long.
    pub(crate) fn is_for_room(self) -> bool {
        matches!(self, Stall::Jobs | Stall::Lasting | Stall::Memory)
    }

    /// Whether it may last for `stall_ns_max` only.
    pub(crate) fn is_timed(self) -> bool {
        self.is_for_room() || self == Stall::Share
    }
}

/// How much memory a job waits for, see [`Context::dispatch_with_memory`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// A short reply as a whole, at most
    /// [`RESERVE_TAKE_MAX`](crate::limits::RESERVE_TAKE_MAX): the reserve will do.
    Small,
    /// More, or a part of more: bulk memory.
    Large,
}

/// Which memory a connection receives into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// The buffers that all connections share: right for what is handled in the same turn.
    Common,
    /// The pages of the listener's own region ([`Protocol::region`]): right for large bodies.
    Listener,
    /// The same, but a small receive may share its page with others, where the driver can and the
    /// region wants it ([`RegionConfig::small_receives`](crate::RegionConfig::small_receives)):
    /// right for what is probably short, and may be kept.
    Shared,
}

/// What a call can keep of its input, and on whose quota.
pub(crate) struct Keeping<'a> {
    /// The input's piece, and where in it the input begins; `None` for input that was copied.
    pub(crate) source: Option<(&'a Region, &'a Piece, usize)>,
    pub(crate) quota: &'a mut Option<Quota>,
    pub(crate) returns: &'a Arc<Returns>,
    pub(crate) statistics: &'a Statistics,
    /// Where the connection receives next.
    pub(crate) region_id: &'a mut u16,
    /// Whether they may share a page with others.
    pub(crate) shares: &'a mut bool,
    /// The listener's own region; 0 when it has none.
    pub(crate) own_region_id: u16,
    pub(crate) own: Option<&'a Region>,
}

/// A request on its way to a worker and back: the protocol's own job and where it belongs.
///
/// It counts as in flight until it is recycled or dropped; a session may hold finished ones.
pub struct Job<P: Protocol>(pub(crate) Box<Envelope<P>>);

/// See [`Job`].
pub(crate) struct Envelope<P: Protocol> {
    pub(crate) job: P::Job,
    pub(crate) protocol: Arc<P>,
    pub(crate) connection: ConnectionId,
    pub(crate) reservation: Option<Reservation>,
}

impl<P: Protocol> std::ops::Deref for Job<P> {
    type Target = P::Job;

    fn deref(&self) -> &P::Job {
        &self.0.job
    }
}

impl<P: Protocol> std::ops::DerefMut for Job<P> {
    fn deref_mut(&mut self) -> &mut P::Job {
        &mut self.0.job
    }
}

impl<P: Protocol> Task for Envelope<P> {
    fn run(&mut self, scope: &mut WorkerScope<'_>) {
        self.protocol.run(&mut self.job, scope);
    }

    fn panicked(&mut self) {
        self.protocol.panicked(&mut self.job);
    }

    fn connection(&self) -> ConnectionId {
        self.connection
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// A protocol's hands on its connection during one call.
pub struct Context<'a, P: Protocol> {
    pub(crate) turn: Turn,
    pub(crate) limits: &'a Limits,
    pub(crate) pool: PoolHandle<'a>,
    pub(crate) output: &'a mut Output,
    pub(crate) control: &'a mut Control,
    pub(crate) desk: &'a mut JobDesk,
    pub(crate) protocol: &'a Arc<P>,
    pub(crate) spare: &'a mut Spares<Envelope<P>>,
    pub(crate) connection: ConnectionId,
    pub(crate) socket: Socket,
    pub(crate) keeping: Keeping<'a>,
}

impl<P: Protocol> Context<'_, P> {
    /// The pass this call belongs to: its number and its clock.
    pub fn turn(&self) -> Turn {
        self.turn
    }

    /// The server's limits, as configured.
    pub fn limits(&self) -> &Limits {
        self.limits
    }

    /// Where buffers come from; for jobs that prepare output by themselves.
    pub fn pool(&self) -> PoolHandle<'_> {
        self.pool
    }

    /// Where the connection comes from: one system call, so keep it. `None` when the driver cannot
    /// say (direct descriptors, the simulation) or the peer is gone already.
    pub fn peer(&self) -> Option<SocketAddr> {
        self.socket.peer()
    }

    /// The name of this connection.
    pub fn end(&self) -> End {
        End(self.connection)
    }

    /// Joins this connection to another one of the same network thread, after this call: what
    /// arrives on either goes out of the other, with back-pressure and half-close, until both have
    /// ended or one breaks. Input that was not consumed goes along. [`Protocol::joined`] is called
    /// for both, or [`Protocol::join_refused`] for this one: the other is gone, is being closed, is
    /// joined already, or belongs to another thread (see [`Protocol::spread`]).
    pub fn join(&mut self, other: End) {
        self.control.join = Some(other.0);
    }

    /// The means to call other connections of this thread.
    pub fn rouser(&self) -> Rouser {
        self.desk.roused.clone()
    }

    /// True from the moment the server began to drain.
    pub fn draining(&self) -> bool {
        self.desk.draining
    }

    /// Queues a copy of `bytes`, all of it or nothing.
    ///
    /// # Errors
    /// [`NoRoom`] when the memory budget is used up; nothing was queued.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        self.output.write(self.pool, bytes)
    }

    /// The buffer that output goes to next, with room for at least `bytes` more; append to it.
    /// `None` when the memory budget is used up or `bytes` is more than the largest buffer.
    pub fn reserve(&mut self, bytes: usize) -> Option<&mut Buffer> {
        self.output.reserve(self.pool, bytes)
    }

    /// Queues shared bytes without a copy; small ones are copied when that is cheaper.
    ///
    /// # Errors
    /// [`NoRoom`] when it had to be copied and the budget is used up; nothing was queued.
    pub fn write_shared(&mut self, bytes: Bytes) -> Result<(), NoRoom> {
        self.output.write_shared(self.pool, bytes)
    }

    /// Queues constant words. It needs no buffer, so it does not fail when the budget is used up.
    pub fn write_static(&mut self, words: &'static [u8]) {
        self.output.push(Bytes::from_static(words).into());
    }

    /// Queues what a pooled buffer holds without a copy. The buffer goes back to its pool once
    /// sent.
    pub fn write_buffer(&mut self, buffer: Buffer) {
        let to = u32::try_from(buffer.filled().len()).expect("a pooled buffer is below 4 GiB");
        self.output.push(Segment::Pooled {
            buffer,
            from: 0,
            to,
        });
    }

    /// Keeps `range` of this call's input beyond the call, where it lies: the way to hand a body on
    /// without a copy. Several parts of one input are fine. A connection that holds too many
    /// fragments receives nothing until some are dropped; see
    /// [`Limits::pages_per_connection_max`](crate::Limits::pages_per_connection_max).
    ///
    /// `None` when the input is a remainder that was copied, when as many pages are kept as may be,
    /// and for an empty range. [`Context::keep_or_copy`] helps then.
    ///
    /// # Panics
    /// When the range is beyond the input.
    pub fn keep(&mut self, range: Range<usize>) -> Option<Fragment> {
        if range.is_empty() {
            return None;
        }
        let (region, piece, from) = self.keeping.source?;
        let key = self.connection.key;
        let returns = self.keeping.returns;
        let quota = self
            .keeping
            .quota
            .get_or_insert_with(|| Quota::new(number_of(key), Arc::clone(returns) as _));
        let bytes = range.len() as u64;
        let fragment = region.keep(piece, from + range.start..from + range.end, quota)?;
        self.keeping.statistics.body_bytes_kept.add(bytes);
        Some(fragment)
    }

    /// As [`Context::keep`], for a part of the input that is known by its slice. `None` also for
    /// bytes that are not of this call's input.
    pub fn keep_slice(&mut self, bytes: &[u8]) -> Option<Fragment> {
        let (region, piece, from) = self.keeping.source?;
        let input = region.bytes_of(piece).get(from..)?;
        let at = (bytes.as_ptr() as usize).checked_sub(input.as_ptr() as usize)?;
        let is_within = at <= input.len() && bytes.len() <= input.len() - at;
        is_within.then(|| self.keep(at..at + bytes.len())).flatten()
    }

    /// Appends a part of this call's input to a payload: kept where it lies, or copied to pooled
    /// buffers where that cannot be.
    ///
    /// # Errors
    /// [`NoRoom`] when it had to be copied and the budget is used up; nothing was appended.
    pub fn keep_or_copy(&mut self, bytes: &[u8], payload: &mut Payload) -> Result<(), NoRoom> {
        if let Some(fragment) = self.keep_slice(bytes) {
            payload.push(fragment);
            return Ok(());
        }
        self.copy(bytes, payload)
    }

    /// Appends a copy of `bytes` to a payload.
    ///
    /// # Errors
    /// [`NoRoom`] when the budget is used up; nothing was appended.
    pub fn copy(&mut self, bytes: &[u8], payload: &mut Payload) -> Result<(), NoRoom> {
        payload.push_copy(self.pool.for_bulk(), bytes)?;
        let statistics = self.keeping.statistics;
        statistics.body_bytes_copied.add(bytes.len() as u64);
        Ok(())
    }

    /// Counts bytes of a body that a protocol copied by itself, in
    /// [`Statistics::body_bytes_copied`](crate::Statistics::body_bytes_copied).
    pub fn count_copied(&self, bytes: usize) {
        let statistics = self.keeping.statistics;
        statistics.body_bytes_copied.add(bytes as u64);
    }

    /// Fragments that this connection's users hold now.
    pub fn held(&self) -> u32 {
        self.keeping.quota.as_ref().map_or(0, Quota::held)
    }

    /// Chooses where the next receive goes, from then on. [`Pages::Listener`] means the common
    /// buffers for a protocol without a region.
    pub fn receive_into(&mut self, pages: Pages) {
        *self.keeping.region_id = match pages {
            Pages::Common => 0,
            Pages::Listener | Pages::Shared => self.keeping.own_region_id,
        };
        *self.keeping.shares = pages == Pages::Shared;
    }

    /// The listener's own region on this network thread.
    pub fn region(&self) -> Option<&Region> {
        self.keeping.own
    }

    /// Ends a stall of this connection from elsewhere; see [`Stall::Outside`].
    pub fn resumer(&self) -> Resumer {
        Resumer::new(self.keeping.returns, self.connection.key)
    }

    /// Queues what lies in a pipe; the kernel moves it on without a copy where it can.
    pub fn write_piped(&mut self, piped: Piped) {
        self.output.push(Segment::Piped(piped));
    }

    /// Bytes queued and not yet taken by the kernel.
    pub fn queued_bytes(&self) -> usize {
        self.output.queued_bytes()
    }

    /// True when more output should wait until the peer has read: stall with [`Stall::Output`].
    pub fn output_is_full(&self) -> bool {
        self.output.queued_bytes() >= OUTPUT_BYTES_HIGH
    }

    /// Asks for one call of [`Protocol::drained`] when output has fallen to the low-water mark;
    /// at once, after this call, when it is there already.
    pub fn notify_drained(&mut self) {
        self.control.notify_drained = true;
    }

    /// A job to fill and dispatch. `None` when as many are in flight as the server allows:
    /// leave the request unconsumed and stall with [`Stall::Jobs`].
    pub fn job(&mut self) -> Option<Job<P>> {
        let reservation = self.desk.reserve(self.connection.listener)?;
        let mut envelope = self.spare.take().unwrap_or_else(|| {
            Box::new(Envelope {
                job: P::Job::default(),
                protocol: Arc::clone(self.protocol),
                connection: self.connection,
                reservation: None,
            })
        });
        envelope.connection = self.connection;
        envelope.reservation = Some(reservation);
        Some(Job(envelope))
    }

    /// Says that a job lasts as long as its client takes: a stream, an upload. A quarter of the
    /// places for jobs is kept from these, so that slow clients leave workers' answers to others.
    /// False: as many last as may. Recycle it, and refuse, or stall with [`Stall::Lasting`].
    #[must_use]
    pub fn lasts(&self, job: &mut Job<P>) -> bool {
        let reservation = job.0.reservation.as_mut();
        reservation.is_none_or(|reservation| self.desk.lasts(reservation))
    }

    /// Sends a job to the workers; it comes back through [`Protocol::finished`] of this connection,
    /// whichever it was made for. It waits while the listener has its share of the workers
    /// ([`Limits::workers_per_listener`]).
    pub fn dispatch(&mut self, mut job: Job<P>) {
        job.0.connection = self.connection;
        self.control.jobs_out += 1;
        let listener = self.connection.listener;
        self.desk.dispatch(job.0, listener, self.turn.now_ns);
    }

    /// The same for a job that found no buffer: it waits, without a worker, until there may be one,
    /// behind those that wait already for as much. What needs little is first.
    pub fn dispatch_with_memory(&mut self, mut job: Job<P>, wanted: Wanted) {
        job.0.connection = self.connection;
        self.control.jobs_out += 1;
        self.desk.dispatch_with_memory(job.0, wanted);
    }

    /// Keeps a finished (or unused) job for the next request.
    pub fn recycle(&mut self, mut job: Job<P>) {
        job.0.reservation = None;
        self.spare.keep(job.0);
    }

    /// Jobs of this connection that are with workers now.
    pub fn jobs_out(&self) -> u32 {
        self.control.jobs_out
    }

    /// Says what the connection waits for now, which sets its deadline. Saying the same phase again
    /// does not move the deadline; [`Context::restart_phase`] does.
    pub fn phase(&mut self, phase: Phase) {
        if self.control.phase != phase {
            self.control.phase = phase;
            self.control.phase_started = true;
        }
    }

    /// Starts a phase anew although it may be the current one: the next request's head, say.
    pub fn restart_phase(&mut self, phase: Phase) {
        self.control.phase = phase;
        self.control.phase_started = true;
    }

    /// Input is left unconsumed on purpose; see [`Stall`].
    pub fn stall(&mut self, stall: Stall) {
        self.control.stall = Some(stall);
    }

    /// No more input is wanted, ever (the last request of this connection has been read).
    /// Nothing is received any more; what was received is not offered again.
    pub fn end_input(&mut self) {
        self.control.input_wanted = false;
    }

    /// Sends what is queued, then closes. Right when all that the peer sent has been read.
    pub fn close_after_output(&mut self) {
        self.control.close(Closing::AfterOutput);
    }

    /// Sends what is queued, then FIN, then reads and drops what still comes until the peer closes
    /// or `linger_ns_max` has passed, so that a peer which is still sending can read the answer
    /// instead of a reset (RFC 9112 section 9.6).
    pub fn close_lingering(&mut self) {
        self.control.close(Closing::Lingering);
    }

    /// Closes at once; queued output is dropped and the peer sees a reset.
    pub fn abort(&mut self) {
        self.control.close(Closing::Abort);
    }
}
