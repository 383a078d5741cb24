//! The window of a consumer: which producers may begin a message, and which wait, in which order.
//!
//! A consumer has room for `room` fragments. A message reserves what it may need before its first
//! byte is retained, and gives back what it did not need when it is delivered. A producer that
//! finds no room waits in a queue; free room is granted in order, so short messages cannot overtake
//! a long one for ever.
//!
//! Invariants
//! - W1: `used` is the sum of all reservations, grants not yet claimed, and fragments held; it is
//!   never above `room`.
//! - W2: the first in the queue does not fit, or the queue is empty.
//! - W3: a ticket is in the queue or in the grants, until it is claimed or given up.
//!
//! Cost: O(log waiting).

use std::collections::{BTreeMap, HashMap};

/// Names a place in the queue, in order of arrival.
pub(crate) type Ticket = u64;

/// See the header. `W` wakes a producer whose turn has come.
#[derive(Debug)]
pub(crate) struct Window<W> {
    room: u32,
    used: u32,
    next: Ticket,
    waiting: BTreeMap<Ticket, (u32, W)>,
    granted: HashMap<Ticket, u32>,
}

/// The answer to [`Window::reserve`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Room {
    Reserved,
    Wait(Ticket),
}

impl<W> Window<W> {
    pub(crate) fn new(room: u32) -> Window<W> {
        Window {
            room,
            used: 0,
            next: 0,
            waiting: BTreeMap::new(),
            granted: HashMap::new(),
        }
    }

    /// Reserves `need`, at once or after those before it; at most the whole room.
    #[inline]
    pub(crate) fn reserve(&mut self, need: u32, waker: impl FnOnce() -> W) -> Room {
        debug_assert!(need <= self.room, "no window has as much room");
        if self.has_room(need) {
            self.used += need;
            return Room::Reserved;
        }
        let ticket = self.next;
        self.next += 1;
        self.waiting.insert(ticket, (need, waker()));
        Room::Wait(ticket)
    }

    /// Whether [`Window::reserve`] would find room now.
    pub(crate) fn has_room(&self, need: u32) -> bool {
        self.waiting.is_empty() && need <= self.room - self.used
    }

    /// Whether a producer is in the queue.
    pub(crate) fn is_waited_for(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Takes what was granted to a ticket. `None`: its turn has not come.
    pub(crate) fn claim(&mut self, ticket: Ticket) -> Option<u32> {
        self.granted.remove(&ticket)
    }

    /// Gives up a ticket, whether its turn has come or not; wakes those whose turn comes by that.
    pub(crate) fn give_up(&mut self, ticket: Ticket, woken: &mut Vec<W>) {
        self.waiting.remove(&ticket);
        let granted = self.granted.remove(&ticket).unwrap_or(0);
        self.release(granted, woken);
    }

    /// Room comes free: reserved and not needed, or returned; wakes those whose turn comes by that.
    pub(crate) fn release(&mut self, count: u32, woken: &mut Vec<W>) {
        assert!(count <= self.used, "W1: more is released than was used");
        self.used -= count;
        while let Some(first) = self.waiting.first_entry() {
            let need = first.get().0;
            if need > self.room - self.used {
                break;
            }
            let ticket = *first.key();
            let (_, waker) = first.remove();
            self.used += need;
            self.granted.insert(ticket, need);
            woken.push(waker);
        }
    }

    /// Grants nothing any more, and wakes all that wait.
    pub(crate) fn end(&mut self, woken: &mut Vec<W>) {
        woken.extend(
            std::mem::take(&mut self.waiting)
                .into_values()
                .map(|(_, waker)| waker),
        );
    }

    #[cfg(test)]
    pub(crate) fn used(&self) -> u32 {
        self.used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticket(room: Room) -> Ticket {
        match room {
            Room::Wait(ticket) => ticket,
            Room::Reserved => panic!("it fits"),
        }
    }

    #[test]
    fn a_long_wish_is_not_overtaken_by_a_short_one() {
        let mut window = Window::new(10);
        let mut woken = vec![];
        assert_eq!(window.reserve(8, || 'a'), Room::Reserved);
        let long = ticket(window.reserve(9, || 'b'));
        let short = ticket(window.reserve(1, || 'c'));
        window.release(6, &mut woken);
        assert_eq!((woken.len(), window.claim(long)), (0, None));
        window.release(2, &mut woken);
        assert_eq!(woken, ['b', 'c']);
        assert_eq!(window.claim(long), Some(9));
        assert_eq!(window.claim(long), None);
        assert_eq!(window.claim(short), Some(1));
        assert_eq!(window.used(), 10);
    }

    #[test]
    fn a_ticket_given_up_makes_room_for_the_next() {
        let mut window = Window::new(4);
        let mut woken = vec![];
        assert_eq!(window.reserve(3, || 'a'), Room::Reserved);
        let first = ticket(window.reserve(4, || 'b'));
        let second = ticket(window.reserve(1, || 'c'));
        window.give_up(first, &mut woken);
        assert_eq!(woken, ['c']);
        // Granted and never claimed: its room comes back.
        window.give_up(second, &mut woken);
        assert_eq!(window.used(), 3);
        window.release(3, &mut woken);
        assert_eq!(window.used(), 0);
    }

    #[test]
    fn the_end_wakes_all() {
        let mut window = Window::new(1);
        let mut woken = vec![];
        assert_eq!(window.reserve(1, || 'a'), Room::Reserved);
        ticket(window.reserve(1, || 'b'));
        ticket(window.reserve(1, || 'c'));
        window.end(&mut woken);
        assert_eq!(woken, ['b', 'c']);
    }

    #[test]
    fn model_room_is_never_exceeded_and_every_turn_comes() {
        let mut rng = fastrand::Rng::with_seed(1);
        let mut random = move |below: u32| rng.u32(..below);
        let mut window = Window::new(50);
        let (mut held, mut waiting): (Vec<u32>, Vec<(Ticket, u32)>) = (vec![], vec![]);
        for step in 0..4_000 {
            let mut woken = vec![];
            match random(3) {
                0 => {
                    let need = 1 + random(50);
                    match window.reserve(need, || ()) {
                        Room::Reserved => held.push(need),
                        Room::Wait(ticket) => waiting.push((ticket, need)),
                    }
                }
                1 if !held.is_empty() => {
                    let at = random(held.len() as u32) as usize;
                    let part = 1 + random(held[at]);
                    held[at] -= part;
                    held.retain(|count| *count > 0);
                    window.release(part, &mut woken);
                }
                _ if !waiting.is_empty() && random(4) == 0 => {
                    let at = random(waiting.len() as u32) as usize;
                    window.give_up(waiting.remove(at).0, &mut woken);
                }
                _ => {}
            }
            // The oracle: in order of arrival, as many as fit.
            let mut used: u32 = held.iter().sum();
            while waiting.first().is_some_and(|(_, need)| used + need <= 50) {
                let (ticket, need) = waiting.remove(0);
                assert_eq!(window.claim(ticket), Some(need), "step {step}");
                held.push(need);
                used += need;
            }
            assert!(
                waiting
                    .iter()
                    .all(|(ticket, _)| window.claim(*ticket).is_none())
            );
            assert_eq!(window.used(), used, "step {step}");
        }
    }
}
