//! The configuration of a driver.

use crate::region::{Backing, Filling, RegionConfig, SmallReceives};

/// Part of the common receive buffers that may be retained beyond their turn: one in four.
const COMMON_RETAINED_SHARE: u32 = 4;

/// Sizes of a driver. The defaults suit one network thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverConfig {
    /// Operations submitted with one system call; more cost another one. io_uring only.
    pub submission_entries: u32,
    /// Completions the queue holds; more overflow into kernel memory, slowly, and end multishot
    /// operations early. io_uring only.
    pub completion_entries: u32,
    /// Receive buffers: a power of two, at most [`BUFFERS_MAX`](crate::BUFFERS_MAX).
    pub receive_buffers: u32,
    /// Bytes of one receive buffer.
    pub receive_buffer_bytes: u32,
    /// Further regions to receive into, as regions 1, 2 and so on; region 0 is made of the buffers
    /// above.
    pub regions: Vec<RegionConfig>,
}

impl DriverConfig {
    /// The region that is made of the common receive buffers.
    pub(crate) fn common(&self) -> RegionConfig {
        RegionConfig {
            pages: self.receive_buffers,
            page_bytes: self.receive_buffer_bytes,
            reserve_pages: self.receive_buffers - self.receive_buffers / COMMON_RETAINED_SHARE,
            backing: Backing::Private,
            small_receives: SmallReceives::TakePages,
            filling: Filling::Received,
        }
    }

    /// All regions, the common one first.
    pub(crate) fn all_regions(&self) -> impl Iterator<Item = RegionConfig> + '_ {
        std::iter::once(self.common()).chain(self.regions.iter().cloned())
    }
}

impl Default for DriverConfig {
    fn default() -> DriverConfig {
        DriverConfig {
            submission_entries: 256,
            completion_entries: 8192,
            receive_buffers: 512,
            receive_buffer_bytes: 8192,
            regions: Vec::new(),
        }
    }
}
