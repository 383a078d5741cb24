//! What `flatpath serve` shows of directories, and which files it compresses.

use flatpath_files::{Files, Listing};
use flatpath_http::header_values::ContentCoding;

use crate::memory::Parts;
use crate::settings::{self, Compress, Settings};

/// The same files with these settings.
pub(crate) fn with_settings(files: Files, settings: &Settings, parts: &Parts) -> Files {
    let files = files.listing(listing(settings));
    compressing(with_archives(files, settings, parts), settings, parts)
}

/// They can be downloaded as archives. A build without these takes no format (`built.rs`).
fn with_archives(files: Files, settings: &Settings, parts: &Parts) -> Files {
    #[cfg(feature = "archives")]
    let files = files.archives(settings.archive.iter().map(|format| match format {
        settings::Archive::Tar => flatpath_files::ArchiveFormat::Tar,
        settings::Archive::Zip => flatpath_files::ArchiveFormat::Zip,
    }));
    #[cfg(not(feature = "archives"))]
    debug_assert!(settings.archive.is_empty(), "it is not built");
    files.archive_memory(parts.occasional.archives.clone())
}

/// They are compressed while they are sent. A build without a coding takes none (`built.rs`).
#[cfg(any(feature = "brotli", feature = "gzip", feature = "zstd"))]
fn compressing(files: Files, settings: &Settings, parts: &Parts) -> Files {
    let codings = codings(settings);
    if codings.is_empty() {
        return files;
    }
    let compression = flatpath_layers::Compression::new().codings(codings);
    // Their memory is the bound.
    let compression = compression.streams_max(usize::MAX);
    files.compress(compression.memory(parts.occasional.compress.clone()))
}

#[cfg(not(any(feature = "brotli", feature = "gzip", feature = "zstd")))]
fn compressing(files: Files, settings: &Settings, parts: &Parts) -> Files {
    debug_assert!(codings(settings).is_empty(), "none is built");
    let _unused = &parts.occasional.compress;
    files
}

/// What a directory without an index gets.
pub(crate) fn listing(settings: &Settings) -> Listing {
    match settings.listing {
        None | Some(settings::Listing::On) => Listing::On,
        Some(settings::Listing::Json) => Listing::Json,
        Some(settings::Listing::Off) => Listing::Off,
    }
}

/// The codings that files are compressed with, the best first.
fn codings(settings: &Settings) -> Vec<ContentCoding> {
    let coding = |it: &Compress| match it {
        Compress::Zstd => Some(ContentCoding::Zstd),
        Compress::Br => Some(ContentCoding::Brotli),
        Compress::Gzip => Some(ContentCoding::Gzip),
        Compress::Off => None,
    };
    settings.compress.iter().filter_map(coding).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_keep_their_order() {
        let codings = |compress: &[Compress]| {
            codings(&Settings {
                compress: compress.to_vec(),
                ..Settings::default()
            })
        };
        assert_eq!(codings(&[]), []);
        assert_eq!(codings(&[Compress::Off]), []);
        assert_eq!(
            codings(&[Compress::Gzip, Compress::Zstd]),
            [ContentCoding::Gzip, ContentCoding::Zstd]
        );
    }
}
