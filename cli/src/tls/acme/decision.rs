//! What is to be done about a certificate now: pure functions of what is known, without a clock, a
//! file or a socket.
//!
//! [`next`] is asked whenever something may have changed, and its rules are tried in this order:
//!
//! | # | what is known                                              | step                      |
//! |---|------------------------------------------------------------|---------------------------|
//! | 1 | the certificate has all names, and is not due              | wait until it is due      |
//! | 2 | the authority has named a time (`Retry-After`) to come     | wait until then           |
//! | 3 | TLS-ALPN-01 was refused just now, and HTTP-01 is possible  | order by HTTP-01          |
//! | 4 | an order has failed less than a [`pause`] ago              | wait for the rest of that |
//! | 5 | else                                                       | order, by TLS-ALPN-01     |
//! |   |                                                            | where that is possible    |
//!
//! A certificate is due after two thirds of its life and a jitter of up to a thirtieth of it, so
//! that servers which began together do not renew together. Let's Encrypt recommends two thirds.
//!
//! Pauses double, from [`PAUSE_MIN`] on: four orders in the first hour, below the five failed
//! validations that Let's Encrypt allows for it. Without a valid certificate they are an hour at
//! most, with one that still holds a day. A limit of the authority's is an hour at least.

use std::time::{Duration, SystemTime};

use crate::reach::Reach;

const HOUR: Duration = Duration::from_secs(60 * 60);
const DAY: Duration = HOUR.saturating_mul(24);

/// After the first failure.
const PAUSE_MIN: Duration = Duration::from_secs(5 * 60);

/// Without a certificate that clients accept.
const PAUSE_MAX_WITHOUT: Duration = HOUR;

/// While there is one.
const PAUSE_MAX_WITH: Duration = DAY;

/// After a limit of the authority's.
const PAUSE_LIMITED: Duration = HOUR;

/// An authority that names a time later than this has not meant it.
const RETRY_AFTER_MAX: Duration = DAY.saturating_mul(30);

/// How an authority validates names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Challenge {
    /// RFC 8737: by a handshake at port 443.
    TlsAlpn,
    /// RFC 8555 section 8.3: by a request at port 80.
    Http,
}

/// A certificate that there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) begins: SystemTime,
    pub(super) ends: SystemTime,
    /// It has all names that are asked for.
    pub(super) has_names: bool,
}

/// Orders that have failed since the last one that did not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trouble {
    /// When the last one did.
    at: SystemTime,
    /// Rounds of challenges that have failed.
    rounds: u32,
    /// What was refused last, if there is another one to try in this round.
    refused: Option<Challenge>,
    is_limited: bool,
    /// The authority's own time.
    not_before: Option<SystemTime>,
}

/// In what way an order has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The authority could not validate a name by this challenge, or does not offer it.
    Refused(Challenge),
    /// The authority has had too much (`rateLimited`, or 429).
    Limited,
    /// Anything else: it cannot be reached, or refuses the account.
    Other,
}

/// What is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    pub(super) now: SystemTime,
    pub(super) held: Option<Held>,
    pub(super) trouble: Option<Trouble>,
    pub(super) reach: Reach,
    /// Of this process, from 0 to 1.
    pub(super) jitter: f64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Order(Reason, Challenge),
    Wait(Until, SystemTime),
}

/// Why a certificate is ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Missing,
    OtherNames,
    Expired,
    Due,
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Until {
    /// The certificate is due.
    Due,
    /// The authority has named the time.
    RetryAfter,
    /// The pause after a failure ends.
    Pause,
}

/// See the module.
pub(super) fn next(facts: &Facts) -> Step {
    let reason = match reason(facts) {
        Ok(reason) => reason,
        Err(due) => return Step::Wait(Until::Due, due),
    };
    let first = match facts.reach.tls_alpn {
        true => Challenge::TlsAlpn,
        false => Challenge::Http,
    };
    let Some(trouble) = &facts.trouble else {
        return Step::Order(reason, first);
    };
    if let Some(time) = trouble.not_before
        && facts.now < time
    {
        return Step::Wait(Until::RetryAfter, time);
    }
    if trouble.refused == Some(Challenge::TlsAlpn) {
        return Step::Order(reason, Challenge::Http);
    }
    let pause = pause(trouble, facts);
    // Where the clock was set back, the pause begins now.
    let end = (trouble.at + pause).min(facts.now + pause);
    match facts.now < end {
        true => Step::Wait(Until::Pause, end),
        false => Step::Order(reason, first),
    }
}

/// Why there is to be another certificate; or when there is.
fn reason(facts: &Facts) -> Result<Reason, SystemTime> {
    let Some(held) = &facts.held else {
        return Ok(Reason::Missing);
    };
    if !held.has_names {
        return Ok(Reason::OtherNames);
    }
    if held.ends <= facts.now {
        return Ok(Reason::Expired);
    }
    let due = due(held, facts.jitter);
    match due <= facts.now {
        true => Ok(Reason::Due),
        false => Err(due),
    }
}

/// When a certificate is to be renewed.
fn due(held: &Held, jitter: f64) -> SystemTime {
    let life = held.ends.duration_since(held.begins).unwrap_or_default();
    held.begins + life * 2 / 3 + (life / 30).mul_f64(jitter.clamp(0.0, 1.0))
}

/// The time from a failure to the next order.
fn pause(trouble: &Trouble, facts: &Facts) -> Duration {
    let is_valid = |held: &Held| held.has_names && held.ends > facts.now;
    let longest = match facts.held.as_ref().is_some_and(is_valid) {
        true => PAUSE_MAX_WITH,
        false => PAUSE_MAX_WITHOUT,
    };
    let doublings = trouble.rounds.saturating_sub(1).min(16);
    let pause = PAUSE_MIN.saturating_mul(1 << doublings).min(longest);
    let pause = match trouble.is_limited {
        true => pause.max(PAUSE_LIMITED),
        false => pause,
    };
    pause + (pause / 8).mul_f64(facts.jitter.clamp(0.0, 1.0))
}

impl Trouble {
    /// What is known after an order has failed at this time.
    pub(super) fn after(
        before: Option<Trouble>,
        (kind, retry_after): (Kind, Option<SystemTime>),
        at: SystemTime,
        reach: Reach,
    ) -> Trouble {
        let rounds = before.map_or(0, |it| it.rounds);
        let refused = match kind {
            Kind::Refused(Challenge::TlsAlpn) if reach.http => Some(Challenge::TlsAlpn),
            _ => None,
        };
        Trouble {
            at,
            rounds: rounds.saturating_add(u32::from(refused.is_none())),
            refused,
            is_limited: kind == Kind::Limited,
            not_before: retry_after.map(|time| time.min(at + RETRY_AFTER_MAX)),
        }
    }

    /// SIGHUP: the pause is over, but for what the authority has said.
    pub(super) fn hurried(self) -> Trouble {
        Trouble {
            at: SystemTime::UNIX_EPOCH,
            ..self
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOTH: Reach = Reach {
        tls_alpn: true,
        http: true,
    };
    const HTTP: Reach = Reach {
        tls_alpn: false,
        http: true,
    };
    const TLS: Reach = Reach {
        tls_alpn: true,
        http: false,
    };

    /// Day 100, in which all of these tests are.
    fn day(day: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + DAY * u32::try_from(day).expect("a few")
    }

    fn held(from: u64, to: u64, has_names: bool) -> Option<Held> {
        Some(Held {
            begins: day(from),
            ends: day(to),
            has_names,
        })
    }

    fn facts(held: Option<Held>, trouble: Option<Trouble>, reach: Reach) -> Facts {
        Facts {
            now: day(100),
            held,
            trouble,
            reach,
            jitter: 0.0,
        }
    }

    fn failed(kind: Kind, times: u32, retry_after: Option<SystemTime>) -> Option<Trouble> {
        (0..times).fold(None, |before, _| {
            Some(Trouble::after(before, (kind, retry_after), day(100), TLS))
        })
    }

    #[test]
    fn a_certificate_is_ordered_when_it_is_missing_or_due() {
        let order = |reason| Step::Order(reason, Challenge::TlsAlpn);
        for (certificate, expected) in [
            (None, order(Reason::Missing)),
            (held(0, 1_000, false), order(Reason::OtherNames)),
            (held(10, 100, true), order(Reason::Expired)),
            (held(9, 99, true), order(Reason::Expired)),
            (held(40, 130, true), order(Reason::Due)),
            (held(41, 131, true), Step::Wait(Until::Due, day(101))),
            (held(100, 190, true), Step::Wait(Until::Due, day(160))),
        ] {
            assert_eq!(
                next(&facts(certificate, None, BOTH)),
                expected,
                "{certificate:?}"
            );
        }
        // With its jitter, a thirtieth of its life at most.
        let late = Facts {
            jitter: 1.0,
            ..facts(held(40, 130, true), None, BOTH)
        };
        assert_eq!(next(&late), Step::Wait(Until::Due, day(103)));
    }

    #[test]
    fn the_challenge_is_one_that_the_listeners_answer() {
        for (reach, challenge) in [
            (BOTH, Challenge::TlsAlpn),
            (TLS, Challenge::TlsAlpn),
            (HTTP, Challenge::Http),
        ] {
            let step = next(&facts(None, None, reach));
            assert_eq!(step, Step::Order(Reason::Missing, challenge), "{reach:?}");
        }
        let after = |reach, kind| {
            let trouble = Trouble::after(None, (kind, None), day(100), reach);
            next(&facts(None, Some(trouble), reach))
        };
        let refused = |challenge| Kind::Refused(challenge);
        let by_http = Step::Order(Reason::Missing, Challenge::Http);
        assert_eq!(after(BOTH, refused(Challenge::TlsAlpn)), by_http);
        let paused = Step::Wait(Until::Pause, day(100) + PAUSE_MIN);
        assert_eq!(after(TLS, refused(Challenge::TlsAlpn)), paused);
        assert_eq!(after(BOTH, refused(Challenge::Http)), paused);
        assert_eq!(after(BOTH, Kind::Other), paused);
        // Both refused are one round; the next begins with the first again.
        let first = Trouble::after(None, (refused(Challenge::TlsAlpn), None), day(100), BOTH);
        let kind = refused(Challenge::Http);
        let second = Trouble::after(Some(first), (kind, None), day(100), BOTH);
        assert_eq!((first.rounds, second.rounds), (0, 1));
        let later = Facts {
            now: day(100) + PAUSE_MIN,
            ..facts(None, Some(second), BOTH)
        };
        let step = next(&later);
        assert_eq!(step, Step::Order(Reason::Missing, Challenge::TlsAlpn));
    }

    #[test]
    fn pauses_grow_to_an_hour_or_a_day() {
        let minutes = |count: u64| day(100) + Duration::from_secs(60 * count);
        let valid = held(35, 125, true);
        for (times, kind, certificate, end) in [
            (1, Kind::Other, None, 5),
            (2, Kind::Other, None, 10),
            (4, Kind::Other, None, 40),
            (5, Kind::Other, None, 60),
            (99, Kind::Other, None, 60),
            (99, Kind::Other, held(10, 99, true), 60),
            (99, Kind::Other, held(35, 125, false), 60),
            (5, Kind::Other, valid, 80),
            (99, Kind::Other, valid, 24 * 60),
            (1, Kind::Limited, None, 60),
            (1, Kind::Limited, valid, 60),
            (6, Kind::Limited, valid, 160),
        ] {
            let trouble = failed(kind, times, None);
            let step = next(&facts(certificate, trouble, TLS));
            let expected = Step::Wait(Until::Pause, minutes(end));
            assert_eq!(step, expected, "{times} {kind:?} {certificate:?}");
        }
        let late = Facts {
            jitter: 1.0,
            ..facts(None, failed(Kind::Other, 5, None), TLS)
        };
        let end = day(100) + HOUR + HOUR / 8;
        assert_eq!(next(&late), Step::Wait(Until::Pause, end));
    }

    #[test]
    fn the_time_that_the_authority_names_is_kept_to() {
        let trouble = failed(Kind::Limited, 1, Some(day(107)));
        let at = |now, trouble| {
            next(&Facts {
                now,
                ..facts(None, trouble, TLS)
            })
        };
        let waits = Step::Wait(Until::RetryAfter, day(107));
        assert_eq!(at(day(100), trouble), waits);
        assert_eq!(at(day(106), trouble.map(Trouble::hurried)), waits, "SIGHUP");
        let order = Step::Order(Reason::Missing, Challenge::TlsAlpn);
        assert_eq!(at(day(107), trouble), order);
        // A challenge that was refused, too.
        let kind = Kind::Refused(Challenge::TlsAlpn);
        let refused = Trouble::after(None, (kind, Some(day(101))), day(100), BOTH);
        let step = next(&facts(None, Some(refused), BOTH));
        assert_eq!(step, Step::Wait(Until::RetryAfter, day(101)));
        let absurd = failed(Kind::Limited, 1, Some(day(9_999)));
        assert_eq!(
            at(day(100), absurd),
            Step::Wait(Until::RetryAfter, day(130))
        );
    }

    #[test]
    fn a_hurry_ends_a_pause_and_a_clock_that_was_set_back_does_not_lengthen_it() {
        let trouble = failed(Kind::Other, 5, None);
        let order = Step::Order(Reason::Missing, Challenge::TlsAlpn);
        let hurried = trouble.map(Trouble::hurried);
        assert_eq!(next(&facts(None, hurried, TLS)), order);
        let back = Facts {
            now: day(50),
            ..facts(None, trouble, TLS)
        };
        assert_eq!(next(&back), Step::Wait(Until::Pause, day(50) + HOUR));
    }
}
