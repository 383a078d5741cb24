//! The part of the command line that all benches share, and the begin and end of every bench.
//!
//! Exit status of a bench: 0 measured, whether or not the targets were met; 1 failed; 2 wrong use;
//! 130 interrupted.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::halt_poll;
use crate::namespace::{self, HOST};
use crate::profile::Profile;
use crate::report::{BenchReport, Report};
use flatpath_testkit::{child, process};

#[derive(Clone, Debug, clap::Args)]
pub struct Common {
    /// One short run of everything: shows that it works, not how fast
    #[arg(long)]
    pub quick: bool,
    /// Runs of each candidate, interleaved; the medians are shown [default: each bench's own]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub runs: Option<u32>,
    /// TCP congestion control, set in a network namespace of its own; `host` stays in the machine's
    /// network, with what is set there
    #[arg(long, value_name = "NAME", default_value = HOST)]
    pub congestion: String,
    /// On a virtual machine: how long an idle processor polls before it halts (0: not at all).
    /// Everything is measured under each of these in turn, and the machine's setting is put back;
    /// takes root [default: as the machine is]
    #[arg(long, value_name = "NS", value_delimiter = ',')]
    pub halt_poll: Vec<u32>,
    /// Also write everything, every single run too, as JSON to this file
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

impl Common {
    pub fn profile(&self) -> Profile {
        if self.quick {
            Profile::Quick
        } else {
            Profile::Full
        }
    }

    /// Runs per candidate where nothing else was asked for: `full` times, or once with `--quick`.
    pub fn runs(&self, full: u32) -> usize {
        let default = if self.quick { 1 } else { full };
        self.runs.unwrap_or(default) as usize
    }

    /// Before anything is measured: finds what would make the result impossible to keep, and enters
    /// the namespace. `Some`: the bench ran within, and this is how it ended.
    ///
    /// # Errors
    /// `InvalidInput` for a file that cannot be written; no namespace; no signals.
    pub fn begin(&self) -> io::Result<Option<ExitCode>> {
        if let Some(file) = &self.json {
            std::fs::write(file, "").map_err(|cause| unusable(file, &cause))?;
        }
        if let Some(code) = halt_poll::enter(&self.halt_poll)? {
            return Ok(Some(code));
        }
        if let Some(code) = namespace::enter(&self.congestion)? {
            return Ok(Some(code));
        }
        if cfg!(debug_assertions) {
            eprintln!("this is a debug build: its figures mean little");
        }
        process::raise_descriptor_limit()?;
        child::end_all_on_signals()?;
        Ok(None)
    }

    /// Runs what measures, under each setting of the idle processors that was asked for.
    ///
    /// # Errors
    /// Those of `measure`; a setting that the kernel refuses.
    pub fn measure(
        &self,
        measure: impl FnMut() -> io::Result<Vec<BenchReport>>,
    ) -> io::Result<Report> {
        Report::collect(self.profile(), || {
            halt_poll::under_each(&self.halt_poll, measure)
        })
    }

    /// Prints the report, and writes it where that was asked for.
    pub fn deliver(&self, report: &Report) -> io::Result<()> {
        let mut output = io::stdout().lock();
        output.write_all(report.text().as_bytes())?;
        output.flush()?;
        if let Some(file) = &self.json {
            report.write(file)?;
        }
        Ok(())
    }
}

/// How a bench ended: the error is printed, and decides the status.
pub fn exit_code(program: &str, outcome: io::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        eprintln!("{program}: {error}");
        match error.kind() {
            io::ErrorKind::Interrupted => ExitCode::from(child::EXIT_INTERRUPTED),
            io::ErrorKind::InvalidInput => ExitCode::from(2),
            _ => ExitCode::FAILURE,
        }
    })
}

fn unusable(path: &Path, cause: &io::Error) -> io::Error {
    let message = format!("--json {}: {cause}", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, message)
}
