//! Directory listings: the entries of a directory, as a page (`html`) or as JSON (`json`).
//!
//! Hidden names, links that lead to nothing served, FIFOs, sockets and devices are left out. Links
//! are shown as what they lead to. A mount point is shown without asking its file system, which may
//! hang.
//!
//! At most `LISTING_ENTRIES_MAX` names are shown at a time, in byte order from the first, or from
//! the name that the query says (`view`): each page has its own bound of memory, wherever it
//! begins, and what is made or removed meanwhile moves no other entry to another page. A filter of
//! the query leaves the other names out before they are counted.
//!
//! Cost: each name is read; one `statx` per entry that is shown, and one lookup per link.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::os::fd::AsFd;

use percent_encoding::percent_encode;
use rustix::fs::{AtFlags, Dir, FileType};

use crate::asker::Finder;
use crate::error::FilesError;
use crate::identity::{Identity, Stamp};
use crate::limits::LISTING_ENTRIES_MAX;
use crate::root::{Kind, Opened};
use crate::rules::RootFiles;
use crate::target::is_own;
use crate::target::{ENCODED, ENCODED_PATH, Hidden, is_hidden, joined};
use crate::terms::Terms;

pub(crate) mod html;
pub(crate) mod json;
#[cfg(feature = "markdown")]
mod markdown;
pub(crate) mod order;
pub(crate) mod readme;
pub(crate) mod tools;
pub(crate) mod view;

use view::{View, Window};

/// What a GET of a directory without `index.html` gets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Listing {
    /// A page with its entries; the same as JSON for clients whose `Accept` names
    /// `application/json` and likes it better than `text/html`.
    #[default]
    On,
    /// JSON in any case: an array of objects with `name`, `url` (relative, as bytes that are no
    /// UTF-8 can only be there), `type` (`file` or `directory`), `size` (of files, in bytes) and
    /// `modified` (RFC 3339). Where there are more than 10,000 entries, `Link` (RFC 8288) leads to
    /// the next ones.
    Json,
    /// What a name gets that nothing has: 404, or what the rules have for it.
    Off,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) name: Vec<u8>,
    /// Its kind, or the kind of its target.
    pub(crate) kind: Kind,
    /// Bytes; of a directory not shown.
    pub(crate) size: u64,
    pub(crate) modified: Stamp,
}

/// The entries of a directory that are shown at a time, sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) shown: Vec<Entry>,
    /// How many names there are that the view's filter admits.
    pub(crate) total: usize,
    /// How many of them come before those that are shown.
    pub(crate) preceding: usize,
    /// How many names are of this page, served or not.
    pub(crate) names: usize,
    /// The first and the last of them in byte order.
    pub(crate) ends: Option<(Vec<u8>, Vec<u8>)>,
}

impl Entries {
    /// Reads a directory; `path` is where it lies beneath the root. Links are followed no further
    /// than `reach`.
    ///
    /// # Errors
    /// [`FilesError::OtherMount`] when a link leads beyond the reach; those of an owner that has to
    /// be asked about what a link leads to.
    pub(crate) fn read(
        finder: Finder<'_>,
        path: &[u8],
        directory: &Opened,
        shown: impl Into<Names>,
        view: &View,
    ) -> Result<Self, FilesError> {
        let mut chosen = Chosen::new(&view.window);
        let shown = shown.into().within(directory.terms);
        each_name(directory, path, shown, |name| {
            if view.filter.admits(name) {
                chosen.offer(name);
            }
        })?;
        let mut entries = Self {
            shown: Vec::with_capacity(chosen.names.len()),
            total: chosen.total,
            preceding: chosen.preceding(),
            names: chosen.names.len(),
            ends: None,
        };
        let names = chosen.into_names();
        for name in &names {
            entries
                .shown
                .extend(stat_of(finder, path, directory, name)?);
        }
        let ends = (names.iter().min(), names.iter().max());
        if let (Some(first), Some(last)) = ends {
            entries.ends = Some((first.clone(), last.clone()));
        }
        let order = view.order;
        entries
            .shown
            .sort_unstable_by(|left, right| order.compare(left, right));
        Ok(entries)
    }

    /// What shows the entries before these, if there are any.
    pub(crate) fn previous(&self) -> Option<Window> {
        let (first, _) = self.ends.as_ref()?;
        (self.preceding > 0).then(|| Window::Before(first.clone()))
    }

    /// What shows the entries after these, if there are any.
    pub(crate) fn next(&self) -> Option<Window> {
        let (_, last) = self.ends.as_ref()?;
        let is_more = self.preceding + self.names < self.total;
        is_more.then(|| Window::After(last.clone()))
    }
}

impl Entry {
    /// Bytes of a file.
    pub(crate) fn shown_size(&self) -> u64 {
        match self.kind {
            Kind::Directory => 0,
            Kind::File => self.size,
        }
    }

    /// Where a link in the page of its directory leads. It begins with `./`: a file called `a:b` is
    /// no scheme.
    pub(crate) fn link(&self) -> String {
        let slash = match self.kind {
            Kind::Directory => "/",
            Kind::File => "",
        };
        format!("./{}{slash}", percent_encode(&self.name, ENCODED))
    }
}

/// Where a directory lies, with the slash that its address ends in: for `Location`.
pub(crate) fn directory_address(path: &[u8]) -> String {
    match path {
        [] => "/".to_owned(),
        path => format!("/{}/", percent_encode(path, ENCODED_PATH)),
    }
}

/// Where a file lies: for `Location`.
pub(crate) fn file_address(path: &[u8]) -> String {
    format!("/{}", percent_encode(path, ENCODED_PATH))
}

/// Calls `take` with each name of a directory that may be shown.
fn each_name(
    directory: &Opened,
    path: &[u8],
    shown: Names,
    mut take: impl FnMut(&[u8]),
) -> Result<(), FilesError> {
    for item in Dir::read_from(directory.file.as_fd())? {
        let item = item?;
        let name = item.file_name().to_bytes();
        if shown.has(path, name) {
            take(name);
        }
    }
    Ok(())
}

/// Which names directories show, whatever has them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Names {
    pub(crate) hidden: Hidden,
    pub(crate) root_files: RootFiles,
    /// Of the directory that is shown, where it is the root of another service.
    pub(crate) of_owner: RootFiles,
}

impl Names {
    /// Which of them a directory shows that belongs to another service.
    fn within(self, terms: Option<Terms>) -> Self {
        let Some(terms) = terms else { return self };
        let hidden = match terms.hidden {
            Hidden::Refused => Hidden::Refused,
            Hidden::Served => self.hidden,
        };
        Self {
            hidden,
            of_owner: terms.root_files,
            ..self
        }
    }

    /// Whether a name of the directory at `path` is shown.
    pub(crate) fn has(self, path: &[u8], name: &[u8]) -> bool {
        let is_dot = name == b"." || name == b"..";
        let is_rule_file =
            path.is_empty() && self.root_files.keeps_back(name) || self.of_owner.keeps_back(name);
        let is_kept_back = is_dot || is_own(name) || is_rule_file;
        !is_kept_back && (self.hidden == Hidden::Served || !is_hidden(name))
    }
}

impl From<Hidden> for Names {
    fn from(hidden: Hidden) -> Self {
        Self {
            hidden,
            root_files: RootFiles::Ignored,
            of_owner: RootFiles::Ignored,
        }
    }
}

/// The names of a page, while all are looked at. Memory: the names that are kept.
struct Chosen<'a> {
    window: &'a Window,
    names: Ends,
    total: usize,
    /// Names up to the one that the page begins after; or before the one that it ends before.
    outside: usize,
}

/// The smallest names so far, or the largest.
enum Ends {
    Smallest(BinaryHeap<Vec<u8>>),
    Largest(BinaryHeap<Reverse<Vec<u8>>>),
}

impl<'a> Chosen<'a> {
    fn new(window: &'a Window) -> Self {
        Self {
            window,
            names: match window {
                Window::First | Window::After(_) => Ends::Smallest(BinaryHeap::new()),
                Window::Before(_) => Ends::Largest(BinaryHeap::new()),
            },
            total: 0,
            outside: 0,
        }
    }

    fn offer(&mut self, name: &[u8]) {
        self.total += 1;
        match (self.window, &mut self.names) {
            (Window::After(end), _) if name <= end.as_slice() => self.outside += 1,
            (Window::Before(end), _) if name >= end.as_slice() => {}
            (_, Ends::Smallest(heap)) => keep(heap, name.to_vec()),
            (_, Ends::Largest(heap)) => {
                self.outside += 1;
                keep(heap, Reverse(name.to_vec()));
            }
        }
    }

    fn preceding(&self) -> usize {
        match &self.names {
            Ends::Smallest(_) => self.outside,
            Ends::Largest(heap) => self.outside - heap.len(),
        }
    }

    fn into_names(self) -> Vec<Vec<u8>> {
        match self.names {
            Ends::Smallest(heap) => heap.into_vec(),
            Ends::Largest(heap) => heap.into_iter().map(|Reverse(name)| name).collect(),
        }
    }
}

impl Ends {
    fn len(&self) -> usize {
        match self {
            Self::Smallest(heap) => heap.len(),
            Self::Largest(heap) => heap.len(),
        }
    }
}

/// Keeps the smallest by the heap's order.
fn keep<T: Ord>(heap: &mut BinaryHeap<T>, new: T) {
    if heap.len() < LISTING_ENTRIES_MAX {
        heap.push(new);
    } else if let Some(mut last) = heap.peek_mut()
        && new < *last
    {
        *last = new;
    }
}

/// The entry of this name in a directory, if it is served.
fn stat_of(
    finder: Finder<'_>,
    path: &[u8],
    directory: &Opened,
    name: &[u8],
) -> Result<Option<Entry>, FilesError> {
    // A mount point is another file system's directory: it must not be asked.
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let Ok(statx) = rustix::fs::statx(&directory.file, name, flags, Identity::MASK) else {
        return Ok(None);
    };
    let (kind, identity) = match FileType::from_raw_mode(u32::from(statx.stx_mode)) {
        FileType::RegularFile => (Kind::File, Identity::from_statx(&statx)),
        FileType::Directory => (Kind::Directory, Identity::from_statx(&statx)),
        FileType::Symlink => {
            // Looked up from the root, as a request for it would be: links that lead out of it show
            // nothing here, not even the size of what they lead to.
            match finder.find(&joined(path, name)) {
                Ok(opened) => (opened.kind, opened.identity),
                Err(error) if error.stops_a_list() => return Err(error),
                Err(_) => return Ok(None),
            }
        }
        _ => return Ok(None),
    };
    let (size, modified) = (identity.size, identity.modified);
    Ok(Some(Entry {
        name: name.to_vec(),
        kind,
        size,
        modified,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::asker::Asker;
    use crate::root::{Reach, Root};
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    pub(in crate::listing) fn entries(directory: &Path, path: &str, hidden: Hidden) -> Entries {
        entries_of(directory, path, hidden, &View::default())
    }

    pub(in crate::listing) fn entries_of(
        directory: &Path,
        path: &str,
        hidden: Hidden,
        view: &View,
    ) -> Entries {
        let root = Root::open(directory).expect("open root");
        let opened = root.find(path.as_bytes()).expect("find");
        let path = path.as_bytes();
        let finder = Finder {
            root: &root,
            reach: Reach::Everywhere,
            asker: &Asker::default(),
        };
        Entries::read(finder, path, &opened, hidden, view).expect("read")
    }

    pub(in crate::listing) fn names(entries: &Entries) -> Vec<String> {
        let text = |entry: &Entry| String::from_utf8_lossy(&entry.name).into_owned();
        entries.shown.iter().map(text).collect()
    }

    #[test]
    fn directories_come_first_then_names_in_order() {
        let folder = tempfile::tempdir().expect("tempdir");
        for name in ["b.txt", "a.txt", "B.txt", ".hidden"] {
            fs::write(folder.path().join(name), "12345").expect("write");
        }
        for name in ["z", "y", ".git"] {
            fs::create_dir(folder.path().join(name)).expect("mkdir");
        }
        let shown = entries(folder.path(), "", Hidden::Refused);
        assert_eq!(names(&shown), ["y", "z", "B.txt", "a.txt", "b.txt"]);
        assert_eq!(shown.shown[2].size, 5);
        let all = entries(folder.path(), "", Hidden::Served);
        assert_eq!(
            names(&all),
            [".git", "y", "z", ".hidden", "B.txt", "a.txt", "b.txt"]
        );
    }

    #[test]
    fn only_what_would_be_served_is_shown() {
        let folder = tempfile::tempdir().expect("tempdir");
        let served = folder.path().join("served");
        fs::create_dir_all(served.join("sub")).expect("mkdir");
        fs::write(folder.path().join("secret"), "12345").expect("write");
        fs::write(served.join("sub/file"), "123").expect("write");
        for (target, name) in [
            ("../../secret", "sub/out"),
            ("/etc/passwd", "sub/absolute"),
            ("nothing", "sub/dangling"),
            ("file", "sub/inside"),
            ("../sub", "sub/folder"),
        ] {
            symlink(target, served.join(name)).expect("symlink");
        }
        let _socket = std::os::unix::net::UnixListener::bind(served.join("sub/socket"));
        let shown = entries(&served, "sub", Hidden::Served);
        assert_eq!(names(&shown), ["folder", "file", "inside"]);
        assert_eq!(
            shown.shown[2].size, 3,
            "a link is shown as what it leads to"
        );
    }

    #[test]
    fn addresses_of_directories_stay_on_this_server() {
        assert_eq!(directory_address(b"a b/c"), "/a%20b/c/");
        assert_eq!(
            directory_address(b"\r\nSet-Cookie: x"),
            "/%0D%0ASet-Cookie%3A%20x/"
        );
        assert_eq!(directory_address(b"\\evil.com"), "/%5Cevil.com/");
    }
}
