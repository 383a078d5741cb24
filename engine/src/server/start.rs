//! How a server starts: limits, listening sockets, shared state, workers, network threads, each of
//! which makes its own driver, because a ring belongs to one thread.

use std::io;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;

use flatpath_driver::{Cause, Driver, Listener, Selection};
use flatpath_structures::panics::contain;
use flatpath_structures::queue::INDICES_MAX;
use flatpath_structures::worker_pool::WorkerPoolLimits;
use flatpath_sys::process::{Limit, limit};

use crate::admission::answered::Answered;
use crate::admission::descriptors::{DescriptorBudget, make_table};
use crate::connection::behind_proxy::Balancers;
use crate::datagrams::listen::open_datagrams;
use crate::error::Error;
use crate::limits::{
    ACCEPT_ONE_BY_ONE, CONNECTIONS_FEW, DESCRIPTORS_MIN, DESCRIPTORS_PER_THREAD,
    DESCRIPTORS_RESERVED,
};
use crate::memory::pools::Pools;
use crate::network::open_driver::OpenDriver;
use crate::network::{
    After, CONNECTIONS_BOUND, DatagramSetup, Network, Setup, add_datagram_region, places_of,
};
use crate::protocol::discard::OnNetworkThread;
use crate::protocol::erased::{DynProtocol, regions_of};
use crate::server::lifecycle::ServerState;
use crate::server::listen::open_all;
use crate::server::listener_limits::ListenerLimits;
use crate::server::network_threads::processors;
use crate::server::running::{Bound, Handle, Running};
use crate::server::settings::{DatagramEndpoint, Endpoint, Options, Preamble, ProtocolFactory};
use crate::server::signals::outlive_file_size_limit;
use crate::server::sockets::{ListenAddress, Listening};
use crate::server::threads::{self, Reporter, Reports};
use crate::workers::scaler::Scaler;
use crate::workers::thread_place::ThreadPlace;
use crate::workers::{DEFAULT_NAME, ListenerName, Shared};

pub(crate) fn start(
    mut endpoints: Vec<Endpoint>,
    datagrams: Vec<DatagramEndpoint>,
    mut options: Options,
) -> Result<Running, Error> {
    if endpoints.is_empty() && datagrams.is_empty() {
        return Err(Error::NoListener);
    }
    outlive_file_size_limit();
    complete_limits(&mut options)?;
    // Before there are threads, where the kernel need not wait.
    make_table(descriptors_of(&options));
    let selection = select(&options)?;
    log_choices(&options, &selection);
    let sockets = open_all(
        &mut endpoints,
        &options.passed,
        (options.name, options.network_threads),
        options.defer_accept,
    )?;

    let place = (options.name, options.network_threads);
    let datagrams = open_datagrams(datagrams, endpoints.len(), &options.passed, place)?;

    let names = endpoints.iter().zip(&sockets.listening);
    let names = names.map(|(endpoint, listening)| ListenerName {
        name: endpoint.name,
        address: listening.address.to_string(),
        request_classes: endpoint.request_classes,
        refusal_reasons: endpoint.refusal_reasons,
        parts: endpoint.preamble.parts_with_own(&endpoint.parts),
    });
    let names = names.chain(datagrams.listening.iter().map(datagram_name));
    let mut shared = shared(&options, names.collect());
    shared.open_sockets = sockets.open;
    shared.open_sockets.extend(datagrams.open);
    shared.answered = (!datagrams.listening.is_empty()).then(Answered::default);
    shared.socket_files = sockets.files;
    let shared = Arc::new(shared);
    tell_protocols(&endpoints, &sockets.per_thread, &shared.descriptors);
    let scaler = Scaler::start(Arc::clone(&shared)).map_err(Error::Thread)?;

    let mut running = Running {
        datagrams: datagrams.listening,
        addresses: internet_addresses(&sockets.listening),
        listening: sockets.listening,
        driver: selection.name(),
        handle: Handle(Arc::clone(&shared)),
        networks: Vec::new(),
        scaler: Some(scaler),
    };
    let preambles = preambles_of(&endpoints, &running.listening);
    let reports = Arc::new(Reports::new());
    let per_thread = sockets.per_thread.into_iter().zip(datagrams.per_thread);
    for (thread, (listeners, datagrams)) in per_thread.enumerate() {
        let thread = NetworkThread {
            thread: u16::try_from(thread).expect("at most 1024 were granted"),
            shared: Arc::clone(&shared),
            options: options.clone(),
            uring: selection.is_uring(),
            listeners,
            datagrams,
            preambles: preambles.clone(),
            protocols: endpoints
                .iter()
                .map(|endpoint| (Arc::clone(&endpoint.protocol), endpoint.limits.clone()))
                .collect(),
        };
        match thread.spawn(reports.reporter()) {
            Ok(thread) => running.networks.push(thread),
            Err(cause) => return Err(running.abandon(Error::Thread(cause))),
        }
    }
    match await_reports(&reports, options.network_threads) {
        Ok(()) => Ok(running),
        Err(error) => Err(running.abandon(error)),
    }
}

fn log_choices(options: &Options, selection: &Selection) {
    let (driver, reason) = (selection.name(), selection.reason());
    let (threads, processors) = (options.network_threads, processors());
    match options.name {
        DEFAULT_NAME => {
            log::info!("driver {driver}: {reason}");
            log::info!("network threads: {threads}; processors: {processors}");
        }
        name => log::debug!("{name}: driver {driver}: {reason}; network threads: {threads}"),
    }
}

/// Tells each protocol that the server starts, and how many network threads have its sockets.
fn tell_protocols(
    endpoints: &[Endpoint],
    per_thread: &[Vec<Vec<Listener>>],
    descriptors: &DescriptorBudget,
) {
    for (number, endpoint) in endpoints.iter().enumerate() {
        let own = per_thread.iter().map(|of_thread| &of_thread[number]);
        let accepting = own.filter(|sockets| !sockets.is_empty()).count();
        (endpoint.starts)(descriptors, accepting);
    }
}

/// What comes before each listener's protocol. A peer of a Unix socket has no address to compare
/// with those of balancers.
fn preambles_of(endpoints: &[Endpoint], listening: &[Listening]) -> Vec<Preamble> {
    let both = endpoints.iter().zip(listening);
    let preambles = both.map(|(endpoint, listening)| {
        let mut preamble = endpoint.preamble.clone();
        preamble.is_unix = matches!(listening.address, ListenAddress::Unix(_));
        if let (true, Some(balancers)) = (preamble.is_unix, &mut preamble.balancers) {
            *balancers = Arc::new(Balancers::Permitted);
        }
        preamble
    });
    preambles.collect()
}

/// A listener for datagrams, for display: its address has no other one of the same name.
fn datagram_name(listening: &Listening) -> ListenerName {
    ListenerName {
        name: listening.name,
        address: format!("udp:{}", listening.address),
        request_classes: &[],
        refusal_reasons: &[],
        parts: Vec::new(),
    }
}

/// Those of the listeners that have one.
fn internet_addresses(listening: &[Listening]) -> Vec<Bound> {
    let bound = |one: &Listening| {
        let address = one.address.internet()?;
        let name = one.name;
        Some(Bound { name, address })
    };
    listening.iter().filter_map(bound).collect()
}

fn shared(options: &Options, listeners: Vec<ListenerName>) -> Shared {
    let worker_pool = WorkerPoolLimits {
        workers_min: *options.workers.start(),
        workers_max: *options.workers.end(),
        idle_ns_max: options.worker_idle_ns_max,
    };
    let pools = Pools::new(
        options.limits.buffer_bytes_max,
        options.network_threads,
        places_of(options.limits.connections_max),
    );
    let mut shared = Shared::new(
        options.network_threads,
        listeners,
        &options.limits,
        worker_pool,
        pools,
    );
    let room = usize::try_from(room_of(descriptors_max())).unwrap_or(usize::MAX);
    let connections_max = options
        .limits
        .connections_max
        .saturating_mul(options.network_threads);
    let threads = options.network_threads;
    let places = 1 + threads * places_of(options.limits.connections_max);
    shared.descriptors = DescriptorBudget::new(room, connections_max, (threads, places));
    shared.observes_dispatch = options.observes_dispatch;
    shared.connections_max = connections_max;
    shared.name = options.name;
    shared
}

/// Chooses a driver on a thread of its own: the kernel tears the rings of the probe down later, and
/// interrupts system calls of the thread that made them (EINTR) when it does.
fn select(options: &Options) -> Result<Selection, Error> {
    let (choice, config) = (options.choice, options.driver.clone());
    let selected = Arc::new(OnceLock::new());
    let place = Arc::clone(&selected);
    let prober = threads::start("flatpath-probe".into(), move || {
        let _ = place.set(flatpath_driver::select(choice, &config));
    });
    let _ = prober.map_err(Error::Thread)?.join();
    match Arc::into_inner(selected).and_then(OnceLock::into_inner) {
        Some(selection) => selection.map_err(|refusal| match refusal.cause {
            Cause::NotBuilt => Error::DriverNotBuilt(refusal),
            _ => Error::Uring(refusal),
        }),
        None => Err(Error::Driver(io::Error::other(
            "the probe panicked; this is a bug",
        ))),
    }
}

/// Waits until every network thread serves or has given up.
fn await_reports(reports: &Reports, threads: usize) -> Result<(), Error> {
    let reports = reports.all();
    let count = reports.len();
    for report in reports {
        report.map_err(Error::Driver)?;
    }
    if count < threads {
        let cause = "a network thread panicked while it started; this is a bug";
        return Err(Error::Driver(io::Error::other(cause)));
    }
    Ok(())
}

fn descriptors_max() -> u64 {
    limit(Limit::Descriptors).unwrap_or(u64::MAX)
}

/// The descriptors that there are with as many connections as there may be.
fn descriptors_of(options: &Options) -> u64 {
    let (connections, threads) = (options.limits.connections_max, options.network_threads);
    let wanted = (connections as u64).saturating_mul(threads as u64);
    wanted
        .saturating_add(DESCRIPTORS_RESERVED)
        .min(descriptors_max())
}

/// Of all descriptors, those for connections and files that outlive a job. Half of a very small
/// limit stays for everything else.
fn room_of(descriptors: u64) -> u64 {
    let reserved = DESCRIPTORS_RESERVED.min(descriptors / 2);
    descriptors.saturating_sub(reserved).max(1)
}

/// Turns "as many as the machine allows" into a number, and refuses what cannot be.
fn complete_limits(options: &mut Options) -> Result<(), Error> {
    const CONNECTIONS_DEFAULT: u64 = 100_000;
    let wrong = |what: String| Err(Error::Limits(what));
    let (threads, in_flight_max) = (options.network_threads, options.limits.in_flight_max);
    if !(1..=1024).contains(&threads) {
        return wrong(format!(
            "network threads must be between 1 and 1024, not {threads}"
        ));
    }
    let processors = processors();
    if threads > processors {
        log::warn!(
            "{threads} network threads on {processors} processors: more threads than processors \
             serve no faster, and take memory"
        );
    }
    let (min, max) = (*options.workers.start(), *options.workers.end());
    if min == 0 || min > max {
        return wrong(format!(
            "workers must be a range MIN..MAX with 1 <= MIN <= MAX, not {min}..{max}"
        ));
    }
    if in_flight_max == 0 {
        return wrong("in_flight_max must be at least 1, not 0".into());
    }
    let places = in_flight_max.checked_mul(threads);
    if places.is_none_or(|places| places > INDICES_MAX as usize) {
        return Err(Error::Limits(format!(
            "in_flight_max times network threads must be at most {INDICES_MAX}, not \
             {in_flight_max} times {threads}"
        )));
    }
    let descriptors = descriptors_max();
    let needed = DESCRIPTORS_MIN + DESCRIPTORS_PER_THREAD * (options.network_threads as u64 - 1);
    if descriptors < needed {
        return Err(Error::Limits(format!(
            "the process may open {descriptors} descriptors, and needs {needed} at least (raise \
             it with ulimit -n or LimitNOFILE=)"
        )));
    }
    let room = room_of(descriptors);
    let wished = match options.limits.connections_max {
        0 => CONNECTIONS_DEFAULT,
        wished => wished as u64,
    };
    let before = options.passed.before().and_then(|it| it.connections_max);
    if let Some(before) = before.filter(|before| (*before as u64).min(wished) > room) {
        return Err(Error::Limits(format!(
            "the process may open {descriptors} descriptors, which is enough for {room} \
             connections, and the server that it is to take over from serves {before}: raise the \
             limit with ulimit -n or LimitNOFILE=, or ask for fewer connections"
        )));
    }
    let is_asked_for = options.limits.connections_max != 0;
    if wished > room && (is_asked_for || room < CONNECTIONS_FEW) {
        log::warn!(
            "connection limit {wished} lowered to {room}: the process may open {descriptors} \
             descriptors (raise it with ulimit -n or LimitNOFILE=)"
        );
    }
    let total = usize::try_from(wished.min(room)).unwrap_or(usize::MAX);
    options.limits.connections_max = (total / options.network_threads).clamp(1, CONNECTIONS_BOUND);
    let per_address = options.limits.connections_per_address;
    options.limits.connections_per_address = per_address.div_ceil(options.network_threads);
    Ok(())
}

struct NetworkThread {
    thread: u16,
    shared: Arc<Shared>,
    options: Options,
    uring: bool,
    /// For each endpoint the sockets that this thread accepts from.
    listeners: Vec<Vec<Listener>>,
    datagrams: Vec<DatagramSetup>,
    preambles: Vec<Preamble>,
    protocols: Vec<(ProtocolFactory, ListenerLimits)>,
}

impl NetworkThread {
    fn spawn(self, report: Reporter) -> io::Result<JoinHandle<()>> {
        let (thread, shared) = (self.thread, Arc::clone(&self.shared));
        threads::start(format!("{}-net-{thread}", shared.name), move || {
            let _network = OnNetworkThread::enter();
            run_network(thread, &shared, move || self.run(report));
        })
    }

    /// Makes the driver here, because a ring belongs to the thread that made it.
    fn run(mut self, report: Reporter) -> io::Result<()> {
        let places = self.options.limits.connections_max + ACCEPT_ONE_BY_ONE;
        // Only for listeners that this thread accepts for.
        let protocols = self.listeners.iter().zip(&self.protocols);
        let protocols: Vec<_> = protocols
            .filter(|(sockets, _)| !sockets.is_empty())
            .map(|(_, (made, limits))| made(places, limits))
            .collect();
        let preambles = self.listeners.iter().zip(&self.preambles);
        let preambles = preambles.filter(|(sockets, _)| !sockets.is_empty());
        let spoken = protocols.iter().zip(preambles);
        let spoken = spoken.map(|(protocol, (_, before))| (&**protocol, before.has_tls_at_once()));
        let (mut regions, region_ids) = regions_of(spoken);
        let datagram_region = add_datagram_region(&mut regions, !self.datagrams.is_empty());
        self.options.driver.regions = regions;
        let spoken = (protocols, region_ids, datagram_region);
        match OpenDriver::open(self.uring, &self.options, self.thread) {
            #[cfg(feature = "uring")]
            Ok(OpenDriver::Uring(driver)) => self.serve(driver, spoken, report),
            #[cfg(feature = "epoll")]
            Ok(OpenDriver::Epoll(driver)) => self.serve(driver, spoken, report),
            Err(cause) => give_up(&cause, report),
        }
    }

    fn serve<D: Driver>(
        self,
        driver: D,
        (protocols, region_ids, datagram_region): (Vec<Box<dyn DynProtocol>>, Vec<u16>, u16),
        report: Reporter,
    ) -> io::Result<()> {
        self.shared.mailboxes[usize::from(self.thread)].open(driver.waker());
        let numbers = self.listeners.iter().zip(0u16..);
        let numbers =
            numbers.filter_map(|(sockets, number)| (!sockets.is_empty()).then_some(number));
        let numbers = numbers.collect();
        let preambles = self.listeners.iter().zip(self.preambles);
        let preambles =
            preambles.filter_map(|(sockets, preamble)| (!sockets.is_empty()).then_some(preamble));
        let preambles = preambles.collect();
        let listeners = self
            .listeners
            .into_iter()
            .filter(|sockets| !sockets.is_empty())
            .zip(protocols)
            .collect();
        let mut network = Network::new(
            driver,
            Setup {
                place: ThreadPlace::new(self.thread, self.shared),
                limits: self.options.limits,
                accept_mode: self.options.accept_mode,
                listeners,
                numbers,
                preambles,
                access_log: self.options.access_log,
                region_ids,
                datagrams: self.datagrams,
                datagram_region,
            },
        );
        // The sockets listen already: every client that connects from now on is served.
        report.tell(Ok(()));
        loop {
            if network.turn()? == After::Done {
                log::debug!(
                    "thread {}: {:?}",
                    self.thread,
                    network.driver().statistics()
                );
                return Ok(());
            }
        }
    }
}

/// The whole of a network thread: serves, and reports its end whatever that is.
fn run_network(thread: u16, shared: &Shared, serve: impl FnOnce() -> io::Result<()>) {
    let ended = contain(serve).unwrap_or_else(|| {
        let bug = format!("network thread {thread} panicked; this is a bug");
        Err(io::Error::other(bug))
    });
    // What the thread held goes to the workers, while there are some.
    shared.bin_gathered();
    if let Err(cause) = &ended {
        // The others would wait for clients that this one can no longer serve.
        log::error!("network thread {thread} has ended, the server drains: {cause}");
        shared.advance(ServerState::Draining);
    }
    shared.lifecycle.network_ended(thread, ended);
}

/// Reports why the thread cannot serve; the start returns it, so the thread itself ends in peace.
fn give_up(cause: &io::Error, report: Reporter) -> io::Result<()> {
    report.tell(Err(io::Error::new(cause.kind(), cause.to_string())));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::Limits;
    use std::time::Instant;

    fn two_threads() -> Arc<Shared> {
        let worker_pool = WorkerPoolLimits {
            workers_min: 1,
            workers_max: 1,
            idle_ns_max: u64::MAX,
        };
        let limits = Limits {
            in_flight_max: 1,
            ..Limits::default()
        };
        let pools = Pools::new(8_192, 2, 4);
        Arc::new(Shared::new(
            2,
            ListenerName::some(1),
            &limits,
            worker_pool,
            pools,
        ))
    }

    /// As a network thread that has nothing to do: it ends when the server drains. False: it does
    /// not drain.
    fn until_drained(shared: &Shared) -> bool {
        let deadline = Instant::now() + flatpath_testkit::patience();
        while shared.server_state() == ServerState::Running && Instant::now() < deadline {
            std::thread::yield_now();
        }
        shared.server_state() == ServerState::Draining
    }

    #[test]
    fn the_end_of_any_network_thread_drains_the_others_and_is_the_outcome() {
        for panics in [false, true] {
            let shared = two_threads();
            let first = std::thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    let mut has_drained = false;
                    run_network(0, &shared, || {
                        has_drained = until_drained(&shared);
                        Ok(())
                    });
                    has_drained
                }
            });
            let second = std::thread::spawn({
                let shared = Arc::clone(&shared);
                move || {
                    run_network(1, &shared, || match panics {
                        true => std::panic::resume_unwind(Box::new("as asked")),
                        false => Err(io::Error::other("no more completions")),
                    });
                }
            });
            let left = shared.lifecycle.await_networks(2);
            assert_eq!(left, [], "both have ended");
            let outcome = shared.lifecycle.outcome(left).expect_err("a cause");
            let expected = if panics {
                "thread 1 panicked"
            } else {
                "no more"
            };
            assert!(outcome.to_string().contains(expected), "{outcome}");
            let has_drained = first.join().expect("no panic leaves it");
            assert!(has_drained, "the other thread serves on");
            second.join().expect("no panic leaves it");
        }
    }
}
