//! The budget of descriptors, case by case.

use super::*;

/// Addresses that share no cell.
fn cells(host: u8) -> Cells {
    Cells::apart(16)[usize::from(host)]
}

#[test]
fn files_leave_a_part_of_the_room_to_connections_however_many_are_held() {
    // As with 256 descriptors.
    let budget = DescriptorBudget::new(192, 192, (1, 0));
    let mut holds = Vec::new();
    while let Some(hold) = budget.hold(1) {
        holds.push(hold);
        budget.connections_are(0, holds.len());
    }
    assert_eq!(holds.len(), (192 - 192 / CONNECTIONS_PART) / 2);
    assert_eq!(budget.places(), 192 - holds.len());
    assert!(budget.places() - holds.len() >= 192 / CONNECTIONS_PART);
    let figures = budget.figures();
    assert_eq!((figures.held, figures.refused_room), (holds.len(), 1));
    assert_eq!(figures.refused_address, 0);
    holds.pop();
    assert!(budget.hold(2).is_none());
    drop(budget.hold(1).expect("as many as were given back"));
    drop(holds);
    assert_eq!((budget.figures().held, budget.places()), (0, usize::MAX));
}

#[test]
fn few_files_stay_open_and_none_while_much_is_held() {
    let budget = DescriptorBudget::new(192, 192, (1, 0));
    let files_max = budget.figures().held_max;
    let kept: Vec<_> = std::iter::from_fn(|| budget.keep(1)).collect();
    assert_eq!(kept.len(), files_max / KEPT_FILES_PART);
    assert_eq!(budget.figures().held, kept.len(), "a place less for each");
    drop(kept);
    assert_eq!(budget.figures().held, 0);
    let much = budget.hold(files_max / 2 + 1).expect("room");
    assert!(budget.keep(1).is_none());
    drop(much);
    assert!(budget.keep(1).is_some());
}

#[test]
fn it_is_roomy_until_half_of_what_files_may_hold_is_held() {
    let budget = DescriptorBudget::new(192, 192, (1, 0));
    let files_max = budget.figures().held_max;
    let half = budget.hold(files_max / 2).expect("room");
    assert!(budget.is_roomy());
    let more = budget.hold(1).expect("room");
    assert!(!budget.is_roomy());
    drop((half, more));
    assert!(budget.is_roomy() && DescriptorBudget::default().is_roomy());
}

#[test]
fn connections_that_fill_the_room_leave_files_the_spare_alone() {
    let budget = DescriptorBudget::new(192, 192, (2, 0));
    budget.connections_are(0, 100);
    budget.connections_are(1, 92);
    let holds: Vec<_> = std::iter::from_fn(|| budget.hold(1)).collect();
    assert_eq!(holds.len(), DESCRIPTORS_SPARE);
    // Each network thread closes what rests until this many are left.
    assert_eq!(budget.places(), (192 - DESCRIPTORS_SPARE) / 2);
    budget.connections_are(0, 90);
    assert!(budget.hold(10).is_some());
}

#[test]
fn an_address_that_has_little_is_served_where_another_has_all() {
    let budget = DescriptorBudget::new(192, 192, (1, 4));
    let (one, other) = (1, 2);
    budget.name(one, cells(1));
    budget.name(other, cells(2));
    let mut all: Vec<_> = std::iter::from_fn(|| budget.hold_for(one, 2)).collect();
    let files_max = budget.figures().held_max;
    assert_eq!((files_max, all.len()), (72, 36), "alone it has all");
    assert_eq!((budget.held_by(1), budget.overdrawn()), (72, 0));
    assert!(!budget.pays(cells(1)));

    let granted: Vec<_> = std::iter::from_fn(|| budget.hold_for(other, 2)).collect();
    assert_eq!(
        (granted.len(), budget.overdrawn()),
        (4, 4),
        "an eighth more, of which a half is paid for"
    );
    assert!(budget.pays(cells(1)) && !budget.pays(cells(2)));
    assert!(budget.begins_round(5) && !budget.begins_round(6));
    budget.leaves_round();
    assert!(budget.begins_round(7));
    all.truncate(36 - 8);
    let before = budget.figures();
    assert!(budget.hold_for(one, 1).is_none(), "it has its share");
    let after = budget.figures();
    assert_eq!(after.refused_address, before.refused_address + 1);
    assert_eq!(after.refused_room, before.refused_room);
    assert!(budget.hold_for(other, 2).is_some());
    drop((all, granted));
    assert_eq!((budget.held_by(1), budget.figures().held), (0, 0));
    assert!(budget.hold_for(one, 72).is_some());
}

#[test]
fn a_newcomer_gets_a_file_where_many_addresses_have_all_and_none_its_share() {
    let budget = DescriptorBudget::new(192, 192, (1, 10));
    for place in 0..10 {
        budget.name(place.into(), cells(place));
    }
    let have: Vec<_> = (0..9).map(|place| budget.hold_for(place, 8)).collect();
    assert!(have.iter().all(Option::is_some));
    assert!(
        budget.hold_for(1, 1).is_none(),
        "it has what others have, too"
    );
    let newcomer: Vec<_> = std::iter::from_fn(|| budget.hold_for(9, 1)).collect();
    assert_eq!((newcomer.len(), budget.overdrawn()), (4, 0));
    assert!(budget.pays(cells(1)) && !budget.pays(cells(9)));
}

#[test]
fn what_was_taken_before_an_address_was_known_is_counted_when_it_is() {
    let budget = DescriptorBudget::new(192, 192, (1, 4));
    // A crowd of one turn.
    let all = budget.hold_for(1, 72).expect("room");
    assert!(budget.counts_addresses() && budget.has_loose());
    budget.name(2, cells(2));
    let other = budget.hold_for(2, 2).expect("of the reserve");
    assert!(!budget.pays(cells(1)), "nobody knows what it holds");
    budget.name(1, cells(1));
    assert!(budget.pays(cells(1)) && !budget.has_loose());
    drop(other);
    assert!(!budget.pays(cells(1)));
    // Its connection goes before the file is closed.
    budget.name(1, Cells::UNKNOWN);
    assert!(budget.has_loose());
    drop(all);
    assert!(!budget.has_loose());
    budget.name(1, cells(1));
    assert!(budget.hold_for(1, 72).is_some());
}

#[test]
fn what_connections_may_not_take_is_for_files() {
    assert_eq!(
        DescriptorBudget::new(192, 10, (1, 0)).figures().held_max,
        182
    );
    let budget = DescriptorBudget::default();
    assert!(budget.hold(1 << 40).is_some());
}

#[test]
fn the_smallest_room_has_some_for_files() {
    // Of the least with which a server starts, half is reserved.
    let room = crate::limits::DESCRIPTORS_MIN as usize / 2;
    assert!(DescriptorBudget::new(room, room, (1, 0)).hold(3).is_some());
    assert!(DescriptorBudget::new(0, 0, (1, 0)).hold(1).is_none());
}

#[test]
fn caches_give_back_what_connections_and_files_come_near_to() {
    // As with 256 descriptors: 12 of them are left free.
    let budget = DescriptorBudget::new(192, 192, (1, 0));
    let mut cached: Vec<_> = (0..60).map(|_| budget.cache(2)).collect();
    budget.connections_are(0, 60);
    assert_eq!((budget.excess(), budget.caches_block()), (0, false));
    assert!(!budget.caches_give_way());
    assert_eq!(budget.await_excess(Duration::ZERO), 0);
    budget.connections_are(0, 66);
    assert_eq!((budget.excess(), budget.caches_block()), (6, false));
    assert!(budget.caches_give_way());
    let hold = budget.hold(6).expect("caches give way");
    assert_eq!((budget.excess(), budget.caches_block()), (12, true));
    let wished = budget.await_excess(flatpath_testkit::patience());
    assert_eq!(wished, 24, "and as much again as is left free");
    drop(cached.split_off(60 - wished / 2));
    budget.gave_back(wished);
    assert_eq!((budget.excess(), budget.caches_block()), (0, false));
    let figures = budget.figures();
    assert_eq!((figures.cached, figures.given_back), (96, 24));
    budget.connections_are(0, 192);
    assert_eq!(budget.excess(), 96, "no more than there is");
    drop((cached, hold));
    assert_eq!((budget.excess(), budget.figures().cached), (0, 0));
}

#[test]
fn what_the_kernel_misses_is_given_back_once() {
    let budget = DescriptorBudget::new(192, 192, (1, 0));
    let _cached = budget.cache(100);
    budget.ran_out();
    assert_eq!(budget.excess(), 12);
    assert_eq!(budget.await_excess(flatpath_testkit::patience()), 24);
    assert_eq!(budget.await_excess(Duration::ZERO), 0);
}

#[test]
fn a_hold_waits_for_caches_and_not_for_ever() {
    let budget = DescriptorBudget::new(192, 192, (1, 0));
    let cached = budget.cache(200);
    let owner = budget.clone();
    let closer = std::thread::spawn(move || {
        while owner.await_excess(flatpath_testkit::patience()) == 0 {}
        drop(cached);
    });
    assert!(budget.hold(2).is_some());
    closer.join().expect("it was woken");
    let _stuck = budget.cache(300);
    assert!(budget.hold(2).is_some(), "the kernel decides then");
}
