//! The root of what is served: opens what lies beneath it, and nothing else.
//!
//! Everything is looked up from one descriptor of the directory. Renaming that, or putting another
//! one in its place, changes nothing here: a new directory is another root (`homes`).
//!
//! Decisions
//! - Links are followed as long as every step stays beneath the root (`RESOLVE_BENEATH`): a link to
//!   an absolute path or out by `..` leads to nothing, even where it would come back in. A user
//!   a user who may make links inside the root decides what they show; that includes hidden names.
//! - Links of `/proc` that are no paths (`RESOLVE_NO_MAGICLINKS`) lead to nothing.
//! - Mount points beneath the root are part of it.
//! - Opening never waits: `O_NONBLOCK`, so that a FIFO cannot hold a worker. Only regular files and
//!   directories are handed out; what else was opened is closed again unread.
//!
//! The kernel does the resolving (`openat2`), so no rename can race with it. Where `openat2` is
//! missing (before Linux 5.6) or forbidden (seccomp), `walk` does the same step by step.
//!
//! Cost: one `openat2` and one `statx`.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
#[cfg(test)]
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use flatpath::descriptors::DescriptorHold;
use flatpath::files::{OpenFile, SentFile};
use flatpath::prompt::FileSystem;
use rustix::fs::{AtFlags, FileType, Mode, ResolveFlags, Statx};
use rustix::io::Errno;

use crate::deferred_close::Source;
use crate::error::FilesError;
use crate::identity::{Identity, clock_of_files};
use crate::limits::RENAME_TRIES_MAX;
use crate::stat::stat_of;
use crate::terms::Terms;
use crate::walk::{self, READ};

pub(crate) use crate::stat::Locality;

pub(crate) const BENEATH: ResolveFlags = ResolveFlags::BENEATH.union(ResolveFlags::NO_MAGICLINKS);

#[derive(Debug)]
pub(crate) struct Root {
    directory: OwnedFd,
    resolution: Resolution,
    /// The kernel's number for the mount; `None` before Linux 5.8.
    mount: Option<u64>,
    /// The kind of the mount's file system.
    locality: Locality,
    file_system: Arc<FileSystem>,
}

/// Turns paths into files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: the kernel resolves paths, or this crate does.
pub enum Resolution {
    /// `openat2` with `RESOLVE_BENEATH`.
    Kernel,
    /// One `openat` with `O_NOFOLLOW` per name.
    Walk,
}

/// An open file or directory beneath the root.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) file: File,
    /// When it was asked for: the identity is of this moment or later.
    pub(crate) looked_at: SystemTime,
    /// Its state when it was opened.
    pub(crate) identity: Identity,
    pub(crate) kind: Kind,
    /// It is known that no link led to it.
    pub(crate) is_direct: bool,
    /// Whether its file system answers at once.
    pub(crate) locality: Locality,
    /// What the service says that its directory belongs to, where that is another one.
    pub(crate) terms: Option<Terms>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// Not beyond the mount of the root: what lies there is [`FilesError::OtherMount`], without
    /// walking into it. So is a link that leaves the root. A walk without `openat2` does
    /// not stop at mounts.
    OwnMount,
    /// The same, and only what the kernel has cached: the rest is [`FilesError::NotAtHand`].
    AtHand,
    Everywhere,
}

impl Resolution {
    /// What can resolve paths beneath an open directory on this machine.
    pub(crate) fn beneath(directory: BorrowedFd<'_>) -> Self {
        match rustix::fs::openat2(directory, ".", READ, Mode::empty(), BENEATH) {
            Ok(_) => Self::Kernel,
            Err(refused) => {
                log::info!("openat2 is refused ({refused}): paths are resolved name by name");
                Self::Walk
            }
        }
    }
}

impl Opened {
    /// The file, for a body that is sent piece by piece; `path` is where it lies beneath the root.
    pub(crate) fn into_sent(
        self,
        root: &Root,
        path: &[u8],
        hold: DescriptorHold,
    ) -> Arc<dyn SentFile> {
        let (file, system) = (self.file, &root.file_system);
        match self.locality {
            Locality::Local => Arc::new(OpenFile::new(file, Arc::clone(system), path, Some(hold))),
            Locality::Remote => Arc::new(Source::new(file, self.locality, path, Some(hold))),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
}

impl Root {
    /// What is beneath an open directory, with a given way to resolve paths.
    pub(crate) fn of(directory: OwnedFd, resolution: Resolution) -> io::Result<Self> {
        let mount = stat_of(directory.as_fd())?.mount;
        let file_system = FileSystem::of(&directory);
        Ok(Self {
            locality: match file_system.is_local() {
                true => Locality::Local,
                false => Locality::Remote,
            },
            file_system: Arc::new(file_system),
            directory,
            resolution,
            mount,
        })
    }

    /// What is beneath the directory at a path.
    #[cfg(test)]
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let root = Self::open_with(directory, Resolution::Kernel)?;
        let resolution = Resolution::beneath(root.directory());
        Ok(Self { resolution, ..root })
    }

    #[cfg(test)]
    pub(crate) fn open_with(directory: &Path, resolution: Resolution) -> io::Result<Self> {
        let flags = READ | rustix::fs::OFlags::DIRECTORY;
        let directory = rustix::fs::openat(rustix::fs::CWD, directory, flags, Mode::empty())?;
        Self::of(directory, resolution)
    }

    /// The same root, of which no file is [`Locality::Local`].
    #[must_use]
    pub(crate) fn remote(self) -> Self {
        Self {
            locality: Locality::Remote,
            ..self
        }
    }

    /// The kind of the root's file system.
    pub(crate) fn locality(&self) -> Locality {
        self.locality
    }

    /// Which says what of the root's mount can be read without a wait.
    pub(crate) fn file_system(&self) -> &FileSystem {
        &self.file_system
    }

    /// Whether no lookup of this reach leaves the root's own mount, not even in vain.
    pub(crate) fn stays_on_mount(&self, reach: Reach) -> bool {
        self.resolution == Resolution::Kernel && reach != Reach::Everywhere
    }

    pub(crate) fn resolution(&self) -> Resolution {
        self.resolution
    }

    /// Opens the file or directory at `path`, which is relative; empty means the root itself.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Opened, FilesError> {
        self.find_within(path, Reach::Everywhere)
    }

    /// The same, no further than `reach`: for the server itself. What a request is to get is found
    /// by a [`Finder`](crate::asker::Finder).
    pub(crate) fn find_within(&self, path: &[u8], reach: Reach) -> Result<Opened, FilesError> {
        let looked_at = clock_of_files();
        let path = if path.is_empty() { b"." } else { path };
        let mut is_direct = false;
        let resolved = match (self.resolution, reach) {
            (Resolution::Kernel, Reach::AtHand) => self.resolve_cached(path, &mut is_direct),
            (Resolution::Kernel, _) => self.resolve(path, reach),
            (Resolution::Walk, Reach::AtHand) => Err(Errno::AGAIN),
            (Resolution::Walk, _) => walk::resolve(self.directory.as_fd(), path),
        };
        let descriptor = resolved.map_err(|errno| unresolved(errno, path, reach))?;
        self.opened(descriptor, looked_at, is_direct)
    }

    /// What a descriptor is open for.
    pub(crate) fn opened(
        &self,
        descriptor: OwnedFd,
        looked_at: SystemTime,
        is_direct: bool,
    ) -> Result<Opened, FilesError> {
        let stat = stat_of(descriptor.as_fd())?;
        let kind = match stat.file_type {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Directory,
            _ => return Err(FilesError::NotFound),
        };
        let is_own = stat.mount.is_some() && stat.mount == self.mount;
        Ok(Opened {
            file: File::from(descriptor),
            looked_at,
            identity: stat.identity,
            kind,
            is_direct,
            terms: None,
            locality: if is_own {
                self.locality
            } else {
                Locality::Remote
            },
        })
    }

    pub(crate) fn directory(&self) -> BorrowedFd<'_> {
        self.directory.as_fd()
    }

    /// The entry at `path` now, link or not; links above it are followed, wherever they lead.
    /// May return what a network file system has cached. For comparing only.
    pub(crate) fn inspect(&self, path: &CStr) -> Result<Statx, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
        rustix::fs::statx(&self.directory, path, flags, Identity::MASK)
    }

    /// A file that the kernel has cached; without links first, which spares a look for them.
    fn resolve_cached(&self, path: &[u8], is_direct: &mut bool) -> Result<OwnedFd, Errno> {
        let cached = BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::CACHED;
        let open = |how| rustix::fs::openat2(&self.directory, path, READ, Mode::empty(), how);
        match open(cached | ResolveFlags::NO_SYMLINKS) {
            Err(Errno::LOOP) => open(cached),
            direct => {
                *is_direct = true;
                direct
            }
        }
    }

    fn resolve(&self, path: &[u8], reach: Reach) -> Result<OwnedFd, Errno> {
        let beneath = match reach {
            Reach::OwnMount | Reach::AtHand => BENEATH | ResolveFlags::NO_XDEV,
            Reach::Everywhere => BENEATH,
        };
        for _ in 0..RENAME_TRIES_MAX {
            match rustix::fs::openat2(&self.directory, path, READ, Mode::empty(), beneath) {
                Err(Errno::AGAIN | Errno::INTR) => {}
                outcome => return outcome,
            }
        }
        // Another process renames without a pause. The walk needs no such certainty: it holds every
        // directory that it came through.
        walk::resolve(self.directory.as_fd(), path)
    }
}

/// Why a path led to nothing.
pub(crate) fn unresolved(errno: Errno, path: &[u8], reach: Reach) -> FilesError {
    match errno {
        Errno::AGAIN | Errno::INVAL if reach == Reach::AtHand => FilesError::NotAtHand,
        Errno::XDEV if reach != Reach::Everywhere => FilesError::OtherMount,
        Errno::XDEV => {
            // The operator may have meant it to be served; the client learns nothing.
            let path = String::from_utf8_lossy(path);
            log::info!("{path:?} is not served: a link on the way leads out of the directory");
            FilesError::NotFound
        }
        errno => errno.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::CWD;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use tempfile::TempDir;

    const BOTH: [Resolution; 2] = [Resolution::Kernel, Resolution::Walk];

    /// A folder `served` with a few files, and `outside/secret` beside it.
    fn folder() -> TempDir {
        let folder = tempfile::tempdir().expect("tempdir");
        let path = folder.path();
        fs::create_dir_all(path.join("served/sub/deep")).expect("mkdir");
        fs::create_dir_all(path.join("outside")).expect("mkdir");
        fs::write(path.join("served/a.txt"), "inside").expect("write");
        fs::write(path.join("served/sub/b.txt"), "inside").expect("write");
        fs::write(path.join("served/sub/deep/c.txt"), "inside").expect("write");
        fs::write(path.join("outside/secret"), "outside").expect("write");
        fs::write(path.join("outside/b.txt"), "outside").expect("write");
        folder
    }

    fn roots(folder: &TempDir) -> Vec<Root> {
        let served = folder.path().join("served");
        BOTH.map(|resolution| Root::open_with(&served, resolution).expect("open root"))
            .into()
    }

    fn content(root: &Root, path: &str) -> Result<String, FilesError> {
        let mut opened = root.find(path.as_bytes())?;
        let mut text = String::new();
        opened.file.read_to_string(&mut text).expect("read");
        Ok(text)
    }

    fn link(folder: &TempDir, target: &str, name: &str) {
        symlink(target, folder.path().join("served").join(name)).expect("symlink");
    }

    #[test]
    fn files_directories_and_the_root_itself_are_found() {
        let folder = folder();
        for root in roots(&folder) {
            let file = root.find(b"sub/b.txt").expect("a file");
            assert_eq!((file.kind, file.identity.size), (Kind::File, 6));
            for path in [&b""[..], b"sub", b"sub/deep"] {
                let found = root.find(path).expect("a directory");
                assert_eq!(found.kind, Kind::Directory);
            }
            assert_eq!(content(&root, "sub/deep/c.txt"), Ok("inside".into()));
        }
    }

    #[test]
    fn what_is_not_there_is_not_found() {
        let folder = folder();
        let long = "n".repeat(300);
        let deep = "d/".repeat(2_100) + "x";
        for root in roots(&folder) {
            for path in [
                "none",
                "sub/none",
                "a.txt/b",
                "a.txt/",
                "none/b.txt",
                &long,
                &deep,
            ] {
                assert_eq!(content(&root, path), Err(FilesError::NotFound), "{path}");
            }
        }
    }

    #[test]
    fn links_that_stay_beneath_are_followed() {
        let folder = folder();
        link(&folder, "a.txt", "to-file");
        link(&folder, "to-file", "to-link");
        link(&folder, "sub", "to-folder");
        link(&folder, "../a.txt", "sub/up");
        link(&folder, "../../sub/./deep//../up", "sub/deep/round");
        link(&folder, "sub/deep/..", "to-dots");
        link(&folder, "sub/", "to-slash");
        for root in roots(&folder) {
            for path in [
                "to-file",
                "to-link",
                "to-folder/b.txt",
                "sub/up",
                "to-folder/up",
                "sub/deep/round",
                "to-dots/b.txt",
                "to-slash/b.txt",
            ] {
                assert_eq!(content(&root, path), Ok("inside".into()), "{path}");
            }
            let dots = root.find(b"to-dots").expect("found");
            assert_eq!(dots.kind, Kind::Directory);
        }
    }

    #[test]
    fn links_that_leave_the_root_lead_to_nothing() {
        let folder = folder();
        let outside = folder.path().join("outside");
        let outside = outside.to_str().expect("utf-8");
        let own = folder.path().join("served/a.txt");
        link(&folder, &format!("{outside}/secret"), "absolute");
        link(&folder, outside, "absolute-folder");
        link(&folder, own.to_str().expect("utf-8"), "absolute-but-inside");
        link(&folder, "../outside/secret", "relative");
        link(&folder, "../outside", "relative-folder");
        link(&folder, "sub/../../outside/secret", "winding");
        link(&folder, "../served/a.txt", "out-and-back");
        link(&folder, "relative-folder/secret", "chained");
        link(&folder, "..", "parent");
        link(&folder, "/", "slash");
        for root in roots(&folder) {
            for path in [
                "absolute",
                "absolute-folder/secret",
                "absolute-folder",
                "absolute-but-inside",
                "relative",
                "relative-folder/secret",
                "relative-folder",
                "winding",
                "out-and-back",
                "chained",
                "parent",
                "parent/outside/secret",
                "slash",
                "slash/etc/passwd",
            ] {
                assert_eq!(content(&root, path), Err(FilesError::NotFound), "{path}");
            }
        }
    }

    #[test]
    fn dots_in_a_path_do_not_climb_even_if_they_come_this_far() {
        let folder = folder();
        for root in roots(&folder) {
            for path in [
                "../outside/secret",
                "sub/../../outside/secret",
                "..",
                "/etc/passwd",
            ] {
                assert_eq!(content(&root, path), Err(FilesError::NotFound), "{path}");
            }
        }
    }

    #[test]
    fn circles_of_links_end() {
        let folder = folder();
        link(&folder, "circle", "circle");
        link(&folder, "pong", "ping");
        link(&folder, "ping", "pong");
        link(&folder, "grow/x", "grow");
        link(&folder, "a.txt", "chain-0");
        for step in 0..50 {
            link(
                &folder,
                &format!("chain-{step}"),
                &format!("chain-{}", step + 1),
            );
        }
        for root in roots(&folder) {
            for path in ["circle", "ping", "circle/x", "grow", "chain-50"] {
                assert_eq!(content(&root, path), Err(FilesError::NotFound), "{path}");
            }
            assert_eq!(content(&root, "chain-30"), Ok("inside".into()));
        }
    }

    #[test]
    fn links_of_proc_that_are_no_paths_lead_to_nothing() {
        for resolution in BOTH {
            let root = Root::open_with(Path::new("/proc/self"), resolution).expect("proc");
            assert!(root.find(b"status").is_ok());
            for path in [
                &b"root"[..],
                b"root/etc/passwd",
                b"cwd",
                b"exe",
                b"fd/0",
                b"fd/1",
            ] {
                let outcome = root.find(path).map(|opened| opened.kind);
                assert_eq!(outcome, Err(FilesError::NotFound), "{path:?}");
            }
        }
    }

    #[test]
    fn a_fifo_or_a_socket_is_refused_at_once() {
        let folder = folder();
        let served = folder.path().join("served");
        let mode = Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(CWD, served.join("fifo"), FileType::Fifo, mode, 0).expect("mkfifo");
        let _socket = UnixListener::bind(served.join("socket")).expect("bind");
        let (sender, receiver) = mpsc::channel();
        let roots = roots(&folder);
        std::thread::spawn(move || {
            for root in roots {
                for path in [&b"fifo"[..], b"socket"] {
                    sender
                        .send(root.find(path).map(|opened| opened.kind))
                        .expect("send");
                }
            }
        });
        for _ in 0..2 * BOTH.len() {
            let outcome = receiver
                .recv_timeout(flatpath_testkit::patience())
                .expect("opening hangs");
            assert_eq!(outcome, Err(FilesError::NotFound));
        }
    }

    #[test]
    fn the_directory_opened_at_start_stays_the_root() {
        let folder = folder();
        let roots = roots(&folder);
        let served = folder.path().join("served");
        fs::rename(&served, folder.path().join("moved")).expect("rename");
        symlink("outside", &served).expect("symlink");
        for root in roots {
            assert_eq!(content(&root, "a.txt"), Ok("inside".into()));
            assert_eq!(content(&root, "secret"), Err(FilesError::NotFound));
        }
    }

    #[test]
    fn stress_a_folder_swapped_for_a_link_never_leads_outside() {
        let folder = folder();
        let served = folder.path().join("served");
        symlink("../outside", served.join("evil")).expect("symlink");
        let stop = AtomicBool::new(false);
        let swap = || {
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            rustix::fs::renameat_with(CWD, served.join("sub"), CWD, served.join("evil"), flags)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    swap().expect("exchange");
                }
            });
            let mut outcomes = Vec::new();
            for root in roots(&folder) {
                outcomes.extend((0..10_000).map(|_| content(&root, "sub/b.txt")));
            }
            // Before any assertion: a panic here would wait for the swapping thread for ever.
            stop.store(true, Ordering::Relaxed);
            let inside = outcomes
                .iter()
                .filter(|text| **text == Ok("inside".into()))
                .count();
            let refused = outcomes
                .iter()
                .filter(|text| **text == Err(FilesError::NotFound))
                .count();
            assert_eq!(inside + refused, outcomes.len(), "something else was read");
            assert!(inside > 0, "the race never let a file be read");
        });
    }

    #[test]
    fn where_openat2_is_forbidden_the_walk_takes_over() {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
        const OPENAT2: i64 = 437;
        let folder = folder();
        for errno in [Errno::NOSYS, Errno::PERM] {
            let served = folder.path().join("served");
            // A filter binds the thread that installs it, so the others are not concerned.
            let thread = std::thread::spawn(move || {
                let code = u32::try_from(errno.raw_os_error()).expect("an errno");
                let rules = [(OPENAT2, Vec::new())].into_iter().collect();
                let here = std::env::consts::ARCH
                    .try_into()
                    .expect("known architecture");
                let refuse = SeccompAction::Errno(code);
                let filter = SeccompFilter::new(rules, SeccompAction::Allow, refuse, here);
                let program = BpfProgram::try_from(filter.expect("filter")).expect("program");
                seccompiler::apply_filter(&program).expect("seccomp");
                let root = Root::open(&served).expect("open");
                (root.resolution(), content(&root, "sub/b.txt"))
            });
            let outcome = thread.join().expect("thread");
            assert_eq!(outcome, (Resolution::Walk, Ok("inside".into())));
        }
    }
}
