//! Held bytes: shared bytes with what has to happen when the last reference to them goes.
//!
//! What waits for a client and is not copied travels as [`Bytes`]. One owner around them
//! ([`Bytes::from_owner`]) has two duties: the program's own drop goes to the bin
//! ([`discard_bytes`]), and the charge for their memory is given back. So a charge lasts exactly as
//! long as the bytes are referenced: in a queue, in an output, in a send that is under way.
//!
//! Bytes that several connections share (one message to many sockets) are charged once: the table
//! of [`SharedBytes`] finds them by their place in memory, where nothing else can be for as long as
//! one of those connections refers to them. Each connection is counted for all that it refers to,
//! shared or not, so that those that hold most and move least are found.
//!
//! | may run beside | hold | a drop of held bytes |
//! |----------------|------|----------------------|
//! | each of them   | yes  | yes                  |
//!
//! Invariants
//! - M1: memory is charged to the budget once, while at least one connection holds it.
//! - M2: no code of a program runs under the table's locks: a charge goes back after the unlock.
//!
//! Cost: an allocation and two additions; for bytes that are shared, or may be, a lock as well.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use flatpath_structures::lock::{Guard, Lock};
use flatpath_structures::pool::{Charge, Reference};

use crate::memory::pools::Pools;
use crate::protocol::discard::discard_bytes;

/// What a piece takes beside its bytes: its owner here, its places in queues and in a send.
pub(crate) const PIECE_BYTES: usize = 128;

/// Locks of the table.
const SHARDS: usize = 16;

/// What is given back with the bytes.
#[expect(dead_code, reason = "what is inside is only dropped")]
pub(crate) enum Backing {
    /// They are charged elsewhere, or not at all.
    Nothing,
    /// They are this connection's alone.
    Own(Charge),
    /// They are charged elsewhere, and this connection refers to them.
    Referred(Reference),
    /// One of those who share them.
    Shared(Share, Reference),
}

/// The owner of bytes; see the module.
struct Held {
    bytes: Bytes,
    /// Goes back once the bytes are dropped, or in the bin.
    _backing: Backing,
}

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        discard_bytes(std::mem::take(&mut self.bytes));
    }
}

/// The same bytes with an owner.
pub(crate) fn held(bytes: Bytes, backing: Backing) -> Bytes {
    Bytes::from_owner(Held {
        bytes,
        _backing: backing,
    })
}

impl Pools {
    /// Charges bytes to the connection at a place of a network thread for as long as they are
    /// referenced.
    ///
    /// # Errors
    /// The bytes as they were: there is no bulk memory for them.
    pub(crate) fn hold(&self, thread: u16, index: u32, bytes: Bytes) -> Result<Bytes, Bytes> {
        let charged = bytes.len() + PIECE_BYTES;
        if bytes.is_unique() {
            return match self.bulk(thread, index).charge(charged) {
                Some(charge) => Ok(held(bytes, Backing::Own(charge))),
                None => Err(bytes),
            };
        }
        let charge = || self.common().charge(charged);
        match self.shared_bytes.share(&bytes, charge) {
            Some(share) => {
                let reference = self.refer(thread, index, charged);
                Ok(held(bytes, Backing::Shared(share, reference)))
            }
            None => Err(bytes),
        }
    }

    /// Charges bytes that all connections may have.
    pub(crate) fn hold_common(&self, bytes: &Bytes) -> Option<Bytes> {
        let charge = self.common().charge(bytes.len() + PIECE_BYTES)?;
        Some(held(bytes.clone(), Backing::Own(charge)))
    }

    /// Counts bytes that are charged already for the connection at a place, too.
    pub(crate) fn hold_charged(&self, thread: u16, index: u32, bytes: Bytes) -> Bytes {
        let reference = self.refer(thread, index, bytes.len());
        held(bytes, Backing::Referred(reference))
    }
}

/// Bytes that connections share: how many do, and the charge for them.
#[derive(Default)]
pub(crate) struct SharedBytes {
    shards: [Lock<Shard>; SHARDS],
}

/// Where bytes are, and how many of them.
type Place = (usize, usize);

type Shard = HashMap<Place, (usize, Charge)>;

impl SharedBytes {
    fn shard(&self, place: Place) -> Guard<'_, Shard> {
        // Blocks begin at multiples of 16.
        let shard = &self.shards[(place.0 >> 4) % SHARDS];
        shard.lock()
    }

    /// One share more of these bytes, charged if it is the first one.
    fn share(
        self: &Arc<Self>,
        bytes: &Bytes,
        charge: impl FnOnce() -> Option<Charge>,
    ) -> Option<Share> {
        let place = (bytes.as_ptr() as usize, bytes.len());
        match self.shard(place).entry(place) {
            Entry::Occupied(mut entry) => entry.get_mut().0 += 1,
            Entry::Vacant(entry) => {
                entry.insert((1, charge()?));
            }
        }
        Some(Share {
            table: Arc::clone(self),
            place,
        })
    }
}

impl fmt::Debug for SharedBytes {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("SharedBytes")
            .finish_non_exhaustive()
    }
}

/// One of those who share bytes.
pub(crate) struct Share {
    table: Arc<SharedBytes>,
    place: Place,
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut shard = self.table.shard(self.place);
        let last = match shard.entry(self.place) {
            Entry::Occupied(mut entry) if entry.get().0 > 1 => {
                entry.get_mut().0 -= 1;
                None
            }
            Entry::Occupied(entry) => Some(entry.remove()),
            Entry::Vacant(_) => None,
        };
        drop(shard);
        drop(last); // After the unlock (M2).
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_use(pools: &Pools) -> usize {
        pools.statistics().in_use_bytes
    }

    #[test]
    fn bytes_are_charged_for_as_long_as_they_are_referenced() {
        let pools = Pools::new(1 << 20, 1, 4);
        let bytes = pools.hold(0, 0, vec![7; 1000].into()).expect("room");
        let charged = pools.held_bytes(0, 0);
        assert!(charged >= 1000 && charged == in_use(&pools));
        let part = bytes.slice(10..20);
        drop(bytes);
        assert_eq!(in_use(&pools), charged, "all of them are referenced");
        drop(part);
        assert_eq!((in_use(&pools), pools.held_bytes(0, 0)), (0, 0));
    }

    #[test]
    fn bytes_that_many_share_are_charged_once_and_counted_for_each() {
        let pools = Pools::new(1 << 20, 1, 4);
        let message = Bytes::from(vec![7; 1000]);
        let kept = message.clone();
        let held: Vec<_> = (0..4)
            .map(|index| pools.hold(0, index, message.clone()).expect("room"))
            .collect();
        let charged = in_use(&pools);
        assert!((1000..2000).contains(&charged), "once");
        for index in 0..4 {
            assert_eq!(pools.held_bytes(0, index), charged, "each");
        }
        drop((kept, message));
        for (left, one) in (0..4).rev().zip(held) {
            drop(one);
            assert_eq!(in_use(&pools) > 0, left > 0);
        }
        assert_eq!((0..4).map(|it| pools.held_bytes(0, it)).sum::<usize>(), 0);
    }

    #[test]
    fn bytes_for_which_there_is_no_room_come_back() {
        let pools = Pools::new(1 << 20, 1, 4);
        let long = Bytes::from(vec![7; 1 << 20]);
        let address = long.as_ptr();
        let long = pools
            .hold(0, 0, long)
            .expect_err("the reserve is not for it");
        assert_eq!(long.as_ptr(), address);
        let shared = long.clone();
        assert!(pools.hold(0, 0, long).is_err() && pools.hold_common(&shared).is_none());
        assert_eq!(in_use(&pools), 0);
    }

    #[test]
    fn what_is_charged_already_is_counted_for_those_who_refer_to_it() {
        let pools = Pools::new(1 << 20, 1, 4);
        let event = pools
            .hold_common(&Bytes::from(vec![7; 1000]))
            .expect("room");
        let charged = in_use(&pools);
        let one = pools.hold_charged(0, 2, event.clone());
        assert!(pools.held_bytes(0, 2) >= 1000);
        drop(event);
        assert_eq!(in_use(&pools), charged, "it is referred to");
        drop(one);
        assert_eq!((in_use(&pools), pools.held_bytes(0, 2)), (0, 0));
    }

    #[test]
    fn model_charges_are_what_distinct_bytes_take_whoever_shares_them() {
        const CONNECTIONS: u32 = 5;
        for seed in 0..50 {
            let mut random = fastrand::Rng::with_seed(seed);
            let pools = Pools::new(256 << 10, 1, CONNECTIONS as usize);
            let messages: Vec<Bytes> = (1..6).map(|it| vec![1; it * 1000].into()).collect();
            let _kept = messages.clone();
            let mut held: Vec<(u32, usize, Bytes)> = Vec::new();
            for _ in 0..300 {
                if random.bool() {
                    let (index, which) = (random.u32(..CONNECTIONS), random.usize(..5));
                    let one = pools.hold(0, index, messages[which].clone());
                    held.extend(one.map(|bytes| (index, which, bytes)));
                } else if !held.is_empty() {
                    held.swap_remove(random.usize(..held.len()));
                }
                let charged =
                    |which: &usize| (messages[*which].len() + PIECE_BYTES).next_multiple_of(64);
                let is_held = |which: &usize| held.iter().any(|(_, one, _)| one == which);
                let sum: usize = (0..5).filter(is_held).map(|which| charged(&which)).sum();
                assert_eq!(in_use(&pools), sum, "seed {seed}");
                for index in 0..CONNECTIONS {
                    let own = held.iter().filter(|(one, ..)| *one == index);
                    let own: usize = own.map(|(_, which, _)| charged(which)).sum();
                    assert_eq!(pools.held_bytes(0, index), own, "seed {seed}");
                }
            }
        }
    }
}
