//! What one call of a protocol works on: the thread's state, the session, and the connection.

use std::any::Any;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::admission::address_limit::Cells;
use crate::memory::pools::Wanted;
use crate::protocol::Protocol;
use crate::protocol::connection_handle::ConnectionId;
use crate::protocol::io::Io;
use crate::workers::free_list::FreeList;
use crate::workers::scope::WorkerScope;
use crate::workers::{Extras, Rank, Reservation, Task};

/// A request on its way to a worker and back: the protocol's own job and where it belongs.
///
/// It counts as in flight until it is recycled or dropped; a session may hold finished ones.
pub struct Job<P: Protocol>(pub(crate) Box<Envelope<P>>);

/// What a job that was dispatched is taken back with: see [`Context::withdraw`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// See [`Job`].
pub(crate) struct Envelope<P: Protocol> {
    pub(crate) job: P::Job,
    pub(crate) protocol: Arc<P>,
    pub(crate) connection: ConnectionId,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) rank: Rank,
    /// Where its connection's address is counted.
    pub(crate) cells: Cells,
    pub(crate) extras: Extras,
}

impl<P: Protocol> Deref for Job<P> {
    type Target = P::Job;

    fn deref(&self) -> &P::Job {
        &self.0.job
    }
}

impl<P: Protocol> DerefMut for Job<P> {
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

    fn rank(&self) -> Rank {
        self.rank
    }

    fn cells(&self) -> Cells {
        self.cells
    }

    fn extras(&self) -> Extras {
        self.extras
    }

    fn take_reservation(&mut self) -> Option<Reservation> {
        self.reservation.take()
    }

    fn is_favoured(&self) -> bool {
        let reservation = self.reservation.as_ref();
        reservation.is_some_and(|reservation| reservation.is_favoured(self.cells))
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any + Send> {
        self
    }
}

/// What one call of a protocol works on: the state of its thread, the session, and the connection.
///
/// A context is built once for an event and is all that a method of [`Protocol`] takes besides its
/// data. Its parts can be borrowed side by side; what [`Io`] can do can be asked of the context as
/// well.
pub struct Context<'a, P: Protocol> {
    /// What the network thread keeps for the listener.
    pub thread: &'a mut P::ThreadState,
    /// What the connection keeps.
    pub session: &'a mut P::Session,
    /// The connection itself.
    pub io: Io<'a>,
    /// The protocol that is called.
    pub protocol: &'a Arc<P>,
    pub(crate) free_jobs: &'a mut FreeList<Envelope<P>>,
}

flatpath_structures::opaque_debug! {
    impl[P: Protocol] Job<P> as "Job";
    impl[P: Protocol] Context<'_, P> as "Context";
}

impl<'a, P: Protocol> Deref for Context<'a, P> {
    type Target = Io<'a>;

    fn deref(&self) -> &Io<'a> {
        &self.io
    }
}

impl<'a, P: Protocol> DerefMut for Context<'a, P> {
    fn deref_mut(&mut self) -> &mut Io<'a> {
        &mut self.io
    }
}

impl<'a, P: Protocol> Context<'a, P> {
    /// A job to fill and dispatch. `None` when as many are in flight as the server allows:
    /// leave the request unconsumed and stall with [`Stall::Jobs`](crate::Stall::Jobs).
    pub fn job(&mut self) -> Option<Job<P>> {
        let listener = self.io.connection.listener();
        let reservation = self.io.common.dispatcher.reserve(listener);
        let reservation = reservation.or_else(|| self.reserve_last(listener))?;
        let connection = self.io.id();
        let mut envelope = self.free_jobs.take().unwrap_or_else(|| {
            Box::new(Envelope {
                job: P::Job::default(),
                protocol: Arc::clone(self.protocol),
                connection,
                reservation: None,
                rank: Rank::Next,
                cells: Cells::UNKNOWN,
                extras: Extras::NONE,
            })
        });
        envelope.connection = connection;
        envelope.reservation = Some(reservation);
        Some(Job(envelope))
    }

    /// One of the last places for jobs, if the client's address has no more than its share of them.
    #[cold]
    fn reserve_last(&mut self, listener: u16) -> Option<Reservation> {
        self.io.learn_address();
        let cells = self.io.connection.holding.cells;
        self.io.common.dispatcher.reserve_last(listener, cells)
    }

    /// Says that a job lasts as long as its client takes: a stream, an upload. A quarter of the
    /// places for jobs is kept from these, so that slow clients leave workers' answers to others.
    /// False: as many last as may, or as many of the client's address as its share is. Recycle it,
    /// and refuse, or stall with [`Stall::LongLived`](crate::Stall::LongLived).
    #[must_use]
    pub fn lasts(&mut self, job: &mut Job<P>) -> bool {
        let reservation = job.0.reservation.as_mut();
        reservation.is_none_or(|reservation| self.io.lasts(reservation))
    }

    /// Sends a job to the workers; it comes back through [`Protocol::finished`] of this connection,
    /// whichever it was made for. It waits while jobs of the listener occupy as many workers as may
    /// ([`Limits::workers_per_listener`](crate::Limits::workers_per_listener)).
    pub fn dispatch(&mut self, job: Job<P>) {
        self.send(job, Rank::Next);
    }

    /// The same for a job that has had its part of a worker's time and comes again: workers take it
    /// when no other waits, and one such in [`AFTER_OTHERS_PART`] in any case. So are jobs of an
    /// address that has more than its share of those that wait.
    ///
    /// [`AFTER_OTHERS_PART`]: crate::limits::AFTER_OTHERS_PART
    pub fn dispatch_after_others(&mut self, job: Job<P>) {
        self.send(job, Rank::AfterOthers);
    }

    /// As [`Context::dispatch`], for one of the listener's [`parts`](crate::ListenerOptions::parts)
    /// of the workers, or for none: with what takes the job back while it waits.
    pub fn dispatch_in(&mut self, mut job: Job<P>, part: Option<u16>) -> Ticket {
        self.goes(&mut job, Rank::Next);
        if let Some(part) = part {
            let extras = &mut job.0.extras;
            *extras = extras.within(part);
        }
        self.send_with(job)
    }

    /// As [`Context::dispatch_in`], for a job of a part that workers take after those of others.
    #[cfg(feature = "tls")]
    pub(crate) fn dispatch_late_in(&mut self, mut job: Job<P>, part: u16) {
        self.goes(&mut job, Rank::Next);
        let extras = &mut job.0.extras;
        *extras = extras.within(part).late();
        self.send_with(job);
    }

    fn send_with(&mut self, job: Job<P>) -> Ticket {
        let common = &mut *self.io.common;
        Ticket(common.dispatcher.dispatch_with(job.0, common.turn.now_ns))
    }

    /// Takes back a job that was [dispatched](Context::dispatch_in) and that no worker has begun
    /// with: it will not be run, and does not come back through [`Protocol::finished`]. The job has
    /// no place among those in flight any more, so it is to be recycled and not dispatched again.
    ///
    /// `None`: a worker has it or has had it, and it comes back. The ticket of a job that is back
    /// is to be forgotten: it may name another job of the connection.
    ///
    /// Cost: O(1), with a lock that is hardly ever contended.
    pub fn withdraw(&mut self, ticket: Ticket) -> Option<Job<P>> {
        let home = self.io.id();
        let task = self.io.common.dispatcher.withdraw(ticket.0, home)?;
        self.io.connection.job_came_back();
        let envelope = task.into_any().downcast::<Envelope<P>>();
        debug_assert!(envelope.is_ok(), "a job of this connection");
        envelope.ok().map(Job)
    }

    fn send(&mut self, mut job: Job<P>, rank: Rank) {
        self.goes(&mut job, rank);
        let common = &mut *self.io.common;
        let listener = job.0.connection.listener;
        common
            .dispatcher
            .dispatch(job.0, listener, common.turn.now_ns);
    }

    /// The same for a job that found no buffer: it waits, without a worker, until there may be one,
    /// behind those that wait already for as much. What needs little is first. Then it is for this
    /// part of the workers, as with [`Context::dispatch_in`].
    pub fn dispatch_with_memory(&mut self, mut job: Job<P>, wanted: Wanted, part: Option<u16>) {
        self.io.learn_address();
        self.goes(&mut job, Rank::Next);
        if let Some(part) = part {
            let extras = &mut job.0.extras;
            *extras = extras.within(part);
        }
        let common = &mut *self.io.common;
        let now_ns = common.turn.now_ns;
        common
            .dispatcher
            .dispatch_with_memory(job.0, wanted, now_ns);
    }

    /// A job goes out for this connection: after others if its address has more than its share.
    #[inline]
    fn goes(&mut self, job: &mut Job<P>, rank: Rank) {
        let envelope = &mut *job.0;
        envelope.connection = self.io.id();
        self.io.learn_address_if_counted();
        let (connection, common) = (&mut *self.io.connection, &*self.io.common);
        connection.job_went_out();
        envelope.cells = connection.holding.cells;
        envelope.rank = rank;
        envelope.extras = match common.dispatcher.counts_jobs_by_address() {
            true => Extras::COUNTED,
            false => Extras::NONE,
        };
        if !envelope.extras.is_none()
            && common
                .dispatcher
                .exceeds_with(connection.listener(), envelope.cells)
        {
            envelope.rank = Rank::AfterOthers;
        }
    }

    /// Keeps a finished (or unused) job for the next request.
    pub fn recycle(&mut self, mut job: Job<P>) {
        job.0.reservation = None;
        self.free_jobs.put(job.0);
    }
}
