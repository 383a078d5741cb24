//! The file system that hangs on request, for tests: one that cannot be mounted here says so.

use std::path::Path;

pub use flatpath_bench_common::fuse::{Content, Fuse};

use crate::tools;

/// Mounts at an empty directory, which is made. `None` after saying that it cannot be done.
///
/// # Panics
/// It cannot be done, and `CI` is `true`.
#[must_use]
pub fn mount(at: &Path, files: Vec<Content>) -> Option<Fuse> {
    match Fuse::mount(at, files) {
        Ok(fuse) => Some(fuse),
        Err(cause) => tools::refused(&format!("a FUSE mount: {cause}")),
    }
}
