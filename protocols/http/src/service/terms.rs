//! The terms on which workers get a request: within which time, and on which part of the workers.
//!
//! Known from the head, by the route: so what waits can be answered when its time is over, and
//! finds a worker that others have not taken. A router makes them ([`Router::workers`],
//! [`TimeOut`]); a listener's parts are those of its service, numbered once.
//!
//! What a worker does first may be work that waits for nobody ([`Work`]), which has a part that no
//! handler takes. The kind is asked for when a request goes to a worker, so one that does not pays
//! nothing. A request whose kind changes in between is *two jobs*: the first one comes back without
//! an answer, and the network thread dispatches it anew, as what follows
//! (`WorkerScope::end_kept_work`).
//!
//! | a request begins with      | first job in             | then in                       |
//! |----------------------------|--------------------------|-------------------------------|
//! | a handler                  | its route's part or none | —                             |
//! | work that waits for nobody | the part of its kind     | the same, for its body as well |
//! | a check of its password    | the part of checks       | that of what follows; none for a |
//! |                            |                          | handler; the same for the rest   |
//!
//! [`Router::workers`]: crate::Router::workers
//! [`TimeOut`]: crate::TimeOut

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use flatpath::lock::Lock;
use flatpath::{KeptWork, PartSize, WorkersPart};

use crate::head::Head;
use crate::service::{Place, Service};

/// What a route has agreed with its workers; see [`Place::Within`](crate::Place).
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// The shortest of the time-outs around it.
    pub(crate) time: Option<Duration>,
    pub(crate) part: Option<Part>,
    /// Its handler wants to know whether its client is gone.
    pub(crate) watches: bool,
}

/// A part of the workers. A clone is the same one.
#[derive(Clone, Debug)]
pub(crate) struct Part(Arc<WorkersPart>);

/// What handlers with a time-out have together, where they have no part of their own: others find
/// workers, however many of these are still at what nobody waits for.
static TIMED: LazyLock<Part> =
    LazyLock::new(|| Part::new("handlers with time-outs", PartSize::Common));

impl Part {
    fn new(name: impl Into<Arc<str>>, size: PartSize) -> Self {
        let name = name.into();
        Self(Arc::new(WorkersPart { name, size }))
    }

    /// One of this many workers.
    pub(crate) fn own(workers: u32) -> Self {
        Self::new(format!("a part of {workers}"), PartSize::Own(workers))
    }

    fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Terms {
    /// Those of a handler that wants to know whether its client is gone.
    pub(crate) fn watching() -> Self {
        Self {
            watches: true,
            ..Self::default()
        }
    }

    /// A time-out is put around the route.
    pub(crate) fn bound_by(&mut self, time: Duration) {
        self.time = Some(self.time.map_or(time, |other| other.min(time)));
        self.part.get_or_insert_with(|| TIMED.clone());
    }

    /// The route has this part, unless it has one of its own already.
    pub(crate) fn within(&mut self, part: &Part) {
        let has_own = self.part.as_ref().is_some_and(|part| !part.is(&TIMED));
        if !has_own {
            self.part = Some(part.clone());
        }
    }
}

/// What a worker would do for a request, where that never waits for a client or for the code of a
/// program: see [`Service::work`](crate::Service::work).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Work {
    /// What comes first, if that keeps a part of the workers.
    kind: Option<KeptWork>,
    then: Then,
}

/// What follows that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// More of the kind, or what waits for nobody either.
    Same,
    /// Work that has another part.
    Kept(KeptWork),
    /// What may wait: a handler.
    Handler,
}

impl Work {
    /// Of one kind, to its end.
    #[must_use]
    pub fn of(kind: KeptWork) -> Self {
        Self {
            kind: Some(kind),
            then: Then::Same,
        }
    }

    /// Of no such kind, so that it has no part of its own; but it may be done in that of what comes
    /// before it.
    #[must_use]
    pub fn brief() -> Self {
        Self {
            kind: None,
            then: Then::Same,
        }
    }

    /// Of this kind first; when that is done ([`WorkerScope::end_kept_work`]), what a service
    /// inside does.
    ///
    /// [`WorkerScope::end_kept_work`]: flatpath::WorkerScope::end_kept_work
    #[must_use]
    pub fn before(kind: KeptWork, inside: Option<Self>) -> Self {
        let then = match inside {
            // The second piece of it is done where what follows is.
            Some(inside) if inside.kind == Some(kind) => inside.then,
            Some(inside) => inside.kind.map_or(Then::Same, Then::Kept),
            None => Then::Handler,
        };
        Self {
            kind: Some(kind),
            then,
        }
    }
}

/// The parts that kinds of work keep. Each is one, so that it is known again.
fn kept(kind: KeptWork) -> Part {
    static KEPT: LazyLock<Lock<Vec<(KeptWork, Part)>>> = LazyLock::new(Lock::default);
    let mut known = KEPT.lock();
    if let Some((_, part)) = known.iter().find(|(known, _)| *known == kind) {
        return part.clone();
    }
    let part = Part(Arc::new(WorkersPart::kept(kind)));
    known.push((kind, part.clone()));
    part
}

/// The parts of the workers that a service asks for: see
/// [`Service::worker_parts`](crate::Service::worker_parts).
#[derive(Clone, Debug, Default)]
pub struct WorkerParts(Vec<Part>);

impl WorkerParts {
    /// Those of a service.
    pub(crate) fn of(service: &impl Service) -> Self {
        let mut parts = Self::default();
        service.worker_parts(&mut parts);
        parts
    }

    /// Adds that of a route, if it has one.
    pub(crate) fn add(&mut self, terms: Option<&Terms>) {
        if let Some(part) = terms.and_then(|terms| terms.part.as_ref())
            && !self.0.iter().any(|known| known.is(part))
        {
            self.0.push(part.clone());
        }
    }

    /// Adds that of a kind of work that the service does: its jobs wait for no handler then.
    pub fn keep(&mut self, kind: KeptWork) {
        let part = kept(kind);
        if !self.0.iter().any(|known| known.is(&part)) {
            self.0.push(part);
        }
    }

    /// Those of each kind that a service does, for one that may come to do any of them while its
    /// listener serves.
    pub(crate) fn keep_all(&mut self) {
        for kind in [KeptWork::Passwords, KeptWork::Files] {
            self.keep(kind);
        }
    }

    pub(crate) fn list(&self) -> Vec<WorkersPart> {
        self.0.iter().map(|part| (*part.0).clone()).collect()
    }

    /// A route's terms for its jobs. A part that its listener was started without is none.
    pub(crate) fn of_job(&self, terms: &Terms) -> JobTerms {
        JobTerms {
            time: terms.time,
            part: terms.part.as_ref().and_then(|part| self.number(part)),
            then: None,
        }
    }

    /// The terms of a job that begins with work of some kind. One whose part its listener was
    /// started without is a job as others are.
    pub(crate) fn of_work(&self, work: Work) -> JobTerms {
        let number = |kind| self.number(&kept(kind));
        let Some(part) = work.kind.and_then(number) else {
            return JobTerms::default();
        };
        let then = match work.then {
            Then::Same => None,
            // Without its part it is done in this one.
            Then::Kept(kind) => number(kind).map(Some),
            Then::Handler => Some(None),
        };
        JobTerms {
            time: None,
            part: Some(part),
            then,
        }
    }

    fn number(&self, part: &Part) -> Option<u16> {
        let number = self.0.iter().position(|known| known.is(part))?;
        number.try_into().ok()
    }
}

/// What is known of a request on its way to a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Asked<'a> {
    /// The terms of its route.
    Route(&'a Terms),
    /// Work that waits for nobody.
    Work(Work),
    Nothing,
}

/// What is known of a request by where it was planned to be answered, and where it is: of one that
/// was to be answered on the network thread the service says what a worker would begin it with.
#[inline]
pub(crate) fn asked_terms<'a, S: Service>(
    service: &S,
    (planned, place): (&Place<'_>, &Place<'a>),
    head: &Head<'_>,
) -> Asked<'a> {
    if let Place::Within(terms) = *place {
        return Asked::Route(terms);
    }
    if let Place::Worker | Place::Within(_) = planned {
        return Asked::Nothing;
    }
    let work = service.work(head);
    work.map_or(Asked::Nothing, Asked::Work)
}

/// The terms of a request, as its job has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobTerms {
    /// How long it may take from its arrival on.
    pub(crate) time: Option<Duration>,
    /// The number of its part of the workers.
    pub(crate) part: Option<u16>,
    /// It begins with other work than it goes on with: the part of what follows.
    pub(crate) then: Option<Option<u16>>,
}

impl JobTerms {
    /// For what has deadlines of its own.
    pub(crate) fn without_time(self) -> Self {
        Self { time: None, ..self }
    }

    /// When the first work is done.
    pub(crate) fn afterwards(self) -> Self {
        Self {
            part: self.then.unwrap_or(self.part),
            then: None,
            ..self
        }
    }
}
