//! The terms on which workers get a request: within which time, and on which part of the workers.
//!
//! Known from the head, by the route: so what waits can be answered when its time is over, and
//! finds a worker that others have not taken. A router makes them ([`Router::workers`],
//! [`TimeOut`]); a listener's parts are those of its service, numbered once.
//!
//! [`Router::workers`]: crate::Router::workers
//! [`TimeOut`]: crate::TimeOut

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use flatpath::{PartSize, WorkersPart};

use crate::service::Service;

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

    pub(crate) fn list(&self) -> Vec<WorkersPart> {
        self.0.iter().map(|part| (*part.0).clone()).collect()
    }

    /// A route's terms for its jobs. A part that its listener was started without is none.
    pub(crate) fn of_job(&self, terms: &Terms) -> JobTerms {
        let number = |part: &Part| self.0.iter().position(|known| known.is(part));
        JobTerms {
            time: terms.time,
            part: terms
                .part
                .as_ref()
                .and_then(number)
                .and_then(|it| it.try_into().ok()),
        }
    }
}

/// The terms of a request, as its job has them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobTerms {
    /// How long it may take from its arrival on.
    pub(crate) time: Option<Duration>,
    /// The number of its part of the workers.
    pub(crate) part: Option<u16>,
}

impl JobTerms {
    /// For what has deadlines of its own.
    pub(crate) fn without_time(self) -> Self {
        Self { time: None, ..self }
    }
}
