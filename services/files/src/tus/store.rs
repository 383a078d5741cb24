//! The directory of records: `.flatpath-uploads` in the root, one file per upload, by its number.
//!
//! The bytes are not here but beside their target, so that naming the file at the end stays within
//! one file system. One directory of records lists what there is without a walk through the tree.
//!
//! A record is written to a file of its own and renamed, so that a reader sees it whole; with
//! [`Durability::Disk`] file and directory are synced. A crash leaves at most such a file, which
//! the sweep removes.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::time::SystemTime;

use http::StatusCode;
use rustix::fs::{AtFlags, Mode, OFlags, Stat};
use rustix::io::Errno;
use rustix::rand::{GetRandomFlags, getrandom};

use crate::identity::Identity;
use crate::limits::{RECORD_BYTES_MAX, STORE_TRIES_MAX};
use crate::publish::sync_directory;
use crate::responses::Result;
use crate::root::Root;
use crate::writing::Durability;

use super::record::Record;

/// The directory's name in the root, which is part of each upload's address.
pub(super) const DIRECTORY: &[u8] = b".flatpath-uploads";

const DIGITS: usize = 32;

/// An upload's number: 128 random bits as hexadecimal digits, which only its client knows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Id(String);

impl Id {
    pub(super) fn parse(digits: &[u8]) -> Option<Self> {
        let is_hex = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_id = digits.len() == DIGITS && digits.iter().all(is_hex);
        let digits = std::str::from_utf8(digits).ok().filter(|_| is_id)?;
        Some(Self(digits.into()))
    }

    pub(super) fn fresh() -> Result<Self> {
        let mut random = [0; DIGITS / 2];
        match getrandom(&mut random, GetRandomFlags::empty()) {
            Ok(filled) if filled == random.len() => {}
            _ => return Err(StatusCode::SERVICE_UNAVAILABLE.into()),
        }
        Ok(Self(format!("{:032x}", u128::from_ne_bytes(random))))
    }

    pub(super) fn digits(&self) -> &str {
        &self.0
    }

    /// The hidden name of the file that takes the bytes.
    pub(super) fn data_name(&self) -> Vec<u8> {
        format!(".flatpath-upload-{}", self.digits()).into_bytes()
    }

    /// Where clients reach the upload.
    pub(super) fn address(&self) -> String {
        let directory = String::from_utf8_lossy(DIRECTORY);
        format!("/{directory}/{}", self.digits())
    }
}

pub(super) struct Store {
    directory: File,
}

pub(super) struct Listed {
    pub(super) uploads: Vec<Id>,
    /// Files of records that were never finished.
    pub(super) leftovers: Vec<Vec<u8>>,
}

impl Store {
    /// `None` where no upload ever was.
    pub(super) fn open(root: &Root) -> Result<Option<Self>> {
        let home = root.find(b"")?.file;
        Self::open_in(&home)
    }

    fn open_in(home: &File) -> Result<Option<Self>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::openat(home, DIRECTORY, flags, Mode::empty()) {
            Ok(directory) => Ok(Some(Self {
                directory: directory.into(),
            })),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    /// Opens the directory, and makes it where there is none.
    pub(super) fn create(root: &Root, durability: Durability) -> Result<Self> {
        let home = root.find(b"")?.file;
        // The sweep removes it when it is empty, also between the two calls.
        for _ in 0..STORE_TRIES_MAX {
            if let Some(store) = Self::open_in(&home)? {
                return Ok(store);
            }
            match rustix::fs::mkdirat(&home, DIRECTORY, Mode::from_raw_mode(0o700)) {
                Ok(()) => sync_directory(&home, durability)?,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Err(StatusCode::SERVICE_UNAVAILABLE.into())
    }

    /// Removes the directory if nothing is in it.
    pub(super) fn remove_if_empty(root: &Root) {
        if let Ok(home) = root.find(b"") {
            // Fails with ENOTEMPTY as a rule.
            let _ = rustix::fs::unlinkat(&home.file, DIRECTORY, AtFlags::REMOVEDIR);
        }
    }

    /// The record of an upload; `None` where there is none that can be read.
    pub(super) fn read(&self, id: &Id) -> Result<Option<Record>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let name = id.digits();
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(errno.into()),
        };
        let mut text = String::new();
        match file.take(RECORD_BYTES_MAX).read_to_string(&mut text) {
            Ok(_) => Ok(Record::parse(&text)),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidData => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Replaces the record, or makes it.
    pub(super) fn write(&self, id: &Id, record: &Record, durability: Durability) -> Result<()> {
        // One writer at a time: T2. What a killed one left is overwritten.
        let next = format!("{}.new", id.digits());
        let written = self.write_next(&next, record, durability).and_then(|()| {
            let home = &self.directory;
            Ok(rustix::fs::renameat(home, &next, home, id.digits())?)
        });
        if written.is_err() {
            let _ = rustix::fs::unlinkat(&self.directory, &next, AtFlags::empty());
        }
        written?;
        sync_directory(&self.directory, durability)
    }

    fn write_next(&self, next: &str, record: &Record, durability: Durability) -> Result<()> {
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
        let mode = Mode::from_raw_mode(0o600);
        let file = rustix::fs::openat(&self.directory, next, flags | OFlags::CLOEXEC, mode)?;
        let mut file = File::from(file);
        file.write_all(record.to_text().as_bytes())?;
        Ok(durability.settle(&file)?)
    }

    /// Removes a record, or what else is in the directory.
    pub(super) fn remove(&self, name: &[u8]) -> Result<()> {
        match rustix::fs::unlinkat(&self.directory, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    /// When a file of the directory was last written.
    pub(super) fn written(&self, name: &[u8]) -> Option<SystemTime> {
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        let stat = rustix::fs::statat(&self.directory, name, flags).ok()?;
        time_of(&stat)
    }

    pub(super) fn list(&self) -> Result<Listed> {
        let mut listed = Listed {
            uploads: Vec::new(),
            leftovers: Vec::new(),
        };
        for entry in rustix::fs::Dir::read_from(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            match Id::parse(name) {
                Some(id) => listed.uploads.push(id),
                None if name == b"." || name == b".." => {}
                None => listed.leftovers.push(name.to_vec()),
            }
        }
        Ok(listed)
    }
}

pub(super) fn time_of(stat: &Stat) -> Option<SystemTime> {
    Identity::from_stat(stat).modified.to_system_time()
}
