//! Open files behind handles, kept while they are in use.
//!
//! A node holds an `O_PATH` descriptor, which follows its file through every rename, and
//! descriptors for reading and writing once somebody read or wrote. What a caller may do is the
//! kernel's verdict per caller, remembered until the file changes.
//!
//! | may run beside | find | keep | forget |
//! |----------------|------|------|--------|
//! | all three      | yes  | yes  | yes    |
//!
//! Invariants
//! - N1: at most `nodes_max` nodes are kept; the ones used least recently go first (second chance).
//!
//! Cost: one lock of one of sixteen shards.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use rustix::fd::OwnedFd;
use rustix::fs::{Access, FileType};

use crate::attributes::{Attributes, Time};
use crate::handle::{FileKey, WireHandle};
use crate::identity::Who;
use crate::limits::{GRANTS_MAX, NODE_SHARDS};

/// A verdict of the kernel: this caller may do this, as long as the file has not changed.
#[derive(Clone, Copy)]
struct Grant {
    who: Who,
    access: Access,
    changed: Time,
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
    pub(crate) reader: OnceLock<OwnedFd>,
    pub(crate) writer: OnceLock<OwnedFd>,
    grants: Mutex<VecDeque<Grant>>,
    used: AtomicBool,
}

impl Node {
    pub(crate) fn new(path: OwnedFd, attributes: &Attributes, handle: WireHandle) -> Node {
        Node {
            path,
            key: attributes.key,
            handle,
            kind: attributes.kind,
            reader: OnceLock::new(),
            writer: OnceLock::new(),
            grants: Mutex::default(),
            used: AtomicBool::new(true),
        }
    }

    /// The attributes now.
    pub(crate) fn attributes(&self) -> Result<Attributes, crate::status::Status> {
        Attributes::of(&self.path)
    }

    /// True when the kernel granted this before and the file has not changed since.
    pub(crate) fn is_granted(&self, who: &Who, access: Access, changed: Time) -> bool {
        lock(&self.grants)
            .iter()
            .any(|grant| grant.who == *who && grant.access == access && grant.changed == changed)
    }

    /// Remembers a verdict.
    pub(crate) fn grant(&self, who: Who, access: Access, changed: Time) {
        let mut grants = lock(&self.grants);
        grants
            .retain(|grant| grant.changed == changed && (grant.who, grant.access) != (who, access));
        grants.truncate(GRANTS_MAX - 1);
        grants.push_front(Grant {
            who,
            access,
            changed,
        });
    }
}

#[derive(Default)]
struct Shard {
    nodes: HashMap<FileKey, Arc<Node>>,
    order: VecDeque<FileKey>,
}

/// The table of nodes.
pub(crate) struct Nodes {
    shards: Box<[Mutex<Shard>]>,
    shard_max: usize,
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
        }
    }

    fn shard(&self, key: FileKey) -> MutexGuard<'_, Shard> {
        let mixed = key.inode.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes()[0];
        lock(&self.shards[usize::from(mixed) % NODE_SHARDS])
    }

    pub(crate) fn find(&self, key: FileKey) -> Option<Arc<Node>> {
        let shard = self.shard(key);
        let node = shard.nodes.get(&key)?;
        node.used.store(true, Ordering::Relaxed);
        Some(Arc::clone(node))
    }

    /// Keeps a node; gives back the one that another thread has kept meanwhile.
    pub(crate) fn keep(&self, node: Node) -> Arc<Node> {
        let key = node.key;
        let mut shard = self.shard(key);
        if let Some(other) = shard.nodes.get(&key) {
            return Arc::clone(other);
        }
        while shard.nodes.len() >= self.shard_max {
            let Some(oldest) = shard.order.pop_front() else {
                break;
            };
            let second = shard
                .nodes
                .get(&oldest)
                .is_some_and(|node| node.used.swap(false, Ordering::Relaxed));
            if second {
                shard.order.push_back(oldest);
            } else {
                shard.nodes.remove(&oldest);
            }
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
        assert!(lock(&node.grants).len() <= GRANTS_MAX);
    }
}
