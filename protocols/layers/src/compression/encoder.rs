//! The encoders behind one face: bytes in, compressed bytes out.
//!
//! Memory of one beside its output, as measured: gzip 0.3 MiB, zstd 0.3 MiB, brotli 4 MiB; at
//! [`Effort::Most`] zstd 8 MiB, brotli 5.5 MiB ([`memory_bytes`] has bounds). Windows are no longer
//! than the content where its length is known.

use std::io::{self, Write};
use std::mem;

use flatpath_http::header_values::ContentCoding;

/// The codings that there are, in the order that this server would choose: zstd takes a tenth of
/// the time of the others for about the same length, and brotli's is shorter than gzip's.
pub(super) const CODINGS: &[ContentCoding] = &[
    #[cfg(feature = "zstd")]
    ContentCoding::Zstd,
    #[cfg(feature = "brotli")]
    ContentCoding::Brotli,
    #[cfg(feature = "gzip")]
    ContentCoding::Gzip,
];

/// The largest window, as a power of two: 256 KiB. Larger ones gain little in what is sent once,
/// and are most of an encoder's memory.
const WINDOW_BITS_MAX: u32 = 18;

/// How much time is spent on compression.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Effort {
    /// As little as can be: for servers whose processors are busy.
    Least,
    /// What most servers of pages choose.
    #[default]
    Balanced,
    /// Several times as much as balanced, for some percent less to send.
    Most,
}

impl Effort {
    fn of<T>(self, least: T, balanced: T, most: T) -> T {
        match self {
            Self::Least => least,
            Self::Balanced => balanced,
            Self::Most => most,
        }
    }
}

pub(super) enum Encoder {
    #[cfg(feature = "brotli")]
    Brotli(Box<brotli::CompressorWriter<Vec<u8>>>),
    #[cfg(feature = "zstd")]
    Zstd(zstd::stream::write::Encoder<'static, Vec<u8>>),
    #[cfg(feature = "gzip")]
    Gzip(flate2::write::GzEncoder<Vec<u8>>),
}

impl Encoder {
    /// An encoder of content of that length, where it is known.
    ///
    /// # Errors
    /// There is no memory for it, or the coding is not in [`CODINGS`].
    pub(super) fn new(
        coding: ContentCoding,
        effort: Effort,
        length: Option<u64>,
    ) -> io::Result<Self> {
        let window_bits = window_bits(length);
        // The window of gzip is fixed.
        #[cfg(not(any(feature = "brotli", feature = "zstd")))]
        let _ = window_bits;
        match coding {
            #[cfg(feature = "brotli")]
            ContentCoding::Brotli => Ok(Self::Brotli(Box::new(brotli::CompressorWriter::new(
                Vec::new(),
                4096,
                effort.of(1, 4, 9),
                window_bits,
            )))),
            #[cfg(feature = "zstd")]
            ContentCoding::Zstd => {
                let level = effort.of(1, 3, 9);
                let mut encoder = zstd::stream::write::Encoder::new(Vec::new(), level)?;
                encoder.window_log(window_bits)?;
                // Its tables are as long as this needs; it is exact, as a `Reader` is.
                encoder.set_pledged_src_size(length)?;
                Ok(Self::Zstd(encoder))
            }
            #[cfg(feature = "gzip")]
            ContentCoding::Gzip => {
                let level = flate2::Compression::new(effort.of(1, 6, 9));
                Ok(Self::Gzip(flate2::write::GzEncoder::new(Vec::new(), level)))
            }
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Takes content in.
    ///
    /// # Errors
    /// Those of the encoder.
    pub(super) fn write(&mut self, content: &[u8]) -> io::Result<()> {
        self.writer().write_all(content)
    }

    /// Puts out all that was taken in.
    ///
    /// # Errors
    /// Those of the encoder.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        self.writer().flush()
    }

    /// After this many bytes of content without output a flush is due: about a millisecond of
    /// a processor at [`Effort::Balanced`], so that a stream keeps its worker no longer at a time.
    /// Of sources in Rust it makes gzip's form 0.4 % longer.
    pub(super) fn silent_bytes_max(&self) -> usize {
        match self {
            #[cfg(feature = "brotli")]
            Self::Brotli(_) => 32 * 1024,
            #[cfg(feature = "zstd")]
            Self::Zstd(_) => 256 * 1024,
            #[cfg(feature = "gzip")]
            Self::Gzip(_) => 32 * 1024,
        }
    }

    /// What has been put out since the last time.
    pub(super) fn take_output(&mut self) -> Vec<u8> {
        mem::take(self.output())
    }

    /// Ends the content: the rest of the output.
    ///
    /// # Errors
    /// Those of the encoder.
    pub(super) fn finish(self) -> io::Result<Vec<u8>> {
        match self {
            #[cfg(feature = "brotli")]
            Self::Brotli(encoder) => Ok(encoder.into_inner()),
            #[cfg(feature = "zstd")]
            Self::Zstd(encoder) => encoder.finish(),
            #[cfg(feature = "gzip")]
            Self::Gzip(encoder) => encoder.finish(),
        }
    }

    fn writer(&mut self) -> &mut dyn Write {
        match self {
            #[cfg(feature = "brotli")]
            Self::Brotli(encoder) => encoder,
            #[cfg(feature = "zstd")]
            Self::Zstd(encoder) => encoder,
            #[cfg(feature = "gzip")]
            Self::Gzip(encoder) => encoder,
        }
    }

    fn output(&mut self) -> &mut Vec<u8> {
        match self {
            #[cfg(feature = "brotli")]
            Self::Brotli(encoder) => encoder.get_mut(),
            #[cfg(feature = "zstd")]
            Self::Zstd(encoder) => encoder.get_mut(),
            #[cfg(feature = "gzip")]
            Self::Gzip(encoder) => encoder.get_mut(),
        }
    }
}

/// The most memory of an encoder beside its output, in bytes.
pub(super) fn memory_bytes(coding: ContentCoding, effort: Effort) -> usize {
    const KIB: usize = 1 << 10;
    let kib = match coding {
        ContentCoding::Brotli => effort.of(4096, 4096, 6144),
        ContentCoding::Zstd => effort.of(1536, 1536, 9216),
        _ => 512,
    };
    kib * KIB
}

/// The window for content of that length: the next power of two.
fn window_bits(length: Option<u64>) -> u32 {
    /// Every coding has windows from here on.
    const WINDOW_BITS_MIN: u32 = 10;
    let bits = length
        .and_then(u64::checked_next_power_of_two)
        .map(u64::ilog2);
    bits.unwrap_or(WINDOW_BITS_MAX)
        .clamp(WINDOW_BITS_MIN, WINDOW_BITS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_is_no_longer_than_the_content() {
        for (length, bits) in [
            (None, 18),
            (Some(0), 10),
            (Some(1024), 10),
            (Some(1025), 11),
            (Some(1 << 18), 18),
            (Some(u64::MAX), 18),
        ] {
            assert_eq!(window_bits(length), bits, "{length:?}");
        }
    }
}
