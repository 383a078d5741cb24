//! The Rust programs of README and the book, which `cargo test` compiles and runs as it does the
//! examples of any crate. What the tests here share is in `flatpath-testkit`, but for what names
//! the server's library: [`choice`].
#![forbid(unsafe_code)]
#![cfg_attr(
    doctest,
    allow(rustdoc::invalid_codeblock_attributes, reason = "`needs=` is ours")
)]

use flatpath::DriverChoice;
use flatpath_testkit::Driver;

/// The driver of a server within the test.
pub fn choice(driver: Driver) -> DriverChoice {
    match driver {
        Driver::Uring => DriverChoice::Uring,
        Driver::Epoll => DriverChoice::Epoll,
    }
}

/// Makes the programs of a page examples of this crate.
macro_rules! page {
    ($name:ident, $path:literal) => {
        #[cfg(doctest)]
        #[doc = include_str!(concat!("../../../", $path))]
        struct $name;
    };
}

page!(Readme, "README.md");
page!(Service, "book/src/service.md");
page!(Files, "book/src/files.md");
page!(Layers, "book/src/layers.md");
page!(Proxy, "book/src/proxy.md");
page!(Actix, "book/src/actix.md");
page!(FlaskExpress, "book/src/flask-express.md");
page!(Protocol, "book/src/protocol.md");
page!(Pairing, "book/src/pairing.md");
