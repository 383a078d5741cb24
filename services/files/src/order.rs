//! How a listing is sorted, as a query says and the heads of the columns link to.
//!
//! `?sort=name`, `size` or `modified`, with a `-` in front for the reverse. Directories come first
//! either way; what is equal is in byte order of its names.

use std::cmp::Ordering;
use std::fmt::Write;

use crate::listing::Entry;
use crate::root::Kind;

/// How a listing is sorted; directories come first either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    column: Column,
    /// From the last to the first.
    is_reversed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Column {
    #[default]
    Name,
    Size,
    Modified,
}

impl Order {
    /// What `sort=size` or `sort=-size` in a query asks for, by name unless it does.
    pub(crate) fn of_query(query: Option<&[u8]>) -> Self {
        let mut parameters = query.unwrap_or_default().split(|byte| *byte == b'&');
        let asked = parameters.find_map(|it| it.strip_prefix(b"sort="));
        let asked = asked.unwrap_or_default();
        let (name, is_reversed) = match asked.strip_prefix(b"-") {
            Some(name) => (name, true),
            None => (asked, false),
        };
        let column = Column::ALL.into_iter();
        let column = column
            .into_iter()
            .find(|it| it.parameter().as_bytes() == name);
        column.map_or_else(Self::default, |column| Self {
            column,
            is_reversed,
        })
    }

    pub(crate) fn compare(self, left: &Entry, right: &Entry) -> Ordering {
        let is_file = |entry: &Entry| entry.kind == Kind::File;
        let by_column = match self.column {
            Column::Name => Ordering::Equal,
            Column::Size => left.shown_size().cmp(&right.shown_size()),
            Column::Modified => left.modified.cmp(&right.modified),
        };
        let order = by_column.then_with(|| left.name.cmp(&right.name));
        let order = if self.is_reversed {
            order.reverse()
        } else {
            order
        };
        is_file(left).cmp(&is_file(right)).then(order)
    }
}

impl Column {
    pub(crate) const ALL: [Self; 3] = [Self::Name, Self::Size, Self::Modified];

    fn parameter(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Modified => "modified",
        }
    }

    /// The head of the column, which links to the page sorted by it; by names the smallest come
    /// first, otherwise the largest and latest, and a second click turns that around.
    pub(crate) fn write_head(self, order: Order, page: &mut String) {
        let title = match self {
            Self::Name => "Name",
            Self::Size => "Size",
            Self::Modified => "Modified (UTC)",
        };
        let is_sorted = self == order.column;
        let (sorted, arrow) = match (is_sorted, order.is_reversed) {
            (false, _) => ("", ""),
            (true, false) => (" aria-sort=\"ascending\"", " \u{2191}"),
            (true, true) => (" aria-sort=\"descending\"", " \u{2193}"),
        };
        let is_reversed = match is_sorted {
            true => !order.is_reversed,
            false => self != Self::Name,
        };
        let sign = if is_reversed { "-" } else { "" };
        let parameter = self.parameter();
        let _ = write!(
            page,
            "<th{sorted}><a href=\"?sort={sign}{parameter}\">{title}</a>{arrow}</th>"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Stamp;
    use crate::listing::Entries;

    #[test]
    fn a_query_sorts_by_any_column_in_both_directions() {
        let entry = |name: &str, kind, size, seconds| Entry {
            name: name.into(),
            kind,
            size,
            modified: Stamp {
                seconds,
                nanoseconds: 0,
            },
        };
        let mut all = Entries {
            shown: vec![
                entry("d", Kind::Directory, 9, 9),
                entry("c", Kind::Directory, 8, 7),
                entry("a", Kind::File, 3, 1),
                entry("b", Kind::File, 2, 3),
                entry("e", Kind::File, 2, 2),
            ],
            total: None,
        };
        for (query, sorted) in [
            (None, "cdabe"),
            (Some("sort=name"), "cdabe"),
            (Some("x=1&sort=-name"), "dceba"),
            (Some("sort=size"), "cdbea"),
            (Some("sort=-size"), "dcaeb"),
            (Some("sort=modified"), "cdaeb"),
            (Some("sort=-modified"), "dcbea"),
            (Some("sort=-"), "cdabe"),
            (Some("sort=\"><script>"), "cdabe"),
        ] {
            let order = Order::of_query(query.map(str::as_bytes));
            all.shown
                .sort_unstable_by(|left, right| order.compare(left, right));
            let names = all.shown.iter().flat_map(|entry| entry.name.clone());
            assert_eq!(names.collect::<Vec<_>>(), sorted.as_bytes(), "{query:?}");
        }
        assert_eq!(all.summary(), "5 entries, 7 B");
    }

    #[test]
    fn the_heads_lead_to_the_other_orders_and_show_the_present_one() {
        let heads = |query: &str| {
            let page = Entries::default().to_page(b"", Order::of_query(Some(query.as_bytes())));
            String::from_utf8(page.body().to_bytes().into_owned()).expect("text")
        };
        let by_name = heads("");
        for part in ["ascending", "?sort=-name", "?sort=-size", "?sort=-modified"] {
            assert!(by_name.contains(part), "{part} in {by_name}");
        }
        let by_size = heads("sort=-size");
        for part in ["descending", "?sort=name", "?sort=size", "?sort=-modified"] {
            assert!(by_size.contains(part), "{part} in {by_size}");
        }
    }
}
