//! How a network thread that is short of memory has another one end what holds most.
//!
//! The memory for buffers is one budget, but each network thread ends connections of its own only.
//! So each says how large its largest holder is, and one that is short asks the thread with the
//! largest, if that is not itself, to end holders as if it were short.
//!
//! | may run beside | publish    | larger | ask | take       |
//! |----------------|------------|--------|-----|------------|
//! | any of them    | per thread | yes    | yes | per thread |
//!
//! Invariant R1: a thread has one request or none, however many others ask.
//!
//! Ordering
//! - RE1 size: relaxed. One that is read late asks the wrong thread once, and a short thread asks
//!   again and again.
//! - RE2 request: relaxed. Its thread is notified afterwards, and looks then.

use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// One network thread as the others see it.
#[derive(Debug, Default)]
struct Thread {
    /// The class of its largest holder, 0 for none; too high for a while when that is gone.
    largest: AtomicU8,
    /// Bytes that others want it to free, 0 for nothing.
    wanted: AtomicUsize,
}

/// The network threads of a server. See the module.
#[derive(Debug)]
pub(crate) struct Appeals(Box<[Thread]>);

impl Appeals {
    pub(crate) fn new(threads: usize) -> Appeals {
        Appeals((0..threads).map(|_| Thread::default()).collect())
    }

    pub(crate) fn publish(&self, thread: u16, largest: u8) {
        // ORDER: RE1: a late size asks the wrong thread once.
        self.0[usize::from(thread)]
            .largest
            .store(largest, Ordering::Relaxed);
    }

    /// The other thread with the largest holder, if that is of a higher class than `largest`.
    pub(crate) fn larger(&self, thread: u16, largest: u8) -> Option<u16> {
        let classes = self.others(thread).map(|other| {
            (
                self.0[usize::from(other)].largest.load(Ordering::Relaxed),
                other,
            )
        });
        let (class, other) = classes.max()?;
        (class > largest).then_some(other)
    }

    /// Each other thread in turn, for a number that grows.
    pub(crate) fn other(&self, thread: u16, number: usize) -> Option<u16> {
        let count = self.0.len().checked_sub(1).filter(|count| *count > 0)?;
        self.others(thread).nth(number % count)
    }

    fn others(&self, thread: u16) -> impl Iterator<Item = u16> {
        (0..)
            .take(self.0.len())
            .filter(move |other| *other != thread)
    }

    /// Asks a thread to free `bytes`. The caller tells it.
    pub(crate) fn ask(&self, thread: u16, bytes: usize) {
        // ORDER: RE2: the wake that follows has the fences.
        self.0[usize::from(thread)]
            .wanted
            .fetch_max(bytes, Ordering::Relaxed);
    }

    /// What the thread has been asked for since the last time. One load if that is nothing.
    pub(crate) fn take(&self, thread: u16) -> usize {
        let wanted = &self.0[usize::from(thread)].wanted;
        // ORDER: RE2: after the wake, whose fences order it.
        match wanted.load(Ordering::Relaxed) {
            0 => 0,
            _ => wanted.swap(0, Ordering::Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thread_with_the_largest_holder_is_asked_and_never_the_one_that_asks() {
        let relief = Appeals::new(3);
        assert_eq!(relief.larger(0, 0), None);
        relief.publish(0, 9);
        relief.publish(1, 3);
        relief.publish(2, 5);
        assert_eq!(relief.larger(0, 9), None, "it has the largest itself");
        assert_eq!(relief.larger(1, 3), Some(0));
        relief.publish(0, 0);
        assert_eq!(relief.larger(1, 3), Some(2));
        assert_eq!(relief.larger(1, 5), None, "as large is not larger");
        let others: Vec<_> = (0..4)
            .filter_map(|number| relief.other(1, number))
            .collect();
        assert_eq!(others, [0, 2, 0, 2]);
        assert_eq!(Appeals::new(1).other(0, 7), None);
    }

    #[test]
    fn requests_add_up_to_one() {
        let relief = Appeals::new(2);
        for bytes in [100, 300, 200] {
            relief.ask(1, bytes);
        }
        assert_eq!(relief.take(0), 0);
        assert_eq!((relief.take(1), relief.take(1)), (300, 0));
    }
}
