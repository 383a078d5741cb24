//! Values that are no services: `flatpath_http::Service`.

use flatpath_http::{Http, Router};

fn hello() -> &'static str {
    "hello\n"
}

pub(crate) fn a_router_without_its_state() {
    let _ = Http::service(Router::<u32>::new());
}

pub(crate) fn a_function() {
    let _ = Http::service(hello);
}
