//! Values that are no responses: `flatpath_http::IntoResponse`.

use flatpath_http::http::StatusCode;
use flatpath_http::{IntoResponse, Response};

struct Order;

fn respond(with: impl IntoResponse) -> Response {
    with.into_response()
}

pub(crate) fn a_type_of_the_program() {
    let _ = respond(Order);
}

pub(crate) fn a_status_before_it() {
    let _ = respond((StatusCode::OK, Order));
}

pub(crate) fn an_error_of_the_program() -> impl IntoResponse {
    Err::<&str, Order>(Order)
}
