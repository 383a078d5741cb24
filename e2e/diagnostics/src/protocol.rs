//! Values that no server listens with: `flatpath::Protocol`.

use flatpath::Server;
use flatpath_http::Router;

pub(crate) fn a_router() {
    let _ = Server::new().listen("127.0.0.1:0", Router::<()>::new());
}
