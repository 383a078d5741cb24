//! The directories of the services of a server, as each of them sees those of the others: which lie
//! below its own, and what their services say of them.
//!
//! A directory is known by itself, wherever it is moved to, and by its path, also when another one
//! takes its place there. It is the one that its service serves by now (`followed`): with each that
//! takes another's place, [`Owners`] are made anew, and those that it had before stay its own until
//! they are removed. `asker` decides for a request by them.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use flatpath::WorkerScope;
use flatpath_http::{Request, Response};

use crate::followed::{Directory, Followed, Whereabouts, path_of};
use crate::limits::{OWNER_FORMER_MAX, OWNERS_MAX};
use crate::root::Root;
use crate::rules::{RootFiles, Rules};
use crate::target::{Hidden, WELL_KNOWN, is_hidden, is_own};
use crate::terms::Terms;
use crate::walk::{DirectoryId, Step};

/// Admits requests to what an [`Owner`] has. Both functions run on a worker.
pub trait Gate: Send + Sync + 'static {
    /// Admits a request, or gives the response that refuses it. One with `Retry-After` refuses it
    /// for now. What is returned where the job was parked counts for nothing: the request comes
    /// again.
    ///
    /// # Errors
    /// The refusal.
    fn admit(
        &self,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>>;

    /// The response to a request that was admitted, which has files of the owner in it: to count
    /// its bytes, say.
    fn charge(&self, request: &Request, response: Response) -> Response {
        let _ = request;
        response
    }
}

/// A directory that a service has, as other services of the server need to know it
/// ([`Files::beside`](crate::Files::beside)).
#[derive(Clone)]
pub struct Owner {
    followed: Arc<Followed>,
    /// Another owner of the same directory is asked in its place.
    gives_way: bool,
    hidden: Hidden,
    is_listed: bool,
    root_files: RootFiles,
    is_writable: bool,
    gate: Option<Arc<dyn Gate>>,
}

impl Owner {
    /// Of the directory that this path leads to, whichever that is by now: without hidden names,
    /// with listings, not writable, for everyone.
    ///
    /// # Errors
    /// Those of opening a directory for reading.
    pub fn of(directory: &Path) -> io::Result<Self> {
        Ok(Self {
            followed: Followed::open(directory)?,
            gives_way: false,
            hidden: Hidden::default(),
            is_listed: true,
            root_files: RootFiles::default(),
            is_writable: false,
            gate: None,
        })
    }

    /// Sets whether names with a leading dot are served.
    #[must_use]
    pub fn hidden(self, hidden: Hidden) -> Self {
        Self { hidden, ..self }
    }

    /// Shows no listings of its directories: other services do not, either, and their archives
    /// leave them out.
    #[must_use]
    pub fn unlisted(self) -> Self {
        let is_listed = false;
        Self { is_listed, ..self }
    }

    /// Sets the rules that it has: where files of its root are some
    /// ([`Rules::root_files`]), they are neither served nor written.
    #[must_use]
    pub fn rules(self, rules: &Rules) -> Self {
        let root_files = rules.root_files;
        Self { root_files, ..self }
    }

    /// Lets writable services around it write here.
    #[must_use]
    pub fn writable(self) -> Self {
        let is_writable = true;
        Self {
            is_writable,
            ..self
        }
    }

    /// Sets who is asked whether a request may have something of it.
    #[must_use]
    pub fn gate(self, gate: impl Gate) -> Self {
        let gate: Arc<dyn Gate> = Arc::new(gate);
        Self {
            gate: Some(gate),
            ..self
        }
    }

    /// Gives way to the owners before it that have the same directory: they are asked alone.
    #[must_use]
    pub fn giving_way(self) -> Self {
        let gives_way = true;
        Self { gives_way, ..self }
    }

    pub(crate) fn followed(&self) -> &Followed {
        &self.followed
    }

    /// Who is asked, if anyone is.
    pub(crate) fn gate_of(&self) -> Option<&Arc<dyn Gate>> {
        self.gate.as_ref()
    }

    /// These terms with its own.
    pub(crate) fn restrict(&self, terms: Terms, is_root: bool) -> Terms {
        Terms {
            hidden: match self.hidden {
                Hidden::Refused => Hidden::Refused,
                Hidden::Served => terms.hidden,
            },
            is_listed: terms.is_listed && self.is_listed,
            root_files: match self.root_files {
                RootFiles::Read if is_root => RootFiles::Read,
                _ => terms.root_files,
            },
            is_writable: terms.is_writable && self.is_writable,
        }
    }

    /// Whether a name below it is one that it does not serve; `names` lead from it to a file.
    pub(crate) fn hides(&self, names: &[&[u8]]) -> bool {
        let is_public = names.first() == Some(&WELL_KNOWN);
        let mut visible = names.iter().skip(usize::from(is_public));
        let has_hidden = self.hidden == Hidden::Refused && visible.any(|name| is_hidden(name));
        let is_rule_file = matches!(names, [name] if self.root_files.keeps_back(name));
        has_hidden || is_rule_file || names.iter().any(|name| is_own(name))
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Owner");
        shown.field("directory", &self.followed);
        shown.finish_non_exhaustive()
    }
}

/// An owner, as a service sees it that may have the owner's directory below its own.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) owner: Owner,
    directory: Arc<Whereabouts>,
    /// It is open, so that no other gets its inode. None while the path leads nowhere.
    open: Option<Arc<Directory>>,
    /// Those that it had before, the last one at the end.
    former: Vec<Arc<Directory>>,
    /// Its paths below the directory of the service.
    below: Vec<Vec<u8>>,
}

impl Placed {
    /// Whether these steps lead from the root to its directory, or to what has its place now.
    pub(crate) fn is_at(&self, steps: &[Step]) -> bool {
        let last = steps.last().and_then(|step| step.directory);
        let names = || steps.iter().map(|step| &*step.name);
        let has_name = |path: &Vec<u8>| path.split(|byte| *byte == b'/').eq(names());
        let is_former = || self.former.iter().any(|it| last == Some(it.id()));
        last == Some(self.directory.id) || self.below.iter().any(has_name) || is_former()
    }

    /// The directories that it will have had before, when it is at another place than now.
    fn former_at(&self, open: Option<&Arc<Directory>>) -> Vec<Arc<Directory>> {
        let left = self.open.iter();
        let left = left.filter(|it| open.is_none_or(|open| open.id() != it.id()));
        let all = self.former.iter().chain(left);
        let mut former: Vec<_> = all.filter(|it| !it.is_removed()).cloned().collect();
        let excess = former.len().saturating_sub(OWNER_FORMER_MAX);
        former.drain(..excess);
        former
    }
}

/// The other services with directories below that of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Option<Arc<[Placed]>>);

impl Owners {
    /// Those of `all` that may lie below the directory `root`, where these were `before`.
    ///
    /// # Errors
    /// The kernel does not tell which directory it is; there are more than [`OWNERS_MAX`].
    pub(crate) fn below(
        root: &Root,
        has_mounts: bool,
        all: &[Owner],
        before: &Self,
    ) -> io::Result<Self> {
        let own = DirectoryId::from(&rustix::fs::fstat(root.directory())?);
        let path = path_of(root.directory());
        let mut placed: Vec<Placed> = Vec::new();
        let mut known: Vec<DirectoryId> = Vec::new();
        for owner in all {
            // What it had, while its path leads nowhere: the next one may come there.
            let (directory, open) = owner.followed.whereabouts();
            let is_known = known.contains(&directory.id);
            known.push(directory.id);
            if directory.id == own || owner.gives_way && is_known {
                continue;
            }
            let below = path.iter().flat_map(|path| {
                let paths = directory.paths.iter();
                paths.filter_map(move |it| it.strip_prefix(path).ok())
            });
            let below = below.map(|it| it.as_os_str().as_bytes().to_vec());
            let below: Vec<_> = below.filter(|path| !path.is_empty()).collect();
            // A mount may show any directory, and without paths nothing is known.
            let is_unknown = path.is_none() || directory.paths.is_empty();
            let mut before = before.all().iter();
            let before = before.find(|it| Arc::ptr_eq(&it.owner.followed, &owner.followed));
            let former = before.map_or_else(Vec::new, |it| it.former_at(open.as_ref()));
            if !below.is_empty() || has_mounts || is_unknown || !former.is_empty() {
                placed.push(Placed {
                    owner: owner.clone(),
                    directory,
                    open,
                    former,
                    below,
                });
            }
        }
        if placed.len() > OWNERS_MAX {
            let why = format!("more than {OWNERS_MAX} other services within one directory");
            return Err(io::Error::other(why));
        }
        Ok(Self((!placed.is_empty()).then(|| placed.into())))
    }

    pub(crate) fn are_none(&self) -> bool {
        self.0.is_none()
    }

    pub(crate) fn all(&self) -> &[Placed] {
        self.0.as_deref().unwrap_or_default()
    }
}
