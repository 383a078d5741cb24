//! Types that are no arguments: `flatpath_http::{FromRequest, FromRequestParts}`.

use flatpath_http::{FromRequest, FromRequestParts, Json, Request};

struct Order;

pub(crate) fn not_made_of_a_request(request: &mut Request) {
    let _ = <Order as FromRequest<()>>::from_request(request, &());
}

pub(crate) fn not_made_of_a_head(request: &mut Request) {
    let _ = <Order as FromRequestParts<()>>::from_request_parts(request, &());
}

pub(crate) fn the_body_where_the_head_is_wanted(request: &mut Request) {
    let _ = <Json<u64> as FromRequestParts<()>>::from_request_parts(request, &());
}
