//! The number that travels with an operation of the driver and comes back with its completion:
//! kind, operation number, generation and index.
//!
//! Invariant N2: a completion that does not fit the current operation of its connection is dropped,
//! its piece given back, its socket closed.

use flatpath_structures::slots::Key;

pub(super) const KIND_RECEIVE: u64 = 0;
pub(super) const KIND_SEND: u64 = 1;
pub(super) const KIND_ACCEPT: u64 = 2;
pub(super) const KIND_WATCH: u64 = 3;
pub(super) const KIND_DATAGRAMS: u64 = 4;
const INDEX_BITS: u32 = 24;
const GENERATION_BITS: u32 = 27;
pub(super) const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
const OPERATION_BITS: u32 = 8;

/// Connections one network thread can number.
pub(crate) const CONNECTIONS_BOUND: usize = (1 << INDEX_BITS) - 1;

/// Event sources one network thread can number: more than it can have descriptors.
pub(super) const SOURCES_MAX: u32 = (1 << INDEX_BITS) - 1;

/// Packs the parts into the 62 bits a driver passes through.
pub(super) fn user_data(kind: u64, operation: u8, key: Key) -> u64 {
    let generation = u64::from(key.generation & GENERATION_MASK);
    (kind << (OPERATION_BITS + GENERATION_BITS + INDEX_BITS))
        | (u64::from(operation) << (GENERATION_BITS + INDEX_BITS))
        | (generation << INDEX_BITS)
        | u64::from(key.index)
}

/// The parts: kind, operation, truncated generation, index.
#[inline]
pub(super) fn parts(user_data: u64) -> (u64, u8, u32, u32) {
    let index = (user_data & ((1 << INDEX_BITS) - 1)) as u32;
    let generation = ((user_data >> INDEX_BITS) & ((1 << GENERATION_BITS) - 1)) as u32;
    let operation = ((user_data >> (INDEX_BITS + GENERATION_BITS)) & 0xff) as u8;
    (kind_of(user_data), operation, generation, index)
}

/// The kind alone.
#[inline]
pub(super) fn kind_of(user_data: u64) -> u64 {
    user_data >> (OPERATION_BITS + GENERATION_BITS + INDEX_BITS)
}
