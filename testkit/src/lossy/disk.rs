//! The disk of a lossy file system: what is there now, and what would be there after a crash.
//!
//! Data that was written, the names in a directory, and attributes last once their file or
//! directory is synced. A file that no sync has reached has, from the first sync of a directory
//! that names it, the attributes that it has then: a journal writes both in one transaction. What
//! is changed of it later lasts once it is synced itself; of a link or a special file that is
//! never.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::time::SystemTime;

use fuser::FileType;

pub(super) const ROOT: u64 = 1;

/// A change of data that a sync makes last.
enum Change {
    Written(usize, Vec<u8>),
    Resized(usize),
}

/// What belongs to a file beside its data and names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permissions, with set-id and sticky bits.
    pub mode: u16,
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// Read last.
    pub accessed: SystemTime,
    /// Written last.
    pub modified: SystemTime,
}

/// A file or a directory.
pub(super) struct Inode {
    pub(super) kind: FileType,
    pub(super) attributes: Attributes,
    pub(super) changed: SystemTime,
    pub(super) links: u32,
    /// Of a special file.
    pub(super) device: u32,
    /// Data; of a link its target.
    pub(super) bytes: Vec<u8>,
    pub(super) names: BTreeMap<OsString, u64>,
    /// `None` until a sync reaches it.
    lasting_attributes: Option<Attributes>,
    lasting_bytes: Vec<u8>,
    lasting_names: BTreeMap<OsString, u64>,
    unsynced: Vec<Change>,
    /// How often written data was lost.
    losses: u64,
    /// How many of the losses were reported to any descriptor.
    reported: u64,
}

pub(super) struct Disk {
    inodes: HashMap<u64, Inode>,
    next: u64,
    /// Open files: which inode, and how many of its losses were reported to this descriptor.
    open: HashMap<u64, (u64, u64)>,
    crashed: bool,
}

fn write_at(bytes: &mut Vec<u8>, at: usize, data: &[u8]) {
    if bytes.len() < at + data.len() {
        bytes.resize(at + data.len(), 0);
    }
    bytes[at..at + data.len()].copy_from_slice(data);
}

impl Inode {
    fn new(kind: FileType, mode: u16, (user, group): (u32, u32)) -> Self {
        let now = SystemTime::now();
        Self {
            kind,
            attributes: Attributes {
                mode,
                user,
                group,
                accessed: now,
                modified: now,
            },
            changed: now,
            links: if kind == FileType::Directory { 2 } else { 1 },
            device: 0,
            bytes: Vec::new(),
            names: BTreeMap::new(),
            lasting_attributes: None,
            lasting_bytes: Vec::new(),
            lasting_names: BTreeMap::new(),
            unsynced: Vec::new(),
            losses: 0,
            reported: 0,
        }
    }

    pub(super) fn touch(&mut self) {
        self.attributes.modified = SystemTime::now();
        self.changed = self.attributes.modified;
    }

    /// Makes it a link to `target`, which lasts with its name.
    pub(super) fn point_to(&mut self, target: &[u8]) {
        self.bytes = target.to_vec();
        self.lasting_bytes = target.to_vec();
    }

    pub(super) fn write(&mut self, at: usize, data: &[u8]) {
        write_at(&mut self.bytes, at, data);
        self.unsynced.push(Change::Written(at, data.to_vec()));
        self.touch();
    }

    pub(super) fn resize(&mut self, length: usize) {
        self.bytes.resize(length, 0);
        self.unsynced.push(Change::Resized(length));
        self.touch();
    }

    fn lose(&mut self) {
        let before = self.unsynced.len();
        self.unsynced
            .retain(|change| matches!(change, Change::Resized(_)));
        if self.unsynced.len() < before {
            self.losses += 1;
        }
    }

    fn sync(&mut self) {
        for change in self.unsynced.drain(..) {
            match change {
                Change::Written(at, data) => write_at(&mut self.lasting_bytes, at, &data),
                Change::Resized(length) => self.lasting_bytes.resize(length, 0),
            }
        }
        self.lasting_names = self.names.clone();
        self.lasting_attributes = Some(self.attributes);
    }

    /// It is again as a crash leaves it.
    fn crash(&mut self) {
        self.attributes = self.lasting_attributes.unwrap_or(self.attributes);
        self.bytes.clone_from(&self.lasting_bytes);
        self.names.clone_from(&self.lasting_names);
        self.unsynced.clear();
    }
}

impl Disk {
    pub(super) fn new() -> Self {
        let mut root = Inode::new(FileType::Directory, 0o777, (0, 0));
        root.sync();
        Self {
            inodes: HashMap::from([(ROOT, root)]),
            next: ROOT + 1,
            open: HashMap::new(),
            crashed: false,
        }
    }

    pub(super) fn inode(&mut self, number: u64) -> Option<&mut Inode> {
        self.inodes.get_mut(&number)
    }

    pub(super) fn find(&mut self, directory: u64, name: &OsStr) -> Option<u64> {
        match name == "." {
            // As the kernel asks for the file of a handle.
            true => self.inodes.contains_key(&directory).then_some(directory),
            false => self.inode(directory)?.names.get(name).copied(),
        }
    }

    /// Makes a file or a directory.
    pub(super) fn make(
        &mut self,
        (directory, name): (u64, &OsStr),
        kind: FileType,
        mode: u16,
        owner: (u32, u32),
    ) -> Option<u64> {
        let number = self.next;
        let parent = self.inode(directory)?;
        parent.names.insert(name.to_owned(), number);
        parent.touch();
        self.next += 1;
        self.inodes.insert(number, Inode::new(kind, mode, owner));
        Some(number)
    }

    /// Takes a name away.
    pub(super) fn remove(&mut self, directory: u64, name: &OsStr) -> Option<u64> {
        let parent = self.inode(directory)?;
        let number = parent.names.remove(name)?;
        parent.touch();
        let inode = self.inode(number)?;
        inode.links = match inode.kind {
            FileType::Directory => 0,
            _ => inode.links - 1,
        };
        inode.changed = SystemTime::now();
        Some(number)
    }

    /// Gives a file a name, which it has besides others.
    pub(super) fn link(&mut self, number: u64, directory: u64, name: &OsStr) -> Option<()> {
        self.inode(number)?.links += 1;
        let parent = self.inode(directory)?;
        parent.names.insert(name.to_owned(), number);
        parent.touch();
        Some(())
    }

    pub(super) fn rename(&mut self, from: (u64, &OsStr), to: (u64, &OsStr)) -> Option<()> {
        let number = self.find(from.0, from.1)?;
        if self.find(to.0, to.1).is_some() {
            self.remove(to.0, to.1)?;
        }
        self.inode(from.0)?.names.remove(from.1);
        let parent = self.inode(to.0)?;
        parent.names.insert(to.1.to_owned(), number);
        parent.touch();
        Some(())
    }

    /// A descriptor. A loss that no descriptor was told of is told to new ones, too, as
    /// `errseq_sample` in `lib/errseq.c` has it.
    pub(super) fn open(&mut self, number: u64) -> u64 {
        let handle = self.next;
        self.next += 1;
        let told = self.inode(number).map_or(0, |inode| inode.reported);
        self.open.insert(handle, (number, told));
        handle
    }

    pub(super) fn open_files(&self) -> usize {
        self.open.len()
    }

    pub(super) fn close(&mut self, handle: u64) {
        self.open.remove(&handle);
    }

    /// Makes what was written last, and tells whether data of the file was lost since the
    /// descriptor was told of it.
    pub(super) fn sync(&mut self, number: u64, handle: u64) -> bool {
        let Some(inode) = self.inodes.get_mut(&number) else {
            return true;
        };
        inode.sync();
        let news = inode.names.values().copied().collect::<Vec<_>>();
        for number in news {
            if let Some(inode) = self.inode(number) {
                let attributes = inode.attributes;
                inode.lasting_attributes.get_or_insert(attributes);
            }
        }
        let Some(inode) = self.inodes.get_mut(&number) else {
            return true;
        };
        let Some((_, told)) = self.open.get_mut(&handle) else {
            return true;
        };
        let is_news = *told < inode.losses;
        *told = inode.losses;
        if is_news {
            inode.reported = inode.losses;
        }
        !is_news
    }

    /// The number of a path's file, by the names that are there now.
    pub(super) fn at(&mut self, path: &Path) -> Option<u64> {
        path.iter()
            .try_fold(ROOT, |directory, name| self.find(directory, name))
    }

    /// Write-back of a file fails: what was written and not synced never comes to the disk.
    pub(super) fn lose(&mut self, number: u64) {
        if let Some(inode) = self.inode(number) {
            inode.lose();
        }
    }

    /// The same of every file.
    pub(super) fn lose_all(&mut self) {
        self.inodes.values_mut().for_each(Inode::lose);
    }

    /// Whether data of a file is not synced.
    pub(super) fn is_unsynced(&mut self, number: u64) -> bool {
        self.inode(number)
            .is_some_and(|inode| !inode.unsynced.is_empty())
    }

    /// What a path's file would have after a crash now.
    pub(super) fn lasting(&self, path: &Path) -> Option<Vec<u8>> {
        Some(self.lasting_inode(path)?.lasting_bytes.clone())
    }

    /// The same of its attributes.
    pub(super) fn lasting_attributes(&self, path: &Path) -> Option<Attributes> {
        self.lasting_inode(path)?.lasting_attributes
    }

    fn lasting_inode(&self, path: &Path) -> Option<&Inode> {
        let root = self.inodes.get(&ROOT)?;
        path.iter().try_fold(root, |directory, name| {
            self.inodes.get(directory.lasting_names.get(name)?)
        })
    }

    /// Until [`Disk::restart`].
    pub(super) fn is_crashed(&self) -> bool {
        self.crashed
    }

    pub(super) fn restart(&mut self) {
        self.crashed = false;
    }

    /// A crash: all is as it lasts, and files have as many links as there are names of them.
    pub(super) fn crash(&mut self) {
        self.crashed = true;
        self.inodes.values_mut().for_each(Inode::crash);
        let names = |inode: &Inode| inode.names.values().copied().collect::<Vec<_>>();
        let names: Vec<u64> = self.inodes.values().flat_map(names).collect();
        for (number, inode) in &mut self.inodes {
            let count = names.iter().filter(|named| *named == number).count();
            if inode.kind != FileType::Directory {
                inode.links = u32::try_from(count).unwrap_or(u32::MAX);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(disk: &mut Disk) -> u64 {
        let made = disk.make(
            (ROOT, OsStr::new("a")),
            FileType::RegularFile,
            0o644,
            (0, 0),
        );
        made.expect("the root is there")
    }

    #[test]
    fn data_lasts_from_its_sync_and_a_name_from_its_directorys() {
        let mut disk = Disk::new();
        let number = file(&mut disk);
        let handle = disk.open(number);
        disk.inode(number).expect("there").write(2, b"xy");
        assert!(disk.sync(number, handle));
        assert_eq!(disk.lasting(Path::new("a")), None, "it has no name yet");
        assert!(disk.sync(ROOT, u64::MAX));
        assert_eq!(disk.lasting(Path::new("a")), Some(b"\0\0xy".to_vec()));
        disk.inode(number).expect("there").resize(3);
        assert_eq!(disk.lasting(Path::new("a")), Some(b"\0\0xy".to_vec()));
        disk.sync(number, handle);
        assert_eq!(disk.lasting(Path::new("a")), Some(b"\0\0x".to_vec()));
    }

    #[test]
    fn attributes_last_with_a_new_name_or_from_their_sync_on_and_a_crash_leaves_them() {
        let mut disk = Disk::new();
        let number = file(&mut disk);
        let mode = |disk: &Disk| Some(disk.lasting_attributes(Path::new("a"))?.mode);
        let set = |disk: &mut Disk, mode| {
            disk.inode(number).expect("there").attributes.mode = mode;
        };
        assert_eq!(mode(&disk), None, "it has no name yet");
        set(&mut disk, 0o600);
        disk.sync(ROOT, u64::MAX);
        assert_eq!(mode(&disk), Some(0o600));
        set(&mut disk, 0o640);
        disk.sync(ROOT, u64::MAX);
        assert_eq!(
            mode(&disk),
            Some(0o600),
            "the directory's sync is not its own"
        );
        disk.sync(number, u64::MAX);
        set(&mut disk, 0o644);
        disk.inode(number).expect("there").write(0, b"unsynced");
        let at = (ROOT, OsStr::new("b"));
        disk.link(number, at.0, at.1).expect("there");
        disk.crash();
        let inode = disk.inode(number).expect("there");
        assert_eq!((inode.attributes.mode, inode.links), (0o640, 1));
        assert!(inode.bytes.is_empty() && disk.find(at.0, at.1).is_none());
    }

    #[test]
    fn a_loss_is_told_once_to_each_descriptor() {
        let mut disk = Disk::new();
        let number = file(&mut disk);
        let (one, two) = (disk.open(number), disk.open(number));
        disk.inode(number).expect("there").write(0, b"lost");
        disk.lose(number);
        disk.inode(number).expect("there").write(9, b"kept");
        let three = disk.open(number);
        assert!(!disk.sync(number, one) && disk.sync(number, one));
        let four = disk.open(number);
        assert!(!disk.sync(number, two) && !disk.sync(number, three));
        assert!(disk.sync(number, four), "opened after it was told");
        disk.sync(ROOT, u64::MAX);
        assert_eq!(
            disk.lasting(Path::new("a")),
            Some(b"\0\0\0\0\0\0\0\0\0kept".to_vec())
        );
        disk.lose(number);
        assert!(disk.sync(number, one), "nothing was there to lose");
    }
}
