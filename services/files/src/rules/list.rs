//! Rules of one kind, by their patterns: the first that is for a path, or all.
//!
//! "First" is in the order in which they were added, of whatever form. Exact paths and prefixes are
//! found by hash, so that a thousand of them cost as much as one; expressions and globs are tried
//! in turn, and there are at most `EXPRESSIONS_MAX`.
//!
//! Cost: one lookup for the whole path and one for each name of it that a prefix may end at, then
//! the expressions that come before what was found.

use std::borrow::Cow;
use std::collections::HashMap;
use std::iter;

use super::error::RuleError;
use super::pattern::{Kind, Matched, Pattern};
use crate::limits::{EXPRESSIONS_MAX, RULES_MAX};

#[derive(Clone, Debug)]
pub(crate) struct RuleList<T> {
    /// Of which kind, for an error.
    what: &'static str,
    rules: Vec<(Pattern, T)>,
    /// Numbers of rules, ascending.
    exact: HashMap<Vec<u8>, Vec<usize>>,
    prefixes: HashMap<Vec<u8>, Vec<usize>>,
    /// The longest key of `prefixes`.
    prefix_bytes_max: usize,
    /// Rules that are tried in turn.
    tried: Vec<usize>,
}

/// A rule that is for a path.
pub(crate) struct Hit<'r, 'p, T> {
    pub(crate) pattern: &'r Pattern,
    pub(crate) rule: &'r T,
    pub(crate) matched: Matched<'p>,
}

impl<T> RuleList<T> {
    pub(crate) fn new(what: &'static str) -> Self {
        Self {
            what,
            rules: Vec::new(),
            exact: HashMap::new(),
            prefixes: HashMap::new(),
            prefix_bytes_max: 0,
            tried: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }

    /// All of them, in their order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.rules.iter().map(|(_, rule)| rule)
    }

    /// Whether a lookup may run an expression.
    pub(crate) fn has_expressions(&self) -> bool {
        !self.tried.is_empty()
    }

    /// Adds a rule after those that are there.
    pub(crate) fn push(&mut self, pattern: Pattern, rule: T) -> Result<(), RuleError> {
        let number = self.rules.len();
        let too_many = |limit| RuleError::TooMany {
            what: self.what,
            limit,
        };
        if number == RULES_MAX {
            return Err(too_many(RULES_MAX));
        }
        match pattern.kind() {
            Kind::Exact(path) => self.exact.entry(path.clone()).or_default().push(number),
            Kind::Prefix(base) => {
                self.prefix_bytes_max = self.prefix_bytes_max.max(base.len());
                self.prefixes.entry(base.clone()).or_default().push(number);
            }
            Kind::Expression { .. } | Kind::Hashed if self.tried.len() == EXPRESSIONS_MAX => {
                return Err(too_many(EXPRESSIONS_MAX));
            }
            Kind::Expression { .. } | Kind::Hashed => self.tried.push(number),
        }
        self.rules.push((pattern, rule));
        Ok(())
    }

    /// Takes back the rule that was added last.
    pub(crate) fn pop(&mut self) {
        let Some((pattern, _)) = self.rules.pop() else {
            return;
        };
        let keyed = match pattern.kind() {
            Kind::Exact(path) => self.exact.get_mut(path),
            Kind::Prefix(base) => self.prefixes.get_mut(base),
            Kind::Expression { .. } | Kind::Hashed => Some(&mut self.tried),
        };
        if let Some(numbers) = keyed {
            numbers.pop();
        }
    }

    /// The first rule that is for a path.
    pub(crate) fn find<'p>(&self, path: &'p [u8]) -> Option<Hit<'_, 'p, T>> {
        if self.is_empty() {
            return None;
        }
        let keyed = self.keyed(path).filter_map(|numbers| numbers.first());
        let first = keyed.copied().min();
        let before = |number: &&usize| first.is_none_or(|first| **number < first);
        let mut tried = self.tried.iter().take_while(before);
        let found = tried.find_map(|number| self.hit(*number, path));
        found.or_else(|| self.hit(first?, path))
    }

    /// All rules that are for a path, in their order.
    pub(crate) fn all<'p>(&self, path: &'p [u8]) -> impl Iterator<Item = Hit<'_, 'p, T>> {
        let numbers = self.numbers(path);
        (0..numbers.len()).filter_map(move |at| self.hit(numbers[at], path))
    }

    /// The numbers of all rules that may be for a path, ascending. Most paths have one key, whose
    /// numbers are in their order.
    fn numbers(&self, path: &[u8]) -> Cow<'_, [usize]> {
        let mut lists = self.keyed(path).chain(iter::once(&self.tried));
        let mut filled = lists.by_ref().filter(|list| !list.is_empty());
        let (Some(first), second) = (filled.next(), filled.next()) else {
            return Cow::default();
        };
        let Some(second) = second else {
            return Cow::Borrowed(first);
        };
        let mut numbers = [&first[..], second].concat();
        numbers.extend(filled.flatten());
        numbers.sort_unstable();
        Cow::Owned(numbers)
    }

    fn hit<'p>(&self, number: usize, path: &'p [u8]) -> Option<Hit<'_, 'p, T>> {
        let (pattern, rule) = &self.rules[number];
        let matched = pattern.find(path)?;
        Some(Hit {
            pattern,
            rule,
            matched,
        })
    }

    /// The numbers of rules with this path, and with each directory above it.
    fn keyed<'s>(&'s self, path: &[u8]) -> impl Iterator<Item = &'s Vec<usize>> {
        let longest = self.prefix_bytes_max.min(path.len());
        let slashes = (0..=longest).filter(|at| path.get(*at).is_none_or(|byte| *byte == b'/'));
        let above = slashes.filter_map(|at| self.prefixes.get(&path[..at]));
        let above = above.take(if self.prefixes.is_empty() {
            0
        } else {
            usize::MAX
        });
        self.exact.get(path).into_iter().chain(above)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(patterns: &[&str]) -> RuleList<usize> {
        let mut list = RuleList::new("rules");
        for (number, text) in patterns.iter().enumerate() {
            let pattern = text.parse().expect(text);
            list.push(pattern, number).expect("room");
        }
        list
    }

    fn first(list: &RuleList<usize>, path: &str) -> Option<usize> {
        list.find(path.as_bytes()).map(|hit| *hit.rule)
    }

    #[test]
    fn the_rule_that_was_added_first_wins_whatever_its_form() {
        let list = list(&["/a/b", "~^/a/.$", "/a/*", "/a/c", "/*", "/a/b"]);
        for (path, number) in [("/a/b", 0), ("/a/c", 1), ("/a/cc", 2), ("/a", 2), ("/x", 4)] {
            assert_eq!(first(&list, path), Some(number), "{path}");
        }
    }

    #[test]
    fn model_the_index_finds_what_a_walk_finds() {
        let mut random = fastrand::Rng::with_seed(11);
        let names = ["a", "b", "a/", "a/b", "b/a/b", "a/b/c/", ""];
        for _ in 0..500 {
            let texts: Vec<String> = (0..random.usize(..9))
                .map(|_| {
                    let name = *random.choice(&names).expect("there are some");
                    match random.u8(..4) {
                        0 => format!("/{}/*", name.trim_end_matches('/')).replace("//", "/"),
                        1 => format!("~^/{name}"),
                        _ => format!("/{name}"),
                    }
                })
                .collect();
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            let list = list(&texts);
            for name in names {
                let path = format!("/{name}");
                let all: Vec<usize> = (0..texts.len())
                    .filter(|number| list.rules[*number].0.find(path.as_bytes()).is_some())
                    .collect();
                let found: Vec<usize> = list.all(path.as_bytes()).map(|hit| *hit.rule).collect();
                assert_eq!(found, all, "{texts:?} for {path}");
                assert_eq!(
                    first(&list, &path),
                    all.first().copied(),
                    "{texts:?} for {path}"
                );
            }
        }
    }

    #[test]
    fn what_is_taken_back_is_not_found() {
        for text in ["/a", "/a/*", "~^/a"] {
            let mut list = list(&[text]);
            list.push(text.parse().expect(text), 1).expect("room");
            list.pop();
            assert_eq!(list.all(b"/a").count(), 1, "{text}");
            list.pop();
            assert_eq!(first(&list, "/a"), None, "{text}");
            assert!(list.is_empty() && !list.has_expressions());
        }
    }

    #[test]
    fn each_kind_has_its_most() {
        let mut list = list(&[]);
        for number in 0..EXPRESSIONS_MAX {
            list.push(Pattern::hashed(), number).expect("room");
        }
        let full = list.push(Pattern::hashed(), 0).expect_err("no room");
        assert_eq!(full.to_string(), "there are more than 256 rules");
        for number in list.rules.len()..RULES_MAX {
            let path = format!("/{number}");
            list.push(path.parse().expect("a path"), number)
                .expect("room");
        }
        assert!(list.push(Pattern::any(), 0).is_err());
        assert_eq!(first(&list, "/4000"), Some(4_000));
    }
}
