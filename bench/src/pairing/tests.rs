//! Every candidate introduces both sides, one at a time and in a burst.

use super::*;
use crate::competitors::maps::{Dash, Locked, Papaya, Scc};

fn introduces<R: Registers>() {
    let registry = R::new(10);
    let object = [(); 3].map(|()| R::Object::default());
    let (one, other) = (key(1), key(2));
    let first = registry.register(Side::Producer, one, &object[0]).ok();
    assert!(first.is_some() && !registry.is_connected(one));
    assert!(registry.register(Side::Producer, one, &object[1]).is_err());
    let second = registry.register(Side::Consumer, one, &object[2]).ok();
    assert!(registry.is_connected(one) && !registry.is_connected(other));
    drop(first);
    assert!(!registry.is_connected(one));
    let again = registry.register(Side::Producer, one, &object[0]).ok();
    assert!(registry.is_connected(one));
    drop((second, again));
    assert!(registry.register(Side::Consumer, one, &object[1]).is_ok());
}

#[test]
fn every_candidate_introduces_both_sides_and_refuses_a_third() {
    introduces::<PairingLists>();
    introduces::<Ours>();
    introduces::<Locked>();
    introduces::<Dash>();
    introduces::<Scc>();
    introduces::<Papaya>();
}

#[test]
fn there_are_as_many_parts_as_threads_and_nothing_is_left_over() {
    for (length, count) in [(2_000, 144), (600, 4), (3, 5)] {
        let whole: Vec<u32> = (0..length).collect();
        let split: Vec<&[u32]> = parts(&whole, count).collect();
        assert_eq!(split.len(), count);
        assert_eq!(split.concat(), whole);
    }
}

#[test]
fn a_burst_leaves_no_pair_unconnected() {
    for candidate in candidates() {
        for (looks, noted) in [(Looks::Whole, 0), (Looks::Each, 600)] {
            let burst = (candidate.burst)(300, 4, looks);
            assert_eq!(burst.unpaired, 0, "{}", candidate.name);
            assert_eq!(burst.histogram.len(), noted, "{}", candidate.name);
        }
    }
}
