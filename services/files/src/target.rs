//! From a request's target to a path below the root.
//!
//! The rules, each with its reason:
//! - The query is split off first; `?` inside a name must be sent as `%3F`.
//! - The path is cut at its literal slashes, and then each segment is percent-decoded, **once**. An
//!   encoded slash (`%2F`) can therefore never make a new segment. No Linux file has a slash in its
//!   name, so such a segment names nothing: not found. `%5C` is an ordinary backslash.
//! - `%00` and broken escapes (`%`, `%4`, `%zz`) make the target malformed.
//! - Segments `.` and `..`, plain or encoded, make it malformed. Those of clients are gone when a
//!   service is asked (`flatpath_http::without_dot_segments`, RFC 3986, 6.2.2.3); here they are of
//!   a rule, or of a program that made a request itself.
//! - Empty segments (`//`) name nothing. Merging them would give one file many addresses, and a
//!   redirect of `//host/dir` to `//host/dir/` would lead away from this server.
//! - Names with a leading dot are hidden: not found, unless [`Hidden::Served`]. What RFC 8615 makes
//!   public is read all the same: `.well-known` in the root, and what lies below it.
//! - Bytes above 0x7F are taken as they are: Linux names are bytes.
//!
//! Cost: one pass over the target and one allocation.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC};

use crate::error::FilesError;
use crate::limits::{NAME_BYTES_MAX, PATH_BYTES_MAX};

/// The file that is looked for first in a directory.
pub(crate) const INDEX: &[u8] = b"index.html";

/// How the name of a page ends, which has an address without it.
pub(crate) const PAGE: &[u8] = b".html";

/// Everything but `unreserved` (RFC 3986, 2.3) is encoded in links.
pub(crate) const ENCODED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// The same for whole paths: slashes stay.
pub(crate) const ENCODED_PATH: &AsciiSet = &ENCODED.remove(b'/');

/// What an authority asks for when it checks who has a domain, among others (RFC 8615).
pub(crate) const WELL_KNOWN: &[u8] = b".well-known";

/// Names of the server's own, which are hidden and never a target.
pub(crate) const OWN: &[u8] = b".flatpath-";

/// Whether names with a leading dot are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hidden {
    /// They look as if they did not exist, and listings leave them out; but for
    /// `/.well-known` (RFC 8615), which is read as other directories are, and never written.
    #[default]
    Refused,
    /// They are files like any other.
    Served,
}

/// A request's target, decoded and found harmless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target<'a> {
    path: Vec<u8>,
    form: PathForm,
    query: Option<&'a [u8]>,
}

/// How the target was written, which decides between a file and a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathForm {
    /// No slash at the end.
    Plain,
    /// A slash at the end: only a directory will do.
    Directory,
}

impl<'a> Target<'a> {
    /// Decodes a target in origin-form (`/a/b?c`) or absolute-form (`http://host/a/b?c`; the host
    /// is the protocol's affair).
    pub(crate) fn parse(raw: &'a [u8], hidden: Hidden) -> Result<Self, FilesError> {
        let local = origin_form(raw)?;
        if local.contains(&b'#') {
            return Err(FilesError::MalformedTarget);
        }
        let (path, query) = split_query(local);
        let names = path.strip_prefix(b"/").ok_or(FilesError::MalformedTarget)?;
        if names.is_empty() {
            return Ok(Self {
                path: Vec::new(),
                form: PathForm::Directory,
                query,
            });
        }
        let (names, form) = match names.strip_suffix(b"/") {
            Some(names) => (names, PathForm::Directory),
            None => (names, PathForm::Plain),
        };
        let mut decoded = Vec::with_capacity(names.len());
        for name in names.split(|byte| *byte == b'/') {
            if !decoded.is_empty() {
                decoded.push(b'/');
            }
            push_name(name, hidden, &mut decoded)?;
        }
        if decoded.len() > PATH_BYTES_MAX {
            return Err(FilesError::TooLong);
        }
        Ok(Self {
            path: decoded,
            form,
            query,
        })
    }

    /// The path below the root, without slashes at either end. Empty is the root itself.
    pub(crate) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Whether the target ended in a slash. The root always does.
    pub(crate) fn form(&self) -> PathForm {
        self.form
    }

    /// The path with the slashes that it was sent with, decoded: what rules are for.
    pub(crate) fn address(&self) -> Vec<u8> {
        let end: &[u8] = match self.form {
            PathForm::Directory if !self.path.is_empty() => b"/",
            _ => b"",
        };
        [b"/", &self.path[..], end].concat()
    }

    /// The query after the `?`, as it was sent.
    pub(crate) fn query(&self) -> Option<&'a [u8]> {
        self.query
    }
}

pub(crate) fn name_of(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}

/// The path of what is called `name` in the directory at `path`.
pub(crate) fn joined(path: &[u8], name: &[u8]) -> Vec<u8> {
    let separator: &[u8] = if path.is_empty() { b"" } else { b"/" };
    [path, separator, name].concat()
}

/// Cuts a target at its first question mark.
pub(crate) fn split_query(target: &[u8]) -> (&[u8], Option<&[u8]>) {
    match target.iter().position(|byte| *byte == b'?') {
        Some(at) => (&target[..at], Some(&target[at + 1..])),
        None => (target, None),
    }
}

/// Cuts scheme and authority off an absolute-form target.
fn origin_form(raw: &[u8]) -> Result<&[u8], FilesError> {
    if raw.starts_with(b"/") {
        return Ok(raw);
    }
    // Of `http://host?query` the http crate gives the query alone.
    if raw.starts_with(b"?") {
        return Ok(b"/");
    }
    for scheme in [&b"http://"[..], &b"https://"[..]] {
        let Some((head, rest)) = raw.split_at_checked(scheme.len()) else {
            continue;
        };
        if !head.eq_ignore_ascii_case(scheme) {
            continue;
        }
        // An absent path means the root, for which a query changes nothing.
        return match rest
            .iter()
            .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
        {
            Some(at) if rest[at] == b'/' => Ok(&rest[at..]),
            Some(at) if rest[at] == b'#' => Err(FilesError::MalformedTarget),
            _ => Ok(b"/"),
        };
    }
    Err(FilesError::MalformedTarget)
}

/// Decodes one segment to the end of `path` and judges it.
fn push_name(segment: &[u8], hidden: Hidden, path: &mut Vec<u8>) -> Result<(), FilesError> {
    let start = path.len();
    decode(segment, path)?;
    let name = &path[start..];
    if name == b"." || name == b".." {
        return Err(FilesError::MalformedTarget);
    }
    let is_public = start == 0 && name == WELL_KNOWN;
    let is_refused = hidden == Hidden::Refused && is_hidden(name) && !is_public;
    let names_nothing = name.is_empty() || name.contains(&b'/');
    if is_refused || names_nothing {
        return Err(FilesError::NotFound);
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(FilesError::TooLong);
    }
    Ok(())
}

/// Decodes the escapes of a text, once, to the end of `decoded`.
pub(crate) fn decode(text: &[u8], decoded: &mut Vec<u8>) -> Result<(), FilesError> {
    let mut left = text.iter();
    while let Some(byte) = left.next() {
        decoded.push(match byte {
            b'%' => decode_escape(left.next(), left.next())?,
            other => *other,
        });
    }
    Ok(())
}

pub(crate) fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".")
}

/// Whether no file of this name is ever written.
pub(crate) fn is_forbidden(name: &[u8], hidden: Hidden) -> bool {
    hidden == Hidden::Refused && is_hidden(name) || is_own(name)
}

/// Whether a name is one of the server's own, which no client sees.
pub(crate) fn is_own(name: &[u8]) -> bool {
    name.starts_with(OWN)
}

fn decode_escape(high: Option<&u8>, low: Option<&u8>) -> Result<u8, FilesError> {
    let digit = |byte: Option<&u8>| byte.and_then(|byte| char::from(*byte).to_digit(16));
    let (Some(high), Some(low)) = (digit(high), digit(low)) else {
        return Err(FilesError::MalformedTarget);
    };
    match u8::try_from(high * 16 + low) {
        Ok(0) | Err(_) => Err(FilesError::MalformedTarget),
        Ok(byte) => Ok(byte),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path_of(raw: &str) -> Result<Vec<u8>, FilesError> {
        Target::parse(raw.as_bytes(), Hidden::Refused).map(|target| target.path().to_vec())
    }

    fn assert_refused(raw: &str, error: FilesError) {
        assert_eq!(path_of(raw), Err(error), "{raw}");
    }

    #[test]
    fn plain_paths_lose_their_outer_slashes() {
        for (raw, path, form) in [
            ("/", "", PathForm::Directory),
            ("/a", "a", PathForm::Plain),
            ("/a/", "a", PathForm::Directory),
            ("/a/b.txt", "a/b.txt", PathForm::Plain),
            ("/a/b/", "a/b", PathForm::Directory),
        ] {
            let target = Target::parse(raw.as_bytes(), Hidden::Refused).expect("a good target");
            assert_eq!(target.path(), path.as_bytes(), "{raw}");
            assert_eq!(target.form(), form, "{raw}");
        }
    }

    #[test]
    fn escapes_are_decoded_once_and_only_once() {
        assert_eq!(path_of("/a%20b"), Ok(b"a b".to_vec()));
        assert_eq!(path_of("/%e2%82%AC"), Ok("€".as_bytes().to_vec()));
        assert_eq!(path_of("/%252e%252e"), Ok(b"%2e%2e".to_vec()));
        assert_eq!(path_of("/%25%32%66"), Ok(b"%2f".to_vec()));
        assert_eq!(
            path_of("/a+b"),
            Ok(b"a+b".to_vec()),
            "a plus is no space in a path"
        );
        assert_eq!(path_of("/%ff"), Ok(vec![0xff]), "names are bytes");
        assert_eq!(path_of("/%3F"), Ok(b"?".to_vec()));
        assert_eq!(path_of("/a%0Ab"), Ok(b"a\nb".to_vec()));
    }

    #[test]
    fn nul_and_broken_escapes_are_malformed() {
        for raw in [
            "/%00",
            "/a%00.txt",
            "/%",
            "/%4",
            "/a%4",
            "/%zz",
            "/%-1",
            "/%+1",
            "/% 1",
        ] {
            assert_refused(raw, FilesError::MalformedTarget);
        }
    }

    #[test]
    fn dot_segments_are_malformed_however_they_are_written() {
        for raw in [
            "/..",
            "/../",
            "/a/..",
            "/a/../b",
            "/.",
            "/./a",
            "/a/.",
            "/a/./b",
            "/%2e%2e",
            "/%2E%2e/",
            "/.%2e/a",
            "/%2e./a",
            "/a/%2e",
            "/%2e%2e/%2e%2e/etc/passwd",
            "/../../etc/passwd",
        ] {
            assert_refused(raw, FilesError::MalformedTarget);
        }
    }

    #[test]
    fn an_encoded_slash_makes_no_segment() {
        for raw in [
            "/a%2fb",
            "/a%2Fb",
            "/..%2f",
            "/..%2f..%2fetc%2fpasswd",
            "/%2f",
            "/%2fetc",
        ] {
            assert_refused(raw, FilesError::NotFound);
        }
    }

    #[test]
    fn a_backslash_is_an_ordinary_character() {
        assert_eq!(
            path_of("/..%5c..%5cetc"),
            Err(FilesError::NotFound),
            "hidden, by its dot"
        );
        assert_eq!(path_of("/a%5C..%5Cb"), Ok(b"a\\..\\b".to_vec()));
    }

    #[test]
    fn empty_segments_name_nothing() {
        for raw in [
            "//",
            "//a",
            "/a//b",
            "/a//",
            "///",
            "//example.com/",
            "//example.com/..",
        ] {
            assert!(path_of(raw).is_err(), "{raw}");
        }
        assert_refused("//a", FilesError::NotFound);
    }

    #[test]
    fn hidden_names_are_not_found_unless_asked_for() {
        let not_public = [
            "/.well-known/.env",
            "/a/.well-known/x",
            "/.well-known-x/a",
            "/.well-know",
        ];
        for raw in ["/.git", "/.git/config", "/a/.env", "/%2eenv", "/..."]
            .into_iter()
            .chain(not_public)
        {
            assert_refused(raw, FilesError::NotFound);
            assert!(
                Target::parse(raw.as_bytes(), Hidden::Served).is_ok(),
                "{raw}"
            );
        }
        let dots = Target::parse(b"/a/..", Hidden::Served);
        assert_eq!(
            dots,
            Err(FilesError::MalformedTarget),
            "dot segments stay refused"
        );
    }

    #[test]
    fn what_is_well_known_is_public_at_the_root_alone() {
        for raw in [
            "/.well-known/acme-challenge/x",
            "/%2ewell-known/",
            "/.well-known",
        ] {
            assert!(path_of(raw).is_ok(), "{raw}");
        }
    }

    #[test]
    fn the_query_is_split_off_before_anything_is_decoded() {
        let target = Target::parse(b"/a%3fb?c=%2e%2e/..&d?e", Hidden::Refused).expect("good");
        assert_eq!(target.path(), b"a?b");
        assert_eq!(target.query(), Some(&b"c=%2e%2e/..&d?e"[..]));
        let empty = Target::parse(b"/a?", Hidden::Refused).expect("good");
        assert_eq!(empty.query(), Some(&b""[..]));
    }

    #[test]
    fn absolute_form_loses_scheme_and_host() {
        // What the http crate gives for `http://host?query`.
        let alone = Target::parse(b"?query", Hidden::Refused).expect("the root");
        assert_eq!(
            (alone.path(), alone.form()),
            (&b""[..], PathForm::Directory)
        );
        assert_eq!(path_of("http://host/a/b"), Ok(b"a/b".to_vec()));
        assert_eq!(path_of("HTTPS://host:1/a"), Ok(b"a".to_vec()));
        assert_eq!(path_of("http://host"), Ok(Vec::new()));
        assert_eq!(path_of("http://host?x"), Ok(Vec::new()));
        assert_refused("http://host/../a", FilesError::MalformedTarget);
        assert_refused("http://host//a", FilesError::NotFound);
    }

    #[test]
    fn other_forms_are_malformed() {
        for raw in [
            "",
            "*",
            "a",
            "host:80",
            "ftp://host/a",
            "#",
            "/a#b",
            "http://h#/a",
        ] {
            assert_refused(raw, FilesError::MalformedTarget);
        }
    }

    #[test]
    fn names_and_paths_have_their_longest() {
        let name = "n".repeat(NAME_BYTES_MAX);
        assert!(path_of(&format!("/{name}")).is_ok());
        assert_refused(&format!("/{name}n"), FilesError::TooLong);
        let deep = format!("/{}", "d/".repeat(PATH_BYTES_MAX / 2));
        assert!(path_of(&deep).is_ok());
        assert_refused(&format!("{deep}xy"), FilesError::TooLong);
    }

    #[test]
    fn model_no_target_whatever_ever_yields_a_path_that_climbs() {
        let pieces = [
            "..", ".", "/", "%2e", "%2f", "%25", "a", "%00", "?", "\\", "%5c", "%", "2e",
        ];
        let mut random = fastrand::Rng::with_seed(42);
        for _ in 0..20_000 {
            let mut raw = String::from("/");
            for _ in 0..8 {
                raw.push_str(random.choice(&pieces).expect("there are some"));
            }
            let Ok(path) = Target::parse(raw.as_bytes(), Hidden::Served) else {
                continue;
            };
            let path = path.path();
            assert!(
                !path.starts_with(b"/") && !path.ends_with(b"/") && !path.contains(&0),
                "{raw}"
            );
            for name in path
                .split(|byte| *byte == b'/')
                .filter(|_| !path.is_empty())
            {
                assert!(!name.is_empty() && name != b"." && name != b"..", "{raw}");
            }
        }
    }
}
