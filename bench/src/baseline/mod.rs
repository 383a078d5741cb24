//! The old ways: one file each, honest and competent, without the change that is measured.
//!
//! Each does what the original did, in the words of its file's header, and as well as safe Rust
//! allows: no needless allocation, padded where padding helps, the cheapest lock of the standard
//! library. Where an old way is quicker for another reason than its algorithm (it hands out an
//! index where ours hands out memory), that advantage stays with it.
//!
//! Single-shot accept has no file: the engine itself can do it (`--accept single`).

pub(crate) mod buffer_list;
pub(crate) mod locked_queue;
pub(crate) mod thread_list;
pub(crate) mod timer_tree;
pub(crate) mod timer_heap;
pub(crate) mod token_array;
pub(crate) mod token_region;
pub(crate) mod token_tree;
pub(crate) mod pairing_lists;

/// How a walk takes the entry it looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Compare-and-swap (or test-and-set) on each entry, as published: a write to every line.
    Swap,
    /// The cheap fix: look first, swap only what looks free. A read of every line.
    TestThenSwap,
}
