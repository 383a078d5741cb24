//! The module `acme` of a build without it: nothing is ordered, and no challenge is answered.
//!
//! Its settings are refused before any of this is asked (`built.rs`), so there is no plan.

use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use flatpath::tls::rustls::server::ResolvesServerCert;
use flatpath_http::HttpChallenges;

use super::choice::Choice;
use super::source::Pair;
use crate::failure::Failure;
use crate::reach::Reach;
use crate::settings::Settings;

/// What an authority is to issue: nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan(Infallible);

impl Plan {
    /// None.
    pub(crate) fn of(_: &Settings) -> Result<Option<Plan>, Failure> {
        Ok(None)
    }

    pub(super) fn pair(&self) -> Pair {
        match self.0 {}
    }

    pub(super) fn prepare(&self) -> Result<(), String> {
        match self.0 {}
    }

    pub(super) fn found(&self) -> (String, Option<String>, Option<String>) {
        match self.0 {}
    }
}

/// Challenges that are pending: none.
#[derive(Clone, Debug, Default)]
pub(crate) struct Challenges(HttpChallenges);

impl Challenges {
    pub(crate) fn http(&self) -> &HttpChallenges {
        &self.0
    }

    pub(crate) fn beside(&self, choice: &Arc<Choice>) -> Arc<dyn ResolvesServerCert> {
        Arc::clone(choice) as _
    }
}

/// What orders: nothing.
#[derive(Clone, Debug)]
pub(super) struct Orders(Infallible);

impl Orders {
    pub(super) fn begin(plan: Plan, _: &Challenges, _: Reach, _: impl Fn()) -> io::Result<Orders> {
        match plan.0 {}
    }

    pub(super) fn hurry(&self) {
        match self.0 {}
    }

    pub(super) fn stop(&self) {
        match self.0 {}
    }
}
