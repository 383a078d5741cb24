//! Token tree per socket: a number for every reference, lowest free one first, in a 64-way tree
//! under a lock; beside it the region's counter per page.
//!
//! Original: the XArray of `tcp_recvmsg_dmabuf` (net/ipv4/tcp.c): `__xa_alloc` to hand out,
//! `__xa_erase` to give back, a walk of the tree when the socket dies. Reclaim is exact.
//!
//! In its favour: nodes are 280 bytes here and 576 there, and are kept for reuse.

use std::sync::Arc;

use flatpath_structures::lock::Lock;

use crate::tokens::{Counters, GivesBack, Holds, Opens};

const BITS: u32 = 6;
const WAYS: usize = 1 << BITS;
const NONE: u32 = u32::MAX;
/// 2^30 numbers.
const LEVELS_MAX: u32 = 5;

/// A region with tree-keeping sockets.
#[derive(Debug)]
pub(crate) struct TreeRegion(Arc<Counters>);

/// One socket's references.
#[derive(Debug)]
pub(crate) struct TreeSocket(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    region: Arc<Counters>,
    tree: Lock<Tree>,
}

impl Opens for TreeRegion {
    type Holder = TreeSocket;

    fn open(pages: u32) -> Self {
        Self(Arc::new(Counters::new(pages)))
    }

    fn join(&self) -> TreeSocket {
        TreeSocket(Arc::new(Shared {
            region: Arc::clone(&self.0),
            tree: Lock::default(),
        }))
    }
}

impl Holds for TreeSocket {
    type Token = u32;
    type Remote = Self;

    fn take(&mut self, page: u32) -> Option<u32> {
        self.0.region.count(page);
        let number = self.0.with(|tree| tree.insert(page));
        if number.is_none() {
            self.0.region.uncount(page);
        }
        number
    }

    fn give_back(&mut self, number: u32) -> bool {
        GivesBack::give_back(self, number)
    }

    fn remote(&mut self) -> Self {
        Self(Arc::clone(&self.0))
    }

    fn bytes(&self) -> usize {
        size_of::<Shared>() + self.0.with(|tree| tree.nodes.len() * size_of::<Node>())
    }
}

impl GivesBack<u32> for TreeSocket {
    fn give_back(&self, number: u32) -> bool {
        let page = self.0.with(|tree| tree.remove(number));
        page.is_some_and(|page| {
            self.0.region.uncount(page);
            true
        })
    }
}

impl Shared {
    fn with<T>(&self, act: impl FnOnce(&mut Tree) -> T) -> T {
        act(&mut self.tree.lock())
    }
}

/// The socket dies: what it still holds goes back.
impl Drop for Shared {
    fn drop(&mut self) {
        let region = &self.region;
        let tree = self.tree.get_mut();
        if tree.levels > 0 {
            tree.each(tree.root, tree.levels, &mut |page| region.uncount(page));
        }
    }
}

/// A tree of numbers. In a leaf a slot is a page, above it a node.
#[derive(Debug, Default)]
struct Tree {
    nodes: Vec<Node>,
    spare: Vec<u32>,
    root: u32,
    levels: u32,
}

#[derive(Clone, Debug)]
struct Node {
    /// Bit set: a number is free in this slot or below it.
    free: u64,
    /// Bit set: there is something in this slot.
    taken: u64,
    slots: [u32; WAYS],
}

impl Tree {
    /// The lowest free number, which now stands for `page`.
    fn insert(&mut self, page: u32) -> Option<u32> {
        if self.levels == 0 {
            (self.root, self.levels) = (self.node(), 1);
        }
        if self.nodes[self.root as usize].free == 0 {
            self.grow()?;
        }
        let mut path = [NONE; LEVELS_MAX as usize];
        let (mut node, mut number) = (self.root, 0);
        for level in (0..self.levels).rev() {
            path[level as usize] = node;
            let slot = self.nodes[node as usize].free.trailing_zeros();
            number = number << BITS | slot;
            if level == 0 {
                let leaf = &mut self.nodes[node as usize];
                leaf.slots[slot as usize] = page;
                leaf.taken |= 1 << slot;
                leaf.free &= !(1 << slot);
                break;
            }
            if self.nodes[node as usize].taken & 1 << slot == 0 {
                let below = self.node();
                let here = &mut self.nodes[node as usize];
                here.slots[slot as usize] = below;
                here.taken |= 1 << slot;
            }
            node = self.nodes[node as usize].slots[slot as usize];
        }
        // A node that is full now is not looked into again.
        for level in 1..self.levels {
            if self.nodes[path[level as usize - 1] as usize].free != 0 {
                break;
            }
            self.nodes[path[level as usize] as usize].free &= !(1 << digit(number, level));
        }
        Some(number)
    }

    /// What `number` stood for. Empty nodes are taken out.
    fn remove(&mut self, number: u32) -> Option<u32> {
        if self.levels == 0 || number >> (BITS * self.levels) != 0 {
            return None;
        }
        let mut path = [NONE; LEVELS_MAX as usize];
        let mut node = self.root;
        for level in (0..self.levels).rev() {
            path[level as usize] = node;
            let slot = digit(number, level);
            if self.nodes[node as usize].taken & 1 << slot == 0 {
                return None;
            }
            node = self.nodes[node as usize].slots[slot as usize];
        }
        let page = node;
        let mut is_empty = true;
        for level in 0..self.levels {
            let slot = digit(number, level);
            let here = &mut self.nodes[path[level as usize] as usize];
            here.free |= 1 << slot;
            if is_empty {
                here.taken &= !(1 << slot);
                is_empty = here.taken == 0 && level + 1 < self.levels;
                if is_empty {
                    self.spare.push(path[level as usize]);
                }
            }
        }
        Some(page)
    }

    fn grow(&mut self) -> Option<()> {
        if self.levels == LEVELS_MAX {
            return None;
        }
        let above = self.node();
        let root = self.root;
        let node = &mut self.nodes[above as usize];
        node.slots[0] = root;
        node.taken = 1;
        node.free &= !1;
        (self.root, self.levels) = (above, self.levels + 1);
        Some(())
    }

    fn node(&mut self) -> u32 {
        let empty = Node {
            free: u64::MAX,
            taken: 0,
            slots: [NONE; WAYS],
        };
        if let Some(node) = self.spare.pop() {
            self.nodes[node as usize] = empty;
            return node;
        }
        self.nodes.push(empty);
        self.nodes.len() as u32 - 1
    }

    fn each(&self, node: u32, level: u32, act: &mut dyn FnMut(u32)) {
        let node = &self.nodes[node as usize];
        let mut taken = node.taken;
        while taken != 0 {
            let below = node.slots[taken.trailing_zeros() as usize];
            taken &= taken - 1;
            if level == 1 {
                act(below);
            } else {
                self.each(below, level - 1, act);
            }
        }
    }
}

fn digit(number: u32, level: u32) -> u32 {
    number >> (BITS * level) & (WAYS as u32 - 1)
}

#[cfg(test)]
impl TreeRegion {
    /// References to a page.
    pub(crate) fn uses(&self, page: u32) -> u32 {
        self.0.page(page).load(std::sync::atomic::Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    /// Random operations against a map with the same rule: the lowest free number.
    #[test]
    fn model_the_tree_hands_out_the_lowest_free_number() {
        let mut rng = fastrand::Rng::with_seed(5);
        let mut tree = Tree::default();
        let mut oracle = BTreeMap::new();
        let mut free: BTreeSet<u32> = (0..20_000).collect();
        for turn in 0..60_000_u32 {
            // Grows for a while, shrinks for a while: levels come, nodes go.
            let wish = if turn / 10_000 % 2 == 0 { 3 } else { 1 };
            if rng.u32(..4) < wish {
                let lowest = free.pop_first();
                assert_eq!(tree.insert(turn), lowest);
                oracle.insert(lowest.expect("room for thousands"), turn);
            } else {
                let number = rng.u32(..oracle.len() as u32 + 3);
                let page = oracle.remove(&number);
                assert_eq!(tree.remove(number), page);
                free.insert(number);
            }
        }
        let mut left = Vec::new();
        tree.each(tree.root, tree.levels, &mut |page| left.push(page));
        assert_eq!(left, oracle.into_values().collect::<Vec<_>>());
    }
}
