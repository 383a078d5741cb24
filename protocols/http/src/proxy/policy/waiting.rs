//! Who waits for room, in the order in which they came.
//!
//! Invariants
//! - UW1: the first that came and still waits is the next.
//! - UW2: at most `max` wait; places of those that have left before their turn count until those
//!   before them are gone, so that there are at most twice as many places.
//!
//! Cost: O(1) for each, those that have left included.

use std::collections::VecDeque;

/// A place in the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

/// See the module.
#[derive(Debug)]
pub(crate) struct Waiting<W> {
    places: VecDeque<Option<W>>,
    /// The number of the first place.
    first: u64,
    count: usize,
    max: usize,
}

impl<W> Waiting<W> {
    pub(crate) fn new(max: usize) -> Self {
        Self {
            places: VecDeque::new(),
            first: 0,
            count: 0,
            max,
        }
    }

    /// How many wait.
    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// The last place; `None` where as many wait as may.
    pub(crate) fn join(&mut self, who: W) -> Option<Ticket> {
        if self.count >= self.max || self.places.len() >= self.max * 2 {
            return None;
        }
        let ticket = Ticket(self.first + self.places.len() as u64);
        self.places.push_back(Some(who));
        self.count += 1;
        Some(ticket)
    }

    /// It waits no more. `None`: it had its turn.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<W> {
        let at = ticket.0.checked_sub(self.first)?;
        let place = self.places.get_mut(usize::try_from(at).ok()?)?;
        let left = place.take()?;
        self.count -= 1;
        self.trim();
        Some(left)
    }

    /// The one whose turn is next.
    pub(crate) fn first(&mut self) -> Option<&W> {
        self.trim();
        self.places.front()?.as_ref()
    }

    /// The next one has its turn.
    pub(crate) fn next(&mut self) -> Option<W> {
        self.trim();
        let next = self.places.pop_front()?;
        self.first += 1;
        self.count -= usize::from(next.is_some());
        next
    }

    fn trim(&mut self) {
        while let Some(None) = self.places.front() {
            self.places.pop_front();
            self.first += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_have_their_turn_in_the_order_in_which_they_came() {
        let mut waiting = Waiting::new(3);
        let tickets: Vec<_> = (0..3).map(|who| waiting.join(who).expect("room")).collect();
        assert_eq!(waiting.join(9), None);
        assert_eq!(waiting.leave(tickets[1]), Some(1));
        assert_eq!(waiting.leave(tickets[1]), None);
        assert_eq!(waiting.next(), Some(0));
        assert_eq!(waiting.leave(tickets[0]), None, "it had its turn");
        assert_eq!((waiting.next(), waiting.next()), (Some(2), None));
        assert_eq!(waiting.count(), 0);
    }

    #[test]
    fn model_who_leaves_is_left_out_and_counts_no_more() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut waiting, mut model) = (Waiting::new(8), Vec::<(Ticket, u32)>::new());
        for who in 0..20_000 {
            match random.u8(..3) {
                0 => match waiting.join(who) {
                    Some(ticket) => model.push((ticket, who)),
                    None => assert!(model.len() == 8 || waiting.places.len() == 16),
                },
                1 if !model.is_empty() => {
                    let (ticket, who) = model.remove(random.usize(..model.len()));
                    assert_eq!(waiting.leave(ticket), Some(who));
                }
                _ => {
                    let next = (!model.is_empty()).then(|| model.remove(0).1);
                    assert_eq!(waiting.next(), next, "UW1");
                }
            }
            assert_eq!(waiting.count(), model.len());
            assert!(waiting.places.len() <= 16, "UW2");
        }
    }
}
