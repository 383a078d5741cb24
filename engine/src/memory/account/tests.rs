//! The rules as tables, without sockets, threads or a clock.

use super::*;
use crate::limits::SHARE_BYTES_MIN;

const BUFFER: usize = BUFFER_CLASSES[0];
const PLACES: u32 = 8;
/// The budget for what can wait, in smallest buffers: an address may have half of it in any case.
const BUFFERS: u32 = 7 * 256;
const SHARE: u32 = (SHARE_BYTES_MIN / BUFFER) as u32;

fn server(listeners: usize) -> Arc<ServerMemory> {
    let pools = Pools::new(BUFFERS as usize / 7 * 8 * BUFFER, 1, PLACES as usize);
    assert_eq!(pools.budget_bytes(), BUFFERS as usize * BUFFER);
    assert_eq!(pools.share_bytes(), SHARE_BYTES_MIN);
    Arc::new(ServerMemory::new(pools, listeners, 1))
}

/// The account of a thread; holdings count if memory `is_short`.
fn account(server: &Arc<ServerMemory>, is_short: bool) -> Account {
    let mut account = Account::new(Arc::clone(server), 0, (PLACES, 1), 1);
    assert!(account.is_check_due(1));
    let _ = account.check(1, is_short, false);
    assert!(!account.is_check_due(WEIGH_PERIOD_NS) && account.is_check_due(1 + WEIGH_PERIOD_NS));
    account
}

fn facts(buffers: u32) -> Facts {
    Facts {
        held_bytes: buffers as usize * BUFFER,
        waits: false,
        moved: 0,
        may_pause: true,
        listener: 0,
        now_ns: 1,
    }
}

#[test]
fn the_verdict_after_an_event_follows_from_what_is_held_and_by_whom() {
    let own = Verdict::Pause(Share::Connection);
    let [address, listener] =
        [Over::Address, Over::Listener].map(|over| Verdict::Pause(Share::Common(over)));
    let half = BUFFERS / 2;
    let part = BUFFERS / 4 * 3;
    // What others of its address and of its listener hold beside, what it held and holds now, and
    // whether others of another address and listener hold some.
    let rows = [
        ((0, 0), (0, 2), 0, Verdict::Go),
        ((0, 0), (0, SHARE - 1), 0, Verdict::Go),
        ((0, 0), (0, SHARE), 0, own),
        ((0, 0), (SHARE + 1, SHARE), 0, own),
        ((half - 2, 0), (0, 2), half / 2, Verdict::Go),
        ((half - 2, 0), (0, 3), half / 2, address),
        ((half - 2, 0), (4, 3), half / 2, Verdict::Go),
        ((half - 2, 0), (0, SHARE), half / 2, own),
        ((0, part - 2), (0, 2), part, Verdict::Go),
        ((0, part - 2), (0, 3), part, listener),
        ((0, part - 2), (4, 3), part, Verdict::Go),
        ((half, part), (0, 2), part, address),
    ];
    for ((of_address, of_listener), (before, now), others, expected) in rows {
        let case = format!("{of_address}, {of_listener} beside {others}: {before} to {now}");
        for (is_short, may_pause) in [(true, true), (true, false), (false, true)] {
            let server = server(2);
            let cells = Cells::apart(3);
            server.by_address.change(0, cells[0], 0, of_address);
            server.by_address.change(0, cells[1], 0, of_listener);
            server.by_address.change(1, cells[2], 0, others);
            let mut account = account(&server, is_short);
            let mut holding = Holding {
                cells: cells[0],
                ..Holding::default()
            };
            let mut charge = |buffers, may_pause| {
                let facts = Facts {
                    may_pause,
                    ..facts(buffers)
                };
                account.charge(1, &mut holding, &facts)
            };
            let _ = charge(before, false);
            let expected = match (is_short, may_pause) {
                (_, false) => Verdict::Go,
                // Nothing is counted while there is plenty.
                (false, true) if expected != own => Verdict::Go,
                _ => expected,
            };
            let found = charge(now, may_pause);
            assert_eq!(found, expected, "{case}, {is_short}, {may_pause}");
        }
    }
}

#[test]
fn one_that_is_paused_resumes_with_half_of_its_share_and_some_room_below_the_others() {
    let server = server(2);
    let account = account(&server, true);
    let cells = Cells::apart(2);
    let half = BUFFERS / 2;
    let bytes = |buffers: u32| buffers as usize * BUFFER;
    // What its address holds in all, what it holds itself, and whether it is counted.
    let rows = [
        (2, SHARE / 2, true, true),
        (2, SHARE / 2 + 1, true, false),
        (half, 2, true, false),
        (half - half / 16, 2, true, true),
        (half, 2, false, true),
    ];
    server.by_address.change(1, cells[1], 0, half);
    for (of_address, own, is_counted, expected) in rows {
        let mut holding = Holding {
            cells: cells[0],
            waits: is_counted,
            ..Holding::default()
        };
        account.count(&mut holding, 0);
        let counted = holding.counted;
        let rest = of_address.saturating_sub(counted);
        server.by_address.change(0, cells[0], 0, rest);
        let found = account.resumes(&holding, bytes(own), 0);
        assert_eq!(found, expected, "{own} of {of_address}, {is_counted}");
        server.by_address.change(0, cells[0], rest, 0);
        account.uncount(&mut holding, 0);
    }
    assert_eq!(server.by_address.held(cells[0]), 0);
}

#[test]
fn a_holding_is_counted_with_its_address_from_when_that_is_known_until_it_is_gone() {
    let server = server(1);
    let cells = Cells::apart(2);
    let held = |number: usize| server.by_address.held(cells[number]);
    let mut account = account(&server, false);
    let mut holding = Holding::default();
    let waits = Facts {
        waits: true,
        ..facts(1)
    };
    assert!(
        !account.asks_address(&holding, &facts(4)),
        "nothing is counted"
    );
    let _ = account.charge(1, &mut holding, &facts(4));
    assert!(!account.is_uncounted(&holding));
    let _ = account.check(1, true, false);
    assert!(account.is_uncounted(&holding) && !account.is_uncounted(&Holding::default()));
    let asks = [facts(2), waits, facts(1)].map(|facts| account.asks_address(&holding, &facts));
    assert_eq!(asks, [true, true, false]);
    account.count(&mut holding, 0);
    assert_eq!((held(0), holding.counted), (0, 0), "it is not known");
    holding.cells = cells[0];
    account.count(&mut holding, 0);
    assert!(!account.is_uncounted(&holding));
    assert_eq!(held(0), 4);
    let waits = Facts {
        waits: true,
        ..facts(3)
    };
    assert!(!account.asks_address(&holding, &waits), "once");
    let _ = account.charge(1, &mut holding, &waits);
    assert_eq!(held(0), 3 + WAITING_BUFFERS);
    // What was counted once is counted to the end, although memory is plentiful again.
    let _ = account.check(1, false, false);
    let _ = account.charge(1, &mut holding, &facts(2));
    assert_eq!(held(0), 2);
    account.uncount(&mut holding, 0);
    holding.cells = cells[1];
    let _ = account.check(1, true, false);
    let _ = account.charge(1, &mut holding, &facts(5));
    assert_eq!((held(0), held(1)), (0, 5));
    account.gone(1, &mut holding, 0);
    account.gone(1, &mut holding, 0);
    assert_eq!((held(1), account.holders.largest_class()), (0, 0));
}

#[test]
fn a_part_of_the_table_is_looked_at_in_turn_while_something_is_counted() {
    let server = server(1);
    let mut account = Account::new(Arc::clone(&server), 0, (COUNTED_PER_LOOK + 2, 1), 1);
    let mut look = |is_short, asks| account.check(1, is_short, asks).collect::<Vec<_>>();
    assert!(look(false, false).is_empty());
    let first = look(true, false);
    assert!(first.iter().copied().eq(0..COUNTED_PER_LOOK));
    let second = look(false, true);
    let [last, next] = [COUNTED_PER_LOOK, COUNTED_PER_LOOK + 1];
    assert_eq!(second[..4], [last, next, 0, 1]);
    assert_eq!(second.len(), COUNTED_PER_LOOK as usize);
    assert!(look(false, false).is_empty());
    let mut small = Account::new(server, 0, (3, 1), 1);
    let all: Vec<_> = small.check(1, true, false).collect();
    assert_eq!(all, [0, 1, 2]);
}

#[test]
fn idle_memory_is_given_back_once_in_a_period_in_which_something_happened() {
    let mut account = account(&server(1), false);
    let due_ns = 1 + TRIM_PERIOD_NS;
    assert_eq!(account.trim_ns(), None);
    assert_eq!(account.note_use(), Some(due_ns));
    assert_eq!(account.note_use(), None, "that is known");
    assert_eq!(account.trim_ns(), Some(due_ns));
    assert!(!account.begin_trim(due_ns - 1) && account.begin_trim(due_ns));
    account.end_trim(true);
    assert_eq!(
        account.trim_ns(),
        Some(due_ns + TRIM_PERIOD_NS),
        "some is left"
    );
    assert!(!account.begin_trim(due_ns + 1));
    assert!(account.begin_trim(due_ns + TRIM_PERIOD_NS));
    account.end_trim(false);
    assert_eq!(account.trim_ns(), None);
}
