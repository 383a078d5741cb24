//! The rules that hold for one request: those that were set, and those of the root's files.

use std::iter;
use std::sync::Arc;

use http::StatusCode;
use http::header::HeaderMap;

use super::changes::{self, Changes, Extent, HeaderChange};
use super::list::{Hit, RuleList};
use super::set::{Redirect, Rules};
use super::template::Template;
use crate::target::{Hidden, Target};

/// Set rules come first, but for step 5, where a fallback for all paths would leave none over.
#[derive(Clone, Debug)]
pub(crate) struct InForce<'a> {
    pub(crate) set: &'a Rules,
    pub(crate) of_files: Option<Arc<Rules>>,
}

impl<'a> InForce<'a> {
    /// The rules that were set alone.
    pub(crate) fn of(set: &'a Rules) -> Self {
        let of_files = None;
        Self { set, of_files }
    }
}

impl InForce<'_> {
    fn both(&self) -> impl Iterator<Item = &Rules> {
        iter::once(self.set).chain(self.of_files.as_deref())
    }

    /// Whether any path is redirected.
    pub(crate) fn redirects(&self) -> bool {
        self.both().any(|rules| !rules.redirects.is_empty())
    }

    /// Where this path is redirected to; `query` is that of the request, `prefix` is where the
    /// service is mounted.
    pub(crate) fn redirect(
        &self,
        path: &[u8],
        query: Option<&str>,
        prefix: &str,
    ) -> Option<(StatusCode, String)> {
        let (hit, local) = self.led_away(path)?;
        let Redirect { status, to } = hit.rule;
        let location = to.location(&local, path, &hit.matched, query, prefix)?;
        Some((*status, location))
    }

    /// The rule that redirects this path elsewhere.
    pub(crate) fn redirecting<'p>(&self, path: &'p [u8]) -> Option<Hit<'_, 'p, Redirect>> {
        self.led_away(path).map(|(hit, _)| hit)
    }

    /// The same, and the path that it leads to. None if the client is there already.
    fn led_away<'p>(&self, path: &'p [u8]) -> Option<(Hit<'_, 'p, Redirect>, String)> {
        let hit = self.both().find_map(|rules| rules.redirects.find(path))?;
        let to = &hit.rule.to;
        let local = to.path(path, &hit.matched)?;
        // Without an escape a path is its own address.
        let is_here = match local.contains('%') {
            false => local.as_bytes() == path,
            true => {
                let target = Target::parse(local.as_bytes(), Hidden::Served);
                target.is_ok_and(|target| target.address() == path)
            }
        };
        (!is_here || !to.is_local()).then_some((hit, local))
    }

    pub(crate) fn rewriting<'p>(&self, path: &'p [u8]) -> Option<Hit<'_, 'p, Template>> {
        self.both().find_map(|rules| rules.rewrites.find(path))
    }

    pub(crate) fn trying<'p>(&self, path: &'p [u8]) -> Option<Hit<'_, 'p, Vec<Template>>> {
        self.both().find_map(|rules| rules.tries.find(path))
    }

    pub(crate) fn falling_back<'p>(&self, path: &'p [u8]) -> Option<Hit<'_, 'p, Template>> {
        if self.set.without_fallback.find(path).is_some() {
            return None;
        }
        let of_files = self
            .of_files
            .iter()
            .find_map(|rules| rules.fallbacks.find(path));
        of_files.or_else(|| self.set.fallbacks.find(path))
    }

    /// The rules that change headers of this path, in their order.
    pub(crate) fn changing<'p>(
        &self,
        path: &'p [u8],
    ) -> impl Iterator<Item = Hit<'_, 'p, Vec<HeaderChange>>> {
        self.both().flat_map(move |rules| rules.headers.all(path))
    }

    pub(crate) fn change(&self, path: &[u8], extent: Extent, headers: &mut HeaderMap) {
        let changes = self.changing(path).flat_map(|hit| hit.rule);
        changes::apply(changes, extent, headers);
    }

    /// The same of a response that this crate makes.
    pub(crate) fn change_own(&self, path: &[u8], extent: Extent, headers: &mut HeaderMap) {
        let changes = self.changing(path).flat_map(|hit| hit.rule);
        changes::apply_to_own(changes, extent, headers);
    }

    /// The changes of whatever answers a request for this path.
    pub(crate) fn changes(&self, path: &[u8]) -> Changes {
        Changes::new(self.changing(path).flat_map(|hit| hit.rule))
    }

    /// Whether looking for rules may run an expression.
    pub(crate) fn has_expressions(&self) -> bool {
        fn tries<T>(list: &RuleList<T>) -> bool {
            list.has_expressions()
        }
        self.both().any(|rules| {
            let leads = tries(&rules.redirects) || tries(&rules.rewrites) || tries(&rules.tries);
            let falls_back = tries(&rules.fallbacks) || tries(&rules.without_fallback);
            leads || falls_back || tries(&rules.headers)
        })
    }
}

/// The path that a rule leads to.
pub(crate) fn led_to(path: &[u8], hit: &Hit<'_, '_, Template>) -> Option<String> {
    hit.rule.path(path, &hit.matched)
}
