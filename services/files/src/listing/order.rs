//! How a listing is sorted: by the column that a query says. Directories come first either way;
//! what is equal is in byte order of its names.

use std::cmp::Ordering;

use super::Entry;
use crate::root::Kind;

/// How a listing is sorted; directories come first either way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) column: Column,
    /// From the last to the first.
    pub(crate) is_reversed: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Column {
    #[default]
    Name,
    Size,
    Modified,
}

impl Order {
    /// What the values of `sort` and `order` ask for; by name where they are not known.
    pub(crate) fn of_words(sort: &[u8], order: Option<&[u8]>) -> Self {
        let (name, is_negated) = match sort.strip_prefix(b"-") {
            Some(name) => (name, true),
            None => (sort, false),
        };
        let is_it = |it: &Column| it.word().as_bytes() == name || it.other_word() == name;
        let column = Column::ALL.into_iter().find(is_it);
        let is_reversed = match order {
            Some(b"desc") => true,
            Some(b"asc") => false,
            _ => is_negated && column.is_some(),
        };
        Self {
            column: column.unwrap_or_default(),
            is_reversed,
        }
    }

    /// What a click on the head of this column asks for: by names the smallest come first,
    /// otherwise the largest and latest, and a second click turns that around.
    pub(crate) fn after_click(self, column: Column) -> Self {
        let is_reversed = match self.column == column {
            true => !self.is_reversed,
            false => column != Column::Name,
        };
        Self {
            column,
            is_reversed,
        }
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

    /// Its value of `sort`.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Name => "name",
            Self::Size => "size",
            Self::Modified => "modified",
        }
    }

    /// What other servers call it, which is understood, too.
    fn other_word(self) -> &'static [u8] {
        match self {
            Self::Name => b"namedirfirst",
            Self::Size => b"size",
            Self::Modified => b"time",
        }
    }

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Name => "Name",
            Self::Size => "Size",
            Self::Modified => "Modified (UTC)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::Stamp;

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
        let mut all = [
            entry("d", Kind::Directory, 9, 9),
            entry("c", Kind::Directory, 8, 7),
            entry("a", Kind::File, 3, 1),
            entry("b", Kind::File, 2, 3),
            entry("e", Kind::File, 2, 2),
        ];
        for (sort, order, sorted) in [
            ("", None, "cdabe"),
            ("name", None, "cdabe"),
            ("-name", None, "dceba"),
            ("name", Some("desc"), "dceba"),
            ("size", None, "cdbea"),
            ("-size", None, "dcaeb"),
            ("-size", Some("asc"), "cdbea"),
            ("size", Some("desc"), "dcaeb"),
            ("size", Some("sideways"), "cdbea"),
            ("modified", None, "cdaeb"),
            ("time", Some("desc"), "dcbea"),
            ("-modified", None, "dcbea"),
            ("-", None, "cdabe"),
            ("-nothing", None, "cdabe"),
            ("\"><script>", None, "cdabe"),
            ("", Some("desc"), "dceba"),
        ] {
            let by = Order::of_words(sort.as_bytes(), order.map(str::as_bytes));
            all.sort_unstable_by(|left, right| by.compare(left, right));
            let names = all.iter().flat_map(|entry| entry.name.clone());
            let names: Vec<_> = names.collect();
            assert_eq!(names, sorted.as_bytes(), "{sort} {order:?}");
        }
    }

    #[test]
    fn a_second_click_turns_the_order_around() {
        let by_name = Order::default();
        let by_size = by_name.after_click(Column::Size);
        assert!(by_size.is_reversed, "the largest first");
        assert!(!by_size.after_click(Column::Size).is_reversed);
        assert_eq!(by_size.after_click(Column::Name), by_name);
        assert!(by_name.after_click(Column::Name).is_reversed);
    }
}
