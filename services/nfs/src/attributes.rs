//! Attributes of a file: `fattr3`, `wcc_data` and `sattr3` (RFC 1813 section 2.5 and 2.6).

use std::ffi::CStr;
use std::time::Duration;

use flatpath::prompt::FileTimes;
use flatpath_rpc::xdr::{Malformed, Reader, Writer};
use rustix::fd::AsFd;
use rustix::fs::{AtFlags, FileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp};
use rustix::fs::{Timespec, UTIME_NOW, UTIME_OMIT};

use crate::handle::FileKey;
use crate::status::Status;

/// Bytes of `post_op_attr` with attributes.
pub(crate) const POST_OP_BYTES: usize = 4 + 84;

/// A point in time as NFSv3 has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Time {
    pub(crate) seconds: u32,
    pub(crate) nanoseconds: u32,
}

impl Time {
    /// By the clock that files have their times from, which stands still between the kernel's
    /// ticks: what is changed from now on gets this time or a later one, however late a tick is.
    pub(crate) fn now() -> Time {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        Time {
            seconds: nearest(now.tv_sec),
            nanoseconds: u32::try_from(now.tv_nsec).unwrap_or_default(),
        }
    }

    /// True when this was less than `age` ago, or has yet to come.
    pub(crate) fn is_recent(self, age: Duration) -> bool {
        let duration = |time: Time| Duration::new(time.seconds.into(), time.nanoseconds);
        duration(Time::now())
            .checked_sub(duration(self))
            .is_none_or(|passed| passed < age)
    }

    fn new(time: StatxTimestamp) -> Time {
        Time {
            seconds: nearest(time.tv_sec),
            nanoseconds: time.tv_nsec,
        }
    }

    fn write(self, writer: &mut Writer<'_>) {
        writer.u32(self.seconds);
        writer.u32(self.nanoseconds);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Time, Malformed> {
        let time = Time {
            seconds: reader.u32()?,
            nanoseconds: reader.u32()?,
        };
        if time.nanoseconds < 1_000_000_000 {
            Ok(time)
        } else {
            Err(Malformed)
        }
    }
}

/// Before 1970 and after 2106 the protocol has no value; the nearest one is sent instead.
fn nearest(seconds: i64) -> u32 {
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// `fattr3`, read in one system call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attributes {
    pub(crate) kind: FileType,
    pub(crate) mode: u32,
    /// Names.
    pub(crate) links: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) size: u64,
    /// Bytes on disk.
    pub(crate) used: u64,
    /// Major and minor number of a device.
    pub(crate) device: (u32, u32),
    pub(crate) key: FileKey,
    /// Of its file system: major and minor number. Each subvolume of btrfs has its own, and an
    /// overlay shows for what is no directory that of the layer.
    pub(crate) system: (u32, u32),
    pub(crate) accessed: Time,
    pub(crate) modified: Time,
    /// Last changed in any way.
    pub(crate) changed: Time,
}

impl Attributes {
    /// The attributes of an open file, `O_PATH` or not.
    pub(crate) fn of(file: impl AsFd) -> Result<Attributes, Status> {
        let found = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, WANTED)?;
        Ok(Attributes::from(&found))
    }

    /// The attributes of what a name stands for in an open directory, as the calling thread may
    /// know them; nothing where something is mounted there, or the kernel does not say.
    pub(crate) fn of_name(directory: impl AsFd, name: &CStr) -> Result<Option<Attributes>, Status> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = rustix::fs::statx(directory, name, flags, WANTED)?;
        let mount = StatxAttributes::MOUNT_ROOT;
        let here =
            found.stx_attributes_mask.contains(mount) && !found.stx_attributes.contains(mount);
        Ok(here.then(|| Attributes::from(&found)))
    }
}

const WANTED: StatxFlags = StatxFlags::BASIC_STATS.union(StatxFlags::BTIME);

impl From<&Statx> for Attributes {
    fn from(found: &Statx) -> Attributes {
        let born = found.stx_mask & StatxFlags::BTIME.bits() != 0;
        let birth_ns = if born {
            let seconds = found.stx_btime.tv_sec.cast_unsigned();
            seconds
                .wrapping_mul(1_000_000_000)
                .wrapping_add(u64::from(found.stx_btime.tv_nsec))
        } else {
            0
        };
        Attributes {
            kind: FileType::from_raw_mode(found.stx_mode.into()),
            mode: u32::from(found.stx_mode) & 0o7777,
            links: found.stx_nlink,
            user: found.stx_uid,
            group: found.stx_gid,
            size: found.stx_size,
            used: found.stx_blocks.saturating_mul(512),
            device: (found.stx_rdev_major, found.stx_rdev_minor),
            key: FileKey {
                inode: found.stx_ino,
                birth_ns,
            },
            system: (found.stx_dev_major, found.stx_dev_minor),
            accessed: Time::new(found.stx_atime),
            modified: Time::new(found.stx_mtime),
            changed: Time::new(found.stx_ctime),
        }
    }
}

impl Attributes {
    /// Times that the protocol has no value for are taken as the nearest ones.
    pub(crate) fn times(&self) -> FileTimes {
        let pair = |time: Time| (i64::from(time.seconds), time.nanoseconds);
        FileTimes {
            accessed: pair(self.accessed),
            modified: pair(self.modified),
            changed: pair(self.changed),
        }
    }

    /// `ftype3`.
    fn kind_number(&self) -> u32 {
        match self.kind {
            FileType::Directory => 2,
            FileType::BlockDevice => 3,
            FileType::CharacterDevice => 4,
            FileType::Symlink => 5,
            FileType::Socket => 6,
            FileType::Fifo => 7,
            FileType::RegularFile | FileType::Unknown => 1,
        }
    }

    /// Writes `fattr3`; `system` is the number of the export.
    pub(crate) fn write(&self, writer: &mut Writer<'_>, system: u64) {
        writer.u32(self.kind_number());
        writer.u32(self.mode);
        writer.u32(self.links);
        writer.u32(self.user);
        writer.u32(self.group);
        writer.u64(self.size);
        writer.u64(self.used);
        writer.u32(self.device.0);
        writer.u32(self.device.1);
        writer.u64(system);
        writer.u64(self.key.inode);
        self.accessed.write(writer);
        self.modified.write(writer);
        self.changed.write(writer);
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }
}

pub(crate) fn write_after(writer: &mut Writer<'_>, after: Option<&Attributes>, system: u64) {
    writer.boolean(after.is_some());
    if let Some(after) = after {
        after.write(writer, system);
    }
}

/// `wcc_data`: what a file was before a change and what it is after it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    /// Before; left out where nothing keeps other changes from coming between.
    pub(crate) before: Option<Attributes>,
    pub(crate) after: Option<Attributes>,
}

impl Change {
    pub(crate) fn write(&self, writer: &mut Writer<'_>, system: u64) {
        writer.boolean(self.before.is_some());
        if let Some(before) = &self.before {
            writer.u64(before.size);
            before.modified.write(writer);
            before.changed.write(writer);
        }
        write_after(writer, self.after.as_ref(), system);
    }
}

/// One time of `sattr3`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum SetTime {
    #[default]
    Keep,
    Now,
    /// The client's word.
    To(Time),
}

impl SetTime {
    pub(crate) fn timespec(self) -> Timespec {
        let (tv_sec, tv_nsec) = match self {
            SetTime::Keep => (0, UTIME_OMIT),
            SetTime::Now => (0, UTIME_NOW),
            SetTime::To(time) => (time.seconds.into(), time.nanoseconds.into()),
        };
        Timespec { tv_sec, tv_nsec }
    }

    fn read(reader: &mut Reader<'_>) -> Result<SetTime, Malformed> {
        match reader.u32()? {
            0 => Ok(SetTime::Keep),
            1 => Ok(SetTime::Now),
            2 => Ok(SetTime::To(Time::read(reader)?)),
            _ => Err(Malformed),
        }
    }
}

/// `sattr3`: what is to change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct SetAttributes {
    pub(crate) mode: Option<u32>,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: SetTime,
    pub(crate) modified: SetTime,
}

impl SetAttributes {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<SetAttributes, Malformed> {
        Ok(SetAttributes {
            mode: optional(reader, Reader::u32)?.map(|mode| mode & 0o7777),
            user: optional(reader, Reader::u32)?,
            group: optional(reader, Reader::u32)?,
            size: optional(reader, Reader::u64)?,
            accessed: SetTime::read(reader)?,
            modified: SetTime::read(reader)?,
        })
    }
}

/// Reads what a boolean before it says is there.
pub(crate) fn optional<'a, T>(
    reader: &mut Reader<'a>,
    read: impl FnOnce(&mut Reader<'a>) -> Result<T, Malformed>,
) -> Result<Option<T>, Malformed> {
    reader.boolean()?.then(|| read(reader)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_have_the_length_the_protocol_gives_them() {
        let attributes = Attributes::of(std::fs::File::open("/").expect("open")).expect("stat");
        assert!(attributes.is_directory());
        let mut room = [0; 256];
        let mut writer = Writer::new(&mut room);
        write_after(&mut writer, Some(&attributes), 1);
        assert_eq!(writer.written(), POST_OP_BYTES);
        let change = Change {
            before: Some(attributes),
            after: Some(attributes),
        };
        let mut writer = Writer::new(&mut room);
        change.write(&mut writer, 1);
        assert_eq!(writer.written(), 4 + 24 + POST_OP_BYTES);
    }

    #[test]
    fn what_is_made_from_now_on_is_not_older_than_now() {
        for _ in 0..100 {
            let now = Time::now();
            let file = tempfile::tempfile().expect("a file");
            let changed = Attributes::of(&file).expect("stat").changed;
            let parts = |time: Time| (time.seconds, time.nanoseconds);
            assert!(parts(changed) >= parts(now));
        }
    }

    #[test]
    fn what_a_name_stands_for_is_told_unless_something_is_mounted_there() {
        let root = std::fs::File::open("/").expect("open");
        let mounted = Attributes::of_name(&root, c"proc").expect("stat");
        assert!(mounted.is_none(), "of another file system");
        let directory = tempfile::tempdir().expect("a directory");
        std::os::unix::fs::symlink("nowhere", directory.path().join("link")).expect("a link");
        let open = std::fs::File::open(directory.path()).expect("open");
        let link = Attributes::of_name(&open, c"link").expect("stat");
        assert!(link.expect("told").kind == FileType::Symlink);
        assert!(matches!(
            Attributes::of_name(&open, c"no"),
            Err(Status::NoEntry)
        ));
    }

    #[test]
    fn a_change_is_read_as_it_was_written_and_bad_values_are_refused() {
        let words = |words: &[u32]| -> Vec<u8> {
            words.iter().flat_map(|word| word.to_be_bytes()).collect()
        };
        let bytes = words(&[1, 0o100_644, 0, 1, 7, 1, 0, 9, 1, 2, 5, 6]);
        let read = SetAttributes::read(&mut Reader::new(&bytes)).expect("well-formed");
        assert_eq!(read.mode, Some(0o644));
        assert_eq!((read.user, read.group, read.size), (None, Some(7), Some(9)));
        assert_eq!(read.accessed, SetTime::Now);
        assert_eq!(
            read.modified,
            SetTime::To(Time {
                seconds: 5,
                nanoseconds: 6
            })
        );
        let bad = words(&[0, 0, 0, 0, 3, 0]);
        assert!(
            SetAttributes::read(&mut Reader::new(&bad)).is_err(),
            "no such way"
        );
        let bad = words(&[0, 0, 0, 0, 2, 5, 1_000_000_000, 0]);
        assert!(
            SetAttributes::read(&mut Reader::new(&bad)).is_err(),
            "no such time"
        );
    }

    #[test]
    fn times_outside_the_protocol_are_its_nearest_end() {
        assert_eq!(
            (nearest(-5), nearest(5), nearest(1 << 40)),
            (0, 5, u32::MAX)
        );
    }
}
