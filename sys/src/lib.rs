//! System calls that need `unsafe`, as safe functions: mappings, memory shared with another
//! process, file handles, file identities and sleeps of threads, TCP's options,
//! datagrams with their addresses, passed descriptors, close with its result, what of a
//! file is cached, the allocator, what the kernel knows of the process.
//!
//! ```
//! use flatpath_sys::shared_memory::{Access, SharedWords};
//!
//! // Another process would get the descriptor over a Unix socket.
//! let (ours, descriptor) = SharedWords::to_write("words", 512)?;
//! let theirs = SharedWords::open(&descriptor, 512, Access::Read)?;
//! ours.store(7, 42);
//! assert_eq!(theirs.load(7), 42);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! It depends on no other crate of the workspace, so a program that needs one mapping does not
//! pull in a driver. Descriptors and addresses are those of `std`; every error is an
//! [`io::Error`](std::io::Error) with the kernel's number.

#![allow(
    unsafe_code,
    reason = "the calls have no safe wrapper in std, or in the part of rustix that is built"
)]

pub mod allocator;
pub mod close;
pub mod file_handle;
pub mod file_identity;
pub mod mapping;
pub mod mount_table;
pub mod page_cache;
pub mod passed;
pub mod process;
pub mod shared_memory;
pub mod tcp;
pub mod thread_usage;
pub mod udp;

#[cfg(test)]
#[allow(
    unreachable_pub,
    dead_code,
    reason = "it is public in the kit for tests, of which the tests here need a part"
)]
#[path = "../../testkit/src/skipped.rs"]
mod skipped;
