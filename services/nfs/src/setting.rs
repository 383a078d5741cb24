//! What a request for attributes comes to, decided whole before anything is changed: SETATTR of a
//! file that is there, and what CREATE, MKDIR, SYMLINK and MKNOD give a new one.
//!
//! [`decide`] takes facts (the file, the caller, what is wanted) and asks the kernel nothing. It
//! gives the [`Plan`] or the [`Refusal`] with its reason. The rules are Linux's: `setattr_prepare`
//! and `may_setattr` in `fs/attr.c`, and what its NFS server adds in `fs/nfsd/vfs.c`: the owner may
//! always set the size (`NFSD_MAY_OWNER_OVERRIDE`), the mode of a symbolic link is left out
//! (`nfsd_sanitize_attrs`), and only a caller that may give files away names the owner or the group
//! of a new one (`nfsd_create_setattr`), so that in a setgid directory it has the directory's.
//!
//! What the kernel alone can say (quota, a read-only or full file system, a size that it cannot
//! have, security modules) is met by the order of [`Plan::steps`]: what cannot be undone, a size,
//! is last of what may be refused. Acting is in `applying.rs`.

use rustix::fs::FileType;

use crate::attributes::{SetAttributes, SetTime};
use crate::identity::{Powers, Who};
use crate::status::Status;

/// Permission bits of what a client makes without naming any.
const FILE_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// Bits that give a program its owner's rights; a new size or owner takes them away.
const SET_ID_BITS: u32 = 0o6000;

/// Bits that mkdir(2) takes (`vfs_mkdir` in `fs/namei.c`): the sticky bit is one of them. The
/// group's bit comes from the directory above.
const MKDIR_BITS: u32 = 0o1777;

/// Numbers of devices have 12 and 20 bits (`include/linux/kdev_t.h`); mknod(2) cuts longer ones.
const MAJOR_MAX: u32 = (1 << 12) - 1;
const MINOR_MAX: u32 = (1 << 20) - 1;

/// The file that attributes are for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Subject {
    /// One that is there.
    There(Existing),
    /// One that is to be made: what it is, and major and minor number of a device.
    New { kind: FileType, device: (u32, u32) },
}

/// A file that is there.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Existing {
    pub(crate) kind: FileType,
    pub(crate) user: u32,
    pub(crate) group: u32,
    /// The kernel lets the caller write it; asked where [`needs_write`] says so.
    pub(crate) may_write: bool,
}

/// Who wants them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caller<'a> {
    pub(crate) who: &'a Who,
    pub(crate) powers: Powers,
}

impl Caller<'_> {
    fn is_in(&self, group: u32) -> bool {
        self.who.group == group || self.who.groups.as_slice().contains(&group)
    }
}

/// Why nothing is changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// The mode is the owner's to set.
    ModeOfAnother,
    /// A time of the client's choice is the owner's to set.
    TimeOfAnother,
    /// The server's time for one of the two, by a caller that may write and does not own the file:
    /// Linux has no call for that, and a server that is not root cannot act as the owner.
    OneTimeOfAnother,
    /// The file would get another owner.
    GivesAway,
    /// The caller does not own the file, or is not in the group.
    ForeignGroup,
    /// A new size, or the server's time, needs the right to write.
    MayNotWrite,
    /// A directory has no size to set.
    SizeOfDirectory,
    /// Nor has what is neither.
    SizeOfSpecial,
    /// No file can be as long.
    TooLong,
    /// Numbers that Linux has no device for.
    NoSuchDevice,
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        match refusal {
            Refusal::ModeOfAnother
            | Refusal::TimeOfAnother
            | Refusal::OneTimeOfAnother
            | Refusal::GivesAway
            | Refusal::ForeignGroup => Status::NotOwner,
            Refusal::MayNotWrite => Status::Access,
            Refusal::SizeOfDirectory => Status::IsDirectory,
            Refusal::SizeOfSpecial | Refusal::NoSuchDevice => Status::Invalid,
            Refusal::TooLong => Status::FileTooBig,
        }
    }
}

/// As whom a step is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum By {
    Caller,
    /// The server, for a caller that may, where the kernel would refuse the caller.
    Server,
}

/// What is changed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The mode that a new object is made with.
    pub(crate) made_with: u32,
    pub(crate) user: Option<u32>,
    pub(crate) group: Option<u32>,
    mode: Option<u32>,
    /// Bits that a new directory gets besides those it has.
    bits: Option<u32>,
    pub(crate) size: Option<u64>,
    times: Option<(SetTime, SetTime, By)>,
}

/// One change, by one system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Owner {
        user: Option<u32>,
        group: Option<u32>,
    },
    Mode(u32),
    /// Adds bits to the mode.
    Bits(u32),
    Size(u64),
    Times {
        accessed: SetTime,
        modified: SetTime,
        by: By,
    },
}

impl Plan {
    /// The steps in their order. A size takes set-id bits away and sets times; what it takes is
    /// tried before it, so that it is refused in time, and done again after it.
    pub(crate) fn steps(&self) -> impl Iterator<Item = Step> {
        let (user, group) = (self.user, self.group);
        let owner = (user.is_some() || group.is_some()).then_some(Step::Owner { user, group });
        let mode = self.mode.map(Step::Mode);
        let bits = self.bits.map(Step::Bits);
        let times = self.times.map(|(accessed, modified, by)| Step::Times {
            accessed,
            modified,
            by,
        });
        let size = self.size.map(Step::Size);
        let first = times.filter(|_| size.is_some());
        let again = self.mode.filter(|mode| mode & SET_ID_BITS != 0);
        let again = again.filter(|_| size.is_some()).map(Step::Mode);
        let steps = [owner, mode, bits, first, size, again, times];
        steps.into_iter().flatten()
    }

    /// True when the object is changed after it was made.
    pub(crate) fn has_steps(&self) -> bool {
        self.steps().next().is_some()
    }

    /// Without owner and group that a new object, which has these, has anyway: to set them would
    /// take its set-id bits away.
    pub(crate) fn without_owner(self, user: u32, group: u32) -> Plan {
        Plan {
            user: self.user.filter(|wanted| *wanted != user),
            group: self.group.filter(|wanted| *wanted != group),
            ..self
        }
    }
}

/// Whether the right to write decides, for a caller that does not own the file: for a size, and for
/// the server's time (RFC 1813 section 3.3.2).
pub(crate) fn needs_write(wanted: &SetAttributes) -> bool {
    let now = |time| time == SetTime::Now;
    wanted.size.is_some() || now(wanted.accessed) || now(wanted.modified)
}

/// The plan, or why there is none.
///
/// # Errors
/// The first rule that forbids a part of it.
pub(crate) fn decide(
    subject: &Subject,
    caller: &Caller<'_>,
    wanted: &SetAttributes,
) -> Result<Plan, Refusal> {
    // The number that stands for "no change" in chown(2) names no one.
    let named = |number: Option<u32>| number.filter(|number| *number != u32::MAX);
    let wanted = SetAttributes {
        user: named(wanted.user),
        group: named(wanted.group),
        ..*wanted
    };
    match *subject {
        Subject::There(file) => decide_change(&file, caller, &wanted),
        Subject::New { kind, device } => decide_new(kind, device, caller, &wanted),
    }
}

fn decide_change(
    file: &Existing,
    caller: &Caller<'_>,
    wanted: &SetAttributes,
) -> Result<Plan, Refusal> {
    let is_owner = caller.who.user == file.user;
    let may_write = file.may_write || is_owner;
    let owns = is_owner || caller.powers.owns_all;
    if let Some(size) = wanted.size {
        match file.kind {
            FileType::RegularFile => {}
            FileType::Directory => return Err(Refusal::SizeOfDirectory),
            _ => return Err(Refusal::SizeOfSpecial),
        }
        allow(may_write, Refusal::MayNotWrite)?;
        allow(i64::try_from(size).is_ok(), Refusal::TooLong)?;
    }
    let gives_away = caller.powers.gives_away;
    if let Some(user) = wanted.user {
        let is_same = is_owner && user == file.user;
        allow(gives_away || is_same, Refusal::GivesAway)?;
    }
    if let Some(group) = wanted.group {
        let may = is_owner && (group == file.group || caller.is_in(group));
        allow(gives_away || may, Refusal::ForeignGroup)?;
    }
    let mode = wanted.mode.filter(|_| file.kind != FileType::Symlink);
    allow(mode.is_none() || owns, Refusal::ModeOfAnother)?;
    Ok(Plan {
        user: wanted.user,
        group: wanted.group,
        mode,
        size: wanted.size,
        times: decide_times(owns, may_write, caller.powers, wanted)?,
        ..Plan::default()
    })
}

fn decide_times(
    owns: bool,
    may_write: bool,
    powers: Powers,
    wanted: &SetAttributes,
) -> Result<Option<(SetTime, SetTime, By)>, Refusal> {
    let (accessed, modified) = (wanted.accessed, wanted.modified);
    let both = [accessed, modified];
    let chosen = both.iter().any(|time| matches!(time, SetTime::To(_)));
    let now = both.contains(&SetTime::Now);
    allow(owns || !chosen, Refusal::TimeOfAnother)?;
    allow(owns || !now || may_write, Refusal::MayNotWrite)?;
    // A new size sets the time of modification by itself.
    let implied = wanted.size.is_some() && both == [SetTime::Keep, SetTime::Now];
    if both == [SetTime::Keep; 2] || implied {
        return Ok(None);
    }
    // utimensat(2) lets those who may write set both to now, and no more (`vfs_utimes`).
    let by = match owns || both == [SetTime::Now; 2] {
        true => By::Caller,
        false => By::Server,
    };
    let is_lent = by == By::Caller || powers.lent;
    allow(is_lent, Refusal::OneTimeOfAnother)?;
    Ok(Some((accessed, modified, by)))
}

fn decide_new(
    kind: FileType,
    (major, minor): (u32, u32),
    caller: &Caller<'_>,
    wanted: &SetAttributes,
) -> Result<Plan, Refusal> {
    let is_device = matches!(kind, FileType::BlockDevice | FileType::CharacterDevice);
    let fits = major <= MAJOR_MAX && minor <= MINOR_MAX;
    allow(!is_device || fits, Refusal::NoSuchDevice)?;
    // What is no regular file is made, whatever size is named; a new file is empty.
    let size = wanted
        .size
        .filter(|size| kind == FileType::RegularFile && *size > 0);
    let fits = size.is_none_or(|size| i64::try_from(size).is_ok());
    allow(fits, Refusal::TooLong)?;
    let is_directory = kind == FileType::Directory;
    let (made_with, bits) = match is_directory {
        true => {
            let mode = wanted.mode.unwrap_or(DIRECTORY_MODE);
            (
                mode & MKDIR_BITS,
                Some(mode & SET_ID_BITS).filter(|bits| *bits != 0),
            )
        }
        false => (wanted.mode.unwrap_or(FILE_MODE), None),
    };
    // Clients name the owner they are anyway.
    let named = |number: Option<u32>| number.filter(|_| caller.powers.gives_away);
    let (user, group) = (named(wanted.user), named(wanted.group));
    // A new owner or size takes bits away that were asked for.
    let is_taken = user.is_some() || group.is_some() || size.is_some();
    let is_taken = is_taken && !is_directory;
    let mode = Some(made_with).filter(|mode| is_taken && mode & SET_ID_BITS != 0);
    let times = (wanted.accessed, wanted.modified);
    Ok(Plan {
        made_with,
        user,
        group,
        mode: mode.filter(|_| kind != FileType::Symlink),
        bits,
        size,
        // The maker may; the server can even where the file system gives files another owner.
        times: (times != <(SetTime, SetTime)>::default()).then_some((times.0, times.1, By::Server)),
    })
}

fn allow(is_allowed: bool, otherwise: Refusal) -> Result<(), Refusal> {
    is_allowed.then_some(()).ok_or(otherwise)
}

#[cfg(test)]
mod tests;
