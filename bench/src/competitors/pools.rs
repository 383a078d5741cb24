//! Well-known pools, and pools made of well-known queues: boxed memory goes in and comes out.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use concurrent_queue::{ConcurrentQueue, PushError};
use crossbeam_channel::{Receiver, Sender, TrySendError};
use crossbeam_queue::{ArrayQueue, SegQueue};
use lockfree_object_pool::{LinearObjectPool, LinearOwnedReusable};
use thingbuf::{Full, ThingBuf};

use flatpath_structures::lock::Lock;

use crate::buffers::{BUFFER_BYTES, Load, Recycler};
use flatpath_bench_common::measure::Turn;
use flatpath_bench_common::report::Role;

type Memory = Box<[u8]>;

/// In the order of [`turns`].
pub(crate) const COLUMNS: [(&str, Role); 9] = [
    ("Mutex<Vec>", Role::Competitor),
    ("ArrayQueue", Role::Competitor),
    ("SegQueue", Role::Competitor),
    ("concurrent-queue", Role::Competitor),
    ("crossbeam-channel", Role::Competitor),
    ("thingbuf", Role::Competitor),
    ("object-pool", Role::Competitor),
    ("lockfree-object-pool", Role::Competitor),
    ("sharded-slab", Role::Competitor),
];

/// One turn per column, each with `idle` pieces of memory; the last two make theirs as they are
/// asked.
pub(crate) fn turns<'a>(idle: usize, load: Load, slice: Duration) -> [Turn<'a>; 9] {
    let made = || vec![0; BUFFER_BYTES].into_boxed_slice();
    [
        turn(Lock::new(Vec::new()), idle, load, slice),
        turn(ArrayQueue::new(idle), idle, load, slice),
        turn(SegQueue::new(), idle, load, slice),
        turn(ConcurrentQueue::bounded(idle), idle, load, slice),
        turn(crossbeam_channel::bounded(idle), idle, load, slice),
        // With as many places as items it was seen to call itself full for good.
        turn(ThingBuf::new(2 * idle), idle, load, slice),
        turn(object_pool::Pool::from_vec(vec![]), idle, load, slice),
        made_turn(Arc::new(LinearObjectPool::new(made, |_| ())), load, slice),
        made_turn(Arc::new(sharded_slab::Pool::new()), load, slice),
    ]
}

/// The turn of a pool that has its memory already, or makes it.
fn made_turn<'a>(pool: impl Recycler + 'a, load: Load, slice: Duration) -> Turn<'a> {
    Box::new(move || load.measure(&pool, slice))
}

fn turn<'a, R>(queue: R, idle: usize, load: Load, slice: Duration) -> Turn<'a>
where
    R: Recycler<Item = Memory> + 'a,
{
    for _ in 0..idle {
        queue.put(vec![0; BUFFER_BYTES].into());
    }
    made_turn(queue, load, slice)
}

/// Puts an item into a queue that has as many places as there are items. Such a queue may still
/// report that it is full, while another thread is taking from the next place.
fn put_at_last(mut item: Memory, put: impl Fn(Memory) -> Result<(), Memory>) {
    while let Err(refused) = put(item) {
        item = refused;
        thread::yield_now();
    }
}

impl Recycler for Lock<Vec<Memory>> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.lock().pop()
    }

    fn put(&self, item: Memory) {
        self.lock().push(item);
    }
}

impl Recycler for ArrayQueue<Memory> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.pop()
    }

    fn put(&self, item: Memory) {
        put_at_last(item, |item| self.push(item));
    }
}

impl Recycler for SegQueue<Memory> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.pop()
    }

    fn put(&self, item: Memory) {
        self.push(item);
    }
}

impl Recycler for ConcurrentQueue<Memory> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.pop().ok()
    }

    fn put(&self, item: Memory) {
        put_at_last(item, |item| self.push(item).map_err(PushError::into_inner));
    }
}

impl Recycler for (Sender<Memory>, Receiver<Memory>) {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.1.try_recv().ok()
    }

    fn put(&self, item: Memory) {
        put_at_last(item, |item| {
            self.0.try_send(item).map_err(TrySendError::into_inner)
        });
    }
}

impl Recycler for ThingBuf<Memory> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.pop()
    }

    fn put(&self, item: Memory) {
        put_at_last(item, |item| self.push(item).map_err(Full::into_inner));
    }
}

impl Recycler for object_pool::Pool<Memory> {
    type Item = Memory;

    fn take(&self) -> Option<Memory> {
        self.try_pull().map(|pulled| pulled.detach().1)
    }

    fn put(&self, item: Memory) {
        self.attach(item);
    }
}

impl Recycler for Arc<LinearObjectPool<Memory>> {
    type Item = LinearOwnedReusable<Memory>;

    fn take(&self) -> Option<Self::Item> {
        Some(self.pull_owned())
    }

    fn put(&self, item: Self::Item) {
        drop(item);
    }
}

impl Recycler for Arc<sharded_slab::Pool<Vec<u8>>> {
    type Item = sharded_slab::pool::OwnedRefMut<Vec<u8>>;

    fn take(&self) -> Option<Self::Item> {
        let mut item = Arc::clone(self).create_owned()?;
        // It keeps its room when it is cleared.
        item.reserve(BUFFER_BYTES);
        Some(item)
    }

    fn put(&self, item: Self::Item) {
        let key = item.key();
        drop(item);
        self.clear(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gives_its_memory_again<R: Recycler>(pool: R, idle: usize) {
        let mut held = vec![];
        for _ in 0..3 {
            held.extend((0..idle).map_while(|_| pool.take()));
            assert_eq!(held.len(), idle);
            held.drain(..).for_each(|item| pool.put(item));
        }
    }

    fn filled<R: Recycler<Item = Memory>>(pool: R) {
        (0..8).for_each(|_| pool.put(vec![0; BUFFER_BYTES].into()));
        gives_its_memory_again(pool, 8);
    }

    /// A bench would wait without an end for what is lost.
    fn loses_nothing<R: Recycler<Item = Memory>>(pool: R) {
        const ITEMS: usize = 2;
        (0..ITEMS).for_each(|_| pool.put(vec![0; 1].into()));
        thread::scope(|scope| {
            for _ in 0..2 * ITEMS {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        pool.take().into_iter().for_each(|item| pool.put(item));
                    }
                });
            }
        });
        let left = (0..=ITEMS).map_while(|_| pool.take()).count();
        assert_eq!(left, ITEMS);
    }

    #[test]
    fn no_queue_loses_what_threads_take_and_put_at_once() {
        loses_nothing(ArrayQueue::new(2));
        loses_nothing(ConcurrentQueue::bounded(2));
        loses_nothing(crossbeam_channel::bounded(2));
        loses_nothing(ThingBuf::new(4));
    }

    #[test]
    fn every_pool_gives_again_what_was_put_back() {
        filled(Lock::new(Vec::new()));
        filled(ArrayQueue::new(8));
        filled(SegQueue::new());
        filled(ConcurrentQueue::bounded(8));
        filled(crossbeam_channel::bounded(8));
        filled(ThingBuf::new(8));
        filled(object_pool::Pool::from_vec(vec![]));
        let made = || vec![0; BUFFER_BYTES].into_boxed_slice();
        gives_its_memory_again(Arc::new(LinearObjectPool::new(made, |_| ())), 8);
        gives_its_memory_again(Arc::new(sharded_slab::Pool::new()), 8);
    }
}
