//! The services of a worker to the job that it runs: buffers, pauses, and permits of limits.

use std::time::Duration;

use crate::admission::descriptors::ConnectionDescriptors;
use crate::admission::turns::ConnectionEnd;
use crate::protocol::connection_handle::ConnectionId;
use crate::workers::blocking::{BlockingLimit, Entry, Visitor};
use flatpath_structures::pool::PoolHandle;

/// How long a job pauses: several turns of a network thread.
const PAUSE: Duration = Duration::from_millis(5);

/// What a worker may use besides the job: buffers for the reply.
pub struct WorkerScope<'a> {
    pub(crate) pool: PoolHandle<'a>,
    pub(crate) host: &'a dyn Host,
    /// The job's connection.
    pub(crate) home: ConnectionId,
    pub(crate) visitor: Visitor,
    pub(crate) kept_work: KeptWorkRun,
}

/// Whether the job is of a kind of work that keeps a part of the workers
/// ([`KeptWork`](crate::KeptWork)), and continues as another one.
///
/// | state    | while                                       | next                              |
/// |----------|---------------------------------------------|-----------------------------------|
/// | Stays    | it is what it was dispatched as, to its end | —                                 |
/// | Begins   | it is at the kind of work that comes first  | Ended, or its end                 |
/// | Ended    | that is done: the job ends its run at once  | it is dispatched as what follows  |
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum KeptWorkRun {
    #[default]
    Stays,
    Begins,
    Ended,
}

flatpath_structures::opaque_debug! {
    impl[] WorkerScope<'_> as "WorkerScope";
}

/// What a server has for the jobs of its connections.
pub(crate) trait Host {
    fn descriptors(&self, home: ConnectionId) -> ConnectionDescriptors<'_>;
    fn is_draining(&self) -> bool;
    fn has_queued_jobs(&self) -> bool;
    /// What ends the connection for others.
    fn end_of(&self, home: ConnectionId) -> ConnectionEnd;
}

/// The connection of a job while a worker runs it: see [`WorkerScope::connection`].
#[derive(Clone, Copy)]
pub struct JobConnection<'a> {
    host: &'a dyn Host,
    home: ConnectionId,
}

flatpath_structures::opaque_debug! {
    impl[] JobConnection<'_> as "JobConnection";
}

impl JobConnection<'_> {
    /// What ends the connection, from any thread and at any time, because others need what it
    /// holds.
    #[must_use]
    pub fn end(&self) -> ConnectionEnd {
        self.host.end_of(self.home)
    }
}

impl<'a> WorkerScope<'a> {
    /// Where buffers come from.
    pub fn pool(&self) -> PoolHandle<'a> {
        self.pool
    }

    /// Where descriptors are held for files that outlive the job, for the job's connection.
    pub fn descriptors(&self) -> ConnectionDescriptors<'a> {
        self.host.descriptors(self.home)
    }

    /// The job's connection, which others may have to end.
    pub fn connection(&self) -> JobConnection<'a> {
        JobConnection {
            host: self.host,
            home: self.home,
        }
    }

    /// True from the moment the server began to drain: a job that lasts should come to its end, or
    /// is cut off with its connection after
    /// [`Limits::drain_timeout`](crate::Limits::drain_timeout). One load.
    pub fn draining(&self) -> bool {
        self.host.is_draining()
    }

    /// Whether a job waits for a worker: one that could go on for long had better return. Two
    /// loads.
    pub fn others_wait(&self) -> bool {
        self.host.has_queued_jobs()
    }

    /// Waits a few milliseconds, without spinning, for what another thread is about to do. The
    /// worker is not free meanwhile, so a job does this a bounded number of times.
    pub fn pause(&self) {
        std::thread::sleep(PAUSE);
    }

    /// Whether the job was given [`Entry::Parked`], or continues
    /// [elsewhere](WorkerScope::end_kept_work): what it made is dropped, and it runs again.
    pub fn is_parked(&self) -> bool {
        self.visitor.parked.is_some() || self.kept_work == KeptWorkRun::Ended
    }

    /// For a protocol, before it runs a job that begins with a kind of work that keeps a part of
    /// the workers ([`KeptWork`](crate::KeptWork)) and continues as something else.
    pub fn begin_kept_work(&mut self) {
        self.kept_work = KeptWorkRun::Begins;
    }

    /// For a job that does such work: it is done, and what follows may wait for a client or a lock.
    /// True: the job is in the part of that work, so it has to return at once, as one that is
    /// parked, and comes again as a job of its own kind. False: go on.
    #[must_use]
    pub fn end_kept_work(&mut self) -> bool {
        if self.kept_work == KeptWorkRun::Begins {
            self.kept_work = KeptWorkRun::Ended;
        }
        self.has_ended_kept_work()
    }

    /// For the protocol, after the run: whether it has to dispatch the job anew.
    #[must_use]
    pub fn has_ended_kept_work(&self) -> bool {
        self.kept_work == KeptWorkRun::Ended
    }
}

impl BlockingLimit {
    /// Asks for a place inside, for the job that this worker runs.
    pub fn enter(&self, scope: &mut WorkerScope<'_>) -> Entry {
        self.enter_for(&mut scope.visitor)
    }
}
