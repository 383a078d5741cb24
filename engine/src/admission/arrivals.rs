//! Connections that were accepted and wait to be let in, in turn by the address they come from.
//!
//! A network thread lets in [`TURN_ACCEPTS_MAX`] of them in a turn. One address that connects and
//! connects again does not keep others out: of a crowd one from each address is let in, then the
//! next. Addresses share queues, by a secret of this process.
//!
//! Other names: stochastic fair queueing (McKenney, 1990).
//!
//! Invariant: a queue is in `order` once if it has connections, else not.
//!
//! Cost: nothing to speak of while all of a turn can be let in. In a crowd, one system call for
//! each, to learn the address.

use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;

use crate::limits::{ARRIVAL_QUEUES, TURN_ACCEPTS_MAX};

use super::addresses::Prefix;

pub(crate) struct Arrivals<T> {
    /// In the order in which they were accepted; not in a queue yet.
    fresh: VecDeque<T>,
    /// None before the first crowd.
    queues: Box<[VecDeque<T>]>,
    /// Queues that have connections, the one whose turn it is first.
    order: VecDeque<usize>,
    queued: usize,
    hasher: RandomState,
}

impl<T> Arrivals<T> {
    pub(crate) fn new() -> Arrivals<T> {
        Arrivals {
            fresh: VecDeque::new(),
            queues: Box::default(),
            order: VecDeque::new(),
            queued: 0,
            hasher: RandomState::new(),
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

    /// Parts the crowd by address, if there are more than one turn lets in.
    pub(crate) fn arrange(&mut self, peer: impl Fn(&T) -> Option<SocketAddr>) {
        if self.len() <= TURN_ACCEPTS_MAX {
            return;
        }
        if self.queues.is_empty() {
            self.queues = (0..ARRIVAL_QUEUES).map(|_| VecDeque::new()).collect();
        }
        while let Some(arrival) = self.fresh.pop_front() {
            let hash = self.hasher.hash_one(Prefix::of(peer(&arrival)));
            let number = (hash % ARRIVAL_QUEUES as u64) as usize;
            if self.queues[number].is_empty() {
                self.order.push_back(number);
            }
            self.queues[number].push_back(arrival);
            self.queued += 1;
        }
    }

    /// The next one to be let in.
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

    fn address(text: &str) -> Option<SocketAddr> {
        Some(SocketAddr::new(text.parse().expect("an address"), 1))
    }

    #[test]
    fn one_address_does_not_keep_others_out_and_keeps_its_own_order() {
        let mut arrivals = Arrivals::new();
        for number in 0..1000 {
            arrivals.push((number, address("192.0.2.1")));
        }
        arrivals.push((1000, address("198.51.100.1")));
        arrivals.push((1001, None));
        arrivals.arrange(|(_, peer)| *peer);
        assert_eq!(arrivals.len(), 1002);
        let order: Vec<_> = std::iter::from_fn(|| arrivals.pop()).collect();
        assert_eq!(order.len(), 1002);
        assert!(arrivals.is_empty());
        let crowd = order.iter().filter(|(number, _)| *number < 1000);
        assert!(crowd.is_sorted_by_key(|(number, _)| number));
        let early = order.iter().take(4).filter(|(number, _)| *number >= 1000);
        // Of three addresses, two seldom share a queue, and three hardly ever.
        assert!(early.count() > 0, "{:?}", &order[..4]);
    }

    #[test]
    fn a_few_are_let_in_as_they_came() {
        let mut arrivals = Arrivals::new();
        for number in 0..TURN_ACCEPTS_MAX {
            arrivals.push(number);
        }
        arrivals.arrange(|_| unreachable!("no address is asked for"));
        let order: Vec<_> = std::iter::from_fn(|| arrivals.pop()).collect();
        assert!(order.is_sorted());
    }
}
