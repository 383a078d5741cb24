//! Which files are compressed while they are served, and by what.
//!
//! The codecs, the types that are worth it and the number of files at a time are those of
//! `flatpath_layers::Compression`. Here is what is the files' own: how long one may be, and which
//! forms it then has. Without a feature of a coding there is no [`Compressor`], and every file is
//! sent as it is.
//!
//! Does not: read or send anything (`answer/encoded`), nor run on a network thread.

use flatpath::memory::ShareHold;
use flatpath_http::header_values::ContentCoding;
use flatpath_http::{Request, Response};
use http::Method;
use http::header::{self, HeaderValue};

use crate::limits::{COMPRESS_FILE_BYTES_MAX, COMPRESS_WHOLE_BYTES_MAX};
use crate::media;
#[cfg(feature = "_compression")]
use crate::siblings::Forms;
use crate::target::name_of;

#[cfg(not(feature = "_compression"))]
pub(crate) use absent::{Compression, Encoding};
#[cfg(feature = "_compression")]
use flatpath_layers::Compression;
#[cfg(feature = "_compression")]
pub(crate) use flatpath_layers::Encoding;

/// What compresses files.
#[derive(Clone, Debug)]
pub(crate) struct Compressor(Compression);

impl Compressor {
    #[cfg(feature = "_compression")]
    pub(crate) fn new(compression: Compression) -> Self {
        Self(compression)
    }

    /// The forms that files have where this compresses.
    #[cfg(feature = "_compression")]
    pub(crate) fn forms(&self) -> Forms {
        Forms::compressed(self.0.offered())
    }

    /// What may compress the answer to this request: nothing a part of a file, as parts are of the
    /// file as it is. A HEAD is answered as its GET would be, whose `Range` it cannot have (RFC
    /// 9110, 14.2).
    pub(crate) fn of_request<'a>(of: Option<&'a Self>, request: &Request) -> Option<&'a Self> {
        let is_part =
            *request.method() == Method::GET && request.headers().contains_key(header::RANGE);
        of.filter(|_| !is_part)
    }

    /// Whether a file at this path is worth compressing; not what has a coding already.
    pub(crate) fn is_worth(&self, path: &[u8], media: &HeaderValue, bytes: u64) -> bool {
        bytes <= COMPRESS_FILE_BYTES_MAX
            && !media::is_gzipped(name_of(path))
            && self.0.is_worth(media, Some(bytes))
    }

    pub(crate) fn offers(&self, coding: ContentCoding) -> bool {
        self.0.offered().any(|offered| offered == coding)
    }

    /// `None` where as many files as may be are being compressed, or memory is short. The hold is
    /// for the content of one that is compressed at once, and what becomes of it.
    pub(crate) fn begin(&self, coding: ContentCoding, bytes: u64) -> Option<(Encoding, ShareHold)> {
        let whole_bytes = match bytes > COMPRESS_WHOLE_BYTES_MAX {
            true => 0,
            false => 2 * usize::try_from(bytes).ok()?,
        };
        let memory = self.0.hold(whole_bytes)?;
        Some((self.0.begin(coding, Some(bytes))?, memory))
    }
}

/// A page that was made for this request, compressed where that is on.
pub(crate) fn page(compressor: Option<&Compressor>, request: &Request, page: Response) -> Response {
    #[cfg(feature = "_compression")]
    if let Some(Compressor(compression)) = compressor {
        use crate::headers::Headers;
        use flatpath_http::header_values::AcceptEncoding;

        let forms: Vec<_> = compression
            .offered()
            .chain([ContentCoding::Identity])
            .collect();
        let accepted = request.headers().all(&header::ACCEPT_ENCODING);
        return compression.apply(AcceptEncoding::parse(accepted, &forms), page);
    }
    #[cfg(not(feature = "_compression"))]
    let _ = (compressor, request);
    page
}

/// What there is without a coding: none of it can be made.
#[cfg(not(feature = "_compression"))]
mod absent {
    use std::convert::Infallible;
    use std::io;

    use flatpath::memory::ShareHold;
    use flatpath_http::Reader;
    use flatpath_http::header_values::ContentCoding;
    use http::header::HeaderValue;

    #[derive(Clone, Debug)]
    pub(crate) struct Compression(Infallible);

    #[derive(Debug)]
    pub(crate) struct Encoding(Infallible);

    impl Compression {
        pub(crate) fn is_worth(&self, _: &HeaderValue, _: Option<u64>) -> bool {
            match self.0 {}
        }

        pub(crate) fn offered(&self) -> std::iter::Empty<ContentCoding> {
            match self.0 {}
        }

        pub(crate) fn begin(&self, _: ContentCoding, _: Option<u64>) -> Option<Encoding> {
            match self.0 {}
        }

        pub(crate) fn hold(&self, _: usize) -> Option<ShareHold> {
            match self.0 {}
        }
    }

    impl Encoding {
        pub(crate) fn whole(self, _: &[u8]) -> io::Result<Vec<u8>> {
            match self.0 {}
        }

        pub(crate) fn reader(self, _: Reader) -> Reader {
            match self.0 {}
        }
    }
}
