//! Media types by the ending of a name.
//!
//! Text is served as UTF-8, which nearly all of it is: without a `charset` browsers guess, and a
//! guess can be steered. What is not known is `application/octet-stream`, and every answer says
//! `nosniff`, so no browser makes a page of it.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use mime_guess::MimeGuess;

/// The type of files whose ending is not known.
pub(crate) const UNKNOWN: &str = "application/octet-stream";

/// The media type of a file with this name, as the value of `Content-Type`.
pub(crate) fn of_name(name: &[u8]) -> String {
    let ending = Path::new(OsStr::from_bytes(name))
        .extension()
        .and_then(OsStr::to_str);
    if ending.is_some_and(|ending| ending.eq_ignore_ascii_case("ts")) {
        // What browsers play (RFC 3555), not the first of the type's owners; TypeScript is compiled
        // before it is served.
        return "video/mp2t".into();
    }
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

/// Whether a file with this name is gzip-coded already, though its type is that of the plain form:
/// browsers show an SVGZ only with `Content-Encoding`.
pub(crate) fn is_gzipped(name: &[u8]) -> bool {
    let ending = name.len().checked_sub(b".svgz".len()).map(|at| &name[at..]);
    ending.is_some_and(|ending| ending.eq_ignore_ascii_case(b".svgz"))
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
            (b"a.ts", "video/mp2t"),
            (b"a.svgz", "image/svg+xml"),
        ] {
            assert_eq!(of_name(name), essence);
        }
    }

    #[test]
    fn of_svgz_the_coding_is_named() {
        assert!(is_gzipped(b"a.svgz") && is_gzipped(b"A.SVGZ"));
        assert!(!is_gzipped(b"a.svg") && !is_gzipped(b"svgz") && !is_gzipped(b"a.gz"));
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
