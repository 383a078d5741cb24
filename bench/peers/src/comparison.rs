//! A comparison as a value: what is served, by which candidates, with which load, what is shown
//! beside what, and what is to be reached. It knows neither the command line nor what is installed;
//! `runner` acts on it.

use std::fmt::{self, Display};
use std::io;

use flatpath_bench_common::report::{Table, Wanted};
use flatpath_bench_common::servers::{Metric, Run};
use flatpath_bench_common::tools::Tool;

use crate::ground::Ground;
use crate::kind::Kind;
use crate::server::{Needs, Server};

/// Runs of each candidate where a comparison says nothing else.
const RUNS: u32 = 5;

/// One table. See the module.
pub(crate) struct Comparison {
    /// What reports call its sort.
    pub(crate) bench: &'static str,
    /// What is compared.
    pub(crate) about: String,
    pub(crate) rows: Vec<Row>,
    pub(crate) load: Box<dyn Load>,
    /// Runs of each candidate, unless the options say otherwise.
    pub(crate) runs: u32,
    /// Connections that the load opens at once, each of which takes a descriptor.
    pub(crate) crowd: u32,
    /// Columns that are also shown as ratios to a row.
    pub(crate) ratios: Vec<(Metric, String)>,
    pub(crate) wishes: Vec<Wish>,
    pub(crate) notes: Vec<&'static str>,
}

/// A candidate of one comparison.
#[derive(Clone, Debug)]
pub(crate) struct Row {
    pub(crate) name: String,
    /// What `--servers` calls it; nothing where it always takes part.
    pub(crate) kind: Option<Kind>,
    pub(crate) needs: Needs,
}

/// What a row is to reach.
pub(crate) struct Wish {
    pub(crate) row: String,
    pub(crate) metric: Metric,
    pub(crate) beside: Beside,
    pub(crate) wanted: Wanted,
}

/// What a figure is divided by.
#[derive(Clone)]
pub(crate) enum Beside {
    Nothing,
    /// The same figure of another row.
    Row(String),
    /// The same, run by run, and the median of these ratios: the machine changes between runs.
    Paired(String),
    /// The same figure of the row that has the lowest of these.
    Best(Vec<String>),
    /// Another figure of the same row.
    Own(Metric),
}

/// What is done to a candidate, and what is counted meanwhile.
pub(crate) trait Load {
    /// Starts a candidate, and checks that it does its work.
    ///
    /// # Errors
    /// It does not start, or replies otherwise.
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>>;

    /// The tools without which it cannot be done.
    fn tools(&self) -> &'static [Tool] {
        &[]
    }

    /// What to know when reading the figures; takes columns out that were measured for that.
    fn remarks(&self, _ground: &Ground, _table: &mut Table) -> Vec<String> {
        Vec::new()
    }
}

/// A candidate that is ready: each call is one run.
pub(crate) type Turn<'a> = Box<dyn FnMut() -> io::Result<Run> + 'a>;

/// The row of this candidate.
pub(crate) fn beside(row: impl Display) -> Beside {
    Beside::Row(row.to_string())
}

impl Comparison {
    /// One without targets yet.
    pub(crate) fn new(
        bench: &'static str,
        about: impl Into<String>,
        rows: Vec<Row>,
        load: impl Load + 'static,
    ) -> Self {
        Self {
            bench,
            about: about.into(),
            rows,
            load: Box::new(load),
            runs: RUNS,
            crowd: 0,
            ratios: Vec::new(),
            wishes: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Also shows these columns as ratios to the row.
    #[must_use]
    pub(crate) fn ratios(mut self, to: impl Display, metrics: &[Metric]) -> Self {
        let shown = metrics.iter().map(|metric| (*metric, to.to_string()));
        self.ratios.extend(shown);
        self
    }

    /// Each of these rows is to reach it.
    #[must_use]
    pub(crate) fn wants(
        mut self,
        rows: impl IntoIterator<Item = impl Display>,
        metric: Metric,
        beside: &Beside,
        wanted: Wanted,
    ) -> Self {
        self.wishes.extend(rows.into_iter().map(|row| Wish {
            row: row.to_string(),
            metric,
            beside: beside.clone(),
            wanted,
        }));
        self
    }

    /// Says what to know when reading the figures.
    #[must_use]
    pub(crate) fn note(mut self, note: &'static str) -> Self {
        self.notes.push(note);
        self
    }

    /// Runs of each candidate.
    #[must_use]
    pub(crate) fn runs(self, runs: u32) -> Self {
        Self { runs, ..self }
    }

    /// Connections that the load opens at once.
    #[must_use]
    pub(crate) fn crowd(self, crowd: u32) -> Self {
        Self { crowd, ..self }
    }
}

impl Row {
    /// A row with a name of its own.
    pub(crate) fn named(name: impl Into<String>, kind: Option<Kind>, needs: Needs) -> Self {
        let name = name.into();
        Self { name, kind, needs }
    }

    /// Rows of candidates that need the same.
    pub(crate) fn of(kinds: &[Kind], needs: &Needs) -> Vec<Self> {
        let row = |kind: &Kind| Self::named(kind.to_string(), Some(*kind), needs.clone());
        kinds.iter().map(row).collect()
    }

    /// Starts it.
    ///
    /// # Errors
    /// As [`Server::start`]; a row that is no server.
    pub(crate) fn start(&self, ground: &Ground) -> io::Result<Server> {
        let kind = self.kind.ok_or_else(|| io::Error::other("no server"))?;
        Server::start(ground, kind, &self.needs)
    }
}

impl Display for Row {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&self.name)
    }
}
