//! Connections that were accepted and wait to be admitted, in turn by the address they come from.
//!
//! A network thread admits [`TURN_ACCEPTS_MAX`] of them in a turn. One address that connects and
//! connects again does not keep others out: where more wait, one from each address is admitted,
//! then the next. Addresses share queues, by the secret keys of the server.
//!
//! Other names: stochastic fair queueing (McKenney, 1990).
//!
//! Invariant: a queue is in `order` once if it has connections, else not.
//!
//! Cost: nothing to speak of while one turn can admit all of them. Where more wait, one system call
//! for each, to learn the address.

use std::collections::VecDeque;

use crate::limits::{ARRIVAL_QUEUES, TURN_ACCEPTS_MAX};

use super::addresses::Cells;

pub(crate) struct Arrivals<T> {
    /// In the order in which they were accepted; not in a queue yet.
    fresh: VecDeque<T>,
    /// None before more waited than one turn admits.
    queues: Box<[VecDeque<T>]>,
    /// Queues that have connections, the one whose turn it is first.
    order: VecDeque<usize>,
    queued: usize,
}

impl<T> Arrivals<T> {
    pub(crate) fn new() -> Arrivals<T> {
        Arrivals {
            fresh: VecDeque::new(),
            queues: Box::default(),
            order: VecDeque::new(),
            queued: 0,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.fresh.len() + self.queued
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn push(&mut self, arrival: T) {
        self.fresh.push_back(arrival);
    }

    /// Parts them by address, where more wait than one turn admits. `cells` says where the address
    /// of one is counted.
    pub(crate) fn arrange(&mut self, cells: impl Fn(&T) -> Cells) {
        if self.len() <= TURN_ACCEPTS_MAX {
            return;
        }
        if self.queues.is_empty() {
            self.queues = (0..ARRIVAL_QUEUES).map(|_| VecDeque::new()).collect();
        }
        while let Some(arrival) = self.fresh.pop_front() {
            let number = cells(&arrival).part(ARRIVAL_QUEUES);
            if self.queues[number].is_empty() {
                self.order.push_back(number);
            }
            self.queues[number].push_back(arrival);
            self.queued += 1;
        }
    }

    /// The next one to be admitted.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let Some(number) = self.order.pop_front() else {
            return self.fresh.pop_front();
        };
        let queue = &mut self.queues[number];
        let next = queue.pop_front();
        if !queue.is_empty() {
            self.order.push_back(number);
        }
        self.queued -= usize::from(next.is_some());
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_does_not_keep_others_out_and_keeps_its_own_order() {
        let mut arrivals = Arrivals::new();
        let addresses = Cells::apart(2);
        for number in 0..1000 {
            arrivals.push((number, addresses[0]));
        }
        arrivals.push((1000, addresses[1]));
        arrivals.push((1001, Cells::NONE));
        arrivals.arrange(|(_, cells)| *cells);
        assert_eq!(arrivals.len(), 1002);
        let order: Vec<_> = std::iter::from_fn(|| arrivals.pop()).collect();
        assert_eq!(order.len(), 1002);
        assert!(arrivals.is_empty());
        let many = order.iter().filter(|(number, _)| *number < 1000);
        assert!(many.is_sorted_by_key(|(number, _)| number));
        let early: Vec<_> = order.iter().take(3).map(|(number, _)| *number).collect();
        assert_eq!(early, [0, 1000, 1001]);
    }

    #[test]
    fn a_few_are_admitted_as_they_came() {
        let mut arrivals = Arrivals::new();
        for number in 0..TURN_ACCEPTS_MAX {
            arrivals.push(number);
        }
        arrivals.arrange(|_| unreachable!("no address is asked for"));
        let order: Vec<_> = std::iter::from_fn(|| arrivals.pop()).collect();
        assert!(order.is_sorted());
    }
}
