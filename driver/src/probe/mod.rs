//! What this kernel offers, feature by feature: each is tried on a ring of its own, with real
//! sockets where it takes some. Never guessed from a version: distributions backport, sandboxes
//! filter.
//!
//! Files: `trial` is a ring to try things on, `rings`, `sockets`, `sharing` and `extras` hold the
//! trials.
//!
//! Cost: about 20 rings, set up and torn down; a few milliseconds. Not for a hot path.

mod trial;
mod rings;
mod sockets;
pub(crate) mod sharing;
mod extras;

use serde::Serialize;

use crate::config::DriverConfig;
use crate::refusal::Refusal;
use crate::uring::Uring;
use crate::uring::setup::{self, TaskRun};

/// What the io_uring driver does with a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Use {
    /// Without it, epoll is used.
    Required,
    /// Used where it is offered.
    Preferred,
    /// Not used; listed for whoever plans.
    Unused,
}

/// One feature and what became of trying it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The feature's name.
    pub feature: &'static str,
    /// What the driver does with it.
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

/// What this machine offers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Probe {
    /// The kernel's name and release, for reports; nothing is concluded from it.
    pub kernel: String,
    /// How a ring of this machine works out completions; absent when there is no ring.
    pub task_run: Option<TaskRun>,
    /// Every feature that was tried. When there is no ring at all, only that.
    pub findings: Vec<Finding>,
}

/// A trial: a feature's name, its use and how it is tried.
struct Trial {
    feature: &'static str,
    used: Use,
    attempt: fn() -> Result<(), rustix::io::Errno>,
}

/// In the order of a connection's life, the required ones first.
const TRIALS: &[Trial] = &[
    Trial {
        feature: "waiting with a time-out",
        used: Use::Required,
        attempt: rings::timed_wait,
    },
    Trial {
        feature: "keeping overflown completions",
        used: Use::Required,
        attempt: rings::overflow_is_kept,
    },
    Trial {
        feature: "a poll that stays armed",
        used: Use::Required,
        attempt: rings::staying_poll,
    },
    Trial {
        feature: "multishot accept",
        used: Use::Required,
        attempt: sockets::multishot_accept,
    },
    Trial {
        feature: "multishot receive into provided buffers",
        used: Use::Required,
        attempt: sockets::multishot_receive,
    },
    Trial {
        feature: "a close linked behind a send",
        used: Use::Required,
        attempt: sockets::linked_close,
    },
    Trial {
        feature: "deferred task work",
        used: Use::Preferred,
        attempt: rings::deferred_task_work,
    },
    Trial {
        feature: "cooperative task work",
        used: Use::Preferred,
        attempt: rings::cooperative_task_work,
    },
    Trial {
        feature: "waiting without counting as input and output",
        used: Use::Preferred,
        attempt: rings::quiet_wait,
    },
    Trial {
        feature: "send without copying",
        used: Use::Unused,
        attempt: sockets::zero_copy_send,
    },
    Trial {
        feature: "receive bundles",
        used: Use::Unused,
        attempt: sockets::receive_bundle,
    },
    Trial {
        feature: "receives that share a page",
        used: Use::Preferred,
        attempt: sharing::receives_share_pages,
    },
    Trial {
        feature: "messages between rings",
        used: Use::Unused,
        attempt: extras::message_ring,
    },
    Trial {
        feature: "futex operations",
        used: Use::Unused,
        attempt: extras::futex,
    },
    Trial {
        feature: "busy polling",
        used: Use::Unused,
        attempt: extras::busy_polling,
    },
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
            findings.extend(TRIALS.iter().map(|trial| Finding {
                feature: trial.feature,
                used: trial.used,
                refusal: trial.run().err(),
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

impl Trial {
    fn run(&self) -> Result<(), Refusal> {
        (self.attempt)().map_err(|errno| Refusal::of(self.feature, errno))
    }
}

/// Tries what a driver of this configuration cannot do without, sizes included. The first refusal
/// ends it.
pub(crate) fn require(config: &DriverConfig) -> Result<(), Refusal> {
    drop(Uring::new(config)?);
    TRIALS
        .iter()
        .filter(|trial| trial.used == Use::Required)
        .try_for_each(Trial::run)
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

    #[test]
    fn no_two_features_have_the_same_name() {
        let mut names: Vec<_> = TRIALS.iter().map(|trial| trial.feature).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), TRIALS.len());
    }
}
