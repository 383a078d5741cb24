//! Open files behind handles, kept while they are in use.
//!
//! A node holds an `O_PATH` descriptor, which follows its file through every rename, and
//! descriptors for reading and writing once somebody read or wrote. What a caller may do is the
//! kernel's verdict per caller, remembered until the file changes.
//!
//! A node that nobody uses is replaced by one without those two descriptors (`sweep`). Where
//! connections and transfers need the descriptors, nodes are evicted.
//!
//! | may run beside | find | keep | forget | renew | evict |
//! |----------------|------|------|--------|-------|-------|
//! | all five       | yes  | yes  | yes    | yes   | yes   |
//!
//! Invariants
//! - N1: at most `nodes_max` nodes are kept; the ones used least recently go first (second chance).
//! - N2: a node is replaced only while no call has it.
//! - N3: each descriptor of a node that was kept counts in the server's budget until it is closed.
//!
//! Cost: one lock of one of sixteen shards.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use flatpath::{DescriptorBudget, DescriptorHold};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{Access, FileType};

use crate::attributes::{Attributes, Time};
use crate::handle::{FileKey, WireHandle};
use crate::identity::Who;
use crate::limits::{EVICTED_PER_KEEP_MAX, GRANT_AGE_MIN, GRANTS_MAX, NODE_SHARDS, SWEEPS_IDLE};

/// A verdict of the kernel: this caller may do this, as long as the file has not changed.
#[derive(Clone, Copy)]
struct Grant {
    who: Who,
    access: Access,
    changed: Time,
}

/// What a reader looked at last.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) size: u64,
    pub(crate) user: u32,
    pub(crate) changed: Time,
}

impl Seen {
    pub(crate) fn of(attributes: &Attributes) -> Seen {
        Seen {
            size: attributes.size,
            user: attributes.user,
            changed: attributes.changed,
        }
    }
}

#[derive(Default)]
struct Known {
    grants: VecDeque<Grant>,
    seen: Option<Seen>,
}

/// An open file.
pub struct Node {
    /// Opened with `O_PATH`.
    pub(crate) path: OwnedFd,
    /// Which file.
    pub(crate) key: FileKey,
    /// Its handle.
    pub(crate) handle: WireHandle,
    /// What kind of file; that never changes.
    pub(crate) kind: FileType,
    pub(crate) reader: OnceLock<Data>,
    pub(crate) writer: OnceLock<Data>,
    known: Mutex<Known>,
    /// [`USED`] and [`TOUCHED`], both set by every use.
    used: AtomicU8,
    /// Looks of the sweep since the last use.
    idle: AtomicU8,
    /// Data was written that was not made to last since.
    unsynced: AtomicBool,
    /// A directory that was so deep once that the kernel had no path for files in it.
    deep: AtomicBool,
    /// For `path`, and so dropped after it (N3).
    counted: Option<DescriptorHold>,
}

/// A descriptor for reading or writing.
pub(crate) struct Data {
    file: OwnedFd,
    /// Dropped after it (N3).
    _counted: Option<DescriptorHold>,
}

impl Data {
    pub(crate) fn new(file: OwnedFd, counted: Option<DescriptorHold>) -> Data {
        Data {
            file,
            _counted: counted,
        }
    }
}

impl AsFd for Data {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Used since the table last looked for the node to drop.
const USED: u8 = 1;
/// Used since the sweep last looked.
const TOUCHED: u8 = 2;

impl Node {
    pub(crate) fn new(path: OwnedFd, attributes: &Attributes, handle: WireHandle) -> Node {
        Node {
            path,
            key: attributes.key,
            handle,
            kind: attributes.kind,
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            known: Mutex::default(),
            used: AtomicU8::new(USED | TOUCHED),
            idle: AtomicU8::new(0),
            unsynced: AtomicBool::new(false),
            deep: AtomicBool::new(false),
            counted: None,
        }
    }

    /// The same file with nothing but the path open. What was known goes along.
    fn renewed(&self, counted: Option<DescriptorHold>) -> rustix::io::Result<Node> {
        Ok(Node {
            path: rustix::io::fcntl_dupfd_cloexec(&self.path, 0)?,
            key: self.key,
            handle: self.handle,
            kind: self.kind,
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            known: Mutex::new(std::mem::take(&mut lock(&self.known))),
            used: AtomicU8::new(0),
            idle: AtomicU8::new(self.idle.load(Ordering::Relaxed)),
            unsynced: AtomicBool::new(false),
            deep: AtomicBool::new(self.is_deep()),
            counted,
        })
    }

    pub(crate) fn set_deep(&self) {
        self.deep.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_deep(&self) -> bool {
        self.deep.load(Ordering::Relaxed)
    }

    /// Says whether data was written that a COMMIT has to make last.
    pub(crate) fn set_unsynced(&self, unsynced: bool) {
        self.unsynced.store(unsynced, Ordering::Relaxed);
    }

    /// Looks of the sweep since the last use, with this one; for the sweep alone.
    pub(crate) fn count_idle(&self) -> u8 {
        let touched = self.used.fetch_and(!TOUCHED, Ordering::Relaxed) & TOUCHED != 0;
        let before = self.idle.load(Ordering::Relaxed);
        let idle = if touched {
            0
        } else {
            before.checked_add(1).unwrap_or(SWEEPS_IDLE)
        };
        self.idle.store(idle, Ordering::Relaxed);
        idle
    }

    /// Descriptors that it has open.
    pub(crate) fn descriptors(&self) -> usize {
        1 + usize::from(self.reader.get().is_some()) + usize::from(self.writer.get().is_some())
    }

    /// Open for more than its path.
    pub(crate) fn has_data_open(&self) -> bool {
        self.reader.get().is_some() || self.writer.get().is_some()
    }

    /// The descriptor whose data would be lost unseen if an error came once it is closed.
    pub(crate) fn unsynced_writer(&self) -> Option<&Data> {
        let unsynced = self.unsynced.load(Ordering::Relaxed);
        self.writer.get().filter(|_| unsynced)
    }

    /// The attributes now.
    pub(crate) fn attributes(&self) -> Result<Attributes, crate::status::Status> {
        Attributes::of(&self.path)
    }

    /// True when the kernel granted this before and the file has not changed since.
    pub(crate) fn is_granted(&self, who: &Who, access: Access, changed: Time) -> bool {
        lock(&self.known).is_granted(who, access, changed)
    }

    /// Remembers a verdict, unless the file was changed so recently that the next change could
    /// leave the same time.
    pub(crate) fn grant(&self, who: Who, access: Access, changed: Time) {
        if changed.is_recent(GRANT_AGE_MIN) {
            return;
        }
        let grants = &mut lock(&self.known).grants;
        grants
            .retain(|grant| grant.changed == changed && (grant.who, grant.access) != (who, access));
        grants.truncate(GRANTS_MAX - 1);
        grants.push_front(Grant {
            who,
            access,
            changed,
        });
    }

    /// Remembers what a reader that may read found.
    pub(crate) fn saw(&self, seen: Seen) {
        let known = &mut lock(&self.known).seen;
        if *known != Some(seen) {
            *known = Some(seen);
        }
    }

    /// What was seen last, if `who` might read the data of the file as it was then.
    pub(crate) fn seen_by(&self, who: &Who) -> Option<Seen> {
        let known = lock(&self.known);
        known.seen.filter(|seen| {
            seen.user == who.user || known.is_granted(who, Access::READ_OK, seen.changed)
        })
    }
}

impl Known {
    fn is_granted(&self, who: &Who, access: Access, changed: Time) -> bool {
        self.grants
            .iter()
            .any(|grant| grant.who == *who && grant.access == access && grant.changed == changed)
    }
}

#[derive(Default)]
struct Shard {
    nodes: HashMap<FileKey, Arc<Node>>,
    order: VecDeque<FileKey>,
}

impl Shard {
    /// Takes out the node used least recently.
    fn evict(&mut self) -> Option<Arc<Node>> {
        // Each has a second chance and no third.
        loop {
            let oldest = self.order.pop_front()?;
            match self.nodes.get(&oldest) {
                Some(node) if node.used.fetch_and(!USED, Ordering::Relaxed) & USED != 0 => {
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

/// The table of nodes.
pub(crate) struct Nodes {
    shards: Box<[Mutex<Shard>]>,
    shard_max: usize,
    /// Of the server, once it starts.
    budget: OnceLock<DescriptorBudget>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that could panic half-way runs under these locks.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Nodes {
    pub(crate) fn new(nodes_max: usize) -> Nodes {
        Nodes {
            shards: (0..NODE_SHARDS).map(|_| Mutex::default()).collect(),
            shard_max: nodes_max.div_ceil(NODE_SHARDS).max(1),
            budget: OnceLock::new(),
        }
    }

    /// Counts descriptors in `budget` from now on; only the first call has an effect.
    pub(crate) fn count_in(&self, budget: &DescriptorBudget) {
        let _ = self.budget.set(budget.clone());
    }

    pub(crate) fn budget(&self) -> Option<&DescriptorBudget> {
        self.budget.get()
    }

    /// Counts a descriptor that a node is about to have.
    pub(crate) fn counted(&self) -> Option<DescriptorHold> {
        self.budget.get().map(|budget| budget.cache(1))
    }

    fn shard(&self, key: FileKey) -> MutexGuard<'_, Shard> {
        let mixed = key.inode.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
        lock(&self.shards[usize::from(mixed) % NODE_SHARDS])
    }

    pub(crate) fn find(&self, key: FileKey) -> Option<Arc<Node>> {
        let shard = self.shard(key);
        let node = shard.nodes.get(&key)?;
        node.used.store(USED | TOUCHED, Ordering::Relaxed);
        Some(Arc::clone(node))
    }

    /// Keeps a node; gives back the one that another thread has kept meanwhile.
    pub(crate) fn keep(&self, mut node: Node) -> Arc<Node> {
        let key = node.key;
        let excess = self.budget.get().map_or(0, DescriptorBudget::excess);
        node.counted = self.counted();
        // Closed without the lock.
        let mut evicted = [const { None }; EVICTED_PER_KEEP_MAX];
        let mut shard = self.shard(key);
        if let Some(other) = shard.nodes.get(&key) {
            return Arc::clone(other);
        }
        let over = (shard.nodes.len() + 1).saturating_sub(self.shard_max);
        for evicted in evicted.iter_mut().take(over.max(excess)) {
            *evicted = shard.evict();
        }
        let node = Arc::new(node);
        shard.nodes.insert(key, Arc::clone(&node));
        shard.order.push_back(key);
        node
    }

    /// Lets go of a node whose place in the tree is no longer what it was.
    pub(crate) fn forget(&self, key: FileKey) {
        let mut shard = self.shard(key);
        if shard.nodes.remove(&key).is_some() {
            shard.order.retain(|other| *other != key);
        }
    }

    /// Takes out nodes with `count` descriptors or somewhat more, those used least recently first,
    /// and adds them to a list.
    pub(crate) fn evict(&self, count: usize, list: &mut Vec<Arc<Node>>) {
        let mut taken = 0;
        while taken < count {
            let before = taken;
            for shard in &self.shards {
                if let Some(node) = lock(shard).evict() {
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
        list.extend(lock(&self.shards[shard]).nodes.values().cloned());
    }

    /// Puts a node without open data in the place of one that no call uses (N2): calls get nodes
    /// under this lock, and those that are under way hold references beside the table's and the
    /// caller's.
    pub(crate) fn renew(&self, idle: &Arc<Node>) -> rustix::io::Result<()> {
        let mut shard = self.shard(idle.key);
        if let Some(node) = shard.nodes.get_mut(&idle.key)
            && Arc::ptr_eq(node, idle)
            && Arc::strong_count(node) == 2
            && node.used.load(Ordering::Relaxed) & TOUCHED == 0
        {
            *node = Arc::new(idle.renewed(self.counted())?);
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.shards
            .iter()
            .map(|shard| lock(shard).nodes.len())
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{HandleKey, seal};

    fn node(inode: u64) -> Node {
        let file = std::fs::File::open("/").expect("open");
        let mut attributes = Attributes::of(&file).expect("stat");
        attributes.key = FileKey { inode, birth_ns: 1 };
        let handle = seal(&HandleKey([1; 16]), 1, attributes.key, None);
        Node::new(file.into(), &attributes, handle)
    }

    #[test]
    fn no_more_nodes_are_kept_than_allowed() {
        let nodes = Nodes::new(32);
        for inode in 0..500 {
            nodes.keep(node(inode));
            assert!(nodes.len() <= 32);
            assert!(
                nodes.find(FileKey { inode, birth_ns: 1 }).is_some(),
                "the newest is there"
            );
        }
    }

    #[test]
    fn nodes_are_evicted_in_the_order_of_their_last_use() {
        let nodes = Nodes::new(1600);
        for inode in 0..100 {
            nodes.keep(node(inode));
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

    #[test]
    fn two_who_open_the_same_file_share_one_node() {
        let nodes = Nodes::new(32);
        let first = nodes.keep(node(7));
        assert!(Arc::ptr_eq(&first, &nodes.keep(node(7))));
        nodes.forget(first.key);
        assert!(nodes.find(first.key).is_none());
        nodes.forget(first.key);
        assert_eq!(nodes.len(), 0);
    }

    #[test]
    fn a_node_is_renewed_only_while_nobody_has_it_or_has_used_it_since() {
        let nodes = Nodes::new(32);
        let first = nodes.keep(node(7));
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

    #[test]
    fn a_verdict_holds_for_its_caller_until_the_file_changes() {
        let node = node(7);
        let who = |user| Who {
            user,
            group: 1,
            groups: flatpath_rpc::Groups::default(),
        };
        let (then, now) = (
            Time {
                seconds: 1,
                nanoseconds: 0,
            },
            Time {
                seconds: 2,
                nanoseconds: 0,
            },
        );
        node.grant(who(5), Access::READ_OK, then);
        assert!(node.is_granted(&who(5), Access::READ_OK, then));
        assert!(!node.is_granted(&who(6), Access::READ_OK, then));
        assert!(!node.is_granted(&who(5), Access::WRITE_OK, then));
        assert!(!node.is_granted(&who(5), Access::READ_OK, now));
        for user in 10..40 {
            node.grant(who(user), Access::READ_OK, now);
        }
        assert!(lock(&node.known).grants.len() <= GRANTS_MAX);
    }

    #[test]
    fn a_verdict_on_a_file_that_was_just_changed_is_not_kept() {
        let node = node(7);
        let who = Who {
            user: 5,
            group: 1,
            groups: flatpath_rpc::Groups::default(),
        };
        let now = Time::now();
        node.grant(who, Access::READ_OK, now);
        assert!(!node.is_granted(&who, Access::READ_OK, now));
    }

    #[test]
    fn what_was_seen_is_told_to_those_who_might_read_it() {
        let node = node(7);
        let who = |user| Who {
            user,
            group: 1,
            groups: flatpath_rpc::Groups::default(),
        };
        let changed = Time {
            seconds: 1,
            nanoseconds: 0,
        };
        let seen = Seen {
            size: 9,
            user: 5,
            changed,
        };
        assert!(node.seen_by(&who(5)).is_none(), "nothing was seen");
        node.saw(seen);
        assert!(node.seen_by(&who(5)) == Some(seen), "the owner");
        assert!(node.seen_by(&who(6)).is_none(), "nobody said it may");
        node.grant(who(6), Access::READ_OK, changed);
        assert!(node.seen_by(&who(6)) == Some(seen));
        let changed = Time {
            seconds: 2,
            nanoseconds: 0,
        };
        node.saw(Seen { changed, ..seen });
        assert!(node.seen_by(&who(6)).is_none(), "that was before");
    }
}
