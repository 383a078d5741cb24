//! What [`Files`] does with directories, and whether it compresses.

use flatpath::memory::SharePart;
#[cfg(feature = "_compression")]
use flatpath_layers::Compression;

use super::Files;
use crate::archive::{ArchiveFormat, Archives};
#[cfg(feature = "_compression")]
use crate::compress::Compressor;
use crate::listing::Listing;

impl Files {
    /// Sets what a GET of a directory without `index.html` gets: [`Listing::On`] by default.
    #[must_use]
    pub fn listing(self, listing: Listing) -> Self {
        Self { listing, ..self }
    }

    /// Lets clients download directories as archives of these formats, with all that is below them:
    /// `?archive=tar` after a directory's address, as its listing links to. Where there is an
    /// `index.html`, or no listing, there is no archive, either. None by default, as one request
    /// has the server read a whole tree.
    ///
    /// A directory with more than [`ARCHIVE_TAR_ENTRIES_MAX`] or [`ARCHIVE_ZIP_ENTRIES_MAX`]
    /// entries, or with a file that this process may not read, is refused (403). At most
    /// [`ARCHIVES_MAX`] are made at a time: the next client gets a 503 with `Retry-After`, unless
    /// its address has few of them; then one that has lasted long for another address is broken off
    /// for it. So one address may have all that no other wants. The addresses of clients are looked
    /// up for that.
    ///
    /// [`ARCHIVES_MAX`]: crate::limits::ARCHIVES_MAX
    /// [`ARCHIVE_TAR_ENTRIES_MAX`]: crate::limits::ARCHIVE_TAR_ENTRIES_MAX
    /// [`ARCHIVE_ZIP_ENTRIES_MAX`]: crate::limits::ARCHIVE_ZIP_ENTRIES_MAX
    #[must_use]
    pub fn archives(self, formats: impl IntoIterator<Item = ArchiveFormat>) -> Self {
        let files = Self {
            archives: Archives::of(formats).within(self.archives.memory),
            ..self
        };
        files.planned()
    }

    /// Takes the memory of archives from this part of a share, in turn with all else that has it,
    /// such as other directories: [`ARCHIVE_BYTES_MAX`](crate::limits::ARCHIVE_BYTES_MAX) for each.
    /// One that finds none gets a 503 with `Retry-After`. No bound unless it is set.
    #[must_use]
    pub fn archive_memory(mut self, part: SharePart) -> Self {
        self.archives.memory = part;
        self
    }

    /// Compresses files while they are served, for clients that take it: with these codings,
    /// and what is worth it by this [`Compression`]. Listings are compressed, too. Nothing is
    /// unless this is said.
    ///
    /// - A sibling that was compressed before (`a.css.br`, `a.css.gz`, and with this
    ///   `a.css.zst`) is sent in its place.
    /// - A file up to [`COMPRESS_WHOLE_BYTES_MAX`](crate::limits::COMPRESS_WHOLE_BYTES_MAX) is
    ///   compressed at once and kept in the cache of the network thread, until it changes; one
    ///   up to [`COMPRESS_FILE_BYTES_MAX`](crate::limits::COMPRESS_FILE_BYTES_MAX) while it is
    ///   sent, each time; a longer one is sent as it is.
    /// - Each coding has an entity tag of its own, which is weak: another version of this
    ///   program may compress to other bytes.
    /// - A request with `Range` gets the file as it is, or a part of it.
    /// - Beyond [`Compression::streams_max`] files at a time, or the memory of
    ///   [`Compression::memory`], further ones are sent as they are. A file that is compressed
    ///   at once takes twice its length from there, beside its encoder.
    ///
    /// **Do not compress secrets beside what a client chooses** (BREACH). Files repeat no part
    /// of a request, but the name of a listed directory may be a client's.
    ///
    /// ```no_run
    /// use flatpath_files::Files;
    /// use flatpath_layers::Compression;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// let files = Files::open("public".as_ref())?.compress(Compression::new());
    /// # let _ = files;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "_compression")]
    #[must_use]
    pub fn compress(self, compression: Compression) -> Self {
        let compressor = Compressor::new(compression);
        Self {
            forms: compressor.forms(),
            compressor: Some(compressor),
            ..self
        }
    }
}
