//! Which driver a test runs on, and the macro that makes two tests of one function.

use crate::skipped::{not_offered, not_on_this_kernel};
use std::sync::OnceLock;

/// A driver that a server is started with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// `--driver uring`.
    Uring,
    /// `--driver epoll`.
    Epoll,
}

impl Driver {
    /// The word after `--driver`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }

    /// Whether this machine has it. Says so once when it has not: the kernel is asked directly, so
    /// that a server which wrongly gives up on io_uring fails its tests instead of skipping them.
    pub fn is_here(self) -> bool {
        const ENTRIES: u32 = 8;
        // From then on the driver uses it.
        const SINCE: (u32, u32) = (6, 0);
        static RING: OnceLock<Ring> = OnceLock::new();
        let ring = RING.get_or_init(|| match io_uring::IoUring::new(ENTRIES) {
            // The last of what the driver cannot do without that a ring reports.
            Ok(ring) if ring.params().is_feature_linked_file() => Ring::Sufficient,
            Ok(_) => Ring::Old,
            Err(error) => Ring::Refused(error.to_string()),
        });
        match (self, ring) {
            (Self::Epoll, _) | (Self::Uring, Ring::Sufficient) => return true,
            (Self::Uring, Ring::Old) => not_on_this_kernel("io_uring", SINCE),
            (Self::Uring, Ring::Refused(why)) => {
                not_offered(&format!("io_uring is refused: {why}"), SINCE);
            }
        }
        false
    }
}

/// Of two values, one for each driver, those whose driver this machine has.
pub fn drivers_here<T>(uring: T, epoll: T) -> impl Iterator<Item = T> {
    let uring = Driver::Uring.is_here().then_some(uring);
    uring.into_iter().chain([epoll])
}

/// What this machine's rings offer.
enum Ring {
    Sufficient,
    /// Less than the driver needs.
    Old,
    Refused(String),
}

/// Makes two tests, `NAME::holds_on_uring` and `NAME::holds_on_epoll`, of each named function,
/// which takes a [`Driver`].
#[macro_export]
macro_rules! each_driver {
    ($($name:ident),+ $(,)?) => {
        $(
            mod $name {
                #[test]
                fn holds_on_uring() {
                    if $crate::Driver::Uring.is_here() {
                        super::$name($crate::Driver::Uring);
                    }
                }

                #[test]
                fn holds_on_epoll() {
                    super::$name($crate::Driver::Epoll);
                }
            }
        )+
    };
}
