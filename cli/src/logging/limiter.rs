//! Rate limits, one per message: a flood of one line hides no other line.
//!
//! A message is known by the file and line of its call. [`BURST`] lines of it pass at once, and
//! then one per [`PERIOD`] (a token bucket). The next one that passes carries the number of those
//! left out; when none follows, the writer asks for it ([`Limiter::take_quiet`]).
//!
//! Cost: one lock, held for a lookup, and no allocation but for the first line of a message.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use flatpath::lock::{Guard, Lock};
use log::Level;

/// Lines of one message that pass at once.
const BURST: u32 = 32;

/// After a burst, one line passes in this time.
const PERIOD: Duration = Duration::from_secs(1);

/// Messages that are known apart; all further ones share one limit. A program has fewer calls.
const MESSAGES_MAX: usize = 1024;

/// The limits of all messages.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    messages: Lock<HashMap<u64, Message>>,
}

#[derive(Debug)]
struct Message {
    /// File and line.
    name: String,
    level: Level,
    tokens: u32,
    /// When a token was added last.
    refilled: Instant,
    left_out: u64,
}

/// The decision on a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It passes, with the number of those before it that did not.
    Pass { left_out: u64 },
    /// It does not; `is_first` since one passed.
    LeaveOut { is_first: bool },
}

/// Lines that were left out and that no later line has reported.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct LeftOut {
    pub(crate) message: String,
    pub(crate) level: Level,
    pub(crate) count: u64,
}

impl Limiter {
    /// Counts a line of a message, and says whether it passes.
    pub(crate) fn judge(&self, level: Level, file: &str, line: u32, now: Instant) -> Verdict {
        let mut hasher = DefaultHasher::new();
        (file, line).hash(&mut hasher);
        let mut messages = self.messages();
        let mut key = hasher.finish();
        if messages.len() >= MESSAGES_MAX && !messages.contains_key(&key) {
            key = 0;
        }
        let message = messages.entry(key).or_insert_with(|| Message {
            name: format!("{file}:{line}"),
            level,
            tokens: BURST,
            refilled: now,
            left_out: 0,
        });
        message.refill(now);
        if message.tokens == 0 {
            message.left_out += 1;
            return Verdict::LeaveOut {
                is_first: message.left_out == 1,
            };
        }
        message.tokens -= 1;
        Verdict::Pass {
            left_out: std::mem::take(&mut message.left_out),
        }
    }

    /// The lines left out of messages that would pass again but have not come; of all when
    /// `is_ending`.
    pub(crate) fn take_quiet(&self, now: Instant, is_ending: bool) -> Vec<LeftOut> {
        let mut quiet = Vec::new();
        for message in self.messages().values_mut() {
            message.refill(now);
            if message.left_out > 0 && (is_ending || message.tokens > 0) {
                message.tokens = message.tokens.saturating_sub(1);
                quiet.push(LeftOut {
                    message: message.name.clone(),
                    level: message.level,
                    count: std::mem::take(&mut message.left_out),
                });
            }
        }
        quiet
    }

    /// Whether any message has lines left out that were not reported.
    pub(crate) fn has_left_out(&self) -> bool {
        self.messages().values().any(|message| message.left_out > 0)
    }

    fn messages(&self) -> Guard<'_, HashMap<u64, Message>> {
        self.messages.lock()
    }
}

impl Message {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.refilled);
        let periods = u32::try_from(passed.as_nanos() / PERIOD.as_nanos()).unwrap_or(u32::MAX);
        if periods == 0 {
            return;
        }
        self.tokens = self.tokens.saturating_add(periods).min(BURST);
        self.refilled = match self.tokens {
            BURST => now,
            // The rest of a period counts for the next token.
            _ => self.refilled + PERIOD * periods,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASS: Verdict = Verdict::Pass { left_out: 0 };

    fn judge(limiter: &Limiter, line: u32, now: Instant) -> Verdict {
        limiter.judge(Level::Info, "file.rs", line, now)
    }

    #[test]
    fn a_burst_passes_and_then_one_line_per_period_that_tells_of_the_others() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        for _ in 0..BURST {
            assert_eq!(judge(&limiter, 1, start), PASS);
        }
        for is_first in [true, false, false] {
            let verdict = judge(&limiter, 1, start);
            assert_eq!(verdict, Verdict::LeaveOut { is_first });
        }
        let later = start + PERIOD + PERIOD / 2;
        assert_eq!(judge(&limiter, 1, later), Verdict::Pass { left_out: 3 });
        let verdict = judge(&limiter, 1, later);
        assert_eq!(verdict, Verdict::LeaveOut { is_first: true });
        // The half period before counts.
        let later = start + 2 * PERIOD;
        assert_eq!(judge(&limiter, 1, later), Verdict::Pass { left_out: 1 });
    }

    #[test]
    fn a_flood_of_one_message_limits_no_other() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        for _ in 0..2 * BURST {
            judge(&limiter, 1, now);
        }
        assert_eq!(judge(&limiter, 2, now), PASS);
    }

    #[test]
    fn what_was_left_out_is_told_when_the_message_does_not_come_again() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        for _ in 0..BURST + 5 {
            judge(&limiter, 7, start);
        }
        assert!(limiter.has_left_out());
        assert_eq!(limiter.take_quiet(start, false), []);
        let reported = limiter.take_quiet(start + PERIOD, false);
        let expected = LeftOut {
            message: "file.rs:7".into(),
            level: Level::Info,
            count: 5,
        };
        assert_eq!(reported, [expected]);
        assert!(!limiter.has_left_out());
        judge(&limiter, 7, start + PERIOD);
        assert_eq!(limiter.take_quiet(start + PERIOD, true)[0].count, 1);
    }

    #[test]
    fn after_a_long_rest_a_burst_passes_again_and_no_more() {
        let (limiter, start) = (Limiter::default(), Instant::now());
        for _ in 0..BURST {
            judge(&limiter, 1, start);
        }
        let later = start + PERIOD * 10 * BURST;
        let passed = (0..10 * BURST).filter(|_| judge(&limiter, 1, later) == PASS);
        assert_eq!(passed.count(), BURST as usize);
    }

    #[test]
    fn messages_beyond_the_bound_share_a_limit() {
        let (limiter, now) = (Limiter::default(), Instant::now());
        let most = u32::try_from(MESSAGES_MAX).expect("a small number");
        let passed = (0..2 * most).filter(|line| judge(&limiter, *line, now) == PASS);
        assert_eq!(passed.count(), MESSAGES_MAX + BURST as usize);
        assert!(limiter.messages().len() <= MESSAGES_MAX + 1);
    }
}
