//! One order, from the account to the certificate (RFC 8555 section 7.4), as a list of steps.
//!
//! | step           | what fails there, for one                                       |
//! |----------------|-----------------------------------------------------------------|
//! | the directory  | it cannot be reached                                            |
//! | the account    | its terms are not agreed to                                     |
//! | the order      | a name that the authority does not issue for, a limit           |
//! | a challenge    | the authority has not got its answer                            |
//! | the certificate| the authority takes too long                                    |
//!
//! Each step names itself in its [`Failure`]. Between two of them, and in each wait, the order is
//! given up where the server stops ([`Stop`]); nothing of it is stored, and the authority forgets
//! it. What was made pending is not when this returns, however it does.

use std::time::{Duration, Instant, SystemTime};

use instant_acme::{
    Account, AuthorizationStatus, ChallengeType, Error, HttpClient, Identifier, NewAccount,
    NewOrder, Order, OrderStatus,
};

use super::challenges::{Challenges, Pending};
use super::client::{LastReply, ready};
use super::decision::{Challenge, Kind};
use super::plan::Plan;
use super::storage::Storage;

/// From the first challenge to its end, and from there to the certificate, each.
const WAIT_MAX: Duration = Duration::from_secs(180);

/// Between two looks at an order: the first, and the longest.
const LOOKS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(5)];

// Problems of RFC 8555 section 6.7.
const RATE_LIMITED: &str = "urn:ietf:params:acme:error:rateLimited";
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";

/// Waits for a time, unless the server stops.
pub(super) trait Stop {
    /// `Err`: it stops.
    fn wait(&self, time: Duration) -> Result<(), Stopped>;
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stopped;

/// Why there is no certificate.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) step: String,
    pub(super) kind: Kind,
    pub(super) cause: String,
    pub(super) retry_after: Option<SystemTime>,
}

/// How an order ends without a certificate.
#[derive(Debug)]
pub(super) enum End {
    Failed(Failure),
    Stopped,
}

impl From<Stopped> for End {
    fn from(Stopped: Stopped) -> End {
        End::Stopped
    }
}

/// A key and the certificate for it, with those that lead to an authority, each in PEM.
pub(super) struct Issued {
    pub(super) key: String,
    pub(super) chain: String,
}

/// What an order is made with, from its first step to the last.
pub(super) struct Attempt<'a, S> {
    pub(super) plan: &'a Plan,
    pub(super) storage: &'a Storage,
    pub(super) challenges: &'a Challenges,
    pub(super) last: &'a LastReply,
    pub(super) stop: &'a S,
}

impl<S: Stop> Attempt<'_, S> {
    /// Gets a certificate by this challenge.
    pub(super) fn run(
        &self,
        http: Box<dyn HttpClient>,
        challenge: Challenge,
    ) -> Result<Issued, End> {
        let account = self.account(http)?;
        self.stop.wait(Duration::ZERO)?;
        let names = self.plan.names.iter();
        let names: Vec<_> = names.map(|name| Identifier::Dns(name.clone())).collect();
        let order = ready(account.new_order(&NewOrder::new(&names)));
        let mut order = order.map_err(|cause| {
            if is_problem(&cause, NO_ACCOUNT) {
                // The next order makes another one.
                self.storage.forget_account();
            }
            self.failed("the order", &cause)
        })?;
        let pending = self.begin_challenges(&mut order, challenge)?;
        self.await_validation(&mut order, challenge)?;
        drop(pending);
        let key = ready(order.finalize());
        let key = key.map_err(|cause| self.failed("the certificate", &cause))?;
        let chain = self.await_certificate(&mut order)?;
        Ok(Issued { key, chain })
    }

    /// The account of the storage, or a new one.
    fn account(&self, http: Box<dyn HttpClient>) -> Result<Account, End> {
        let step = "the account";
        let stored = self.storage.account();
        let stored =
            stored.map_err(|cause| self.failed_by(step, Kind::Other, cause.to_string()))?;
        let builder = Account::builder_with_http(http);
        if let Some(credentials) = stored {
            let account = ready(builder.from_credentials(credentials));
            return account.map_err(|cause| self.failed("the directory", &cause));
        }
        let contact: Vec<&str> = self.plan.contacts.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            // Nothing begins without it: see `Plan::of`.
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let made = ready(builder.create(&new, self.plan.directory.clone(), None));
        let (account, credentials) = made.map_err(|cause| self.failed(step, &cause))?;
        let put = self.storage.put_account(&credentials);
        put.map_err(|cause| self.failed_by(step, Kind::Other, cause.to_string()))?;
        Ok(account)
    }

    /// Answers the challenges of all names, and has the authority look.
    fn begin_challenges(
        &self,
        order: &mut Order,
        challenge: Challenge,
    ) -> Result<Vec<Pending>, End> {
        let refused = Kind::Refused(challenge);
        let mut pending = Vec::new();
        let mut all = order.authorizations();
        while let Some(authorization) = ready(all.next()) {
            self.stop.wait(Duration::ZERO)?;
            let mut authorization =
                authorization.map_err(|cause| self.failed("the order", &cause))?;
            let name = authorization.identifier().to_string();
            let step = format!("the challenge {} of {name}", challenge.name());
            match authorization.status {
                AuthorizationStatus::Valid => continue,
                AuthorizationStatus::Pending => {}
                other => return Err(self.failed_by(&step, refused, format!("it is {other:?}"))),
            }
            let found = authorization.challenge(challenge.kind());
            let mut found = found.ok_or_else(|| {
                self.failed_by(&step, refused, "the authority does not offer it".into())
            })?;
            let key = found.key_authorization();
            let (texts, digest) = ((&*found.token, key.as_str()), key.digest());
            let answered = self
                .challenges
                .answer(challenge, &name, texts, digest.as_ref());
            pending.push(answered.map_err(|cause| self.failed_by(&step, Kind::Other, cause))?);
            // An authority that has looked by then replies with what it found.
            let otherwise = |cause: &Error| match cause {
                Error::Api(_) => refused,
                _ => Kind::Other,
            };
            ready(found.set_ready())
                .map_err(|cause| self.failed_or(otherwise(&cause), &step, &cause))?;
        }
        Ok(pending)
    }

    /// Waits until the authority has validated all names.
    fn await_validation(&self, order: &mut Order, challenge: Challenge) -> Result<(), End> {
        let step = format!("the challenge {}", challenge.name());
        let refused = |cause| self.failed_by(&step, Kind::Refused(challenge), cause);
        let mut looks = Looks::new();
        loop {
            match order.state().status {
                OrderStatus::Ready | OrderStatus::Valid | OrderStatus::Processing => return Ok(()),
                OrderStatus::Invalid => return Err(refused(problems(order))),
                OrderStatus::Pending => {}
            }
            if looks.are_over() {
                return Err(refused("the authority has not answered in time".into()));
            }
            self.stop.wait(looks.next(self.last.retry_after()))?;
            let state = ready(order.refresh());
            state.map_err(|cause| self.failed(&step, &cause))?;
        }
    }

    fn await_certificate(&self, order: &mut Order) -> Result<String, End> {
        let step = "the certificate";
        let mut looks = Looks::new();
        loop {
            let found = ready(order.certificate());
            if let Some(chain) = found.map_err(|cause| self.failed(step, &cause))? {
                return Ok(chain);
            }
            if looks.are_over() {
                let cause = "the authority has not issued it in time";
                return Err(self.failed_by(step, Kind::Other, cause.into()));
            }
            self.stop.wait(looks.next(self.last.retry_after()))?;
        }
    }

    fn failed(&self, step: &str, cause: &Error) -> End {
        self.failed_or(Kind::Other, step, cause)
    }

    /// In this way, unless it is a limit.
    fn failed_or(&self, otherwise: Kind, step: &str, cause: &Error) -> End {
        let kind = match is_problem(cause, RATE_LIMITED) || self.last.is_limit() {
            true => Kind::Limited,
            false => otherwise,
        };
        self.failed_by(step, kind, cause.to_string())
    }

    fn failed_by(&self, step: &str, kind: Kind, cause: String) -> End {
        End::Failed(Failure {
            step: step.into(),
            kind,
            cause,
            retry_after: self.last.retry_after(),
        })
    }
}

fn is_problem(cause: &Error, kind: &str) -> bool {
    match cause {
        Error::Api(problem) => problem.r#type.as_deref() == Some(kind),
        _ => false,
    }
}

impl Challenge {
    pub(super) fn name(self) -> &'static str {
        match self {
            Challenge::TlsAlpn => "tls-alpn-01",
            Challenge::Http => "http-01",
        }
    }

    fn kind(self) -> ChallengeType {
        match self {
            Challenge::TlsAlpn => ChallengeType::TlsAlpn01,
            Challenge::Http => ChallengeType::Http01,
        }
    }
}

/// Why the authority has refused, of each name.
fn problems(order: &mut Order) -> String {
    let mut causes = Vec::new();
    let mut all = order.authorizations();
    while let Some(Ok(mut authorization)) = ready(all.next()) {
        // What was read before has no outcome yet.
        let Ok(state) = ready(authorization.refresh()) else {
            continue;
        };
        let name = state.identifier().to_string();
        let problems = state.challenges.iter().filter_map(|it| it.error.as_ref());
        causes.extend(problems.map(|problem| format!("{name}: {problem}")));
    }
    match causes.is_empty() {
        true => "the order is invalid".into(),
        false => causes.join("; "),
    }
}

/// Looks at an order, ever less often.
struct Looks {
    pause: Duration,
    end: Instant,
}

impl Looks {
    fn new() -> Looks {
        let [pause, _] = LOOKS;
        let end = Instant::now() + WAIT_MAX;
        Looks { pause, end }
    }

    fn are_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// The time to the next one: as the authority has it, within bounds.
    fn next(&mut self, retry_after: Option<SystemTime>) -> Duration {
        let [_, longest] = LOOKS;
        let pause = self.pause;
        self.pause = (pause * 2).min(longest);
        let named = retry_after.and_then(|it| it.duration_since(SystemTime::now()).ok());
        let left = self.end.saturating_duration_since(Instant::now());
        named.unwrap_or(pause).max(LOOKS[0]).min(left.max(LOOKS[0]))
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use flatpath::Bytes;
    use flatpath_http::http::header::RETRY_AFTER;
    use flatpath_http::http::{Request, Response};
    use instant_acme::{BodyWrapper, BytesResponse};

    use super::*;

    const DIRECTORY: &str = r#"{"newNonce": "https://ca/nonce", "newAccount": "https://ca/account",
        "newOrder": "https://ca/order", "revokeCert": "https://ca/revoke"}"#;
    const ORDER: &str = r#"{"status": "STATUS", "finalize": "https://ca/finalize",
        "authorizations": ["https://ca/authorization"]}"#;
    const AUTHORIZATION: &str = r#"{"identifier": {"type": "dns", "value": "a.example"},
        "status": "pending", "challenges": [{"type": "http-01", "url": "https://ca/challenge",
        "token": "token", "status": "pending",
        "error": {"type": "urn:a", "detail": "no route"}}]}"#;
    /// The state of an order whose challenge has failed by the time that the authority replies.
    const AT_ONCE: &str = "invalid at once";
    const GONE: &str = r#"{"type": "urn:ietf:params:acme:error:accountDoesNotExist"}"#;
    const LIMIT: &str = r#"{"type": "urn:ietf:params:acme:error:rateLimited", "detail": "enough"}"#;

    /// What an authority answers to an order, and the next state of the order.
    #[derive(Clone)]
    struct Fake {
        order: (u16, &'static str),
        status: &'static str,
        last: LastReply,
        requests: Arc<AtomicU32>,
    }

    impl HttpClient for Fake {
        fn request(
            &self,
            request: Request<BodyWrapper<Bytes>>,
        ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
            self.requests.fetch_add(1, Relaxed);
            let order = |status| ORDER.replace("STATUS", status);
            let (status, text) = match request.uri().path() {
                "/dir" => (200, DIRECTORY.to_owned()),
                "/nonce" => (200, String::new()),
                "/account" => (201, r#"{"status": "valid"}"#.to_owned()),
                "/order" if self.order.0 == 201 => (201, order("pending")),
                "/order" => (self.order.0, self.order.1.to_owned()),
                "/an-order" => (200, order(self.status)),
                "/authorization" => (200, AUTHORIZATION.to_owned()),
                "/challenge" => {
                    let challenge = r#"{"type": "http-01", "url": "https://ca/challenge",
                        "token": "token", "status": "pending"}"#;
                    let failed = r#""invalid", "error": {"type": "urn:a", "detail": "no route"}"#;
                    let challenge = match self.status {
                        AT_ONCE => challenge.replace(r#""pending""#, failed),
                        _ => challenge.to_owned(),
                    };
                    (200, challenge)
                }
                other => panic!("{other} is asked for"),
            };
            let reply = Response::builder().status(status);
            let reply = reply
                .header("Replay-Nonce", "nonce")
                .header("Location", "https://ca/an-order");
            let reply = match status {
                429 => reply.header(RETRY_AFTER, "3600"),
                _ => reply,
            };
            let reply = reply.body(http_body_util::Full::new(Bytes::from(text)));
            let reply = reply.expect("a reply");
            self.last
                .set(reply.status(), reply.headers().get(RETRY_AFTER));
            Box::pin(std::future::ready(Ok(BytesResponse::from(reply))))
        }
    }

    /// Stops at the wait of this number.
    struct After(AtomicU32);

    impl Stop for After {
        fn wait(&self, _: Duration) -> Result<(), Stopped> {
            match self.0.fetch_sub(1, Relaxed) {
                0 => Err(Stopped),
                _ => Ok(()),
            }
        }
    }

    fn ended(order: (u16, &'static str), status: &'static str, waits: u32) -> (End, String) {
        let directory = tempfile::tempdir().expect("a directory");
        let plan = Plan {
            names: vec!["a.example".into()],
            contacts: Vec::new(),
            directory: "https://ca/dir".into(),
            storage: directory.path().into(),
            ca: None,
        };
        let storage = Storage::of(&plan);
        storage.prepare().expect("made");
        let (challenges, last) = (Challenges::default(), LastReply::default());
        let fake = Fake {
            order,
            status,
            last: last.clone(),
            requests: Arc::default(),
        };
        let attempt = Attempt {
            plan: &plan,
            storage: &storage,
            challenges: &challenges,
            last: &last,
            stop: &After(AtomicU32::new(waits)),
        };
        let ended = attempt.run(Box::new(fake.clone()), Challenge::Http);
        let ended = ended.err().expect("no certificate");
        let kept = storage.account().expect("readable").is_some();
        assert_eq!(kept, order.1 != GONE, "the account");
        let left = format!("{challenges:?}");
        (ended, left)
    }

    #[test]
    fn a_limit_and_its_time_are_told_apart_from_other_failures() {
        for (order, kind, step, cause, waits) in [
            ((429, LIMIT), Kind::Limited, "the order", "enough", true),
            ((429, "{}"), Kind::Limited, "the order", "API error", true),
            ((403, LIMIT), Kind::Limited, "the order", "enough", false),
            (
                (403, r#"{"detail": "not you"}"#),
                Kind::Other,
                "the order",
                "not you",
                false,
            ),
            ((400, GONE), Kind::Other, "the order", "DoesNotExist", false),
            ((500, "oops"), Kind::Other, "the order", "JSON", false),
        ] {
            let End::Failed(failure) = ended(order, "", 9).0 else {
                panic!("it fails: {order:?}");
            };
            assert_eq!((failure.kind, &*failure.step), (kind, step), "{order:?}");
            assert!(failure.cause.contains(cause), "{}", failure.cause);
            assert_eq!(failure.retry_after.is_some(), waits, "{order:?}");
        }
    }

    #[test]
    fn a_challenge_that_is_refused_is_named_with_its_cause_and_pending_no_more() {
        for (status, step, cause) in [
            (
                "invalid",
                "the challenge http-01",
                "a.example: API error: no route",
            ),
            (
                AT_ONCE,
                "the challenge http-01 of a.example",
                "API error: no route",
            ),
        ] {
            let (end, left) = ended((201, ""), status, 99);
            let End::Failed(failure) = end else {
                panic!("it fails: {status}");
            };
            assert_eq!(failure.kind, Kind::Refused(Challenge::Http), "{status}");
            assert_eq!(failure.step, step);
            assert!(failure.cause.contains(cause), "{}", failure.cause);
            assert!(left.contains("pending: 0"), "{left}");
        }
    }

    #[test]
    fn an_order_is_given_up_where_the_server_stops() {
        for waits in 0..4 {
            let (end, left) = ended((201, ""), "pending", waits);
            assert!(matches!(end, End::Stopped), "{waits}: {end:?}");
            assert!(left.contains("pending: 0"), "{left}");
        }
    }
}
