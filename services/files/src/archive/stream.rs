//! The second pass: the bytes of an archive, made as they are read.
//!
//! Memory: a chunk, twice, and what the format keeps. Descriptors: the file that is being read.

use std::io::{self, Read};
use std::sync::Arc;

use flatpath::descriptors::DescriptorHold;
use flatpath::files::SentFile;
use flatpath::memory::Turn;

use super::plan::Plan;
use super::{ArchiveFormat, base_name};
use crate::asker::{Asker, Finder};
use crate::deferred_close::Source;
use crate::error::FilesError;
use crate::identity::Stamp;
use crate::limits::READ_BYTES;
use crate::root::{Kind, Opened, Reach, Root};
use crate::target::joined;

/// How a format frames entries. Its output is taken after each step.
pub(super) trait Frame: Send {
    fn directory(&mut self, path: &[u8], modified: Stamp) -> io::Result<()>;

    /// Begins a file that has at most `bytes` of content.
    fn file(&mut self, path: &[u8], bytes: u64, modified: Stamp) -> io::Result<()>;

    /// The next bytes of the file that was begun last.
    fn content(&mut self, content: &[u8]) -> io::Result<()>;

    fn end_file(&mut self) -> io::Result<()>;

    fn finish(&mut self) -> io::Result<()>;

    /// Whether a file has to have exactly as many bytes as was said.
    fn states_length_first(&self) -> bool;

    /// Exchanges what was put out since the last time for an empty buffer.
    fn swap_output(&mut self, output: &mut Vec<u8>);
}

/// Where the entries of an archive lie.
#[derive(Debug)]
pub(crate) struct Origin {
    pub(crate) root: Arc<Root>,
    /// The directory, beneath the root.
    pub(crate) path: Vec<u8>,
    pub(crate) reach: Reach,
    pub(crate) asker: Asker,
}

impl Origin {
    /// Whatever the first pass was told counts for the second.
    fn find(&self, path: &[u8]) -> Result<Opened, FilesError> {
        let finder = Finder {
            root: &self.root,
            reach: self.reach,
            asker: &self.asker,
        };
        finder.find(path)
    }
}

/// An archive that is read while it is made.
pub(crate) struct Archive {
    origin: Origin,
    plan: Plan,
    frame: Box<dyn Frame>,
    /// The file that is being copied.
    open: Option<OpenFile>,
    room: Box<[u8]>,
    output: Vec<u8>,
    /// What of the output has been read.
    read_bytes: usize,
    is_finished: bool,
    turn: Turn,
    /// Of the file that is open. Given back after it is closed.
    _hold: DescriptorHold,
}

struct OpenFile {
    source: Source,
    offset: u64,
    /// What is still to be copied.
    left: u64,
    /// It has become shorter: zeros take the place of the rest.
    is_short: bool,
}

fn frame(format: ArchiveFormat) -> Box<dyn Frame> {
    match format {
        #[cfg(feature = "archives")]
        ArchiveFormat::Tar => Box::new(super::tar::Tar::default()),
        #[cfg(feature = "archives")]
        ArchiveFormat::Zip => Box::new(super::zip::Zip::new()),
    }
}

impl Archive {
    /// An archive of a directory, which is `directory`.
    ///
    /// # Errors
    /// The name of the directory does not fit the format.
    pub(crate) fn new(
        format: ArchiveFormat,
        origin: Origin,
        directory: &Opened,
        plan: Plan,
        turn: Turn,
        hold: DescriptorHold,
    ) -> io::Result<Self> {
        let mut frame = frame(format);
        frame.directory(base_name(&origin.path), directory.identity.modified)?;
        Ok(Self {
            origin,
            plan,
            frame,
            open: None,
            room: vec![0; READ_BYTES].into(),
            output: Vec::new(),
            read_bytes: 0,
            is_finished: false,
            turn,
            _hold: hold,
        })
    }

    /// Makes the next bytes; none at the end. Bounded: each round has output, or takes an entry.
    fn fill(&mut self) -> io::Result<()> {
        self.output.clear();
        self.read_bytes = 0;
        if self.turn.is_lost() {
            return Err(io::Error::other("another client has its place now"));
        }
        while self.output.is_empty() && !self.is_finished {
            if self.open.is_some() {
                self.copy_chunk()?;
            } else if let Some(path) = self.plan.next().map(<[u8]>::to_vec) {
                self.begin(&path)?;
            } else {
                self.frame.finish()?;
                self.is_finished = true;
            }
            self.frame.swap_output(&mut self.output);
        }
        Ok(())
    }

    /// Begins the entry at `path` below the directory; a slash at its end says that it is one.
    fn begin(&mut self, path: &[u8]) -> io::Result<()> {
        let (path, kind) = match path.strip_suffix(b"/") {
            Some(path) => (path, Kind::Directory),
            None => (path, Kind::File),
        };
        let place = joined(&self.origin.path, path);
        let opened = match self.origin.find(&place) {
            Ok(opened) if opened.kind == kind => opened,
            // It is gone, or something else has its name now.
            Ok(_) | Err(FilesError::NotFound) => return Ok(()),
            // A directory that belongs to another service has come there.
            Err(error) if error.is_of_owner() => return Ok(()),
            Err(error) => {
                let name = String::from_utf8_lossy(&place);
                log::warn!("/{name}: the archive that it is part of is broken off: {error}");
                return Err(io::Error::other(error));
            }
        };
        let name = joined(base_name(&self.origin.path), path);
        let modified = opened.identity.modified;
        if kind == Kind::Directory {
            return self.frame.directory(&name, modified);
        }
        let bytes = opened.identity.size;
        self.frame.file(&name, bytes, modified)?;
        self.open = Some(OpenFile {
            source: Source::new(opened.file, opened.locality, &place, None),
            offset: 0,
            left: bytes,
            is_short: false,
        });
        Ok(())
    }

    /// Copies a part of the open file, or ends it.
    fn copy_chunk(&mut self) -> io::Result<()> {
        let Some(open) = &mut self.open else {
            return Ok(());
        };
        let length = usize::try_from(open.left).unwrap_or(usize::MAX);
        let room = &mut self.room[..length.min(READ_BYTES)];
        let read = match open.is_short {
            true => fill_with_zeros(room),
            false => open.source.read_at(room, open.offset),
        };
        match read {
            Err(cause) if cause.kind() == io::ErrorKind::Interrupted => {}
            Err(cause) => {
                open.source.broke_off(&cause);
                return Err(cause);
            }
            Ok(0) if open.left > 0 && self.frame.states_length_first() => open.is_short = true,
            Ok(0) => {
                self.frame.end_file()?;
                self.open = None;
            }
            Ok(read) => {
                open.offset += read as u64;
                open.left -= read as u64;
                self.frame.content(&room[..read])?;
            }
        }
        Ok(())
    }
}

fn fill_with_zeros(room: &mut [u8]) -> io::Result<usize> {
    room.fill(0);
    Ok(room.len())
}

impl Read for Archive {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        if self.read_bytes == self.output.len() && !room.is_empty() {
            self.fill()?;
        }
        let mut rest = &self.output[self.read_bytes..];
        let bytes = rest.read(room)?;
        self.read_bytes += bytes;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
