//! One line when a bound is reached and one when there is room again, however often it is met in
//! between.
//!
//! Cost: a comparison per event and per turn. Nothing is written between the two lines.

/// An episode is over when nothing was noted for this long, in nanoseconds.
const QUIET_NS: u64 = 10_000_000_000;

/// What happened at one bound since it was reached.
#[derive(Debug)]
pub(crate) struct Episode {
    bound: &'static str,
    since_ns: u64,
    last_ns: u64,
    closed: u64,
    refused: u64,
    stalled: u64,
}

/// What it cost to meet the bound.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Price {
    /// Another connection, which rested, was closed for it.
    Closed,
    /// The newcomer was refused, or left in the backlog where no descriptor was free.
    Refused,
    /// The input of a connection waits.
    Stalled,
}

impl Episode {
    pub(crate) fn new(bound: &'static str) -> Episode {
        Episode {
            bound,
            since_ns: 0,
            last_ns: 0,
            closed: 0,
            refused: 0,
            stalled: 0,
        }
    }

    /// The bound was met; `limit` says where it lies.
    pub(crate) fn note(&mut self, now_ns: u64, price: Price, limit: impl FnOnce() -> String) {
        if self.since_ns == 0 {
            let what = match price {
                Price::Closed => "connections that rest are closed for new ones",
                Price::Refused => "new connections are refused",
                Price::Stalled => "their input waits, that of others does not",
            };
            log::warn!("{}: {}; {what}", self.bound, limit());
            self.since_ns = now_ns.max(1);
        }
        self.last_ns = now_ns;
        match price {
            Price::Closed => self.closed += 1,
            Price::Refused => self.refused += 1,
            Price::Stalled => self.stalled += 1,
        }
    }

    /// When the episode is over if nothing more is noted.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        (self.since_ns > 0).then(|| self.last_ns.saturating_add(QUIET_NS))
    }

    /// Ends the episode if it is over.
    pub(crate) fn end(&mut self, now_ns: u64) {
        if self.end_ns().is_some_and(|end_ns| now_ns >= end_ns) {
            log::info!(
                "{}: room again after {} s; {} closed for others, {} refused, {} stalled",
                self.bound,
                (self.last_ns - self.since_ns) / 1_000_000_000,
                self.closed,
                self.refused,
                self.stalled,
            );
            *self = Episode::new(self.bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_episode_ends_after_quiet_and_begins_anew() {
        let limit = || "all in use".to_owned();
        let mut episode = Episode::new("places");
        assert_eq!(episode.end_ns(), None);
        for now_ns in [5, 6, QUIET_NS] {
            episode.end(now_ns);
            episode.note(now_ns, Price::Closed, limit);
        }
        assert_eq!((episode.closed, episode.refused), (3, 0));
        assert_eq!(episode.end_ns(), Some(2 * QUIET_NS));
        episode.end(2 * QUIET_NS);
        assert_eq!(episode.end_ns(), None);
        episode.note(3 * QUIET_NS, Price::Refused, limit);
        assert_eq!((episode.closed, episode.refused), (0, 1));
    }
}
