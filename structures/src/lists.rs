//! Lists: queues of table indices that an index also leaves from the middle.
//!
//! Other names: intrusive doubly linked lists, as Linux' `list_head`. A fixed number of lists over
//! one set of indices (those of a slot table, as a rule); an index is on one list at a time, or on
//! none. For who waits for what, oldest first, and may give up waiting.
//!
//! One thread owns the lists (`&mut`); no locks, no atomics.
//!
//! Invariants
//! - I1: lists are circular through sentinels, which are the first nodes, so that linking and
//!   unlinking have no special case.
//! - I2: an index that is on no list has no links.
//!
//! Cost: every method is O(1). The table of nodes, 8 bytes each, grows by doubling to the highest
//! index that was ever on a list, and is kept.

use crate::NIL;

/// See the module.
#[derive(Debug)]
pub struct Lists {
    /// Sentinels of the lists, then the indices: index `i` is node `lists + i`.
    nodes: Vec<Node>,
    lists: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    next: u32,
    prev: u32,
}

/// I2.
const UNLISTED: Node = Node {
    next: NIL,
    prev: NIL,
};

impl Lists {
    /// So many lists, all empty.
    pub fn new(lists: u32) -> Lists {
        let sentinel = |node| Node {
            next: node,
            prev: node,
        };
        Lists {
            nodes: (0..lists).map(sentinel).collect(),
            lists,
        }
    }

    /// How many lists there are.
    pub fn lists(&self) -> u32 {
        self.lists
    }

    /// Appends an index to a list.
    ///
    /// # Panics
    /// When there is no such list, or the index and the number of lists together reach [`NIL`].
    /// When the index is on a list already.
    pub fn push_back(&mut self, list: u32, index: u32) {
        assert!(list < self.lists, "there is no list {list}");
        let node = self.node_of(index);
        if node as usize >= self.nodes.len() {
            self.nodes.resize(node as usize + 1, UNLISTED);
        }
        assert_eq!(self.nodes[node as usize].next, NIL, "I2: {index} is listed");
        let last = self.nodes[list as usize].prev;
        self.nodes[node as usize] = Node {
            next: list,
            prev: last,
        };
        self.nodes[last as usize].next = node;
        self.nodes[list as usize].prev = node;
    }

    /// Takes an index off its list. False: it was on none.
    pub fn remove(&mut self, index: u32) -> bool {
        let node = self.node_of(index) as usize;
        let Some(&Node { next, prev }) = self.nodes.get(node).filter(|node| node.next != NIL)
        else {
            return false;
        };
        self.nodes[next as usize].prev = prev;
        self.nodes[prev as usize].next = next;
        self.nodes[node] = UNLISTED;
        true
    }

    /// The index that has been on a list for longest.
    ///
    /// # Panics
    /// When there is no such list.
    pub fn front(&self, list: u32) -> Option<u32> {
        assert!(list < self.lists, "there is no list {list}");
        // The sentinel's own number is below all others.
        self.nodes[list as usize].next.checked_sub(self.lists)
    }

    /// Takes off the index that has been on a list for longest.
    ///
    /// # Panics
    /// When there is no such list.
    pub fn pop_front(&mut self, list: u32) -> Option<u32> {
        let index = self.front(list)?;
        self.remove(index);
        Some(index)
    }

    /// Whether nothing is on a list.
    ///
    /// # Panics
    /// When there is no such list.
    pub fn is_empty(&self, list: u32) -> bool {
        self.front(list).is_none()
    }

    fn node_of(&self, index: u32) -> u32 {
        let node = self.lists.checked_add(index).filter(|node| *node < NIL);
        node.expect("an index that a node can be numbered for")
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::testing::with_seeds;

    #[test]
    fn the_oldest_comes_first_and_any_may_leave() {
        let mut lists = Lists::new(2);
        for index in [7, 3, 5] {
            lists.push_back(1, index);
        }
        assert!(lists.is_empty(0));
        assert_eq!(lists.front(1), Some(7));
        assert!(lists.remove(3));
        assert!(!lists.remove(3), "it is on none");
        assert!(!lists.remove(1_000), "nor was this one ever");
        lists.push_back(0, 3);
        assert_eq!(
            [1, 1, 1].map(|list| lists.pop_front(list)),
            [Some(7), Some(5), None]
        );
        assert_eq!(lists.pop_front(0), Some(3));
    }

    #[test]
    #[should_panic(expected = "I2: 4 is listed")]
    fn an_index_is_on_one_list_at_a_time() {
        let mut lists = Lists::new(2);
        lists.push_back(0, 4);
        lists.push_back(1, 4);
    }

    #[test]
    fn model_random_moves_match_an_oracle() {
        with_seeds(50, |random| {
            let mut lists = Lists::new(3);
            let mut oracle = vec![VecDeque::new(); 3];
            for _ in 0..1_000 {
                let (list, index) = (random.below(3), random.below(20));
                match random.below(3) {
                    0 => {
                        let listed = oracle.iter().any(|one| one.contains(&index));
                        if !listed {
                            lists.push_back(list, index);
                            oracle[list as usize].push_back(index);
                        }
                    }
                    1 => {
                        let listed = oracle.iter().any(|one| one.contains(&index));
                        oracle
                            .iter_mut()
                            .for_each(|one| one.retain(|other| *other != index));
                        assert_eq!(lists.remove(index), listed);
                    }
                    _ => {
                        let oldest = oracle[list as usize].pop_front();
                        assert_eq!(lists.pop_front(list), oldest);
                    }
                }
                for (list, one) in (0..).zip(&oracle) {
                    assert_eq!(lists.front(list), one.front().copied());
                }
            }
        });
    }
}
