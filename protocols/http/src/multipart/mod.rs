//! Forms with files: `multipart/form-data` (RFC 7578), whole or piece by piece.
//!
//! | argument            | on a route that is                      | holds in memory       |
//! |---------------------|-----------------------------------------|-----------------------|
//! | [`Multipart`]       | any but streamed; the body has arrived  | all fields            |
//! | [`MultipartUpload`] | [`streamed`](crate::Methods::streamed)  | the head of one field |
//!
//! Everything has a bound: [`MultipartLimits`]. What breaks one, or the format, is refused with a
//! [`MultipartRejection`]: 400, 413 or 415, and one line.
//!
//! Names are what the client sent. A file name is never a path here; [`FieldHead::safe_file_name`]
//! is for those who make it one. Duplicate names are kept, in their order. A `multipart/mixed`
//! within a field is content like any other (RFC 7578 section 4.3 does away with it).
//!
//! The parser is this crate's own, on `httparse` and `memchr`: content goes from the pages it was
//! received in to the sink without a copy, and a head that never ends is refused at its bound.
//! `multer` has neither; tests compare the two.

mod limits;
mod rejection;
mod boundary;
mod head;
mod parser;
mod upload;
mod whole;

pub use head::FieldHead;
pub use limits::MultipartLimits;
pub use rejection::MultipartRejection;
pub use upload::{FormSink, MultipartUpload};
pub use whole::{FormField, Multipart};
