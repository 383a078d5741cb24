//! Values that cannot take a form: `flatpath_http::multipart::FormSink`.

use flatpath_http::{MultipartUpload, Upload};

pub(crate) fn a_vector(form: MultipartUpload) -> Upload {
    form.with(Vec::<u8>::new())
}
