//! A small number for every thread: dense, unique among the threads that are alive, used again.
//!
//! For what is kept per thread inside a structure that all threads share: thread `n` owns magazine
//! `n`. The lock that hands the numbers out orders what one owner of a number did before what the
//! next one does, so a magazine may have fields that only its owner writes.
//!
//! Cost: one thread-local load; the first call of a thread takes a lock.
//!
//! Under loom and shuttle a thread has the number that the model gives it with `be_number`.

/// The number of a thread without one: one that is ending, or any in a model.
pub(crate) const NO_NUMBER: u32 = u32::MAX;

#[cfg(all(test, any(loom, shuttle)))]
pub(crate) use self::model::be_number;
#[cfg(any(loom, shuttle))]
pub(crate) use self::model::thread_number as known_number;
/// Real threads have a number of their own.
#[cfg(all(test, not(any(loom, shuttle))))]
pub(crate) fn be_number(_number: u32) {}
#[cfg(any(loom, shuttle))]
pub(crate) use self::model::thread_number;

#[cfg(any(loom, shuttle))]
mod model {
    use super::NO_NUMBER;
    use std::cell::Cell;

    crate::sync::thread_local!(static NUMBER: Cell<u32> = Cell::new(NO_NUMBER));

    pub(crate) fn thread_number() -> u32 {
        NUMBER.with(Cell::get)
    }

    /// Gives the thread of a model its number; no two that are alive have the same.
    #[cfg(test)]
    pub(crate) fn be_number(number: u32) {
        NUMBER.with(|cell| cell.set(number));
    }
}

#[cfg(not(any(loom, shuttle)))]
pub(crate) use self::numbers::{known_number, thread_number};

#[cfg(not(any(loom, shuttle)))]
mod numbers {
    use super::NO_NUMBER;
    use crate::sync::{Mutex, lock};
    use std::cell::Cell;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    /// Not asked for yet. Never handed out, as `NO_NUMBER` is not.
    const UNKNOWN: u32 = u32::MAX - 1;

    struct Numbers {
        given_back: BinaryHeap<Reverse<u32>>,
        next: u32,
    }

    static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers {
        given_back: BinaryHeap::new(),
        next: 0,
    });

    /// Gives the number back when its thread ends.
    struct Owned(u32);

    thread_local! {
        // Without a destructor, so that it can be read at any time, and at the cost of one load.
        static NUMBER: Cell<u32> = const { Cell::new(UNKNOWN) };
        static OWNED: Cell<Option<Owned>> = const { Cell::new(None) };
    }

    /// The number of this thread, or [`NO_NUMBER`] while it ends.
    #[inline]
    pub(crate) fn thread_number() -> u32 {
        let number = NUMBER.get();
        if number == UNKNOWN { ask() } else { number }
    }

    /// The same without asking for one: at least `NO_NUMBER - 1` if this thread has none, or none
    /// yet. For short paths that have a longer one to fall back to.
    #[inline(always)]
    pub(crate) fn known_number() -> u32 {
        NUMBER.get()
    }

    #[cold]
    fn ask() -> u32 {
        let number = {
            let mut numbers = lock(&NUMBERS);
            match numbers.given_back.pop() {
                Some(Reverse(number)) => number,
                None => {
                    numbers.next += 1;
                    numbers.next - 1
                }
            }
        };
        // From here on NO_NUMBER, unless the thread is still able to give the number back.
        NUMBER.set(NO_NUMBER);
        let owned = Owned(number);
        if OWNED.try_with(|keeper| keeper.set(Some(owned))).is_ok() {
            NUMBER.set(number);
        }
        NUMBER.get()
    }

    impl Drop for Owned {
        fn drop(&mut self) {
            NUMBER.set(NO_NUMBER);
            lock(&NUMBERS).given_back.push(Reverse(self.0));
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::sync::spawn;
        use crate::testing::{join, repeats};
        use std::sync::Barrier;

        #[test]
        fn a_thread_keeps_its_number() {
            assert_eq!(thread_number(), thread_number());
            assert_ne!(thread_number(), NO_NUMBER);
        }

        #[test]
        fn threads_that_are_alive_have_different_numbers() {
            static ALL_ALIVE: Barrier = Barrier::new(8);
            let threads = [(); 8].map(|()| {
                spawn(|| {
                    let number = thread_number();
                    ALL_ALIVE.wait();
                    number
                })
            });
            let mut numbers = threads.map(join).to_vec();
            numbers.sort_unstable();
            numbers.dedup();
            assert_eq!(numbers.len(), 8);
        }

        #[test]
        fn numbers_are_used_again() {
            // Other tests hold and return numbers meanwhile; without reuse there would be
            // as many numbers as threads.
            let threads = repeats(1_000);
            let highest = (0..threads).map(|_| join(spawn(thread_number))).max();
            assert!(highest < Some(threads / 2), "{highest:?}");
        }

        #[test]
        fn a_thread_that_ends_has_no_number() {
            struct AtEnd(std::sync::mpsc::Sender<u32>);
            impl Drop for AtEnd {
                fn drop(&mut self) {
                    self.0.send(thread_number()).expect("the test waits for it");
                }
            }
            thread_local!(static AT_END: Cell<Option<AtEnd>> = const { Cell::new(None) });
            let (sender, receiver) = std::sync::mpsc::channel();
            join(spawn(move || {
                // Set first, so dropped last, when the number was given back already.
                AT_END.set(Some(AtEnd(sender)));
                thread_number();
            }));
            assert_eq!(receiver.recv(), Ok(NO_NUMBER));
        }
    }
}
