//! What [`Files`] does with a request on a worker: an answer or an upload, within the limit of the
//! mount that it leads to, and as often as another owner of what it leads to has to be asked.

use std::sync::Arc;

use flatpath::blocking::{BlockingLimit, Entry, Permit};
use flatpath::descriptors::DescriptorHold;
use flatpath::memory::{Payload, Piped};
use flatpath_http::{Request, Response, Sink, UploadDecision, WorkerScope};
use http::{HeaderMap, Method};

use super::Files;
use crate::answer::Answerer;
use crate::asker::{Asker, Next, Questions};
use crate::form;
use crate::homes::{Home, Stay};
use crate::limits::{FORM_DESCRIPTORS, PUT_DESCRIPTORS, TUS_DESCRIPTORS};
use crate::put;
use crate::responses::busy;
use crate::root::Reach;
use crate::rules::{Changes, Held};
use crate::tus;
use crate::tus::ledger::Uploads;
use crate::versions::Versions;
use crate::visit::Visit;
use crate::writing::{WriteOptions, Writing};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WriteKind {
    Put,
    Form,
    Tus,
}

/// Where a request is answered, and in whose name.
type Within<'a> = (Stay<'a>, &'a Asker);

/// The home of a request that was parked, and its version: an extension of it.
#[derive(Clone)]
struct Begun(u64, Arc<Home>);

impl Files {
    /// Answers, or begins an upload, as often as another owner has to be asked: in the home in
    /// which the request began, also when it was parked.
    pub(super) fn asking(
        &self,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
        run: impl Fn(&Self, &mut Request, Within<'_>, &mut WorkerScope<'_>) -> UploadDecision,
    ) -> UploadDecision {
        let begun = request.extensions_mut().remove::<Begun>();
        let (version, home) = begun.map_or_else(|| self.homes.numbered(), |it| (it.0, Some(it.1)));
        let Some(home) = home else {
            return UploadDecision::Response(self.without_home(request, busy()));
        };
        let stay = Stay {
            version,
            home: &home,
        };
        let mut questions = Questions::of(&home.owners, request);
        loop {
            let decision = run(self, request, (stay, questions.asker()), scope);
            // Nearly everywhere no owner is to be asked, and the answer is moved no more.
            if !questions.asker().has_others() && !scope.is_parked() {
                return decision;
            }
            let next = match decision {
                UploadDecision::Response(response) if !scope.is_parked() => {
                    questions.next(response, request, scope)
                }
                decision => Next::Done(decision),
            };
            if let Next::Done(decision) = next {
                if scope.is_parked() {
                    questions.save(request);
                    request.extensions_mut().insert(Begun(version, home));
                }
                return decision;
            }
        }
    }

    fn read(&self, request: &Request, within: Within<'_>, scope: &mut WorkerScope<'_>) -> Response {
        let answer = |answerer: &Answerer<'_>| answerer.answer(request);
        let answered = self.answer_with(request, scope, within, answer);
        answered.unwrap_or_else(busy)
    }

    /// An upload that begins, or an answer.
    pub(super) fn begin(
        &self,
        request: &mut Request,
        within: Within<'_>,
        scope: &mut WorkerScope<'_>,
    ) -> UploadDecision {
        let home = within.0.home;
        let Some((uploads, kind)) = self.write_of(home, request, within.1) else {
            return UploadDecision::Response(self.read(request, within, scope));
        };
        let Some((limit, _inside)) = self.enter(home, request, scope) else {
            return UploadDecision::Response(busy());
        };
        let changes = self.changes_for(home, request, limit.is_some());
        let descriptors = match kind {
            WriteKind::Put => PUT_DESCRIPTORS,
            WriteKind::Form => FORM_DESCRIPTORS,
            WriteKind::Tus => TUS_DESCRIPTORS,
        };
        let Some(hold) = scope.descriptors().hold(descriptors) else {
            return UploadDecision::Response(changes.made(busy()));
        };
        let decision = match begin(&uploads, kind, request) {
            UploadDecision::Sink(sink) => UploadDecision::Sink(Box::new(CountedSink {
                sink,
                versions: Arc::clone(&self.versions),
                limit,
                _hold: hold,
            })),
            decision => decision,
        };
        decision.map(move |response| changes.made(response))
    }

    /// The same for a request whose body is there, and empty.
    pub(super) fn complete(
        &self,
        request: &mut Request,
        within: Within<'_>,
        scope: &mut WorkerScope<'_>,
    ) -> UploadDecision {
        let home = within.0.home;
        let Some((uploads, kind)) = self.write_of(home, request, within.1) else {
            return UploadDecision::Response(self.read(request, within, scope));
        };
        let Some((limit, _inside)) = self.enter(home, request, scope) else {
            return UploadDecision::Response(busy());
        };
        let changes = self.changes_for(home, request, limit.is_some());
        let response = match begin(&uploads, kind, request) {
            UploadDecision::Sink(sink) => sink.finish(scope),
            UploadDecision::Response(response) => response,
            UploadDecision::Whole => busy(),
        };
        self.versions.has_written();
        UploadDecision::Response(changes.made(response))
    }

    /// What the rules change of the headers of whatever answers a write. Where the limit of its
    /// mount was not entered, what of the rules is on another mount is left out.
    fn changes_for(&self, home: &Home, request: &Request, is_within_limit: bool) -> Changes {
        let reach = match is_within_limit || !home.mounts.has_limits() {
            true => Reach::Everywhere,
            false => Reach::OwnMount,
        };
        let held = home.rule_files.hold(&home.root, &self.rules, reach);
        let held = held.unwrap_or_else(|_| Held::of(&self.rules));
        Visit::of(request, held).changes(self.hidden)
    }

    /// How a request writes, if it does: as it is a PUT, a [`form`], or one for [`tus`]. One whose
    /// body has arrived with it does not: it was planned for a service that is not writable, which
    /// this one has replaced since, and a body that is written comes piece by piece.
    pub(super) fn write_of(
        &self,
        home: &Home,
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
        Some((self.uploads(home, options, asker.clone()), kind))
    }

    fn uploads(&self, home: &Home, options: WriteOptions, asker: Asker) -> Uploads {
        Uploads {
            hidden: self.hidden,
            tags: self.tags,
            rule_files: self.rules.root_files,
            ..home.uploads(options, asker)
        }
    }

    /// Enters the limit of what a request leads to by its path, if that has one. `None`: it is not
    /// the request's turn, or will not be.
    fn enter(
        &self,
        home: &Home,
        request: &Request,
        scope: &mut WorkerScope<'_>,
    ) -> Option<(Option<BlockingLimit>, Option<Permit>)> {
        let Some(limit) = self.limit_of(home, request) else {
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
    versions: Arc<Versions>,
    limit: Option<BlockingLimit>,
    /// Given back after the files of the sink; that of one broken off is closed a moment later.
    _hold: DescriptorHold,
}

impl CountedSink {
    /// Has the sink written to, within the limit.
    fn within(
        &mut self,
        scope: &mut WorkerScope<'_>,
        write: impl FnOnce(&mut dyn Sink, &mut WorkerScope<'_>) -> Result<(), Box<Response>>,
    ) -> Result<(), Box<Response>> {
        let _inside = match self.limit.as_ref().map(|limit| limit.enter(scope)) {
            // The same piece comes again.
            Some(Entry::Parked) => return Ok(()),
            Some(Entry::Refused) => return Err(Box::new(busy())),
            inside => inside,
        };
        write(&mut *self.sink, scope)
    }
}

impl Sink for CountedSink {
    fn write(
        &mut self,
        piece: &mut Payload,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.within(scope, |sink, scope| sink.write(piece, scope))
    }

    fn takes_pipes(&self) -> bool {
        self.sink.takes_pipes()
    }

    fn write_piped(
        &mut self,
        piped: &mut Piped,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.within(scope, |sink, scope| sink.write_piped(piped, scope))
    }

    fn trailers(&mut self, trailers: HeaderMap) {
        self.sink.trailers(trailers);
    }

    fn keeps_parts(&self) -> bool {
        self.sink.keeps_parts()
    }

    fn finish(self: Box<Self>, scope: &mut WorkerScope<'_>) -> Response {
        let response = self.sink.finish(scope);
        self.versions.has_written();
        response
    }

    fn refused(self: Box<Self>, response: Response) -> Response {
        self.sink.refused(response)
    }

    fn abandoned(self: Box<Self>) {
        self.sink.abandoned();
    }
}

#[cfg(test)]
mod tests {
    use flatpath::descriptors::DescriptorBudget;
    use flatpath_http::{Disposition, Head, Http, Reply, Service, Turn};
    use flatpath_test::{Conditions, Requests, TestServer};
    use http::HeaderValue;
    use std::sync::Mutex;

    use super::*;

    /// A file that is put in place when the upload ends: tells what was counted by then.
    struct Place(Arc<Versions>);

    impl Sink for Place {
        fn write(&mut self, _: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
            Ok(())
        }

        fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
            Response::new(self.0.writes().to_string().into())
        }
    }

    struct Uploading {
        versions: Arc<Versions>,
        descriptors: DescriptorBudget,
    }

    impl Service for Uploading {
        type ThreadState = ();

        fn thread_state(&self) {}

        fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
            Disposition::Pooled
        }

        fn pooled(&self, _: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
            let descriptors = flatpath::descriptors::ConnectionDescriptors::from(&self.descriptors);
            let sink = CountedSink {
                sink: Box::new(Place(Arc::clone(&self.versions))),
                versions: Arc::clone(&self.versions),
                limit: None,
                _hold: descriptors.hold(1).expect("one is left"),
            };
            Box::new(sink).finish(scope)
        }
    }

    /// Says what it was told of its body.
    struct Told(Arc<Mutex<Vec<String>>>);

    impl Told {
        fn note(&self, what: String) {
            self.0.lock().expect("no panic").push(what);
        }
    }

    impl Sink for Told {
        fn write(&mut self, _: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
            Ok(())
        }

        fn trailers(&mut self, trailers: HeaderMap) {
            self.note(format!("{trailers:?}"));
        }

        fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
            Response::default()
        }

        fn abandoned(self: Box<Self>) {
            self.note("abandoned".into());
        }
    }

    #[test]
    fn a_counted_sink_passes_on_what_comes_beside_the_body() {
        let told = Arc::new(Mutex::new(Vec::new()));
        let budget = DescriptorBudget::default();
        let descriptors = flatpath::descriptors::ConnectionDescriptors::from(&budget);
        let mut sink = Box::new(CountedSink {
            sink: Box::new(Told(Arc::clone(&told))),
            versions: Versions::new(),
            limit: None,
            _hold: descriptors.hold(1).expect("one is left"),
        });
        let trailers = [(http::header::DATE, HeaderValue::from_static("x"))];
        sink.trailers(HeaderMap::from_iter(trailers));
        sink.abandoned();
        let told = told.lock().expect("no panic");
        assert_eq!(**told, [r#"{"date": "x"}"#, "abandoned"]);
    }

    /// Counted before, an observation of the old file could be made after it, and trusted.
    #[test]
    fn sim_a_write_is_counted_after_its_file_is_in_place() {
        let versions = Versions::new();
        let uploading = Uploading {
            versions: Arc::clone(&versions),
            descriptors: DescriptorBudget::default(),
        };
        let mut server = TestServer::new(Conditions::calm(1), Http::service(uploading));
        for count in 0..2 {
            assert_eq!(server.get("/").expect(200).text(), count.to_string());
            assert_eq!(versions.writes(), count + 1);
        }
    }
}
