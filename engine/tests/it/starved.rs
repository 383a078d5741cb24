//! Connections that find no page to receive into: each is served as soon as one is free, whoever
//! gave it back and whenever, and none is closed for a slowness that is the server's.
//!
//! The protocol keeps each message where it was received, in a region of very few pages, and stalls
//! the connection; a test gives the pages back one by one.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use crate::lines::cut;
use flatpath::lock::Lock;
use flatpath::memory::{Part, Payload, RegionConfig};
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::{
    ConnectionHandle, Context, DriverChoice, Event, Limits, ListenerOptions, Pages, Protocol,
    Received, Server, Stall,
};
use flatpath_driver::simulation::{Client, Faults, Network, each_seed};
use flatpath_testkit::{Driver, stretched, until_true};

const PAGES: u32 = 2;
const SECOND: Duration = Duration::from_secs(1);
/// Clients from this name on have their messages left unconsumed, each in its page.
const HOLDS: u8 = 100;

/// See the module.
#[derive(Clone, Default)]
struct Keeper {
    kept: Arc<Lock<Vec<(u8, Payload)>>>,
    /// Those that were called before: `R` has them notified, and then they receive into the common
    /// buffers.
    met: Arc<Lock<Vec<ConnectionHandle>>>,
}

impl Keeper {
    fn names(&self) -> Vec<u8> {
        let kept = self.kept.lock();
        kept.iter().map(|(name, _)| *name).collect()
    }

    /// Drops the message that was kept first, on this thread: its page is free then.
    fn give_back(&self) -> u8 {
        let mut kept = self.kept.lock();
        let (name, payload) = kept.remove(0);
        assert!(
            matches!(payload.parts().next(), Some(Part::Kept(_))),
            "kept, not copied"
        );
        name
    }
}

#[derive(Default)]
struct Session {
    is_met: bool,
    name: u8,
}

impl Protocol for Keeper {
    type ThreadState = ();
    type Session = Session;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions {
            region: Some(RegionConfig {
                pages: PAGES,
                page_bytes: 4096,
                reserve_pages: 0,
                ..RegionConfig::default()
            }),
            ..ListenerOptions::named("keeper")
        }
    }

    /// The first byte is a name, received into the common buffers; what follows it is kept.
    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        let Some(first) = input.first() else {
            return Received::Consumed;
        };
        if !context.session.is_met {
            (context.session.is_met, context.session.name) = (true, *first);
            let mut met = self.met.lock();
            if context.session.name == b'R' {
                met.iter().for_each(ConnectionHandle::wake);
            }
            met.push(context.handle());
            context.receive_into(Pages::Listener);
            return Received::NeedMore { consumed: 1 };
        }
        if context.session.name >= HOLDS {
            return Received::Blocked {
                consumed: 0,
                on: Stall::Outside,
            };
        }
        let mut payload = Payload::new();
        context.retain_or_copy(input, &mut payload).expect("room");
        let mut kept = self.kept.lock();
        kept.push((context.session.name, payload));
        Received::Blocked {
            consumed: input.len(),
            on: Stall::Outside,
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Woken => context.receive_into(Pages::Common),
            // Those with even names are ended at once.
            Event::Draining => {
                if context.session.name.is_multiple_of(2) {
                    context.abort();
                }
            }
            other => other.by_default(context),
        }
    }
}

/// Clients 1 and 2 take both pages, 3 to 5 starve for longer than a head may take.
fn one_by_one(choice: DriverChoice) {
    let keeper = Keeper::default();
    let limits = Limits {
        head_timeout: stretched(Duration::from_millis(1_500)),
        ..Limits::default()
    };
    let server = Server::new().driver(choice).limits(limits);
    let running = server.listen("127.0.0.1:0", keeper.clone()).start();
    let running = running.expect("starts");
    let statistics = running.handle();
    let mut clients = vec![];
    for name in 1..=5 {
        let mut client = TcpStream::connect(running.addresses()[0].address).expect("a listener");
        client.write_all(&[name]).expect("sent");
        until_true("the name", || keeper.met.lock().len() == name as usize);
        client.write_all(&[name; 100]).expect("sent");
        clients.push(client);
        if u32::from(name) <= PAGES {
            until_true("a page is kept", || keeper.names().len() == name as usize);
        }
    }
    let stalls = || statistics.statistics().receive_buffers_stalls;
    until_true("three starve", || stalls() >= 3);
    for served in 1..=3 {
        // No completion for longer than any timer would turn the thread for.
        let ms = if served == 3 { 1 } else { 1_600 };
        std::thread::sleep(stretched(Duration::from_millis(ms)));
        assert_eq!(keeper.names().len(), PAGES as usize);
        assert_eq!(keeper.give_back(), served);
        until_true("the page is used", || {
            keeper.names().len() == PAGES as usize
        });
    }
    assert_eq!(
        statistics.statistics().connections_expired(),
        0,
        "closed for slowness"
    );
    keeper.kept.lock().clear();
    drop(clients);
    cut(running);
}

#[test]
fn starved_connections_are_served_as_pages_come_back_one_by_one_epoll() {
    one_by_one(DriverChoice::Epoll);
}

#[test]
fn starved_connections_are_served_as_pages_come_back_one_by_one_uring() {
    if Driver::Uring.is_here() {
        one_by_one(DriverChoice::Uring);
    }
}

/// A simulated server whose waits last as long as they may: nothing but what ends a wait does.
struct World {
    server: SimulatedServer,
    network: Network,
    keeper: Keeper,
    clients: Vec<Client>,
}

impl World {
    const STEP: Duration = Duration::from_secs(100_000);

    fn new(seed: u64, faults: Faults) -> World {
        let keeper = Keeper::default();
        let mut conditions = Conditions::calm(seed);
        conditions.faults = faults;
        let server = SimulatedServer::new(conditions, keeper.clone());
        let network = server.world().clone();
        World {
            server,
            network,
            keeper,
            clients: vec![],
        }
    }

    /// Turns until something holds, and says for how long in simulated time.
    fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) -> Duration {
        let begun = self.network.now();
        for _ in 0..10_000 {
            if holds(self) {
                return self.network.now() - begun;
            }
            self.server.turn();
        }
        panic!("seed {}: never came: {what}", self.network.seed());
    }

    /// A client that has said its name and then a message.
    fn say(&mut self, name: u8) {
        let client = self.server.connect();
        client.write(&[name]);
        self.clients.push(client);
        let met = self.clients.len();
        self.until("a name", |world| world.keeper.met.lock().len() == met);
        self.clients[met - 1].write(&[name; 100]);
    }

    /// As many clients as that, of which the first ones have the pages and the others starve.
    fn starve(&mut self, clients: u8) {
        for name in 1..=clients {
            self.say(name);
            if u32::from(name) <= PAGES {
                self.until("a page", |world| {
                    world.keeper.names().len() == name as usize
                });
            }
        }
        for _ in 0..1_000 {
            self.server.turn();
        }
        assert_eq!(self.keeper.names().len(), PAGES as usize);
        self.network.set_step_max(World::STEP);
    }
}

#[test]
fn sim_pages_that_come_back_end_the_wait_for_every_starved_connection() {
    each_seed(100, |seed| {
        let faults = match seed % 2 {
            0 => Faults::none(),
            _ => Faults::mixed(seed).without_losses(),
        };
        let mut world = World::new(seed, faults);
        world.starve(20);
        // What is kept is dropped between two turns, that is, while the thread sleeps.
        for _ in 0..20 - PAGES {
            world.keeper.give_back();
            let waited = world.until("a page is used", |world| {
                world.keeper.names().len() == PAGES as usize
            });
            assert!(
                waited < SECOND,
                "seed {seed}: {waited:?} were slept with a page free"
            );
        }
        assert_eq!(world.server.statistics().connections_expired(), 0);
    });
}

#[test]
fn sim_a_connection_that_ends_while_it_starves_leaves_the_others_their_pages() {
    let mut world = World::new(7, Faults::none());
    world.starve(12);
    world.server.drain();
    world.server.turn();
    // 4, 6, 8, 10 and 12 are gone, and 2, whose page is kept all the same.
    for expected in [3, 5, 7, 9, 11] {
        world.keeper.give_back();
        let waited = world.until("a page is used", |world| {
            world.keeper.names().last() == Some(&expected)
        });
        assert!(waited < SECOND, "{waited:?} were slept with a page free");
    }
}

#[test]
fn sim_a_starved_connection_that_changes_its_pages_waits_no_more() {
    for seed in 0..20 {
        let mut world = World::new(seed, Faults::none());
        world.starve(4);
        world.network.set_step_max(SECOND / 1_000);
        world.say(b'R');
        world.network.set_step_max(World::STEP);
        // 3 and 4 receive into the common buffers now, and their pages are kept there.
        world.until("both are served", |world| {
            let mut names = world.keeper.names();
            names.sort_unstable();
            names == [1, 2, 3, 4]
        });
    }
}

#[test]
fn sim_the_pages_that_a_connection_holds_unread_are_free_when_it_ends() {
    for seed in 0..20 {
        let mut world = World::new(seed, Faults::none());
        for name in [HOLDS, HOLDS + 2, 1, 3] {
            world.say(name);
            for _ in 0..200 {
                world.server.turn();
            }
        }
        assert_eq!(world.keeper.names(), b"", "both pages are held");
        // The two that hold them are aborted.
        world.server.drain();
        world.until("the others are served", |world| {
            world.keeper.names().len() == PAGES as usize
        });
        world.keeper.kept.lock().clear();
        world.server.force();
        world.server.end(1000);
    }
}
