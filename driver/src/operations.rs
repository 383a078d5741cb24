//! Operations under way, by the index that the kernel or a work list carries: a table of
//! [`Slots`](flatpath_structures::slots) whose callers know which indices are taken; and which
//! operation a caller means.
//!
//! Invariants
//! - OP1: what an operation is on and its user_data tell it from every other (C1, C2).
//!
//! Cost: as there; entries do not move.

use std::ops::{Index, IndexMut};
use std::os::fd::RawFd;
use std::sync::Arc;

use flatpath_structures::slots::Slots;

/// More than there can be: each has a descriptor or a buffer of its own.
const OPERATIONS_MAX: u32 = u32::MAX - 1;

pub(crate) struct Operations<T>(Slots<T>);

impl<T> Default for Operations<T> {
    fn default() -> Self {
        Operations(Slots::new(OPERATIONS_MAX))
    }
}

impl<T> Operations<T> {
    pub(crate) fn insert(&mut self, operation: T) -> usize {
        match self.0.insert(operation) {
            Ok(key) => key.index as usize,
            Err(_) => unreachable!("more operations than descriptors and buffers"),
        }
    }

    /// Takes out the one at this index, which is under way.
    pub(crate) fn remove(&mut self, index: usize) -> T {
        let key = self.0.key_at(index as u32);
        let operation = key.and_then(|key| self.0.remove(key));
        operation.expect("it is under way")
    }

    pub(crate) fn get_mut(&mut self, index: usize) -> Option<&mut T> {
        let (_, operation) = self.0.at_mut(index as u32)?;
        Some(operation)
    }

    /// The index of the first that is meant. O(most operations that there ever were at once).
    pub(crate) fn find(&self, mut is_meant: impl FnMut(&T) -> bool) -> Option<usize> {
        let (key, _) = self.0.iter().find(|(_, it)| is_meant(it))?;
        Some(key.index as usize)
    }
}

/// An operation on a listener, an eventfd or a socket of datagrams, by which it is found (OP1), and
/// what its driver knows of it beside.
pub(crate) struct UnderWay<On, State> {
    pub(crate) user_data: u64,
    pub(crate) on: On,
    pub(crate) state: State,
}

/// Whether two handles are of one object.
pub(crate) trait IsSame {
    fn is_same(&self, other: &Self) -> bool;
}

impl<T> IsSame for Arc<T> {
    fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(self, other)
    }
}

impl IsSame for RawFd {
    fn is_same(&self, other: &Self) -> bool {
        self == other
    }
}

impl<On: IsSame, State> Operations<UnderWay<On, State>> {
    /// Whether an operation is under way on this. O(n), so for what there are few of.
    pub(crate) fn has_on(&self, on: &On) -> bool {
        self.find(|it| it.on.is_same(on)).is_some()
    }

    /// The one that is to be cancelled; `None` when its final completion is out already. O(n).
    pub(crate) fn meant(&self, on: &On, user_data: u64) -> Option<usize> {
        self.find(|it| it.user_data == user_data && it.on.is_same(on))
    }
}

impl<T> Index<usize> for Operations<T> {
    type Output = T;

    fn index(&self, index: usize) -> &T {
        let key = self.0.key_at(index as u32);
        let operation = key.and_then(|key| self.0.get(key));
        operation.expect("it is under way")
    }
}

impl<T> IndexMut<usize> for Operations<T> {
    fn index_mut(&mut self, index: usize) -> &mut T {
        self.get_mut(index).expect("it is under way")
    }
}
