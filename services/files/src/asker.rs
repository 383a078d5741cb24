//! Who may have a file is asked of the service that its directory belongs to, whatever path led to
//! it.
//!
//! Several services may have directories within each other: one with `pub`, and one with
//! `pub/private`, which asks for a password. A path of the first leads into the second in many
//! ways: a request for another host, a rewrite, a list of files to try, a fallback, an error page,
//! a compressed sibling, an index, a link, an archive, a README, an upload. So each file that is
//! looked for in the name of a request ([`Finder::find`]) is looked up name by name, and the
//! innermost directory on its way that belongs to another service decides: the owners of that
//! directory are asked, and their names stay hidden.
//!
//! | an owner has          | a file, sent or written    | within an archive, a listing |
//! |-----------------------|----------------------------|------------------------------|
//! | not been asked        | it is; the answer is made again | the same                |
//! | admitted the request  | as its names and listings allow | the same                |
//! | refused it (401, 403) | the refusal is the answer  | left out                     |
//! | refused it for now (429, 503) | the refusal is the answer | the same              |
//!
//! Decisions
//! - What is missing in a directory of another service is refused as what is there: nothing is
//!   learned of its names.
//! - A link belongs to the directory that it lies in, and what it leads to, to that one's: both are
//!   asked.
//! - Where several services have one directory, each of them has to admit a request of a third; to
//!   each of them it is its own.
//! - An answer for which an owner was asked is not kept in a cache.
//! - What else the owner has for its paths (redirects, headers, pages) is not looked at: it is for
//!   its addresses. Nor is a refusal given the error page of the service that was asked first.
//! - Hard links have no directory. A directory that is mounted twice (a bind mount) is known by the
//!   directory itself, not by those below it.
//!
//! Cost: nothing for a service with no such directory below its own. Else two system calls for each
//! name of a path that is not answered from the cache.

use std::sync::Arc;

use flatpath::WorkerScope;
use flatpath::lock::Lock;
use flatpath_http::{Request, Response, UploadDecision};
use http::header::RETRY_AFTER;
use rustix::fs::ResolveFlags;

use crate::error::FilesError;
use crate::identity::clock_of_files;
use crate::owners::{Owners, Placed};
use crate::responses::Stopped;
use crate::root::{BENEATH, Opened, Reach, Resolution, Root, unresolved};
use crate::terms::Terms;
use crate::walk::{self, Step};

/// How a request stands with an owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Standing {
    Unasked,
    Admitted,
    Refused,
    /// For now.
    Delayed,
}

/// In whose name files are looked for: what the owners have said to a request so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asker {
    owners: Owners,
    standings: Vec<Standing>,
}

impl Asker {
    /// A request that no owner was asked about yet.
    pub(crate) fn new(owners: &Owners) -> Self {
        if owners.are_none() {
            return Self::default();
        }
        let first = |placed: &Placed| match placed.owner.gate_of() {
            Some(_) => Standing::Unasked,
            None => Standing::Admitted,
        };
        Self {
            standings: owners.all().iter().map(first).collect(),
            owners: owners.clone(),
        }
    }

    /// Whether any file may belong to another service.
    pub(crate) fn has_others(&self) -> bool {
        !self.owners.are_none()
    }

    /// Whether what is found now depends on what an owner said.
    pub(crate) fn was_asked(&self) -> bool {
        let owners = self.owners.all().iter();
        let mut gated = owners
            .zip(&self.standings)
            .filter(|(placed, _)| placed.owner.gate_of().is_some());
        gated.any(|(_, standing)| *standing != Standing::Unasked)
    }

    /// The function that decides whether the request may have what lies at the end of these steps
    /// from the root, which go down only. `None`: it belongs to no other service.
    ///
    /// # Errors
    /// [`FilesError::Unasked`], [`FilesError::Refused`], [`FilesError::Delayed`]: see the table of
    /// this module. [`FilesError::NotFound`]: an owner does not serve the name.
    pub(crate) fn judge(&self, steps: &[Step]) -> Result<Option<Terms>, FilesError> {
        let owners = || self.owners.all().iter();
        let mut ends = (1..=steps.len()).rev();
        let innermost = ends.find(|end| owners().any(|it| it.is_at(&steps[..*end])));
        let Some(innermost) = innermost else {
            return Ok(None);
        };
        let (place, below) = steps.split_at(innermost);
        let names: Vec<&[u8]> = below.iter().map(|step| &*step.name).collect();
        let of_place = || {
            let numbered = owners().zip(&self.standings).zip(0..);
            numbered.filter(|((placed, _), _)| placed.is_at(place))
        };
        // A refusal stands, whatever others would say.
        for ((_, standing), number) in of_place() {
            match standing {
                Standing::Refused => return Err(FilesError::Refused(number)),
                Standing::Delayed => return Err(FilesError::Delayed(number)),
                Standing::Unasked | Standing::Admitted => {}
            }
        }
        let mut terms = Terms::FREE;
        for ((Placed { owner, .. }, standing), number) in of_place() {
            if *standing == Standing::Unasked {
                return Err(FilesError::Unasked(number));
            }
            if owner.hides(&names) {
                return Err(FilesError::NotFound);
            }
            terms = owner.restrict(terms, names.is_empty());
        }
        Ok(Some(terms))
    }
}

/// What looks for files in the name of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Finder<'a> {
    pub(crate) root: &'a Root,
    pub(crate) reach: Reach,
    pub(crate) asker: &'a Asker,
}

impl Finder<'_> {
    /// Opens what is at a path, if the request may have it.
    pub(crate) fn find(&self, path: &[u8]) -> Result<Opened, FilesError> {
        match self.asker.has_others() {
            false => self.root.find_within(path, self.reach),
            true => self.find_by_steps(path),
        }
    }

    /// Name by name, so that the place of what is found is known, and of each link on the way.
    fn find_by_steps(&self, path: &[u8]) -> Result<Opened, FilesError> {
        let (root, reach) = (self.root, self.reach);
        let looked_at = clock_of_files();
        let how = match (root.resolution(), reach) {
            (Resolution::Walk, Reach::AtHand) => return Err(FilesError::NotAtHand),
            (Resolution::Walk, _) => None,
            (Resolution::Kernel, Reach::AtHand) => {
                Some(BENEATH | ResolveFlags::NO_XDEV | ResolveFlags::CACHED)
            }
            (Resolution::Kernel, Reach::OwnMount) => Some(BENEATH | ResolveFlags::NO_XDEV),
            (Resolution::Kernel, Reach::Everywhere) => Some(BENEATH),
        };
        let traced = walk::trace(root.directory(), path, how);
        let mut terms = None;
        for place in &traced.places {
            terms = self.asker.judge(place)?;
        }
        let descriptor = traced.opened;
        let descriptor = descriptor.map_err(|errno| unresolved(errno, path, reach))?;
        let opened = root.opened(descriptor, looked_at, !traced.followed_links)?;
        Ok(Opened { terms, ..opened })
    }
}

/// A request, and what the owners say to it.
#[derive(Debug, Default)]
pub(crate) struct Questions {
    asker: Asker,
    refusals: Vec<(u16, Response)>,
}

/// What becomes of an answer.
pub(crate) enum Next {
    Done(UploadDecision),
    /// It is made again: another owner was asked.
    Again,
}

/// What the owners have said to a request that was parked: an extension of it.
#[derive(Clone)]
struct Saved(Arc<Lock<Questions>>);

impl Questions {
    /// What was said to a request before, if it was parked.
    pub(crate) fn of(owners: &Owners, request: &mut Request) -> Self {
        if owners.are_none() {
            return Self::default();
        }
        if let Some(saved) = request.extensions_mut().remove::<Saved>() {
            return std::mem::take(&mut *saved.0.lock());
        }
        Self {
            asker: Asker::new(owners),
            refusals: Vec::new(),
        }
    }

    pub(crate) fn asker(&self) -> &Asker {
        &self.asker
    }

    /// Keeps what was said for the next run of a request that was parked.
    pub(crate) fn save(self, request: &mut Request) {
        if self.asker.has_others() {
            let saved = Saved(Arc::new(Lock::new(self)));
            request.extensions_mut().insert(saved);
        }
    }

    /// Asks the owner that an answer needs to be asked; else the response is the answer. Ends:
    /// each owner is asked once. What is returned where the job was parked counts for nothing.
    pub(crate) fn next(
        &mut self,
        response: Response,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
    ) -> Next {
        let stopped = response.extensions().get::<Stopped>();
        match stopped.map(|stopped| stopped.0) {
            Some(FilesError::Unasked(number)) => {
                self.ask(number, request, scope);
                match scope.is_parked() {
                    true => Next::Done(UploadDecision::Response(response)),
                    false => Next::Again,
                }
            }
            Some(FilesError::Refused(number) | FilesError::Delayed(number)) => {
                let mut refusals = self.refusals.iter_mut();
                let refusal = refusals.find(|(of, _)| *of == number);
                let refusal = refusal.map_or(response, |it| std::mem::take(&mut it.1));
                Next::Done(UploadDecision::Response(refusal))
            }
            _ => Next::Done(UploadDecision::Response(self.charged(request, response))),
        }
    }

    fn ask(&mut self, number: u16, request: &mut Request, scope: &mut WorkerScope<'_>) {
        let at = usize::from(number);
        let owners = self.asker.owners.clone();
        let admitted = match owners.all()[at].owner.gate_of() {
            Some(gate) => gate.admit(request, scope),
            None => Ok(()),
        };
        if scope.is_parked() {
            return;
        }
        self.asker.standings[at] = match admitted {
            Ok(()) => Standing::Admitted,
            Err(refusal) => {
                let is_delay = refusal.headers().contains_key(RETRY_AFTER);
                self.refusals.push((number, *refusal));
                match is_delay {
                    true => Standing::Delayed,
                    false => Standing::Refused,
                }
            }
        };
    }

    /// The response, counted by each owner that admitted the request.
    fn charged(&self, request: &Request, response: Response) -> Response {
        let owners = self.asker.owners.all().iter().zip(&self.asker.standings);
        let admitted = owners.filter(|(_, standing)| **standing == Standing::Admitted);
        let gates = admitted.filter_map(|(placed, _)| placed.owner.gate_of());
        gates.fold(response, |response, gate| gate.charge(request, response))
    }
}
