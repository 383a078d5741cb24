//! Another load while busy loops run, one for each core: how long does a client wait when all cores
//! are busy?
//!
//! With few connections a reply waits for the scheduler, not for other requests. A server with one
//! thread is woken once for it; one that hands the request to a worker has two more wake-ups. While
//! more than one request in a hundred waits for a time slice of a loop, the 99th percentile is the
//! length of that wait.

use std::io;
use std::time::Instant;

use flatpath_bench_common::report::Table;
use flatpath_bench_common::servers::{OTHERS, Run};
use flatpath_bench_common::tools::Tool;
use flatpath_bench_common::usage::{Ticks, group_ticks};
use flatpath_testkit::child::{self, Child};

use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;

/// See the module.
pub(crate) struct Busy<L>(pub(crate) L);

impl<L: Load> Load for Busy<L> {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let mut turn = self.0.start(ground, row)?;
        Ok(Box::new(move || {
            BusyLoops::start(ground.core_count())?.leave_out(&mut turn)
        }))
    }

    fn tools(&self) -> &'static [Tool] {
        self.0.tools()
    }

    fn remarks(&self, ground: &Ground, table: &mut Table) -> Vec<String> {
        self.0.remarks(ground, table)
    }
}

/// Processes that compute and never sleep. They end when this is dropped, and with the bench.
struct BusyLoops(Vec<Child>);

impl BusyLoops {
    /// Starts as many.
    fn start(count: usize) -> io::Result<Self> {
        let start = |_| {
            let mut command = child::command("sh", &[]);
            Child::start(command.args(["-c", "while :; do :; done"]))
        };
        (0..count).map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Measures, and takes what the loops used out of what others used.
    fn leave_out(&self, measure: impl FnOnce() -> io::Result<Run>) -> io::Result<Run> {
        let (before, began) = (self.ticks()?, Instant::now());
        let mut run = measure()?;
        let used = self.ticks()?.since(before).as_secs_f64();
        let percent = used / began.elapsed().as_secs_f64().max(1e-9) * 100.0;
        for (metric, others) in &mut run {
            if *metric == OTHERS {
                *others = (*others - percent).max(0.0);
            }
        }
        Ok(run)
    }

    /// An error if one of them has ended: the figures would be of another machine.
    fn ticks(&self) -> io::Result<Ticks> {
        let mut sum = 0;
        for process in &self.0 {
            sum += group_ticks(process.id())?.0;
        }
        Ok(Ticks(sum))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn busy_loops_are_not_others_and_end_when_dropped() {
        let loops = BusyLoops::start(2).expect("started");
        let ids: Vec<_> = loops.0.iter().map(Child::id).collect();
        let run = loops.leave_out(|| Ok(vec![(OTHERS, 0.0)]));
        let run = run.expect("they run");
        assert!(run[0].1.abs() < 1e-9, "{run:?}");
        drop(loops);
        for id in ids {
            assert!(!std::path::Path::new(&format!("/proc/{id}")).exists());
        }
    }
}
