//! Dot segments of paths: found, and removed before anything is looked up.
//!
//! A path that stays below its root is the same one without its segments `.` and `..` (RFC 3986
//! sections 5.2.4 and 6.2.2.3), however these are spelled: `%2e` is a dot (section 6.2.2.2).
//! Clients that put a path together send them; `rclone` asks for `/./a:b` where a name has a colon.
//! They are removed once, from the text of the head, before it is parsed: so sites, routes, rules,
//! owners and services of HTTP/1 and HTTP/2 never see one, and cannot be led past what they look
//! for. A path that leads above the root is refused, where the RFC would have it end there: nothing
//! that was meant lies there.
//!
//! Empty segments (`//`) are segments, as in the RFC, and `%2F` separates none.
//!
//! Cost: for a path with a dot or a percent sign a look at sixteen bytes at a time; nothing for
//! another.

use std::borrow::Cow;

use crate::head::fault::Fault;
use crate::head::scan::empty_lines_bytes;
use crate::head::target::path_range;

/// Whether a path surely has no dot segment.
#[inline]
pub(crate) fn are_none(path: &str) -> bool {
    !may_be_some(path.as_bytes()) || path.split('/').all(|segment| kind(segment) == Kind::Name)
}

/// Whether a slash is before a dot, or before a percent sign.
#[inline]
fn may_be_some(path: &[u8]) -> bool {
    let Some((_, after)) = path.split_first() else {
        return false;
    };
    let before = &path[..after.len()];
    let windows = any_in::<16>(before, after).or_else(|| any_in::<8>(before, after));
    windows.unwrap_or_else(|| has_begun(before, after))
}

/// The same by windows of a length that the compiler knows, which makes each a few instructions;
/// `None` if there is none. The last one overlaps the one before it.
#[inline]
fn any_in<const WINDOW: usize>(before: &[u8], after: &[u8]) -> Option<bool> {
    let lasts = (before.last_chunk(), after.last_chunk());
    let (Some(last_before), Some(last_after)): (Option<&[u8; WINDOW]>, Option<&[u8; WINDOW]>) =
        lasts
    else {
        return None;
    };
    let (befores, _) = before.as_chunks::<WINDOW>();
    let (afters, _) = after.as_chunks::<WINDOW>();
    let mut windows = befores.iter().zip(afters);
    Some(
        windows.any(|(before, after)| has_begun(before, after))
            || has_begun(last_before, last_after),
    )
}

#[inline]
fn has_begun(before: &[u8], after: &[u8]) -> bool {
    let pairs = before.iter().zip(after);
    pairs.fold(false, |found, (before, after)| {
        // Without branches: see `any_in`.
        found | ((*before == b'/') & ((*after == b'.') | (*after == b'%')))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Name,
    Same,
    Above,
}

fn kind(segment: &str) -> Kind {
    let mut rest = segment.as_bytes();
    let mut dots = 0;
    while !rest.is_empty() {
        rest = match rest {
            [b'.', rest @ ..] | [b'%', b'2', b'e' | b'E', rest @ ..] => rest,
            _ => return Kind::Name,
        };
        dots += 1;
    }
    match dots {
        1 => Kind::Same,
        2 => Kind::Above,
        _ => Kind::Name,
    }
}

/// A path without its dot segments: as [`Http`](crate::Http) has it before it asks a service.
/// Borrowed if it has none.
///
/// ```
/// use flatpath_http::without_dot_segments;
///
/// assert_eq!(without_dot_segments("/a/./b/%2e%2E/c").as_deref(), Ok("/a/c"));
/// assert!(without_dot_segments("/a/../../b").is_err());
/// ```
///
/// # Errors
/// [`Fault::DotSegments`]: it leads above the root.
pub fn without_dot_segments(path: &str) -> Result<Cow<'_, str>, Fault> {
    if are_none(path) {
        return Ok(Cow::Borrowed(path));
    }
    let (mut kept, mut ends_in_dots) = (Vec::new(), false);
    for segment in path.strip_prefix('/').unwrap_or(path).split('/') {
        let kind = kind(segment);
        match kind {
            Kind::Name => kept.push(segment),
            Kind::Same => {}
            Kind::Above => drop(kept.pop().ok_or(Fault::DotSegments)?),
        }
        ends_in_dots = kind != Kind::Name;
    }
    if ends_in_dots {
        // What they name is a directory.
        kept.push("");
    }
    Ok(Cow::Owned(format!("/{}", kept.join("/"))))
}

/// A well-formed target without its dot segments, in three pieces: what is before the path, the
/// path, and what comes after it.
///
/// # Errors
/// [`Fault::DotSegments`]: it leads above the root.
#[cold]
pub(crate) fn without(target: &str) -> Result<[Cow<'_, str>; 3], Fault> {
    let range = path_range(target);
    let path = without_dot_segments(&target[range.clone()])?;
    Ok([
        target[..range.start].into(),
        path,
        target[range.end..].into(),
    ])
}

/// Writes a head whose request line is well-formed without the dot segments of its target; returns
/// the target as it was spelled.
///
/// # Errors
/// [`Fault::DotSegments`]: it leads above the root.
#[cold]
pub(crate) fn remove_from_head<'h>(head: &'h [u8], out: &mut Vec<u8>) -> Result<&'h str, Fault> {
    let line_from = empty_lines_bytes(head);
    let mut words = head[line_from..].splitn(3, |byte| *byte == b' ');
    let (Some(method), Some(target)) = (words.next(), words.next()) else {
        return Err(Fault::RequestLine);
    };
    let target_from = line_from + method.len() + 1;
    let rest = &head[target_from + target.len()..];
    let target = std::str::from_utf8(target).map_err(|_| Fault::Target)?;
    let pieces = without(target)?;
    out.extend_from_slice(&head[..target_from]);
    pieces
        .iter()
        .for_each(|piece| out.extend_from_slice(piece.as_bytes()));
    out.extend_from_slice(rest);
    Ok(target)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dot_segments_are_removed_however_they_are_spelled() {
        for (path, expected) in [
            ("/./a:b", "/a:b"),
            ("/.", "/"),
            ("/./", "/"),
            ("/a/.", "/a/"),
            ("/a/./", "/a/"),
            ("/a/..", "/"),
            ("/a/b/..", "/a/"),
            ("/a/b/../", "/a/"),
            ("/a/b/../../c", "/c"),
            ("/a/b/c/./../../g", "/a/g"),
            ("/%2e/a", "/a"),
            ("/a/%2E%2e/b", "/b"),
            ("/a/.%2e/b", "/b"),
            ("/a/%2e./b", "/b"),
            ("/a//../b", "/a/b"),
            ("/x/..//evil", "//evil"),
            ("//./a", "//a"),
            ("/a/../%2f/..", "/"),
        ] {
            assert_eq!(
                without_dot_segments(path).as_deref(),
                Ok(expected),
                "{path}"
            );
            assert!(!are_none(path), "{path}");
            assert!(are_none(expected), "{expected}");
        }
    }

    #[test]
    fn what_leads_above_the_root_is_refused_even_where_it_comes_back() {
        for path in [
            "/..",
            "/../a",
            "/a/../..",
            "/a/../../a",
            "/%2e%2e/a",
            "/./.%2E",
            "/../",
        ] {
            assert_eq!(
                without_dot_segments(path),
                Err(Fault::DotSegments),
                "{path}"
            );
        }
    }

    #[test]
    fn names_with_dots_are_names() {
        for path in [
            "/",
            "",
            "//",
            "/a.b",
            "/.a",
            "/a/.b/c",
            "/...",
            "/..a",
            "/a..",
            "/.%2f",
            "/..%2fa",
            "/%2e%2e%2f",
            "/%252e",
            "/%2g",
            "/%2",
            "/%",
            "/caf%C3%A9",
            "/%E2%82%AC/a.b",
            "/..;/a",
            "/.\\",
            "/. ",
        ] {
            let same = without_dot_segments(path);
            assert!(
                matches!(same, Ok(Cow::Borrowed(it)) if it == path),
                "{path}"
            );
        }
    }

    #[test]
    fn a_dot_segment_is_found_wherever_it_is() {
        for bytes in 0..70 {
            for (dots, after) in [("/.", ""), ("/..", "/"), ("/%2e", "/b"), ("/.%2E", "")] {
                let path = format!("/{}{dots}{after}", "a".repeat(bytes));
                assert!(!are_none(&path), "{path}");
                let long = format!("{path}/{}", "b".repeat(40));
                assert!(!are_none(&long), "{long}");
            }
            assert!(are_none(&format!("/{}.b", "a".repeat(bytes))));
        }
    }

    #[test]
    fn the_rest_of_a_head_stays_as_it_was() {
        for (head, expected, spelled) in [
            (
                "\r\nGET /./a?b=/../c HTTP/1.1\r\nHost: h\r\nX: /./ y\r\n\r\n",
                "\r\nGET /a?b=/../c HTTP/1.1\r\nHost: h\r\nX: /./ y\r\n\r\n",
                "/./a?b=/../c",
            ),
            (
                "PUT http://h/b/../a HTTP/1.0\r\n\r\n",
                "PUT http://h/a HTTP/1.0\r\n\r\n",
                "http://h/b/../a",
            ),
        ] {
            let mut out = Vec::new();
            assert_eq!(remove_from_head(head.as_bytes(), &mut out), Ok(spelled));
            assert_eq!(String::from_utf8_lossy(&out), expected);
        }
        let above = remove_from_head(b"GET /.. HTTP/1.1\r\n\r\n", &mut Vec::new());
        assert_eq!(above, Err(Fault::DotSegments));
    }

    #[test]
    fn model_what_is_left_has_no_dot_segment_and_stays_below_its_root() {
        let pieces = ["..", ".", "/", "%2e", "%2E", "%2f", "a", "b.c", "%25", "2e"];
        let mut random = fastrand::Rng::with_seed(42);
        for _ in 0..20_000 {
            let mut path = String::from("/");
            for _ in 0..random.usize(0..9) {
                path.push_str(random.choice(&pieces).expect("there are some"));
            }
            let names = |path: &str| -> Vec<String> {
                let decoded = path.replace("%2e", ".").replace("%2E", ".");
                decoded[1..].split('/').map(str::to_owned).collect()
            };
            // Section 5.2.4 step by step, on names.
            let (mut depth, mut leads_out) = (0, false);
            for name in names(&path) {
                match &*name {
                    "." => {}
                    ".." if depth == 0 => leads_out = true,
                    ".." => depth -= 1,
                    _ => depth += 1,
                }
            }
            match without_dot_segments(&path) {
                Ok(left) => {
                    assert!(!leads_out && left.starts_with('/'), "{path}: {left}");
                    let mut left_names = names(&left).into_iter();
                    assert!(
                        left_names.all(|name| name != "." && name != ".."),
                        "{path}: {left}"
                    );
                }
                Err(fault) => assert!(leads_out && fault == Fault::DotSegments, "{path}"),
            }
        }
    }
}
