//! The allocator's own spare memory.
//!
//! What a peak of work freed in small pieces stays with glibc's allocator: it gives back the top of
//! a heap by itself, never what lies below a piece in use.

/// Asks the allocator to give whole unused pages back to the kernel. Does nothing with allocators
/// that offer no such call.
///
/// It walks the free pieces of every heap with that heap locked, about ten microseconds per MiB:
/// call it after a peak, never on the path.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: `malloc_trim` takes no pointer and is safe to call from any thread (malloc_trim(3),
    // "ATTRIBUTES"); it releases only memory that is not allocated.
    unsafe {
        libc::malloc_trim(0);
    }
}
