//! Types that are no arguments: `flatpath_http::{FromRequest, FromRequestParts}`.

use flatpath_http::{FromRef, FromRequest, FromRequestParts, Json, Request, State};

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

pub(crate) fn what_is_not_in_the_state(request: &mut Request) {
    let _ = <State<Order> as FromRequestParts<u32>>::from_request_parts(request, &7);
}

pub(crate) fn no_part_of_the_state() -> Order {
    FromRef::from_ref(&7_u32)
}
