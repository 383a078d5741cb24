//! Which part of a directory a query asks for, and the queries that lead to other parts.
//!
//! | parameter         | values                                                              |
//! |-------------------|---------------------------------------------------------------------|
//! | `sort`            | `name`, `size`, `modified` (also `time`)                            |
//! | `order`           | `asc`, `desc`; a `-` before the value of `sort` is `desc`, too      |
//! | `after`, `before` | a name, percent-encoded: the page begins after it, or ends before   |
//! | `filter`          | text, as a form sends it: only names that have it, in any case      |
//!
//! Other parameters and values are ignored. The first mention of a parameter counts.

use std::fmt::Write;

use percent_encoding::{percent_decode, percent_encode};

use super::order::Order;
use crate::limits::NAME_BYTES_MAX;
use crate::target::ENCODED;

/// The part of a directory that is shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    pub(crate) order: Order,
    pub(crate) window: Window,
    pub(crate) filter: Filter,
}

/// A part that names have to have; empty, every name has it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Filter {
    text: Vec<u8>,
    /// In lower case.
    folded: String,
}

impl Filter {
    fn of(text: Vec<u8>) -> Self {
        let folded = folded(&text);
        Self { text, folded }
    }

    /// As it was sent, decoded.
    pub(crate) fn text(&self) -> &[u8] {
        &self.text
    }

    pub(crate) fn is_set(&self) -> bool {
        !self.text.is_empty()
    }

    pub(crate) fn admits(&self, name: &[u8]) -> bool {
        !self.is_set() || folded(name).contains(&self.folded)
    }
}

/// In lower case. Bytes that are no UTF-8 are all alike.
fn folded(name: &[u8]) -> String {
    String::from_utf8_lossy(name).to_lowercase()
}

/// Which names of a large directory are shown: as many as may be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) enum Window {
    /// The first in byte order.
    #[default]
    First,
    /// The first that come after this one.
    After(Vec<u8>),
    /// The last that come before this one.
    Before(Vec<u8>),
}

impl View {
    pub(crate) fn of_query(query: Option<&[u8]>) -> Self {
        let sort = parameter(query, b"sort").unwrap_or_default();
        let order = Order::of_words(sort, parameter(query, b"order"));
        let name = |text: &[u8]| -> Vec<u8> { percent_decode(text).collect() };
        let is_name = |name: &Vec<u8>| !name.is_empty() && name.len() <= NAME_BYTES_MAX;
        let named = |key: &[u8]| parameter(query, key).map(name).filter(is_name);
        let window = match (named(b"after"), named(b"before")) {
            (Some(name), _) => Window::After(name),
            (None, Some(name)) => Window::Before(name),
            (None, None) => Window::First,
        };
        // A form writes a space as `+`.
        let typed = parameter(query, b"filter").unwrap_or_default();
        let typed: Vec<u8> = typed
            .iter()
            .map(|it| if *it == b'+' { b' ' } else { *it })
            .collect();
        let filter = Some(name(&typed)).filter(is_name).unwrap_or_default();
        Self {
            order,
            window,
            filter: Filter::of(filter),
        }
    }

    /// The query that asks for this view.
    pub(crate) fn to_query(&self) -> String {
        let mut query = String::from("?sort=");
        query.push_str(self.order.column.word());
        if self.order.is_reversed {
            query.push_str("&order=desc");
        }
        if self.filter.is_set() {
            let text = percent_encode(self.filter.text(), ENCODED);
            let _ = write!(query, "&filter={text}");
        }
        let (key, name) = match &self.window {
            Window::First => return query,
            Window::After(name) => ("after", name),
            Window::Before(name) => ("before", name),
        };
        let _ = write!(query, "&{key}={}", percent_encode(name, ENCODED));
        query
    }
}

/// The first value of a parameter, as it was sent.
pub(crate) fn parameter<'a>(query: Option<&'a [u8]>, key: &[u8]) -> Option<&'a [u8]> {
    let mut pairs = query?.split(|byte| *byte == b'&');
    pairs.find_map(|pair| pair.strip_prefix(key)?.strip_prefix(b"="))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(query: &str) -> View {
        View::of_query(Some(query.as_bytes()))
    }

    #[test]
    fn a_query_says_where_a_page_begins_and_what_is_unknown_is_ignored() {
        assert_eq!(View::of_query(None), View::default());
        for (query, window) in [
            ("", Window::First),
            ("after=", Window::First),
            ("page=2", Window::First),
            ("after=b", Window::After(b"b".into())),
            ("after=b&before=c&after=d", Window::After(b"b".into())),
            ("x&before=%ff%26", Window::Before(b"\xff&".into())),
            ("after=%zz", Window::After(b"%zz".into())),
        ] {
            assert_eq!(view(query).window, window, "{query}");
        }
        let long = format!("after={}", "x".repeat(NAME_BYTES_MAX + 1));
        assert_eq!(view(&long).window, Window::First);
    }

    #[test]
    fn a_filter_is_text_of_a_form_and_has_no_case() {
        let filter = |query: &str| view(query).filter;
        for (query, name, is_admitted) in [
            ("", "any", true),
            ("filter=", "any", true),
            ("filter=N+a", "an a", true),
            ("filter=n%2Ba", "an a", false),
            ("filter=n%2ba", "N+A", true),
            ("filter=%C3%84", "m\u{e4}rz", true),
            ("filter=x&filter=any", "any", false),
        ] {
            let found = filter(query).admits(name.as_bytes());
            assert_eq!(found, is_admitted, "{query} {name}");
        }
        let long = format!("filter={}", "x".repeat(NAME_BYTES_MAX + 1));
        assert!(!filter(&long).is_set(), "no name is so long");
    }

    #[test]
    fn a_view_is_what_its_query_asks_for() {
        for query in [
            "?sort=name",
            "?sort=size&order=desc",
            "?sort=modified&after=a%26b",
            "?sort=name&order=desc&before=%FF%3C",
            "?sort=size&filter=a%20b%2B&after=%26",
        ] {
            let view = View::of_query(query.strip_prefix('?').map(str::as_bytes));
            assert_eq!(view.to_query(), query);
        }
    }
}
