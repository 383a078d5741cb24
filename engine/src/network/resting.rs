//! The connections that rest, in the order in which they may be closed for others; what the places
//! of the thread are short of. How they are used is in `admission.rs`.
//!
//! Invariants
//! - O1: a connection is on the list that `listed` names, and leaves it with the table.
//! - O2: every connection that rests is on the list of its phase.
//! - O3: `leaving` counts the connections that were closed for others, or refused, and are still in
//!   the table. They do not count for the limit, but never more than `OVERFLOW_MAX` are beyond it.

use crate::connection::Connection;
use crate::episode::BoundEpisode;
use crate::lists::{Links, List};
use crate::phase::Phase;

/// See the module.
#[derive(Debug)]
pub(super) struct Resting {
    links: Links,
    idle: List,
    heads: List,
    pub(super) leaving: usize,
    /// Connections that the descriptors allow, known since the kernel had none left.
    pub(super) descriptors_allow: usize,
    /// Since when every place is taken and nothing rests; 0 for not now.
    pub(super) full_since_ns: u64,
    pub(super) places: BoundEpisode,
    pub(super) addresses: BoundEpisode,
    pub(super) listeners: BoundEpisode,
    pub(super) descriptors: BoundEpisode,
    pub(super) lasting: BoundEpisode,
}

impl Resting {
    pub(super) fn new(places: usize) -> Resting {
        Resting {
            links: Links::new(places),
            idle: List::default(),
            heads: List::default(),
            leaving: 0,
            descriptors_allow: usize::MAX,
            full_since_ns: 0,
            places: BoundEpisode::new("connection limit"),
            addresses: BoundEpisode::new("connections per address"),
            listeners: BoundEpisode::new("connections of a listener"),
            descriptors: BoundEpisode::new("descriptors"),
            lasting: BoundEpisode::new("requests that last"),
        }
    }

    /// The list of those that rest in `phase`, for [`Phase::Idle`] and [`Phase::Head`].
    pub(super) fn list(&mut self, phase: Phase) -> &mut List {
        match phase {
            Phase::Idle => &mut self.idle,
            _ => &mut self.heads,
        }
    }

    /// Enters a connection at the back of the list of its phase (O2).
    pub(super) fn enter(&mut self, connection: &mut Connection, index: u32) {
        self.forget(connection, index);
        let phase = connection.phase();
        connection.listed = Some(phase);
        connection.listed_ns = connection.phase_ns();
        let list = match phase {
            Phase::Idle => &mut self.idle,
            _ => &mut self.heads,
        };
        self.links.push_back(list, index);
    }

    /// Takes a connection off its list.
    pub(super) fn forget(&mut self, connection: &mut Connection, index: u32) {
        match connection.listed.take() {
            None => {}
            Some(Phase::Idle) => self.links.remove(&mut self.idle, index),
            Some(_) => self.links.remove(&mut self.heads, index),
        }
    }

    /// A connection is being closed for another one, or refused (O3).
    pub(super) fn leaves(&mut self, connection: &mut Connection) {
        self.leaving += usize::from(!connection.leaves);
        connection.leaves = true;
    }

    /// A connection has left the table.
    pub(super) fn left(&mut self, connection: &mut Connection, index: u32) {
        self.forget(connection, index);
        self.leaving -= usize::from(connection.leaves);
    }

    pub(super) fn episodes(&mut self) -> [&mut BoundEpisode; 5] {
        [
            &mut self.places,
            &mut self.addresses,
            &mut self.listeners,
            &mut self.descriptors,
            &mut self.lasting,
        ]
    }
}
