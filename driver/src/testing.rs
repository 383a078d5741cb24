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
pub(crate) use skipped::{cannot_run, not_offered, not_on_this_kernel};

use skipped::Version;

use super::{Cause, Refusal};

/// The newest feature of any driver that a test asks for.
const SINCE: Version = (6, 1);

/// What the kernel gave; nothing where it refused, which is printed.
///
/// # Panics
/// As [`leave_out`].
pub(crate) fn given<T>(made: Result<T, Refusal>) -> Option<T> {
    made.map_err(|refusal| leave_out(&refusal, SINCE)).ok()
}

/// Says that the kernel refused a feature that this version of Linux brought.
///
/// # Panics
/// It had not enough of something, or is new enough and does not know the feature.
pub(crate) fn leave_out(refusal: &Refusal, since: Version) {
    match refusal.cause {
        cause if cause.is_resource() => panic!("{refusal}"),
        Cause::Unsupported => not_on_this_kernel(refusal.step, since),
        _ => not_offered(&refusal.to_string(), since),
    }
}
