//! Whether a request for what is not there wants a page in its place.
//!
//! The page of an application answers its addresses. In the place of a missing script, image or
//! reply it does harm: a browser runs it, or keeps it, and the mistake shows somewhere else. So a
//! fallback that is a page is for requests that may be for one. What is looked at, in this order:
//!
//! | header           | a page                                 | something else               |
//! |------------------|----------------------------------------|------------------------------|
//! | `Sec-Fetch-Dest` | `document` and frames                  | `script`, `image`, any other |
//! | `Accept`         | `text/html` or XHTML is named          | it has none, nor `*/*`       |
//! | neither decides  | the name has no ending of another type | it has one: `.js`, `.json`   |
//!
//! A browser sends `Sec-Fetch-Dest` (W3C Fetch Metadata) over TLS and to this machine alone; a page
//! that it goes to is named in `Accept` in any case. `empty` (`fetch`) decides nothing. A fallback
//! that is no page answers every request.

use flatpath_http::Request;
use flatpath_http::header_values::weight_of;
use http::header::{self, HeaderName, HeaderValue};

use crate::headers::Headers;
use crate::media;
use crate::target::name_of;

const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// What an answer depends on that has a page as its fallback, or would have had.
pub(crate) const VARY: HeaderValue = HeaderValue::from_static("accept, sec-fetch-dest");

/// What a request wants in the place of what is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// A page, as far as it says.
    Page,
    /// A browser loads a part of a page.
    Part,
    /// Its client takes no page.
    NoPage,
    /// By its name it is a file of another type.
    OtherType,
}

impl Wanted {
    /// Of a request for the file at `path`.
    pub(crate) fn by(request: &Request, path: &[u8]) -> Self {
        let headers = request.headers();
        if let Some(destination) = headers.single(&SEC_FETCH_DEST) {
            match destination {
                b"document" | b"iframe" | b"frame" | b"fencedframe" | b"embed" | b"object" => {
                    return Self::Page;
                }
                b"empty" => {}
                _ => return Self::Part,
            }
        }
        let weight = |media| weight_of(headers.all(&header::ACCEPT), media);
        let named = ["text/html", "application/xhtml+xml"].map(weight);
        match named.into_iter().flatten().max() {
            Some(0) => return Self::NoPage,
            Some(_) => return Self::Page,
            None => {}
        }
        let is_any = ["text/*", "*/*"].map(weight).into_iter().flatten().max() > Some(0);
        if headers.holds(&header::ACCEPT) && !is_any {
            return Self::NoPage;
        }
        let type_of_name = media::of_name(name_of(path));
        match type_of_name == media::UNKNOWN || is_page(type_of_name.as_bytes()) {
            true => Self::Page,
            false => Self::OtherType,
        }
    }
}

/// Whether files of a media type are pages.
pub(crate) fn is_page(media_type: &[u8]) -> bool {
    let name = media_type.split(|byte| *byte == b';').next();
    let name = name.unwrap_or_default().trim_ascii();
    [&b"text/html"[..], b"application/xhtml+xml"]
        .iter()
        .any(|page| name.eq_ignore_ascii_case(page))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(path: &str, headers: &[(&str, &str)]) -> Wanted {
        let mut request = Request::default();
        for (name, value) in headers {
            let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
            let value = HeaderValue::from_str(value).expect("a value");
            request.headers_mut().append(name, value);
        }
        Wanted::by(&request, path.as_bytes())
    }

    #[test]
    fn a_request_says_by_its_headers_and_its_name_whether_it_wants_a_page() {
        let navigation = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (path, headers, expected) in [
            ("users/7", &[][..], Wanted::Page),
            ("users/7", &[("accept", "*/*")], Wanted::Page),
            ("users/john.doe", &[("accept", "*/*")], Wanted::Page),
            ("old/page.html", &[], Wanted::Page),
            ("assets/x.js", &[], Wanted::OtherType),
            ("assets/x.js", &[("accept", "*/*")], Wanted::OtherType),
            // A page about a file.
            ("blob/x.js", &[("accept", navigation)], Wanted::Page),
            (
                "blob/x.js",
                &[("accept", "*/*"), ("sec-fetch-dest", "document")],
                Wanted::Page,
            ),
            ("users/7", &[("sec-fetch-dest", "iframe")], Wanted::Page),
            ("users/7", &[("sec-fetch-dest", "empty")], Wanted::Page),
            (
                "api/users",
                &[("sec-fetch-dest", "empty"), ("accept", "application/json")],
                Wanted::NoPage,
            ),
            (
                "x.json",
                &[("sec-fetch-dest", "empty"), ("accept", "*/*")],
                Wanted::OtherType,
            ),
            (
                "users/7",
                &[("accept", "image/avif,image/*")],
                Wanted::NoPage,
            ),
            (
                "users/7",
                &[("accept", "text/html;q=0, */*")],
                Wanted::NoPage,
            ),
            ("users/7", &[("accept", "text/*")], Wanted::Page),
            ("users/7", &[("accept", "")], Wanted::NoPage),
        ] {
            assert_eq!(wanted(path, headers), expected, "{path} {headers:?}");
        }
        for part in [
            "script",
            "style",
            "image",
            "font",
            "audio",
            "video",
            "track",
            "manifest",
            "worker",
            "sharedworker",
            "serviceworker",
            "json",
            "xslt",
            "report",
            "",
        ] {
            let headers = [("sec-fetch-dest", part), ("accept", navigation)];
            assert_eq!(wanted("users/7", &headers), Wanted::Part, "{part}");
        }
    }
}
