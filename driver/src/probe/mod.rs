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
use crate::refusal::{Refusal, version};
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
    /// The version of Linux that brought it, as in `6.12`: for reports, nothing is concluded from
    /// it.
    pub since: &'static str,
    /// What it costs to be without it.
    pub without: &'static str,
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
    /// Every feature that was tried. Without io_uring, only that it is missing.
    pub findings: Vec<Finding>,
}

/// A feature, and how it is tried.
struct Trial {
    feature: &'static str,
    used: Use,
    /// The version of Linux that brought what the trial needs: the latest of its parts.
    since: &'static str,
    /// What it costs to be without it.
    without: &'static str,
    attempt: fn() -> io::Result<()>,
}

/// The cost of being without what the driver cannot do without.
const EPOLL: &str = "epoll is used in place of io_uring";

const fn required(
    feature: &'static str,
    since: &'static str,
    attempt: fn() -> io::Result<()>,
) -> Trial {
    Trial {
        feature,
        used: Use::Required,
        since,
        without: EPOLL,
        attempt,
    }
}

const fn preferred(
    feature: &'static str,
    since: &'static str,
    without: &'static str,
    attempt: fn() -> io::Result<()>,
) -> Trial {
    Trial {
        feature,
        used: Use::Preferred,
        since,
        without,
        attempt,
    }
}

/// The ring itself, which every trial needs.
const RING: Trial = required("io_uring", "5.1", || Ok(()));

/// What io_uring is not used without, in the order of a connection's life. Versions are those of
/// io_uring_enter(2), io_uring_setup(2) and liburing's manual pages.
const REQUIRED: &[Trial] = &[
    // IORING_ENTER_EXT_ARG.
    required("waiting with a time-out", "5.11", rings::timed_wait),
    // IORING_FEAT_NODROP.
    required(
        "keeping overflown completions",
        "5.5",
        rings::overflow_is_kept,
    ),
    // IORING_POLL_ADD_MULTI.
    required("a poll that stays armed", "5.13", rings::staying_poll),
    // IORING_ACCEPT_MULTISHOT.
    required("multishot accept", "5.19", sockets::multishot_accept),
    // IORING_RECV_MULTISHOT; rings of buffers are of 5.19.
    required(
        "multishot receive into provided buffers",
        "6.0",
        sockets::multishot_receive,
    ),
    // The close is silent (IOSQE_CQE_SKIP_SUCCESS); links are of 5.3.
    required("a close linked after a send", "5.17", sockets::linked_close),
];

/// What is used where it is offered. A list of its own: only a program that shows what its machine
/// offers has the code of these.
const PREFERRED: &[Trial] = &[
    // IORING_SETUP_DEFER_TASKRUN.
    preferred(
        "deferred task work",
        "6.1",
        "completions are worked out at any call of the thread, not together when it waits",
        || rings::task_run(TaskRun::Deferred),
    ),
    // IORING_SETUP_COOP_TASKRUN.
    preferred(
        "cooperative task work",
        "5.19",
        "where task work is not deferred either, each completion interrupts its thread: about \
         twice the time for each request",
        || rings::task_run(TaskRun::Cooperative),
    ),
    // IORING_REGISTER_RESTRICTIONS is of 5.10; rings of buffers, which are left allowed, of 5.19.
    preferred(
        "limiting a ring to the operations in use",
        "5.19",
        "who writes into the memory of the process could have the ring do more than the driver \
         does",
        rings::limited_operations,
    ),
    // IORING_ENTER_NO_IOWAIT.
    preferred(
        "waiting without counting as input and output",
        "6.15",
        "an idle server shows as waiting for a disk (iowait) in top and in the load of some \
         monitors",
        rings::quiet_wait,
    ),
    // IOSQE_CQE_SKIP_SUCCESS.
    preferred(
        "sends that complete in silence",
        "5.17",
        "each short reply costs one more completion",
        sockets::silent_send,
    ),
    // From 6.17 on it ends with a number of bytes (`optlen`). From 6.8 to 7.1 the kernel pauses
    // (MULTISHOT_MAX_RETRY). No manual page has the one or the other.
    preferred(
        "a receive of many pieces that leaves some",
        "6.8",
        "each receive brings one piece, because one of many could take all pages of a thread for \
         one connection",
        sockets::bounded_receive,
    ),
    // IOU_PBUF_RING_INC.
    preferred(
        "receives that share a page",
        "6.12",
        "a short message that is kept has a page of its own: ingest takes more memory",
        sharing::receives_share_pages,
    ),
    // IORING_RECV_MULTISHOT for RECVMSG.
    preferred(
        "many datagrams with one receive",
        "6.0",
        "each datagram costs one more operation",
        datagrams::multishot_datagrams,
    ),
];

impl Trial {
    /// What became of it.
    fn finding(&self, refusal: Option<Refusal>) -> Finding {
        Finding {
            feature: self.feature,
            used: self.used,
            since: self.since,
            without: self.without,
            refusal,
        }
    }

    fn attempted(&self) -> Result<(), Refusal> {
        (self.attempt)().map_err(|error| {
            Refusal::of_error(self.feature, &error).of_feature(self.since, running())
        })
    }
}

/// The version of the kernel that runs: its first two numbers.
fn running() -> Option<(u32, u32)> {
    version(&rustix::system::uname().release().to_string_lossy())
}

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
        let mut findings = vec![RING.finding(ring.as_ref().err().cloned())];
        let task_run = ring.as_ref().ok().map(|(_, task_run)| *task_run);
        if ring.is_ok() {
            let tried = REQUIRED.iter().chain(PREFERRED);
            findings.extend(tried.map(|trial| trial.finding(trial.attempted().err())));
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

/// Tries what a driver of this configuration cannot do without, sizes included. The first refusal
/// ends it.
pub(crate) fn require(config: &DriverConfig) -> Result<(), Refusal> {
    drop(Uring::new(config)?);
    REQUIRED.iter().try_for_each(Trial::attempted)
}

#[cfg(test)]
mod tests {
    use rustix::thread::UnshareFlags;

    use super::*;
    use crate::testing::{cannot_run, leave_out, not_on_this_kernel};

    #[test]
    fn every_feature_is_tried_and_the_report_is_json() {
        let probe = Probe::run();
        let json = serde_json::to_value(&probe).expect("serialisable");
        let listed = json["findings"].as_array().expect("a list");
        let ring = &probe.findings[0];
        assert_eq!(
            listed.len(),
            if ring.works() {
                1 + REQUIRED.len() + PREFERRED.len()
            } else {
                1
            }
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
            Err(errno) => cannot_run(&format!("a network namespace of its own: {errno}")),
        }
    }

    /// A fault of ours would look like a kernel's: the feature is not used, no other test fails.
    #[test]
    fn what_linux_brought_until_this_version_is_found() {
        let probe = Probe::run();
        for finding in &probe.findings {
            let Some(refusal) = &finding.refusal else {
                continue;
            };
            let since = version(finding.since).expect(finding.feature);
            // A ring may be refused as a whole; where there is one, nothing is but by age.
            match finding.feature == RING.feature {
                true => leave_out(refusal, since),
                false => not_on_this_kernel(&refusal.to_string(), since),
            }
        }
    }

    #[test]
    fn no_two_features_have_the_same_name() {
        let all = || REQUIRED.iter().chain(PREFERRED);
        let mut names: Vec<_> = all().map(|it| it.feature).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all().count());
    }

    #[test]
    fn each_feature_knows_the_version_that_brought_it_and_what_its_absence_costs() {
        for trial in REQUIRED.iter().chain(PREFERRED).chain([&RING]) {
            let since = version(trial.since).expect(trial.feature);
            assert!(since >= (5, 1), "{}", trial.feature);
            assert_eq!(trial.without == EPOLL, trial.used == Use::Required);
            assert!(!trial.without.is_empty(), "{}", trial.feature);
        }
        for (text, expected) in [
            ("6.12", Some((6, 12))),
            ("5.10.0-28-amd64", Some((5, 10))),
            ("6.1-rc3", Some((6, 1))),
            ("new", None),
        ] {
            assert_eq!(version(text), expected, "{text}");
        }
    }
}
