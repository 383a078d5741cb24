//! Whether a server may have requests, by what became of those before (passive health).
//!
//! | state                  | after a failure                      | after a success             |
//! |------------------------|--------------------------------------|-----------------------------|
//! | in, fewer failures     | one more in a row                    | none in a row               |
//! | in, one less than may  | out for a pause                      | none in a row               |
//! | out                    | as before: it is of an older request | as before                   |
//! | in again               | out at once, for twice the pause     | first pause, if well so long|
//!
//! A pause doubles each time, up to a bound, until the server has been well for as long as it was
//! out. A server that comes in again has a part of its weight that grows (slow start): its caches
//! are cold, and it may still be ill.
//!
//! Not here: that never all servers are out. A group whose servers are all out uses them all
//! (`group`).

use std::time::Duration;

/// When a server is left out, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HealthTerms {
    /// Failures in a row; 0 leaves no server out.
    pub(crate) failures_max: u32,
    /// The first pause, and the longest.
    pub(crate) pause: Duration,
    pub(crate) pause_max: Duration,
    /// How long a server that comes in again takes to its whole weight.
    pub(crate) slow_start: Duration,
}

/// The least part of its weight that a server has: one in so many.
const SLOW_PARTS: u64 = 10;

/// Scale of weights, so that parts of small ones are numbers.
pub(crate) const WEIGHT_SCALE: u64 = 1024;

/// What is known of a server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Health {
    failures: u32,
    /// Pauses one after the other.
    pauses: u32,
    /// The end of the latest pause, and its length.
    out_until: Option<(Duration, Duration)>,
}

/// What a failure came to.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AfterFailure {
    /// It stays in, or is out already.
    AsBefore,
    /// It is out for this long.
    Out(Duration),
}

impl Health {
    /// Whether it is out at this time.
    pub(crate) fn is_out(&self, now: Duration) -> bool {
        self.out_until.is_some_and(|(end, _)| now < end)
    }

    /// A request has failed there.
    pub(crate) fn failed(&mut self, now: Duration, terms: &HealthTerms) -> AfterFailure {
        if terms.failures_max == 0 || self.is_out(now) {
            return AfterFailure::AsBefore;
        }
        self.failures += 1;
        // One that was out has to show that it is well.
        let failures_max = match self.pauses {
            0 => terms.failures_max,
            _ => 1,
        };
        if self.failures < failures_max {
            return AfterFailure::AsBefore;
        }
        let factor = 1u32.checked_shl(self.pauses).unwrap_or(u32::MAX);
        let pause = terms.pause.saturating_mul(factor).min(terms.pause_max);
        self.pauses = self.pauses.saturating_add(1);
        self.failures = 0;
        self.out_until = Some((now.saturating_add(pause), pause));
        AfterFailure::Out(pause)
    }

    /// A request was answered there.
    pub(crate) fn succeeded(&mut self, now: Duration) {
        if self.is_out(now) {
            return;
        }
        self.failures = 0;
        if let Some((end, pause)) = self.out_until
            && now >= end.saturating_add(pause)
        {
            self.pauses = 0;
        }
    }

    /// Its part of a weight of so much, scaled by [`WEIGHT_SCALE`]; at least 1.
    pub(crate) fn weight(&self, weight: u32, now: Duration, terms: &HealthTerms) -> u64 {
        let whole = u64::from(weight).saturating_mul(WEIGHT_SCALE);
        let since = self.out_until.map(|(end, _)| now.saturating_sub(end));
        match since {
            Some(since) if since < terms.slow_start => {
                let part = since.as_millis() as u64 * WEIGHT_SCALE
                    / (terms.slow_start.as_millis() as u64).max(1);
                let part = part.max(WEIGHT_SCALE / SLOW_PARTS);
                (whole * part / WEIGHT_SCALE).max(1)
            }
            _ => whole.max(1),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TERMS: HealthTerms = HealthTerms {
        failures_max: 3,
        pause: Duration::from_secs(10),
        pause_max: Duration::from_secs(35),
        slow_start: Duration::from_secs(20),
    };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn so_many_failures_in_a_row_take_a_server_out() {
        let mut health = Health::default();
        for _ in 0..5 {
            assert_eq!(health.failed(at(1), &TERMS), AfterFailure::AsBefore);
            assert_eq!(health.failed(at(1), &TERMS), AfterFailure::AsBefore);
            health.succeeded(at(1));
        }
        let _first = health.failed(at(2), &TERMS);
        let _second = health.failed(at(2), &TERMS);
        assert_eq!(health.failed(at(2), &TERMS), AfterFailure::Out(at(10)));
        assert!(health.is_out(at(11)) && !health.is_out(at(12)));
    }

    #[test]
    fn pauses_double_up_to_a_bound_and_begin_anew_for_one_that_stays_well() {
        let mut health = Health::default();
        let mut now = at(100);
        let _warm = (health.failed(now, &TERMS), health.failed(now, &TERMS));
        for seconds in [10, 20, 35, 35] {
            assert_eq!(health.failed(now, &TERMS), AfterFailure::Out(at(seconds)));
            assert_eq!(
                health.failed(now, &TERMS),
                AfterFailure::AsBefore,
                "it is of an older request"
            );
            now += at(seconds);
            assert!(!health.is_out(now));
            health.succeeded(now);
        }
        health.succeeded(now + at(35));
        assert_eq!(health.failed(now, &TERMS), AfterFailure::AsBefore);
        assert_eq!(health.failed(now, &TERMS), AfterFailure::AsBefore);
        assert_eq!(health.failed(now, &TERMS), AfterFailure::Out(at(10)));
    }

    #[test]
    fn a_success_of_an_older_request_brings_no_server_in() {
        let mut health = Health::default();
        for _ in 0..3 {
            let _after = health.failed(at(0), &TERMS);
        }
        health.succeeded(at(5));
        assert!(health.is_out(at(9)));
    }

    #[test]
    fn a_server_that_comes_in_again_has_its_weight_by_and_by() {
        let mut health = Health::default();
        assert_eq!(health.weight(2, at(0), &TERMS), 2 * WEIGHT_SCALE);
        for _ in 0..3 {
            let _after = health.failed(at(0), &TERMS);
        }
        let weights: Vec<_> = [10, 12, 20, 29, 30, 99]
            .map(|seconds| health.weight(10, at(seconds), &TERMS) * 10 / WEIGHT_SCALE)
            .into();
        assert_eq!(weights, [9, 9, 50, 94, 100, 100]);
    }

    #[test]
    fn without_a_number_of_failures_none_is_left_out() {
        let terms = HealthTerms {
            failures_max: 0,
            ..TERMS
        };
        let mut health = Health::default();
        for _ in 0..100 {
            assert_eq!(health.failed(at(0), &terms), AfterFailure::AsBefore);
        }
    }
}
