//! Challenges of an ACME authority over HTTP (RFC 8555 section 8.3): what a listener answers with
//! before anything else, while it is asked for.
//!
//! An authority that validates a name asks for `/.well-known/acme-challenge/TOKEN` at port 80 of
//! it. Whatever a listener does with other requests, a token that is pending is answered first: no
//! host is unknown, no site or redirect is asked, no access rule applies, because what is answered
//! is public and of this server alone. Every other path below the prefix belongs to the sites, so a
//! directory in which another ACME client leaves its files is served as before.
//!
//! Invariants
//! - Only a GET or HEAD without a body whose path is the prefix and a pending token is answered.
//! - At most [`PENDING_MAX`] tokens are pending.
//!
//! | may run beside | put, remove, clear | answer |
//! |----------------|--------------------|--------|
//! | put, and so on | yes                | yes    |
//! | answer         | yes                | yes    |
//!
//! Cost: one comparison for a request while nothing is pending; then one more with the prefix, and
//! a lock for those that have it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use flatpath::lock::Lock;
use http::header::CONTENT_TYPE;

use crate::connection::state::Http;
use crate::head::Head;
use crate::message::Response;
use crate::respond::into_response::IntoResponse;

/// The names of one certificate are a hundred at most, as authorities have it.
const PENDING_MAX: usize = 256;

/// Where authorities look (RFC 8555 section 8.3).
const PREFIX: &str = "/.well-known/acme-challenge/";

/// Tokens of an ACME authority that are pending, each with what is answered. Clones are the same.
/// See [`Http::challenges`].
#[derive(Clone, Default)]
pub struct HttpChallenges(Arc<Pending>);

#[derive(Default)]
struct Pending {
    /// Of the answers, for those that do not lock.
    count: AtomicUsize,
    answers: Lock<HashMap<String, String>>,
}

impl HttpChallenges {
    /// Answers with this key authorization where the authority asks for the token, from now on.
    ///
    /// # Errors
    /// As many are pending as are kept: a caller has not removed its own.
    pub fn put(&self, token: &str, key_authorization: &str) -> Result<(), TooManyChallenges> {
        self.change(|answers| {
            if answers.len() >= PENDING_MAX && !answers.contains_key(token) {
                return Err(TooManyChallenges);
            }
            answers.insert(token.into(), key_authorization.into());
            Ok(())
        })
    }

    /// The token is pending no more.
    pub fn remove(&self, token: &str) {
        self.change(|answers| answers.remove(token));
    }

    /// None is pending any more.
    pub fn clear(&self) {
        self.change(HashMap::clear);
    }

    fn change<T>(&self, change: impl FnOnce(&mut HashMap<String, String>) -> T) -> T {
        let mut answers = self.0.answers.lock();
        let outcome = change(&mut answers);
        // ORDER: Relaxed: a hint; the lock guards the answers.
        self.0.count.store(answers.len(), Ordering::Relaxed);
        outcome
    }

    /// What a request gets, if it is for a token that is pending.
    #[inline]
    pub(crate) fn answer(&self, head: &Head<'_>) -> Option<Response> {
        // ORDER: Relaxed: see `change`.
        match self.0.count.load(Ordering::Relaxed) {
            0 => None,
            _ => self.pending(head),
        }
    }

    #[cold]
    fn pending(&self, head: &Head<'_>) -> Option<Response> {
        let token = head.path().strip_prefix(PREFIX)?;
        if !head.is_get() && !head.is_head() {
            return None;
        }
        let answer = self.0.answers.lock().get(token).cloned()?;
        Some(([(CONTENT_TYPE, "application/octet-stream")], answer).into_response())
    }
}

impl<S> Http<S> {
    /// Answers these challenges of an ACME authority before anything else: hosts, sites, layers and
    /// handlers see no request for a token that is pending, and every other. For listeners without
    /// TLS: an authority begins there (RFC 8555 section 8.3).
    ///
    /// ```
    /// use flatpath_http::{Http, HttpChallenges};
    ///
    /// let challenges = HttpChallenges::default();
    /// let http = Http::pooled(|| "hello\n").challenges(&challenges);
    /// // For as long as the authority may ask, which is while a client of ACME orders:
    /// challenges.put("token", "token.thumbprint").expect("a few are pending");
    /// challenges.remove("token");
    /// # let _ = http;
    /// ```
    #[must_use]
    pub fn challenges(self, challenges: &HttpChallenges) -> Self {
        Self {
            challenges: Some(challenges.clone()),
            ..self
        }
    }
}

/// Without what is answered.
impl fmt::Debug for HttpChallenges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pending = self.0.answers.lock().len();
        let mut shown = formatter.debug_struct("HttpChallenges");
        shown.field("pending", &pending).finish()
    }
}

/// More challenges are pending than any certificate has names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyChallenges;

impl fmt::Display for TooManyChallenges {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{PENDING_MAX} challenges are pending already")
    }
}

impl std::error::Error for TooManyChallenges {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::parse::with_head;

    fn asked(challenges: &HttpChallenges, line: &str) -> Option<u16> {
        let text = format!("{line} HTTP/1.1\r\nHost: a.example\r\n\r\n");
        let answer = with_head(text.as_bytes(), |head| challenges.answer(head));
        let answer = answer.expect("a good head").expect("a whole one");
        answer.map(|it| it.status().as_u16())
    }

    #[test]
    fn only_a_token_that_is_pending_is_answered() {
        let challenges = HttpChallenges::default();
        let at = |method: &str, token: &str| format!("{method} {PREFIX}{token}");
        assert_eq!(asked(&challenges, &at("GET", "a")), None);
        challenges.put("a", "a.b").expect("room");
        for (line, expected) in [
            (at("GET", "a"), Some(200)),
            (at("HEAD", "a"), Some(200)),
            (at("PUT", "a"), None),
            (at("GET", "b"), None),
            (at("GET", ""), None),
            (at("GET", "a/"), None),
            ("GET /a".into(), None),
        ] {
            assert_eq!(asked(&challenges, &line), expected, "{line}");
        }
        challenges.put("b", "b.b").expect("room");
        challenges.remove("a");
        assert_eq!(asked(&challenges, &at("GET", "a")), None);
        assert_eq!(asked(&challenges, &at("GET", "b")), Some(200));
        challenges.clear();
        assert_eq!(asked(&challenges, &at("GET", "b")), None);
    }

    #[test]
    fn forgotten_challenges_are_bounded() {
        let challenges = HttpChallenges::default();
        for number in 0..PENDING_MAX {
            challenges.put(&number.to_string(), "").expect("room");
        }
        assert_eq!(challenges.put("more", ""), Err(TooManyChallenges));
        assert_eq!(challenges.put("0", "again"), Ok(()));
        challenges.remove("1");
        assert_eq!(challenges.put("more", ""), Ok(()));
    }
}
