//! Values that do not answer messages: `flatpath_websocket::Handler`.

use flatpath_http::{IntoResponse, Request};
use flatpath_websocket::WebSocket;

struct Hub;

pub(crate) fn a_type_as_a_handler(request: &Request) -> impl IntoResponse {
    WebSocket::pooled().accept(request, Hub)
}
