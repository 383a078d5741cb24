//! What counts allocations of the whole process, or takes most of what a process may have: each
//! test in a process of its own.
#![forbid(unsafe_code)]

mod allocations;
mod idle_sockets;
mod ingest_crowd;
mod many;
mod refused_uploads;

use std::alloc::System;

use flatpath::lock::Lock;
use flatpath_testkit::{Driver, in_child};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Runs a test of a crowd in a process of its own, as `in_child` does: two crowds would need more
/// descriptors than a process may have. One at a time on each driver, so that a machine has two at
/// most. `test` is its path in this program, without what `each_driver!` adds.
fn is_alone(driver: Driver, test: &str) -> bool {
    static URING: Lock<()> = Lock::new(());
    static EPOLL: Lock<()> = Lock::new(());
    let _turn = match driver {
        Driver::Uring => URING.lock(),
        Driver::Epoll => EPOLL.lock(),
    };
    in_child(&format!("alone::{test}::holds_on_{}", driver.name()))
}
