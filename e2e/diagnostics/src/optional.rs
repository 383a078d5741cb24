//! Arguments that cannot be absent: `flatpath_http::{OptionalFromRequest,
//! OptionalFromRequestParts}`.

use flatpath_http::http::Method;
use flatpath_http::{FromRequest, OptionalFromRequest, OptionalFromRequestParts, Request};

pub(crate) fn a_body_of_text(request: &mut Request) {
    let _ = <String as OptionalFromRequest<()>>::from_request(request, &());
}

pub(crate) fn what_is_always_there(request: &mut Request) {
    let _ = <Method as OptionalFromRequestParts<()>>::from_request_parts(request, &());
}

pub(crate) fn within_an_option(request: &mut Request) {
    let _ = <Option<String> as FromRequest<(), _>>::from_request(request, &());
}
