//! How a handle becomes an open file on the network thread: only if it is open already, and what it
//! takes to know that it lies inside (E1) is cached. Anything else is for a worker.

use std::sync::Arc;

use rustix::fd::AsFd;
use rustix::fs::FileType;

use super::Export;
use super::kernel_path::{DELETED, KERNEL_PATH_BYTES_MAX, PATH_ROOM};
use crate::handle;
use crate::limits::NAME_BYTES_MAX;
use crate::node::Node;
use crate::status::Status;

impl Export {
    /// The file that a client's handle names, if it is open and what it takes to know that it lies
    /// inside is cached: without a wait.
    ///
    /// # Errors
    /// [`Status::BadHandle`] and [`Status::Stale`] as for [`Export::resolve`].
    pub(crate) fn resolve_cached(&self, bytes: &[u8]) -> Result<Option<Arc<Node>>, Status> {
        let opened = handle::open(&self.secret, bytes)?;
        if opened.export != self.number {
            return Err(Status::Stale);
        }
        let node = self.nodes.find_now(opened.key);
        Ok(node.filter(|node| self.is_plainly_inside(node)))
    }

    /// The file of a handle that [`Export::resolve_cached`] has found a moment ago: it was inside
    /// then, which is not asked again. One that is no longer open is found as any other.
    ///
    /// # Errors
    /// As for [`Export::resolve`].
    pub(crate) fn resolve_again(&self, bytes: &[u8]) -> Result<Arc<Node>, Status> {
        let opened = handle::open(&self.secret, bytes)?;
        match self.nodes.find(opened.key) {
            Some(node) if opened.export == self.number => Ok(node),
            _ => self.resolve(bytes),
        }
    }

    /// Whether the kernel has a path for a file that says it: E1, where nothing else has to be
    /// asked.
    fn is_plainly_inside(&self, node: &Node) -> bool {
        if node.key == self.root_key {
            return true;
        }
        if self.is_whole {
            return node.attributes().is_ok_and(|found| found.links > 0);
        }
        let mut room = PATH_ROOM;
        self.kernel_path(node.path.as_fd(), &mut room)
            .is_ok_and(|path| {
                let directory = node.kind == FileType::Directory;
                let longest = path.len() + if directory { 1 + NAME_BYTES_MAX } else { 0 };
                longest < KERNEL_PATH_BYTES_MAX
                    && self.is_below_root(path)
                    && !path.ends_with(DELETED)
            })
    }
}
