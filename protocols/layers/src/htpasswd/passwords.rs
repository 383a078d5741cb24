//! The passwords of an [`Access`](crate::Access): at once on a network thread, else on a worker.

use std::net::{IpAddr, Ipv4Addr};

use flatpath::blocking::Entry;
use flatpath_http::{Head, IntoResponse, Request, Response, WorkerScope};
use http::StatusCode;
use http::header::{AUTHORIZATION, HeaderValue, RETRY_AFTER};

use super::{Htpasswd, is_short};
use crate::auth::{AuthUser, Sent, challenge, only, refuse};
use crate::rate_limit::too_many;

/// Clients without an address are counted as one.
const NO_ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// The seconds after which a client may try again where too many passwords wait to be checked.
const BUSY_SECONDS: &str = "10";

/// A file of passwords, asked for in the name of a realm.
#[derive(Debug)]
pub(crate) struct Passwords {
    challenge: HeaderValue,
    file: Htpasswd,
}

/// The password of a request was counted, and waits to be checked.
#[derive(Clone)]
struct Attempt;

/// What a network thread finds.
pub(crate) enum AtOnce {
    Known,
    Worker,
    Refused(Box<Response>),
}

impl Passwords {
    #[track_caller]
    pub(crate) fn new(realm: &str, file: &Htpasswd) -> Self {
        Self {
            challenge: challenge("Basic", realm, ", charset=\"UTF-8\""),
            file: file.clone(),
        }
    }

    fn refused(&self) -> Box<Response> {
        Box::new(refuse(self.challenge.clone()))
    }

    /// Whether a request is admitted, as far as that is known without a check.
    pub(crate) fn at_once(&self, head: &Head<'_>, address: Option<IpAddr>) -> AtOnce {
        let Some(sent) = only(head.values(AUTHORIZATION.as_str())) else {
            return AtOnce::Refused(self.refused());
        };
        if self.file.knows(sent) {
            return match self.file.is_due() {
                true => AtOnce::Worker,
                false => AtOnce::Known,
            };
        }
        let inner = &self.file.0;
        match inner
            .failures
            .check(address.unwrap_or(NO_ADDRESS), (inner.now)())
        {
            Ok(()) => AtOnce::Worker,
            Err(wait) => AtOnce::Refused(Box::new(too_many(wait))),
        }
    }

    /// Whether a request is admitted; then it has its [`AuthUser`]. May block. What is returned
    /// where the job is parked counts for nothing.
    pub(crate) fn check(
        &self,
        request: &mut Request,
        address: Option<IpAddr>,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        self.file.look();
        let values = request.headers().get_all(AUTHORIZATION).iter();
        let value = only(values.map(HeaderValue::as_bytes)).ok_or_else(|| self.refused())?;
        let sent = Sent::of(value).ok_or_else(|| self.refused())?;
        if !self.file.knows(value) {
            let key = self.file.key(value);
            self.try_password(&sent, request, (address, scope))?;
            self.file.remember(key);
        }
        let user = AuthUser::named(&sent.name);
        request.extensions_mut().insert(user);
        Ok(())
    }

    /// Checks a password, within the limits of such checks.
    fn try_password(
        &self,
        sent: &Sent,
        request: &mut Request,
        (address, scope): (Option<IpAddr>, &mut WorkerScope<'_>),
    ) -> Result<(), Box<Response>> {
        let (inner, extensions) = (&self.file.0, request.extensions_mut());
        let address = address.unwrap_or(NO_ADDRESS);
        // HP4: also before it waits, so that no address waits with more than it may try.
        if extensions.get::<Attempt>().is_none() {
            let attempt = inner.failures.admit(address, (inner.now)(), 1);
            attempt.map_err(|wait| Box::new(too_many(wait)))?;
            extensions.insert(Attempt);
        }
        let busy = || {
            inner.failures.give_back(address, 1);
            let retry = [(RETRY_AFTER, BUSY_SECONDS)];
            let busy = "too many passwords wait to be checked\n";
            let busy = (StatusCode::SERVICE_UNAVAILABLE, retry, busy);
            Box::new(busy.into_response())
        };
        let _inside = match inner.checks.limit.enter(scope) {
            Entry::Entered(inside) => inside,
            Entry::Parked => return Err(Box::default()),
            Entry::Refused => return Err(busy()),
        };
        extensions.remove::<Attempt>();
        let users = self.file.users();
        // HP5. As a rule it is there: as many checks as may run at a time own theirs.
        let bytes = users.hash_of(&sent.name).check_bytes();
        let _memory = inner.checks.memory.hold(bytes).ok_or_else(busy)?;
        if !(is_short(&sent.password) && users.has(&sent.name, &sent.password)) {
            return Err(self.refused());
        }
        inner.failures.give_back(address, 1);
        Ok(())
    }
}
