//! The configuration of a driver.

use crate::refusal::Refusal;
use crate::region::{BUFFER_BYTES_MAX, BUFFERS_MAX, Backing, Filling, RegionConfig, SmallReceives};

/// Part of the common receive buffers that may be retained beyond their turn: one in four.
const COMMON_RETAINED_SHARE: u32 = 4;

/// Pages of all regions of a ring: a completion names its page by a number of 16 bits, and numbers
/// continue from region to region.
const PAGES_MAX: u64 = 1 << 16;

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

    /// Refuses configurations that no kernel takes.
    pub(crate) fn check(&self) -> Result<(), Refusal> {
        let step = "the driver's configuration";
        let buffers = self.receive_buffers;
        if !buffers.is_power_of_two() || buffers > BUFFERS_MAX {
            let cure =
                format!("receive_buffers is {buffers}: use a power of two up to {BUFFERS_MAX}");
            return Err(Refusal::configuration(step, cure));
        }
        let bytes = self.receive_buffer_bytes;
        if bytes == 0 || bytes > BUFFER_BYTES_MAX {
            let cure = format!("receive_buffer_bytes is {bytes}: use 1 to {BUFFER_BYTES_MAX}");
            return Err(Refusal::configuration(step, cure));
        }
        let pages: u64 = self.all_regions().map(|one| u64::from(one.pages)).sum();
        if pages > PAGES_MAX {
            let cure = format!("all regions together have {pages} pages: use at most {PAGES_MAX}");
            return Err(Refusal::configuration(step, cure));
        }
        if self.submission_entries < 4 || self.completion_entries < 4 {
            let cure = "use at least 4 submission and 4 completion entries".to_owned();
            return Err(Refusal::configuration(step, cure));
        }
        Ok(())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Cause;

    #[test]
    fn impossible_configurations_are_named() {
        let good = DriverConfig::default();
        assert_eq!(good.check(), Ok(()));
        let small = DriverConfig {
            submission_entries: 4,
            completion_entries: 4,
            ..good.clone()
        };
        assert_eq!(small.check(), Ok(()));
        let bad = [
            DriverConfig {
                receive_buffers: 0,
                ..good.clone()
            },
            DriverConfig {
                receive_buffers: 3,
                ..good.clone()
            },
            DriverConfig {
                receive_buffers: 65_536,
                ..good.clone()
            },
            DriverConfig {
                receive_buffer_bytes: 0,
                ..good.clone()
            },
            DriverConfig {
                submission_entries: 1,
                ..good.clone()
            },
            DriverConfig {
                completion_entries: 2,
                ..good.clone()
            },
            DriverConfig {
                regions: vec![
                    RegionConfig {
                        pages: BUFFERS_MAX,
                        ..RegionConfig::default()
                    };
                    2
                ],
                ..good
            },
        ];
        for config in bad {
            let refusal = config.check().expect_err("impossible");
            assert_eq!(refusal.cause, Cause::Configuration, "{config:?}");
        }
    }
}
