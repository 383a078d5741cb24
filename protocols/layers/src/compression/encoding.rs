//! Content that is being compressed: at once, or while it is read.

use std::fmt;
use std::io;

use flatpath_http::Reader;

use super::encoder::Encoder;
use super::stream::{Compressed, StreamPlace};

/// Content that is being compressed; [`Compression::begin`](super::Compression::begin) makes it.
/// It counts among those that may be at a time, until it is dropped, or the reader is.
pub struct Encoding {
    encoder: Encoder,
    place: StreamPlace,
}

impl Encoding {
    pub(super) fn new(encoder: Encoder, place: StreamPlace) -> Self {
        Self { encoder, place }
    }

    /// All of the content at once. Takes as long as it takes: not for a network thread.
    ///
    /// # Errors
    /// Those of the encoder: it has no memory, or `content` is not as long as was said.
    pub fn whole(mut self, content: &[u8]) -> io::Result<Vec<u8>> {
        self.encoder.write(content)?;
        self.encoder.finish()
    }

    /// The content compressed while it is read, a chunk at a time, within the limit that `source`
    /// has. What of `source` makes no output is bounded for each read.
    #[must_use]
    pub fn reader(self, source: Reader) -> Reader {
        let Self { encoder, place } = self;
        source.wrap(|source| Compressed::new(source, encoder, place))
    }
}

impl fmt::Debug for Encoding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Encoding").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::super::Compression;
    use super::super::encoder::CODINGS;
    use flatpath_http::Reader;
    use flatpath_http::header_values::ContentCoding;
    use http::HeaderValue;

    fn decoded(coding: ContentCoding, encoded: &[u8]) -> Vec<u8> {
        let mut content = Vec::new();
        let mut decoder: Box<dyn Read> = match coding {
            ContentCoding::Gzip => Box::new(flate2::read::GzDecoder::new(encoded)),
            ContentCoding::Brotli => Box::new(brotli::Decompressor::new(encoded, 4096)),
            _ => Box::new(zstd::Decoder::new(encoded).expect("a decoder")),
        };
        decoder.read_to_end(&mut content).expect("it decodes");
        content
    }

    #[test]
    fn a_place_is_taken_by_what_has_begun_until_its_reader_is_dropped() {
        let compression = Compression::new().streams_max(1);
        let coding = CODINGS[0];
        let begun = compression.begin(coding, None).expect("the first");
        assert!(compression.begin(coding, None).is_none(), "one at a time");
        let reader = begun.reader(Reader::new(Box::new(&b"content"[..]), Some(7)));
        assert!(compression.begin(coding, None).is_none(), "still one");
        drop(reader);
        let again = compression
            .begin(coding, Some(7))
            .expect("it is given back");
        assert!(again.whole(b"content").is_ok());
        assert!(compression.begin(coding, None).is_some());
    }

    #[test]
    fn at_once_and_while_it_is_read_the_content_is_the_same() {
        let content = "flat ".repeat(40_000).into_bytes();
        let compression = Compression::new();
        for coding in CODINGS {
            let length = Some(content.len() as u64);
            let begin = || compression.begin(*coding, length).expect("there is room");
            let whole = begin().whole(&content).expect("it compresses");
            let source = Reader::new(Box::new(std::io::Cursor::new(content.clone())), length);
            let mut read = Vec::new();
            begin()
                .reader(source)
                .read_to_end(&mut read)
                .expect("it compresses");
            for encoded in [whole, read] {
                assert!(encoded.len() < content.len() / 10, "{coding:?}");
                assert!(decoded(*coding, &encoded) == content, "{coding:?}");
            }
        }
    }

    #[test]
    fn what_is_short_or_compressed_already_is_not_worth_it() {
        let compression = Compression::new();
        let media = HeaderValue::from_static;
        assert!(compression.is_worth(&media("text/html; charset=utf-8"), Some(1024)));
        assert!(compression.is_worth(&media("application/json"), None));
        assert!(!compression.is_worth(&media("text/html"), Some(1023)));
        assert!(!compression.is_worth(&media("image/png"), Some(1 << 20)));
        assert!(compression.offered().eq(CODINGS.iter().copied()));
        let named = [
            ContentCoding::Gzip,
            ContentCoding::Identity,
            ContentCoding::Gzip,
        ];
        assert!(
            compression
                .codings(named)
                .offered()
                .eq([ContentCoding::Gzip])
        );
    }
}
