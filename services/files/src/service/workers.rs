//! What [`Files`] does with a request on a worker: an answer or an upload, within the limit of the
//! mount that it leads to, and as often as another owner of what it leads to has to be asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flatpath::blocking::{BlockingLimit, Entry, Permit};
use flatpath::descriptors::DescriptorHold;
use flatpath::memory::Payload;
use flatpath_http::{Request, Response, Sink, UploadDecision, WorkerScope};
use http::Method;

use super::Files;
use crate::answer::Answerer;
use crate::asker::{Asker, Next, Questions};
use crate::form;
use crate::limits::{FORM_DESCRIPTORS, PUT_DESCRIPTORS, TUS_DESCRIPTORS};
use crate::put;
use crate::responses::busy;
use crate::tus;
use crate::tus::ledger::Uploads;
use crate::writing::{WriteOptions, Writing};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Put,
    Form,
    Tus,
}

impl Files {
    /// Answers, or begins an upload, as often as another owner has to be asked.
    pub(super) fn asking(
        &self,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
        run: impl Fn(&Self, &mut Request, &Asker, &mut WorkerScope<'_>) -> UploadDecision,
    ) -> UploadDecision {
        let mut questions = Questions::of(&self.owners, request);
        loop {
            let decision = run(self, request, questions.asker(), scope);
            let next = match decision {
                UploadDecision::Response(response) if !scope.is_parked() => {
                    questions.next(response, request, scope)
                }
                decision => Next::Done(decision),
            };
            if let Next::Done(decision) = next {
                if scope.is_parked() {
                    questions.save(request);
                }
                return decision;
            }
        }
    }

    fn read(&self, request: &Request, asker: &Asker, scope: &mut WorkerScope<'_>) -> Response {
        let answer = |answerer: &Answerer<'_>| answerer.answer(request);
        let answered = self.answer_with(request, scope, asker, answer);
        answered.unwrap_or_else(busy)
    }

    /// An upload that begins, or an answer.
    pub(super) fn begin(
        &self,
        request: &mut Request,
        asker: &Asker,
        scope: &mut WorkerScope<'_>,
    ) -> UploadDecision {
        let Some((uploads, kind)) = self.write_of(request, asker) else {
            return UploadDecision::Response(self.read(request, asker, scope));
        };
        let Some((limit, _inside)) = self.enter(request, scope) else {
            return UploadDecision::Response(busy());
        };
        let descriptors = match kind {
            WriteKind::Put => PUT_DESCRIPTORS,
            WriteKind::Form => FORM_DESCRIPTORS,
            WriteKind::Tus => TUS_DESCRIPTORS,
        };
        let Some(hold) = scope.descriptors().hold(descriptors) else {
            return UploadDecision::Response(busy());
        };
        match begin(&uploads, kind, request) {
            UploadDecision::Sink(sink) => UploadDecision::Sink(Box::new(CountedSink {
                sink,
                writes: Arc::clone(&self.writes),
                limit,
                _hold: hold,
            })),
            refused => refused,
        }
    }

    /// The same for a request whose body is there, and empty.
    pub(super) fn complete(
        &self,
        request: &mut Request,
        asker: &Asker,
        scope: &mut WorkerScope<'_>,
    ) -> UploadDecision {
        let Some((uploads, kind)) = self.write_of(request, asker) else {
            return UploadDecision::Response(self.read(request, asker, scope));
        };
        let Some(_inside) = self.enter(request, scope) else {
            return UploadDecision::Response(busy());
        };
        let response = match begin(&uploads, kind, request) {
            UploadDecision::Sink(sink) => sink.finish(scope),
            UploadDecision::Response(response) => response,
        };
        self.writes.fetch_add(1, Ordering::Relaxed);
        UploadDecision::Response(response)
    }

    /// How a request writes, if it does: as it is a PUT, a [`form`], or one for [`tus`]. One whose
    /// body has arrived with it does not: it was planned for a service that is not writable, which
    /// this one has replaced since, and a body that is written comes piece by piece.
    pub(super) fn write_of(
        &self,
        request: &Request,
        asker: &Asker,
    ) -> Option<(Uploads, WriteKind)> {
        let Writing::Allowed(options) = self.writing else {
            return None;
        };
        if request.body().length() != Some(0) {
            return None;
        }
        let kind = match *request.method() {
            Method::PUT => WriteKind::Put,
            Method::POST if form::concerns(request) => WriteKind::Form,
            _ if tus::concerns(request) => WriteKind::Tus,
            _ => return None,
        };
        Some((self.uploads(options, asker.clone()), kind))
    }

    pub(super) fn uploads(&self, options: WriteOptions, asker: Asker) -> Uploads {
        Uploads {
            root: Arc::clone(&self.root),
            hidden: self.hidden,
            options,
            tags: self.tags,
            ledger: Arc::clone(&self.ledger),
            rule_files: self.rules.root_files,
            asker,
        }
    }

    /// Enters the limit of what a request leads to by its path, if that has one. `None`: it is not
    /// the request's turn, or will not be.
    fn enter(
        &self,
        request: &Request,
        scope: &mut WorkerScope<'_>,
    ) -> Option<(Option<BlockingLimit>, Option<Permit>)> {
        let Some(limit) = self.limit_of(request) else {
            return Some((None, None));
        };
        match limit.enter(scope) {
            Entry::Entered(inside) => Some((Some(limit), Some(inside))),
            // The result after `Later` is dropped.
            Entry::Parked | Entry::Refused => None,
        }
    }
}

fn begin(uploads: &Uploads, kind: WriteKind, request: &mut Request) -> UploadDecision {
    match kind {
        WriteKind::Put => put::begin(uploads, request),
        WriteKind::Form => form::begin(uploads, request),
        WriteKind::Tus => tus::begin(uploads, request),
    }
}

/// A sink that counts when its file is in place: older observations are not trusted then,
/// where a network thread does not look for itself. Its pieces are written within a limit; the
/// end, which cannot be put off any more, is not.
struct CountedSink {
    sink: Box<dyn Sink>,
    writes: Arc<AtomicU64>,
    limit: Option<BlockingLimit>,
    /// Given back after the files of the sink; that of one broken off is closed a moment later.
    _hold: DescriptorHold,
}

impl Sink for CountedSink {
    fn write(
        &mut self,
        piece: &mut Payload,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        let _inside = match self.limit.as_ref().map(|limit| limit.enter(scope)) {
            // The same piece comes again.
            Some(Entry::Parked) => return Ok(()),
            Some(Entry::Refused) => return Err(Box::new(busy())),
            inside => inside,
        };
        self.sink.write(piece, scope)
    }

    fn keeps_parts(&self) -> bool {
        self.sink.keeps_parts()
    }

    fn finish(self: Box<Self>, scope: &mut WorkerScope<'_>) -> Response {
        let response = self.sink.finish(scope);
        self.writes.fetch_add(1, Ordering::Relaxed);
        response
    }
}
