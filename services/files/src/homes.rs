//! The root of a service with all that is known of it, as one value that is replaced when the path
//! of the served directory leads elsewhere.
//!
//! Whatever goes by a name below the root belongs to one [`Home`]: the root itself, the mounts
//! below it, its rule files, its uploads, and which directories below it are other services'. A
//! request takes the home once, at its beginning, and ends with it. So it sees one directory
//! whatever a deploy does meanwhile.
//!
//! A network thread keeps the home beside its cache ([`KeptHome`]), and compares a version for each
//! request ([`Versions::home`]): what it has cached is of that version, and is gone with it. The
//! version also grows when the mounts below the root change, as a path may lead into another one
//! then. A home that is replaced is taken from the threads that have it, so an idle one keeps no
//! directory of a release that is to be removed.
//!
//! Invariants
//! - HM1: what was found under a version is cached under no other one (`Cache::insert`).
//! - HM2: the version grows after the home that it stands for is there, under the same lock; so who
//!   reads it before the home has one that is as old or older.
//! - HM4: a thread fetches a home with its [`KeptHome`] locked, and what was replaced is taken out
//!   after the new one is there; so none puts an old one there that nobody takes out again.
//! - HM3: nothing is tried on a network thread (`PromptRight`) in a home that is not local: the
//!   right is taken away before such a home comes, and given back after it went.
//!
//! Does not: close the root of a home that was replaced before its last request has ended.
//!
//! | may run beside | current | version | changed | kept |
//! |----------------|---------|---------|---------|------|
//! | each of them   | yes     | yes     | yes, one after the other | yes |
//!
//! Cost: a relaxed load and a comparison for a request on a network thread, and a lock that none
//! other wants for a look at the root; a short lock on a worker.

use std::io;
use std::path::Path;
use std::sync::{Arc, Weak};

use flatpath::blocking::{BlockingLimit, WaitLimits};
use flatpath::housekeeper::Task;
use flatpath::lock::{Guard, Lock};
use flatpath::prompt::{PromptRight, look_into};

use crate::asker::Asker;
use crate::conditional::EntityTags;
use crate::followed::{Directory, Followed, Follower};
use crate::kept::KeptFiles;
use crate::mounts::{Known, Mounts};
use crate::owners::{Owner, Owners};
use crate::root::{Locality, Resolution, Root};
use crate::rules::{RootFiles, RuleFiles};
use crate::target::Hidden;
use crate::tus::ledger::{Ledger, Uploads};
use crate::tus::sweep::Sweeper;
use crate::versions::Versions;
use crate::writing::WriteOptions;

/// One root, with what is known of it.
#[derive(Debug)]
pub(crate) struct Home {
    directory: Arc<Directory>,
    pub(crate) root: Arc<Root>,
    pub(crate) mounts: Arc<Mounts>,
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) rule_files: Arc<RuleFiles>,
    /// None where nothing would close them.
    pub(crate) kept: Option<Arc<KeptFiles>>,
    /// Other services with directories below the root.
    pub(crate) owners: Owners,
}

/// A home, and the version that it had when a request began there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay<'a> {
    pub(crate) version: u64,
    pub(crate) home: &'a Home,
}

/// The home of a service by now.
#[derive(Debug)]
pub(crate) struct Homes {
    followed: Arc<Followed>,
    versions: Arc<Versions>,
    /// Whether a file that is not in the cache is tried on the network thread.
    right: PromptRight,
    resolution: Resolution,
    /// Of all mounts that links lead to, whichever the root is.
    linked: BlockingLimit,
    setup: Lock<Setup>,
    current: Lock<Current>,
    /// What network threads have.
    kept: Lock<Vec<Weak<KeptPlace>>>,
}

/// Where a network thread has its home, for itself and for who replaces it.
type KeptPlace = Lock<Option<Arc<Home>>>;

/// The home that a network thread goes by, until it is replaced.
#[derive(Clone, Debug)]
pub(crate) struct KeptHome(Arc<KeptPlace>);

impl KeptHome {
    /// None was fetched yet, there is none, or it was replaced.
    pub(crate) fn get(&self) -> Guard<'_, Option<Arc<Home>>> {
        self.0.lock()
    }
}

/// What a home is made of besides its directory.
#[derive(Debug, Default)]
struct Setup {
    beside: Vec<Owner>,
    /// Of a service that is writable.
    writes: Option<WriteOptions>,
}

#[derive(Debug, Default)]
struct Current {
    home: Option<Arc<Home>>,
    /// They end with the home's time, and not with its last request.
    _mounts: Option<Task>,
    _kept: Option<Task>,
    sweeper: Option<Sweeper>,
}

impl Homes {
    /// Of the directory that this path leads to, from now on.
    ///
    /// # Errors
    /// Those of opening a directory for reading.
    pub(crate) fn open(path: &Path) -> io::Result<Arc<Self>> {
        let followed = Followed::open(path)?;
        let resolution = followed
            .directory()
            .map(|it| Resolution::beneath(it.as_fd()));
        let place = format!("the directory {}", path.display());
        let right = PromptRight::unproven(place, look_into(path));
        right.refuse();
        let homes = Arc::new(Self {
            right,
            resolution: resolution.unwrap_or(Resolution::Kernel),
            versions: Versions::new(),
            linked: BlockingLimit::new("mounts that links lead to", WaitLimits::MOUNT),
            setup: Lock::default(),
            current: Lock::default(),
            kept: Lock::default(),
            followed,
        });
        let follower = Arc::downgrade(&homes);
        homes.followed.tell(follower);
        homes.renew()?;
        Ok(homes)
    }

    /// Has other services with directories below its own.
    ///
    /// # Errors
    /// The kernel does not tell which directory it is; too many lie below it.
    pub(crate) fn beside(self: &Arc<Self>, owners: &[Owner]) -> io::Result<()> {
        self.setup.lock().beside = owners.to_vec();
        for owner in owners {
            let follower = Arc::downgrade(self);
            owner.followed().tell(follower);
        }
        self.renew()
    }

    /// Is writable from now on, or not.
    pub(crate) fn writes(&self, options: Option<WriteOptions>) {
        let mut setup = self.setup.lock();
        setup.writes = options;
        let mut current = self.current.lock();
        let sweeper = match (&current.home, options) {
            (Some(home), Some(options)) => home.sweeper(options),
            _ => None,
        };
        current.sweeper = sweeper;
    }

    pub(crate) fn versions(&self) -> &Arc<Versions> {
        &self.versions
    }

    pub(crate) fn right(&self) -> &PromptRight {
        &self.right
    }

    pub(crate) fn resolution(&self) -> Resolution {
        self.resolution
    }

    /// The home; `None` while the path of the directory leads nowhere.
    pub(crate) fn current(&self) -> Option<Arc<Home>> {
        self.current.lock().home.clone()
    }

    /// The same, and its version.
    pub(crate) fn numbered(&self) -> (u64, Option<Arc<Home>>) {
        let current = self.current.lock();
        // HM2, the version is as old or older: mounts change without the lock.
        (self.versions.home(), current.home.clone())
    }

    /// A place for the home of a network thread.
    pub(crate) fn keep(&self) -> KeptHome {
        let place = Arc::default();
        let mut kept = self.kept.lock();
        kept.retain(|other| other.strong_count() > 0);
        kept.push(Arc::downgrade(&place));
        KeptHome(place)
    }

    /// Fetches the home by now; its version, and what was there before.
    pub(crate) fn fetch(&self, kept: &KeptHome) -> (u64, Option<Arc<Home>>) {
        // HM4, locked before the look.
        let mut place = kept.0.lock();
        let (version, home) = self.numbered();
        (version, std::mem::replace(&mut *place, home))
    }

    /// Takes what was replaced from the network threads that have it; these fetch anew. Called
    /// after the new one is there. The last holder closes its root, which may wait.
    fn take_replaced(&self) {
        let current = self.current();
        let places: Vec<_> = self.kept.lock().iter().filter_map(Weak::upgrade).collect();
        for place in places {
            let is_current = |home: &mut Arc<Home>| {
                current
                    .as_ref()
                    .is_some_and(|current| Arc::ptr_eq(current, home))
            };
            let replaced = place.lock().take_if(|home| !is_current(home));
            drop(replaced);
        }
    }

    /// The limits of the mounts at and below the root, and of those that links lead to.
    pub(crate) fn limits(&self) -> Vec<BlockingLimit> {
        let home = self.current();
        let of_home = home.map_or_else(Vec::new, |home| home.mounts.limits());
        of_home.into_iter().chain([self.linked.clone()]).collect()
    }

    /// Takes over what the path of the directory leads to by now, and what those of its owners do.
    fn renew(&self) -> io::Result<()> {
        // One after the other.
        let setup = self.setup.lock();
        let before = self.current();
        let made = match (self.followed.directory(), &before) {
            (None, _) => Ok(Current::default()),
            (Some(directory), Some(home)) if Arc::ptr_eq(&directory, &home.directory) => {
                return self.with_owners(home, &setup.beside);
            }
            (Some(directory), _) => self.make(directory, &setup, before.as_deref()),
        };
        let (made, outcome) = match made {
            Ok(made) => (made, Ok(())),
            Err(cause) => (Current::default(), Err(cause)),
        };
        let is_prompt = made.home.as_ref().is_some_and(|home| home.is_prompt());
        if !is_prompt {
            // Before the home is there: HM3, nothing is tried where it may wait.
            self.right.refuse();
        }
        let mut current = self.current.lock();
        let before = std::mem::replace(&mut *current, made);
        self.versions.home_has_changed();
        drop(current);
        if is_prompt {
            self.right.grant();
        }
        self.take_replaced();
        // Its root may be closed here, which may wait.
        drop(before);
        outcome
    }

    /// The same home, with owners that are at other places.
    fn with_owners(&self, home: &Home, beside: &[Owner]) -> io::Result<()> {
        let are_below = home.mounts.are_below();
        let owners = Owners::below(&home.root, are_below, beside, &home.owners);
        let (home, outcome) = match owners {
            Ok(owners) => (Some(Arc::new(home.beside(owners))), Ok(())),
            Err(cause) => (None, Err(cause)),
        };
        let mut current = self.current.lock();
        let before = std::mem::replace(&mut current.home, home);
        self.versions.home_has_changed();
        drop(current);
        self.take_replaced();
        drop(before);
        outcome
    }

    fn make(
        &self,
        directory: Arc<Directory>,
        setup: &Setup,
        before: Option<&Home>,
    ) -> io::Result<Current> {
        let root = Root::of(directory.reopen()?, self.resolution)?;
        let known = Known::new(&root, &self.versions, &self.linked);
        let (mounts, watcher) = Mounts::watch(root.directory(), known);
        let root = match watcher {
            Some(_) => root,
            None => root.remote(),
        };
        let none = Owners::default();
        let owners_before = before.map_or(&none, |home| &home.owners);
        let are_below = mounts.are_below();
        let (kept, closer) = KeptFiles::begin().unzip();
        let home = Home {
            kept,
            ledger: Ledger::of(root.directory()),
            owners: Owners::below(&root, are_below, &setup.beside, owners_before)?,
            rule_files: Arc::default(),
            mounts: Arc::new(mounts),
            root: Arc::new(root),
            directory,
        };
        Ok(Current {
            sweeper: setup.writes.and_then(|options| home.sweeper(options)),
            _mounts: watcher,
            _kept: closer,
            home: Some(Arc::new(home)),
        })
    }
}

impl Follower for Homes {
    fn changed(&self) {
        if let Err(cause) = self.renew() {
            let place = self.right.place();
            log::error!("{place} cannot be served: {cause}; requests get 503");
        }
    }
}

impl Home {
    fn is_prompt(&self) -> bool {
        self.root.locality() == Locality::Local && self.root.resolution() == Resolution::Kernel
    }

    fn beside(&self, owners: Owners) -> Self {
        Self {
            directory: Arc::clone(&self.directory),
            root: Arc::clone(&self.root),
            mounts: Arc::clone(&self.mounts),
            ledger: Arc::clone(&self.ledger),
            rule_files: Arc::clone(&self.rule_files),
            kept: self.kept.clone(),
            owners,
        }
    }

    /// What is needed to write below its root.
    pub(crate) fn uploads(&self, options: WriteOptions, asker: Asker) -> Uploads {
        Uploads {
            root: Arc::clone(&self.root),
            hidden: Hidden::default(),
            options,
            tags: EntityTags::default(),
            ledger: Arc::clone(&self.ledger),
            rule_files: RootFiles::default(),
            asker,
        }
    }

    fn sweeper(&self, options: WriteOptions) -> Option<Sweeper> {
        Sweeper::start(self.uploads(options, Asker::default()))
    }
}
