//! The streams of a connection, found by their number in constant time.
//!
//! Most connections have few at a time: those are looked through, which costs less than a table and
//! keeps an idle connection small. With more there is a table of their places.
//!
//! Invariants
//! - PL1: with a table, each stream has its place in it, and nothing else is in it.
//! - PL2: without a stream there is no table, and after a call nothing at all.
//!
//! Cost: a hash, of numbers that clients choose, with a seed of the process.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};

use foldhash::fast::RandomState;

use super::stream::Stream;
use crate::service::Service;

/// How many are looked through, without a table.
const FEW: usize = 8;

/// The places of streams by their numbers: fewer than 256, by `STREAMS_MAX`.
type Places = HashMap<u32, u8, RandomState>;

/// See the module.
pub(super) struct Streams<S: Service> {
    all: Vec<Stream<S>>,
    places: Option<Box<Places>>,
}

impl<S: Service> Streams<S> {
    pub(super) fn new() -> Self {
        Self {
            all: Vec::new(),
            places: None,
        }
    }

    /// Where the stream of this number is.
    pub(super) fn place_of(&self, stream: u32) -> Option<usize> {
        match &self.places {
            None => self.all.iter().position(|it| it.flow.id == stream),
            Some(places) => places.get(&stream).map(|at| usize::from(*at)),
        }
    }

    /// Adds one, and returns its place.
    pub(super) fn push(&mut self, stream: Stream<S>) -> usize {
        if self.all.capacity() == 0 {
            // Most connections have one at a time.
            self.all.reserve_exact(1);
        }
        let (at, number) = (self.all.len(), stream.flow.id);
        self.all.push(stream);
        match &mut self.places {
            Some(places) => drop(places.insert(number, at as u8)),
            None if at < FEW => {}
            None => {
                let numbers = self.all.iter().map(|it| it.flow.id);
                self.places = Some(Box::new(numbers.zip(0..).collect()));
            }
        }
        at
    }

    /// Drops one, whose place the last one gets.
    pub(super) fn swap_remove(&mut self, at: usize) {
        let number = self.all[at].flow.id;
        match at + 1 == self.all.len() {
            // The last one is not moved to be dropped.
            true => self.all.truncate(at),
            false => drop(self.all.swap_remove(at)),
        }
        if let Some(places) = &mut self.places {
            places.remove(&number);
            if let Some(moved) = self.all.get(at) {
                places.insert(moved.flow.id, at as u8);
            }
        }
        if self.all.is_empty() {
            self.places = None;
        }
    }

    /// Frees what is left of streams that are gone: the connection may rest for long.
    pub(super) fn shrink(&mut self) {
        if self.all.is_empty() && self.all.capacity() > 0 {
            self.all = Vec::new();
        }
    }

    /// Takes all away.
    pub(super) fn take_all(&mut self) -> Vec<Stream<S>> {
        self.places = None;
        std::mem::take(&mut self.all)
    }
}

impl<S: Service> Deref for Streams<S> {
    type Target = [Stream<S>];

    fn deref(&self) -> &[Stream<S>] {
        &self.all
    }
}

impl<S: Service> DerefMut for Streams<S> {
    fn deref_mut(&mut self) -> &mut [Stream<S>] {
        &mut self.all
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use flatpath::Turn;

    use super::super::bounds::STREAMS_MAX;
    use super::super::flow::Flow;
    use super::*;
    use crate::router::Router;

    const TURN: Turn = Turn::new(1, Duration::ZERO, Duration::ZERO);

    #[test]
    fn model_each_stream_is_where_its_number_leads() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut streams, mut model, mut last) = (Streams::<Router>::new(), Vec::new(), 1);
        for step in 0..20_000 {
            // In waves, so that there are few, many and none.
            let grows = (step / 150) % 2 == 0;
            if random.bool() == grows && model.len() < STREAMS_MAX {
                last += 2 * random.u32(1..1000);
                let at = streams.push(Stream::new(Flow::new(last, 0, false), TURN));
                assert_eq!(at, model.len());
                model.push(last);
            } else if !model.is_empty() {
                let at = random.usize(..model.len());
                streams.swap_remove(at);
                model.swap_remove(at);
            }
            let numbers = streams.iter().map(|it| it.flow.id);
            assert!(numbers.eq(model.iter().copied()), "step {step}");
            for (at, number) in model.iter().enumerate() {
                assert_eq!(streams.place_of(*number), Some(at), "PL1");
            }
            assert_eq!(streams.place_of(last + 2), None);
            let table = streams.places.as_ref().map(|places| places.len());
            assert!(table.is_none_or(|count| count == model.len()), "PL1");
            assert!(table.is_none() || !model.is_empty(), "PL2");
            streams.shrink();
            assert_eq!(streams.all.capacity() == 0, model.is_empty(), "PL2");
        }
        assert!(last > 1);
    }
}
