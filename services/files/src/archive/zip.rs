//! The zip format, by the crate `zip`: files are stored, their lengths and sums come after them.
//!
//! Memory: what the directory at the end will say of each entry, some hundred bytes and the name.

use std::io::{self, Write};
use std::sync::Arc;

use flatpath::lock::Lock;
use zip::write::{SimpleFileOptions, StreamWriter, ZipWriter};
use zip::{CompressionMethod, DateTime};

use super::names::safe_path;
use super::stream::Frame;
use crate::identity::Stamp;

/// From this length on a file has ZIP64 headers, as 32 bits would not do.
const LARGE_BYTES: u64 = u32::MAX as u64;

pub(super) struct Zip {
    writer: ZipWriter<StreamWriter<Outlet>>,
    outlet: Outlet,
}

/// Where the writer's output goes, which it does not give back.
#[derive(Clone)]
struct Outlet(Arc<Lock<Vec<u8>>>);

impl Write for Outlet {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Zip {
    pub(super) fn new() -> Self {
        let outlet = Outlet(Arc::new(Lock::new(Vec::new())));
        let writer = ZipWriter::new_stream(outlet.clone());
        Self { writer, outlet }
    }
}

fn options(modified: Stamp) -> SimpleFileOptions {
    let options = SimpleFileOptions::default().compression_method(CompressionMethod::Stored);
    options.last_modified_time(time_of(modified).unwrap_or_default())
}

/// In UTC, as the format has no zone; `None` before 1980 and after 2107.
fn time_of(stamp: Stamp) -> Option<DateTime> {
    // `2026-11-21T04:05:06Z`
    let text = stamp.to_rfc3339()?;
    let number = |from: usize, to: usize| text.get(from..to)?.parse::<u8>().ok();
    let year = text.get(..4)?.parse().ok()?;
    let (month, day) = (number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    DateTime::from_date_and_time(year, month, day, hour, minute, second).ok()
}

impl Frame for Zip {
    fn directory(&mut self, path: &[u8], modified: Stamp) -> io::Result<()> {
        let options = options(modified).unix_permissions(0o755);
        self.writer.add_directory(safe_path(path), options)?;
        Ok(())
    }

    fn file(&mut self, path: &[u8], bytes: u64, modified: Stamp) -> io::Result<()> {
        let options = options(modified)
            .unix_permissions(0o644)
            .large_file(bytes >= LARGE_BYTES);
        self.writer.start_file(safe_path(path), options)?;
        Ok(())
    }

    fn content(&mut self, content: &[u8]) -> io::Result<()> {
        self.writer.write_all(content)
    }

    /// The next entry ends it, or the end.
    fn end_file(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        let empty = Zip::new().writer;
        std::mem::replace(&mut self.writer, empty).finish()?;
        Ok(())
    }

    fn states_length_first(&self) -> bool {
        false
    }

    fn swap_output(&mut self, output: &mut Vec<u8>) {
        std::mem::swap(&mut *self.outlet.0.lock(), output);
    }
}
