//! The module `probe` of a build without io_uring: nothing is tried.

use crate::config::DriverConfig;
use crate::refusal::Refusal;

/// The kernel is not asked: there is no driver for its rings.
pub(crate) fn require(_: &DriverConfig) -> Result<(), Refusal> {
    Err(Refusal::not_built("uring"))
}
