//! Why a form is not taken.

use http::StatusCode;

use crate::header_values::parameters::Malformed;
use crate::message::Response;
use crate::respond::into_response::{IntoResponse, refused};

/// A form that is not taken. A body that is longer than its route or listener allows is answered
/// with 413 by these.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum MultipartRejection {
    /// 415: the content type of the body is another one, or missing.
    ContentType,
    /// 400: the content type has no boundary, or one that RFC 2046 section 5.1.1 does not allow.
    Boundary,
    /// 400: this is wrong with it.
    Malformed(&'static str),
    /// 413: the headers of a field, or what stands before the first field, are longer than this.
    HeaderBytes(usize),
    /// 413: it has more fields than this.
    Fields(usize),
    /// 413: one field is longer than this.
    FieldBytes {
        /// Its name, as the client sent it.
        name: String,
        /// The most bytes that it may have.
        bytes_max: u64,
    },
    /// 413: it is longer than this.
    TotalBytes(u64),
}

flatpath::impl_error! {
    MultipartRejection {
        Self::ContentType => "the content type of the body is not multipart/form-data",
        Self::Boundary => "the content type of the form has no valid boundary",
        Self::Malformed(what) => "the form is malformed: {what}",
        Self::HeaderBytes(max) => "the headers of a field are longer than {max} bytes",
        Self::Fields(max) => "the form has more than {max} fields",
        Self::FieldBytes { name, bytes_max } =>
            "the field {name:?} is longer than {bytes_max} bytes",
        Self::TotalBytes(max) => "the form is longer than {max} bytes",
    }
}

impl MultipartRejection {
    /// What it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Boundary | Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::HeaderBytes(_)
            | Self::Fields(_)
            | Self::FieldBytes { .. }
            | Self::TotalBytes(_) => StatusCode::PAYLOAD_TOO_LARGE,
        }
    }
}

impl IntoResponse for MultipartRejection {
    fn into_response(self) -> Response {
        refused(self.status(), &self)
    }
}

impl From<Malformed> for MultipartRejection {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed("a parameter of a header")
    }
}
