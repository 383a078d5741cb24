//! Media types by the ending of a name.
//!
//! Text is served as UTF-8, which nearly all of it is: without a `charset` browsers guess, and a
//! guess can be steered. What is not known is `application/octet-stream`, and every answer says
//! `nosniff`, so no browser makes a page of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use mime_guess::MimeGuess;

/// What is said of files whose ending tells nothing.
pub const UNKNOWN: &str = "application/octet-stream";

/// The media type of a file with this name, as the value of `Content-Type`.
pub fn of_name(name: &[u8]) -> String {
    let ending = Path::new(OsStr::from_bytes(name))
        .extension()
        .and_then(OsStr::to_str);
    let Some(essence) = ending.and_then(|ending| MimeGuess::from_ext(ending).first_raw()) else {
        return UNKNOWN.to_string();
    };
    match essence {
        // RFC 9239 made the other names of JavaScript obsolete.
        "application/javascript" | "application/x-javascript" => {
            "text/javascript; charset=utf-8".into()
        }
        // JSON is UTF-8 by definition; XML and SVG declare their own.
        text if text.starts_with("text/") => format!("{text}; charset=utf-8"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_utf_8() {
        assert_eq!(of_name(b"index.html"), "text/html; charset=utf-8");
        assert_eq!(of_name(b"a.txt"), "text/plain; charset=utf-8");
        assert_eq!(of_name(b"A.TXT"), "text/plain; charset=utf-8");
        assert_eq!(of_name(b"a.css"), "text/css; charset=utf-8");
        assert_eq!(of_name(b"a.js"), "text/javascript; charset=utf-8");
        assert_eq!(of_name(b"a.mjs"), "text/javascript; charset=utf-8");
    }

    #[test]
    fn other_types_stand_alone() {
        for (name, essence) in [
            (&b"a.png"[..], "image/png"),
            (b"a.json", "application/json"),
            (b"a.svg", "image/svg+xml"),
            (b"a.wasm", "application/wasm"),
            (b"a.tar.gz", "application/gzip"),
        ] {
            assert_eq!(of_name(name), essence);
        }
    }

    #[test]
    fn what_is_not_known_is_only_bytes() {
        for name in [
            &b"README"[..],
            b"a.nosuchtype",
            b".txt",
            b"a.",
            b"",
            b"a.\xff",
            b"html",
        ] {
            assert_eq!(of_name(name), UNKNOWN, "{name:?}");
        }
    }
}
