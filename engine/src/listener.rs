//! A listener's protocol with its types erased, as one network thread holds it.
//!
//! The engine is not generic over protocols: several listen side by side. One indirect call per
//! event is the price; the typed state behind it sits in flat tables.

use std::sync::Arc;

use bytes::Bytes;
use flatpath_driver::{Region, RegionConfig, Socket};
use flatpath_structures::panics::{contain, drop_contained};
use flatpath_structures::pool::PoolHandle;
use flatpath_structures::slots::{Key, Slots};

use crate::connection::{Closing, Control};
use crate::context::{Context, Envelope, Job, Keeping, Pages};
use crate::end::ConnectionId;
use crate::limits::Limits;
use crate::output::Output;
use crate::protocol::{Phase, Protocol, Turn};
use crate::spares::{Spares, Trimmed};
use crate::worker::{JobDesk, Task};

/// What a call needs of its connection and its thread.
pub(crate) struct Call<'a> {
    pub(crate) turn: Turn,
    pub(crate) limits: &'a Limits,
    pub(crate) pool: PoolHandle<'a>,
    pub(crate) output: &'a mut Output,
    pub(crate) control: &'a mut Control,
    pub(crate) desk: &'a mut JobDesk,
    pub(crate) connection: ConnectionId,
    pub(crate) socket: Socket,
    pub(crate) session: Key,
    pub(crate) keeping: Keeping<'a>,
}

/// A protocol on one network thread, whatever it is.
///
/// Invariant L1: from the first connection on, no panic of the protocol leaves these calls, nor a
/// panic in the drop of its session, of its job or of another panic's payload. A panic in a call
/// aborts the connection it was made for; one in a drop costs nothing more. The calls before the
/// first connection (`region`, `region_made`, `first_pages`, `pages_max`, `workers_max`) may panic:
/// the start fails then.
pub(crate) trait Speaker {
    fn open(&mut self) -> Option<Key>;
    fn close(&mut self, session: Key);
    fn received(&mut self, call: Call<'_>, input: &[u8]) -> usize;
    fn input_ended(&mut self, call: Call<'_>, left: &[u8]);
    fn finished(&mut self, call: Call<'_>, task: Box<dyn Task>);
    fn retire(&mut self, task: Box<dyn Task>);
    fn drained(&mut self, call: Call<'_>);
    fn expired(&mut self, call: Call<'_>, phase: Phase);
    fn draining(&mut self, call: Call<'_>);
    fn abandoned(&mut self, call: Call<'_>);
    fn pressed(&mut self, call: Call<'_>);
    fn roused(&mut self, call: Call<'_>);
    fn joined(&mut self, call: Call<'_>);
    fn join_refused(&mut self, call: Call<'_>);
    fn refusal(&self) -> Bytes;
    fn name(&self) -> &'static str;
    fn region(&self) -> Option<RegionConfig>;
    fn region_made(&self, ring: usize, region: &Region);
    fn first_pages(&self) -> Pages;
    fn pages_max(&self) -> Option<u32>;
    fn workers_max(&self) -> Option<u32>;
    fn turn_ended(&mut self);
    /// Frees jobs that nobody needed since the last call.
    fn trim(&mut self) -> Trimmed;
}

/// The one implementation of [`Speaker`].
pub(crate) struct Lanes<P: Protocol> {
    protocol: Arc<P>,
    lane: P::Lane,
    sessions: Slots<P::Session>,
    spare: Spares<Envelope<P>>,
}

impl<P: Protocol> Lanes<P> {
    pub(crate) fn new(protocol: Arc<P>, connections_max: usize) -> Lanes<P> {
        let lane = protocol.lane();
        let capacity = u32::try_from(connections_max).unwrap_or(u32::MAX - 1);
        Lanes {
            protocol,
            lane,
            sessions: Slots::new(capacity),
            spare: Spares::default(),
        }
    }

    /// Calls `act` with the typed pieces of one connection; `None` when it panicked.
    fn with<R>(
        &mut self,
        call: Call<'_>,
        act: impl FnOnce(&P, &mut P::Lane, &mut P::Session, &mut Context<'_, P>) -> R,
    ) -> Option<R> {
        let Some(session) = self.sessions.get_mut(call.session) else {
            drop_contained(act);
            return None;
        };
        let mut context = Context {
            turn: call.turn,
            limits: call.limits,
            pool: call.pool,
            output: call.output,
            control: call.control,
            desk: call.desk,
            protocol: &self.protocol,
            spare: &mut self.spare,
            connection: call.connection,
            socket: call.socket,
            keeping: call.keeping,
        };
        let lane = &mut self.lane;
        let protocol = &*self.protocol;
        let result = contain(|| act(protocol, lane, session, &mut context));
        if result.is_none() {
            context.control.close(Closing::Abort);
        }
        result
    }

    fn typed(task: Box<dyn Task>) -> Option<Box<Envelope<P>>> {
        task.into_any().downcast().ok()
    }
}

impl<P: Protocol> Speaker for Lanes<P> {
    fn open(&mut self) -> Option<Key> {
        let session = contain(P::Session::default)?;
        self.sessions.insert(session).map_err(drop_contained).ok()
    }

    fn close(&mut self, session: Key) {
        if let Some(mut session) = self.sessions.remove(session) {
            let (protocol, lane) = (&*self.protocol, &mut self.lane);
            contain(|| protocol.closed(lane, &mut session));
            drop_contained(session);
        }
    }

    fn received(&mut self, call: Call<'_>, input: &[u8]) -> usize {
        let consumed = self.with(call, |protocol, lane, session, context| {
            protocol.received(lane, session, context, input)
        });
        consumed.unwrap_or(input.len()).min(input.len())
    }

    fn input_ended(&mut self, call: Call<'_>, left: &[u8]) {
        self.with(call, |protocol, lane, session, context| {
            protocol.input_ended(lane, session, context, left);
        });
    }

    fn finished(&mut self, call: Call<'_>, task: Box<dyn Task>) {
        let Some(envelope) = Self::typed(task) else {
            debug_assert!(false, "a job comes back to the listener that sent it");
            return;
        };
        self.with(call, |protocol, lane, session, context| {
            protocol.finished(lane, session, context, Job(envelope));
        });
    }

    fn retire(&mut self, task: Box<dyn Task>) {
        if let Some(mut envelope) = Self::typed(task) {
            envelope.reservation = None;
            let (protocol, lane) = (&*self.protocol, &mut self.lane);
            match contain(|| protocol.retire(lane, &mut envelope.job)) {
                Some(()) => self.spare.keep(envelope),
                None => drop_contained(envelope),
            }
        }
    }

    fn drained(&mut self, call: Call<'_>) {
        self.with(call, |protocol, lane, session, context| {
            protocol.drained(lane, session, context);
        });
    }

    fn expired(&mut self, call: Call<'_>, phase: Phase) {
        self.with(call, |protocol, lane, session, context| {
            protocol.expired(lane, session, context, phase);
        });
    }

    fn draining(&mut self, call: Call<'_>) {
        self.with(call, |protocol, lane, session, context| {
            protocol.draining(lane, session, context);
        });
    }

    fn pressed(&mut self, call: Call<'_>) {
        self.with(call, |protocol, lane, session, context| {
            protocol.pressed(lane, session, context);
        });
    }

    fn abandoned(&mut self, call: Call<'_>) {
        self.with(call, |protocol, lane, session, context| {
            protocol.abandoned(lane, session, context);
        });
    }

    fn roused(&mut self, call: Call<'_>) {
        self.with(call, |protocol, lane, session, context| {
            protocol.roused(lane, session, context);
        });
    }

    fn joined(&mut self, call: Call<'_>) {
        self.with(call, |protocol, lane, session, context| {
            protocol.joined(lane, session, context);
        });
    }

    fn join_refused(&mut self, call: Call<'_>) {
        self.with(call, |protocol, lane, session, context| {
            protocol.join_refused(lane, session, context);
        });
    }

    fn refusal(&self) -> Bytes {
        contain(|| self.protocol.refusal()).unwrap_or_default()
    }

    fn name(&self) -> &'static str {
        self.protocol.name()
    }

    fn region(&self) -> Option<RegionConfig> {
        self.protocol.region()
    }

    fn region_made(&self, ring: usize, region: &Region) {
        self.protocol.region_made(ring, region);
    }

    fn first_pages(&self) -> Pages {
        self.protocol.first_pages()
    }

    fn pages_max(&self) -> Option<u32> {
        self.protocol.pages_max()
    }

    fn workers_max(&self) -> Option<u32> {
        self.protocol.workers_max()
    }

    fn turn_ended(&mut self) {
        let (protocol, lane) = (&*self.protocol, &mut self.lane);
        contain(|| protocol.turn_ended(lane));
    }

    fn trim(&mut self) -> Trimmed {
        self.spare.trim()
    }
}

impl<P: Protocol> Drop for Lanes<P> {
    /// What a thread that ends before its time leaves: one by one, because a second panic while the
    /// first one unwinds would end the process. The lane's own drop is for the owner to contain.
    fn drop(&mut self) {
        let keys: Vec<Key> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.close(key);
        }
        while let Some(envelope) = self.spare.take() {
            drop_contained(envelope);
        }
    }
}

/// The regions that listeners want besides the common one, in order, and the number of the region
/// of each listener: 0 for those that want none.
pub(crate) fn regions_of<'a>(
    speakers: impl Iterator<Item = &'a dyn Speaker>,
) -> (Vec<RegionConfig>, Vec<u16>) {
    let mut regions = Vec::new();
    let region_ids = speakers.map(|speaker| match speaker.region() {
        Some(region) => {
            regions.push(region);
            u16::try_from(regions.len()).expect("listeners are few")
        }
        None => 0,
    });
    let region_ids = region_ids.collect();
    (regions, region_ids)
}
