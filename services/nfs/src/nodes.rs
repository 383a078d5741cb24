//! The table of open files.
//!
//! A node that no call uses is replaced by one without its descriptors for reading and writing
//! (`sweep`). Where connections and transfers need the descriptors, nodes are evicted.
//!
//! | may run beside | find | insert | remove | renew | evict | leave |
//! |----------------|------|--------|--------|-------|-------|-------|
//! | all six        | yes  | yes    | yes    | yes   | yes   | yes   |
//!
//! Invariants
//! - N1: at most `nodes_max` nodes are in the table, or fewer with each new one after that was
//!   lowered; the ones used least recently go first (second chance).
//! - N2: a node is replaced only while no call has it.
//!
//! Cost: one lock of one of sixteen shards. A call whose new node evicts one that was written waits
//! for the disk.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use flatpath::descriptors::{DescriptorBudget, DescriptorHold};
use flatpath::lock::{Guard, Lock};

use crate::handle::{FileKey, FileMap};
use crate::limits::{EVICTED_PER_INSERT_MAX, NODE_SHARDS};
use crate::node::Node;
use crate::verifier::WriteVerifier;

#[derive(Default)]
struct Shard {
    nodes: FileMap<Arc<Node>>,
    order: VecDeque<FileKey>,
}

impl Shard {
    /// Takes out the node used least recently.
    fn evict(&mut self) -> Option<Arc<Node>> {
        // Each has a second chance and no third.
        loop {
            let oldest = self.order.pop_front()?;
            match self.nodes.get(&oldest) {
                Some(node) if node.take_used() => {
                    self.order.push_back(oldest);
                }
                _ => {
                    if let Some(node) = self.nodes.remove(&oldest) {
                        return Some(node);
                    }
                }
            }
        }
    }
}

pub(crate) struct Nodes {
    /// Dropped before the nodes (N4).
    verifier: Arc<WriteVerifier>,
    shards: Box<[Lock<Shard>]>,
    shard_max: AtomicUsize,
    /// Nodes that a network thread was the last to use, until the sweep drops them.
    left: Lock<Vec<Node>>,
    /// Of the server, once it starts.
    budget: OnceLock<DescriptorBudget>,
}

impl Nodes {
    pub(crate) fn new(nodes_max: usize, verifier: WriteVerifier) -> Nodes {
        Nodes {
            verifier: Arc::new(verifier),
            shards: (0..NODE_SHARDS).map(|_| Lock::default()).collect(),
            shard_max: AtomicUsize::new(Nodes::shard_max(nodes_max)),
            left: Lock::default(),
            budget: OnceLock::new(),
        }
    }

    fn shard_max(nodes_max: usize) -> usize {
        nodes_max.div_ceil(NODE_SHARDS).max(1)
    }

    /// Changes how many nodes may be in the table. Where more are, each new one evicts two.
    pub(crate) fn set_max(&self, nodes_max: usize) {
        let shard_max = Nodes::shard_max(nodes_max);
        self.shard_max.store(shard_max, Ordering::Relaxed);
    }

    /// Counts descriptors in `budget` from now on; only the first call has an effect.
    pub(crate) fn count_in(&self, budget: &DescriptorBudget) {
        let _ = self.budget.set(budget.clone());
    }

    pub(crate) fn verifier(&self) -> &Arc<WriteVerifier> {
        &self.verifier
    }

    pub(crate) fn budget(&self) -> Option<&DescriptorBudget> {
        self.budget.get()
    }

    /// Counts a descriptor that a node is about to have.
    pub(crate) fn counted(&self) -> Option<DescriptorHold> {
        self.budget.get().map(|budget| budget.cache(1))
    }

    fn shard(&self, key: FileKey) -> Guard<'_, Shard> {
        self.shards[key.part(NODE_SHARDS)].lock()
    }

    pub(crate) fn find(&self, key: FileKey) -> Option<Arc<Node>> {
        let shard = self.shard(key);
        let node = shard.nodes.get(&key)?;
        node.mark_used();
        Some(Arc::clone(node))
    }

    /// As [`Nodes::find`], for a thread that must not wait: a lock that is taken finds nothing.
    pub(crate) fn find_now(&self, key: FileKey) -> Option<Arc<Node>> {
        let shard = self.shards[key.part(NODE_SHARDS)].try_lock()?;
        let node = shard.nodes.get(&key)?;
        node.mark_used();
        Some(Arc::clone(node))
    }

    /// Leaves a node that is in no table any more to the sweep: closing it may wait for the disk.
    pub(crate) fn leave(&self, node: Node) {
        self.left.lock().push(node);
    }

    /// Closes what was left.
    pub(crate) fn close_left(&self) {
        let left = std::mem::take(&mut *self.left.lock());
        // Synced and closed without the lock.
        drop(left);
    }

    /// Adds a node; gives back the one that another thread has added first.
    pub(crate) fn insert(&self, mut node: Node) -> Arc<Node> {
        let key = node.key;
        let excess = self.budget.get().map_or(0, DescriptorBudget::excess);
        node.enter_table(self.counted(), &self.verifier);
        // Synced and closed without the lock.
        let mut evicted = [const { None }; EVICTED_PER_INSERT_MAX];
        let mut shard = self.shard(key);
        if let Some(other) = shard.nodes.get(&key) {
            return Arc::clone(other);
        }
        let shard_max = self.shard_max.load(Ordering::Relaxed);
        let over = (shard.nodes.len() + 1).saturating_sub(shard_max);
        for evicted in evicted.iter_mut().take(over.max(excess)) {
            *evicted = shard.evict();
        }
        let node = Arc::new(node);
        shard.nodes.insert(key, Arc::clone(&node));
        shard.order.push_back(key);
        node
    }

    /// Takes out a node whose file was removed or moved.
    pub(crate) fn remove(&self, key: FileKey) {
        let mut shard = self.shard(key);
        let removed = shard.nodes.remove(&key);
        if removed.is_some() {
            shard.order.retain(|other| *other != key);
        }
        // Synced and closed without the lock.
        drop(shard);
    }

    /// Takes out nodes with `count` descriptors or somewhat more, those used least recently first,
    /// and adds them to a list.
    pub(crate) fn evict(&self, count: usize, list: &mut Vec<Arc<Node>>) {
        let mut taken = 0;
        while taken < count {
            let before = taken;
            for shard in &self.shards {
                if let Some(node) = shard.lock().evict() {
                    taken += node.descriptors();
                    list.push(node);
                }
            }
            if taken == before {
                return;
            }
        }
    }

    /// Adds the nodes of one of [`NODE_SHARDS`] parts to a list.
    pub(crate) fn list(&self, shard: usize, list: &mut Vec<Arc<Node>>) {
        list.extend(self.shards[shard].lock().nodes.values().cloned());
    }

    /// Replaces a node that no call uses by one without open data (N2): calls get nodes
    /// under this lock, and those that are under way hold references beside the table's and the
    /// caller's.
    pub(crate) fn renew(&self, idle: &Arc<Node>) -> rustix::io::Result<()> {
        let mut shard = self.shard(idle.key);
        if let Some(node) = shard.nodes.get_mut(&idle.key)
            && Arc::ptr_eq(node, idle)
            && Arc::strong_count(node) == 2
            && !node.is_touched()
        {
            *node = Arc::new(idle.renewed(self.counted())?);
        }
        Ok(())
    }

    /// All of them; O(shards).
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| shard.lock().nodes.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::SWEEPS_IDLE;
    use crate::node::Data;
    use crate::node::tests::node;

    fn nodes(nodes_max: usize) -> Nodes {
        Nodes::new(nodes_max, WriteVerifier::new(7))
    }

    #[test]
    fn no_more_nodes_are_kept_than_allowed() {
        let nodes = nodes(32);
        for inode in 0..500 {
            nodes.insert(node(inode));
            assert!(nodes.len() <= 32);
            assert!(
                nodes.find(FileKey { inode, birth_ns: 1 }).is_some(),
                "the newest is there"
            );
        }
    }

    #[test]
    fn a_table_that_may_keep_fewer_shrinks_as_new_ones_come() {
        let nodes = nodes(1600);
        for inode in 0..1000 {
            nodes.insert(node(inode));
        }
        assert!(nodes.len() > 800);
        nodes.set_max(32);
        for inode in 1000..3000 {
            nodes.insert(node(inode));
        }
        assert!(nodes.len() <= 32, "{}", nodes.len());
    }

    #[test]
    fn nodes_are_evicted_in_the_order_of_their_last_use() {
        let nodes = nodes(1600);
        for inode in 0..100 {
            nodes.insert(node(inode));
        }
        let mut evicted = Vec::new();
        // New ones count as used; from now on they do not.
        nodes.evict(0, &mut evicted);
        nodes.evict(40, &mut evicted);
        assert!(
            (40..40 + NODE_SHARDS).contains(&evicted.len()),
            "one descriptor each"
        );
        assert_eq!(nodes.len(), 100 - evicted.len());
        nodes.evict(1000, &mut evicted);
        assert_eq!((evicted.len(), nodes.len()), (100, 0));
    }

    /// A node with data that cannot be synced: its descriptor is one of a pipe.
    fn unsyncable(nodes: &Nodes, inode: u64) {
        let node = nodes.insert(node(inode));
        let (_, writer) = std::io::pipe().expect("a pipe");
        let taken = node.writer.set(Data::new(writer.into(), None));
        assert!(taken.is_ok());
        node.write_unsynced(|| ());
    }

    #[test]
    fn data_that_is_lost_when_a_node_goes_turns_the_write_verifier() {
        let nodes = nodes(1);
        unsyncable(&nodes, 1);
        for inode in 2..100 {
            nodes.insert(node(inode));
        }
        assert_eq!(nodes.verifier().read(), 8, "evicted");
        unsyncable(&nodes, 1);
        nodes.remove(FileKey {
            inode: 1,
            birth_ns: 1,
        });
        assert_eq!(nodes.verifier().read(), 9, "removed");
        unsyncable(&nodes, 1);
        nodes.evict(1000, &mut Vec::new());
        assert_eq!(nodes.verifier().read(), 10, "taken out");
    }

    #[test]
    fn what_a_network_thread_used_last_is_synced_and_closed_by_another() {
        let nodes = nodes(32);
        unsyncable(&nodes, 1);
        let key = FileKey {
            inode: 1,
            birth_ns: 1,
        };
        let node = nodes.find_now(key).expect("it is there");
        nodes.remove(key);
        assert!(nodes.find_now(key).is_none());
        nodes.leave(Arc::into_inner(node).expect("the last reference"));
        assert_eq!(nodes.verifier().read(), 7, "nothing was waited for");
        nodes.close_left();
        assert_eq!(nodes.verifier().read(), 8, "synced, in vain");
    }

    #[test]
    fn two_who_open_the_same_file_share_one_node() {
        let nodes = nodes(32);
        let first = nodes.insert(node(7));
        assert!(Arc::ptr_eq(&first, &nodes.insert(node(7))));
        nodes.remove(first.key);
        assert!(nodes.find(first.key).is_none());
        nodes.remove(first.key);
        assert_eq!(nodes.len(), 0);
    }

    #[test]
    fn a_node_is_renewed_only_while_no_call_has_it_or_has_used_it_since() {
        let nodes = nodes(32);
        let first = nodes.insert(node(7));
        let data = std::fs::File::open("/").expect("open");
        assert!(first.reader.set(Data::new(data.into(), None)).is_ok());
        let is_first = || Arc::ptr_eq(&first, &nodes.find(first.key).expect("kept"));
        assert_eq!(first.count_idle(), 0, "it is new");
        assert_eq!(first.count_idle(), 1);
        let call = nodes.find(first.key);
        assert_eq!(first.count_idle(), 0, "it was used");
        nodes.renew(&first).expect("a descriptor");
        assert!(is_first(), "a call has it");
        drop(call);
        nodes.renew(&first).expect("a descriptor");
        assert!(is_first(), "it was used since the last look");
        assert_eq!(first.count_idle(), 0);
        nodes.renew(&first).expect("a descriptor");
        let renewed = nodes.find(first.key).expect("kept");
        assert!(!Arc::ptr_eq(&first, &renewed));
        assert!(first.has_data_open() && !renewed.has_data_open());
        for _ in 0..600 {
            renewed.count_idle();
        }
        assert!(
            renewed.count_idle() >= SWEEPS_IDLE,
            "the count does not wrap"
        );
    }
}
