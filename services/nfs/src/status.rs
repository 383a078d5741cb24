//! The words of NFSv3 for what went wrong (RFC 1813 section 2.6), and the kernel's errors in them.

use rustix::io::Errno;

/// `nfsstat3` without "ok".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    NotOwner = 1,
    NoEntry = 2,
    Io = 5,
    NoDevice = 6,
    Access = 13,
    Exists = 17,
    /// Between two exports.
    CrossDevice = 18,
    NotDirectory = 20,
    IsDirectory = 21,
    Invalid = 22,
    FileTooBig = 27,
    NoSpace = 28,
    ReadOnly = 30,
    TooManyLinks = 31,
    NameTooLong = 63,
    NotEmpty = 66,
    Quota = 69,
    Stale = 70,
    BadHandle = 10_001,
    NotSynchronised = 10_002,
    BadCookie = 10_003,
    NotSupported = 10_004,
    TooSmall = 10_005,
    ServerFault = 10_006,
    BadType = 10_007,
    Later = 10_008,
}

impl From<Errno> for Status {
    fn from(errno: Errno) -> Status {
        match errno {
            Errno::PERM => Status::NotOwner,
            Errno::NOENT => Status::NoEntry,
            Errno::NXIO | Errno::NODEV => Status::NoDevice,
            // A mount point or a link in the way: not for clients of this export, and
            // not to be asked for again, since it may stay for ever.
            Errno::ACCESS | Errno::TXTBSY | Errno::XDEV | Errno::LOOP | Errno::BUSY => {
                Status::Access
            }
            Errno::EXIST => Status::Exists,
            Errno::NOTDIR => Status::NotDirectory,
            Errno::ISDIR => Status::IsDirectory,
            Errno::INVAL => Status::Invalid,
            Errno::FBIG | Errno::OVERFLOW => Status::FileTooBig,
            Errno::NOSPC => Status::NoSpace,
            Errno::ROFS => Status::ReadOnly,
            Errno::MLINK => Status::TooManyLinks,
            Errno::NAMETOOLONG => Status::NameTooLong,
            Errno::NOTEMPTY => Status::NotEmpty,
            Errno::DQUOT => Status::Quota,
            Errno::STALE => Status::Stale,
            Errno::OPNOTSUPP | Errno::NOSYS => Status::NotSupported,
            // No descriptor or no memory now is not an error of the file: ask again.
            Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN => Status::Later,
            _ => Status::Io,
        }
    }
}

impl From<std::io::Error> for Status {
    fn from(error: std::io::Error) -> Status {
        match error.raw_os_error() {
            Some(code) => Status::from(Errno::from_raw_os_error(code)),
            None => Status::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_of_the_kernel_is_success_and_shortage_means_later() {
        for code in 1..134 {
            assert_ne!(Status::from(Errno::from_raw_os_error(code)) as u32, 0);
        }
        let asks_again =
            |code: &i32| Status::from(Errno::from_raw_os_error(*code)) == Status::Later;
        let transient = [Errno::AGAIN, Errno::NOMEM, Errno::NFILE, Errno::MFILE];
        let transient = transient.map(Errno::raw_os_error);
        assert_eq!((1..134).filter(asks_again).collect::<Vec<_>>(), transient);
        assert_eq!(Status::from(Errno::STALE) as u32, 70);
    }
}
