//! A directory as an HTTP service: files in its own cache or the kernel's on the network thread,
//! everything else on workers.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flatpath::KeptWork;
use flatpath::blocking::{BlockingLimit, Entry};
use flatpath::descriptors::ConnectionDescriptors;
use flatpath::memory::PoolHandle;
use flatpath_http::header_values::AcceptEncoding;
use flatpath_http::{
    BodyPlan, Disposition, Framing, HandlerState, Head, KnownHeader, Plan, RegionConfig, Reply,
    Request, Response, Service, TargetForm, Turn, UploadDecision, Work, WorkerParts, WorkerScope,
};
use http::header::ACCEPT_ENCODING;
use http::{Extensions, StatusCode};

use crate::answer::Answerer;
use crate::archive::Archives;
use crate::asker::Asker;
use crate::cache::{self, Cache, CacheLimits, NewEntry};
use crate::compress::Compressor;
use crate::conditional::EntityTags;
use crate::freshness::{LookupStart, Moment};
use crate::homes::{Home, Homes, KeptHome, Stay};
use crate::kept::{Evaluated, asks_part};
use crate::limits::CACHE_TARGET_BYTES_MAX;
use crate::listing::Listing;
use crate::mount_limits::MountLimits;
use crate::owners::Owner;
use crate::responses::busy;
use crate::root::{Reach, Resolution, Root};
use crate::rules::{Explanation, InForce, Rules};
use crate::siblings::Forms;
use crate::target::{Hidden, Target};
use crate::versions::Versions;
use crate::writing::Writing;

mod options;
mod refusals;
mod vocabulary;
mod workers;

pub use vocabulary::Vocabulary;

/// Serves what lies beneath a directory.
///
/// GET and HEAD; PUT, uploads by tus, and forms of listings where it is writable; OPTIONS lists
/// them; everything else is 405. See the crate's front page for what is served and what is not.
///
/// ```no_run
/// use flatpath_files::{Files, WriteOptions, Writing};
/// use flatpath_http::Http;
///
/// # fn main() -> std::io::Result<()> {
/// let options = WriteOptions {
///     bytes_max: 1 << 30,
///     ..WriteOptions::default()
/// };
/// let files = Files::open("public".as_ref())?.writable(Writing::Allowed(options));
/// let service = Http::service(files);
/// # let _ = service;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Files {
    homes: Arc<Homes>,
    versions: Arc<Versions>,
    hidden: Hidden,
    forms: Forms,
    compressor: Option<Compressor>,
    listing: Listing,
    archives: Archives,
    cache: CacheLimits,
    writing: Writing,
    /// Requests without a body are planned alike: nothing is written, and no archives are made.
    is_plain: bool,
    tags: EntityTags,
    rules: Rules,
}

/// State of one network thread: its cache of small files, and the home that they are of.
#[doc(hidden)]
pub struct FilesState {
    cache: Cache,
    home: KeptHome,
    requests: HandlerState,
}

flatpath::opaque_debug! {
    impl[] FilesState as "FilesState";
}

impl Files {
    /// Serves the directory that this path leads to, whichever that is by now: when a link on the
    /// way is switched, or the directory is renamed or made again, the new one is served within a
    /// second, and at [`look_again`](crate::look_again). Requests under way end in the one before.
    ///
    /// While the path leads nowhere, requests get 503 with `Retry-After`
    /// ([`missing_directories`](crate::missing_directories)). A path that may not be searched any
    /// more says nothing: the directory that is open is served on.
    ///
    /// # Errors
    /// Those of opening a directory for reading.
    pub fn open(directory: &Path) -> io::Result<Self> {
        let homes = Homes::open(directory)?;
        Ok(Self {
            versions: Arc::clone(homes.versions()),
            homes,
            hidden: Hidden::default(),
            forms: Forms::default(),
            compressor: None,
            listing: Listing::default(),
            archives: Archives::default(),
            cache: CacheLimits::default(),
            writing: Writing::default(),
            is_plain: true,
            tags: EntityTags::default(),
            rules: Rules::default(),
        })
    }

    /// Sets whether PUT, resumable uploads and the forms of listings make and replace files: with
    /// the rights of this process, and never outside the directory. Forms make directories, too.
    /// Starts a thread that removes expired uploads.
    #[must_use]
    pub fn writable(self, writing: Writing) -> Self {
        self.homes.writes(match writing {
            Writing::Refused => None,
            Writing::Allowed(options) => Some(options),
        });
        Self { writing, ..self }.planned()
    }

    /// The same, once what its plans depend on has been set.
    fn planned(self) -> Self {
        let is_plain = self.writing == Writing::Refused && !self.archives.are_offered();
        Self { is_plain, ..self }
    }

    /// Names the directories that other services of the server have, of which some may lie below
    /// this one's: who may have a file of those, its [`Owner`] says, whatever path led to it. One
    /// of the very directory of this service is passed over.
    ///
    /// Without it a rewrite, an archive or a link leads past the rules of a service whose directory
    /// lies below this one.
    ///
    /// # Errors
    /// Those of `fstat` for the directory; too many lie below it.
    pub fn beside(self, owners: &[Owner]) -> io::Result<Self> {
        self.homes.beside(owners)?;
        Ok(self)
    }

    /// Sets whether names with a leading dot are served.
    #[must_use]
    pub fn hidden(self, hidden: Hidden) -> Self {
        Self { hidden, ..self }
    }

    /// Sets what entity tags are made of: [`EntityTags::Exact`] by default.
    #[must_use]
    pub fn entity_tags(self, tags: EntityTags) -> Self {
        Self { tags, ..self }
    }

    /// Sets the rules: redirects, rewrites, clean addresses, fallbacks, error pages, headers, media
    /// types. None by default. They are those of this service's own responses; layers around it
    /// add theirs.
    #[must_use]
    pub fn rules(self, rules: Rules) -> Self {
        Self { rules, ..self }
    }

    /// What the rules do with a target such as `/old/page?x=1`, also those of `_redirects` and
    /// `_headers` as they are now, if they are [read](crate::RootFiles::Read). Reads files, so not
    /// for a network thread.
    #[must_use]
    pub fn explain(&self, target: &str) -> Explanation {
        let home = self.homes.current();
        let held = home.map(|it| it.rule_files.hold(&it.root, &self.rules, Reach::Everywhere));
        let rules = match held {
            Some(Ok(held)) => held.rules,
            Some(Err(_)) | None => InForce::of(&self.rules),
        };
        rules.explain(target, self.hidden)
    }

    /// Sets how much each network thread keeps of small files, and how many larger ones it keeps
    /// open, each of which counts as 64 KiB; zero of either keeps none.
    #[must_use]
    pub fn cache(self, entries_max: usize, bytes_max: usize) -> Self {
        Self {
            cache: CacheLimits {
                entries_max,
                bytes_max,
                ..self.cache
            },
            ..self
        }
    }

    /// Sets for how long a small file is answered without looking at it again, where looking may
    /// block: on another mount than the directory's own, or on a file system that is not local.
    /// Zero: a worker looks each time. One second by default.
    #[must_use]
    pub fn stat_age(self, age_max: Duration) -> Self {
        Self {
            cache: CacheLimits {
                age_ns_max: u64::try_from(age_max.as_nanos()).unwrap_or(u64::MAX),
                ..self.cache
            },
            ..self
        }
    }

    /// The way in which this machine turns paths into files.
    pub fn resolution(&self) -> Resolution {
        self.homes.resolution()
    }

    /// Which thread looks for a file that is not in the cache: a GET without conditions needs the
    /// data of its file, which some file systems never give without a wait.
    fn tried_if_told(&self, home: Option<&Home>, head: &Head<'_>) -> Disposition<'_> {
        let Some(home) = home else {
            return Disposition::Pooled;
        };
        let needs_data = head.is_get() && !is_conditional(head);
        match needs_data && !home.root.file_system().tells_data() {
            true => Disposition::Pooled,
            false => Disposition::Prompt(self.homes.right()),
        }
    }

    fn makes_archive(&self, head: &Head<'_>) -> bool {
        let query = head.query().map(str::as_bytes);
        self.archives.are_offered() && head.is_get() && self.archives.asked(query).is_some()
    }

    /// Whether what a worker answers may be compressed: what is not worth it takes less time.
    fn may_compress(&self, head: &Head<'_>) -> bool {
        let Some(compressor) = &self.compressor else {
            return false;
        };
        let accepted = self.forms.accepted(head.values(ACCEPT_ENCODING.as_str()));
        is_for_cache(head) && accepted.codings().any(|coding| compressor.offers(coding))
    }

    /// Takes another home over, on a network thread: what is cached is of the one before.
    #[cold]
    #[inline(never)]
    fn move_to_home(&self, thread: &mut FilesState) {
        let (version, before) = self.homes.fetch(&thread.home);
        thread.cache.move_to(version);
        // The last holder of a root closes it, which may wait.
        flatpath::discard(before);
    }

    /// How many workers are in which mount.
    pub fn mount_limits(&self) -> MountLimits {
        MountLimits::of(&self.homes)
    }

    /// The limit that a request has to enter; `None` where its path stays on a mount that does not
    /// block, unless links lead away from it.
    fn limit_of(&self, home: &Home, request: &Request) -> Option<BlockingLimit> {
        if !home.mounts.has_limits() {
            return None;
        }
        let target = request.uri().path_and_query()?.as_str();
        let target = Target::parse(target.as_bytes(), self.hidden).ok()?;
        home.mounts.limit_of(target.path())
    }

    /// Answers within the limit of the mount that the path leads to, or a link. `None` also if
    /// that limit is full.
    pub(crate) fn answer_with<T>(
        &self,
        request: &Request,
        scope: &mut WorkerScope<'_>,
        (stay, asker): (Stay<'_>, &Asker),
        answer: impl Fn(&Answerer<'_>) -> Option<T>,
    ) -> Option<T> {
        let limit = self.limit_of(stay.home, request);
        if limit.is_none() {
            let descriptors = Some(scope.descriptors());
            let within = (Reach::OwnMount, asker);
            let answerer = Answerer {
                connection: Some(scope.connection()),
                ..self.answerer(stay, (scope.pool(), descriptors), within, None)
            };
            if let Some(answered) = answer(&answerer) {
                return Some(answered);
            }
        }
        let limit = limit.unwrap_or_else(|| stay.home.mounts.limit_of_links());
        let _inside = match limit.enter(scope) {
            Entry::Entered(inside) => inside,
            // The result after `Later` is dropped.
            Entry::Parked | Entry::Refused => return None,
        };
        let descriptors = Some(scope.descriptors());
        let within = (Reach::Everywhere, asker);
        let resources = (scope.pool(), descriptors);
        answer(&Answerer {
            connection: Some(scope.connection()),
            ..self.answerer(stay, resources, within, Some(limit))
        })
    }

    pub(crate) fn answerer<'a>(
        &'a self,
        Stay { version, home }: Stay<'a>,
        (pool, descriptors): (PoolHandle<'a>, Option<ConnectionDescriptors<'a>>),
        (reach, asker): (Reach, &'a Asker),
        limit: Option<BlockingLimit>,
    ) -> Answerer<'a> {
        Answerer {
            root: &home.root,
            hidden: self.hidden,
            forms: &self.forms,
            compressor: self.compressor.as_ref(),
            listing: self.listing,
            archives: &self.archives,
            writing: self.writing,
            tags: self.tags,
            rules: &self.rules,
            rule_files: &home.rule_files,
            pool,
            descriptors,
            kept: home.kept.as_deref(),
            connection: None,
            reach,
            asker,
            limit,
            began: LookupStart {
                at: Instant::now(),
                home_version: version,
                writes: self.versions.writes(),
            },
        }
    }
}

#[cfg(test)]
impl Files {
    pub(crate) fn versions(&self) -> &Versions {
        &self.versions
    }

    /// The home by now, and its version.
    pub(crate) fn home(&self) -> (u64, Arc<Home>) {
        let (version, home) = self.homes.numbered();
        (version, home.expect("it is there"))
    }

    pub(crate) fn writes(&self, request: &Request) -> bool {
        let (_, home) = self.home();
        self.write_of(&home, request, &Asker::default()).is_some()
    }

    pub(crate) fn prompt_right_is_lost(&self) -> bool {
        self.homes.right().is_lost()
    }
}

impl Service for Files {
    type ThreadState = FilesState;

    fn thread_state(&self) -> FilesState {
        FilesState {
            cache: Cache::new(self.cache),
            home: self.homes.keep(),
            requests: HandlerState::default(),
        }
    }

    fn plan(&self, head: &Head<'_>) -> Plan<'_> {
        let has_body = head.framing() != Framing::Empty;
        if self.is_plain && !has_body {
            return Plan::default();
        }
        let streams =
            self.writing != Writing::Refused && matches!(head.method(), "PUT" | "POST" | "PATCH");
        Plan {
            body: match streams {
                true => BodyPlan::Streamed,
                // A body of any other method means nothing (RFC 9110 section 9.3): the head decides
                // the answer, wherever it is made, and how long the body is changes nothing.
                false if has_body => BodyPlan::Unread,
                false => BodyPlan::default(),
            },
            // An upload by tus is kept with the address that began it, and archives have turns by
            // address.
            asks_peer: streams && head.method() == "POST" || self.archives.are_offered(),
            ..Plan::default()
        }
    }

    fn plans_inline(&self) -> bool {
        true
    }

    #[inline]
    fn inline(
        &self,
        thread: &mut FilesState,
        turn: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        let target = head.path().as_bytes();
        if !is_for_cache(head) {
            return Disposition::Pooled;
        }
        let preference = match head.known(KnownHeader::AcceptEncoding) {
            Some(_) => self.forms.accepted(head.values(ACCEPT_ENCODING.as_str())),
            None => AcceptEncoding::PLAIN,
        };
        if thread.cache.home_version() != self.versions.home() {
            self.move_to_home(thread);
        }
        let moment = Moment {
            turn_number: turn.number,
            now_ns: turn.now().as_nanos() as u64,
            writes: self.versions.writes(),
        };
        let FilesState { cache, home, .. } = thread;
        let at_root = |holds: &dyn Fn(&Root) -> bool| {
            let home = home.get();
            home.as_ref().is_some_and(|home| holds(&home.root))
        };
        let found = cache.find(at_root, moment, target, preference);
        let is_part = asks_part(head);
        let Some(cache::Entry { answer, .. }) = found.as_deref() else {
            return match is_part {
                true => Disposition::Pooled,
                false => self.tried_if_told(home.get().as_deref(), head),
            };
        };
        let evaluated = match is_conditional(head) {
            true => answer.evaluate(head),
            false => Evaluated::Proceed,
        };
        match evaluated {
            Evaluated::Proceed if is_part => answer.send_part(head, reply),
            Evaluated::Proceed => answer.send(head, reply),
            Evaluated::NotModified(not_modified) => {
                reply.prebuilt(not_modified, &bytes::Bytes::new())
            }
            Evaluated::PreconditionFailed if is_part => Disposition::Pooled,
            Evaluated::PreconditionFailed => self.tried_if_told(home.get().as_deref(), head),
        }
    }

    fn prompt(
        &self,
        thread: &mut FilesState,
        turn: Turn,
        head: &Head<'_>,
        pool: PoolHandle<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        // That of `inline`, which was asked before.
        // Not locked meanwhile: a try may hang, and who replaces the home would wait for it.
        let Some(kept) = thread.home.get().clone() else {
            return Disposition::Pooled;
        };
        let home = &*kept;
        let version = thread.cache.home_version();
        let response = thread.requests.with_request(head, |request| {
            let asker = Asker::new(&home.owners);
            if self.write_of(home, request, &asker).is_some() {
                return None;
            }
            let within = (Reach::AtHand, &asker);
            let answerer = self.answerer(Stay { version, home }, (pool, None), within, None);
            answerer.answer(request)
        });
        if Arc::strong_count(&kept) == 1 {
            // It was replaced meanwhile. The last holder of a root closes it, which may wait.
            flatpath::discard(kept);
        }
        let Some(mut response) = response.flatten() else {
            return Disposition::Pooled;
        };
        let Some(entry) = response.extensions_mut().remove::<NewEntry>() else {
            return reply.response(response);
        };
        // The same bytes as the response's, which need not be put together again.
        let answered = match (response.status(), &entry.answer.conditional) {
            (StatusCode::NOT_MODIFIED, Some(conditional)) => {
                reply.prebuilt(&conditional.not_modified, &bytes::Bytes::new())
            }
            _ => entry.answer.send(head, reply),
        };
        thread.cache.insert(entry, turn.now().as_nanos() as u64);
        answered
    }

    fn open(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> UploadDecision {
        self.asking(request, scope, |files, request, within, scope| {
            files.begin(request, within, scope)
        })
    }

    fn region(&self) -> Option<RegionConfig> {
        (self.writing != Writing::Refused).then(RegionConfig::default)
    }

    fn work(&self, head: &Head<'_>) -> Option<Work> {
        let reads = head.is_get() || head.is_head();
        let makes = self.makes_archive(head) || self.may_compress(head);
        reads.then(|| match makes {
            true => Work::of(KeptWork::Files),
            false => Work::brief(),
        })
    }

    fn worker_parts(&self, parts: &mut WorkerParts) {
        if self.archives.are_offered() || self.compressor.is_some() {
            parts.keep(KeptWork::Files);
        }
    }

    fn pooled(&self, request: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        let decision = self.asking(request, scope, |files, request, within, scope| {
            files.complete(request, within, scope)
        });
        match decision {
            UploadDecision::Response(response) => response,
            UploadDecision::Sink(sink) => sink.finish(scope),
            UploadDecision::Whole => busy(),
        }
    }

    fn response_ready(&self, thread: &mut FilesState, turn: Turn, note: &mut Extensions) {
        if let Some(entry) = note.remove::<NewEntry>() {
            thread.cache.insert(entry, turn.now().as_nanos() as u64);
        }
    }
}

/// Whether a file, or a part of one, may be the answer.
fn is_for_cache(head: &Head<'_>) -> bool {
    let is_plain = head.form() == TargetForm::Origin && (head.is_get() || head.is_head());
    is_plain && head.path().len() <= CACHE_TARGET_BYTES_MAX
}

/// Whether any of the headers that [`evaluate`](crate::conditional::Validators::evaluate) looks at
/// is there. O(1).
fn is_conditional(head: &Head<'_>) -> bool {
    let headers = [
        KnownHeader::IfNoneMatch,
        KnownHeader::IfModifiedSince,
        KnownHeader::IfMatch,
        KnownHeader::IfUnmodifiedSince,
    ];
    headers
        .into_iter()
        .any(|header| head.known(header).is_some())
}
