//! Changes of the headers of a response: of whatever the service answers, with any status.
//!
//! - 200 and 206 with a file, listings and redirects get all of them.
//! - A 304 gets them too, but for what says how the bytes of the file are to be read, which its
//!   client has (RFC 9110, 15.4.5): `Content-Type` and its like.
//! - Errors, answers to writes, and a file that stands in for another, get all but a
//!   `Cache-Control` (of any kind) or `Expires` that lets them be kept. So `immutable` is kept away
//!   from the 404 of a file that is not there yet, and from the page of an application under the
//!   name of a script.

use std::fmt;

use flatpath_http::Response;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use super::error::RuleError;
use super::pattern::Pattern;
use super::plain_text;

/// What the server alone says: how the message is framed, and which bytes of which file it is.
const RESERVED: [&str; 19] = [
    "accept-ranges",
    "allow",
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "etag",
    "keep-alive",
    "last-modified",
    "location",
    "proxy-authenticate",
    "proxy-connection",
    "retry-after",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "www-authenticate",
];

/// A year, in which nobody asks again: RFC 8246.
const IMMUTABLE: HeaderValue = HeaderValue::from_static("public, max-age=31536000, immutable");

/// One change of the headers of a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderChange {
    name: HeaderName,
    change: Change,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Change {
    Set(HeaderValue),
    Append(HeaderValue),
    /// Set, or added to what an earlier change of the same file has set, after a comma.
    Join(HeaderValue),
    Remove,
}

/// The part of the changes that a response gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    All,
    /// Without permission to keep the response.
    NotKept,
}

impl HeaderChange {
    /// In place of all values that there are. `Vary` can only be appended to.
    ///
    /// # Errors
    /// [`RuleError::Header`] if HTTP does not allow the name or the value,
    /// [`RuleError::Reserved`] for a header that the server alone sets.
    pub fn set(name: &str, value: &str) -> Result<Self, RuleError> {
        let name = name_of(name)?;
        if name == header::VARY {
            return Err(RuleError::Reserved(name));
        }
        let change = Change::Set(value_of(&name, value)?);
        Ok(Self { name, change })
    }

    /// After the values that there are, in a line of its own.
    ///
    /// # Errors
    /// Those of [`HeaderChange::set`].
    pub fn append(name: &str, value: &str) -> Result<Self, RuleError> {
        let name = name_of(name)?;
        let change = Change::Append(value_of(&name, value)?);
        Ok(Self { name, change })
    }

    /// All values go.
    ///
    /// # Errors
    /// Those of [`HeaderChange::set`].
    pub fn remove(name: &str) -> Result<Self, RuleError> {
        let name = name_of(name)?;
        if name == header::VARY {
            return Err(RuleError::Reserved(name));
        }
        let change = Change::Remove;
        Ok(Self { name, change })
    }

    /// `Cache-Control: public, max-age=31536000, immutable`, for files whose name changes with
    /// their content: see [`Pattern::hashed`](super::Pattern::hashed).
    #[must_use]
    pub fn immutable() -> Self {
        Self {
            name: header::CACHE_CONTROL,
            change: Change::Set(IMMUTABLE),
        }
    }

    /// As a line of a `_headers` file has it: of several lines for one response the values are
    /// joined. A `Set-Cookie` cannot be joined, and `Vary` is not set.
    pub(crate) fn join(name: &str, value: &str) -> Result<Self, RuleError> {
        let name = name_of(name)?;
        let value = value_of(&name, value)?;
        let is_apart = name == header::SET_COOKIE || name == header::VARY;
        let change = match is_apart {
            true => Change::Append(value),
            false => Change::Join(value),
        };
        Ok(Self { name, change })
    }

    /// # Errors
    /// [`RuleError::Header`] where the value names a variable of this pattern.
    pub(super) fn check_for(&self, on: &Pattern) -> Result<(), RuleError> {
        let value = match &self.change {
            Change::Set(value) | Change::Append(value) | Change::Join(value) => value,
            Change::Remove => return Ok(()),
        };
        let text = value.to_str().unwrap_or_default();
        match plain_text::names_variable(text, on) {
            true => Err(RuleError::Header {
                name: self.name.to_string(),
                reason: "its value names a variable of the path, and values have none",
            }),
            false => Ok(()),
        }
    }

    fn is_of(&self, extent: Extent) -> bool {
        let lets_keep = |value: &HeaderValue| {
            let text = value.as_bytes().to_ascii_lowercase();
            let says = |word: &[u8]| text.windows(word.len()).any(|part| part == word);
            !says(b"no-store") && !says(b"no-cache")
        };
        match &self.change {
            _ if extent == Extent::All => true,
            Change::Set(value) | Change::Append(value) | Change::Join(value) => {
                let is_about_caches =
                    self.name.as_str().ends_with("cache-control") || self.name == header::EXPIRES;
                !(is_about_caches && lets_keep(value))
            }
            Change::Remove => true,
        }
    }
}

impl fmt::Display for HeaderChange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.name;
        let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
        match &self.change {
            Change::Set(value) | Change::Join(value) => {
                write!(formatter, "{name}: {}", text(value))
            }
            Change::Append(value) => write!(formatter, "+ {name}: {}", text(value)),
            Change::Remove => write!(formatter, "- {name}"),
        }
    }
}

/// Makes changes in their order. Costs a look-up for each, and a copy of each value that is joined:
/// a value in pieces is put together once.
pub(crate) fn apply<'a>(
    changes: impl IntoIterator<Item = &'a HeaderChange>,
    extent: Extent,
    headers: &mut HeaderMap,
) {
    // Headers that were joined, and their text where that is not in `headers` yet.
    let mut joined: HeaderMap<Option<Vec<u8>>> = HeaderMap::default();
    for HeaderChange { name, change } in changes.into_iter().filter(|it| it.is_of(extent)) {
        match change {
            Change::Set(value) => {
                if let Some(text) = joined.get_mut(name) {
                    *text = None;
                }
                headers.insert(name, value.clone());
            }
            Change::Append(value) => {
                if let Some(text) = joined.get_mut(name) {
                    put(name, text.take(), headers);
                }
                headers.append(name, value.clone());
            }
            Change::Join(value) => match joined.get_mut(name) {
                Some(text) => {
                    let before = || {
                        headers
                            .get(name)
                            .map_or_else(Vec::new, |it| it.as_bytes().to_vec())
                    };
                    let text = text.get_or_insert_with(before);
                    text.extend_from_slice(b", ");
                    text.extend_from_slice(value.as_bytes());
                }
                None => {
                    joined.insert(name, None);
                    headers.insert(name, value.clone());
                }
            },
            Change::Remove => {
                joined.remove(name);
                headers.remove(name);
            }
        }
    }
    for (name, text) in &mut joined {
        put(name, text.take(), headers);
    }
}

/// The same of a response that this crate makes: its pages keep their own policy, which is stricter
/// and allows their style.
pub(crate) fn apply_to_own<'a>(
    changes: impl IntoIterator<Item = &'a HeaderChange>,
    extent: Extent,
    headers: &mut HeaderMap,
) {
    let policy = headers.get(header::CONTENT_SECURITY_POLICY).cloned();
    apply(changes, extent, headers);
    if let Some(policy) = policy {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
}

/// Changes that wait for their response: whatever answers one request, with any status.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes(Vec<HeaderChange>);

impl Changes {
    pub(crate) fn new<'a>(changes: impl IntoIterator<Item = &'a HeaderChange>) -> Self {
        Self(changes.into_iter().cloned().collect())
    }

    /// The response with them, without permission to keep it.
    pub(crate) fn made(&self, mut response: Response) -> Response {
        if !self.0.is_empty() {
            apply_to_own(&self.0, Extent::NotKept, response.headers_mut());
        }
        response
    }
}

/// Puts the text of a header that was joined in place of its values.
fn put(name: &HeaderName, text: Option<Vec<u8>>, headers: &mut HeaderMap) {
    // Of values that are allowed, with commas between.
    if let Some(Ok(value)) = text.map(HeaderValue::try_from) {
        headers.insert(name, value);
    }
}

fn name_of(text: &str) -> Result<HeaderName, RuleError> {
    let name = HeaderName::try_from(text).map_err(|_| RuleError::Header {
        name: text.to_owned(),
        reason: "it is no name of a header",
    })?;
    match RESERVED.contains(&name.as_str()) {
        true => Err(RuleError::Reserved(name)),
        false => Ok(name),
    }
}

fn value_of(name: &HeaderName, text: &str) -> Result<HeaderValue, RuleError> {
    let text = text.trim();
    let is_visible = text.bytes().all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
    let value = HeaderValue::from_str(text).ok();
    value
        .filter(|_| is_visible)
        .ok_or_else(|| RuleError::Header {
            name: name.to_string(),
            reason: "its value has a character that is no visible ASCII",
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(changes: &[HeaderChange], extent: Extent) -> Vec<String> {
        let mut headers = HeaderMap::new();
        headers.insert(
            header::X_CONTENT_TYPE_OPTIONS,
            HeaderValue::from_static("nosniff"),
        );
        headers.insert(header::VARY, HeaderValue::from_static("accept-encoding"));
        apply(changes, extent, &mut headers);
        let text = |value: &HeaderValue| value.to_str().expect("ASCII").to_owned();
        let mut lines: Vec<String> = headers
            .iter()
            .map(|(name, value)| format!("{name}: {}", text(value)))
            .collect();
        lines.sort();
        lines
    }

    #[test]
    fn changes_are_made_in_their_order() {
        let changes = [
            HeaderChange::set("X-A", "1").expect("allowed"),
            HeaderChange::append("x-a", " 2 ").expect("allowed"),
            HeaderChange::remove("X-Content-Type-Options").expect("allowed"),
            HeaderChange::append("Vary", "cookie").expect("allowed"),
        ];
        let lines = ["vary: accept-encoding", "vary: cookie", "x-a: 1", "x-a: 2"];
        assert_eq!(made(&changes, Extent::All), lines);
    }

    #[test]
    fn lines_of_a_file_are_joined_and_replace_what_was_set_before() {
        let changes = [
            HeaderChange::set("X-A", "0").expect("allowed"),
            HeaderChange::join("X-A", "1").expect("allowed"),
            HeaderChange::join("X-A", "2").expect("allowed"),
            HeaderChange::join("Set-Cookie", "a=1").expect("allowed"),
            HeaderChange::join("Set-Cookie", "b=2").expect("allowed"),
        ];
        let lines = made(&changes, Extent::All);
        assert_eq!(lines[0..2], ["set-cookie: a=1", "set-cookie: b=2"]);
        assert!(lines.contains(&"x-a: 1, 2".to_owned()), "{lines:?}");
    }

    /// What `apply` does, one change after the other.
    fn walk(changes: &[HeaderChange], extent: Extent, headers: &mut HeaderMap) {
        let mut joined: Vec<&HeaderName> = Vec::new();
        for HeaderChange { name, change } in changes.iter().filter(|it| it.is_of(extent)) {
            let mut value = |value: &HeaderValue| {
                headers.insert(name, value.clone());
            };
            match change {
                Change::Join(more) if joined.contains(&name) => {
                    let before = headers.get(name).expect("it was joined");
                    let both = [before.as_bytes(), b", ", more.as_bytes()].concat();
                    headers.insert(name, HeaderValue::from_bytes(&both).expect("allowed"));
                }
                Change::Join(first) => {
                    joined.push(name);
                    value(first);
                }
                Change::Set(new) => value(new),
                Change::Append(new) => {
                    headers.append(name, new.clone());
                }
                Change::Remove => {
                    joined.retain(|it| *it != name);
                    headers.remove(name);
                }
            }
        }
    }

    #[test]
    fn model_values_that_are_put_together_once_are_those_of_a_walk() {
        let mut random = fastrand::Rng::with_seed(12);
        for _ in 0..2_000 {
            let changes: Vec<HeaderChange> = (0..random.usize(..12))
                .map(|number| {
                    let name = *random.choice(&["x-a", "cache-control"]).expect("some");
                    let value = *random
                        .choice(&["no-store", "public", "max-age=9"])
                        .expect("some");
                    let value = format!("{value}, n={number}");
                    let made = match random.u8(..8) {
                        0 => HeaderChange::set(name, &value),
                        1 => HeaderChange::append(name, &value),
                        2 => HeaderChange::remove(name),
                        _ => HeaderChange::join(name, &value),
                    };
                    made.expect("allowed")
                })
                .collect();
            for extent in [Extent::All, Extent::NotKept] {
                let (mut found, mut expected) = (HeaderMap::new(), HeaderMap::new());
                apply(&changes, extent, &mut found);
                walk(&changes, extent, &mut expected);
                assert_eq!(found, expected, "{changes:?}");
            }
        }
    }

    #[test]
    fn a_header_that_was_removed_begins_anew() {
        let changes = [
            HeaderChange::join("X-A", "1").expect("allowed"),
            HeaderChange::remove("X-A").expect("allowed"),
            HeaderChange::join("X-A", "2").expect("allowed"),
        ];
        let lines = made(&changes, Extent::All);
        assert!(lines.contains(&"x-a: 2".to_owned()), "{lines:?}");
    }

    #[test]
    fn what_is_not_the_file_is_not_kept_as_the_file_is() {
        let changes = [
            HeaderChange::immutable(),
            HeaderChange::set("CDN-Cache-Control", "max-age=9").expect("allowed"),
            HeaderChange::set("Expires", "Sun, 06 Nov 2094 08:49:37 GMT").expect("allowed"),
            HeaderChange::set("X-A", "1").expect("allowed"),
        ];
        assert_eq!(made(&changes, Extent::All).len(), 6);
        let kept = [
            "vary: accept-encoding",
            "x-a: 1",
            "x-content-type-options: nosniff",
        ];
        assert_eq!(made(&changes, Extent::NotKept), kept);
        for value in ["no-store", "private, No-Cache"] {
            let never = [HeaderChange::set("Cache-Control", value).expect("allowed")];
            assert_eq!(
                made(&never, Extent::NotKept)[0],
                format!("cache-control: {value}")
            );
        }
    }

    #[test]
    fn headers_that_frame_the_message_or_name_the_file_are_the_servers() {
        let frames = [
            "Content-Length",
            "transfer-encoding",
            "Connection",
            "Date",
            "TE",
            "Upgrade",
        ];
        let names = [
            "ETag",
            "Last-Modified",
            "Content-Range",
            "Content-Encoding",
            "Location",
        ];
        for name in frames.into_iter().chain(names) {
            for made in [
                HeaderChange::set(name, "1"),
                HeaderChange::append(name, "1"),
                HeaderChange::remove(name),
                HeaderChange::join(name, "1"),
            ] {
                assert!(
                    matches!(made, Err(RuleError::Reserved(_))),
                    "{name}: {made:?}"
                );
            }
        }
        assert!(
            HeaderChange::set("Vary", "cookie").is_err(),
            "a cache would mix codings"
        );
        assert!(HeaderChange::remove("Vary").is_err());
    }

    #[test]
    fn no_value_begins_a_line_of_its_own() {
        for value in ["a\r\nX: y", "a\nX: y", "a\0", "a\u{7f}", "é"] {
            let made = HeaderChange::set("X-A", value);
            assert!(
                matches!(made, Err(RuleError::Header { .. })),
                "{value:?}: {made:?}"
            );
        }
        for name in ["", "a b", "a:", "a\r\nb", "é"] {
            let made = HeaderChange::set(name, "1");
            assert!(
                matches!(made, Err(RuleError::Header { .. })),
                "{name:?}: {made:?}"
            );
        }
    }
}
