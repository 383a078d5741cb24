//! What a reply promises is on the disk before it is sent (RFC 1813 section 4.8: procedures that
//! change anything are synchronous). Which file, directory or file system is synced for which
//! change is decided here, for all procedures but WRITE and COMMIT.
//!
//! Linux syncs a file or a directory through a descriptor. A symbolic link, a socket, a pipe and a
//! device have none: what they are made with lasts with their name, because file systems write both
//! in one transaction, and so with the directory. What is changed of them later lasts once the
//! whole file system is synced (syncfs(2)). A FUSE file system is not told of that
//! (`fuse_sync_fs` asks virtiofs alone), so there is no way there. But where owner or times are set
//! while such an object is made, no sync of the directory by this server comes between the two, and
//! a file system that writes an object when it first has a durable name has them.
//!
//! Cost: one or two syncs for each call; of a directory at the same time as other calls, so that
//! file systems can write several names at once.

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::node::Node;
use crate::request::Request;
use crate::status::Status;
use crate::verifier::Work;

/// What a procedure changed, as its reply says.
#[derive(Clone, Copy)]
pub(crate) enum Changed<'a> {
    /// Attributes of a file, the size among them: SETATTR.
    Attributes(&'a Node),
    /// An object has a name, which may have been there: CREATE, MKDIR, SYMLINK, MKNOD.
    Named {
        object: &'a Node,
        state: ObjectState,
        directory: &'a Node,
    },
    /// A file has one name more, which it counts: LINK.
    Linked { file: &'a Node, directory: &'a Node },
    /// REMOVE, RMDIR.
    Removed { directory: &'a Node },
    /// RENAME.
    Moved { from: &'a Node, to: &'a Node },
}

/// What a call did to the object whose name it promises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ObjectState {
    /// It was there, and is as it was.
    Found,
    /// It was there, and the call changed it; or an earlier call may not have synced it.
    Changed,
    /// Made, with all attributes that it has.
    Made,
    /// Made, and changed after that.
    MadeAndChanged,
}

impl ObjectState {
    /// Made by this call.
    pub(crate) fn is_new(self) -> bool {
        matches!(self, ObjectState::Made | ObjectState::MadeAndChanged)
    }
}

/// What is synced.
#[derive(Clone, Copy)]
enum Sync<'a> {
    /// A file or directory.
    File(&'a Node),
    /// All of the file system.
    Everything,
}

impl<'a> Changed<'a> {
    /// What has to be synced, in this order: an object before its name, and a new name before an
    /// old one is gone, since after a crash a file with two names is better than one with none.
    fn syncs(self) -> impl Iterator<Item = Sync<'a>> {
        let (first, second) = match self {
            Changed::Attributes(file) => (Some(sync_of(file)), None),
            Changed::Named {
                object,
                state,
                directory,
            } => {
                let lasts_with_name = match state {
                    ObjectState::Found => true,
                    ObjectState::Made => !has_descriptor(object),
                    ObjectState::Changed | ObjectState::MadeAndChanged => false,
                };
                let object = (!lasts_with_name).then(|| sync_of(object));
                (object, Some(Sync::File(directory)))
            }
            Changed::Linked { file, directory } => {
                (Some(sync_of(file)), Some(Sync::File(directory)))
            }
            Changed::Removed { directory } => (Some(Sync::File(directory)), None),
            Changed::Moved { from, to } => {
                let from = (from.key != to.key).then_some(Sync::File(from));
                (Some(Sync::File(to)), from)
            }
        };
        [first, second].into_iter().flatten()
    }
}

/// True for what Linux opens as itself.
fn has_descriptor(node: &Node) -> bool {
    matches!(node.kind, FileType::Directory | FileType::RegularFile)
}

fn sync_of(node: &Node) -> Sync<'_> {
    match has_descriptor(node) {
        true => Sync::File(node),
        false => Sync::Everything,
    }
}

impl Request<'_> {
    /// Writes what a procedure changed to disk, which precedes its reply.
    ///
    /// # Errors
    /// The file system's: what was changed may be gone after a crash.
    pub(crate) fn make_last(&self, changed: Changed<'_>) -> Result<(), Status> {
        changed.syncs().try_for_each(|sync| match sync {
            Sync::File(node) => self.sync(node),
            Sync::Everything => self.sync_everything(),
        })
    }

    fn sync(&self, node: &Node) -> Result<(), Status> {
        let file = match node.writer.get() {
            Some(_) => self.writer(node),
            None => self.reader(node).or_else(|_| self.writer(node)),
        };
        let file = match file {
            // A server that is not root can neither read nor write what its mode forbids.
            Err(Status::Access | Status::NotOwner) => return self.sync_everything(),
            other => other?,
        };
        let sync = || match rustix::fs::fsync(file) {
            // A file system that has nothing to make last.
            Err(Errno::INVAL | Errno::ROFS) => Ok(()),
            other => other,
        };
        let export = &self.state.export;
        if node.kind == FileType::Directory {
            let _names = export.locks.names_last(node.key);
            return Ok(sync()?);
        }
        Ok(export.nodes.verifier().run(node.key, Work::Sync, sync)?)
    }

    /// Through a new descriptor: it is told of no error that was before it.
    fn sync_everything(&self) -> Result<(), Status> {
        let root = self.state.export.open_root_to_sync()?;
        Ok(rustix::fs::syncfs(root)?)
    }
}
