//! `flatpath doctor`: what this machine offers, what the engine will use, and why.
//!
//! Everything is tried or read, nothing concluded from a version. An obstacle is named together
//! with its cure. The report goes to standard output, as text or, with `--json`, as JSON. Where
//! this machine does not offer what is [asked for](asked), the exit code is that of a
//! [mismatch](Failure::Mismatch).

mod asked;
mod limits;

use std::fmt::{self, Display};
use std::io::Write;
use std::path::Path;

use clap::{Arg, ArgAction, ArgMatches, Command};
use flatpath::limits::DESCRIPTORS_RESERVED;
use flatpath::{DriverChoice, DriverConfig};
use flatpath_driver::idle::IdleSetting;
use flatpath_driver::probe::{Finding, Probe, Use};
use flatpath_files::{Files, Resolution};
use serde_json::{Value, json};

use crate::failure::Failure;
use crate::scanners::Scanners;
use asked::Asked;
use limits::{Bounds, MachineLimits};

/// Connections that are taken where the descriptor limit allows more.
const CONNECTIONS_DEFAULT: u64 = 100_000;

/// Below this many descriptors it is worth saying so: a busy server has as many connections.
const DESCRIPTORS_FEW: u64 = 10_000;

/// A shorter queue of the kernel drops connections when many come at once.
const BACKLOG_FEW: u64 = 4_096;

/// How long an idle processor may poll before it halts, in ns: the kernel's default.
const HALT_POLL_NS: u64 = 200_000;

const CODES: &str =
    "Exit codes: 0, this machine offers what a server needs and what options and file ask for;
3, it does not: \"mismatches\" in the report says what is missing; 2, serve would refuse the
options or the file; 1, the report cannot be made. What the server finds another way for by
itself, such as epoll in place of io_uring, is advice, and no mismatch unless it is asked for.";

/// The command line of `doctor`.
pub(crate) fn command() -> Command {
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue);
    Command::new("doctor")
        .about("Tell what this machine offers, what the engine will use, and why")
        .arg(json.help("Report as JSON"))
        .args(asked::arguments())
        .after_help(CODES)
}

/// Everything there is to say.
#[derive(Debug)]
struct Report {
    probe: Probe,
    processors: usize,
    /// On a virtual machine.
    idle: Option<IdleSetting>,
    limits: MachineLimits,
    scanners: Scanners,
    verdict: Verdict,
    /// Of each certificate that can be used, what it is.
    certificates: Vec<String>,
    /// What is asked for and not offered.
    mismatches: Vec<String>,
    /// Possible improvements, each with its remedy.
    advice: Vec<String>,
}

/// The behaviour of `flatpath serve` here, with what is asked for as far as that is offered.
#[derive(Debug)]
struct Verdict {
    driver: &'static str,
    driver_reason: String,
    network_threads: usize,
    connections_max: u64,
    buffer_bytes_max: usize,
    path_resolution: &'static str,
}

/// Looks at the machine and reports.
///
/// # Errors
/// Also, after the report, a mismatch.
pub(crate) fn run(arguments: &ArgMatches) -> Result<(), Failure> {
    let asked = Asked::of(arguments)?;
    let report = Report::of_this_machine(&asked)?;
    let text = if arguments.get_flag("json") {
        let failed = |cause| Failure::Failed(format!("the report cannot be written: {cause}"));
        serde_json::to_string_pretty(&report.to_json()).map_err(failed)? + "\n"
    } else {
        report.to_string()
    };
    let mut output = std::io::stdout().lock();
    let written = output
        .write_all(text.as_bytes())
        .and_then(|()| output.flush());
    written.map_err(|cause| Failure::Failed(format!("standard output is closed: {cause}")))?;
    match report.mismatches.len() {
        0 => Ok(()),
        1 => Err(Failure::Mismatch("there is a mismatch".into())),
        count => Err(Failure::Mismatch(format!("there are {count} mismatches"))),
    }
}

impl Report {
    fn of_this_machine(asked: &Asked) -> Result<Self, Failure> {
        let limits = MachineLimits::read();
        let (verdict, refusal) = Verdict::of(&limits, asked)?;
        let idle = IdleSetting::of_this_machine();
        let scanners = Scanners::below(Path::new("/proc"));
        let certificates = asked.certificates()?;
        let memory_bytes = asked::memory_bytes();
        let mut mismatches = asked.mismatches(&limits, refusal.as_deref(), memory_bytes);
        mismatches.extend(certificates.mismatches);
        let mut advice = advice(&limits, &verdict, idle.as_ref(), &scanners);
        advice.extend(certificates.warnings);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            probe: Probe::run(),
            processors,
            idle,
            limits,
            scanners,
            verdict,
            certificates: certificates.words,
            mismatches,
            advice,
        })
    }
}

impl Report {
    /// The same for programs, by the names of the fields.
    fn to_json(&self) -> Value {
        let bounds = |it: &Bounds| json!({ "now": it.now, "at_most": it.at_most });
        let findings = self.probe.findings.iter().map(|finding| {
            let refusal = finding.refusal.as_ref().map(|refusal| {
                json!({
                    "step": refusal.step,
                    "errno": refusal.errno,
                    "cause": words(refusal.cause),
                    "cure": refusal.cure,
                })
            });
            json!({
                "feature": finding.feature,
                "used": words(finding.used),
                "since": finding.since,
                "without": finding.without,
                "refusal": refusal,
            })
        });
        let idle = self.idle.as_ref().map(|idle| {
            json!({
                "driver": idle.driver,
                "governor": idle.governor,
                "guest_halt_poll_ns": idle.halt_poll_ns,
                "halts_at_once": idle.halts_at_once(),
            })
        });
        let (limits, verdict) = (&self.limits, &self.verdict);
        json!({
            "probe": {
                "kernel": self.probe.kernel,
                "task_run": self.probe.task_run.map(words),
                "findings": findings.collect::<Vec<_>>(),
            },
            "processors": self.processors,
            "idle": idle,
            "limits": {
                "descriptors": bounds(&limits.descriptors),
                "locked_memory_bytes": bounds(&limits.locked_memory_bytes),
                "io_uring_disabled": limits.io_uring_disabled,
                "io_uring_group": limits.io_uring_group,
                "backlog_max": limits.backlog_max,
                "local_ports": limits.local_ports,
            },
            "scanners": {
                "programs": self.scanners.programs,
                "hidden": self.scanners.hidden,
            },
            "verdict": {
                "driver": verdict.driver,
                "driver_reason": verdict.driver_reason,
                "network_threads": verdict.network_threads,
                "connections_max": verdict.connections_max,
                "buffer_bytes_max": verdict.buffer_bytes_max,
                "path_resolution": verdict.path_resolution,
            },
            "certificates": self.certificates,
            "mismatches": self.mismatches,
            "advice": self.advice,
        })
    }
}

/// The name of a variant as JSON has it: `locked-memory` for `LockedMemory`.
fn words(variant: impl fmt::Debug) -> String {
    let mut words = String::new();
    for letter in format!("{variant:?}").chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('-');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

impl Verdict {
    /// What a server will do, and why it cannot have the driver that is asked for.
    fn of(limits: &MachineLimits, asked: &Asked) -> Result<(Self, Option<String>), Failure> {
        let select = |choice| flatpath_driver::select(choice, &DriverConfig::default());
        let (selection, refusal) = match (asked.driver(), select(asked.driver())) {
            (DriverChoice::Uring, Err(refusal)) => {
                (select(DriverChoice::Auto), Some(refusal.to_string()))
            }
            (_, selection) => (selection, None),
        };
        let selection = selection.map_err(|refusal| Failure::Failed(refusal.to_string()))?;
        let descriptors = limits.descriptors.now.unwrap_or(u64::MAX);
        let reserved = DESCRIPTORS_RESERVED.min(descriptors / 2);
        let resolution = Files::open(Path::new("/")).map(|files| files.resolution());
        let wished = asked.settings.max_connections;
        let wished = wished.map_or(CONNECTIONS_DEFAULT, |wished| wished as u64);
        let threads = asked.settings.network_threads.unwrap_or_default();
        let verdict = Self {
            driver: selection.name(),
            driver_reason: selection.reason().to_string(),
            network_threads: threads.count(),
            connections_max: wished.min(descriptors - reserved),
            buffer_bytes_max: asked.buffers(),
            path_resolution: match resolution {
                Ok(Resolution::Kernel) => "openat2",
                Ok(Resolution::Walk) => "openat, name by name: openat2 is refused",
                Err(_) => "unknown: the root directory cannot be opened",
            },
        };
        Ok((verdict, refusal))
    }
}

fn advice(
    limits: &MachineLimits,
    verdict: &Verdict,
    idle: Option<&IdleSetting>,
    scanners: &Scanners,
) -> Vec<String> {
    let mut advice = Vec::new();
    if verdict.driver != "uring" {
        advice.push(format!(
            "epoll is used instead of io_uring: {}",
            verdict.driver_reason
        ));
    }
    let descriptors = &limits.descriptors;
    if let Some(now) = descriptors.now
        && now < DESCRIPTORS_FEW
    {
        let (limit, cure) = (verdict.connections_max, descriptors.cure());
        advice.push(format!(
            "{now} descriptors allow {limit} connections: {cure}"
        ));
    }
    if let Some(backlog) = limits.backlog_max
        && backlog < BACKLOG_FEW
    {
        advice.push(format!(
            "only {backlog} connections may wait to be accepted: \
             set sysctl net.core.somaxconn={BACKLOG_FEW}"
        ));
    }
    advice.extend(idle.and_then(advice_on_idle));
    advice.extend(advice_on_scanners(scanners));
    advice
}

/// The cost for a lone client where idle processors halt at once: docs/figures.md, "One client, one
/// call at a time".
fn advice_on_idle(idle: &IdleSetting) -> Option<String> {
    idle.halts_at_once().then(|| {
        format!(
            "idle processors of this virtual machine halt at once ({idle}), so waking a thread \
             goes through the hypervisor. Where that was measured, a lone client that waits for \
             each reply had a fifth of the calls, at 3.7 times the server's CPU time; the more \
             calls are under way, the less it costs. Where it matters, {}. Then a processor \
             polls for up to {} us each time it falls idle, which the host takes for work",
            idle.cure(HALT_POLL_NS),
            HALT_POLL_NS / 1000,
        )
    })
}

/// The effect of programs that permit each access to a file on tries on network threads.
fn advice_on_scanners(scanners: &Scanners) -> Option<String> {
    (!scanners.programs.is_empty()).then(|| {
        format!(
            "each access to some files waits for an answer of {}, which asked the kernel for that \
             (permission events of fanotify). A directory in which such a wait takes 100 ms is \
             served by workers from then on for a while; exempt what is served, or its server",
            scanners.programs.join(", ")
        )
    })
}

impl Display for Report {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let limits = &self.limits;
        let ports = limits
            .local_ports
            .map(|(first, last)| format!("{first}-{last}"));
        let idle = self.idle.as_ref().map(ToString::to_string);
        writeln!(formatter, "machine")?;
        for (name, value) in [
            ("kernel", self.probe.kernel.clone()),
            ("processors", self.processors.to_string()),
            (
                "idle processors",
                idle.unwrap_or_else(|| "no virtual machine".into()),
            ),
            ("descriptors", limits.descriptors.to_string()),
            (
                "locked memory, bytes",
                limits.locked_memory_bytes.to_string(),
            ),
            ("kernel.io_uring_disabled", known(limits.io_uring_disabled)),
            ("kernel.io_uring_group", known(limits.io_uring_group)),
            ("net.core.somaxconn", known(limits.backlog_max)),
            ("local ports", known(ports)),
            ("scanners of accesses", self.scanners.to_string()),
        ] {
            writeln!(formatter, "  {name:<26}{value}")?;
        }
        writeln!(formatter, "\nfeatures of io_uring")?;
        for finding in &self.probe.findings {
            write_finding(formatter, finding)?;
        }
        let verdict = &self.verdict;
        writeln!(formatter, "\nflatpath serve will use")?;
        for (name, value) in [
            (
                "driver",
                format!("{}: {}", verdict.driver, verdict.driver_reason),
            ),
            ("network threads", verdict.network_threads.to_string()),
            ("connections at once", verdict.connections_max.to_string()),
            ("buffers, bytes", verdict.buffer_bytes_max.to_string()),
            ("paths are resolved by", verdict.path_resolution.to_string()),
        ] {
            writeln!(formatter, "  {name:<26}{value}")?;
        }
        if !self.certificates.is_empty() {
            writeln!(formatter, "\ncertificates")?;
            for certificate in &self.certificates {
                writeln!(formatter, "  {certificate}")?;
            }
        }
        for (heading, lines) in [("mismatches", &self.mismatches), ("advice", &self.advice)] {
            if !lines.is_empty() {
                writeln!(formatter, "\n{heading}")?;
            }
            for line in lines {
                writeln!(formatter, "  - {line}")?;
            }
        }
        Ok(())
    }
}

fn known(value: Option<impl ToString>) -> String {
    value.map_or("unknown".into(), |value| value.to_string())
}

fn write_finding(formatter: &mut fmt::Formatter<'_>, finding: &Finding) -> fmt::Result {
    let used = match finding.used {
        Use::Required => "required",
        Use::Preferred => "preferred",
    };
    match &finding.refusal {
        None => writeln!(formatter, "  yes  {:<46}{used}", finding.feature),
        Some(refusal) => {
            writeln!(formatter, "  no   {:<46}{used}", finding.feature)?;
            writeln!(formatter, "       {refusal}")?;
            writeln!(formatter, "       without it {}", finding.without)
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::expect_file;
    use flatpath_driver::{Cause, Refusal};

    use super::*;

    fn limits(descriptors: u64, at_most: Option<u64>, backlog: u64) -> MachineLimits {
        MachineLimits {
            descriptors: Bounds {
                now: Some(descriptors),
                at_most,
            },
            locked_memory_bytes: Bounds {
                now: None,
                at_most: None,
            },
            io_uring_disabled: Some(0),
            io_uring_group: None,
            backlog_max: Some(backlog),
            local_ports: None,
        }
    }

    fn asked(arguments: &[&str]) -> Asked {
        let words = [&["doctor"], arguments].concat();
        let matches = command().try_get_matches_from(words).expect("valid");
        Asked::of(&matches).expect("serve would take it")
    }

    #[test]
    fn the_verdict_is_what_the_engine_will_do() {
        let verdict = |descriptors, arguments: &[&str]| {
            let (verdict, _) = Verdict::of(&limits(descriptors, None, 4_096), &asked(arguments))
                .expect("a verdict");
            (verdict.connections_max, verdict.driver)
        };
        let connections = |descriptors| verdict(descriptors, &[]).0;
        assert_eq!(connections(1_024), 1_024 - DESCRIPTORS_RESERVED);
        assert_eq!(connections(64), 32);
        assert_eq!(connections(1 << 20), CONNECTIONS_DEFAULT);
        let few = ["--driver", "epoll", "--max-connections", "100"];
        assert_eq!(verdict(1_024, &few), (100, "epoll"));
    }

    /// A small virtual machine without io_uring, with something to say on everything.
    fn report() -> Report {
        let limits = limits(1_024, Some(4_096), 128);
        let verdict = Verdict {
            driver: "epoll",
            driver_reason: "io_uring_setup: Operation not permitted (os error 1)".into(),
            network_threads: 1,
            connections_max: 960,
            buffer_bytes_max: 1 << 27,
            path_resolution: "openat2",
        };
        let idle = IdleSetting {
            driver: "haltpoll".into(),
            governor: "haltpoll".into(),
            halt_poll_ns: Some(0),
        };
        let scanners = Scanners {
            programs: vec!["clamonacc (7)".into()],
            hidden: 3,
        };
        let refusal = Refusal {
            step: "io_uring_setup",
            errno: 1,
            cause: Cause::Forbidden,
            cure: "set sysctl kernel.io_uring_disabled=0".into(),
        };
        Report {
            probe: Probe {
                kernel: "6.12.0".into(),
                task_run: None,
                findings: vec![
                    Finding {
                        feature: "io_uring",
                        used: Use::Required,
                        since: "5.1",
                        without: "epoll is used in place of io_uring",
                        refusal: Some(refusal),
                    },
                    Finding {
                        feature: "another",
                        used: Use::Preferred,
                        since: "6.12",
                        without: "it takes more memory",
                        refusal: None,
                    },
                ],
            },
            processors: 2,
            advice: advice(&limits, &verdict, Some(&idle), &scanners),
            idle: Some(idle),
            limits,
            scanners,
            verdict,
            certificates: Vec::new(),
            mismatches: vec!["driver uring is asked for: it is forbidden here".into()],
        }
    }

    #[test]
    fn the_report_names_each_bound_and_its_cure_in_both_forms() {
        let report = report();
        expect_file!["doctor.txt"].assert_eq(&report.to_string());
        let json = serde_json::to_string_pretty(&report.to_json()).expect("JSON");
        expect_file!["doctor.json"].assert_eq(&(json + "\n"));
    }

    #[test]
    fn a_machine_without_a_bound_gets_no_advice() {
        let verdict = Verdict {
            driver: "uring",
            ..report().verdict
        };
        let idle = IdleSetting {
            halt_poll_ns: Some(HALT_POLL_NS),
            ..report().idle.expect("a virtual machine")
        };
        let limits = limits(1 << 20, None, 4_096);
        let none = advice(&limits, &verdict, Some(&idle), &Scanners::default());
        assert_eq!(none, Vec::<String>::new());
    }

    #[test]
    fn the_report_of_this_machine_has_every_feature() {
        let report = Report::of_this_machine(&asked(&[])).expect("a report");
        let (text, json) = (report.to_string(), report.to_json().to_string());
        assert!(report.probe.findings.len() > 1, "{text}");
        for finding in &report.probe.findings {
            let feature = finding.feature;
            assert!(
                text.contains(feature) && json.contains(feature),
                "{feature}: {text}"
            );
        }
    }
}
