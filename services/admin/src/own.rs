//! Metrics that are not counted by the server itself: whether it is ready, which of its handlers
//! are slow, and what the kernel says of the process.

use std::time::Duration;

use crate::flatpath::ServerState;
use crate::flatpath::figures::{Figures, RunningHandler};
use crate::flatpath::metrics::{Family, Metric, read, read_each};
use crate::process::{self, Process};

/// The data of one scrape.
#[derive(Default)]
pub(crate) struct Reading {
    /// There is a server to show.
    pub(crate) is_attached: bool,
    /// The program has no reason against new clients.
    pub(crate) has_no_reason: bool,
    pub(crate) figures: Figures,
    /// The handlers that have run for longer than `slow_after`.
    pub(crate) slow: Vec<RunningHandler>,
    pub(crate) slow_after: Duration,
    /// The kernel's numbers for the process, where there is a `/proc`.
    pub(crate) process: Option<Process>,
}

impl Reading {
    /// How far the server is, in one word.
    pub(crate) fn state(&self) -> &'static str {
        match self.is_attached {
            true => word(self.figures.state),
            false => "starting",
        }
    }

    /// Whether new clients should be sent here.
    pub(crate) fn is_ready(&self) -> bool {
        self.is_attached && self.figures.state == ServerState::Running && self.has_no_reason
    }

    /// The metrics of the server and the process.
    pub(crate) fn metrics(&self) -> Vec<Family> {
        let process: Vec<_> = self.process.iter().map(|it| (Vec::new(), it)).collect();
        let process = read_each(process::METRICS, &[], &process);
        [read(METRICS, self), self.figures.metrics(), process].concat()
    }
}

/// A state in one word.
pub(crate) fn word(state: ServerState) -> &'static str {
    match state {
        ServerState::Running => "running",
        ServerState::Leaving => "leaving",
        ServerState::Draining => "draining",
        ServerState::Forced => "forced",
    }
}

#[rustfmt::skip]
const METRICS: &[Metric<Reading>] = &[
    Metric::gauge("flatpath_build_info",
        "Always 1; the version is a label.", &["version"],
        |_, out| out.put(&[env!("CARGO_PKG_VERSION")], true)),
    Metric::gauge("flatpath_start_time_seconds",
        "When the server was started, since 1970.", &[],
        |it, out| {
            if it.is_attached {
                out.put(&[], it.figures.started_at);
            }
        }),
    Metric::gauge("flatpath_ready",
        "1 while new clients should be sent to this server, as /readyz says.", &[],
        |it, out| out.put(&[], it.is_ready())),
    Metric::gauge("flatpath_slow_handlers",
        "Handlers that run now and have for longer than --slow, in workers or inline.",
        &["listener", "address"],
        |it, out| {
            for (number, listener) in it.figures.listeners.iter().enumerate() {
                let slow = it.slow.iter().filter(|handler| handler.listener == number);
                out.put(&[listener.name, &listener.address], slow.count());
            }
        }),
];
