//! Files that a user names and that are read as a whole: no longer than a bound, whatever they are.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Largest file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The content of a file.
///
/// # Errors
/// It cannot be read, or is too long.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?
        .take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)?;
    if content.len() as u64 > FILE_BYTES_MAX {
        let why = format!("it is larger than {FILE_BYTES_MAX} bytes");
        return Err(io::Error::other(why));
    }
    Ok(content)
}
