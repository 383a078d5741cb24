//! What counts allocations of the whole process, or takes most of what a machine has: one test at
//! a time, and those that count in a process of their own.
#![forbid(unsafe_code)]

mod allocations;
mod idle_sockets;
mod ingest_crowd;
mod many;
mod refused_uploads;

use std::alloc::System;

use flatpath::lock::{Guard, Lock};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Waits until no other test of this program runs: two crowds at once would need more descriptors
/// than a process may have.
fn one_at_a_time() -> Guard<'static, ()> {
    static TURN: Lock<()> = Lock::new(());
    TURN.lock()
}

/// The same, in a process of its own, where nothing else allocates. `None` once the test, named by
/// its whole path, has passed there.
fn alone(test: &str) -> Option<Guard<'static, ()>> {
    let turn = one_at_a_time();
    flatpath_testkit::in_child(test).then_some(turn)
}
