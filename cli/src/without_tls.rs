//! The module `tls` of a build without TLS: no listener has any, and no certificate is read.
//!
//! Settings of TLS are refused before any of this is asked (`built.rs`).

use std::convert::Infallible;
use std::time::Duration;

use flatpath::Server;
use flatpath::metrics::Metric;
use flatpath_http::HttpChallenges;

use crate::failure::Failure;
use crate::reach::Reach;
use crate::settings::{ListenerProtocol, Settings};

/// What a listener with TLS is made of: there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Secured(Infallible);

impl Secured {
    pub(crate) fn requires_clients(&self) -> bool {
        match self.0 {}
    }

    /// None.
    pub(crate) fn of(_: &Settings) -> Result<Option<Secured>, Failure> {
        Ok(None)
    }
}

/// Servers that are asked: without TLS.
pub(crate) mod upstreams {
    use flatpath_http::UpstreamServer;

    use crate::failure::Failure;
    use crate::settings::Settings;

    /// The servers of these settings: none has TLS.
    pub(crate) fn servers(settings: &Settings) -> Result<Vec<UpstreamServer>, Failure> {
        match settings.proxy.iter().find(|server| server.is_secured()) {
            Some(server) => Err(Failure::WrongUse(format!(
                "--proxy {server}: this build has no TLS (feature tls)"
            ))),
            None => Ok(settings.proxy.clone()),
        }
    }
}

/// The certificates of all listeners: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Certificates;

impl Certificates {
    pub(crate) fn add(&self, secured: &Secured) -> Result<Infallible, Failure> {
        match secured.0 {}
    }

    pub(crate) fn reload(&self) {}

    pub(crate) fn http_challenges(&self) -> Option<&HttpChallenges> {
        None
    }

    pub(crate) fn order(&self, _: Reach) {}

    pub(crate) fn hand_over(&self) {}
}

pub(crate) const METRICS: &[Metric<Certificates>] = &[];

/// What reads certificates again: nothing.
pub(crate) struct Renewal;

impl Renewal {
    pub(crate) fn begin(_: &Certificates, _: Option<Duration>) -> Renewal {
        Renewal
    }
}

pub(crate) fn added_to(_: Server, tls: &Infallible, _: ListenerProtocol) -> Server {
    match *tls {}
}

pub(crate) fn comments<'a>(_: impl Iterator<Item = &'a Secured>) -> Result<String, Failure> {
    Ok(String::new())
}

/// What there is to say of certificates: nothing.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    pub(crate) words: Vec<String>,
    pub(crate) warnings: Vec<String>,
    pub(crate) mismatches: Vec<String>,
}

pub(crate) fn findings<'a>(
    _: &Settings,
    _: impl Iterator<Item = &'a Secured>,
) -> Result<Findings, Failure> {
    Ok(Findings::default())
}
