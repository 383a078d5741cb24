//! The directory that is served, and how a handle becomes an open file inside it.
//!
//! A handle is tried where its file was open last; then the kernel is asked for the inode by its
//! own handle; then the path where it was last seen is opened; then the tree is scanned. Whatever
//! way a file was found, it must be the same file (inode and birth) and lie inside the export now.
//!
//! Where a file lies is what the kernel says of an open descriptor (`/proc/self/fd`): one answer
//! that no rename can tear. A file that was moved out, or whose directory was, is stale at the next
//! call, although a descriptor of it is still open here. In an export that is a whole file system
//! nothing lies elsewhere, so there it is enough to ask whether the file still has a name
//! (`whole.rs`).
//!
//! Names are opened one at a time from an open directory, without following links and without
//! crossing to another file system, so there is no path to race with.
//!
//! Invariants
//! - E1: no node is handed out that did not lie inside the export when this call looked.

mod cached;
mod ended;
mod kernel_path;
mod links;
mod locks;
mod number;

use std::ffi::CStr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use flatpath::lock::ReadWriteLock;
use flatpath::prompt::FileSystem;
use flatpath_sys::file_handle::{KernelHandle, handle_of, handle_of_name, mount_of, open_handle};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags};

use crate::attributes::Attributes;
use crate::handle::{self, FileKey, HandleKey, WireHandle};
use crate::key;
use crate::limits::{DEPTH_MAX, HANDLE_PAUSE_MAX, HANDLE_PAUSE_MIN, NAME_BYTES_MAX, NODES_MAX};
use crate::names::{PATH_ONLY, open_name};
use crate::node::Node;
use crate::nodes::Nodes;
use crate::path_hints::PathHints;
use crate::status::Status;
use crate::tree_scan::{Found, TreeScan};
use crate::verifier::WriteVerifier;
use crate::whole::is_whole;
use kernel_path::{DELETED, KERNEL_PATH_BYTES_MAX, PATH_ROOM};
use locks::Locks;

/// Where an open file lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Location {
    Inside,
    /// A directory inside, so deep that the kernel may have no path for what it holds.
    Deep,
    Outside,
    /// This name of it is gone; it may have others.
    Unlinked,
    /// The kernel has the inode but no name for it yet.
    Unknown,
}

/// How what a name stands for is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LookBy {
    /// Opened, so that attributes and handle are one file's.
    Descriptor,
    /// Twice by its name, in half the system calls. They are one file's if the directory was not
    /// changed meanwhile.
    Name,
}

pub(crate) struct Export {
    root: OwnedFd,
    pub(crate) root_key: FileKey,
    /// As in [`Attributes::system`], of the root.
    system: (u32, u32),
    root_path: ReadWriteLock<Vec<u8>>,
    /// The calls that may be tried on the network thread.
    pub(crate) files: FileSystem,
    /// Every file of the file system lies inside.
    is_whole: bool,
    pub(crate) number: u32,
    pub(crate) secret: HandleKey,
    descriptors: OwnedFd,
    /// The kernel finds files by handle here.
    by_handle: bool,
    /// The kernel's number for the mount of the root, where it has handles.
    mount: i32,
    pub(crate) nodes: Nodes,
    hints: PathHints,
    scan: TreeScan,
    pub(crate) locks: Locks,
    /// Names that one file of this file system may have.
    pub(crate) links_max: u32,
    /// The directory was removed: all handles are stale.
    is_gone: AtomicBool,
}

impl Export {
    /// Serves `directory` with handles made with `secret`.
    ///
    /// # Errors
    /// When the directory cannot be opened, or `/proc` is not mounted.
    pub(crate) fn open(directory: &Path, secret: HandleKey) -> std::io::Result<Export> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, directory, flags, Mode::empty())?;
        let descriptors = rustix::fs::openat(
            CWD,
            "/proc/self/fd",
            OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?;
        let attributes =
            Attributes::of(&root).map_err(|status| std::io::Error::other(format!("{status:?}")))?;
        let root_key = attributes.key;
        let number = number::of(&secret, &root_key.to_bytes());
        let by_handle = handle_of(&root)
            .and_then(|handle| open_handle(&root, &handle, OFlags::PATH.bits()))
            .is_ok();
        let mount = mount_of(&root).unwrap_or_default();
        let links_max = links::max_of(&root);
        let verifier = WriteVerifier::new(u64::from_be_bytes(key::random()?));
        let files = FileSystem::of(&root);
        let export = Export {
            is_whole: is_whole(&root, &files),
            files,
            root,
            root_key,
            system: attributes.system,
            root_path: ReadWriteLock::default(),
            number,
            secret,
            descriptors,
            by_handle,
            mount,
            nodes: Nodes::new(Export::nodes_affordable(), verifier),
            hints: PathHints::default(),
            scan: TreeScan::default(),
            locks: Locks::new(),
            links_max,
            is_gone: AtomicBool::new(false),
        };
        export.refresh_root()?;
        Ok(export)
    }

    /// Nodes that the descriptor limit affords: three descriptors for each, and at most half of all
    /// for nodes.
    pub(crate) fn nodes_affordable() -> usize {
        let descriptors_max = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        descriptors_max.map_or(NODES_MAX, |all| NODES_MAX.min((all / 6) as usize))
    }

    /// The root as a node. That it was removed is seen by [`Export::notices_end`], a moment later,
    /// and by what is done with it: no call pays a system call for the question.
    pub(crate) fn root(&self) -> Result<Arc<Node>, Status> {
        // ORDER: Relaxed: the flag alone counts.
        if self.is_gone.load(Ordering::Relaxed) {
            return Err(Status::Stale);
        }
        if let Some(node) = self.nodes.find(self.root_key) {
            return Ok(node);
        }
        let path = self.open_root()?;
        let attributes = Attributes::of(&path)?;
        Ok(self.insert(path, &attributes))
    }

    fn open_root(&self) -> Result<OwnedFd, Status> {
        let opened = rustix::fs::openat(&self.root, c".", PATH_ONLY, Mode::empty());
        Ok(opened?)
    }

    /// The root, to sync the file system through it; a new descriptor each time.
    pub(crate) fn open_root_to_sync(&self) -> Result<OwnedFd, Status> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(&self.root, c".", flags, Mode::empty())?)
    }

    /// Closes a node whose file was removed without this server; true when it was.
    pub(crate) fn bury_if_dead(&self, node: &Node) -> Result<bool, Status> {
        let location = self.location_of(node.path.as_fd(), node.kind, node.key);
        let dead = matches!(location, Location::Unlinked | Location::Unknown)
            && node.attributes()?.links == 0;
        if dead {
            self.bury(node.key);
        }
        Ok(dead)
    }

    /// True when the kernel finds files by handle; else hints and the scan do.
    pub(crate) fn finds_by_handle(&self) -> bool {
        self.by_handle
    }

    #[cfg(test)]
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    #[cfg(test)]
    pub(crate) fn without_handles(mut self) -> Export {
        self.by_handle = false;
        self
    }

    /// As if a caller walked, until the result is dropped.
    #[cfg(test)]
    pub(crate) fn scan_in_progress(&self) -> impl Drop + '_ {
        self.scan.in_progress()
    }

    #[cfg(test)]
    pub(crate) fn scan_waiters(&self) -> usize {
        self.scan.waiters()
    }

    /// The directory in which the number of every descriptor of this process is a name.
    pub(crate) fn descriptors(&self) -> BorrowedFd<'_> {
        self.descriptors.as_fd()
    }

    /// Asks again what the root is called: it may have been renamed.
    fn refresh_root(&self) -> rustix::io::Result<()> {
        let mut room = PATH_ROOM;
        let path = self.kernel_path(self.root.as_fd(), &mut room)?;
        let mut kept = self.root_path.write();
        kept.clear();
        // The root of all is the empty prefix.
        kept.extend_from_slice(path.strip_suffix(b"/").unwrap_or(path));
        Ok(())
    }

    /// True when the kernel says that the root has no name any more.
    pub(crate) fn root_is_removed(&self) -> bool {
        let mut room = PATH_ROOM;
        let path = self.kernel_path(self.root.as_fd(), &mut room);
        path.is_ok_and(|path| path.ends_with(DELETED))
    }

    /// Also when the root has got another name since the last question.
    fn is_below_root(&self, path: &[u8]) -> bool {
        let is_below = || {
            path.strip_prefix(&self.root_path.read()[..])
                .is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
        };
        is_below() || (self.refresh_root().is_ok() && is_below())
    }

    fn location_of(&self, file: BorrowedFd<'_>, kind: FileType, key: FileKey) -> Location {
        if key == self.root_key {
            return Location::Inside;
        }
        if self.is_whole {
            return match Attributes::of(file) {
                Ok(found) if found.links > 0 => Location::Inside,
                Ok(_) => Location::Unlinked,
                Err(_) => Location::Unknown,
            };
        }
        let mut room = PATH_ROOM;
        let path = match self.kernel_path(file, &mut room) {
            Ok(path) if path.len() < KERNEL_PATH_BYTES_MAX => path,
            // Deeper than the kernel can say: directories are followed upwards.
            _ if kind == FileType::Directory => return self.climb(file),
            _ => return Location::Unknown,
        };
        if path == b"/" {
            return Location::Unknown;
        }
        if !self.is_below_root(path) {
            // Of a name outside that is gone nothing follows for a name inside.
            return match path.ends_with(DELETED) {
                true => Location::Unlinked,
                false => Location::Outside,
            };
        }
        if path.ends_with(DELETED) && !self.is_named_deleted(path, key) {
            return Location::Unlinked;
        }
        let directory = kind == FileType::Directory;
        if directory && path.len() + 1 + NAME_BYTES_MAX >= KERNEL_PATH_BYTES_MAX {
            return Location::Deep;
        }
        Location::Inside
    }

    /// The kernel marks a name that is gone, but a file may also be called that way.
    fn is_named_deleted(&self, path: &[u8], key: FileKey) -> bool {
        let Some(relative) = path.get(self.root_path.read().len() + 1..) else {
            return false;
        };
        open_name(&self.root, relative)
            .and_then(Attributes::of)
            .is_ok_and(|found| found.key == key)
    }

    /// Follows `..` from a directory until the kernel has a path again. It has one for the root, so
    /// it has one for whatever of the way lies at the root or above it.
    fn climb(&self, directory: BorrowedFd<'_>) -> Location {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut room = PATH_ROOM;
        let mut at = None::<OwnedFd>;
        for _ in 0..DEPTH_MAX {
            let here = at.as_ref().map_or(directory, AsFd::as_fd);
            let Ok(up) = rustix::fs::openat(here, c"..", flags, Mode::empty()) else {
                return Location::Outside;
            };
            if let Ok(path) = self.kernel_path(up.as_fd(), &mut room)
                && path.len() < KERNEL_PATH_BYTES_MAX
            {
                return match self.is_below_root(path) {
                    true => Location::Deep,
                    false => Location::Outside,
                };
            }
            at = Some(up);
        }
        Location::Outside
    }

    pub(crate) fn describe(&self, file: impl AsFd) -> Result<(Attributes, WireHandle), Status> {
        let attributes = Attributes::of(&file)?;
        self.is_one_system(&attributes)?;
        Ok((attributes, self.handle(file, attributes.key)))
    }

    /// A directory of another file system is not entered, nor a subvolume of btrfs: inodes and
    /// births are those of other files there, as in a snapshot.
    fn is_one_system(&self, attributes: &Attributes) -> Result<(), Status> {
        match attributes.is_directory() && attributes.system != self.system {
            true => Err(Status::Access),
            false => Ok(()),
        }
    }

    /// The file of a name in a directory, found as the calling thread.
    pub(crate) fn describe_in(
        &self,
        directory: &Node,
        name: &CStr,
        by: LookBy,
    ) -> Result<(Attributes, WireHandle), Status> {
        let path = &directory.path;
        let by_name = match by {
            LookBy::Name => self.describe_name(path, name)?,
            LookBy::Descriptor => None,
        };
        let described = match by_name {
            Some(described) => described,
            // Which does not cross into a mount either, nor ask it anything.
            None => self.describe(open_name(path, name.to_bytes())?)?,
        };
        self.saw_in(described.0.key, directory, name.to_bytes());
        Ok(described)
    }

    /// The same by the name alone; nothing where the kernel has no handles, or where something is
    /// mounted. That may hang: so the attributes are asked for last.
    fn describe_name(
        &self,
        directory: &OwnedFd,
        name: &CStr,
    ) -> Result<Option<(Attributes, WireHandle)>, Status> {
        if !self.by_handle {
            return Ok(None);
        }
        let kernel = match handle_of_name(directory, name) {
            Ok((kernel, mount)) if mount == self.mount => kernel,
            _ => return Ok(None),
        };
        let Some(found) = Attributes::of_name(directory, name)? else {
            return Ok(None);
        };
        self.is_one_system(&found)?;
        Ok(Some((found, self.seal(found.key, || Some(kernel)))))
    }

    fn handle(&self, file: impl AsFd, key: FileKey) -> WireHandle {
        self.seal(key, || handle_of(file).ok())
    }

    fn seal(&self, key: FileKey, kernel: impl FnOnce() -> Option<KernelHandle>) -> WireHandle {
        let kernel = if self.by_handle { kernel() } else { None };
        handle::seal(&self.secret, self.number, key, kernel.as_ref())
    }

    /// A file was seen as `name` in a directory; needed only where the kernel does not find it
    /// itself, or may have no path for it.
    pub(crate) fn saw_in(&self, file: FileKey, directory: &Node, name: &[u8]) {
        if directory.is_deep() {
            let deep = Some(directory.handle);
            self.hints.insert(file, directory.key, name, deep);
        } else {
            self.saw(file, directory.key, name);
        }
    }

    /// A file was seen as `name` in `parent`; needed only where the kernel does not find it itself.
    pub(crate) fn saw(&self, file: FileKey, parent: FileKey, name: &[u8]) {
        if !self.by_handle {
            self.hints.insert(file, parent, name, None);
        }
    }

    /// The file that a client's handle names.
    ///
    /// # Errors
    /// [`Status::BadHandle`] for what is none, [`Status::Stale`] for one of another key and when
    /// its file is gone or no longer inside, [`Status::Later`] while others scan for long.
    pub(crate) fn resolve(&self, bytes: &[u8]) -> Result<Arc<Node>, Status> {
        let opened = handle::open(&self.secret, bytes)?;
        if opened.export != self.number {
            return Err(Status::Stale);
        }
        let key = opened.key;
        if key == self.root_key {
            return self.root();
        }
        if let Some(node) = self.nodes.find(key) {
            if self.is_inside(&node, || self.open_below(key).is_some())? {
                return Ok(node);
            }
            self.nodes.remove(key);
        }
        if let Some(kernel) = opened.kernel.filter(|_| self.by_handle) {
            let file = self.open_by_handle(&kernel, key)?;
            let attributes = Attributes::of(&file)?;
            if attributes.key != key {
                return Err(Status::Stale);
            }
            let node = self.node(file, &attributes);
            if self.is_inside(&node, || false)? {
                return Ok(self.nodes.insert(node));
            }
        }
        self.find_by_name(key)
    }

    /// Opens a file by the kernel's handle of it.
    ///
    /// While a new file is being made of the inode that a removed one had, the kernel finds neither
    /// and says that it has no memory (ext4: `iget_locked` gives nothing for an inode that is
    /// `I_CREATING`). A moment later it says that the handle is stale.
    fn open_by_handle(&self, kernel: &KernelHandle, key: FileKey) -> Result<OwnedFd, Status> {
        let mut pause = HANDLE_PAUSE_MIN;
        loop {
            let opened = open_handle(&self.root, kernel, (OFlags::PATH | OFlags::NOFOLLOW).bits());
            let status = match opened.map_err(Status::from) {
                Err(Status::Later) => Status::Later,
                other => return other,
            };
            if self.hints.is_gone(key) {
                return Err(Status::Stale);
            }
            if pause > HANDLE_PAUSE_MAX {
                return Err(status);
            }
            std::thread::sleep(pause);
            pause *= 2;
        }
    }

    /// Whether a file lies where it may be used; `is_found` is asked where the kernel does not
    /// know.
    ///
    /// # Errors
    /// [`Status::Stale`] when it cannot be anywhere else in the export.
    fn is_inside(&self, node: &Node, is_found: impl FnOnce() -> bool) -> Result<bool, Status> {
        let location = self.location_of(node.path.as_fd(), node.kind, node.key);
        match location {
            Location::Inside => return Ok(true),
            Location::Deep => {
                node.set_deep();
                return Ok(true);
            }
            Location::Unknown if is_found() => return Ok(true),
            Location::Outside | Location::Unlinked | Location::Unknown => {}
        }
        let found = node.attributes()?;
        // Some file systems never say how many names there are; where it lies decides with that.
        let dead = found.links == 0 && location != Location::Outside;
        if dead {
            self.bury(node.key);
        }
        let single = found.links <= 1 || found.is_directory();
        if dead || (single && location == Location::Outside) {
            return Err(Status::Stale);
        }
        Ok(false)
    }

    /// The last name of a file was taken away: nothing of it is kept open from now on, so that the
    /// file system gets its space back when the calls end that still use it.
    fn bury(&self, key: FileKey) {
        self.nodes.remove(key);
        self.hints.mark_gone(key);
    }

    /// The file of a name that is about to be removed or given to another file.
    pub(crate) fn before_loss(&self, directory: &Node, name: &[u8]) -> Option<OwnedFd> {
        open_name(&directory.path, name).ok()
    }

    /// The name was taken away. The file is asked whether it was the last one, so it does not
    /// matter what else changed the directory.
    pub(crate) fn after_loss(&self, lost: Option<OwnedFd>) {
        if let Some(found) = lost.and_then(|file| Attributes::of(file).ok())
            && found.links == 0
        {
            self.bury(found.key);
        }
    }

    fn node(&self, file: OwnedFd, attributes: &Attributes) -> Node {
        let handle = self.handle(&file, attributes.key);
        Node::new(file, attributes, handle)
    }

    fn insert(&self, file: OwnedFd, attributes: &Attributes) -> Arc<Node> {
        self.nodes.insert(self.node(file, attributes))
    }

    /// Where it was seen last, or wherever it is.
    fn find_by_name(&self, key: FileKey) -> Result<Arc<Node>, Status> {
        // The kernel's handles tell a new file that looks like it from it, so there it is not seen.
        if !self.by_handle && self.hints.is_gone(key) {
            return Err(Status::Stale);
        }
        if let Some(node) = self.find_by_hint(key) {
            return Ok(node);
        }
        match self.scan.find(self.root.as_fd(), key, &self.hints)? {
            Found::Here(file, attributes) => Ok(self.insert(file, &attributes)),
            // Moved again since: the client asks again, too.
            Found::Hinted => self.find_by_hint(key).ok_or(Status::Later),
        }
    }

    /// Opens a file below a deep directory as it was seen there last.
    fn open_below(&self, key: FileKey) -> Option<(OwnedFd, Attributes)> {
        let (directory, name) = self.hints.below(key)?;
        let directory = self.resolve(directory.as_slice()).ok()?;
        if directory.kind != FileType::Directory {
            return None;
        }
        let file = open_name(&directory.path, &name).ok()?;
        let attributes = Attributes::of(&file).ok()?;
        (attributes.key == key).then_some((file, attributes))
    }

    fn find_by_hint(&self, key: FileKey) -> Option<Arc<Node>> {
        if let Some((file, attributes)) = self.open_below(key) {
            return Some(self.insert(file, &attributes));
        }
        let names = self.hints.path(self.root_key, key)?;
        if let Ok((file, attributes)) = self.open_path(&names)
            && attributes.key == key
        {
            return Some(self.insert(file, &attributes));
        }
        self.hints.remove(key);
        None
    }

    fn open_path(&self, names: &[Box<[u8]>]) -> Result<(OwnedFd, Attributes), Status> {
        let mut at = self.open_root()?;
        for name in names {
            at = open_name(&at, name)?;
        }
        let attributes = Attributes::of(&at)?;
        Ok((at, attributes))
    }

    /// The parent of a directory inside the export; the root is its own parent.
    pub(crate) fn parent(&self, directory: &Node) -> Result<OwnedFd, Status> {
        if directory.key == self.root_key {
            return self.open_root();
        }
        let up = rustix::fs::openat(&directory.path, c"..", PATH_ONLY, Mode::empty())?;
        let attributes = Attributes::of(&up)?;
        match self.location_of(up.as_fd(), attributes.kind, attributes.key) {
            Location::Inside | Location::Deep => Ok(up),
            Location::Outside | Location::Unlinked | Location::Unknown => Err(Status::Stale),
        }
    }

    /// The verifier by which a client knows that its cookies belong to this directory. Cookies are
    /// the file system's own and stay right while the directory changes, so this stays the same for
    /// its whole life.
    pub(crate) fn cookie_verifier(&self, directory: FileKey) -> u64 {
        let mut bytes = *b"cookie..................";
        bytes[8..].copy_from_slice(&directory.to_bytes());
        (self.secret.mac(&bytes) >> 64) as u64
    }
}
