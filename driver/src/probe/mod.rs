//! The features of this kernel: each is tried on its own ring, with real
//! sockets where it takes some. Never guessed from a version: distributions backport, sandboxes
//! filter.
//!
//! Files: `trial` is a ring to try things on, `rings`, `sockets`, `datagrams` and `sharing` hold
//! the trials.
//!
//! Cost: about ten rings, set up and torn down; a few milliseconds. Not for a hot path.

mod trial;
mod rings;
pub(crate) mod sockets;
pub(crate) mod sharing;
pub(crate) mod datagrams;

use std::io;

use crate::config::DriverConfig;
use crate::refusal::Refusal;
use crate::uring::Uring;
use crate::uring::setup::{self, TaskRun};

/// The io_uring driver's use of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
// Exhaustive: a feature is required or not.
pub enum Use {
    /// Without it, epoll is used.
    Required,
    /// Used where it is offered.
    Preferred,
}

/// One feature and what became of trying it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Finding {
    /// The feature's name.
    pub feature: &'static str,
    /// The driver's use of it.
    pub used: Use,
    /// Why it is refused; absent when it works.
    pub refusal: Option<Refusal>,
}

impl Finding {
    /// True when the trial succeeded.
    pub fn works(&self) -> bool {
        self.refusal.is_none()
    }
}

/// The features of this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Probe {
    /// The kernel's name and release, for reports; nothing is concluded from it.
    pub kernel: String,
    /// How a ring of this machine works out completions; absent when there is no ring.
    pub task_run: Option<TaskRun>,
    /// Every feature that was tried. When there is no ring at all, only that.
    pub findings: Vec<Finding>,
}

/// A trial: a feature's name, its use and how it is tried.
type Trial = (&'static str, Use, fn() -> io::Result<()>);

/// In the order of a connection's life, the required ones first.
const TRIALS: &[Trial] = &[
    ("waiting with a time-out", Use::Required, rings::timed_wait),
    (
        "keeping overflown completions",
        Use::Required,
        rings::overflow_is_kept,
    ),
    (
        "a poll that stays armed",
        Use::Required,
        rings::staying_poll,
    ),
    ("multishot accept", Use::Required, sockets::multishot_accept),
    (
        "multishot receive into provided buffers",
        Use::Required,
        sockets::multishot_receive,
    ),
    (
        "a close linked after a send",
        Use::Required,
        sockets::linked_close,
    ),
    ("deferred task work", Use::Preferred, || {
        rings::task_run(TaskRun::Deferred)
    }),
    ("cooperative task work", Use::Preferred, || {
        rings::task_run(TaskRun::Cooperative)
    }),
    (
        "limiting a ring to the operations in use",
        Use::Preferred,
        rings::limited_operations,
    ),
    (
        "waiting without counting as input and output",
        Use::Preferred,
        rings::quiet_wait,
    ),
    (
        "sends that complete in silence",
        Use::Preferred,
        sockets::silent_send,
    ),
    (
        "receives that share a page",
        Use::Preferred,
        sharing::receives_share_pages,
    ),
    (
        "many datagrams with one receive",
        Use::Preferred,
        datagrams::multishot_datagrams,
    ),
];

impl Probe {
    /// Tries everything.
    pub fn run() -> Probe {
        let names = rustix::system::uname();
        let kernel = format!(
            "{} {}",
            names.sysname().to_string_lossy(),
            names.release().to_string_lossy()
        );
        let ring = setup::set_up(8, 16);
        let mut findings = vec![Finding {
            feature: "io_uring",
            used: Use::Required,
            refusal: ring.as_ref().err().cloned(),
        }];
        let task_run = ring.as_ref().ok().map(|(_, task_run)| *task_run);
        if ring.is_ok() {
            findings.extend(TRIALS.iter().map(|(feature, used, attempt)| Finding {
                feature,
                used: *used,
                refusal: attempted(feature, attempt()).err(),
            }));
        }
        Probe {
            kernel,
            task_run,
            findings,
        }
    }

    /// True when the io_uring driver can be used, as far as the default configuration goes.
    pub fn is_sufficient(&self) -> bool {
        self.findings
            .iter()
            .all(|finding| finding.used != Use::Required || finding.works())
    }
}

fn attempted(feature: &'static str, attempt: io::Result<()>) -> Result<(), Refusal> {
    attempt.map_err(|error| Refusal::of_error(feature, &error))
}

/// Tries what a driver of this configuration cannot do without, sizes included. The first refusal
/// ends it.
pub(crate) fn require(config: &DriverConfig) -> Result<(), Refusal> {
    drop(Uring::new(config)?);
    let mut required = TRIALS.iter().filter(|(_, used, _)| *used == Use::Required);
    required.try_for_each(|(feature, _, attempt)| attempted(feature, attempt()))
}

#[cfg(test)]
mod tests {
    use rustix::thread::UnshareFlags;

    use super::*;

    #[test]
    fn every_feature_is_tried_and_the_report_is_json() {
        let probe = Probe::run();
        let json = serde_json::to_value(&probe).expect("serialisable");
        let listed = json["findings"].as_array().expect("a list");
        let ring = &probe.findings[0];
        assert_eq!(
            listed.len(),
            if ring.works() { 1 + TRIALS.len() } else { 1 }
        );
        for finding in &probe.findings {
            match &finding.refusal {
                Some(refusal) => eprintln!("{}: {refusal}", finding.feature),
                None => eprintln!("{}: works", finding.feature),
            }
        }
    }

    #[test]
    fn the_driver_opens_exactly_where_the_probe_says_so() {
        let config = DriverConfig::default();
        let probe = Probe::run();
        assert_eq!(probe.is_sufficient(), require(&config).is_ok(), "{probe:?}");
    }

    /// A network namespace of its own has a loopback interface that is down.
    #[test]
    fn what_io_uring_offers_does_not_hang_on_the_network() {
        let here = Probe::run();
        // A namespace is its thread's: the other tests keep theirs.
        let alone = std::thread::spawn(|| {
            // SAFETY: of what the threads of a process share, only the network is parted from.
            let parted = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
            parted.map(|()| Probe::run())
        });
        match alone.join().expect("it does not panic") {
            Ok(alone) => assert_eq!(alone.is_sufficient(), here.is_sufficient(), "{alone:?}"),
            Err(errno) => eprintln!("not run: a network namespace of its own: {errno}"),
        }
    }

    /// A fault of ours would look like a kernel's: the feature is not used, no other test fails.
    #[test]
    fn what_linux_6_18_has_is_found_there() {
        let probe = Probe::run();
        let release = probe.kernel.split([' ', '.', '-']).skip(1);
        let release: Vec<u32> = release.map_while(|part| part.parse().ok()).collect();
        if release.as_slice() >= &[6, 18][..] && probe.findings[0].works() {
            let refused = probe.findings.iter().filter(|one| !one.works());
            assert_eq!(refused.collect::<Vec<_>>(), [] as [&Finding; 0]);
        }
    }

    #[test]
    fn no_two_features_have_the_same_name() {
        let mut names: Vec<_> = TRIALS.iter().map(|(feature, ..)| feature).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TRIALS.len());
    }
}
