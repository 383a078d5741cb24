//! `cargo xtask shuttle [FILTER...]`: the structures under shuttle, which tries random schedules.
//!
//! It scales to shapes that loom cannot finish and sees spurious wake-ups that loom does not; it
//! models only sequential consistency and proves nothing.

use crate::{Error, loom};

/// For the help text.
pub const SUMMARY: &str = "run the structures under shuttle's random schedules";

/// Runs the `shuttle_` tests whose names hold one of the filters.
///
/// # Errors
/// A test fails, none ran, or the time is over.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    loom::model("shuttle", "shuttle_", arguments)
}
