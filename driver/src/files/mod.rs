//! Two things about files that only system calls without a safe wrapper can do: find a file by the
//! kernel's own handle, and let one thread open files as somebody else.
//!
//! Beside the drivers, not part of them: this crate is where `unsafe` may live.

mod handle;
mod identity;

pub use handle::{HANDLE_BYTES_MAX, KernelHandle, handle_of, open_handle};
pub use identity::{FileIdentity, set_file_identity};
