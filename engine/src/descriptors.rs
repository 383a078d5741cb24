//! One budget of descriptors for connections and for the files that outlive a job.
//!
//! A file that a worker opens and closes within its job is not counted: [`DESCRIPTORS_RESERVED`]
//! has room for those. A file that is sent or written over many jobs is held here from before it is
//! opened until after it is closed, and each one held is a place less for connections.
//!
//! Invariants
//! - F1: no more is held than `files_max`, so with each held file on a connection of its own a part
//!   of the room ([`CONNECTIONS_PART`]) is left for other connections.
//! - F2: a hold is granted only if connections and files together then exceed the room by
//!   [`DESCRIPTORS_SPARE`] at most. So a crowd that rests is closed for files step by step.
//!
//! Ordering: all relaxed. The counts are heuristics on both sides: a network thread or a worker
//! that sees an older one is wrong by what happened in that moment, for which the reserve has room.
//!
//! Cost: an atomic update and a load per network thread for each file that is held; a load per turn
//! of a network thread, and a store in turns in which its number of connections changed.
//!
//! [`DESCRIPTORS_RESERVED`]: crate::limits::DESCRIPTORS_RESERVED

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::limits::{CONNECTIONS_PART, CONNECTIONS_PART_MIN, DESCRIPTORS_SPARE};

/// Refusals with less than this between them are one episode, and one line in the log.
const QUIET: Duration = Duration::from_secs(10);

/// What may be held of the descriptors of this process. Cheap to clone; clones share the counts.
#[derive(Clone, Debug)]
pub struct DescriptorBudget(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    /// Descriptors for connections and files together.
    room: usize,
    files_max: usize,
    held: AtomicUsize,
    refused: AtomicU64,
    /// When a hold was refused last, in milliseconds since `began`, plus one; 0 for never.
    refused_ms: AtomicU64,
    began: Instant,
    /// Connections of each network thread, as it said last.
    connections: Box<[AtomicUsize]>,
}

/// Descriptors that are held; dropped, they are given back. Drop it behind the file.
#[derive(Debug)]
pub struct DescriptorHold {
    counts: Arc<Counts>,
    count: usize,
}

/// The counts at a moment, for display.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DescriptorFigures {
    /// Descriptors of files that are held now.
    pub held: usize,
    /// The most that there may be.
    pub held_max: usize,
    /// Holds refused since the start.
    pub refused: u64,
}

impl DescriptorBudget {
    /// A budget for `rings` network threads that may have `connections_max` connections together,
    /// of `room` descriptors.
    pub(crate) fn new(room: usize, connections_max: usize, rings: usize) -> DescriptorBudget {
        let least = CONNECTIONS_PART_MIN.min(room / 2);
        let part = (room / CONNECTIONS_PART).max(least);
        // Each held file may have a connection of its own, and what no connection may take is for
        // files anyway.
        let files_max = ((room - part) / 2).max(room.saturating_sub(connections_max));
        DescriptorBudget(Arc::new(Counts {
            room,
            files_max,
            held: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            refused_ms: AtomicU64::new(0),
            began: Instant::now(),
            connections: (0..rings).map(|_| AtomicUsize::new(0)).collect(),
        }))
    }

    /// Holds `count` descriptors for what is opened next and outlives the job; `None` if there is
    /// no room for them now, which the log and [`DescriptorFigures::refused`] tell. O(network
    /// threads).
    #[must_use]
    pub fn hold(&self, count: usize) -> Option<DescriptorHold> {
        let counts = &self.0;
        let open: usize = counts
            .connections
            .iter()
            .map(|open| open.load(Relaxed))
            .sum();
        let fits = |held: usize| {
            let held = held.checked_add(count)?;
            let all = open.saturating_add(held);
            let is_free = all <= counts.room.saturating_add(DESCRIPTORS_SPARE);
            (held <= counts.files_max && is_free).then_some(held)
        };
        match counts.held.fetch_update(Relaxed, Relaxed, fits) {
            Ok(_) => Some(DescriptorHold {
                counts: Arc::clone(counts),
                count,
            }),
            Err(held) => {
                self.note_refusal(held, open);
                None
            }
        }
    }

    fn note_refusal(&self, held: usize, open: usize) {
        let counts = &self.0;
        counts.refused.fetch_add(1, Relaxed);
        let now_ms = u64::try_from(counts.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let last_ms = counts.refused_ms.swap(now_ms.saturating_add(1), Relaxed);
        let quiet_ms = QUIET.as_millis() as u64;
        if last_ms == 0 || now_ms >= last_ms.saturating_add(quiet_ms) {
            log::warn!(
                "descriptors for files: {held} of {} in use beside {open} connections; downloads \
                 and uploads that find none are refused (raise ulimit -n or LimitNOFILE=)",
                counts.files_max,
            );
        }
    }

    /// Connections that one of the network threads has room for beside the files.
    pub(crate) fn places(&self) -> usize {
        let counts = &self.0;
        match counts.held.load(Relaxed) {
            0 => usize::MAX,
            held => counts.room.saturating_sub(held) / counts.connections.len().max(1),
        }
    }

    /// Network thread `ring` has `open` connections now.
    pub(crate) fn connections_are(&self, ring: usize, open: usize) {
        if let Some(own) = self.0.connections.get(ring)
            && own.load(Relaxed) != open
        {
            own.store(open, Relaxed);
        }
    }

    /// The counts now.
    pub(crate) fn figures(&self) -> DescriptorFigures {
        DescriptorFigures {
            held: self.0.held.load(Relaxed),
            held_max: self.0.files_max,
            refused: self.0.refused.load(Relaxed),
        }
    }
}

/// A budget without bounds.
impl Default for DescriptorBudget {
    fn default() -> DescriptorBudget {
        DescriptorBudget::new(usize::MAX, 0, 0)
    }
}

impl Drop for DescriptorHold {
    fn drop(&mut self) {
        self.counts.held.fetch_sub(self.count, Relaxed);
    }
}

/// `held=3 held_max=72 refused=0`.
impl fmt::Display for DescriptorFigures {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DescriptorFigures {
            held,
            held_max,
            refused,
        } = self;
        write!(
            formatter,
            "held={held} held_max={held_max} refused={refused}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_leave_a_part_of_the_room_to_connections_however_many_are_held() {
        // As with 256 descriptors.
        let budget = DescriptorBudget::new(192, 192, 1);
        let mut holds = Vec::new();
        while let Some(hold) = budget.hold(1) {
            holds.push(hold);
            budget.connections_are(0, holds.len());
        }
        assert_eq!(holds.len(), (192 - 192 / CONNECTIONS_PART) / 2);
        assert_eq!(budget.places(), 192 - holds.len());
        assert!(budget.places() - holds.len() >= 192 / CONNECTIONS_PART);
        let figures = budget.figures();
        assert_eq!((figures.held, figures.refused), (holds.len(), 1));
        holds.pop();
        assert!(budget.hold(2).is_none());
        drop(budget.hold(1).expect("as many as were given back"));
        drop(holds);
        assert_eq!((budget.figures().held, budget.places()), (0, usize::MAX));
    }

    #[test]
    fn connections_that_fill_the_room_leave_files_the_spare_alone() {
        let budget = DescriptorBudget::new(192, 192, 2);
        budget.connections_are(0, 100);
        budget.connections_are(1, 92);
        let holds: Vec<_> = std::iter::from_fn(|| budget.hold(1)).collect();
        assert_eq!(holds.len(), DESCRIPTORS_SPARE);
        // Each network thread closes what rests until this many are left.
        assert_eq!(budget.places(), (192 - DESCRIPTORS_SPARE) / 2);
        budget.connections_are(0, 90);
        assert!(budget.hold(10).is_some());
    }

    #[test]
    fn what_connections_may_not_take_is_for_files() {
        assert_eq!(DescriptorBudget::new(192, 10, 1).figures().held_max, 182);
        let budget = DescriptorBudget::default();
        assert!(budget.hold(1 << 40).is_some());
    }

    #[test]
    fn the_smallest_room_has_some_for_files() {
        // Of the least with which a server starts, half is reserved.
        let room = crate::limits::DESCRIPTORS_MIN as usize / 2;
        assert!(DescriptorBudget::new(room, room, 1).hold(3).is_some());
        assert!(DescriptorBudget::new(0, 0, 1).hold(1).is_none());
    }
}
