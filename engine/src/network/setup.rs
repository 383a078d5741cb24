//! How a network thread is built.

use std::sync::Arc;

use flatpath_driver::{Driver, OperationMode, Pipes, Region};
use flatpath_structures::slots::Slots;

use crate::admission::Admission;
use crate::admission::descriptors::DescriptorBudget;
use crate::connection::behind_proxy::ProxyHeader;
use crate::limits::{ACCEPT_ONE_BY_ONE, Limits, SPLICE_PIPES_MAX};
use crate::memory::account::Account;
use crate::network::waits::Waits;
use crate::network::wakes::Wakes;
use crate::observe::access_log::{AccessLog, LogTo};
use crate::observe::statistics::ThreadCounters;
use crate::pairs::Pairs;
use crate::protocol::common::{Common, Entrance, Parts};
use crate::protocol::erased::{DynProtocol, ErasedListener};
use crate::protocol::successor::Successors;
use crate::protocol::turn::Turn;
use crate::server::settings::Preamble;
#[cfg(feature = "tls")]
use crate::server::settings::TlsBegins;
use crate::workers::Dispatcher;
use crate::workers::thread_place::ThreadPlace;

use super::bulk::Bulk;
use super::cipher_cache::CipherCache;
use super::datagrams::{
    DatagramSetup, Datagrams, limit_workers as limit_datagrams, names_of, numbers_of,
};
use super::drain::Drain;
use super::listening::{Acceptor, Acceptors, Listener, limit_workers, shortest_of};
use super::pending::Pending;
use super::piped::PIPE_DESCRIPTORS;
use super::sends::Sends;
use super::sources::Sources;
use super::thread::{Network, Thread};
use super::timers::Timers;
use super::user_data::CONNECTIONS_BOUND;

/// What a network thread is built from.
pub(crate) struct Setup {
    pub(crate) place: ThreadPlace,
    pub(crate) limits: Limits,
    pub(crate) accept_mode: OperationMode,
    /// The sockets of each listener, and what it speaks.
    pub(crate) listeners: Vec<(Vec<flatpath_driver::Listener>, Box<dyn DynProtocol>)>,
    pub(crate) access_log: Option<LogTo>,
    /// What comes before the protocol of each listener.
    pub(crate) preambles: Vec<Preamble>,
    /// The number of each listener in the server.
    pub(crate) numbers: Vec<u16>,
    /// Which region of the driver each listener may receive into, as `regions_of` says.
    pub(crate) region_ids: Vec<u16>,
    /// Sockets that datagrams are received from, and the region that they are received into.
    pub(crate) datagrams: Vec<DatagramSetup>,
    pub(crate) datagram_region: u16,
}

/// Places of a network thread's table: room beyond the limit for those that are refused.
pub(crate) fn places_of(connections_max: usize) -> usize {
    (connections_max + ACCEPT_ONE_BY_ONE).min(CONNECTIONS_BOUND)
}

/// The regions of a network thread with their names; listeners that have one are shown theirs.
fn name_regions(
    driver: &impl Driver,
    thread: usize,
    listeners: &mut [Listener],
    datagram_region: u16,
) -> Vec<(&'static str, Region)> {
    let mut regions = vec![("common", driver.region(0).clone())];
    for listener in listeners {
        if listener.region_id() > 0 {
            let region = driver.region(listener.region_id());
            listener.protocol_mut().region_made(thread, region);
            regions.push((listener.name(), region.clone()));
        }
    }
    if datagram_region > 0 {
        let region = driver.region(datagram_region);
        regions.push(("datagrams", region.clone()));
    }
    regions
}

/// The turn before the first one.
fn turn_before(driver: &impl Driver) -> Turn {
    Turn {
        number: 0,
        now_ns: driver.now_ns(),
        wall_seconds: driver.wall_seconds(),
    }
}

/// What the thread counts, which any thread may read from now on, and its side of dispatch.
fn dispatcher_of(
    place: &ThreadPlace,
    driver: &'static str,
    limits: &Limits,
    (listeners, datagrams): (&[Listener], &[DatagramSetup]),
) -> (Arc<ThreadCounters>, Dispatcher) {
    let places = places_of(limits.connections_max.min(CONNECTIONS_BOUND));
    let numbers = listeners.iter().map(Listener::number);
    let numbers = numbers.chain(numbers_of(datagrams));
    let counters = Arc::new(ThreadCounters::new(driver, numbers));
    limit_workers(place.concurrency(), limits, listeners);
    limit_datagrams(place.concurrency(), datagrams);
    let dispatcher = place.begin(&counters, (limits.in_flight_max, places));
    (counters, dispatcher)
}

/// The listeners, and the sockets of all of them.
fn listeners_of(
    parts: Vec<(Vec<flatpath_driver::Listener>, Box<dyn DynProtocol>)>,
    numbers: impl Iterator<Item = (u16, u16)>,
    bounds: (&Limits, usize),
) -> (Vec<Acceptor>, Vec<Listener>) {
    let (mut acceptors, mut listeners) = (Vec::new(), Vec::new());
    for (((sockets, protocol), (number, region_id)), own) in parts.into_iter().zip(numbers).zip(0..)
    {
        acceptors.extend(sockets.into_iter().map(|socket| Acceptor::new(socket, own)));
        listeners.push(Listener::new(protocol, number, region_id, bounds));
    }
    (acceptors, listeners)
}

/// Pipes for spliced connections and long bodies; none is opened while descriptors are short.
fn counted_pipes(budget: DescriptorBudget) -> Pipes {
    let pipes = Pipes::new(SPLICE_PIPES_MAX);
    pipes.count(move || {
        let leave = || Box::new(budget.cache(PIPE_DESCRIPTORS)) as _;
        (budget.excess() == 0).then(leave)
    });
    pipes
}

impl<D: Driver> Thread<D> {
    fn new(driver: D, common: Common, (places, region_count): (usize, usize)) -> Thread<D> {
        let memory = Arc::clone(&common.shared().memory);
        let table = (u32::try_from(places).unwrap_or(u32::MAX - 1), region_count);
        Thread {
            timers: Timers::new(),
            pipes: counted_pipes(common.descriptors().clone()),
            pairs: Pairs::new(table.0),
            waits: Waits::default(),
            memory: Account::new(memory, common.number(), table, common.turn.now_ns),
            cipher_cache: CipherCache::new(places),
            successors: Successors::new(places),
            drain: Drain::default(),
            bulk: Bulk::new(driver.region(0).page_bytes() as usize),
            sends: Sends::new(),
            driver,
            common,
        }
    }

    /// Has connections begin with what comes before their listener's protocol.
    fn begin_with_preambles(
        &mut self,
        listeners: &mut [Listener],
        preambles: Vec<Preamble>,
        places: usize,
    ) {
        let mut entrances = Vec::with_capacity(listeners.len());
        for (listener, preamble) in listeners.iter_mut().zip(preambles) {
            if let Some(balancers) = preamble.balancers {
                listener.begin_with_header(balancers);
                let header = || ErasedListener::new(Arc::new(ProxyHeader), places);
                self.successors.add_proxy_header(|| Box::new(header()));
            }
            #[cfg(feature = "tls")]
            if let Some(config) = preamble.tls {
                let options = listener.protocol().options();
                let handshakes = crate::tls::handshakes::handshakes(config, options, places);
                let number = self.successors.add_own(handshakes);
                match preamble.tls_begins {
                    TlsBegins::AtOnce => listener.begin_with_handshake(number),
                    TlsBegins::WhenAsked => listener.begin_tls_when_asked(number),
                }
            }
            entrances.push(Entrance {
                may_start_tls: listener.start_tls() > 0,
                is_unix: preamble.is_unix,
            });
        }
        self.common.set_entrances(entrances);
    }
}

impl<D: Driver> Network<D> {
    pub(crate) fn new(driver: D, setup: Setup) -> Network<D> {
        let connections_max = setup.limits.connections_max.min(CONNECTIONS_BOUND);
        let places = places_of(connections_max);
        let capacity = u32::try_from(places).unwrap_or(u32::MAX - 1);
        let place = setup.place;
        let thread = place.number();
        let bounds = (&setup.limits, place.threads());
        let numbers = setup.numbers.into_iter().zip(setup.region_ids);
        let (acceptors, mut listeners) = listeners_of(setup.listeners, numbers, bounds);
        let names = listeners.iter().map(Listener::name);
        let names = names.chain(names_of(&setup.datagrams));
        place.name_listeners(names.collect());
        let all = (&listeners[..], &setup.datagrams[..]);
        let (counters, dispatcher) = dispatcher_of(&place, driver.kind(), &setup.limits, all);
        let regions = name_regions(&driver, thread, &mut listeners, setup.datagram_region);
        let datagrams = Datagrams::new(setup.datagrams, listeners.len(), setup.datagram_region);
        let region_count = regions.len();
        let entered = place.enter_regions(regions);
        let access_log = setup.access_log.as_ref().map(AccessLog::new);
        let parts = Parts {
            turn: turn_before(&driver),
            dispatcher,
            admission: Admission::new(places, listeners.iter().map(Listener::bound)),
            counters,
            wakes: Wakes::new(capacity, driver.waker(), Arc::clone(place.memory())),
            shortest_ns: shortest_of(&listeners),
        };
        let common = Common::new(place, setup.limits, access_log, parts);
        let mut thread = Thread::new(driver, common, (places, region_count));
        thread.begin_with_preambles(&mut listeners, setup.preambles, places);
        Network {
            thread,
            listeners,
            acceptors: Acceptors::new(acceptors, setup.accept_mode),
            connections: Slots::new(capacity),
            sources: Sources::new(),
            _entered: entered,
            pending: Pending::default(),
            datagrams,
        }
    }

    /// What the acceptor with this number accepts from, while it does.
    #[cfg(feature = "simulation")]
    pub(crate) fn source(&self, index: usize) -> Option<&flatpath_driver::Listener> {
        self.acceptors.source(index)
    }

    /// The driver, for tests and for reading its statistics.
    pub(crate) fn driver(&self) -> &D {
        &self.thread.driver
    }
}
