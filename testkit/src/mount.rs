//! File systems that a test mounts for itself: unmounted when dropped.
//!
//! They are seen by other processes of the machine meanwhile. Where a test may not mount, it gets
//! `None` and a line with the reason.

use std::ffi::{CStr, CString};
use std::io;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use tempfile::TempDir;

use crate::skipped::not_offered;
use crate::tools;

/// A mounted file system.
pub struct Mounted {
    at: PathBuf,
    /// Where it is, and an empty layer, if they are its own. Dropped once it is unmounted.
    own: Vec<TempDir>,
}

impl Mounted {
    /// An empty one in memory, of a mebibyte.
    pub fn tmpfs() -> Option<Mounted> {
        let at = tempfile::tempdir().expect("a directory");
        Mounted::tell(Mounted::new(at.path(), c"tmpfs", b"size=1m"), vec![at])
    }

    /// The files of a directory, as an overlay shows them: read-only.
    pub fn overlay(files: &Path) -> Option<Mounted> {
        let [at, empty] = [(); 2].map(|()| tempfile::tempdir().expect("a directory"));
        let mounted = Mounted::overlay_at(at.path(), files, empty.path());
        Mounted::tell(mounted, vec![at, empty])
    }

    /// The same at an empty directory. `empty` is another one, because an overlay needs two layers.
    ///
    /// # Errors
    /// As [`Mounted::new`].
    pub fn overlay_at(at: &Path, files: &Path, empty: &Path) -> io::Result<Mounted> {
        let (upper, lower) = (files.as_os_str(), empty.as_os_str());
        let layers = [b"lowerdir=", upper.as_bytes(), b":", lower.as_bytes()].concat();
        Mounted::new(at, c"overlay", &layers)
    }

    /// A directory, at another place as well.
    pub fn bind(directory: &Path) -> Option<Mounted> {
        let at = tempfile::tempdir().expect("a directory");
        let mounted = mount_bind(directory, at.path()).map(|()| Mounted {
            at: at.path().to_path_buf(),
            own: Vec::new(),
        });
        Mounted::tell(mounted.map_err(io::Error::from), vec![at])
    }

    /// What an NFS server at this address exports at `path`, through the kernel's own client: NFSv3
    /// over TCP without a portmapper and locks, with `more` options of mount.nfs(8), which begin
    /// with a comma. Its calls wait for a server that is away. `None` where the kernel has no such
    /// client.
    ///
    /// # Panics
    /// It has one, and the mount fails.
    pub fn nfs(server: SocketAddr, path: &Path, more: &str) -> Option<Mounted> {
        Mounted::try_nfs(server, path, more).expect("the kernel mounts it")
    }

    /// The same, which may fail.
    ///
    /// # Errors
    /// What mount(2) says, where the kernel has such a client.
    pub fn try_nfs(server: SocketAddr, path: &Path, more: &str) -> io::Result<Option<Mounted>> {
        let at = tempfile::tempdir()?;
        let (address, port) = (server.ip(), server.port());
        let options = format!(
            "vers=3,proto=tcp,mountproto=tcp,nolock,hard,addr={address},mountaddr={address},\
             port={port},mountport={port}{more}"
        );
        let source = CString::new(format!("{address}:{}", path.display()))?;
        match Mounted::of(&source, at.path(), c"nfs", &options.into_bytes()) {
            Err(cause) if cause.raw_os_error() == Some(Errno::PERM.raw_os_error()) => {
                Ok(tools::refused(&format!("a mount: {cause}")))
            }
            Err(cause) if is_unknown(&cause) => {
                tell_no_nfs();
                Ok(None)
            }
            mounted => {
                let mut mounted = mounted?;
                mounted.own = vec![at];
                Ok(Some(mounted))
            }
        }
    }

    /// Whether the kernel has a client of NFS. If not, that is said.
    pub fn knows_nfs() -> bool {
        let at = tempfile::tempdir().expect("a directory");
        // It names no server: a client would refuse it.
        let tried = Mounted::of(c"none", at.path(), c"nfs", b"");
        let is_known = !tried.is_err_and(|cause| is_unknown(&cause));
        if !is_known {
            tell_no_nfs();
        }
        is_known
    }

    /// A file system of this kind, with these options, at an empty directory.
    ///
    /// # Errors
    /// Not root, or what mount(2) says.
    pub fn new(at: &Path, kind: &CStr, options: &[u8]) -> io::Result<Mounted> {
        Mounted::of(kind, at, kind, options)
    }

    fn of(source: &CStr, at: &Path, kind: &CStr, options: &[u8]) -> io::Result<Mounted> {
        let options = CString::new(options)?;
        mount(
            source,
            at,
            kind,
            MountFlags::NOSUID,
            Some(options.as_c_str()),
        )?;
        Ok(Mounted {
            at: at.to_path_buf(),
            own: Vec::new(),
        })
    }

    fn tell(mounted: io::Result<Mounted>, own: Vec<TempDir>) -> Option<Mounted> {
        match mounted {
            Ok(mut mounted) => {
                mounted.own = own;
                Some(mounted)
            }
            Err(cause) => tools::refused(&format!("a mount: {cause}")),
        }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.at
    }
}

/// Of a file system that the kernel does not know.
fn is_unknown(cause: &io::Error) -> bool {
    cause.raw_os_error() == Some(Errno::NODEV.raw_os_error())
}

fn tell_no_nfs() {
    // Older than all that we run on, where it is built.
    not_offered("this kernel has no client of NFS", (2, 6));
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Calls to a server that is gone for good end so; other file systems take no notice.
        let flags = UnmountFlags::DETACH | UnmountFlags::FORCE;
        unmount(&self.at, flags).expect("it was mounted");
    }
}
