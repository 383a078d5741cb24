//! The directories of the services of a server, as each of them sees those of the others: which lie
//! below its own, and what their services say of them.
//!
//! A directory is known by itself, wherever it is moved to, and by its path, also when another one
//! takes its place there. `asker` decides for a request by them.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flatpath::WorkerScope;
use flatpath_http::{Request, Response};
use rustix::fs::{CWD, Mode, OFlags, openat};

use crate::limits::OWNERS_MAX;
use crate::root::Root;
use crate::rules::{RootFiles, Rules};
use crate::target::{Hidden, WELL_KNOWN, is_hidden, is_own};
use crate::terms::Terms;
use crate::walk::{DirectoryId, READ, Step};

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
    directory: DirectoryId,
    /// Where it is, as the kernel has it, and by the name that it was opened with. None without
    /// `/proc`.
    paths: Vec<PathBuf>,
    hidden: Hidden,
    is_listed: bool,
    root_files: RootFiles,
    is_writable: bool,
    gate: Option<Arc<dyn Gate>>,
}

impl Owner {
    /// Of this directory: without hidden names, with listings, not writable, for everyone.
    ///
    /// # Errors
    /// Those of opening a directory for reading.
    pub fn of(directory: &Path) -> io::Result<Self> {
        let flags = READ | OFlags::DIRECTORY;
        let opened = openat(CWD, directory, flags, Mode::empty())?;
        Ok(Self {
            directory: (&rustix::fs::fstat(&opened)?).into(),
            paths: paths_of(opened.as_fd(), directory),
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

    /// Whether both are of one directory.
    #[must_use]
    pub fn has_directory_of(&self, other: &Self) -> bool {
        self.directory == other.directory
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
        shown.field("directory", &self.directory);
        shown.field("paths", &self.paths).finish_non_exhaustive()
    }
}

/// Where an open directory is by now.
fn path_of(directory: BorrowedFd<'_>) -> Option<PathBuf> {
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

/// An owner, as a service sees it that may have the owner's directory below its own.
#[derive(Debug)]
pub(crate) struct Placed {
    pub(crate) owner: Owner,
    /// Its paths below the directory of the service.
    below: Vec<Vec<u8>>,
}

impl Placed {
    /// Whether these steps lead from the root to its directory, or to what has its place now.
    pub(crate) fn is_at(&self, steps: &[Step]) -> bool {
        let last = steps.last().and_then(|step| step.directory);
        let names = || steps.iter().map(|step| &*step.name);
        let has_name = |path: &Vec<u8>| path.split(|byte| *byte == b'/').eq(names());
        last == Some(self.owner.directory) || self.below.iter().any(has_name)
    }
}

/// The other services with directories below that of a service.
#[derive(Clone, Debug, Default)]
pub(crate) struct Owners(Option<Arc<[Placed]>>);

impl Owners {
    /// Those of `all` that may lie below the directory `root`.
    ///
    /// # Errors
    /// The kernel does not tell which directory it is; there are more than [`OWNERS_MAX`].
    pub(crate) fn below(root: &Root, has_mounts: bool, all: &[Owner]) -> io::Result<Self> {
        let own = DirectoryId::from(&rustix::fs::fstat(root.directory())?);
        let path = path_of(root.directory());
        let mut placed = Vec::new();
        for owner in all.iter().filter(|it| it.directory != own) {
            let below = path.iter().flat_map(|path| {
                let paths = owner.paths.iter();
                paths.filter_map(move |it| it.strip_prefix(path).ok())
            });
            let below = below.map(|it| it.as_os_str().as_bytes().to_vec());
            let below: Vec<_> = below.filter(|path| !path.is_empty()).collect();
            // A mount may show any directory, and without paths nothing is known.
            let is_unknown = path.is_none() || owner.paths.is_empty();
            if !below.is_empty() || has_mounts || is_unknown {
                let owner = owner.clone();
                placed.push(Placed { owner, below });
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
