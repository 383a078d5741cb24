//! Events that may come without end, and the few lines that the log has of them.
//!
//! The first event begins an [`Episode`], which is over when none came for ten seconds
//! ([`Episode::new`]), or when the caller says so ([`Episode::until_ended`]). The log has a line
//! when it begins. A caller that looks for its end has another one then ([`Episode::end`]);
//! one that only sees the events has one for each thousand ([`Episode::tells`]).
//!
//! Any thread may note events. Two that come at the same time as the first may both begin it.
//!
//! Cost: a comparison per event and per turn. Nothing is written between the lines.

use std::fmt::Display;
use std::net::SocketAddr;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

/// An episode is over when nothing was noted for this long, in nanoseconds.
const QUIET_NS: u64 = 10_000_000_000;

/// Events of one episode from one line to the next.
const EVENTS_PER_LINE: u64 = 1_000;

/// Events of one kind. Times are in nanoseconds of one clock, and not 0.
#[derive(Debug)]
pub struct Episode {
    /// It is over when nothing was noted for this long.
    quiet_ns: u64,
    /// When the first event was; 0 if there is no episode.
    since_ns: AtomicU64,
    last_ns: AtomicU64,
    count: AtomicU64,
    /// Events since the last line.
    untold: AtomicU64,
}

/// An episode that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Over {
    /// Events.
    pub count: u64,
    /// From the first event to the last.
    pub lasted_ns: u64,
}

impl Default for Episode {
    fn default() -> Episode {
        Episode::new()
    }
}

impl Episode {
    /// One that has not begun, and is over when nothing was noted for ten seconds.
    pub const fn new() -> Episode {
        Episode::of(QUIET_NS)
    }

    /// One that has not begun, and is over when its caller [ends](Episode::end) it: for a state
    /// that lasts although nothing happens.
    pub const fn until_ended() -> Episode {
        Episode::of(u64::MAX)
    }

    const fn of(quiet_ns: u64) -> Episode {
        Episode {
            quiet_ns,
            since_ns: AtomicU64::new(0),
            last_ns: AtomicU64::new(0),
            count: AtomicU64::new(0),
            untold: AtomicU64::new(0),
        }
    }

    /// An event, by the clock of the process: whether it begins an episode, for a line in the log.
    pub fn begins(&self) -> bool {
        self.begins_at(clock_ns())
    }

    /// The same at a time of the caller's clock.
    pub(crate) fn begins_at(&self, now_ns: u64) -> bool {
        let last_ns = self.last_ns.swap(now_ns, Relaxed);
        let is_first = self.since_ns.load(Relaxed) == 0 || now_ns >= self.end_after(last_ns);
        if is_first {
            self.since_ns.store(now_ns.max(1), Relaxed);
            self.count.store(0, Relaxed);
        }
        self.count.fetch_add(1, Relaxed);
        is_first
    }

    /// An event, by the clock of the process. If it begins an episode, or is the next thousandth,
    /// there is to be a line in the log: how many events came since the last one.
    pub fn tells(&self) -> Option<u64> {
        self.tells_at(clock_ns())
    }

    /// The same at a time of the caller's clock.
    pub(crate) fn tells_at(&self, now_ns: u64) -> Option<u64> {
        let is_first = self.begins_at(now_ns);
        let is_next = || self.untold.load(Relaxed) + 1 >= EVENTS_PER_LINE;
        if is_first || is_next() {
            return Some(self.untold.swap(0, Relaxed));
        }
        self.untold.fetch_add(1, Relaxed);
        None
    }

    /// Events of the episode so far; 0 without one.
    pub fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }

    fn end_after(&self, last_ns: u64) -> u64 {
        last_ns.saturating_add(self.quiet_ns)
    }

    /// When the episode is over if nothing more is noted.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        let has_begun = self.since_ns.load(Relaxed) > 0;
        has_begun.then(|| self.end_after(self.last_ns.load(Relaxed)))
    }

    /// Ends the episode if it is over, for a line in the log.
    pub(crate) fn end_at(&self, now_ns: u64) -> Option<Over> {
        let is_over = self.end_ns().is_some_and(|end_ns| now_ns >= end_ns);
        is_over.then(|| self.end())?
    }

    /// Ends the episode, if there is one: the caller knows that it is over.
    pub fn end(&self) -> Option<Over> {
        let since_ns = self.since_ns.swap(0, Relaxed);
        (since_ns > 0).then(|| Over {
            count: self.count.swap(0, Relaxed),
            lasted_ns: self.last_ns.load(Relaxed).saturating_sub(since_ns),
        })
    }
}

/// Nanoseconds since the first call in this process, plus one.
fn clock_ns() -> u64 {
    static FIRST: OnceLock<Instant> = OnceLock::new();
    let elapsed = FIRST.get_or_init(Instant::now).elapsed();
    u64::try_from(elapsed.as_nanos())
        .unwrap_or(u64::MAX)
        .saturating_add(1)
}

/// Refusals that a stranger can cause as often as he likes, of one network thread: one line in the
/// log for many of them.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Episode);

impl Refusals {
    pub(crate) fn note(&mut self, now_ns: u64, peer: Option<SocketAddr>, why: &dyn Display) {
        let Some(untold) = self.0.tells_at(now_ns) else {
            return;
        };
        let peer = peer.map_or("an unknown address".into(), |peer| peer.to_string());
        let before = match untold {
            0 => String::new(),
            count => format!("; {count} others since the last such line"),
        };
        log::warn!("connection from {peer} refused: {why}{before}");
    }
}

/// What happened at one bound since it was reached.
#[derive(Debug)]
pub(crate) struct BoundEpisode {
    bound: &'static str,
    episode: Episode,
    closed: u64,
    refused: u64,
    stalled: u64,
    ended: u64,
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
    /// Another connection, which had something in work, was ended for it.
    Ended,
}

impl BoundEpisode {
    pub(crate) fn new(bound: &'static str) -> BoundEpisode {
        BoundEpisode {
            bound,
            episode: Episode::new(),
            closed: 0,
            refused: 0,
            stalled: 0,
            ended: 0,
        }
    }

    /// The bound was met; `limit` says where it lies.
    pub(crate) fn note(&mut self, now_ns: u64, price: Price, limit: &dyn Fn() -> String) {
        // Logs the end of an episode that is over before the next one begins.
        self.end(now_ns);
        if self.episode.begins_at(now_ns) {
            let what = match price {
                Price::Closed => "connections that rest are closed for new ones",
                Price::Refused => "new connections are refused",
                Price::Ended => "what has lasted longest is ended for others",
                Price::Stalled => "their input waits, that of others does not",
            };
            log::warn!("{}: {}; {what}", self.bound, limit());
        }
        match price {
            Price::Closed => self.closed += 1,
            Price::Refused => self.refused += 1,
            Price::Stalled => self.stalled += 1,
            Price::Ended => self.ended += 1,
        }
    }

    /// When the episode is over if nothing more is noted.
    pub(crate) fn end_ns(&self) -> Option<u64> {
        self.episode.end_ns()
    }

    /// Ends the episode if it is over.
    pub(crate) fn end(&mut self, now_ns: u64) {
        if let Some(over) = self.episode.end_at(now_ns) {
            log::info!(
                "{}: room again after {} s; {} closed for others, {} refused, {} stalled, \
                 {} ended",
                self.bound,
                over.lasted_ns / 1_000_000_000,
                self.closed,
                self.refused,
                self.stalled,
                self.ended,
            );
            *self = BoundEpisode::new(self.bound);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_episode_ends_after_quiet_and_begins_anew() {
        let limit = &|| "all in use".to_owned();
        let mut episode = BoundEpisode::new("places");
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

    #[test]
    fn the_first_event_and_each_thousandth_are_told_with_those_between() {
        let episode = Episode::new();
        assert_eq!(episode.tells_at(1), Some(0));
        for _ in 1..EVENTS_PER_LINE {
            assert_eq!(episode.tells_at(2), None);
        }
        assert_eq!(episode.tells_at(3), Some(EVENTS_PER_LINE - 1));
        assert_eq!(episode.tells_at(4), None);
        assert_eq!(episode.tells_at(4 + QUIET_NS), Some(1), "another episode");
    }

    #[test]
    fn an_episode_until_its_end_outlasts_any_quiet() {
        let episode = Episode::until_ended();
        assert!(episode.begins_at(5));
        assert!(!episode.begins_at(5 + 2 * QUIET_NS));
        assert_eq!(episode.end_at(u64::MAX - 1), None);
        assert_eq!(episode.count(), 2);
        assert!(episode.end().is_some());
        assert_eq!(episode.count(), 0);
        assert!(episode.begins_at(6 + 2 * QUIET_NS));
    }

    #[test]
    fn an_episode_that_its_caller_ends_has_its_events() {
        let episode = Episode::new();
        assert_eq!(episode.end(), None);
        assert!(episode.begins_at(5));
        assert!(!episode.begins_at(7));
        let over = Over {
            count: 2,
            lasted_ns: 2,
        };
        assert_eq!(episode.end_at(8), None, "not yet");
        assert_eq!(episode.end(), Some(over));
        assert!(episode.begins_at(9));
    }
}
