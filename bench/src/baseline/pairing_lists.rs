//! Pairing lists: producers on one list, consumers on the other, one mutex for both; whoever
//! registers walks its own list for a duplicate and the other one for its partner.
//!
//! Original: virt/lib/irqbypass.c up to Linux 6.16. O(registered), all of it under the one lock.
//!
//! In its favour: nodes stand in one piece of memory in the order they came, so a walk runs ahead
//! of the cache; the originals are spread over the kernel's heap.

use std::sync::Arc;

use flatpath_structures::lock::{Guard, Lock};

use crate::pairing::{Busy, Keeps, Party, Side};

const NONE: u32 = u32::MAX;

/// Both lists.
#[derive(Debug)]
pub(crate) struct PairingLists(Lock<Lists>);

#[derive(Debug)]
struct Lists {
    nodes: Vec<Node>,
    heads: [u32; 2],
    spare: u32,
}

#[derive(Debug)]
struct Node {
    key: u64,
    next: u32,
    is_connected: bool,
    /// `None` in a spare node.
    object: Option<Arc<Party>>,
}

impl Keeps for PairingLists {
    fn new(pairs: u32) -> Self {
        Self(Lock::new(Lists {
            nodes: Vec::with_capacity(2 * pairs as usize),
            heads: [NONE; 2],
            spare: NONE,
        }))
    }

    fn add(&self, side: Side, key: u64, object: &Arc<Party>) -> Result<(), Busy> {
        let mut lists = self.lock();
        if lists.find(side, key).is_some() {
            return Err(Busy);
        }
        let partner = lists.find(side.other(), key);
        if let Some(partner) = partner {
            lists.nodes[partner as usize].is_connected = true;
        }
        lists.add(side, key, partner.is_some(), Arc::clone(object));
        Ok(())
    }

    fn remove(&self, side: Side, key: u64) {
        let mut lists = self.lock();
        let was_connected = lists.remove(side, key);
        if was_connected && let Some(partner) = lists.find(side.other(), key) {
            lists.nodes[partner as usize].is_connected = false;
        }
    }

    fn is_connected(&self, key: u64) -> bool {
        let lists = self.lock();
        let found = lists.find(Side::Producer, key);
        found.is_some_and(|node| lists.nodes[node as usize].is_connected)
    }
}

impl PairingLists {
    fn lock(&self) -> Guard<'_, Lists> {
        self.0.lock()
    }
}

impl Lists {
    fn find(&self, side: Side, key: u64) -> Option<u32> {
        let mut node = self.heads[side as usize];
        while node != NONE {
            let here = &self.nodes[node as usize];
            if here.key == key {
                return Some(node);
            }
            node = here.next;
        }
        None
    }

    fn add(&mut self, side: Side, key: u64, is_connected: bool, object: Arc<Party>) {
        let next = self.heads[side as usize];
        let new = Node {
            key,
            next,
            is_connected,
            object: Some(object),
        };
        let node = self.spare;
        self.heads[side as usize] = if node == NONE {
            self.nodes.push(new);
            self.nodes.len() as u32 - 1
        } else {
            self.spare = self.nodes[node as usize].next;
            self.nodes[node as usize] = new;
            node
        };
    }

    /// Whether the one that was taken out was connected.
    fn remove(&mut self, side: Side, key: u64) -> bool {
        let (mut before, mut node) = (NONE, self.heads[side as usize]);
        while node != NONE && self.nodes[node as usize].key != key {
            (before, node) = (node, self.nodes[node as usize].next);
        }
        if node == NONE {
            return false;
        }
        let next = self.nodes[node as usize].next;
        match before {
            NONE => self.heads[side as usize] = next,
            before => self.nodes[before as usize].next = next,
        }
        let spare = &mut self.nodes[node as usize];
        spare.object = None;
        spare.next = std::mem::replace(&mut self.spare, node);
        spare.is_connected
    }
}
