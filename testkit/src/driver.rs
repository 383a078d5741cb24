//! Which driver a test runs on, and the macro that makes two tests of one function.

use crate::skipped::cannot_run;
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
        static REFUSAL: OnceLock<Option<String>> = OnceLock::new();
        let refusal = REFUSAL.get_or_init(|| {
            const ENTRIES: u32 = 8;
            io_uring::IoUring::new(ENTRIES)
                .err()
                .map(|error| error.to_string())
        });
        match refusal {
            Some(why) if self == Self::Uring => {
                cannot_run(&format!("io_uring is refused: {why}"));
                false
            }
            _ => true,
        }
    }
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
