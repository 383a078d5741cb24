//! What the rules do with a path, told in words: for a check before a site is served.

use std::fmt;

use http::StatusCode;
use http::header::HeaderMap;

use super::changes::Extent;
use super::in_force::{InForce, led_to};
use super::pattern::Pattern;
use super::set::{CleanUrls, Rules};
use crate::target::{Hidden, Target};

/// What the rules do with one path. `Display` shows all of it, a line each.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The path as rules see it: decoded, without the query.
    pub path: String,
    /// The rules that are for it, in the order in which they are tried.
    pub steps: Vec<Step>,
    /// What it comes to.
    pub outcome: Outcome,
    /// Headers that the rules set, as they are sent with the file or the redirect.
    pub headers: Vec<(String, String)>,
}

/// A rule that is for a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Step {
    /// Its kind: `redirect`, `rewrite`, `try`, `fallback`, `headers`.
    pub kind: &'static str,
    /// Its pattern, as [`Pattern::from_str`](super::Pattern) reads it.
    pub pattern: String,
    /// What it leads to, or which headers it changes.
    pub effect: String,
}

/// What the rules make of a path.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The client is sent elsewhere.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        status: StatusCode,
        /// The value of `Location`.
        location: String,
    },
    /// The first of these that exists is served. The path of a directory ends in a slash: its index
    /// or its listing.
    Files(Vec<String>),
    /// The path is none: the status of the answer.
    Refused(StatusCode),
}

impl Rules {
    /// What these rules do with a target such as `/old/page?x=1`, without looking at any file:
    /// those of `_redirects` and `_headers` are left out.
    /// [`Files::explain`](crate::Files::explain) has them.
    #[must_use]
    pub fn explain(&self, target: &str) -> Explanation {
        InForce::of(self).explain(target, Hidden::Refused)
    }
}

impl InForce<'_> {
    pub(crate) fn explain(&self, target: &str, hidden: Hidden) -> Explanation {
        let parsed = match Target::parse(target.as_bytes(), hidden) {
            Ok(parsed) => parsed,
            Err(error) => {
                return Explanation {
                    path: target.to_owned(),
                    steps: Vec::new(),
                    outcome: Outcome::Refused(error.status()),
                    headers: Vec::new(),
                };
            }
        };
        let address = parsed.address();
        let mut steps = Vec::new();
        let query = parsed
            .query()
            .and_then(|query| std::str::from_utf8(query).ok());
        let outcome = match (
            self.redirecting(&address),
            self.redirect(&address, query, ""),
        ) {
            (Some(hit), Some((status, location))) => {
                steps.push(Step::new(
                    "redirect",
                    hit.pattern,
                    format!("{status} {location}"),
                ));
                Outcome::Redirect { status, location }
            }
            _ => self.files(&address, &mut steps),
        };
        let mut headers = HeaderMap::new();
        self.change(&address, Extent::All, &mut headers);
        for hit in self.changing(&address) {
            let changes = hit.rule.iter().map(ToString::to_string);
            let changes = changes.collect::<Vec<_>>().join("; ");
            steps.push(Step::new("headers", hit.pattern, changes));
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let header = headers
            .iter()
            .map(|(name, value)| (name.to_string(), text(value.as_bytes())));
        Explanation {
            path: text(&address),
            steps,
            outcome,
            headers: header.collect(),
        }
    }

    /// The files that are looked for, in their order.
    fn files(&self, asked: &[u8], steps: &mut Vec<Step>) -> Outcome {
        let mut address = asked.to_vec();
        if let Some(hit) = self.rewriting(asked) {
            let to = led_to(asked, &hit).unwrap_or_default();
            steps.push(Step::new("rewrite", hit.pattern, to.clone()));
            match Target::parse(to.as_bytes(), Hidden::Refused) {
                Ok(target) => address = target.address(),
                Err(_) => return Outcome::Refused(StatusCode::NOT_FOUND),
            }
        }
        let path = String::from_utf8_lossy(&address).into_owned();
        let mut files = Vec::new();
        match self.trying(&address) {
            Some(hit) => {
                let tried = hit.rule.iter();
                files.extend(tried.filter_map(|file| file.path(&address, &hit.matched)));
                steps.push(Step::new("try", hit.pattern, files.join(" ")));
            }
            None => {
                let page = path.trim_end_matches('/');
                let has_page = self.set.clean_urls == CleanUrls::Served && !page.is_empty();
                let page = has_page.then(|| format!("{page}.html"));
                files.extend([path.clone()].into_iter().chain(page));
            }
        }
        if let Some(hit) = self.falling_back(asked) {
            let file = led_to(asked, &hit).unwrap_or_default();
            steps.push(Step::new("fallback", hit.pattern, file.clone()));
            files.push(file);
        }
        Outcome::Files(files)
    }
}

impl Step {
    fn new(kind: &'static str, pattern: &Pattern, effect: String) -> Self {
        let pattern = pattern.as_str().to_owned();
        Self {
            kind,
            pattern,
            effect,
        }
    }
}

impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(formatter, "path {}", self.path)?;
        for Step {
            kind,
            pattern,
            effect,
        } in &self.steps
        {
            writeln!(formatter, "{kind} {pattern}: {effect}")?;
        }
        match &self.outcome {
            Outcome::Redirect { status, location } => {
                writeln!(formatter, "answer {} to {location}", status.as_u16())?;
            }
            Outcome::Files(files) => writeln!(formatter, "first of {}", files.join(" "))?,
            Outcome::Refused(status) => writeln!(formatter, "answer {}", status.as_u16())?,
        }
        for (name, value) in &self.headers {
            writeln!(formatter, "header {name}: {value}")?;
        }
        Ok(())
    }
}
