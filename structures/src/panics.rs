//! Panics of code that is not ours: a handler, a callback, a caller's `Drop`.
//!
//! [`contain`] runs such code and lets no panic out, whatever the panic carries. A payload is a
//! value of the panicking code's own type, so dropping it can panic again, and so can dropping what
//! that second panic carries; the first drop is contained as well, the second payload is leaked.
//!
//! What cannot be contained is a `Drop` that panics while another panic unwinds through it: the
//! language aborts the process then. Values with drops of their own are therefore dropped one at a
//! time, each in a `contain` of its own.
//!
//! Cost: without a panic, a call that is not inlined.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs `act`; `None` when it panicked.
///
/// The caller answers for unwind safety: what `act` changed may be half done.
pub fn contain<R>(act: impl FnOnce() -> R) -> Option<R> {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(result) => Some(result),
        Err(payload) => {
            drop_payload(payload);
            None
        }
    }
}

/// Once for all types that [`contain`] is compiled for.
#[cold]
fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
}

/// Drops `value`; a panic of that drop ends here.
pub fn drop_contained<T>(value: T) {
    contain(move || drop(value));
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::resume_unwind;

    /// Panics when dropped, as often as it says, each time with the next as its payload.
    struct Loud(u32);

    impl Drop for Loud {
        fn drop(&mut self) {
            if self.0 > 0 {
                resume_unwind(Box::new(Loud(self.0 - 1)));
            }
        }
    }

    #[test]
    fn what_does_not_panic_gives_its_result() {
        assert_eq!(contain(|| 7), Some(7));
    }

    #[test]
    fn a_panic_ends_here_whatever_its_payload_does_when_it_is_dropped() {
        // From 1 on a payload is leaked, as said above, which Miri reports.
        for depth in 0..if cfg!(miri) { 1 } else { 4 } {
            assert_eq!(
                contain(|| -> u8 { resume_unwind(Box::new(Loud(depth))) }),
                None
            );
            drop_contained(Loud(depth));
        }
    }
}
