//! The pages of this crate: one frame of clean HTML.
//!
//! A browser may show a page, with the style in it, and load nothing ([`POLICY`]). A listing has
//! one script besides ([`SCRIPT`]), which it works without ([`Powers`]). Text that comes from names
//! is escaped with [`escape`], that of files with [`escape_lines`].

use std::sync::LazyLock;

use flatpath_http::{Body, Response};
use http::StatusCode;
use http::header::{self, HeaderValue};

use crate::responses::bare;

/// The style of a page of a few words.
const STYLE_PLAIN: &str = "\
:root{color-scheme:light dark}\
body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}\
h1{font-size:1.3em;overflow-wrap:anywhere}";

/// That of a listing, with its table and forms.
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
form{margin:.5em 0}label{margin-right:.6em}input,button{font:inherit}\
input[type=search],input[type=text]{width:12em;max-width:60%}input[type=file]{max-width:100%}\
.drop{outline:3px dashed;outline-offset:.5em}\
section table{width:auto}section pre{padding:.5em;background:#8881}\
blockquote{margin-left:.5em;padding-left:1em;border-left:3px solid #8884}\
@media(max-width:30em){body{margin:1em auto;padding:0 .6em}time span{display:none}\
th,td{padding-right:.4em}td:nth-child(n+2){font-size:.85em}\
th:nth-child(n+2){white-space:normal}}\
a{text-decoration:none}a:hover{text-decoration:underline}\
a:focus-visible{outline:2px solid;outline-offset:2px}";

/// What a listing does with a script: it filters while one types, and stores files, chosen or
/// dropped, one after another by PUT. Without it the forms do both.
const SCRIPT: &str = include_str!("listing/page.js");

/// A browser loads nothing and uses no style but the page's, which it knows by its SHA-256 (CSP,
/// level 3, 6.7.2.3): what a name smuggles in is neither run nor shown.
const POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'sha256-yjfwAdAAjP4VYjmG9zxu1P8L4LeaLrGo0cP+aMzrhQU='; \
     base-uri 'none'; form-action 'none'",
);

/// The same of a listing: its script runs, likewise known, and its form leads to this server.
const POLICY_READ: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'sha256-ROgGGz6uCXDuAz1KaVfLIEpTuJIIxX79MpxNPINKs/E='; \
     script-src 'sha256-Wd7T0sVLRuYGdWu/i4wJedbYWHUxOqMmqp3mExEoNr8='; \
     base-uri 'none'; form-action 'self'",
);

/// The same where files may be stored: its script may send them to this server, and no page of
/// another may lay itself over this one.
const POLICY_WRITE: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; style-src 'sha256-ROgGGz6uCXDuAz1KaVfLIEpTuJIIxX79MpxNPINKs/E='; \
     script-src 'sha256-Wd7T0sVLRuYGdWu/i4wJedbYWHUxOqMmqp3mExEoNr8='; \
     base-uri 'none'; form-action 'self'; connect-src 'self'; \
     frame-ancestors 'self'",
);

/// What a listing may do in a browser.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Powers {
    /// Show other parts of the directory.
    #[default]
    Read,
    /// Store files, and make directories, too.
    Write,
}

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
    html(status, text(title, STYLE_PLAIN, body), POLICY)
}

/// The page of a directory, likewise, with its script.
pub(crate) fn listing(title: &str, body: &str, powers: Powers) -> Response {
    let body = format!("{body}<script>{SCRIPT}</script>\n");
    let policy = match powers {
        Powers::Read => POLICY_READ,
        Powers::Write => POLICY_WRITE,
    };
    html(StatusCode::OK, text(title, STYLE, &body), policy)
}

fn text(title: &str, style: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n\
         <title>{title}</title>\n<style>{style}</style>\n</head>\n<body>\n\
         <h1>{title}</h1>\n{body}</body>\n</html>\n"
    )
}

fn html(status: StatusCode, text: impl Into<Body>, policy: HeaderValue) -> Response {
    let mut response = bare(status);
    *response.body_mut() = text.into();
    let media = HeaderValue::from_static("text/html; charset=utf-8");
    response.headers_mut().extend([
        (header::CONTENT_TYPE, media),
        (header::CONTENT_SECURITY_POLICY, policy),
    ]);
    response
}

/// Why there is no other page. The common ones are made once.
pub(crate) fn refusal(status: StatusCode) -> Response {
    static MADE: LazyLock<[String; REASONS.len()]> =
        LazyLock::new(|| REASONS.map(|(status, reason)| refusal_text(status, reason)));
    match REASONS.iter().position(|(of, _)| *of == status) {
        Some(number) => html(status, MADE[number].as_str(), POLICY),
        None => html(
            status,
            refusal_text(status, "The file cannot be read."),
            POLICY,
        ),
    }
}

fn refusal_text(status: StatusCode, reason: &str) -> String {
    let title = status.to_string();
    text(&title, STYLE_PLAIN, &format!("<p>{reason}</p>\n"))
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
    match harmless(character) {
        '&' => escaped.push_str("&amp;"),
        '<' => escaped.push_str("&lt;"),
        '>' => escaped.push_str("&gt;"),
        '"' => escaped.push_str("&quot;"),
        '\'' => escaped.push_str("&#39;"),
        other => escaped.push(other),
    }
}

/// A character as a page may have it: a replacement for one that does something unseen.
pub(crate) fn harmless(character: char) -> char {
    match character {
        control if control.is_control() => '\u{fffd}',
        // These turn the writing direction around: "exe.txt" may be "txt.exe".
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => '\u{fffd}',
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_policies_allow_the_style_and_script_of_the_page_and_nothing_else() {
        use base64::Engine;
        let hash = |text: &str| {
            let digest = ring::digest::digest(&ring::digest::SHA256, text.as_bytes());
            base64::engine::general_purpose::STANDARD.encode(digest)
        };
        let style = |text| format!("style-src 'sha256-{}';", hash(text));
        let script = format!("script-src 'sha256-{}';", hash(SCRIPT));
        for (policy, of_style, parts) in [
            (POLICY, STYLE_PLAIN, &["form-action 'none'"][..]),
            (POLICY_READ, STYLE, &[&script, "form-action 'self'"]),
            (
                POLICY_WRITE,
                STYLE,
                &[
                    &script,
                    "form-action 'self';",
                    "connect-src 'self';",
                    "frame-ancestors 'self'",
                ],
            ),
        ] {
            let policy = policy.to_str().expect("ASCII").to_owned();
            let style = style(of_style);
            let parts = [&["default-src 'none';", &style, "base-uri 'none';"], parts].concat();
            let parts = parts.iter().copied();
            for part in parts.clone() {
                assert!(policy.contains(part), "{part} in {policy}");
            }
            assert_eq!(
                policy.matches("-src ").count(),
                parts.filter(|it| it.contains("-src ")).count()
            );
            assert!(
                !policy.contains("unsafe") && !policy.contains('*'),
                "{policy}"
            );
        }
    }

    #[test]
    fn a_page_has_its_script_as_the_policy_knows_it() {
        assert!(!SCRIPT.contains("</") && !SCRIPT.contains("<!--"));
        let page = listing("a", "<p>b</p>\n", Powers::Read);
        let text = String::from_utf8(page.body().to_bytes().into_owned()).expect("text");
        assert!(text.contains(&format!("<p>b</p>\n<script>{SCRIPT}</script>\n</body>")));
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
