//! `cargo xtask shuttle [FILTER...]`: the structures under shuttle, which tries random schedules.
//!
//! The bodies are those of the `loom_` tests, and larger ones called `shuttle_`. It sees spurious
//! wake-ups, which loom does not, and scales to shapes that loom cannot finish; it models only
//! sequential consistency and proves nothing.

use crate::{Error, loom};

/// For the help text.
pub const SUMMARY: &str = "run the structures under shuttle's random schedules";

/// Runs the tests whose names hold one of the filters, or all of both prefixes.
///
/// # Errors
/// A test fails, none ran, or the time is over.
pub fn run(arguments: &[String]) -> Result<(), Error> {
    loom::model("shuttle", &["loom_", "shuttle_"], arguments)
}
