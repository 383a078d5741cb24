//! How the threads of a server are scheduled: in the default class, with slices of usual length.
//!
//! A network thread computes for microseconds and sleeps. Beside a program that computes without
//! end it needs little of the processor, but at once. In the default class (EEVDF) a woken thread
//! interrupts one with a longer slice if it has its due; it leaves one with an equal slice alone
//! for the rest of that slice and up to the next tick, 2 to 6 ms at 250 Hz. A shorter slice than
//! other programs have would help there, but `NETWORK_SLICE_NS` says what it costs elsewhere.
//!
//! Workers keep the slice that the program has. With a shorter one they interrupt the network
//! thread and each other, which costs a tenth of the CPU time of a pooled answer where nothing else
//! runs. They are not in `SCHED_BATCH` either: a thread in it interrupts no other.
//! `ARCHITECTURE.md` has the figures.

use crate::limits::NETWORK_SLICE_NS;

/// For a network thread, by itself, before it serves.
pub(crate) fn network_thread() {
    if let Err(cause) = flatpath_driver::ask_for_slice(NETWORK_SLICE_NS) {
        log::debug!("a network thread keeps the time slice it has: {cause}");
    }
}
