//! Entity tags in `If-Match` and `If-None-Match` (RFC 9110, 8.8.3 and 13.1).
//!
//! Why not the crate `headers`: `docs/headers.md`.
//!
//! Cost: linear in the length of the headers; nothing is allocated.

/// How two entity tags are compared (RFC 9110, 8.8.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: the RFC has these two.
pub enum Comparison {
    /// Both have to be strong: for `If-Match` and `If-Range`.
    Strong,
    /// Their quoted texts alone: for `If-None-Match`.
    Weak,
}

/// Whether the values of a header list the entity tag that the content has now, `W/` and quotes
/// included, or are `*`, which stands for any content there is. A list is read up to the first
/// thing in it that is no entity tag.
///
/// ```
/// use flatpath_http::header_values::{Comparison, lists_tag};
///
/// let header: &[u8] = br#""a", W/"b""#;
/// assert!(lists_tag([header], Some(br#""b""#), Comparison::Weak));
/// assert!(!lists_tag([header], Some(br#""b""#), Comparison::Strong));
/// ```
pub fn lists_tag<'a>(
    values: impl IntoIterator<Item = &'a [u8]>,
    own: Option<&[u8]>,
    comparison: Comparison,
) -> bool {
    let own = own.map(|own| match own.strip_prefix(b"W/") {
        Some(quoted) => (true, quoted),
        None => (false, own),
    });
    values.into_iter().any(|value| {
        let value = value.trim_ascii();
        value == b"*"
            || own.is_some_and(|(own_is_weak, own)| {
                Tags { left: value }.any(|(is_weak, text)| {
                    let counts = comparison == Comparison::Weak || !(is_weak || own_is_weak);
                    counts && text == own
                })
            })
    })
}

/// The tags of a list and whether they are weak, up to the first thing that is none. Commas inside
/// quotes are part of a tag.
struct Tags<'a> {
    left: &'a [u8],
}

impl<'a> Iterator for Tags<'a> {
    type Item = (bool, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        while let [b',' | b' ' | b'\t', rest @ ..] = self.left {
            self.left = rest;
        }
        let (is_weak, quoted) = match self.left.strip_prefix(b"W/") {
            Some(quoted) => (true, quoted),
            None => (false, self.left),
        };
        let inner = quoted.strip_prefix(b"\"")?;
        let end = inner.iter().position(|byte| *byte == b'"')? + 2;
        let (tag, rest) = quoted.split_at(end);
        let rest = rest.trim_ascii_start();
        if !rest.is_empty() && !rest.starts_with(b",") {
            return None;
        }
        self.left = rest;
        Some((is_weak, tag))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lists(value: &str, own: &str, comparison: Comparison) -> bool {
        lists_tag([value.as_bytes()], Some(own.as_bytes()), comparison)
    }

    #[test]
    fn a_weak_tag_counts_only_where_the_comparison_is_weak() {
        for (value, own, weak, strong) in [
            ("\"a\"", "\"a\"", true, true),
            ("W/\"a\"", "\"a\"", true, false),
            ("\"a\"", "W/\"a\"", true, false),
            ("W/\"a\"", "W/\"a\"", true, false),
            ("\"b\", W/\"c\" ,\"a\"", "\"a\"", true, true),
            ("\"a,b\"", "\"a\"", false, false),
            ("\"a,b\"", "\"a,b\"", true, true),
            ("a", "\"a\"", false, false),
            ("\"b\" \"a\"", "\"a\"", false, false),
            (" * ", "\"a\"", true, true),
            ("", "\"a\"", false, false),
        ] {
            assert_eq!(lists(value, own, Comparison::Weak), weak, "{value} {own}");
            assert_eq!(
                lists(value, own, Comparison::Strong),
                strong,
                "{value} {own}"
            );
        }
    }

    #[test]
    fn content_without_a_tag_is_meant_by_a_star_alone() {
        assert!(lists_tag([&b"*"[..]], None, Comparison::Strong));
        assert!(!lists_tag([&b"\"a\""[..]], None, Comparison::Weak));
        assert!(!lists_tag([], Some(b"\"a\""), Comparison::Weak));
    }
}
