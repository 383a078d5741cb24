//! Values that cannot take a body: `flatpath_http::Sink`.

use flatpath_http::Sink;

pub(crate) fn a_vector() -> Box<dyn Sink> {
    Box::new(Vec::<u8>::new())
}
