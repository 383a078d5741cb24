//! All clients connect at once; each sends 128 bytes and wants them back.
//!
//! System calls are counted in a run of its own, whose time and CPU are not used: counting them
//! slows the server down.

use std::cell::Cell;
use std::io;
use std::thread;
use std::time::Duration;

use flatpath_bench_common::crowd::{self, Arrival, Outcome};
use flatpath_bench_common::report::Table;
use flatpath_bench_common::servers::{GENERATOR, LOST, Metric, Run, SERVED};
use flatpath_bench_common::system_calls::Counting;
use flatpath_bench_common::tools::{self, Tool};
use flatpath_bench_common::usage::listen_overflows;
use flatpath_testkit::child::refuse_if_interrupted;

use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::Server;

/// From the first connection attempt to the last reply.
const WALL: Metric = Metric::median("wall ms");
/// CPU time of the server in a whole run, and by connection.
const CPU: Metric = Metric::median("CPU ms");
pub(crate) const CPU_EACH: Metric = Metric::median("CPU us/conn");
/// System calls of the server by connection, from a run of its own.
const CALLS: Metric = Metric::median("syscalls/conn");
/// Connections the kernel dropped because the listen queue was full.
const OVERFLOWS: Metric = Metric::sum("overflows");

/// The server gets this long to see the last connections close; it counts as the server's time.
const SETTLE: Duration = Duration::from_millis(100);

/// This many clients.
pub(crate) struct Burst {
    clients: u32,
    /// What has counted system calls.
    counter: Cell<Option<&'static str>>,
}

impl Burst {
    pub(crate) fn of(clients: u32) -> Self {
        let counter = Cell::new(None);
        Self { clients, counter }
    }

    fn measure(&self, server: &Server) -> io::Result<Run> {
        let overflows = listen_overflows()?;
        let (Outcome { served, lost, wall }, used) = server.watch(|| self.burst(server))?;
        let overflows = listen_overflows()?.saturating_sub(overflows);
        let run = vec![
            (SERVED, f64::from(served)),
            (LOST, f64::from(lost)),
            (WALL, wall.as_secs_f64() * 1e3),
            (CPU, used.server.as_secs_f64() * 1e3),
            (CPU_EACH, used.server_micros_over(self.clients.into())),
            (OVERFLOWS, overflows as f64),
        ];
        let mut run = server.shown(&used, run)?;
        // The crowd is always at its limit while it connects.
        run.retain(|figure| figure.0 != GENERATOR);
        Ok(run)
    }

    fn burst(&self, server: &Server) -> io::Result<Outcome> {
        let (address, together) = (server.address, Arrival::TOGETHER);
        let outcome = crowd::at_once(address, self.clients, together, refuse_if_interrupted)?;
        thread::sleep(SETTLE);
        Ok(outcome)
    }

    fn count_calls(&self, server: &Server) -> io::Result<f64> {
        let counting = Counting::begin(server.group())?;
        self.counter.set(Some(counting.name()));
        self.burst(server)?;
        Ok(counting.finish()? as f64 / f64::from(self.clients))
    }
}

impl Load for Burst {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let (server, mut is_counted) = (row.start(ground)?, false);
        Ok(Box::new(move || {
            let mut run = self.measure(&server)?;
            if !is_counted {
                is_counted = true;
                run.push((CALLS, self.count_calls(&server)?));
            }
            Ok(run)
        }))
    }

    fn tools(&self) -> &'static [Tool] {
        &[tools::STRACE]
    }

    fn remarks(&self, _ground: &Ground, _table: &mut Table) -> Vec<String> {
        let by = |name| format!("system calls counted by {name}, in a run of its own");
        self.counter.get().map(by).into_iter().collect()
    }
}
