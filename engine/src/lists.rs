//! Doubly linked lists over the indices of a slot table, with their links beside the table.
//!
//! The links of all lists of one purpose lie in one array, eight bytes per index, so that moving an
//! entry touches its neighbours' links and not the neighbours. A list itself is two indices; many
//! lists may share one array, because an index is on at most one of them.
//!
//! Invariants
//! - L1: an index is on at most one list of an array; the caller knows which.
//! - L2: links name their neighbours in both directions; a link of zero is the end.
//!
//! Cost: every method is O(1). The array is allocated once; the kernel commits its pages as indices
//! are first used.

/// The links of one set of lists. Indices are kept plus one, so that zeroed memory is empty.
#[derive(Debug)]
pub(crate) struct Links(Vec<Link>);

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    next: u32,
    previous: u32,
}

/// First and last index of one list.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct List {
    first: u32,
    last: u32,
}

impl Links {
    /// Links for the indices below `places`, none of them on a list.
    pub(crate) fn new(places: usize) -> Links {
        Links(vec![Link::default(); places])
    }

    /// Appends `index`, which is on no list.
    pub(crate) fn push_back(&mut self, list: &mut List, index: u32) {
        let name = index + 1;
        self.0[index as usize] = Link {
            next: 0,
            previous: list.last,
        };
        match list.last {
            0 => list.first = name,
            last => self.0[last as usize - 1].next = name,
        }
        list.last = name;
    }

    /// Takes `index` off `list`, which it is on.
    pub(crate) fn remove(&mut self, list: &mut List, index: u32) {
        let Link { next, previous } = std::mem::take(&mut self.0[index as usize]);
        match previous {
            0 => list.first = next,
            previous => self.0[previous as usize - 1].next = next,
        }
        match next {
            0 => list.last = previous,
            next => self.0[next as usize - 1].previous = previous,
        }
    }

    /// Moves `index` to the back of `list`, which it is on.
    pub(crate) fn move_back(&mut self, list: &mut List, index: u32) {
        if list.last != index + 1 {
            self.remove(list, index);
            self.push_back(list, index);
        }
    }

    pub(crate) fn after(&self, index: u32) -> Option<u32> {
        self.0[index as usize].next.checked_sub(1)
    }
}

impl List {
    /// The oldest entry.
    pub(crate) fn first(&self) -> Option<u32> {
        self.first.checked_sub(1)
    }

    /// The youngest entry.
    pub(crate) fn last(&self) -> Option<u32> {
        self.last.checked_sub(1)
    }
}

/// One list with links of its own, which knows what is on it.
#[derive(Debug)]
pub(crate) struct Order {
    links: Links,
    list: List,
}

impl Order {
    /// For the indices below `places`.
    pub(crate) fn new(places: usize) -> Order {
        Order {
            links: Links::new(places),
            list: List::default(),
        }
    }

    /// Whether `index` is on it.
    pub(crate) fn has(&self, index: u32) -> bool {
        let Link { next, previous } = self.links.0[index as usize];
        next > 0 || previous > 0 || self.list.first == index + 1
    }

    /// Puts `index` at the back, wherever it was.
    pub(crate) fn push_back(&mut self, index: u32) {
        self.remove(index);
        self.links.push_back(&mut self.list, index);
    }

    /// Puts `index` at the back, unless it is on the list.
    pub(crate) fn add(&mut self, index: u32) {
        if !self.has(index) {
            self.push_back(index);
        }
    }

    /// Takes `index` off the list, if it is on it.
    pub(crate) fn remove(&mut self, index: u32) {
        if self.has(index) {
            self.links.remove(&mut self.list, index);
        }
    }

    pub(crate) fn first(&self) -> Option<u32> {
        self.list.first()
    }

    pub(crate) fn last(&self) -> Option<u32> {
        self.list.last()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use flatpath_driver::simulation::Random;

    use super::*;

    fn listed(links: &Links, list: &List) -> Vec<u32> {
        let mut found = Vec::new();
        let mut at = list.first();
        while let Some(index) = at {
            found.push(index);
            at = links.after(index);
        }
        assert_eq!(
            found.last().copied(),
            list.last.checked_sub(1),
            "L2: the last"
        );
        found
    }

    #[test]
    fn an_order_knows_what_is_on_it() {
        let mut order = Order::new(3);
        order.remove(0);
        assert_eq!((order.first(), order.last()), (None, None));
        for index in [0, 1, 0, 2] {
            order.push_back(index);
        }
        assert_eq!((order.first(), order.last()), (Some(1), Some(2)));
        order.remove(0);
        order.remove(0);
        order.remove(1);
        assert_eq!((order.first(), order.last()), (Some(2), Some(2)));
    }

    #[test]
    fn model_two_lists_agree_with_two_queues() {
        const PLACES: u32 = 12;
        for seed in 1..50 {
            let mut random = Random::new(seed);
            let mut links = Links::new(PLACES as usize);
            let mut lists = [List::default(); 2];
            let mut oracle = [VecDeque::new(), VecDeque::new()];
            for step in 0..400 {
                let index = random.below(PLACES as usize) as u32;
                let on = oracle.iter().position(|queue| queue.contains(&index));
                match on {
                    None => {
                        let side = random.below(2);
                        links.push_back(&mut lists[side], index);
                        oracle[side].push_back(index);
                    }
                    Some(side) => {
                        oracle[side].retain(|other| *other != index);
                        if random.below(2) == 0 {
                            links.remove(&mut lists[side], index);
                        } else {
                            links.move_back(&mut lists[side], index);
                            oracle[side].push_back(index);
                        }
                    }
                }
                for side in 0..2 {
                    let found = listed(&links, &lists[side]);
                    let queue = Vec::from(oracle[side].clone());
                    assert_eq!(found, queue, "seed {seed}, step {step}");
                }
            }
        }
    }
}
