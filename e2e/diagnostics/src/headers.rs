//! Values that are no headers: `flatpath_http::IntoHeaders`.

use flatpath_http::IntoHeaders;
use flatpath_http::http::HeaderMap;

fn set(headers: impl IntoHeaders) -> HeaderMap {
    let mut map = HeaderMap::new();
    headers.set(&mut map).expect("they are valid");
    map
}

pub(crate) fn one_text() {
    let _ = set("cache-control: no-store");
}
