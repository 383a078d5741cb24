//! Our server in a process of its own, with its dispatch observed: it says on request how many
//! calls went to workers, and what putting them on the queue took.
//!
//! Protocol: `listening nfs ADDR` on standard output, then one line of JSON for each line on
//! standard input, until that ends.

use std::io::Write;
use std::path::PathBuf;

use clap::Args;
use flatpath::{DriverChoice, Server};
use flatpath_nfs::{Nfs, Options, Squash};
use serde::{Deserialize, Serialize};

use crate::Failure;

/// What `sweep` starts.
#[derive(Debug, Args)]
pub(crate) struct Serve {
    directory: PathBuf,
    workers: u32,
    driver: String,
}

/// Sums since the start of the server.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Dispatches {
    pub(crate) jobs: u64,
    pub(crate) nanoseconds: u64,
}

impl Dispatches {
    /// The mean cost of one dispatch since `before`, in nanoseconds.
    pub(crate) fn mean_since(self, before: Dispatches) -> f64 {
        let jobs = self.jobs - before.jobs;
        (self.nanoseconds - before.nanoseconds) as f64 / jobs as f64
    }
}

/// See the module.
pub(crate) fn serve(arguments: Serve) -> Result<(), Failure> {
    let Serve {
        directory,
        workers,
        driver,
    } = arguments;
    let choice = match &*driver {
        "auto" => DriverChoice::Auto,
        "uring" => DriverChoice::Uring,
        "epoll" => DriverChoice::Epoll,
        other => return Err(format!("{other} is no driver").into()),
    };
    let options = Options {
        squash: Squash::Anonymous,
        ..Options::new(directory)
    };
    let nfs = Nfs::open(options)?;
    let running = Server::new()
        .workers(workers..=workers)
        .driver(choice)
        .driver_config(Nfs::driver_config())
        .observe_dispatch()
        .listen("127.0.0.1:0", nfs.protocol())
        .start()?;
    let mut output = std::io::stdout().lock();
    for bound in running.addresses() {
        writeln!(output, "listening {} {}", bound.name, bound.address)?;
    }
    output.flush()?;
    let handle = running.handle();
    for line in std::io::stdin().lines() {
        line?;
        let statistics = handle.statistics();
        let sums = Dispatches {
            jobs: statistics.dispatched.read(),
            nanoseconds: statistics.dispatch_ns.read(),
        };
        writeln!(output, "{}", serde_json::to_string(&sums)?)?;
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
