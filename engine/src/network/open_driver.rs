//! Opens the driver of a network thread: one of those that are built (the features `epoll` and
//! `uring`).
//!
//! `flatpath_driver::select` has chosen one for all threads, of those that are built. Where the
//! kernel has run out of what a ring needs meanwhile, a thread uses epoll after all, unless
//! io_uring was asked for or there is no epoll in this build.

use std::io;

#[cfg(feature = "epoll")]
use flatpath_driver::epoll::Epoll;
#[cfg(feature = "uring")]
use flatpath_driver::uring::Uring;
use flatpath_driver::{DriverChoice, DriverConfig};

use crate::server::settings::Options;

/// A driver that is open; none can be where none is built.
#[allow(
    clippy::large_enum_variant,
    reason = "a thread has one, for as long as it runs"
)]
pub(crate) enum OpenDriver {
    #[cfg(feature = "uring")]
    Uring(Uring),
    #[cfg(feature = "epoll")]
    Epoll(Epoll),
}

impl OpenDriver {
    /// Opens the driver that was selected, on the thread that it is for.
    pub(crate) fn open(uring: bool, options: &Options, thread: u16) -> io::Result<OpenDriver> {
        if uring {
            let may_use_epoll = cfg!(feature = "epoll") && options.choice != DriverChoice::Uring;
            match open_uring(&options.driver) {
                Err(refusal) if may_use_epoll => {
                    log::warn!("thread {thread}: epoll after all: {refusal}");
                }
                opened => return opened,
            }
        }
        open_epoll(&options.driver)
    }
}

#[cfg(feature = "uring")]
fn open_uring(config: &DriverConfig) -> io::Result<OpenDriver> {
    let opened = Uring::new(config).map(OpenDriver::Uring);
    opened.map_err(io::Error::other)
}

#[cfg(not(feature = "uring"))]
fn open_uring(_: &DriverConfig) -> io::Result<OpenDriver> {
    Err(io::Error::other("io_uring is not in this build"))
}

#[cfg(feature = "epoll")]
fn open_epoll(config: &DriverConfig) -> io::Result<OpenDriver> {
    Epoll::new(config).map(OpenDriver::Epoll)
}

#[cfg(not(feature = "epoll"))]
fn open_epoll(_: &DriverConfig) -> io::Result<OpenDriver> {
    Err(io::Error::other("epoll is not in this build"))
}
