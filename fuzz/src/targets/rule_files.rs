//! Target `rule_files`: the texts of `_redirects` and `_headers`, and targets that clients ask for;
//! a line `---` ends a text.
//!
//! Holds of every input
//! - Each mistake names a line of its text, in their order.
//! - A line with a mistake changes nothing of the others: without those lines there is no mistake,
//!   and each target leads to the same. (Without its path a header is for no path.)
//! - White space and comments mean nothing: lines that are written anew mean the same.
//! - `Location` is visible ASCII, has no backslash in its path, and its host is written in a rule.
//! - No redirect leads to the address that was asked for.
//! - Headers are one line of visible ASCII, and none frames the message or names the file.

use std::collections::BTreeSet;

use flatpath_files::{Explanation, Outcome, Rules};

/// Targets beside those of the input: the rest is found by the patterns of seeds.
const TARGETS: &[&str] = &[
    "/",
    "/a",
    "/old/x/y?q=1",
    "/a/%0d%0aX:%20y",
    "/a//evil.example",
];

/// As many targets of an input are tried.
const TARGETS_MAX: usize = 16;

/// Headers that are the server's alone, whatever the rules say.
const OURS: &[&str] = &[
    "connection",
    "content-encoding",
    "content-length",
    "content-range",
    "date",
    "etag",
    "last-modified",
    "location",
    "transfer-encoding",
];

pub(crate) fn run(data: &[u8]) {
    let (redirects, rest) = split(data);
    let (headers, targets) = split(rest);
    let (rules, mistakes) = read(redirects, headers);
    let mistaken = [("_redirects", redirects), ("_headers", headers)]
        .map(|(file, text)| numbers(file, text, &mistakes));
    assert_eq!(
        mistaken[0].len() + mistaken[1].len(),
        mistakes.len(),
        "{mistakes:?}"
    );
    let good = (
        without(redirects, &mistaken[0], false),
        without(headers, &mistaken[1], true),
    );
    let (fewer, none) = read(&good.0, &good.1);
    assert_eq!(
        none,
        Vec::<String>::new(),
        "they were mistakes of other lines"
    );
    let (anew, none) = read(&spaced(&good.0), &spaced(&good.1));
    assert_eq!(none, Vec::<String>::new(), "white space means something");

    let lines = targets.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let own = lines.filter_map(|line| std::str::from_utf8(line).ok());
    // HTTP has no others.
    let own = own.filter(|line| !line.contains(|it: char| it.is_ascii_control() || it == ' '));
    for target in own.take(TARGETS_MAX).chain(TARGETS.iter().copied()) {
        let explained = rules.explain(target);
        check(target, &explained, redirects);
        assert_eq!(fewer.explain(target), explained, "{target}");
        assert_eq!(anew.explain(target), explained, "{target}");
    }
}

/// What is before the first line `---`, and what is after it.
fn split(data: &[u8]) -> (&[u8], &[u8]) {
    let mut start = 0;
    for line in data.split_inclusive(|byte| *byte == b'\n') {
        let end = start + line.len();
        if line.trim_ascii() == b"---" {
            return (&data[..start], &data[end..]);
        }
        start = end;
    }
    (data, b"")
}

fn read(redirects: &[u8], headers: &[u8]) -> (Rules, Vec<String>) {
    let mut rules = Rules::new();
    let mut mistakes = rules.add_redirects_text(redirects);
    mistakes.extend(rules.add_headers_text(headers));
    (rules, mistakes)
}

/// The lines of a file that are mistakes, from 1.
fn numbers(file: &str, text: &[u8], mistakes: &[String]) -> BTreeSet<usize> {
    let lines = text.split(|byte| *byte == b'\n').count();
    let mut numbers = BTreeSet::new();
    for mistake in mistakes {
        let Some(rest) = mistake
            .strip_prefix(file)
            .and_then(|it| it.strip_prefix(':'))
        else {
            continue;
        };
        let (number, why) = rest.split_once(": ").expect("a line and why");
        let number = number.parse().expect("the number of a line");
        assert!(
            (1..=lines).contains(&number) && !why.is_empty(),
            "{mistake}"
        );
        assert!(
            numbers.last().is_none_or(|last| *last < number),
            "{mistakes:?}"
        );
        numbers.insert(number);
    }
    numbers
}

/// The text without some lines, which stay empty; of headers also without what is below them.
fn without(text: &[u8], mistaken: &BTreeSet<usize>, is_of_headers: bool) -> Vec<u8> {
    let mut good = Vec::new();
    let mut is_below = false;
    for (at, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let is_indented = matches!(line, [b' ' | b'\t', ..]);
        let is_mistaken = mistaken.contains(&(at + 1));
        let is_nothing = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
        let says = !std::str::from_utf8(line).is_ok_and(is_nothing);
        if is_of_headers && !is_indented && says {
            is_below = is_mistaken;
        }
        match is_mistaken || is_below {
            true => good.push(b'\n'),
            false => good.extend_from_slice(line),
        }
    }
    good
}

/// The same lines with other white space and a comment before each.
fn spaced(text: &[u8]) -> Vec<u8> {
    let mut spaced = Vec::new();
    let text = String::from_utf8_lossy(text);
    for line in text.strip_prefix('\u{feff}').unwrap_or(&text).lines() {
        let (indent, line) = match line.strip_prefix([' ', '\t']) {
            Some(line) => ("\t ", line),
            None => ("", line),
        };
        let line = line.trim_end();
        spaced.extend(format!("# a comment\r\n{indent}{line} \t\r\n").into_bytes());
    }
    spaced
}

fn check(target: &str, explained: &Explanation, redirects: &[u8]) {
    if let Outcome::Redirect { status, location } = &explained.outcome {
        assert!(
            matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308),
            "{status}"
        );
        assert!(
            location.bytes().all(|byte| byte.is_ascii_graphic()),
            "{target}: {location}"
        );
        let path = |address: &str| {
            address
                .split(['?', '#'])
                .next()
                .unwrap_or_default()
                .to_owned()
        };
        assert!(!path(location).contains('\\'), "{target}: {location}");
        match location
            .split_once("://")
            .filter(|_| !location.starts_with('/'))
        {
            None => {
                let is_path = location.starts_with('/') && !location.starts_with("//");
                assert!(is_path, "{target}: {location}");
                assert_ne!(path(location), path(target), "it leads to itself");
            }
            Some((scheme, after)) => {
                let host = after.split(['/', '?', '#']).next().unwrap_or_default();
                let origin = format!("{scheme}://{host}");
                let written = redirects
                    .windows(origin.len())
                    .any(|it| it == origin.as_bytes());
                assert!(written, "{target}: {location} is the host of no rule");
            }
        }
    }
    for (name, value) in &explained.headers {
        assert!(!OURS.contains(&name.as_str()), "{name}: {value}");
        let is_line = value
            .bytes()
            .all(|byte| matches!(byte, b' '..=b'~' | b'\t'));
        assert!(is_line && !name.is_empty(), "{name}: {value:?}");
    }
}
