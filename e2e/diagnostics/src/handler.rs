//! Functions that are no handlers: `flatpath_http::Handler`.

use flatpath_http::http::Method;
use flatpath_http::{Http, Json, Path, Router};

struct Order;

async fn later() -> &'static str {
    "done\n"
}

fn body_first(_: String, _: Method) -> &'static str {
    "done\n"
}

fn not_deserialized(_: Json<Order>) -> &'static str {
    "done\n"
}

fn no_response(_: Path<u64>) -> Order {
    Order
}

fn another_state(_: flatpath_http::State<String>) -> &'static str {
    "done\n"
}

pub(crate) fn a_future() {
    let _ = Http::pooled(later);
}

pub(crate) fn the_body_before_the_rest() {
    let _ = Router::<()>::new().get("/", body_first);
}

pub(crate) fn a_body_that_is_not_deserialized() {
    let _ = Router::<()>::new().get("/", not_deserialized);
}

pub(crate) fn a_reply_that_is_no_response() {
    let _ = Router::<()>::new().get("/", no_response);
}

pub(crate) fn the_state_of_another_router() {
    let _ = Router::<u32>::new().get("/", another_state);
}

pub(crate) fn no_function() {
    let _ = Http::pooled("hello\n");
}
