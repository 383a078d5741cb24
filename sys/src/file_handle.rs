//! The kernel's own file handles (`name_to_handle_at`, `open_by_handle_at`).
//!
//! They name an inode and its generation, survive renames and restarts, and are refused with
//! `ESTALE` once the file is gone, even when its inode number is in use again.
//!
//! Cost: one system call each. Opening needs `CAP_DAC_READ_SEARCH`.

use std::ffi::CStr;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// The longest handle the kernel makes, in bytes (`MAX_HANDLE_SZ`).
pub const HANDLE_BYTES_MAX: usize = 128;

/// A handle as the kernel made it. The layout is that of `struct file_handle`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelHandle {
    length: u32,
    kind: i32,
    bytes: [u8; HANDLE_BYTES_MAX],
}

const _: () = {
    assert!(offset_of!(KernelHandle, length) == offset_of!(libc::file_handle, handle_bytes));
    assert!(offset_of!(KernelHandle, kind) == offset_of!(libc::file_handle, handle_type));
    assert!(offset_of!(KernelHandle, bytes) == offset_of!(libc::file_handle, f_handle));
    assert!(align_of::<KernelHandle>() >= align_of::<libc::file_handle>());
};

impl KernelHandle {
    /// A handle that was kept somewhere; `None` when it is longer than any handle.
    pub fn new(kind: i32, bytes: &[u8]) -> Option<KernelHandle> {
        let mut handle = KernelHandle {
            length: 0,
            kind,
            bytes: [0; HANDLE_BYTES_MAX],
        };
        handle.bytes.get_mut(..bytes.len())?.copy_from_slice(bytes);
        handle.length = u32::try_from(bytes.len()).ok()?;
        Some(handle)
    }

    /// The file system's number for its format of handles.
    pub fn kind(&self) -> i32 {
        self.kind
    }

    /// The name itself, opaque.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..(self.length as usize).min(HANDLE_BYTES_MAX)]
    }
}

/// The handle of an open file, which may have been opened with `O_PATH`.
///
/// # Errors
/// `EOPNOTSUPP` where the file system has no handles, `EOVERFLOW` where they are longer than any.
pub fn handle_of(file: impl AsFd) -> io::Result<KernelHandle> {
    Ok(name_to_handle(file.as_fd(), c"", libc::AT_EMPTY_PATH)?.0)
}

/// The number of the mount that an open file is on, as in the first column of
/// `/proc/self/mountinfo`.
///
/// # Errors
/// As [`handle_of`].
pub fn mount_of(file: impl AsFd) -> io::Result<i32> {
    Ok(name_to_handle(file.as_fd(), c"", libc::AT_EMPTY_PATH)?.1)
}

/// The handle of what a name stands for in an open directory, and the number of the mount that it
/// is on ([`mount_of`]); a symbolic link is not followed. What is mounted there is not asked for
/// anything, so that a mount that hangs delays no other call.
///
/// # Errors
/// As [`handle_of`], and those of looking up a name.
pub fn handle_of_name(directory: impl AsFd, name: &CStr) -> io::Result<(KernelHandle, i32)> {
    name_to_handle(directory.as_fd(), name, 0)
}

fn name_to_handle(
    file: BorrowedFd<'_>,
    name: &CStr,
    flags: i32,
) -> io::Result<(KernelHandle, i32)> {
    let length = HANDLE_BYTES_MAX as u32;
    let mut handle = KernelHandle {
        length,
        kind: 0,
        bytes: [0; HANDLE_BYTES_MAX],
    };
    let mut mount = 0;
    // SAFETY: `handle` has the layout of `struct file_handle` (asserted above) with room for as
    // many bytes as `length` says, the path is a C string, and all three outlive the call.
    let result = unsafe {
        libc::name_to_handle_at(
            file.as_raw_fd(),
            name.as_ptr(),
            (&raw mut handle).cast(),
            &raw mut mount,
            flags,
        )
    };
    if result == 0 {
        Ok((handle, mount))
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Opens the file that `handle` names on the file system of `mount`, close-on-exec; `flags` are
/// those of open(2).
///
/// # Errors
/// `ESTALE` when the file is gone, `EPERM` without `CAP_DAC_READ_SEARCH`.
pub fn open_handle(mount: impl AsFd, handle: &KernelHandle, flags: u32) -> io::Result<OwnedFd> {
    let mut handle = *handle;
    let flags = flags.cast_signed() | libc::O_CLOEXEC;
    // SAFETY: `handle` has the layout of `struct file_handle` (asserted above), `length` does not
    // exceed its room, and it outlives the call, which only reads it.
    let descriptor = unsafe {
        libc::open_by_handle_at(mount.as_fd().as_raw_fd(), (&raw mut handle).cast(), flags)
    };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for us so this is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_handle_finds_its_file_under_another_name_and_not_once_it_is_gone() {
        let directory = std::env::temp_dir().join(format!("handle-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let (old, new) = (directory.join("old"), directory.join("new"));
        std::fs::write(&old, b"text").expect("a file");
        let mount = std::fs::File::open(&directory).expect("open");
        let made = handle_of(std::fs::File::open(&old).expect("open"));
        std::fs::rename(&old, &new).expect("rename");
        if let Ok(handle) = made {
            let again = KernelHandle::new(handle.kind(), handle.bytes()).expect("short enough");
            match open_handle(&mount, &again, 0) {
                Ok(found) => {
                    let mut text = String::new();
                    std::fs::File::from(found)
                        .read_to_string(&mut text)
                        .expect("read");
                    assert_eq!(text, "text");
                    std::fs::remove_file(&new).expect("remove");
                    let gone = open_handle(&mount, &again, 0).expect_err("gone");
                    assert_eq!(gone.raw_os_error(), Some(libc::ESTALE));
                }
                Err(error) => assert_eq!(error.raw_os_error(), Some(libc::EPERM), "{error}"),
            }
        }
        std::fs::remove_dir_all(&directory).expect("clean up");
    }

    #[test]
    fn a_handle_by_name_is_that_of_the_open_file() {
        let directory = std::env::temp_dir();
        let name = std::ffi::CString::new(format!("by-name-{}", std::process::id()));
        let name = name.expect("a name");
        let path = directory.join(name.to_str().expect("text"));
        std::fs::write(&path, b"").expect("a file");
        let open = handle_of(std::fs::File::open(&path).expect("open"));
        let parent = std::fs::File::open(&directory).expect("open");
        let named = handle_of_name(&parent, &name);
        std::fs::remove_file(&path).expect("remove");
        let gone = handle_of_name(&parent, &name);
        assert_eq!(open.is_ok(), named.is_ok());
        if let (Ok(open), Ok((named, mount))) = (open, named) {
            assert_eq!((open.kind(), open.bytes()), (named.kind(), named.bytes()));
            assert_eq!(mount_of(&parent).expect("as its file"), mount);
        }
        assert!(gone.is_err());
    }

    #[test]
    fn a_handle_longer_than_any_is_refused() {
        assert!(KernelHandle::new(1, &[0; HANDLE_BYTES_MAX]).is_some());
        assert!(KernelHandle::new(1, &[0; HANDLE_BYTES_MAX + 1]).is_none());
    }
}
