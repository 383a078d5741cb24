//! Whether a request that has failed is sent again.
//!
//! The race of kept connections: a server closes one that is idle while a request is on its way to
//! it. That request was not looked at, but the proxy cannot know: only that no byte of a reply has
//! come. RFC 9110 9.2.2 lets a client repeat by itself what is idempotent, and nothing else "unless
//! it has some means to know that ... the original request was never applied". So:
//!
//! | sent              | answered | method     | body           | verdict                         |
//! |-------------------|----------|------------|----------------|---------------------------------|
//! | nothing           | no       | any        | there          | again, out of no budget         |
//! | something         | no       | idempotent | none, or kept  | again, out of the budget        |
//! | something         | no       | any other  | any            | 502                             |
//! | something         | no       | any        | passed, gone   | 502                             |
//! | something         | a byte   | any        | any            | 502, or the reply is cut off    |
//!
//! A time-out is no race: the server has the request, and works. It is not sent again.
//!
//! The budget keeps retries from multiplying the load of servers that fail because of it: a part of
//! all requests, and a few beyond.

use http::Method;

/// Retries that a budget holds at most, and at its beginning.
const BUDGET_MAX: u32 = 100;
const BUDGET_FIRST: u32 = 10;

/// What a request adds to it, in parts of a retry.
const DEPOSIT: u32 = 200;
const RETRY: u32 = 1000;

/// How often a request is sent at most.
pub(crate) const ATTEMPTS_MAX: u32 = 4;

/// How far an attempt has come when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// No byte of the request was queued on the connection.
    NothingSent,
    /// Some was, and no byte of a reply has come.
    Unanswered,
    /// The reply has begun.
    Answered,
    /// It was not answered in time.
    Late,
}

/// What of the request there is for another attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    /// All of it: it has no body, or one that is kept.
    Whole,
    /// Some of its body is gone.
    Parts,
}

/// What follows from a failure.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Again,
    Answer,
}

/// What retries there may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Budget(u32);

impl Default for Budget {
    fn default() -> Self {
        Self(BUDGET_FIRST * RETRY)
    }
}

impl Budget {
    /// A request has come.
    pub(crate) fn deposit(&mut self) {
        self.0 = (self.0 + DEPOSIT).min(BUDGET_MAX * RETRY);
    }

    fn withdraw(&mut self) -> bool {
        let left = self.0.checked_sub(RETRY);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }

    /// What becomes of a request after so many attempts, this one included.
    pub(crate) fn verdict(
        &mut self,
        (progress, attempts): (Progress, u32),
        is_idempotent: bool,
        again: Again,
    ) -> Verdict {
        let may = attempts < ATTEMPTS_MAX
            && again == Again::Whole
            && match progress {
                Progress::NothingSent => true,
                Progress::Unanswered => is_idempotent && self.withdraw(),
                Progress::Answered | Progress::Late => false,
            };
        match may {
            true => Verdict::Again,
            false => Verdict::Answer,
        }
    }
}

/// RFC 9110 9.2.2.
pub(crate) fn is_idempotent(method: &str) -> bool {
    [
        Method::GET,
        Method::HEAD,
        Method::PUT,
        Method::DELETE,
        Method::OPTIONS,
        Method::TRACE,
    ]
    .iter()
    .any(|it| it == method)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_sent_again_is_and_nothing_else() {
        use {Again::*, Progress::*};
        for (progress, is_idempotent, again, verdict) in [
            (NothingSent, false, Whole, Verdict::Again),
            (NothingSent, true, Whole, Verdict::Again),
            (NothingSent, true, Parts, Verdict::Answer),
            (Unanswered, true, Whole, Verdict::Again),
            (Unanswered, false, Whole, Verdict::Answer),
            (Unanswered, true, Parts, Verdict::Answer),
            (Answered, true, Whole, Verdict::Answer),
            (Late, true, Whole, Verdict::Answer),
        ] {
            let mut budget = Budget::default();
            let got = budget.verdict((progress, 1), is_idempotent, again);
            assert_eq!(got, verdict, "{progress:?} {is_idempotent} {again:?}");
            let got = budget.verdict((progress, ATTEMPTS_MAX), is_idempotent, again);
            assert_eq!(got, Verdict::Answer, "so often");
        }
    }

    #[test]
    fn methods_are_idempotent_as_the_rfc_says() {
        for method in ["GET", "HEAD", "PUT", "DELETE", "OPTIONS", "TRACE"] {
            assert!(is_idempotent(method), "{method}");
        }
        for method in ["POST", "PATCH", "get", "LOCK", "CONNECT", ""] {
            assert!(!is_idempotent(method), "{method}");
        }
    }

    #[test]
    fn retries_are_a_part_of_requests_and_a_few_beyond() {
        let mut budget = Budget::default();
        let retry = |budget: &mut Budget| {
            budget.verdict((Progress::Unanswered, 1), true, Again::Whole) == Verdict::Again
        };
        let count = |budget: &mut Budget| (0..1000).take_while(|_| retry(budget)).count();
        assert_eq!(count(&mut budget), BUDGET_FIRST as usize);
        (0..50).for_each(|_| budget.deposit());
        assert_eq!(count(&mut budget), 10, "a fifth");
        (0..100_000).for_each(|_| budget.deposit());
        assert_eq!(count(&mut budget), BUDGET_MAX as usize);
        let free = budget.verdict((Progress::NothingSent, 1), false, Again::Whole);
        assert_eq!(free, Verdict::Again, "nothing was sent");
    }
}
