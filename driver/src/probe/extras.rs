//! Trials of what the driver does not use, and might.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU32;

use io_uring::{opcode, types};

use super::trial::{Bench, expect, result};

/// FUTEX2_SIZE_U32 and FUTEX2_PRIVATE of the kernel's header.
const FUTEX_FLAGS: u32 = 2 | 128;
/// FUTEX_BITSET_MATCH_ANY of the kernel's header.
const FUTEX_ANY: u64 = 0xffff_ffff;

/// MSG_RING: a completion on another ring.
pub(super) fn message_ring() -> io::Result<()> {
    let mut from = Bench::new()?;
    let mut to = Bench::new()?;
    let fd = types::Fd(to.ring().as_raw_fd());
    let message = opcode::MsgRingData::new(fd, 5, 77, None).build();
    // SAFETY: it points to nothing.
    unsafe { from.push(&message) }?;
    result(&from.next()?)?;
    let entry = to.next()?;
    expect(entry.user_data() == 77 && result(&entry)? == 5)
}

/// A wait on a futex word, ended by a wake-up.
pub(super) fn futex() -> io::Result<()> {
    static WORD: AtomicU32 = AtomicU32::new(0);
    let word = WORD.as_ptr().cast_const();
    let mut bench = Bench::new()?;
    let wait = opcode::FutexWait::new(word, 0, FUTEX_ANY, FUTEX_FLAGS)
        .build()
        .user_data(1);
    // SAFETY: the word is a static.
    unsafe { bench.push(&wait) }?;
    bench.submit()?;
    let wake = opcode::FutexWake::new(word, 1, FUTEX_ANY, FUTEX_FLAGS)
        .build()
        .user_data(2);
    // SAFETY: the word is a static.
    unsafe { bench.push(&wake) }?;
    for _ in 0..2 {
        result(&bench.next()?)?;
    }
    Ok(())
}

/// NAPI: busy polling of network queues.
pub(super) fn busy_polling() -> io::Result<()> {
    let bench = Bench::new()?;
    let mut settings = types::Napi::new().set_busy_poll_timeout(1);
    let registered = bench.ring().submitter().register_napi(&mut settings);
    registered?;
    bench
        .ring()
        .submitter()
        .unregister_napi(&mut types::Napi::new())
}
