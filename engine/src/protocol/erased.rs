//! A listener's protocol with its types erased, as one network thread holds it.
//!
//! The engine is not generic over protocols: several listen side by side. One indirect call per
//! event is the price; the typed state of each protocol is in flat tables.

use std::any::Any;
use std::sync::Arc;

use flatpath_driver::{Filling, Region, RegionConfig};
use flatpath_structures::panics::{contain, drop_contained};
use flatpath_structures::slots::{Key, Slots};

use crate::connection::Closing;
use crate::observe::access_log::LogEnd;
use crate::protocol::context::{Context, Envelope, Job};
use crate::protocol::discard::discard;
use crate::protocol::io::Io;
use crate::protocol::{Event, PerThread, Protocol, Received, ThreadEvent, options_of};
use crate::server::listener_limits::ListenerLimits;
use crate::server::options::ListenerOptions;
use crate::workers::Task;
use crate::workers::free_list::{FreeList, Trimmed};

/// A protocol on one network thread, whatever it is.
///
/// Invariant: from the first connection on, no panic of the protocol leaves these calls, nor a
/// panic in the drop of its session, of its job or of another panic's payload. A panic in a call
/// aborts the connection it was made for; one in a drop costs nothing more. The calls before the
/// first connection (`options`, `region_made`) may panic: the start fails then.
pub(crate) trait DynProtocol {
    fn open(&mut self) -> Option<Key>;
    fn close(&mut self, session: Key, log: Option<LogEnd<'_>>);
    fn received(&mut self, io: Io<'_>, input: &[u8]) -> Received;
    fn event(&mut self, io: Io<'_>, event: Event<'_>);
    fn finished(&mut self, io: Io<'_>, task: Box<dyn Task>);
    /// A job comes back for no connection. One of another protocol is given back.
    fn retire(&mut self, job: Box<dyn Any + Send>) -> Result<(), Box<dyn Any + Send>>;
    fn options(&self) -> &ListenerOptions;
    /// The bounds that the protocol wants for itself.
    fn own_limits(&self) -> ListenerLimits;
    fn region_made(&mut self, thread: usize, region: &Region);
    fn turn_ended(&mut self);
    /// For `successor.rs`, which knows the types again.
    fn as_any(&mut self) -> &mut dyn Any;
    /// Frees jobs that were not needed since the last call.
    fn trim(&mut self) -> Trimmed;
}

/// The one implementation of [`DynProtocol`].
pub(crate) struct ErasedListener<P: Protocol> {
    protocol: Arc<P>,
    /// Asked once: from then on no call is made for it.
    options: ListenerOptions,
    thread: P::ThreadState,
    sessions: Slots<P::Session>,
    free_jobs: FreeList<Envelope<P>>,
}

impl<P: Protocol> ErasedListener<P> {
    pub(crate) fn new(protocol: Arc<P>, connections_max: usize) -> ErasedListener<P> {
        // CONTAINED: by the start, which fails, or by `Successors`.
        let options = options_of(&*protocol);
        // CONTAINED: as above.
        let thread = P::ThreadState::new(&protocol);
        let capacity = u32::try_from(connections_max).unwrap_or(u32::MAX - 1);
        ErasedListener {
            protocol,
            options,
            thread,
            sessions: Slots::new(capacity),
            free_jobs: FreeList::default(),
        }
    }

    /// With bounds that replace its own, each that is named.
    pub(crate) fn limited(mut self, limits: &ListenerLimits) -> ErasedListener<P> {
        let options = &mut self.options;
        options.limits = limits.clone().or(&options.limits);
        options.workers_max = options.limits.workers_max.or(options.workers_max);
        self
    }

    /// Calls `act` for one connection; `None` when it panicked.
    fn with<R>(&mut self, io: Io<'_>, act: impl FnOnce(&P, &mut Context<'_, P>) -> R) -> Option<R> {
        let Some(session) = self.sessions.get_mut(io.connection.session()) else {
            drop_contained(act);
            return None;
        };
        let mut context = Context {
            thread: &mut self.thread,
            session,
            io,
            protocol: &self.protocol,
            free_jobs: &mut self.free_jobs,
        };
        let result = contain(|| act(context.protocol, &mut context));
        if result.is_none() {
            context.io.connection.close(Closing::Abort);
        }
        result
    }

    /// Opens a session that begins as `begin` says; `None` when that panics.
    pub(crate) fn open_with(&mut self, begin: impl FnOnce() -> P::Session) -> Option<Key> {
        let session = contain(begin)?;
        self.sessions.insert(session).map_err(drop_contained).ok()
    }
}

impl<P: Protocol> DynProtocol for ErasedListener<P> {
    fn open(&mut self) -> Option<Key> {
        self.open_with(P::Session::default)
    }

    fn close(&mut self, session: Key, log: Option<LogEnd<'_>>) {
        if let Some(mut session) = self.sessions.remove(session) {
            let (protocol, thread) = (&*self.protocol, &mut self.thread);
            contain(|| protocol.closed(thread, &mut session, log));
            drop_contained(session);
        }
    }

    fn received(&mut self, io: Io<'_>, input: &[u8]) -> Received {
        self.with(io, |protocol, context| protocol.received(context, input))
            .unwrap_or(Received::Consumed)
    }

    fn event(&mut self, io: Io<'_>, event: Event<'_>) {
        self.with(io, |protocol, context| {
            protocol.event(context, event);
        });
    }

    fn finished(&mut self, io: Io<'_>, task: Box<dyn Task>) {
        let Ok(envelope) = task.into_any().downcast::<Envelope<P>>() else {
            debug_assert!(false, "a job comes back to the listener that sent it");
            return;
        };
        self.with(io, |protocol, context| {
            protocol.finished(context, Job(envelope));
        });
    }

    fn retire(&mut self, job: Box<dyn Any + Send>) -> Result<(), Box<dyn Any + Send>> {
        let mut envelope = job.downcast::<Envelope<P>>()?;
        if !Arc::ptr_eq(&envelope.protocol, &self.protocol) {
            return Err(envelope);
        }
        envelope.reservation = None;
        let (protocol, thread) = (&*self.protocol, &mut self.thread);
        match contain(|| protocol.retire(thread, &mut envelope.job)) {
            Some(()) => self.free_jobs.put(envelope),
            None => discard(envelope),
        }
        Ok(())
    }

    fn own_limits(&self) -> ListenerLimits {
        let asked = contain(|| options_of(&*self.protocol));
        let ListenerOptions {
            limits,
            workers_max,
            ..
        } = asked.unwrap_or_else(|| self.options.clone());
        ListenerLimits {
            workers_max: limits.workers_max.or(workers_max),
            ..limits
        }
    }

    fn options(&self) -> &ListenerOptions {
        &self.options
    }

    fn region_made(&mut self, thread: usize, region: &Region) {
        let event = ThreadEvent::RegionMade { thread, region };
        // CONTAINED: by the start, which fails.
        self.protocol.thread_event(&mut self.thread, event);
    }

    fn turn_ended(&mut self) {
        let (protocol, thread) = (&*self.protocol, &mut self.thread);
        contain(|| protocol.thread_event(thread, ThreadEvent::TurnEnded));
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }

    fn trim(&mut self) -> Trimmed {
        self.free_jobs.trim()
    }
}

impl<P: Protocol> Drop for ErasedListener<P> {
    /// What a thread that ends before its time leaves: one by one, because a second panic while the
    /// first one unwinds would end the process. The drop of the thread's state is for the owner to
    /// contain.
    fn drop(&mut self) {
        let keys: Vec<Key> = self.sessions.iter().map(|(key, _)| key).collect();
        for key in keys {
            self.close(key, None);
        }
        while let Some(envelope) = self.free_jobs.take() {
            drop_contained(envelope);
        }
    }
}

/// The regions that listeners want besides the common one, in order, and the number of the region
/// of each listener: 0 for those that want none. Which have TLS from the first byte on is said with
/// them.
pub(crate) fn regions_of<'a>(
    protocols: impl Iterator<Item = (&'a dyn DynProtocol, bool)>,
) -> (Vec<RegionConfig>, Vec<u16>) {
    let mut regions = Vec::new();
    let region_ids = protocols.map(|(listener, has_tls)| match &listener.options().region {
        Some(region) => {
            regions.push(RegionConfig {
                filling: match has_tls && listener.options().retains_all {
                    true => Filling::Written,
                    false => region.filling,
                },
                ..region.clone()
            });
            u16::try_from(regions.len()).expect("listeners are few")
        }
        None => 0,
    });
    let region_ids = region_ids.collect();
    (regions, region_ids)
}
