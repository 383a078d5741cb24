//! The rules of a [`Guard`](crate::Guard), and how they change.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flatpath::lock::Lock;
use flatpath::{Subnet, SubnetMap};
use flatpath_http::{Head, IntoResponse, Request, Response, WorkerScope};
use http::StatusCode;

use super::{address_of, charge};
use crate::clock;
#[cfg(feature = "htpasswd")]
use crate::htpasswd::Htpasswd;
#[cfg(feature = "htpasswd")]
use crate::htpasswd::passwords::Passwords;
use crate::rate_limit::rate::Rate;
use crate::rate_limit::{ADDRESSES_MAX, RateLimit, too_many};

type Clock = Arc<dyn Fn() -> Duration + Send + Sync>;

/// Access rules: which clients may send requests, and how many. Without any, all may, any number.
pub struct Access {
    /// Whether an address of the network is admitted.
    networks: SubnetMap<bool>,
    has_allowed: bool,
    requests: Option<RateLimit>,
    bytes: Option<Rate>,
    #[cfg(feature = "htpasswd")]
    passwords: Option<Passwords>,
    now: Clock,
}

/// What a network thread does with a request.
pub(super) enum Decision {
    Admitted,
    /// A worker decides.
    #[cfg_attr(
        not(feature = "htpasswd"),
        expect(dead_code, reason = "nothing has to wait")
    )]
    Worker,
    Refused(Box<Response>),
}

impl Default for Access {
    fn default() -> Self {
        Self::new()
    }
}

impl Access {
    /// Everyone, any number.
    #[must_use]
    pub fn new() -> Self {
        Self {
            networks: SubnetMap::default(),
            has_allowed: false,
            requests: None,
            bytes: None,
            #[cfg(feature = "htpasswd")]
            passwords: None,
            now: Arc::new(clock::since_begun),
        }
    }

    /// Admits clients of these networks. Of all networks that were named and that an address lies
    /// in, the longest decides, whatever their order; an address that lies in none is refused (403)
    /// once a network is allowed. So is a client without an address, once a network is named.
    #[must_use]
    pub fn allow(mut self, networks: impl IntoIterator<Item = Subnet>) -> Self {
        for network in networks {
            self.has_allowed = true;
            // The same network may be refused: that is safer.
            if self.networks.insert(network, true) == Some(false) {
                self.networks.insert(network, false);
            }
        }
        self
    }

    /// Refuses clients of these networks (403), also of one that is allowed as well.
    #[must_use]
    pub fn deny(mut self, networks: impl IntoIterator<Item = Subnet>) -> Self {
        for network in networks {
            self.networks.insert(network, false);
        }
        self
    }

    /// Refuses the requests of an address that are beyond this limit (429). Its function
    /// [`by`](RateLimit::by) is not asked: the address is the client's.
    #[must_use]
    pub fn requests(mut self, limit: RateLimit) -> Self {
        self.requests = Some(limit);
        self
    }

    /// Limits the bytes of bodies that an address is sent in `time`, which may all go out at once;
    /// beyond them its requests are refused (429). What a response takes is counted when it begins,
    /// also if its client breaks it off, and as it is read where its length is not known. It may go
    /// beyond what is left, and as much time passes before the next request is admitted. A body
    /// that the program feeds from elsewhere, such as a stream of events, is not counted.
    ///
    /// # Panics
    /// With 0 bytes.
    #[must_use]
    #[track_caller]
    pub fn bytes(mut self, bytes: u64, time: Duration) -> Self {
        assert!(bytes > 0, "a limit of 0 bytes refuses everything");
        self.bytes = Some(Rate::new(bytes, time, ADDRESSES_MAX));
        self
    }

    /// Admits who sends a name and a password of this file (RFC 7617); others get 401, for which a
    /// browser asks its user for those of `realm`.
    ///
    /// # Panics
    /// If the realm is not visible ASCII without quotes.
    #[cfg(feature = "htpasswd")]
    #[must_use]
    #[track_caller]
    pub fn passwords(mut self, realm: &str, file: &Htpasswd) -> Self {
        self.passwords = Some(Passwords::new(realm, file));
        self
    }

    /// Another clock for the limit of bytes, for tests: see [`RateLimit::clock`].
    #[must_use]
    pub fn clock(mut self, now: impl Fn() -> Duration + Send + Sync + 'static) -> Self {
        self.now = Arc::new(now);
        self
    }

    /// Whether a client with this address is admitted by its network.
    #[must_use]
    pub fn admits(&self, address: Option<IpAddr>) -> bool {
        if self.networks.is_empty() {
            return true;
        }
        match address.map(|address| self.networks.find(address)) {
            None => false,
            Some(found) => found.copied().unwrap_or(!self.has_allowed),
        }
    }

    /// Steps 1 to 3; a request that was counted is not counted again.
    pub(super) fn admit(
        &self,
        address: Option<IpAddr>,
        is_counted: bool,
    ) -> Result<(), Box<Response>> {
        if !self.admits(address) {
            let refusal = (StatusCode::FORBIDDEN, "your address is not admitted\n");
            return Err(Box::new(refusal.into_response()));
        }
        let Some(address) = address.filter(|_| !is_counted) else {
            return Ok(());
        };
        let wait = |wait| Box::new(too_many(wait));
        if let Some(bytes) = &self.bytes {
            bytes.check(address, (self.now)()).map_err(wait)?;
        }
        if let Some(requests) = &self.requests {
            requests.admit(address).map_err(wait)?;
        }
        Ok(())
    }

    /// Whether some requests wait for the check of a password.
    pub(super) fn checks_passwords(&self) -> bool {
        #[cfg(feature = "htpasswd")]
        return self.passwords.is_some();
        #[cfg(not(feature = "htpasswd"))]
        false
    }

    pub(super) fn counts_bytes(&self) -> bool {
        self.bytes.is_some()
    }

    pub(super) fn charge(&self, address: Option<IpAddr>, bytes: u64) {
        if let (Some(rate), Some(address)) = (&self.bytes, address) {
            rate.charge(address, (self.now)(), bytes);
        }
    }

    /// Continues what the same limits have counted.
    fn continuing(mut self, before: &Self) -> Self {
        self.requests = match (self.requests, &before.requests) {
            (Some(limit), Some(before)) => Some(limit.continuing(before)),
            (limit, _) => limit,
        };
        self.bytes = match (self.bytes, &before.bytes) {
            (Some(rate), Some(before)) => Some(rate.continuing(before)),
            (rate, _) => rate,
        };
        self
    }
}

#[cfg(feature = "htpasswd")]
impl Access {
    /// Step 4 on the network thread.
    pub(super) fn credentials_at_once(&self, head: &Head<'_>, address: Option<IpAddr>) -> Decision {
        use crate::htpasswd::passwords::AtOnce;
        let Some(passwords) = &self.passwords else {
            return Decision::Admitted;
        };
        match passwords.at_once(head, address) {
            AtOnce::Known => Decision::Admitted,
            AtOnce::Worker => Decision::Worker,
            AtOnce::Refused(response) => Decision::Refused(response),
        }
    }

    /// The same on a worker.
    pub(super) fn credentials(
        &self,
        request: &mut Request,
        address: Option<IpAddr>,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        match &self.passwords {
            None => Ok(()),
            Some(passwords) => passwords.check(request, address, scope),
        }
    }
}

#[cfg(not(feature = "htpasswd"))]
#[expect(clippy::unused_self, reason = "as with passwords")]
impl Access {
    pub(super) fn credentials_at_once(&self, _: &Head<'_>, _: Option<IpAddr>) -> Decision {
        Decision::Admitted
    }

    #[expect(clippy::unnecessary_wraps, reason = "as with passwords")]
    pub(super) fn credentials(
        &self,
        _: &mut Request,
        _: Option<IpAddr>,
        _: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        Ok(())
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = formatter.debug_struct("Access");
        shown.field("networks", &self.networks);
        shown.field("requests", &self.requests);
        shown.field("bytes", &self.bytes);
        #[cfg(feature = "htpasswd")]
        shown.field("passwords", &self.passwords);
        shown.finish_non_exhaustive()
    }
}

/// The rules that are in force. A network thread compares the version, and takes the lock after a
/// change alone.
pub(super) struct Shared {
    version: AtomicU64,
    access: Lock<Arc<Access>>,
}

impl Shared {
    pub(super) fn new(access: Access) -> Self {
        Self {
            version: AtomicU64::new(0),
            access: Lock::new(Arc::new(access)),
        }
    }

    pub(super) fn current(&self) -> (u64, Arc<Access>) {
        let access = self.access.lock();
        // ORDER: Relaxed: it changes under the lock.
        (self.version.load(Ordering::Relaxed), Arc::clone(&access))
    }

    /// Takes over what has changed since a version.
    pub(super) fn renew(&self, version: &mut u64, access: &mut Arc<Access>) {
        // ORDER: Relaxed: the lock orders what it stands for, and a request that comes at the same
        // time as a change may be before it.
        if self.version.load(Ordering::Relaxed) != *version {
            (*version, *access) = self.current();
        }
    }
}

/// Changes the rules of a [`Guard`](crate::Guard) while its service runs. A clone is the same.
#[derive(Clone)]
pub struct AccessHandle(Arc<Shared>);

impl AccessHandle {
    pub(super) fn of(shared: &Arc<Shared>) -> Self {
        Self(Arc::clone(shared))
    }

    /// Rules for several guards: what one has counted counts for all of them.
    #[must_use]
    pub fn new(access: Access) -> Self {
        Self(Arc::new(Shared::new(access)))
    }

    pub(super) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }

    /// Replaces the rules, for every request from now on. A limit that has not changed keeps its
    /// counts.
    pub fn replace(&self, access: Access) {
        let mut current = self.0.access.lock();
        *current = Arc::new(access.continuing(&current));
        // ORDER: Relaxed: see `Shared::renew`.
        self.0.version.fetch_add(1, Ordering::Relaxed);
    }
}

impl AccessHandle {
    /// Decides as a [`Guard`](crate::Guard) with these rules does, for a service without one: for
    /// a file that another guard's service has, say. On a worker, as it may block; a request is
    /// counted once, however often it is asked about. What is returned where the job was parked
    /// counts for nothing: the request comes again.
    ///
    /// # Errors
    /// The response that refuses the request.
    pub fn admit(
        &self,
        request: &mut Request,
        scope: &mut WorkerScope<'_>,
    ) -> Result<(), Box<Response>> {
        let (_, access) = self.0.current();
        let address = address_of(request);
        let own = Arc::as_ptr(&self.0).addr();
        let counted: Option<&Counted> = request.extensions().get();
        let is_counted = counted.is_some_and(|counted| counted.0.contains(&own));
        access.admit(address, is_counted)?;
        if !is_counted {
            let counted = request.extensions_mut().get_or_insert_default::<Counted>();
            counted.0.push(own);
        }
        access.credentials(request, address, scope)
    }

    /// Counts the bytes of a response to a request that was admitted, as a guard does.
    #[must_use]
    pub fn charge(&self, request: &Request, response: Response) -> Response {
        let (_, access) = self.0.current();
        charge(&access, address_of(request), response)
    }
}

/// The rules that have counted a request without a guard: an extension of it.
#[derive(Clone, Default)]
struct Counted(Vec<usize>);

impl fmt::Debug for AccessHandle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("AccessHandle")
    }
}
