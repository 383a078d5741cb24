//! Gathers what a server shows of itself (`observe/figures.rs`).

use std::time::Duration;

use super::Shared;
use crate::observe::figures::{
    Figures, JobFigures, ListenerFigures, RunningHandler, ThreadFigures, TurnAge, WorkerFigures,
};
use crate::observe::statistics::{Statistics, ThreadCounters};

impl Shared {
    /// What all listeners counted on all network threads. O(threads × listeners).
    pub(crate) fn statistics(&self) -> Statistics {
        let mut sum = Statistics::default();
        for (_, thread) in self.threads() {
            for (_, counters) in thread.listeners() {
                sum += counters.read();
            }
        }
        sum
    }

    pub(crate) fn figures(&self) -> Figures {
        let workers = self.worker_pool.statistics();
        Figures {
            uptime: self.started.elapsed(),
            started_at: self.started_at,
            state: self.server_state(),
            listeners: (0..)
                .zip(self.jobs())
                .map(|(number, jobs)| self.listener_figures(number, jobs))
                .collect(),
            threads: self
                .threads()
                .map(|(number, counters)| self.thread_figures(number, counters))
                .collect(),
            workers: WorkerFigures {
                threads: workers.workers,
                idle: workers.idle,
                min: self.workers_min,
                max: self.workers_max,
                started: self.workers_grown.read(),
            },
            pool: self.memory.pools.figures(),
            receive_memory: self.regions.read(),
            descriptors: self.descriptors.figures(),
        }
    }

    fn listener_figures(&self, number: usize, jobs: JobFigures) -> ListenerFigures {
        let listener = &self.listeners[number];
        let counters = || {
            self.threads().filter_map(|(thread, counters)| {
                let mut listeners = counters.listeners();
                let (_, counters) = listeners.find(|(own, _)| *own == number)?;
                Some((thread, counters))
            })
        };
        let threads = counters().map(|(thread, counters)| (thread, counters.read()));
        let refused = |index| counters().map(|(_, it)| it.refusals.read(index)).sum();
        let reasons = listener.refusal_reasons.iter().enumerate();
        ListenerFigures {
            name: listener.name,
            address: listener.address.clone(),
            request_classes: listener.request_classes,
            refusals: reasons
                .map(|(index, reason)| (*reason, refused(index)))
                .collect(),
            jobs,
            threads: threads.collect(),
        }
    }

    fn thread_figures(&self, number: usize, counters: &ThreadCounters) -> ThreadFigures {
        ThreadFigures {
            number,
            driver: counters.driver,
            turns: counters.turns(),
            turn: self.present_turn(number).map(|(age, _)| age),
            signals: counters.signals.read(),
            signal_panics: counters.signal_panics.read(),
            dispatch: Duration::from_nanos(counters.dispatch_ns.read()),
        }
    }

    /// The turn that a network thread is in, and when it began.
    fn present_turn(&self, thread: usize) -> Option<(TurnAge, Duration)> {
        let thread = u16::try_from(thread).ok()?;
        let (listener, since, age) = self.lifecycle.present_turn(thread)?;
        let listener = self.number_of(thread, listener);
        Some((TurnAge { listener, age }, since))
    }

    /// The handlers that have run for `longer_than`: in workers, and inline.
    pub(crate) fn handlers(&self, longer_than: Duration) -> Vec<RunningHandler> {
        let mut handlers = self.running();
        for (thread, _) in self.threads() {
            if let Some((TurnAge { listener, age }, since)) = self.present_turn(thread) {
                handlers.push(RunningHandler {
                    listener,
                    thread: u32::try_from(thread).unwrap_or(u32::MAX),
                    is_inline: true,
                    since,
                    age,
                });
            }
        }
        handlers.retain(|handler| handler.age >= longer_than);
        handlers
    }
}
