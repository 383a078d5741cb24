//! Shares of memory for addresses and listeners on the simulated driver: who is stalled, who is
//! not, and when it continues.

use std::net::SocketAddr;
use std::time::Duration;

use crate::hoard::Hoard;
use flatpath::Limits;
use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath_driver::simulation::{Client, ClientState};

const SECOND: Duration = Duration::from_secs(1);

/// The budget without its reserve, in smallest buffers.
const BUFFERS: usize = 7 * 256;
/// What most clients here hold: far less than a connection's share.
const HELD: usize = 128;

struct Site {
    server: SimulatedServer,
    hoard: Hoard,
}

impl Site {
    fn new() -> Site {
        let mut conditions = Conditions::calm(7);
        conditions.limits = Limits {
            buffer_bytes_max: BUFFERS / 7 * 8 * 4096,
            ..Limits::default()
        };
        let hoard = Hoard::default();
        let protocols = (hoard.clone(), Hoard::default());
        Site {
            server: SimulatedServer::with_two(conditions, protocols),
            hoard,
        }
    }

    /// A client that holds some buffers.
    fn holder(&mut self, listener: usize, peer: Option<&str>, buffers: usize) -> Client {
        let peer = peer.map(|peer| SocketAddr::new(peer.parse().expect("an address"), 7));
        let client = self.server.connect_to(listener, peer);
        client.write(format!("hold {buffers}\n").as_bytes());
        self.pass();
        client
    }

    fn is_answered(&mut self, client: &Client) -> bool {
        client.write(b"anything\n");
        self.pass();
        client.read() == b"ok\n"
    }

    /// Lets 40 ms pass.
    fn pass(&mut self) {
        for _ in 0..8 {
            self.server.world().advance(SECOND / 200);
            (0..4).for_each(|_| self.server.turn());
        }
    }

    fn stalls(&self) -> [u64; 3] {
        let statistics = self.server.statistics();
        [
            statistics.share_stalls,
            statistics.address_share_stalls,
            statistics.listener_share_stalls,
        ]
    }
}

#[test]
fn sim_an_address_that_holds_its_share_stalls_while_others_go_on() {
    const ONE: Option<&str> = Some("192.0.2.1");
    const OTHER: Option<&str> = Some("192.0.2.2");
    let mut site = Site::new();
    // On both listeners, so that neither of them has its share.
    let alone: Vec<Client> = (0..12).map(|n| site.holder(n % 2, ONE, HELD)).collect();
    for client in &alone {
        assert!(site.is_answered(client), "it has no neighbour");
    }
    assert_eq!(site.stalls(), [0, 0, 0]);

    let other = site.holder(0, OTHER, HELD);
    let more = site.holder(1, ONE, HELD / 2);
    assert_eq!(site.stalls(), [0, 1, 0]);
    assert!(!site.is_answered(&more), "its address has its share");
    assert!(site.is_answered(&other));
    let small = site.holder(1, ONE, 1);
    assert!(site.is_answered(&small), "it holds next to nothing");
    let third = site.holder(1, Some("192.0.2.3"), 16);
    assert!(site.is_answered(&third));

    // A part of what the address holds comes back, to connections of its own.
    for client in &alone[..4] {
        client.write(b"free\n");
    }
    site.pass();
    assert_eq!(more.read(), b"ok\n", "there is room again");
    assert_eq!(more.state(), ClientState::Open);
    let statistics = site.server.statistics();
    assert_eq!(statistics.stalls_refused, 0);
    assert_eq!(statistics.connections_ended_for_memory, 0);
}

#[test]
fn sim_a_listener_that_holds_its_share_stalls_while_others_go_on() {
    let mut site = Site::new();
    let other = site.holder(1, None, 2 * HELD);
    // Three quarters, one each.
    let many: Vec<Client> = (0..BUFFERS / 4 * 3 / HELD)
        .map(|_| site.holder(0, None, HELD))
        .collect();
    assert_eq!(site.stalls(), [0, 0, 0]);
    let more = site.holder(0, None, HELD);
    assert_eq!(site.stalls(), [0, 0, 1]);
    assert!(!site.is_answered(&more), "its listener has its share");
    assert!(site.is_answered(&other));
    let another = site.holder(1, None, HELD / 2);
    assert!(site.is_answered(&another));
    for client in &many[..2] {
        client.write(b"free\n");
    }
    site.pass();
    assert_eq!(more.read(), b"ok\n", "there is room again");
}

#[test]
fn sim_what_addresses_hold_is_counted_until_they_are_gone() {
    let mut site = Site::new();
    for _ in 0..20 {
        let clients: Vec<Client> = (0..12)
            .map(|n| site.holder(n % 2, Some("192.0.2.1"), HELD))
            .collect();
        assert_eq!(
            site.stalls(),
            [0, 0, 0],
            "what was held before counts no more"
        );
        let other = site.holder(0, Some("192.0.2.2"), 16);
        assert!(site.is_answered(&other));
        clients.iter().for_each(Client::abort);
        drop(clients);
        other.abort();
        site.pass();
    }
}

/// Addresses that together have all but the reserve.
struct Crowd {
    site: Site,
    clients: Vec<Client>,
}

impl Crowd {
    const ADDRESSES: usize = 28;

    /// Each holds 16 chunks. The first one holds `more` beside them, taken from those after it.
    fn new(more: usize) -> Crowd {
        let mut site = Site::new();
        let clients = (0..Self::ADDRESSES)
            .map(|number| {
                let client = site.server.connect_to(number % 2, Self::address(number));
                let chunks = match number {
                    0 => 16 + more,
                    _ if number <= more => 15,
                    _ => 16,
                };
                client.write(format!("last\nlast\nlast\nbulk {chunks}\n").as_bytes());
                (0..4).for_each(|_| site.server.turn());
                client
            })
            .collect();
        Crowd { site, clients }
    }

    fn address(number: usize) -> Option<SocketAddr> {
        let host = format!("192.0.2.{}", 1 + number);
        Some(SocketAddr::new(host.parse().expect("an address"), 7))
    }

    /// How many are left, once the others have read why they are not.
    fn open(&self) -> usize {
        self.clients.iter().for_each(|client| drop(client.read()));
        let states = self.clients.iter().map(Client::state);
        states.filter(|it| *it == ClientState::Open).count()
    }

    fn ask(&mut self, number: usize) -> Client {
        let client = self.site.server.connect_to(0, Self::address(number));
        client.write(b"job\n");
        self.site.pass();
        client
    }

    /// 133 of 256 buffers of the reserve.
    fn hold_half_of_the_reserve(&mut self) -> Vec<Client> {
        (0..19).map(|_| self.site.holder(1, None, 7)).collect()
    }
}

#[test]
fn sim_bulk_of_an_address_of_which_little_lasts_has_half_of_the_reserve() {
    let mut crowd = Crowd::new(0);
    assert_eq!(crowd.open(), Crowd::ADDRESSES);
    assert_eq!(crowd.ask(Crowd::ADDRESSES).read(), b"ok\n", "a newcomer");
    let waits = crowd.ask(1);
    assert_eq!(waits.read(), b"", "one of those that have all");

    let small = crowd.hold_half_of_the_reserve();
    let newcomer = crowd.ask(Crowd::ADDRESSES);
    assert_eq!(newcomer.read(), b"", "the other half is for short replies");
    small[0].write(b"free\n");
    small[1].write(b"free\n");
    crowd.site.pass();
    assert_eq!(newcomer.read(), b"ok\n");
    assert_eq!(waits.read(), b"");
}

#[test]
fn sim_bulk_of_an_address_of_which_little_lasts_does_not_wait_for_those_that_hold_more() {
    let mut crowd = Crowd::new(12);
    let _small = crowd.hold_half_of_the_reserve();
    assert_eq!(crowd.open(), 28);
    let newcomer = crowd.ask(Crowd::ADDRESSES);
    assert_eq!(newcomer.read(), b"ok\n", "another has paid");
    assert_eq!(crowd.open(), 27);
    assert_ne!(crowd.clients[0].state(), ClientState::Open, "it has most");
}

#[test]
fn sim_none_is_ended_for_one_that_finds_memory_in_the_same_turn() {
    let mut crowd = Crowd::new(12);
    let small = crowd.hold_half_of_the_reserve();
    let runs = crowd.site.hoard.runs();
    let newcomer = crowd
        .site
        .server
        .connect_to(0, Crowd::address(Crowd::ADDRESSES));
    newcomer.write(b"job\n");
    for turn in 0.. {
        assert!(turn < 1_000, "the job never ran");
        if crowd.site.hoard.runs() > runs {
            break;
        }
        crowd.site.server.turn();
    }
    // Its job waits for memory, but not long enough yet that others are ended for it.
    (0..2).for_each(|_| crowd.site.server.turn());
    assert_eq!(newcomer.read(), b"");
    small[0].write(b"free\n");
    small[1].write(b"free\n");
    crowd.site.server.world().advance(SECOND / 50);
    crowd.site.pass();
    assert_eq!(newcomer.read(), b"ok\n");
    assert_eq!(crowd.open(), Crowd::ADDRESSES);
}

/// Together many addresses hold nearly all, each of them less than its share.
#[test]
fn sim_jobs_of_an_address_that_holds_nothing_need_not_take_less_while_memory_is_short() {
    const ADDRESSES: usize = 28;
    let mut site = Site::new();
    let host = |number: usize| format!("192.0.2.{}", 1 + number);
    let holders: Vec<Client> = (0..ADDRESSES)
        .map(|number| site.holder(number % 2, Some(&host(number)), BUFFERS / ADDRESSES - 1))
        .collect();
    assert!(holders.iter().all(|it| it.state() == ClientState::Open));
    for (number, fair_bytes) in [(0, 0), (ADDRESSES, BUFFERS * 4096 / 1024)] {
        let peer = SocketAddr::new(host(number).parse().expect("an address"), 7);
        let client = site.server.connect_to(0, Some(peer));
        client.write(b"job\n");
        site.pass();
        assert_eq!(client.read(), b"ok\n");
        assert_eq!(site.hoard.fair_bytes(), fair_bytes, "address {number}");
    }
}
