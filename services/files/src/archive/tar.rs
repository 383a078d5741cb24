//! The tar format: the crate `tar` writes the headers, among them those of long names, and the
//! content goes between them.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;

use tar::{Builder, EntryType, Header};

use super::stream::Frame;
use crate::identity::Stamp;

/// What headers and content are filled up to.
const BLOCK_BYTES: u64 = 512;

pub(super) struct Tar {
    builder: Builder<Vec<u8>>,
    /// Of the file that was begun.
    content_bytes: u64,
}

impl Default for Tar {
    fn default() -> Self {
        Self {
            builder: Builder::new(Vec::new()),
            content_bytes: 0,
        }
    }
}

impl Tar {
    fn entry(
        &mut self,
        path: &[u8],
        kind: EntryType,
        bytes: u64,
        modified: Stamp,
    ) -> io::Result<()> {
        let mut header = Header::new_gnu();
        header.set_entry_type(kind);
        header.set_size(bytes);
        header.set_mode(match kind {
            EntryType::Directory => 0o755,
            _ => 0o644,
        });
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(u64::try_from(modified.seconds).unwrap_or(0));
        // Its content comes later, in pieces.
        let no_content = io::empty();
        self.builder
            .append_data(&mut header, OsStr::from_bytes(path), no_content)
    }
}

impl Frame for Tar {
    fn directory(&mut self, path: &[u8], modified: Stamp) -> io::Result<()> {
        let path = [path, b"/"].concat();
        self.entry(&path, EntryType::Directory, 0, modified)
    }

    fn file(&mut self, path: &[u8], bytes: u64, modified: Stamp) -> io::Result<()> {
        self.content_bytes = 0;
        self.entry(path, EntryType::Regular, bytes, modified)
    }

    fn content(&mut self, content: &[u8]) -> io::Result<()> {
        self.content_bytes += content.len() as u64;
        self.builder.get_mut().extend_from_slice(content);
        Ok(())
    }

    fn end_file(&mut self) -> io::Result<()> {
        let padding = self.content_bytes.next_multiple_of(BLOCK_BYTES) - self.content_bytes;
        let output = self.builder.get_mut();
        output.resize(output.len() + padding as usize, 0);
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.builder.finish()
    }

    fn states_length_first(&self) -> bool {
        true
    }

    fn swap_output(&mut self, output: &mut Vec<u8>) {
        std::mem::swap(self.builder.get_mut(), output);
    }
}
