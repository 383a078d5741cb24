//! The O(1) structures of Flatpath. No I/O; model-checked.
//!
//! Links are **indices** into segmented, append-only tables, not pointers: storage is type-stable,
//! so a thread that is late reads an old link, never freed memory, and a compare-and-swap then
//! refuses it. An index is a `u32`; `u32::MAX` means none. The holder of an index owns what it
//! names; a structure moves that right from one thread to another and states the ordering.
//!
//! ```
//! use std::thread;
//!
//! use flatpath_structures::queue::Queue;
//!
//! // What an index names is the caller's: an entry of a table, say.
//! let queue = Queue::new(100);
//! thread::scope(|scope| {
//!     scope.spawn(|| {
//!         for index in 0..100 {
//!             queue.push(index);
//!         }
//!     });
//!     let mut taken = Vec::new();
//!     while taken.len() < 100 {
//!         taken.extend(queue.take_all());
//!         thread::yield_now();
//!     }
//!     assert!(taken.is_sorted(), "oldest first");
//! });
//! ```
//!
//! | module | what it is for | other names |
//! |--------|----------------|-------------|
//! | `table` | storage that never moves and never shrinks | slab segments |
//! | [`pool`] | buffers used again and again | free lists, SMC's `sndbufs` |
//! | [`queue`] | hand over, oldest first, to sleepers | `lwq` |
//! | [`returns`] | what is lent, counted until it is back | reference-counted free list |
//! | [`slots`] | keys that outlive their entries | generation table, slot map |
//! | [`stack`] | hand over, newest first | `llist`, Treiber stack |
//! | [`news`] | that something has changed, whatever it is | dirty flag, doorbell |
//! | [`wake_set`] | keys to look at, each once | `napi_schedule` |
//! | [`worker_pool`] | idle threads, woken one at a time | `sp_idle_threads` |
//! | [`tokens`] | references to pages | `net_iov` user references |
//! | [`pairing`] | joins a producer and a consumer by key | `irqbypass` |
//! | [`wheel`] | time-outs that hardly ever expire | hashed timing wheel |
//! | [`panics`] | ends a panic of foreign code | `catch_unwind` |
//! | [`lock`] | locks that a panic does not poison | `parking_lot::Mutex` |
//!
//! Every file opens with its contract: who may run beside whom, invariants, ordering edges, cost.
//! Each named edge can be weakened from outside; `drill.toml` lists how, and the test that then
//! fails. What none of these does: look at a clock, or grow without a bound. Two enter the kernel:
//! an idle [`worker_pool`] parks, and the end of a [`pool`] has all processors fence.

/// Public for what [`impl_error`] expands to.
#[doc(hidden)]
pub mod errors;
/// The locks and the condition variable of the crates above.
pub mod lock {
    pub use crate::sync::{Condition, Guard, Lock, ReadWriteLock};
}
pub mod news;
pub mod pairing;
pub mod panics;
pub mod pool;
pub mod queue;
pub mod returns;
pub mod slots;
pub mod stack;
pub mod tokens;
pub mod wake_set;
pub mod wheel;
pub mod worker_pool;

mod barrier;
mod buffer;
mod charge;
mod depot;
mod handle;
mod links;
mod memory;
mod number;
mod owners;
mod sync;
mod table;
#[cfg(test)]
mod testing;

/// No index. Every structure of this crate keeps it for itself, so a capacity stays below it.
const NIL: u32 = u32::MAX;
