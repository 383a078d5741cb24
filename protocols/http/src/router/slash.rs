//! A slash at the end of a path: what a route does with one more or one less.

use std::borrow::Cow;

use http::Uri;

use crate::message::Response;
use crate::respond::into_response::{IntoResponse, Redirect};

/// What becomes of a request whose path would have a route with a slash more at its end, or with
/// one less: see [`Router::trailing_slash`](crate::Router::trailing_slash).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TrailingSlash {
    /// 404, or the fallback: these are two paths. A router has this one by default.
    #[default]
    Strict,
    /// 308 to the path of the route, with the query: clients send the same request there. Pages
    /// have one address, and relative links in them one meaning.
    Redirect,
    /// The route answers both. Handlers and layers see the path as the client spelled it.
    Same,
}

/// The path with one slash less, or with one more.
pub(super) fn other(path: &str) -> Option<Cow<'_, str>> {
    match path.strip_suffix('/') {
        // The root is no path without its slash, and `*` is no path.
        Some("") => None,
        Some(path) => Some(path.into()),
        None => path
            .starts_with('/')
            .then(|| Cow::Owned(format!("{path}/"))),
    }
}

/// The other path, relative to this one (RFC 3986 section 5.2): so it is right wherever the router
/// is mounted, below whatever prefix of a proxy, and never names another host.
pub(super) fn reference(path: &str) -> String {
    let last = |path: &str| path.rsplit('/').next().unwrap_or_default().to_owned();
    match path.strip_suffix('/') {
        Some(path) => format!("../{}", last(path)),
        // The dot: `a:b/` would begin with a scheme.
        None => format!("./{}/", last(path)),
    }
}

/// 308 to this path, with the query of the request.
pub(super) fn redirect(reference: &str, uri: &Uri) -> Response {
    let location = match uri.query() {
        Some(query) => format!("{reference}?{query}"),
        None => reference.to_owned(),
    };
    Redirect::permanent(location).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_other_path_differs_by_one_slash() {
        for (path, other_path, reference_to_it) in [
            ("/a", Some("/a/"), "./a/"),
            ("/a/", Some("/a"), "../a"),
            ("/a/b:c", Some("/a/b:c/"), "./b:c/"),
            ("/a/b:c/", Some("/a/b:c"), "../b:c"),
            ("/a//", Some("/a/"), "../"),
            ("//h/", Some("//h"), "../h"),
            ("//", Some("/"), "../"),
            ("/", None, ""),
            ("*", None, ""),
        ] {
            assert_eq!(other(path).as_deref(), other_path, "{path}");
            if other_path.is_some() {
                assert_eq!(reference(path), reference_to_it, "{path}");
            }
        }
    }
}
