//! The counters of a driver, and the rules by which every driver counts.

use crate::completion::{Errno, Outcome};
use crate::region::Region;

/// Counters since the driver was made, and gauges where it is noted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct DriverStatistics {
    /// System calls of any kind, `enters` included.
    pub system_calls: u64,
    /// Calls of `io_uring_enter` or `epoll_wait`.
    pub enters: u64,
    /// Operations given to the kernel.
    pub submissions: u64,
    /// Completions handed to the caller.
    pub completions: u64,
    /// Times the completion queue was found overflown.
    pub completion_overflows: u64,
    /// Calls of `accept`: the first one and every re-arming.
    pub accepts_armed: u64,
    /// Receives that ended for lack of a buffer.
    pub stalls: u64,
    /// Receives that lie after another one in their page.
    pub shared_receives: u64,
    /// Sends that had to be continued.
    pub short_sends: u64,
    /// Wake-ups that cost a system call of the waking thread.
    pub wakes: u64,
    /// Gauge: common receive buffers with the caller, or retained.
    pub buffers_in_use: u32,
    /// Gauge: pages of all regions that are retained.
    pub pages_retained: u32,
    /// Gauge: sockets open.
    pub sockets: u32,
}

impl DriverStatistics {
    /// Counts a completion that says that no page was free.
    #[inline]
    pub(crate) fn count_stall(&mut self, outcome: &Outcome) {
        self.stalls += u64::from(matches!(outcome, Outcome::Failed(Errno::NOBUFS)));
    }

    /// The same with the gauge of the pages that are retained.
    pub(crate) fn with_retained<'a>(
        self,
        regions: impl Iterator<Item = &'a Region>,
    ) -> DriverStatistics {
        DriverStatistics {
            pages_retained: regions.map(Region::retained).sum(),
            ..self
        }
    }
}
