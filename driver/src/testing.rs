//! What the driver's tests, also those in `tests/it`, share of the kit, which they do not build:
//! deadlines, the lines of what a machine or its kernel does not have, and a process for one
//! test.

#![allow(
    unreachable_pub,
    dead_code,
    unused_imports,
    reason = "they are public in the kit, and each of the two programs needs some of them"
)]

#[path = "../../testkit/src/alone.rs"]
mod alone;
#[path = "../../testkit/src/deadline.rs"]
mod deadline;
#[path = "../../testkit/src/skipped.rs"]
mod skipped;

pub(crate) use alone::in_child;
pub(crate) use deadline::patience;
pub(crate) use skipped::{cannot_run, not_on_this_kernel};

use super::{Cause, Refusal};

/// What the kernel gave; nothing where it refused, which is told.
///
/// # Panics
/// It had not enough of something, or is new enough and refused.
pub(crate) fn given<T>(made: Result<T, Refusal>) -> Option<T> {
    let refusal = match made {
        Ok(made) => return Some(made),
        Err(refusal) => refusal,
    };
    match refusal.cause {
        cause if cause.is_resource() => panic!("{refusal}"),
        // The newest feature of any driver that a test asks for.
        Cause::Unsupported => not_on_this_kernel(refusal.step, (6, 1)),
        _ => cannot_run(&refusal.to_string()),
    }
    None
}
