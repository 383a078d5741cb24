//! What a turn has found and not handled yet, each kind in the order in which it came.
//!
//! | kind                         | handled in one turn             | what is left               |
//! |------------------------------|---------------------------------|----------------------------|
//! | completions of earlier turns | first                           | is before those of later   |
//! | completions of this turn     | as many as it may beside them   | goes after them            |
//! | connections that were woken  | as many as it may               | is before those of later   |
//!
//! Invariant: nothing is handled before what came before it and is of the same kind, but for
//! accepts, which have a bound of their own (`Acceptors`).

use std::collections::VecDeque;

use flatpath_driver::Completion;

/// See the module.
#[derive(Default)]
pub(super) struct Pending {
    /// What the driver hands out in one wait; empty but for that.
    completions: Vec<Completion>,
    /// What no turn has handled yet, oldest first.
    left_over: VecDeque<Completion>,
    /// Taken from the set of those that were woken and not called yet, oldest first.
    woken: VecDeque<u32>,
}

impl Pending {
    /// Where the driver puts what it hands out.
    pub(super) fn room(&mut self) -> &mut Vec<Completion> {
        &mut self.completions
    }

    /// The oldest completion that a turn before has left.
    #[inline]
    pub(super) fn next_left_over(&mut self) -> Option<Completion> {
        self.left_over.pop_front()
    }

    /// The completions of this turn; [`Pending::recycle`] takes the list back.
    #[inline]
    pub(super) fn take(&mut self) -> Vec<Completion> {
        std::mem::take(&mut self.completions)
    }

    #[inline]
    pub(super) fn recycle(&mut self, handled: Vec<Completion>) {
        debug_assert!(handled.is_empty(), "all of them are handled, or left over");
        self.completions = handled;
    }

    /// Leaves a completion to the next turn.
    pub(super) fn leave(&mut self, completion: Completion) {
        self.left_over.push_back(completion);
    }

    /// These connections were woken.
    pub(super) fn wake(&mut self, indices: impl Iterator<Item = u32>) {
        self.woken.extend(indices);
    }

    pub(super) fn woken(&self) -> usize {
        self.woken.len()
    }

    /// The one that was woken first.
    pub(super) fn next_woken(&mut self) -> Option<u32> {
        self.woken.pop_front()
    }

    /// Whether the next turn has something to handle, whatever comes.
    pub(super) fn any(&self) -> bool {
        !self.left_over.is_empty() || !self.woken.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use flatpath_driver::Outcome;

    use super::*;

    fn completion(user_data: u64) -> Completion {
        Completion {
            user_data,
            outcome: Outcome::EndOfStream,
            more: false,
        }
    }

    #[test]
    fn what_is_left_comes_in_its_order_and_makes_the_next_turn_follow_at_once() {
        let mut pending = Pending::default();
        assert!(!pending.any());
        pending.room().extend([1, 2].map(completion));
        let mut list = pending.take();
        list.drain(..).for_each(|one| pending.leave(one));
        pending.recycle(list);
        assert!(pending.any() && pending.room().is_empty());
        let left = std::iter::from_fn(|| pending.next_left_over());
        assert!(left.map(|one| one.user_data).eq([1, 2]));
        pending.wake([5, 3].into_iter());
        pending.wake([4].into_iter());
        assert!(pending.any() && pending.woken() == 3);
        assert!(std::iter::from_fn(|| pending.next_woken()).eq([5, 3, 4]));
        assert!(!pending.any());
    }
}
