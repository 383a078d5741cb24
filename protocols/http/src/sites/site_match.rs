//! Which site answers for a host: what is remembered of a lookup, so that the next request for the
//! same host needs none.

/// Which site answers for a host: the answer of [`Service::site`](crate::Service::site).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum SiteMatch {
    /// The service does not tell hosts apart.
    #[default]
    Every,
    /// This one.
    One(SiteKey),
    /// None: the client gets 421.
    Unknown,
}

/// A site that was looked up: of the [`Sites`](crate::Sites) that have it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SiteKey {
    pub(crate) sites: u32,
    pub(crate) host: u32,
    /// The number of the service that answers for all paths of the host, where there is one and
    /// its [plan](crate::Service::plans_inline) is known.
    pub(crate) direct: Option<u32>,
}

/// The host that a network thread was asked for last and answers for: as a rule, the next one is
/// the same.
#[derive(Default)]
pub(crate) struct LastHost {
    pub(crate) name: String,
    /// The site that answers for it, of a service that has several.
    pub(crate) site: Option<SiteKey>,
}
