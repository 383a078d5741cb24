//! Serves a store that begins empty on 127.0.0.1:7878.
#![forbid(unsafe_code)]

use flatpath::{Error, Server};
use flatpath_example_kv::Store;

fn main() -> Result<(), Error> {
    let store = Store::default();
    Server::new()
        .listen("127.0.0.1:7878", store.protocol())
        .run()
}
