//! The directory that a path leads to, followed for as long as it is served.
//!
//! A deploy puts another directory in the place of the one that is served: it switches a link,
//! renames, or removes the directory and makes it again. So the path is asked again, twice a second
//! and when [`look_again`] is called, and whoever serves it learns what it leads to by now.
//!
//! | the path leads to               | what follows                                             |
//! |---------------------------------|----------------------------------------------------------|
//! | the same directory              | nothing                                                  |
//! | another one                     | that is served from now on                               |
//! | nothing, or one that may not be read | seen twice: nothing is served (503) until it is back |
//! | what cannot be looked at        | nothing: the one that is open is served on               |
//!
//! Decisions
//! - A directory is the same if device, inode and mount are. The one that is served is held open,
//!   so no other gets its inode.
//! - A path that leads nowhere once may be in the middle of two renames: it is asked again a moment
//!   later, before it counts as lost.
//! - A path that may not be searched any more (a process that has given up its rights), a lack of
//!   descriptors and an error of the disk say nothing about the directory.
//! - A relative path begins in the working directory of the moment in which it was first opened.
//!
//! All services of one path share one [`Followed`]. The housekeeper asks for what the kernel has
//! cached (`RESOLVE_CACHED`), which never waits; where that is not enough, and for all that
//! follows, there is a thread for as long as it takes. One path that hangs holds up no other.
//!
//! | may run beside | open | directory, missing | look |
//! |----------------|------|--------------------|------|
//! | each of them   | yes  | yes                | yes, one after the other for one path |
//!
//! Cost: three system calls for each path, twice a second; two descriptors for each path.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, OnceLock, Weak};

use flatpath::contain;
use flatpath::housekeeper::{Next, Task};
use flatpath::lock::Lock;
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, StatxFlags, fstat, openat, openat2, statx,
};
use rustix::io::Errno;

use crate::limits::{FOLLOW_GRACE, FOLLOW_INTERVAL};
use crate::stat::stat_cached;
use crate::walk::{DirectoryId, READ};

/// A path as it was named, without a look at the disk.
const NAME: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// All that are followed.
static FOLLOWED: LazyLock<Lock<HashMap<PathBuf, Weak<Followed>>>> = LazyLock::new(Lock::default);

/// Is called when a path leads elsewhere, or nowhere. May wait.
pub(crate) trait Follower: Send + Sync {
    fn changed(&self);
}

/// A directory that a path led to.
pub(crate) struct Directory {
    opened: OwnedFd,
    place: Place,
    whereabouts: Arc<Whereabouts>,
}

/// Which directory it is, and where.
#[derive(Debug)]
pub(crate) struct Whereabouts {
    pub(crate) id: DirectoryId,
    /// As the kernel has it, and by the name that led to it. None without `/proc`.
    pub(crate) paths: Vec<PathBuf>,
}

/// What tells one directory from another: device, inode, and the mount where the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    device: u64,
    inode: u64,
    mount: Option<u64>,
}

/// A path that is followed.
pub(crate) struct Followed {
    path: PathBuf,
    state: Lock<State>,
    followers: Lock<Vec<Weak<dyn Follower>>>,
    /// One look at a time.
    looks: Lock<()>,
    has_thread: AtomicBool,
    task: OnceLock<Task>,
}

#[derive(Clone, Debug)]
enum State {
    There {
        directory: Arc<Directory>,
        last: LastLook,
    },
    Missing {
        cause: Errno,
        before: Arc<Whereabouts>,
    },
}

/// What the last look at a path found whose directory is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastLook {
    Directory,
    Nothing,
    /// It told nothing.
    Blind,
}

/// What a look at the path came to.
#[derive(Debug)]
enum Look {
    Same,
    Another(Arc<Directory>),
    /// There is none, or none that may be read.
    Nothing(Errno),
    /// It could not be looked at, for a reason that says nothing about the directory.
    Unseen(Errno),
}

/// What follows from a look.
#[derive(Debug)]
enum Verdict {
    /// Nothing, not even a line.
    Stays,
    Seen,
    /// It is looked at again soon.
    Missed,
    Blind(Errno),
    Lost(Errno),
    Changed(Arc<Directory>),
    Back(Arc<Directory>),
}

impl Directory {
    fn open(path: &Path) -> io::Result<Self> {
        let opened = openat(CWD, path, READ | OFlags::DIRECTORY, Mode::empty())?;
        Self::of(opened, path)
    }

    /// `path` led to it a moment ago.
    pub(crate) fn of(opened: OwnedFd, path: &Path) -> io::Result<Self> {
        Ok(Self {
            place: Place::of(opened.as_fd())?,
            whereabouts: Arc::new(Whereabouts {
                id: (&fstat(&opened)?).into(),
                paths: paths_of(opened.as_fd(), path),
            }),
            opened,
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }

    pub(crate) fn id(&self) -> DirectoryId {
        self.whereabouts.id
    }

    /// Whether it has no name any more, by what the kernel has cached.
    pub(crate) fn is_removed(&self) -> bool {
        let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
        let found = statx(&self.opened, c"", flags, StatxFlags::NLINK);
        found.is_ok_and(|found| found.stx_nlink == 0)
    }

    /// Another descriptor of it.
    pub(crate) fn reopen(&self) -> io::Result<OwnedFd> {
        self.opened.try_clone()
    }
}

impl fmt::Debug for Followed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Followed");
        shown.field("path", &self.path);
        shown.field("state", &*self.state.lock());
        shown.finish_non_exhaustive()
    }
}

impl fmt::Debug for Directory {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.whereabouts.fmt(formatter)
    }
}

impl Place {
    fn of(directory: BorrowedFd<'_>) -> Result<Self, Errno> {
        let stat = stat_cached(directory)?;
        match stat.file_type {
            FileType::Directory => Ok(Self {
                device: stat.identity.device,
                inode: stat.identity.inode,
                mount: stat.mount,
            }),
            _ => Err(Errno::NOTDIR),
        }
    }
}

/// Where an open directory is by now.
pub(crate) fn path_of(directory: BorrowedFd<'_>) -> Option<PathBuf> {
    std::fs::read_link(format!("/proc/self/fd/{}", directory.as_raw_fd())).ok()
}

/// The same, and where a link lies that it was opened by.
fn paths_of(directory: BorrowedFd<'_>, name: &Path) -> Vec<PathBuf> {
    let Some(path) = path_of(directory) else {
        return Vec::new();
    };
    let parent = name
        .parent()
        .map(|parent| match parent.as_os_str().is_empty() {
            true => Path::new("."),
            false => parent,
        });
    let named = parent.and_then(|parent| Some(parent.canonicalize().ok()?.join(name.file_name()?)));
    let mut paths = vec![path];
    paths.extend(named.filter(|named| *named != paths[0]));
    paths
}

impl Followed {
    /// The path from now on. One that is followed already is looked at.
    ///
    /// # Errors
    /// Those of opening a directory for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Arc<Self>> {
        // Without a working directory a relative path leads to nothing, which the kernel says.
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let known = || FOLLOWED.lock().get(&path).and_then(Weak::upgrade);
        let followed = match known() {
            Some(known) => known,
            None => Self::begin(path.clone())?,
        };
        followed.look();
        // In the middle of two renames, too: what is opened has to be there.
        let gone = match &*followed.state.lock() {
            State::There { last, .. } => (*last == LastLook::Nothing).then_some(Errno::NOENT),
            State::Missing { cause, .. } => Some(*cause),
        };
        match gone {
            Some(cause) => Err(cause.into()),
            None => Ok(followed),
        }
    }

    fn begin(path: PathBuf) -> io::Result<Arc<Self>> {
        let directory = Arc::new(Directory::open(&path)?);
        let new = Arc::new(Self {
            path: path.clone(),
            state: Lock::new(State::there(directory)),
            followers: Lock::default(),
            looks: Lock::default(),
            has_thread: AtomicBool::new(false),
            task: OnceLock::new(),
        });
        let mut all = FOLLOWED.lock();
        all.retain(|_, followed| followed.strong_count() > 0);
        if let Some(known) = all.get(&path).and_then(Weak::upgrade) {
            // Another thread was faster.
            return Ok(known);
        }
        all.insert(path, Arc::downgrade(&new));
        drop(all);
        let followed = Arc::downgrade(&new);
        let task = Task::begin("served directories", move |_| match followed.upgrade() {
            Some(followed) => followed.next(),
            None => Next::Ended,
        });
        match task {
            Ok(task) => drop(new.task.set(task)),
            Err(cause) => log::warn!(
                "the directory {} is not followed: {cause}; it is served as it is now",
                new.path.display()
            ),
        }
        Ok(new)
    }

    /// What the path leads to; `None` if it leads nowhere.
    pub(crate) fn directory(&self) -> Option<Arc<Directory>> {
        match &*self.state.lock() {
            State::There { directory, .. } => Some(Arc::clone(directory)),
            State::Missing { .. } => None,
        }
    }

    /// Which directory that is, or was before the path led nowhere; and the directory.
    pub(crate) fn whereabouts(&self) -> (Arc<Whereabouts>, Option<Arc<Directory>>) {
        match &*self.state.lock() {
            State::There { directory, .. } => {
                let open = Some(Arc::clone(directory));
                (Arc::clone(&directory.whereabouts), open)
            }
            State::Missing { before, .. } => (Arc::clone(before), None),
        }
    }

    /// Calls this one when it leads elsewhere, for as long as it lives.
    pub(crate) fn tell(&self, follower: Weak<dyn Follower>) {
        let mut followers = self.followers.lock();
        followers.retain(|it| it.strong_count() > 0);
        if !followers.iter().any(|it| it.ptr_eq(&follower)) {
            followers.push(follower);
        }
    }

    /// On the housekeeper's thread: what the kernel has cached, and a thread for the rest.
    fn next(self: &Arc<Self>) -> Next {
        if !self.is_same_at_hand() {
            self.begin_look();
        }
        Next::After(FOLLOW_INTERVAL)
    }

    fn is_same_at_hand(&self) -> bool {
        let Some(directory) = self.directory() else {
            return false;
        };
        let how = ResolveFlags::CACHED;
        let found = openat2(CWD, &self.path, NAME, Mode::empty(), how);
        found.is_ok_and(|found| Place::of(found.as_fd()) == Ok(directory.place))
    }

    fn begin_look(self: &Arc<Self>) {
        // ORDER: Relaxed: the flag alone counts; the state has its own lock.
        if self.has_thread.swap(true, Ordering::Relaxed) {
            return;
        }
        let followed = Arc::clone(self);
        let thread = std::thread::Builder::new().name("flatpath-follow".into());
        let started = thread.spawn(move || {
            let _ = contain(|| {
                if followed.look() {
                    std::thread::sleep(FOLLOW_GRACE);
                    followed.look();
                }
            });
            followed.has_thread.store(false, Ordering::Relaxed);
        });
        if started.is_err() {
            // Tried again with the next look. Others log the lack of threads.
            self.has_thread.store(false, Ordering::Relaxed);
        }
    }

    /// Looks at the path, and tells all that serve it what has changed. May wait. True if it is to
    /// be looked at again soon.
    fn look(&self) -> bool {
        let _one = self.looks.lock();
        let before = self.state.lock().clone();
        let look = self.seen(&before);
        let verdict = before.judge(look);
        let (path, is_missed) = (self.path.display(), matches!(verdict, Verdict::Missed));
        let (after, is_told) = match verdict {
            Verdict::Stays => return false,
            Verdict::Seen => (before.with(LastLook::Directory), false),
            Verdict::Missed => (before.with(LastLook::Nothing), false),
            Verdict::Blind(cause) => {
                log::warn!(
                    "the directory {path} cannot be looked at: {cause}; the one that is open is \
                     served, whatever takes its place"
                );
                (before.with(LastLook::Blind), false)
            }
            Verdict::Lost(cause) => {
                log::warn!(
                    "the directory {path} is gone: {cause}; requests get 503 until it is back"
                );
                (before.missing(cause), true)
            }
            Verdict::Changed(directory) => {
                log::info!("the directory {path} is another one now, which is served");
                (State::there(directory), true)
            }
            Verdict::Back(directory) => {
                log::info!("the directory {path} is back, and is served");
                (State::there(directory), true)
            }
        };
        *self.state.lock() = after;
        // The last holder of a directory closes it without the lock.
        drop(before);
        if is_told {
            self.tell_all();
        }
        is_missed
    }

    fn tell_all(&self) {
        let followers = self.followers.lock().clone();
        for follower in followers.iter().filter_map(Weak::upgrade) {
            follower.changed();
        }
    }

    fn seen(&self, before: &State) -> Look {
        let named = match openat(CWD, &self.path, NAME, Mode::empty()) {
            Ok(named) => named,
            Err(errno) if is_absence(errno) => return Look::Nothing(errno),
            Err(errno) => return Look::Unseen(errno),
        };
        let found = match Place::of(named.as_fd()) {
            Ok(found) => found,
            Err(errno) => return Look::Unseen(errno),
        };
        if let State::There { directory, .. } = before
            && directory.place == found
        {
            return Look::Same;
        }
        let opened = openat(&named, c".", READ | OFlags::DIRECTORY, Mode::empty());
        let directory = match opened {
            // It was removed since it was named.
            Err(errno) if is_absence(errno) => return Look::Nothing(errno),
            Err(errno @ (Errno::ACCESS | Errno::PERM)) => return Look::Nothing(errno),
            Err(errno) => return Look::Unseen(errno),
            Ok(opened) => Directory::of(opened, &self.path),
        };
        match directory {
            Ok(directory) => Look::Another(Arc::new(directory)),
            Err(error) => Look::Unseen(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
        }
    }
}

/// Whether a path that leads to this error leads to no directory.
fn is_absence(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG
    )
}

impl State {
    fn there(directory: Arc<Directory>) -> Self {
        let last = LastLook::Directory;
        Self::There { directory, last }
    }

    fn with(&self, last: LastLook) -> Self {
        match self.clone() {
            Self::There { directory, .. } => Self::There { directory, last },
            missing @ Self::Missing { .. } => missing,
        }
    }

    fn missing(&self, cause: Errno) -> Self {
        let before = match self {
            Self::There { directory, .. } => &directory.whereabouts,
            Self::Missing { before, .. } => before,
        };
        let before = Arc::clone(before);
        Self::Missing { cause, before }
    }

    fn judge(&self, look: Look) -> Verdict {
        match (self, look) {
            (Self::Missing { .. }, Look::Another(directory)) => Verdict::Back(directory),
            (Self::Missing { .. }, _) => Verdict::Stays,
            (Self::There { .. }, Look::Same) => Verdict::Seen,
            (Self::There { .. }, Look::Another(directory)) => Verdict::Changed(directory),
            (Self::There { last, .. }, Look::Nothing(cause)) => match last {
                LastLook::Nothing => Verdict::Lost(cause),
                LastLook::Directory | LastLook::Blind => Verdict::Missed,
            },
            (Self::There { last, .. }, Look::Unseen(cause)) => match last {
                LastLook::Blind => Verdict::Stays,
                LastLook::Directory | LastLook::Nothing => Verdict::Blind(cause),
            },
        }
    }
}

/// Asks again what all served directories' paths lead to, soon and on other threads: as a program
/// does that reads its configuration again.
pub fn look_again() {
    for followed in all() {
        if let Some(task) = followed.task.get() {
            task.wake();
        }
    }
}

/// The served directories whose paths lead nowhere now, by path, each with the reason. No look at
/// the disk.
#[must_use]
pub fn missing_directories() -> Vec<(PathBuf, io::Error)> {
    let mut missing: Vec<(PathBuf, io::Error)> = Vec::new();
    for followed in all() {
        if let State::Missing { cause, .. } = &*followed.state.lock() {
            missing.push((followed.path.clone(), (*cause).into()));
        }
    }
    missing.sort_by(|one, other| one.0.cmp(&other.0));
    missing
}

fn all() -> Vec<Arc<Followed>> {
    FOLLOWED.lock().values().filter_map(Weak::upgrade).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn look(state: &State, found: Look) -> &'static str {
        match state.judge(found) {
            Verdict::Stays => "stays",
            Verdict::Seen => "seen",
            Verdict::Missed => "missed",
            Verdict::Blind(_) => "blind",
            Verdict::Lost(_) => "lost",
            Verdict::Changed(_) => "changed",
            Verdict::Back(_) => "back",
        }
    }

    #[test]
    fn a_look_is_judged_by_what_is_served_and_the_look_before() {
        let folder = tempfile::tempdir().expect("a directory");
        let directory = || Arc::new(Directory::open(folder.path()).expect("open"));
        let there = State::there(directory());
        let gone = there.missing(Errno::NOENT);
        let looks = || {
            [
                Look::Same,
                Look::Another(directory()),
                Look::Nothing(Errno::NOENT),
                Look::Unseen(Errno::MFILE),
            ]
        };
        for (state, verdicts) in [
            (&there, ["seen", "changed", "missed", "blind"]),
            (
                &there.with(LastLook::Nothing),
                ["seen", "changed", "lost", "blind"],
            ),
            (
                &there.with(LastLook::Blind),
                ["seen", "changed", "missed", "stays"],
            ),
            (&gone, ["stays", "back", "stays", "stays"]),
        ] {
            assert_eq!(
                looks().map(|found| look(state, found)),
                verdicts,
                "{state:?}"
            );
        }
    }

    #[test]
    fn services_of_one_path_share_what_follows_it() {
        let folder = tempfile::tempdir().expect("a directory");
        let one = Followed::open(folder.path()).expect("open");
        let other = Followed::open(&folder.path().join(".")).expect("open");
        assert!(Arc::ptr_eq(&one, &other));
        assert!(one.is_same_at_hand() || !one.look());
    }

    #[test]
    fn what_is_opened_has_to_be_there_whatever_was_served() {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("served");
        fs::create_dir(&path).expect("mkdir");
        let served = Followed::open(&path).expect("open");
        fs::remove_dir(&path).expect("rmdir");
        for _ in 0..3 {
            let refused = Followed::open(&path).expect_err("it is gone");
            assert_eq!(refused.kind(), io::ErrorKind::NotFound);
        }
        fs::write(&path, "a file").expect("written");
        let refused = Followed::open(&path).expect_err("it is a file");
        assert_eq!(refused.kind(), io::ErrorKind::NotFound, "as it was lost");
        fs::remove_file(&path).expect("removed");
        fs::create_dir(&path).expect("mkdir");
        let again = Followed::open(&path).expect("it is back");
        assert!(Arc::ptr_eq(&served, &again));
    }
}
