//! What the protocol itself does with the requests of one site, where that differs from the
//! listener.
//!
//! A service answers requests; who may write, how patient the connection is, and where a request is
//! logged, is decided around it. [`Sites`](crate::Sites) have it for each site, and
//! [`Service::terms`](crate::Service::terms) tells it.
//!
//! Cost: nothing for a GET that is answered inline, unless a site has deadlines or a log.

use std::sync::Arc;

use flatpath::ListenerLimits;

use crate::sites::origins::Origins;

/// Terms of one site. What is not set is as at its listener.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTerms {
    pub(crate) origins: Option<Origins>,
    pub(crate) timeouts: Option<Arc<ListenerLimits>>,
    pub(crate) log: u16,
}

impl SiteTerms {
    /// As at the listener.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Pages of these origins alone may write, in place of those of
    /// [`Http::origins`](crate::Http::origins).
    #[must_use]
    pub fn origins(self, origins: Origins) -> Self {
        Self {
            origins: Some(origins),
            ..self
        }
    }

    /// Deadlines of a connection from a request of this site on, until it brings one of another:
    /// those between requests, in a body, and of sending. A head is not of a site before it is
    /// there. Of streams of HTTP/2 the one that came last counts.
    #[must_use]
    pub fn timeouts(self, timeouts: ListenerLimits) -> Self {
        let timeouts = Some(Arc::new(timeouts));
        Self { timeouts, ..self }
    }

    /// Logs the requests of this site in the access log with this number
    /// ([`RequestLine::log`](flatpath::access_log::RequestLine::log)), in place of 0.
    #[must_use]
    pub fn log(self, log: u16) -> Self {
        Self { log, ..self }
    }
}
