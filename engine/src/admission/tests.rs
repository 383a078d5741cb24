//! Admission without a driver: each verdict, and the order beside a model.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::accepting::KernelError;
use super::addresses::AddressKeys;
use super::claim::Payers;
use super::*;
use crate::Random;

const SECOND: u64 = 1_000_000_000;

/// What the connections of a test do: the phase in which each rests, and since when.
#[derive(Debug, Default)]
pub(super) struct Resting(HashMap<u32, (Phase, u64)>);

impl Resting {
    pub(super) fn rests(&self) -> impl Rests {
        |index| self.0.get(&index).copied()
    }

    pub(super) fn begin(
        &mut self,
        admission: &mut Admission,
        index: u32,
        phase: Phase,
        now_ns: u64,
    ) {
        self.0.insert(index, (phase, now_ns));
        admission.rests(index, phase);
    }
}

pub(super) fn admission(capacity: u32, listeners: &[usize]) -> Admission {
    let bounds = listeners.iter().map(|max| ("a listener", *max));
    Admission::new(capacity as usize, bounds)
}

pub(super) fn load(open: usize, max: usize, now_ns: u64) -> Load {
    Load { open, max, now_ns }
}

/// The address of a host.
pub(super) fn address(host: u8) -> Address {
    let host = IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
    AddressKeys::default().find(Some(SocketAddr::new(host, 1)))
}

#[test]
fn the_longest_idle_one_is_closed_before_the_oldest_head() {
    let (mut admission, mut resting) = (admission(4, &[usize::MAX]), Resting::default());
    for (index, phase, now_ns) in [
        (0, Phase::Head, 1),
        (1, Phase::Idle, 2),
        (2, Phase::Idle, 3),
    ] {
        admission.enter(index, 0, true);
        resting.begin(&mut admission, index, phase, now_ns);
    }
    let closes = |admission: &mut Admission, resting: &Resting| {
        admission.longest_resting(5 * SECOND, SPARED_NS, resting.rests())
    };
    assert_eq!(closes(&mut admission, &resting), Some(1));
    // It speaks and is idle again: it is the last.
    resting.begin(&mut admission, 1, Phase::Idle, 4);
    assert_eq!(closes(&mut admission, &resting), Some(2));
    admission.left(2);
    assert_eq!(closes(&mut admission, &resting), Some(1));
    admission.left(1);
    assert_eq!(closes(&mut admission, &resting), Some(0));
}

#[test]
fn one_that_is_busy_is_skipped_until_it_rests_again() {
    let (mut admission, mut resting) = (admission(4, &[usize::MAX]), Resting::default());
    for index in 0..2 {
        admission.enter(index, 0, true);
        resting.begin(&mut admission, index, Phase::Idle, u64::from(index));
    }
    resting.0.remove(&0);
    let found = admission.longest_resting(SECOND * 9, 0, resting.rests());
    assert_eq!(found, Some(1));
    resting.begin(&mut admission, 0, Phase::Idle, 5);
    admission.left(1);
    let found = admission.longest_resting(SECOND * 9, 0, resting.rests());
    assert_eq!(found, Some(0));
}

#[test]
fn those_that_rest_only_for_now_keep_their_places_while_there_are_some() {
    let (mut admission, mut resting) = (admission(40, &[usize::MAX]), Resting::default());
    for index in 0..32 {
        admission.enter(index, 0, true);
    }
    resting.begin(&mut admission, 7, Phase::Idle, SECOND);
    let room = |admission: &mut Admission, resting: &Resting, open, now_ns| {
        admission.room(load(open, 32, now_ns), resting.rests())
    };
    let soon_ns = SECOND + SPARED_NS - 1;
    assert_eq!(room(&mut admission, &resting, 30, soon_ns), Room::Enough);
    assert_eq!(room(&mut admission, &resting, 32, soon_ns), Room::Enough);
    assert_eq!(room(&mut admission, &resting, 33, soon_ns), Room::Short);
    assert_eq!(
        room(&mut admission, &resting, 31, soon_ns + 1),
        Room::Close(7)
    );
    assert_eq!(
        room(&mut admission, &resting, 30, soon_ns + 1),
        Room::Enough
    );
}

#[test]
fn one_that_leaves_counts_no_more_and_only_once() {
    let mut admission = admission(4, &[1]);
    for index in 0..2 {
        admission.enter(index, 0, true);
    }
    let load = load(2, 1, 0);
    assert!(admission.is_beyond(load));
    assert_eq!(admission.listener_exceeds(0), Some(1));
    admission.leaves(0);
    admission.leaves(0);
    assert_eq!(admission.counted(load), 1);
    assert_eq!(admission.listener_exceeds(0), None);
    assert!(admission.is_leaving(0) && !admission.is_leaving(1));
    admission.left(0);
    assert_eq!(admission.counted(load), 2, "it is out of the table");
}

#[test]
fn an_address_with_more_than_its_share_of_a_full_table_exceeds_it() {
    let mut admission = admission(8, &[usize::MAX]);
    let keys = AddressKeys::default();
    let [one, other] = [1, 2].map(|host| {
        let host = IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
        keys.find(Some(SocketAddr::new(host, 1)))
    });
    for index in 0..6 {
        admission.enter(index, 0, true);
        admission.learn(index, one);
    }
    let of_one = admission.address(0);
    let alone = load(6, 8, 0);
    assert!(!admission.exceeds_share(of_one, alone), "alone it has all");
    for index in 6..8 {
        admission.enter(index, 0, true);
        admission.learn(index, other);
    }
    let of_other = admission.address(6);
    let full = load(8, 8, 0);
    assert!(admission.exceeds_share(of_one, full) && !admission.exceeds_share(of_other, full));
    assert!(admission.knows_all(full) && !admission.asks_addresses(full));
    assert!(admission.asks_addresses(load(9, 8, 0)), "one is not known");
    assert!(!admission.asks_addresses(load(3, 8, 0)), "there is plenty");
    admission.refuse(0);
    assert_eq!(admission.address(0), AddressId::NOWHERE);
    assert_eq!(admission.connections_of(of_one), 5);
    admission.learn(0, one);
    assert_eq!(admission.connections_of(of_one), 5, "it is counted nowhere");
    admission.learn(1, other);
    assert_eq!(admission.address(1), of_one, "an address is learned once");
}

#[test]
fn a_connection_is_counted_at_no_address_before_its_client_is_named() {
    let mut admission = admission(4, &[usize::MAX]);
    admission.enter(0, 0, false);
    admission.learn(0, address(1));
    assert_eq!(admission.address(0), AddressId::UNNAMED);
    admission.is_named(0);
    assert_eq!(admission.address(0), AddressId::UNKNOWN);
    admission.learn(0, address(1));
    let of_client = admission.address(0);
    assert_eq!(admission.connections_of(of_client), 1);
    admission.is_named(0);
    assert_eq!(admission.address(0), of_client);
    admission.left(0);
    assert_eq!(admission.connections_of(of_client), 0);
}

#[test]
fn when_limits_change_each_place_is_looked_at_once() {
    let capacity = RELIMITED_PER_TURN + 3;
    let mut admission = admission(capacity, &[usize::MAX]);
    assert!(!admission.is_relimiting() && admission.next_relimited().is_empty());
    admission.begin_relimit();
    assert!(admission.is_relimiting());
    assert_eq!(admission.next_relimited(), 0..RELIMITED_PER_TURN);
    assert!(admission.is_relimiting());
    assert_eq!(admission.next_relimited(), RELIMITED_PER_TURN..capacity);
    assert!(!admission.is_relimiting() && admission.next_relimited().is_empty());
}

#[test]
fn an_address_and_a_listener_pay_with_their_own() {
    let (mut admission, mut resting) = (admission(8, &[2, 2]), Resting::default());
    let keys = AddressKeys::default();
    for (index, listener, host) in [(0, 0, 1), (1, 1, 1), (2, 1, 2), (3, 1, 2)] {
        admission.enter(index, listener, true);
        let host = IpAddr::V4(Ipv4Addr::new(10, 0, 0, host));
        admission.learn(index, keys.find(Some(SocketAddr::new(host, 1))));
        resting.begin(&mut admission, index, Phase::Idle, 10 - u64::from(index));
    }
    assert_eq!(admission.listener_exceeds(1), Some(2));
    let of_listener = admission.payer(Payers::Listener(1), 3, SECOND * 9, resting.rests());
    assert_eq!(of_listener, Some(2), "the longest idle one");
    let address = admission.address(0);
    let of_address = admission.payer(Payers::Address(address), 7, 0, resting.rests());
    assert_eq!(of_address, Some(1));
    resting.0.insert(1, (Phase::Head, 0));
    let of_address = admission.payer(Payers::Address(address), 7, 0, resting.rests());
    assert_eq!(of_address, Some(0), "a head has a while");
    resting.0.clear();
    let of_address = admission.payer(Payers::Address(address), 7, 0, resting.rests());
    assert_eq!(of_address, None);
}

#[test]
fn listeners_that_are_bounded_anew_have_those_counted_that_are_there() {
    let mut admission = admission(4, &[usize::MAX]);
    for index in 0..3 {
        admission.enter(index, 0, true);
    }
    admission.leaves(2);
    assert_eq!(admission.listener_exceeds(0), None);
    admission.bound_listeners([("one", 1)].into_iter());
    assert_eq!(admission.listener_exceeds(0), Some(1));
    admission.left(1);
    admission.left(2);
    assert_eq!(admission.listener_exceeds(0), None);
    admission.bound_listeners([("one", usize::MAX)].into_iter());
    admission.left(0);
    assert_eq!(admission.counted(load(0, 1, 0)), 0);
}

#[test]
fn a_thread_without_descriptors_closes_one_that_rests_and_has_fewer_places_for_a_while() {
    let (mut admission, mut resting) = (admission(4, &[usize::MAX]), Resting::default());
    assert_eq!(admission.places(100, 50), 50);
    admission.enter(0, 0, true);
    let none = admission.no_descriptor(load(40, 100, 5), KernelError(24), resting.rests());
    assert_eq!(none, None, "none rests");
    assert_eq!(admission.places(100, 50), 40 - DESCRIPTORS_SPARE);
    resting.begin(&mut admission, 0, Phase::Idle, 4);
    let first = admission.no_descriptor(load(40, 100, 5), KernelError(24), resting.rests());
    assert_eq!(first, Some(0));
    assert!(admission.is_leaving(0));
    admission.end_episodes(6);
    assert!(admission.places(100, 50) < 40, "not yet");
    let end_ns = admission.episode_end_ns().expect("an episode");
    admission.end_episodes(end_ns);
    assert_eq!(admission.places(100, 50), 50);
}

#[test]
fn model_the_one_that_is_closed_has_rested_longest() {
    const CONNECTIONS: u32 = 12;
    for seed in 1..200 {
        let mut random = Random::new(seed);
        let mut admission = admission(CONNECTIONS, &[5, usize::MAX]);
        let mut resting = Resting::default();
        let mut present: Vec<(u32, u16, bool)> = Vec::new();
        for now_ns in 1..400 {
            let index = random.below(CONNECTIONS as usize) as u32;
            let at = present.iter().position(|(other, ..)| *other == index);
            match (at, random.below(6)) {
                (None, _) => {
                    let listener = random.below(2) as u16;
                    admission.enter(index, listener, true);
                    present.push((index, listener, false));
                }
                (Some(at), 0) => {
                    admission.left(index);
                    present.swap_remove(at);
                    resting.0.remove(&index);
                }
                (Some(at), 1) => {
                    admission.leaves(index);
                    present[at].2 = true;
                    resting.0.remove(&index);
                }
                (Some(_), 2) => {
                    resting.0.remove(&index);
                }
                (Some(at), which) if !present[at].2 => {
                    let phase = [Phase::Idle, Phase::Head][which % 2];
                    resting.begin(&mut admission, index, phase, now_ns);
                }
                _ => {}
            }
            let leaving = present.iter().filter(|(.., leaves)| *leaves).count();
            let open = load(present.len(), CONNECTIONS as usize, now_ns);
            assert_eq!(admission.counted(open), present.len() - leaving);
            let of_first = present.iter().filter(|one| one.1 == 0 && !one.2).count();
            let exceeds = (of_first > 5).then_some(5);
            assert_eq!(admission.listener_exceeds(0), exceeds, "seed {seed}");
            // All have rested for a while: idle ones before heads.
            let longest = |phase| {
                let those = resting.0.iter().filter(|(_, (other, _))| *other == phase);
                those.min_by_key(|(_, (_, since_ns))| *since_ns)
            };
            let wanted = longest(Phase::Idle).or_else(|| longest(Phase::Head));
            let found = admission.longest_resting(9 * SECOND, 0, resting.rests());
            assert_eq!(found, wanted.map(|(index, _)| *index), "seed {seed}");
        }
    }
}
