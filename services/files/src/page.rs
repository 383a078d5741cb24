//! The pages of this crate: one frame of clean HTML, without scripts.
//!
//! A browser may show a page, with the style in it, and load nothing ([`POLICY`]). Text that comes
//! from names is escaped with [`escape`], that of files with [`escape_lines`].

use std::sync::LazyLock;

use flatpath_http::{Body, Response};
use http::StatusCode;
use http::header::{self, HeaderValue};

use crate::responses::bare;

const STYLE: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
h1{font-size:1.3em;overflow-wrap:anywhere}h2{font-size:1.1em;overflow-wrap:anywhere}\
table{border-collapse:collapse;width:100%}\
th,td{text-align:left;padding:.15em .8em .15em 0;border-bottom:1px solid #8884}\
th{position:sticky;top:0;background:Canvas}\
th:nth-child(n+2),td:nth-child(n+2){text-align:right;white-space:nowrap;\
font-variant-numeric:tabular-nums}\
td:first-child{overflow-wrap:anywhere}\
nav{margin:1em 0}\
pre{white-space:pre-wrap;overflow-wrap:anywhere;font:14px/1.5 ui-monospace,monospace}\
@media(max-width:30em){th:nth-child(n+3),td:nth-child(n+3){display:none}}\
a{text-decoration:none}a:hover{text-decoration:underline}\
a:focus-visible{outline:2px solid;outline-offset:2px}";

/// A browser loads nothing and uses no style but the page's, which it knows by its SHA-256 (CSP,
/// level 3, 6.7.2.3): what a name smuggles in is neither run nor shown.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'sha256-UqF5XjClZU7hhnVWk03TjkWQJOfLgr4SL1B7/Za3RKg='; \
     base-uri 'none'; form-action 'none'",
);

/// Common refusals, such as the answers to scanners, with their reasons.
const REASONS: [(StatusCode, &str); 4] = [
    (
        StatusCode::NOT_FOUND,
        "There is no such file or directory here.",
    ),
    (StatusCode::BAD_REQUEST, "The address is not a path."),
    (StatusCode::FORBIDDEN, "The server may not read this file."),
    (
        StatusCode::SERVICE_UNAVAILABLE,
        "The server is busy. Try again.",
    ),
];

/// The page with this title, which is its heading, too, and this body; both are HTML.
pub(crate) fn page(status: StatusCode, title: &str, body: &str) -> Response {
    html(status, text(title, body))
}

fn text(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

fn html(status: StatusCode, text: impl Into<Body>) -> Response {
    let mut response = bare(status);
    *response.body_mut() = text.into();
    let media = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().extend([
        (header::CONTENT_TYPE, media),
        (header::CONTENT_SECURITY_POLICY, POLICY),
    ]);
    response
}

/// Why there is no other page. The common ones are made once.
pub(crate) fn refusal(status: StatusCode) -> Response {
    static MADE: LazyLock<[String; REASONS.len()]> =
        LazyLock::new(|| REASONS.map(|(status, reason)| refusal_text(status, reason)));
    match REASONS.iter().position(|(of, _)| *of == status) {
        Some(number) => html(status, MADE[number].as_str()),
        None => html(status, refusal_text(status, "The file cannot be read.")),
    }
}

fn refusal_text(status: StatusCode, reason: &str) -> String {
    text(&status.to_string(), &format!("<p>{reason}</p>\n"))
}

/// Text for HTML. What is no UTF-8, and control characters, are shown as replacement characters.
pub(crate) fn escape(name: &[u8]) -> String {
    let mut escaped = String::with_capacity(name.len());
    String::from_utf8_lossy(name)
        .chars()
        .for_each(|character| push_escaped(character, &mut escaped));
    escaped
}

/// The same of text with lines: their ends and tabulators stay.
pub(crate) fn escape_lines(text: &[u8]) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in String::from_utf8_lossy(text).chars() {
        match character {
            '\n' | '\t' => escaped.push(character),
            // Of the line ends of other systems the other half stays.
            '\r' => {}
            other => push_escaped(other, &mut escaped),
        }
    }
    escaped
}

fn push_escaped(character: char, escaped: &mut String) {
    match character {
        '&' => escaped.push_str("&amp;"),
        '<' => escaped.push_str("&lt;"),
        '>' => escaped.push_str("&gt;"),
        '"' => escaped.push_str("&quot;"),
        '\'' => escaped.push_str("&#39;"),
        control if control.is_control() => escaped.push('\u{fffd}'),
        // These turn the writing direction around: "exe.txt" may be "txt.exe".
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => escaped.push('\u{fffd}'),
        other => escaped.push(other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policy_allows_the_style_of_the_page_and_nothing_else() {
        use base64::Engine;
        let digest = ring::digest::digest(&ring::digest::SHA256, STYLE.as_bytes());
        let hash = base64::engine::general_purpose::STANDARD.encode(digest);
        let policy = POLICY.to_str().expect("ASCII").to_owned();
        assert!(
            policy.contains(&format!("style-src 'sha256-{hash}';")),
            "{hash}"
        );
        assert!(policy.starts_with("default-src 'none';") && !policy.contains("unsafe"));
    }

    #[test]
    fn a_refusal_is_a_page_that_says_what_and_why() {
        let response = refusal(StatusCode::NOT_FOUND);
        assert_eq!(response.status(), StatusCode::NOT_FOUND);
        assert!(matches!(response.body(), Body::Static(_)), "made once");
        let text = response.body().to_bytes();
        let text = String::from_utf8_lossy(&text);
        for part in ["<h1>404 Not Found</h1>", "no such file", "color-scheme"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}
