//! Which repeated calls get the reply of the first one, and which are executed.

use super::*;
use crate::auth::Groups;

fn call(xid: u32, user: u32) -> Call {
    let credential = Credential::System {
        user,
        group: 1,
        groups: Groups::new([1, 2]),
    };
    let peer = Some("127.0.0.1:700".parse().expect("an address"));
    Call {
        xid,
        program: 100_003,
        version: 3,
        procedure: 12,
        credential,
        peer,
        ..Call::default()
    }
}

fn origin(port: u16) -> Arc<Origin> {
    Origin::new(Some(([127, 0, 0, 1], port).into()))
}

fn ticket(duplicates: &DuplicateRequestCache, key: RequestKey) -> Ticket {
    match duplicates.look_up(key, &origin(700), 0, false) {
        Lookup::New(Some(ticket)) => ticket,
        _ => panic!("a new call with room has a ticket"),
    }
}

#[test]
fn a_repeated_call_gets_the_first_reply() {
    let duplicates = DuplicateRequestCache::new(64);
    let key = duplicates.key(&call(1, 1000), &Arguments::new(b"name"));
    let first = ticket(&duplicates, key);
    assert!(matches!(
        duplicates.look_up(key, &origin(700), 0, true),
        Lookup::InProgress
    ));
    first.finish(b"reply");
    let again = duplicates.look_up(key, &origin(700), 0, false);
    assert!(matches!(again, Lookup::Done(reply) if reply == b"reply"[..]));
}

#[test]
fn whatever_differs_makes_another_call() {
    let duplicates = DuplicateRequestCache::new(64);
    let arguments = Arguments::new(b"name");
    let key = duplicates.key(&call(1, 1000), &arguments);
    assert_eq!(key, duplicates.key(&call(1, 1000), &arguments));
    assert_ne!(key, duplicates.key(&call(2, 1000), &arguments), "number");
    assert_ne!(key, duplicates.key(&call(1, 1001), &arguments), "principal");
    assert_ne!(
        key,
        duplicates.key(&call(1, 1000), &Arguments::new(b"other")),
        "arguments"
    );
    let mut other = call(1, 1000);
    other.procedure = 13;
    assert_ne!(key, duplicates.key(&other, &arguments), "procedure");
    other = call(1, 1000);
    other.peer = Some("127.0.0.2:700".parse().expect("an address"));
    assert_ne!(key, duplicates.key(&other, &arguments), "client");
    other.peer = Some("127.0.0.1:900".parse().expect("an address"));
    assert_eq!(
        key,
        duplicates.key(&other, &arguments),
        "a new connection is the same client"
    );
}

#[test]
fn a_write_that_differs_in_any_one_bit_is_another_call() {
    let duplicates = DuplicateRequestCache::new(64);
    // As long as all of it counts; see `digest`.
    let mut data = vec![7; 16_384];
    let key = duplicates.key(&call(1, 1), &Arguments::new(&data));
    for at in (0..data.len()).step_by(331).chain([data.len() - 1]) {
        data[at] ^= 1 << (at % 8);
        let other = duplicates.key(&call(1, 1), &Arguments::new(&data));
        assert_ne!(key, other, "byte {at}");
        data[at] ^= 1 << (at % 8);
    }
    assert_eq!(key, duplicates.key(&call(1, 1), &Arguments::new(&data)));
    assert_ne!(
        key,
        duplicates.key(&call(1, 1), &Arguments::new(&data[1..]))
    );
}

#[test]
fn a_ticket_that_is_dropped_forgets_its_call() {
    let duplicates = DuplicateRequestCache::new(64);
    let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
    drop(ticket(&duplicates, key));
    assert!(duplicates.len() == 0);
    ticket(&duplicates, key).finish(&[0; CACHED_REPLY_BYTES_MAX + 1]);
    assert!(
        duplicates.len() == 0,
        "a reply beyond the bound is not kept"
    );
}

#[test]
fn a_full_cache_forgets_the_oldest_finished_call_and_never_one_in_progress() {
    let duplicates = DuplicateRequestCache::new(SHARDS);
    let mut open = Vec::new();
    for xid in 0..1000 {
        let key = duplicates.key(&call(xid, 1), &Arguments::new(b""));
        if let Lookup::New(Some(ticket)) = duplicates.look_up(key, &origin(700), 0, false) {
            open.push((key, ticket));
        }
    }
    assert_eq!(
        open.len(),
        SHARDS,
        "one per shard, the others found no room"
    );
    for (key, _) in &open {
        assert!(matches!(
            duplicates.look_up(*key, &origin(700), 0, true),
            Lookup::InProgress
        ));
    }
    for (_, ticket) in open {
        ticket.finish(b"done");
    }
    for xid in 1000..5000 {
        let key = duplicates.key(&call(xid, 1), &Arguments::new(b""));
        ticket(&duplicates, key).finish(b"done");
        assert!(duplicates.len() <= SHARDS);
    }
}

/// A call of `from` was executed; whether the one like it of `to` gets its reply.
fn answered(from: &Arc<Origin>, to: &Arc<Origin>, after_ns: u64) -> bool {
    let duplicates = DuplicateRequestCache::new(64);
    let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
    match duplicates.look_up(key, from, 7, false) {
        Lookup::New(Some(ticket)) => ticket.finish(b"reply"),
        _ => panic!("a new call with room has a ticket"),
    }
    matches!(
        duplicates.look_up(key, to, 7 + after_ns, false),
        Lookup::Done(_)
    )
}

#[test]
fn another_connection_is_answered_only_after_the_first_one_broke() {
    let (first, second) = (origin(700), origin(701));
    assert!(!answered(&first, &second, 0), "it is open: another program");
    first.close();
    assert!(answered(&first, &second, 0), "it broke");
    assert!(answered(&first, &second, CACHED_REPLY_MOVED_NS_MAX));
    assert!(!answered(&first, &second, CACHED_REPLY_MOVED_NS_MAX + 1));
    let first = origin(700);
    first.mark_answered();
    first.close();
    assert!(!answered(&first, &second, 0), "it had its replies");
    assert!(answered(&first, &origin(700), 0), "the same port");
    let (unknown, other) = (Origin::new(None), Origin::new(None));
    assert!(
        !answered(&unknown, &other, 0),
        "two unknown peers are not alike"
    );
    assert!(answered(&unknown, &unknown, 0));
}

#[test]
fn no_reply_is_given_after_its_time() {
    let first = origin(700);
    assert!(answered(&first, &first, CACHED_REPLY_AGE_NS_MAX));
    assert!(!answered(&first, &first, CACHED_REPLY_AGE_NS_MAX + 1));
}

#[test]
fn a_reply_that_moved_stays_with_the_connection_it_moved_to() {
    let duplicates = DuplicateRequestCache::new(64);
    let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
    let (first, second, third) = (origin(700), origin(701), origin(702));
    let Lookup::New(Some(made)) = duplicates.look_up(key, &first, 0, false) else {
        panic!("it is new");
    };
    first.close();
    let again = duplicates.look_up(key, &second, 0, false);
    assert!(matches!(again, Lookup::Unclear), "soon there is a reply");
    let again = duplicates.look_up(key, &second, 0, true);
    assert!(matches!(again, Lookup::InProgress), "it runs for long");
    made.finish(b"reply");
    assert!(matches!(
        duplicates.look_up(key, &second, 0, false),
        Lookup::Done(_)
    ));
    assert!(matches!(
        duplicates.look_up(key, &third, 0, false),
        Lookup::Unclear
    ));
    let anew = duplicates.look_up(key, &third, 0, true);
    assert!(matches!(anew, Lookup::New(Some(_))));
}

#[test]
fn clients_with_the_same_calls_at_once_each_get_their_own_reply() {
    let duplicates = DuplicateRequestCache::new(64);
    let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
    let origins: Vec<_> = (0..3 * CACHED_TWINS_MAX as u16)
        .map(|at| origin(700 + at))
        .collect();
    let mut tickets = Vec::new();
    for origin in &origins {
        let Lookup::New(ticket) = duplicates.look_up(key, origin, 0, true) else {
            panic!("another client's call is not this one's");
        };
        tickets.push(ticket);
    }
    let kept = tickets.iter().filter(|ticket| ticket.is_some()).count();
    assert_eq!(kept, CACHED_TWINS_MAX + 1, "the others found no room");
    assert_eq!(duplicates.len(), kept);
    for (number, ticket) in tickets.into_iter().enumerate().rev() {
        if let Some(ticket) = ticket.filter(|_| number != 3) {
            ticket.finish(&[u8::try_from(number).expect("small")]);
        }
    }
    for (number, origin) in origins.iter().enumerate().take(kept) {
        match duplicates.look_up(key, origin, 0, true) {
            Lookup::Done(reply) => assert_eq!(usize::from(reply[0]), number),
            Lookup::New(_) => assert_eq!(number, 3, "that one was dropped"),
            Lookup::InProgress | Lookup::Unclear => panic!("all have ended"),
        }
    }
    for shard in &duplicates.0.shards {
        let shard = shard.lock();
        assert_eq!(shard.order.len(), shard.entries.len());
    }
}

/// What `to` learns of a call that `from` has made at time 0 and that still runs.
fn running(from: &Arc<Origin>, to: &Arc<Origin>, now_ns: u64, is_last: bool) -> &'static str {
    let duplicates = DuplicateRequestCache::new(64);
    let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
    let Lookup::New(Some(_runs)) = duplicates.look_up(key, from, 0, false) else {
        panic!("it is new");
    };
    match duplicates.look_up(key, to, now_ns, is_last) {
        Lookup::New(_) => "new",
        Lookup::Unclear => "unclear",
        Lookup::InProgress => "in progress",
        Lookup::Done(_) => "done",
    }
}

/// It would be executed twice, at the same time.
#[test]
fn a_call_that_runs_is_known_however_long_it_runs() {
    let (same, moved) = (origin(700), origin(701));
    let broken = origin(700);
    broken.close();
    for now_ns in [
        0,
        CACHED_REPLY_MOVED_NS_MAX + 1,
        CACHED_REPLY_AGE_NS_MAX + 1,
    ] {
        for is_last in [false, true] {
            assert_eq!(running(&same, &same, now_ns, is_last), "in progress");
        }
        assert_eq!(running(&broken, &moved, now_ns, false), "unclear");
        assert_eq!(running(&broken, &moved, now_ns, true), "in progress");
    }
}

/// And is answered once it is done, by its connection and by one that its client has later.
#[test]
fn a_call_that_runs_is_not_forgotten_for_an_equal_one_of_another_client() {
    for ends in [false, true] {
        let duplicates = DuplicateRequestCache::new(64);
        let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
        let (first, other) = (origin(700), origin(701));
        let Lookup::New(Some(runs)) = duplicates.look_up(key, &first, 0, false) else {
            panic!("it is new");
        };
        if ends {
            // Its connection has had replies to all that it waited for.
            first.mark_answered();
            first.close();
        }
        let later = CACHED_REPLY_AGE_NS_MAX + 1;
        let Lookup::New(Some(others)) = duplicates.look_up(key, &other, later, true) else {
            panic!("another client's call is its own");
        };
        let again = duplicates.look_up(key, &first, later, true);
        assert!(matches!(again, Lookup::InProgress), "ends: {ends}");
        others.finish(b"other");
        runs.finish(b"first");
        // The call began too long ago for its reply to be repeated, the other's did not.
        let again = duplicates.look_up(key, &other, later, true);
        assert!(matches!(again, Lookup::Done(reply) if reply == b"other"[..]));
    }
}

/// As one that runs is: a client would have to ask again, and a place would be taken.
#[test]
fn a_call_that_is_done_is_not_taken_for_one_that_runs() {
    let duplicates = DuplicateRequestCache::new(64);
    let key = duplicates.key(&call(1, 1), &Arguments::new(b""));
    let done = |from: &Arc<Origin>, now_ns| {
        match duplicates.look_up(key, from, now_ns, true) {
            Lookup::New(Some(ticket)) => ticket.finish(b"reply"),
            _ => panic!("a call of its own"),
        };
    };
    // Its time is over, while its connection is open.
    let (open, other) = (origin(700), origin(701));
    done(&open, 0);
    let later = CACHED_REPLY_AGE_NS_MAX + 1;
    let asked = duplicates.look_up(key, &other, later, false);
    assert!(matches!(asked, Lookup::New(Some(_))), "nothing is unclear");
    drop(asked);
    assert_eq!(duplicates.len(), 0, "and it has made room");
    // Its connection has ended with all its replies, or without.
    for has_replies in [true, false] {
        let ended = origin(700);
        done(&ended, later);
        if has_replies {
            ended.mark_answered();
        }
        ended.close();
        let asked = duplicates.look_up(key, &other, later, false);
        match (has_replies, asked) {
            (true, Lookup::New(Some(_))) => {}
            (false, Lookup::Done(reply)) => assert_eq!(reply, b"reply"[..]),
            _ => panic!("has its replies: {has_replies}"),
        }
        assert_eq!(duplicates.len(), usize::from(!has_replies));
    }
}
