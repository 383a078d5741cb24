//! The allocator's own spare memory.
//!
//! Memory freed in small pieces after a peak stays with glibc's allocator: it gives back the top of
//! a heap by itself, never what lies below a piece in use.

/// Bounds the allocator's heaps for all threads of this process, from now on. Does nothing
/// with allocators that offer no such call.
///
/// By itself glibc makes one for each thread, up to eight per processor, and each reserves 64 MiB
/// of addresses and keeps what its threads freed: 128 workers cost 40 MB. For a program's `main`,
/// before it starts threads: a library must not decide this for its user. A thread that finds all
/// heaps locked waits; small pieces come from a cache of each thread, without a lock.
pub fn bound_arenas(arenas: u16) {
    #[cfg(target_env = "gnu")]
    // SAFETY: `mallopt` takes no pointer and changes one number of the allocator (mallopt(3)).
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, i32::from(arenas.max(1)));
    }
    #[cfg(not(target_env = "gnu"))]
    let _ = arenas;
}

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
