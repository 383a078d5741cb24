//! Our server in a process of its own, with its dispatch observed: it says on request how many
//! calls went to workers, and what putting them on the queue took.
//!
//! Protocol: `listening nfs ADDR` and `ready` on standard output, then the two sums for each line
//! on standard input, until that ends.

use std::io::{self, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use flatpath::Server;
use flatpath_nfs::{Access, Nfs, Options, Squash};
use flatpath_testkit::Child;

use super::serve::driver;

/// How long it may take to answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// What `nfs-sweep` starts.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    directory: PathBuf,
    workers: u32,
    driver: String,
}

/// Sums since the start of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Dispatches {
    jobs: u64,
    nanoseconds: u64,
}

impl Dispatches {
    /// Asks the server.
    ///
    /// # Errors
    /// It does not answer.
    pub(crate) fn ask(server: &mut Child) -> io::Result<Self> {
        server.tell("")?;
        let line = server.line(ANSWER_MAX)?;
        let numbers = line.split_once(' ');
        let numbers = numbers.and_then(|(jobs, ns)| Some((jobs.parse().ok()?, ns.parse().ok()?)));
        let (jobs, nanoseconds) = numbers.ok_or_else(|| io::Error::other(line))?;
        Ok(Self { jobs, nanoseconds })
    }

    /// The mean cost of one dispatch since `before`, in nanoseconds.
    pub(crate) fn mean_since(self, before: Dispatches) -> f64 {
        let jobs = self.jobs - before.jobs;
        (self.nanoseconds - before.nanoseconds) as f64 / jobs as f64
    }
}

/// See the module.
pub(crate) fn serve(arguments: Serve) -> io::Result<()> {
    let options = Options {
        squash: Squash::Anonymous,
        access: Access::ReadWrite,
        ..Options::new(arguments.directory)
    };
    let nfs = Nfs::open(options).map_err(io::Error::other)?;
    let workers = arguments.workers;
    let running = Server::new()
        .workers(workers..=workers)
        .driver(driver(&arguments.driver)?)
        .driver_config(Nfs::driver_config())
        .observe_dispatch()
        .listen("127.0.0.1:0", nfs.protocol())
        .start()
        .map_err(io::Error::other)?;
    let mut output = io::stdout().lock();
    for bound in running.addresses() {
        writeln!(output, "listening {} {}", bound.name, bound.address)?;
    }
    writeln!(output, "ready")?;
    output.flush()?;
    let handle = running.handle();
    for line in io::stdin().lines() {
        line?;
        let figures = handle.figures();
        let dispatch: Duration = figures.threads.iter().map(|thread| thread.dispatch).sum();
        let jobs = figures.total().jobs_dispatched;
        writeln!(output, "{jobs} {}", dispatch.as_nanos())?;
        output.flush()?;
    }
    drop(running);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_of_what_came_between() {
        let before = Dispatches {
            jobs: 10,
            nanoseconds: 1_000_000,
        };
        let after = Dispatches {
            jobs: 14,
            nanoseconds: 1_000_600,
        };
        assert!((after.mean_since(before) - 150.0).abs() < 1e-9);
    }
}
