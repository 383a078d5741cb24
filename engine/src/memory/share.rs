//! Memory for work that is done only now and then, such as an archive or the check of a password:
//! one share of bytes, for which the kinds of such work take turns.
//!
//! The buffers of connections have a pool, which counts what lies in them. What a library allocates
//! by itself, for as long as it works, is no buffer of the pool; so it is counted before it begins,
//! by what it takes at most. If all kinds had memory of their own, for each site and each listener,
//! most of it would never be used.
//!
//! Each kind has a [`SharePart`], with bytes of its own that the others leave to it: they get what
//! no part owns, and no kind can keep another one from working. What is refused is the caller's to
//! cope with: it waits, sends content as it is, or answers that it is busy.
//!
//! | may run beside | part | hold | drop of [`ShareHold`] |
//! |----------------|------|------|-----------------------|
//! | each of them   | yes  | yes  | yes                   |
//!
//! Invariants
//! - MS1: all holds together have at most the bytes of the share.
//! - MS2: a part that holds less than its own gets the rest of that, whatever others hold.
//!
//! Cost: a lock and a sum over the parts for each hold. Not for what is done with each request.

use std::sync::Arc;

use flatpath_structures::lock::Lock;

use crate::admission::turns::{Client, Turn, TurnLimit, Turns};

/// A bounded number of bytes for work that is done now and then. A clone is the same share.
///
/// ```
/// use flatpath::memory::MemoryShare;
///
/// let share = MemoryShare::new(10);
/// let (one, other) = (share.part(4), share.part(2));
/// let held = one.hold(8).expect("all but what the other part owns");
/// assert!(one.hold(1).is_none() && other.hold(3).is_none());
/// assert!(other.hold(2).is_some());
/// drop(held);
/// assert!(other.hold(6).is_some());
/// ```
#[derive(Clone, Debug)]
pub struct MemoryShare(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    bytes_max: usize,
    parts: Lock<Vec<Part>>,
}

#[derive(Clone, Copy, Debug)]
struct Part {
    own_bytes: usize,
    held_bytes: usize,
}

impl Part {
    /// What is not for others.
    fn taken_bytes(&self) -> usize {
        self.own_bytes.max(self.held_bytes)
    }
}

/// The part of a [`MemoryShare`] that one kind of work has. A clone is the same part. By default it
/// is of no share, and bounds nothing.
#[derive(Clone, Debug, Default)]
pub struct SharePart {
    of: Option<(Arc<Inner>, usize)>,
    turns: Turns,
}

/// Bytes of a share, which are given back when this is dropped.
#[derive(Debug)]
#[must_use]
pub struct ShareHold {
    part: SharePart,
    bytes: usize,
}

impl MemoryShare {
    /// A share of this many bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self(Arc::new(Inner {
            bytes_max,
            parts: Lock::new(Vec::new()),
        }))
    }

    /// A part for one kind of work, with this many bytes of its own; fewer, if parts before it own
    /// more than it leaves.
    #[must_use]
    pub fn part(&self, own_bytes: usize) -> SharePart {
        let inner = &self.0;
        let mut parts = inner.parts.lock();
        let owned: usize = parts.iter().map(|part| part.own_bytes).sum();
        parts.push(Part {
            own_bytes: own_bytes.min(inner.bytes_max - owned),
            held_bytes: 0,
        });
        SharePart {
            of: Some((Arc::clone(inner), parts.len() - 1)),
            turns: Turns::default(),
        }
    }

    /// Bytes that are held now.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let parts = self.0.parts.lock();
        parts.iter().map(|part| part.held_bytes).sum()
    }
}

impl Inner {
    /// What a part may hold at most, if others hold no more than now.
    fn room_of(&self, parts: &[Part], number: usize) -> usize {
        let others = parts.iter().enumerate().filter(|(at, _)| *at != number);
        let taken: usize = others.map(|(_, part)| part.taken_bytes()).sum();
        self.bytes_max.saturating_sub(taken)
    }
}

impl SharePart {
    /// Holds bytes for work that begins now; `None` if fewer are free.
    pub fn hold(&self, bytes: usize) -> Option<ShareHold> {
        if let Some((inner, number)) = &self.of {
            let mut parts = inner.parts.lock();
            let held_bytes = parts[*number].held_bytes.checked_add(bytes)?;
            if held_bytes > inner.room_of(&parts, *number) {
                return None;
            }
            parts[*number].held_bytes = held_bytes;
        }
        Some(ShareHold {
            part: self.clone(),
            bytes,
        })
    }

    /// Holds bytes for work that lasts as long as its client takes, as one of its limit, in turn
    /// with that of other addresses: see [`Turn`]. All turns of a part hold as many bytes. `None`:
    /// there is no turn for this client now.
    #[must_use]
    pub fn turn(&self, limit: &TurnLimit, client: Client, bytes: usize) -> Option<Turn> {
        self.turns.begin(limit, client, || self.hold(bytes))
    }

    /// The most that it can hold: all but what other parts own.
    #[must_use]
    pub fn bytes_max(&self) -> usize {
        let Some((inner, number)) = &self.of else {
            return usize::MAX;
        };
        let parts = inner.parts.lock();
        let idle: Vec<_> = parts
            .iter()
            .map(|part| Part {
                held_bytes: 0,
                ..*part
            })
            .collect();
        inner.room_of(&idle, *number)
    }
}

impl Drop for ShareHold {
    fn drop(&mut self) {
        if let Some((inner, number)) = &self.part.of {
            inner.parts.lock()[*number].held_bytes -= self.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_use_what_nobody_owns_and_leave_others_their_own() {
        let share = MemoryShare::new(100);
        let (one, two, three) = (share.part(30), share.part(20), share.part(0));
        assert_eq!([&one, &two, &three].map(SharePart::bytes_max), [80, 70, 50]);
        let greedy = three.hold(50).expect("what nobody owns");
        assert!(three.hold(1).is_none());
        let own = [
            one.hold(30).expect("its own"),
            two.hold(20).expect("its own"),
        ];
        assert_eq!(share.held_bytes(), 100);
        assert!(one.hold(1).is_none() && two.hold(1).is_none());
        drop(greedy);
        let more = two.hold(50).expect("it is free");
        assert!(one.hold(1).is_none());
        drop((own, more));
        assert_eq!(share.held_bytes(), 0);
        assert!(one.hold(81).is_none() && one.hold(80).is_some());
    }

    #[test]
    fn what_is_owned_is_no_more_than_there_is() {
        let share = MemoryShare::new(10);
        let (all, none) = (share.part(20), share.part(5));
        assert_eq!((all.bytes_max(), none.bytes_max()), (10, 0));
        assert!(none.hold(1).is_none() && none.hold(0).is_some());
        assert!(all.hold(usize::MAX).is_none());
        let _held = all.hold(10).expect("all of it");
        assert!(all.hold(usize::MAX).is_none(), "no sum is too large");
    }

    #[test]
    fn a_part_of_no_share_bounds_nothing() {
        let free = SharePart::default();
        let held = free.hold(usize::MAX).expect("no bound");
        assert_eq!((free.bytes_max(), held.bytes), (usize::MAX, usize::MAX));
        assert!(free.hold(usize::MAX).is_some());
    }

    #[test]
    fn model_holds_never_come_to_more_than_the_share() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let share = MemoryShare::new(random.usize(..200));
            let owns: Vec<usize> = (0..4).map(|_| random.usize(..60)).collect();
            let parts: Vec<_> = owns.iter().map(|own| share.part(*own)).collect();
            let mut held: Vec<(usize, ShareHold)> = Vec::new();
            for _ in 0..100 {
                let number = random.usize(..parts.len());
                match random.bool() {
                    true => {
                        let bytes = random.usize(..40);
                        let hold = parts[number].hold(bytes);
                        held.extend(hold.map(|hold| (number, hold)));
                    }
                    false if held.is_empty() => {}
                    false => drop(held.swap_remove(random.usize(..held.len()))),
                }
                let of = |number: usize| {
                    let own = held.iter().filter(|(of, _)| *of == number);
                    own.map(|(_, hold)| hold.bytes).sum::<usize>()
                };
                let sum: usize = (0..parts.len()).map(of).sum();
                assert_eq!(share.held_bytes(), sum);
                assert!(sum <= share.0.bytes_max);
            }
            drop(held);
            // Whatever was held, each gets its own again.
            let own: Vec<_> = share.0.parts.lock().iter().map(|it| it.own_bytes).collect();
            let all: Option<Vec<_>> = parts
                .iter()
                .zip(own)
                .map(|(it, own)| it.hold(own))
                .collect();
            assert!(all.is_some());
        }
    }
}
