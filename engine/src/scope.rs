//! What a worker lends to the job that it runs: buffers, pauses, and a place in a share.

use std::time::Duration;

use crate::blocking::{Inside, Share};
use crate::descriptors::DescriptorBudget;
use flatpath_structures::pool::PoolHandle;

/// How long a job pauses: several turns of a network thread.
const PAUSE: Duration = Duration::from_millis(5);

/// What a worker may use besides the job: buffers for the reply.
pub struct WorkerScope<'a> {
    pub(crate) pool: PoolHandle<'a>,
    pub(crate) descriptors: &'a DescriptorBudget,
    /// Most workers that there may be.
    pub(crate) workers_max: u32,
    /// A place that the job has waited for.
    pub(crate) granted: Option<Inside>,
    /// The share that the job has to wait for.
    pub(crate) parked: Option<Share>,
}

impl<'a> WorkerScope<'a> {
    /// Where buffers come from.
    pub fn pool(&self) -> PoolHandle<'a> {
        self.pool
    }

    /// Where descriptors are held for files that outlive the job.
    pub fn descriptors(&self) -> &'a DescriptorBudget {
        self.descriptors
    }

    /// Waits a few milliseconds, without spinning, for what another thread is about to do. The
    /// worker is not free meanwhile, so a job does this a bounded number of times.
    pub fn pause(&self) {
        std::thread::sleep(PAUSE);
    }

    /// Whether the job was told [`Entry::Later`](crate::blocking::Entry::Later): what it made is
    /// dropped, and it runs again.
    pub fn is_parked(&self) -> bool {
        self.parked.is_some()
    }
}
