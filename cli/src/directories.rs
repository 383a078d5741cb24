//! What `flatpath serve` shows of directories, and which files it compresses.

use flatpath_files::{ArchiveFormat, Files, Listing};
use flatpath_http::header_values::ContentCoding;
use flatpath_layers::Compression;

use crate::failure::Failure;
use crate::memory::Parts;
use crate::settings::{self, Compress, Settings};

/// The same files with these settings.
///
/// # Errors
/// Those of [`codings`].
pub(crate) fn with_settings(
    files: Files,
    settings: &Settings,
    parts: &Parts,
) -> Result<Files, Failure> {
    let files = files.listing(match settings.listing {
        None | Some(settings::Listing::On) => Listing::On,
        Some(settings::Listing::Json) => Listing::Json,
        Some(settings::Listing::Off) => Listing::Off,
    });
    let files = files.archives(settings.archive.iter().map(|format| match format {
        settings::Archive::Tar => ArchiveFormat::Tar,
        settings::Archive::Zip => ArchiveFormat::Zip,
    }));
    let codings = codings(settings)?;
    if codings.is_empty() {
        return Ok(files);
    }
    let compression = Compression::new().codings(codings);
    Ok(files.compress(compression.streams_max(parts.compressed_max)))
}

/// The codings that files are compressed with, the best first.
///
/// # Errors
/// `off` stands beside others.
pub(crate) fn codings(settings: &Settings) -> Result<Vec<ContentCoding>, Failure> {
    let named = &settings.compress;
    if named.contains(&Compress::Off) && named.iter().any(|it| *it != Compress::Off) {
        return Err(Failure::WrongUse(
            "--compress off excludes other codings; name those that are wanted, or off".into(),
        ));
    }
    let coding = |it: &Compress| match it {
        Compress::Zstd => Some(ContentCoding::Zstd),
        Compress::Br => Some(ContentCoding::Brotli),
        Compress::Gzip => Some(ContentCoding::Gzip),
        Compress::Off => None,
    };
    Ok(named.iter().filter_map(coding).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codings_keep_their_order_and_off_stands_alone() {
        let codings = |compress: &[Compress]| {
            codings(&Settings {
                compress: compress.to_vec(),
                ..Settings::default()
            })
        };
        assert_eq!(codings(&[]).expect("none"), []);
        assert_eq!(codings(&[Compress::Off]).expect("none"), []);
        assert_eq!(
            codings(&[Compress::Gzip, Compress::Zstd]).expect("two"),
            [ContentCoding::Gzip, ContentCoding::Zstd]
        );
        assert!(codings(&[Compress::Gzip, Compress::Off]).is_err());
    }
}
