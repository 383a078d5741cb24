//! What other threads tell a network thread about its connections: fragments have come back, or a
//! stall is over.
//!
//! Rare events: a number is put when a quota falls to the mark that its connection waits for,
//! not for every fragment. So a locked table does.
//!
//! Invariant K1: a connection stands in the table once, however often it is put; and so does an
//! index whose connections follow one another, where the latest stays. So the table is bounded by
//! the table of connections, whatever other threads do.
//!
//! Ordering
//! - E1 told: put, then `any` set (Release) -> `take` clears it (Acquire) and finds the number.
//!   The waker's own fences order `any` before the sleep test.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flatpath_driver::{QuotaWaker, Waker as ThreadWaker};
use flatpath_structures::slots::Key;

/// Numbers of connections to look at. See the module.
pub(crate) struct Returns {
    /// Index to generation.
    connections: Mutex<BTreeMap<u32, u32>>,
    any: AtomicBool,
    waker: ThreadWaker,
}

impl Returns {
    pub(crate) fn new(waker: ThreadWaker) -> Arc<Returns> {
        Arc::new(Returns {
            connections: Mutex::default(),
            any: AtomicBool::new(false),
            waker,
        })
    }

    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// The connections to look at; a spurious one does no harm.
    pub(crate) fn take(&self) -> impl Iterator<Item = Key> + use<> {
        // ORDER: E1.
        let connections = if self.any() && self.any.swap(false, Ordering::Acquire) {
            std::mem::take(&mut *self.connections())
        } else {
            BTreeMap::new()
        };
        let keys = connections.into_iter();
        keys.map(|(index, generation)| Key { index, generation })
    }

    fn connections(&self) -> MutexGuard<'_, BTreeMap<u32, u32>> {
        // Nothing under the lock panics half way.
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuotaWaker for Returns {
    fn wake(&self, number: u64) {
        let key = key_of(number);
        self.connections()
            .entry(key.index)
            .and_modify(|known| {
                // Generations wrap around: the later of two is less than half a round ahead.
                if key.generation.wrapping_sub(*known) < 1 << 31 {
                    *known = key.generation;
                }
            })
            .or_insert(key.generation);
        // ORDER: E1.
        self.any.store(true, Ordering::Release);
        self.waker.wake();
    }
}

/// A connection as a number.
pub(crate) fn number_of(key: Key) -> u64 {
    u64::from(key.generation) << 32 | u64::from(key.index)
}

fn key_of(number: u64) -> Key {
    Key {
        index: number as u32,
        generation: (number >> 32) as u32,
    }
}

/// Ends a stall of its connection from any thread; see
/// [`Stall::Outside`](crate::Stall::Outside).
#[derive(Clone)]
pub struct Waker {
    returns: Arc<Returns>,
    number: u64,
}

impl Waker {
    pub(crate) fn new(returns: &Arc<Returns>, key: Key) -> Waker {
        Waker {
            returns: Arc::clone(returns),
            number: number_of(key),
        }
    }

    /// The reason is over. Harmless when the connection is not stalled, or gone.
    pub fn wake(&self) {
        self.returns.wake(self.number);
    }
}

impl std::fmt::Debug for Waker {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_tuple("Waker").field(&self.number).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatpath_driver::epoll::Epoll;
    use flatpath_driver::{Driver, DriverConfig};

    fn returns() -> Arc<Returns> {
        let driver = Epoll::new(&DriverConfig::default()).expect("epoll is everywhere");
        Returns::new(driver.waker())
    }

    fn key(index: u32, generation: u32) -> Key {
        Key { index, generation }
    }

    #[test]
    fn a_connection_that_is_resumed_often_stands_there_once() {
        let returns = returns();
        let wakers = [7, 3].map(|index| Waker::new(&returns, key(index, 1)));
        for _ in 0..1000 {
            wakers.iter().for_each(Waker::wake);
        }
        assert_eq!(returns.connections().len(), 2);
        assert_eq!(returns.take().collect::<Vec<_>>(), [key(3, 1), key(7, 1)]);
        assert_eq!(returns.take().count(), 0);
        wakers[0].wake();
        assert_eq!(returns.take().count(), 1);
    }

    #[test]
    fn a_resumer_of_a_connection_that_is_gone_hides_no_later_one() {
        for first in [1, u32::MAX] {
            let returns = returns();
            let gone = Waker::new(&returns, key(5, first));
            let here = Waker::new(&returns, key(5, first.wrapping_add(1)));
            for order in [[&gone, &here], [&here, &gone]] {
                order.into_iter().for_each(Waker::wake);
                let taken: Vec<_> = returns.take().collect();
                assert_eq!(taken, [key(5, first.wrapping_add(1))]);
            }
        }
    }
}
