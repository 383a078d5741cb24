//! What a form may have, and no more.

/// Bounds of one form.
///
/// ```
/// use flatpath_http::multipart::MultipartLimits;
///
/// let limits = MultipartLimits { total_bytes_max: 10 << 30, ..MultipartLimits::default() };
/// assert_eq!(limits.fields_max, 128);
/// ```
// Exhaustive: `..MultipartLimits::default()` works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultipartLimits {
    /// Fields, empty ones among them. By default 128.
    pub fields_max: usize,
    /// Bytes of the headers of one field, and of what stands before the first. By default 8 KiB.
    pub header_bytes_max: usize,
    /// Bytes of the content of one field; [`FieldHead::limit`](super::FieldHead::limit) lowers it
    /// for one. By default as many as the form may have.
    pub field_bytes_max: u64,
    /// Bytes of the whole body. By default 1 GiB; the bound of the route
    /// ([`Methods::body_bytes_max`](crate::Methods::body_bytes_max)), or of the listener for a
    /// whole form, counts as well.
    pub total_bytes_max: u64,
}

impl Default for MultipartLimits {
    fn default() -> Self {
        Self {
            fields_max: 128,
            header_bytes_max: 8 << 10,
            field_bytes_max: u64::MAX,
            total_bytes_max: 1 << 30,
        }
    }
}
