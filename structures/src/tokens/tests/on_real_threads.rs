//! The hazards by name, a model against a map, and a stress test.

use super::*;
use crate::testing::{Random, repeats, rounds, with_seeds, within_deadline};
use std::collections::{HashMap, HashSet};

#[test]
fn a_page_is_in_use_until_its_last_token_is_back() {
    let log = Log::new();
    let refs = PageRefs::new(8, log.clone());
    let mut holders = [refs.attach(4).expect("open"), refs.attach(4).expect("open")];
    let tokens = holders
        .each_mut()
        .map(|holder| holder.take(5).expect("room"));
    assert_eq!(refs.uses(5), 2);
    assert!(holders[0].give_back(tokens[0]));
    assert_eq!((refs.uses(5), log.idle()), (1, 0));
    assert!(holders[1].give_back(tokens[1]));
    assert_eq!((refs.uses(5), log.idle()), (0, 1));
}

/// Hazard: decrement only if positive; a peer returns a token twice.
#[test]
fn a_token_returned_twice_is_refused_the_second_time() {
    let refs = PageRefs::new(1, ());
    let mut holder = refs.attach(4).expect("open");
    let (token, other) = (holder.take(0).expect("room"), holder.take(0).expect("room"));
    let returner = holder.returner();
    assert!(returner.give_back(token));
    assert!(!returner.give_back(token));
    assert!(!holder.give_back(token));
    assert_eq!(refs.uses(0), 1, "the other token of the page stands");
    assert!(holder.give_back(other));
    assert_eq!(refs.uses(0), 0);
}

/// Hazard: identity. Two fragments of one page are two tokens.
#[test]
fn two_tokens_of_one_page_are_told_apart() {
    let refs = PageRefs::new(1, ());
    let mut holder = refs.attach(4).expect("open");
    let tokens = [(); 3].map(|()| holder.take(0).expect("room"));
    assert_eq!(HashSet::from(tokens).len(), 3);
    assert_eq!(refs.uses(0), 3);
}

/// Hazard: a stale token, whose slot has been taken again since.
#[test]
fn a_stale_token_does_not_return_the_next_token_of_its_slot() {
    let refs = PageRefs::new(2, ());
    let mut holder = refs.attach(1).expect("open");
    let stale = holder.take(0).expect("room");
    assert!(holder.give_back(stale));
    let current = holder.take(1).expect("room");
    assert!(!holder.give_back(stale));
    assert_eq!(refs.uses(1), 1);
    assert!(holder.give_back(current));
}

/// Hazard: permissions. A token is worth nothing in the hands of another holder.
#[test]
fn a_token_of_another_holder_is_refused() {
    let refs = PageRefs::new(1, ());
    // Beyond 4,096 holders the tags repeat, the generations do not.
    let count = repeats(4_100);
    let mut holders: Vec<_> = (0..count).map(|_| refs.attach(4).expect("open")).collect();
    let tokens: Vec<PageToken> = holders
        .iter_mut()
        .map(|it| it.take(0).expect("room"))
        .collect();
    assert_eq!(tokens.iter().collect::<HashSet<_>>().len(), tokens.len());
    for (number, holder) in holders.iter_mut().enumerate().take(8) {
        for (other, token) in tokens.iter().enumerate() {
            assert!(
                number == other || !holder.give_back(*token),
                "{number} returned {other}"
            );
        }
    }
    assert_eq!(refs.uses(0), count);
}

#[test]
fn a_forged_token_is_refused_without_harm() {
    with_seeds(5, |random| {
        let refs = PageRefs::new(1, ());
        let mut holder = refs.attach(100).expect("open");
        assert!(
            !holder.give_back(PageToken::from_u64(0)),
            "before there is a ledger"
        );
        let tokens: HashSet<PageToken> = (0..50).map(|_| holder.take(0).expect("room")).collect();
        let returner = holder.returner();
        let a_token = *tokens.iter().next().expect("fifty");
        for _ in 0..repeats(20_000) {
            // Anything at all, and what differs from a good one in a single bit.
            let near = a_token.to_u64() ^ 1 << random.below(64);
            for word in [near, random.next() << 8 ^ random.next()] {
                let token = PageToken::from_u64(word);
                if !tokens.contains(&token) {
                    assert!(
                        !returner.give_back(token) && !holder.give_back(token),
                        "{word:x}"
                    );
                }
            }
        }
        assert_eq!((refs.uses(0), holder.held()), (50, 50));
    });
}

/// Hazard: whatever a holder leaves is released when it dies, and nothing else.
#[test]
fn a_dead_holder_leaves_nothing_behind_and_takes_nothing_along() {
    let log = Log::new();
    let refs = PageRefs::new(1 << 10, log.clone());
    let mut survivor = refs.attach(10).expect("open");
    let kept = survivor.take(3).expect("room");
    let mut dies = refs.attach(100).expect("open");
    for page in [1, 1, 2, 3, 1_023] {
        dies.take(page).expect("room");
    }
    let back = dies.take(4).expect("room");
    assert!(dies.give_back(back));
    let late = dies.returner();
    drop(dies);
    let in_use: Vec<u32> = (0..1 << 10).filter(|page| refs.uses(*page) != 0).collect();
    assert_eq!(in_use, [3]);
    assert_eq!((refs.uses(3), log.idle()), (1, 4));
    assert!(!late.give_back(back), "a late return finds nothing");
    assert!(survivor.give_back(kept));
}

#[test]
fn a_holder_takes_no_more_than_its_bound() {
    let refs = PageRefs::new(1, ());
    let mut holder = refs.attach(2).expect("open");
    let tokens = [(); 2].map(|()| holder.take(0).expect("room"));
    assert_eq!(holder.take(0), Err(TakeError::TooManyTokens));
    assert!(holder.returner().give_back(tokens[0]));
    assert!(holder.take(0).is_ok());
    assert_eq!(holder.take(0), Err(TakeError::TooManyTokens));
    assert_eq!(
        refs.attach(0).expect("open").take(0),
        Err(TakeError::TooManyTokens)
    );
}

#[test]
fn a_page_out_of_range_is_refused_and_costs_no_token() {
    let refs = PageRefs::new(2, ());
    let mut holder = refs.attach(1).expect("open");
    for page in [2, 3, u32::MAX] {
        assert_eq!(holder.take(page), Err(TakeError::NoSuchPage));
        assert!(refs.pin(page).is_none());
        assert_eq!(refs.uses(page), 0);
    }
    assert!(holder.take(1).is_ok());
}

/// Hazard: the counter of a page overflows.
#[test]
fn a_crowded_page_refuses_more_and_counts_right() {
    let refs = PageRefs::new(2, ());
    refs.shared.counts[0].store(USES_MAX - 1, Ordering::Relaxed);
    let mut holder = refs.attach(4).expect("open");
    let last = holder.take(0).expect("one more");
    assert_eq!(holder.take(0), Err(TakeError::PageCrowded));
    assert!(refs.pin(0).is_none());
    assert_eq!(refs.uses(0), USES_MAX);
    assert!(holder.give_back(last) && holder.take(0).is_ok());
    refs.shared.counts[0].store(1, Ordering::Relaxed);
}

/// Hazard: a page whose first token is back before its second one is taken must not be reused.
#[test]
fn a_pinned_page_stays_in_use_while_tokens_come_and_go() {
    let log = Log::new();
    let refs = PageRefs::new(1, log.clone());
    let mut holder = refs.attach(4).expect("open");
    let pinned = refs.pin(0).expect("there");
    for _ in 0..3 {
        let token = holder.take(0).expect("room");
        assert!(holder.give_back(token));
    }
    assert_eq!((pinned.page(), refs.uses(0), log.idle()), (0, 1, 0));
    drop(pinned);
    assert_eq!((refs.uses(0), log.idle()), (0, 1));
}

/// Hazard: bind, unbind, take. Users gate the door.
#[test]
fn after_the_last_user_none_attaches() {
    let refs = PageRefs::new(1, ());
    let holder = refs.attach(1).expect("open");
    refs.close();
    refs.close();
    let mut second = refs.attach(1).expect("the first holder is a user");
    drop(holder);
    assert!(second.take(0).is_ok() && !refs.is_closed());
    drop(second);
    assert!(refs.is_closed() && refs.attach(1).is_none());
    assert_eq!(refs.uses(0), 0, "nothing is left unswept");
}

/// Hazard: two lifetimes. References gate the memory.
#[test]
fn the_region_lives_until_its_last_reference_not_its_last_user() {
    struct Dropped(std::sync::mpsc::Sender<()>);
    impl Release for Dropped {
        fn page_idle(&self, _page: u32) {}
    }
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(()).expect("the test listens");
        }
    }
    let (sender, dropped) = std::sync::mpsc::channel();
    let refs = PageRefs::new(1, Dropped(sender));
    let mut holder = refs.attach(1).expect("open");
    let (returner, pinned) = (holder.returner(), refs.pin(0));
    refs.close();
    drop((holder, refs));
    assert!(
        dropped.try_recv().is_err(),
        "users are gone, references are not"
    );
    drop(pinned);
    assert!(dropped.try_recv().is_err());
    drop(returner);
    assert!(dropped.try_recv().is_ok(), "now it is released");
}

/// Hazard: memory multiplies with holders.
#[test]
#[cfg_attr(
    miri,
    ignore = "counts bytes of what is large on purpose, page by page"
)]
fn a_holder_never_takes_more_than_a_tree_of_its_tokens() {
    let refs = PageRefs::new(1 << 10, ());
    let mut holder = refs.attach(TOKENS_MAX).expect("open");
    assert!(holder.bookkeeping_bytes() <= 32, "with none");
    for count in 1..=100_000 {
        holder.take(count % 1_000).expect("room");
        let bytes = holder.bookkeeping_bytes();
        // The bench's baseline: 72 bytes, and nodes of 64 words and two bitmaps.
        let nodes = |level: u32| level.div_ceil(64);
        let levels = std::iter::successors(Some(nodes(count)), |&level| {
            (level > 1).then(|| nodes(level))
        });
        let tree = 72 + 272 * levels.sum::<u32>() as usize;
        assert!(bytes <= tree, "{bytes} with {count}, a tree {tree}");
    }
}

/// Hazard: the generation is a part of a word, and carries into the bit next to it when it wraps.
/// Until then each token of a slot is another one; afterwards the first fits again, for its page
/// alone (T3).
#[test]
#[cfg_attr(miri, ignore = "makes sixteen million counters")]
fn the_generation_of_a_slot_wraps_to_tokens_of_the_same_page() {
    let refs = PageRefs::new(PAGES_MAX, ());
    let mut holder = refs.attach(1).expect("open");
    let mut tokens = HashSet::new();
    let first = holder.take(5).expect("room");
    let mut token = first;
    for _ in 0..1 << 7 {
        assert!(tokens.insert(token), "another token each time");
        assert!(holder.give_back(token) && !holder.give_back(token));
        assert_eq!((holder.held(), refs.uses(5)), (0, 0));
        token = holder.take(5).expect("room");
    }
    assert_eq!(token, first, "after 128 uses");
    assert!(holder.give_back(token));
    let other = holder.take(PAGES_MAX - 1).expect("room");
    for stale in tokens {
        assert!(!holder.give_back(stale), "of another page or generation");
    }
    assert!(holder.give_back(other));
    assert_eq!(refs.uses(PAGES_MAX - 1), 0);
}

/// The last slot is no end of a list, whichever bits of a word a link has.
#[test]
fn a_holder_of_any_bound_uses_each_of_its_slots_again_and_again() {
    for tokens_max in [1, 2, 3, 4, 7, 8, 15, 16, 17, 63, 64, 65, 127, 128] {
        let refs = PageRefs::new(1, ());
        let mut holder = refs.attach(tokens_max).expect("open");
        for _ in 0..3 {
            let tokens: Vec<_> = std::iter::from_fn(|| holder.take(0).ok()).collect();
            assert_eq!(tokens.len() as u32, tokens_max);
            assert!(tokens.iter().all(|token| holder.give_back(*token)));
        }
        let returner = holder.returner();
        for _ in 0..3 {
            let tokens: Vec<_> = std::iter::from_fn(|| holder.take(0).ok()).collect();
            assert_eq!(tokens.len() as u32, tokens_max);
            assert!(tokens.iter().all(|token| returner.give_back(*token)));
        }
    }
}

#[test]
fn model_random_takes_and_returns_agree_with_a_map() {
    with_seeds(30, |random| {
        let pages = 1 + random.below(20);
        let refs = PageRefs::new(pages, Log::new());
        // Per holder: what it holds, and everything it ever held.
        let mut holders = Vec::new();
        for _ in 0..repeats(2_000) {
            match random.below(100) {
                0..=2 if holders.len() < 5 => {
                    let tokens_max = 1 + random.below(60);
                    let holder = refs.attach(tokens_max).expect("open");
                    holders.push((holder, tokens_max, HashMap::new(), Vec::new()));
                }
                3 if !holders.is_empty() => {
                    holders.swap_remove(random.below(holders.len() as u32) as usize);
                }
                4..=50 if !holders.is_empty() => {
                    let who = random.below(holders.len() as u32) as usize;
                    let (holder, tokens_max, held, ever) = &mut holders[who];
                    let page = random.below(pages);
                    match holder.take(page) {
                        Ok(token) => {
                            assert_eq!(held.insert(token, page), None, "a token is new");
                            ever.push(token);
                        }
                        Err(error) => {
                            assert_eq!(error, TakeError::TooManyTokens);
                            assert_eq!(held.len(), *tokens_max as usize);
                        }
                    }
                }
                _ if !holders.is_empty() => give_back_at_random(random, &mut holders),
                _ => {}
            }
            for page in 0..pages {
                let held = holders.iter().flat_map(|(_, _, held, _)| held.values());
                let uses = held.filter(|held| **held == page).count() as u32;
                assert_eq!(refs.uses(page), uses, "page {page}");
            }
        }
        for (holder, _, held, _) in &holders {
            assert_eq!(holder.held() as usize, held.len());
        }
    });
}

type ModelHolder = (Holder<Log>, u32, HashMap<PageToken, u32>, Vec<PageToken>);

/// Returns some token, current or not, through some holder, in one of two ways.
fn give_back_at_random(random: &mut Random, holders: &mut [ModelHolder]) {
    let whose = random.below(holders.len() as u32) as usize;
    let ever = &holders[whose].3;
    if ever.is_empty() {
        return;
    }
    let recent = random.below(ever.len().min(40) as u32) as usize;
    let token = ever[ever.len() - 1 - recent];
    let through = if random.below(4) == 0 {
        random.below(holders.len() as u32) as usize
    } else {
        whose
    };
    let (holder, _, held, _) = &mut holders[through];
    let expected = held.remove(&token).is_some();
    let accepted = match random.below(2) {
        0 => holder.returner().give_back(token),
        _ => holder.give_back(token),
    };
    assert_eq!(accepted, expected);
}

/// One taker, returners that return everything twice, and an end in the middle of it.
#[test]
fn stress_each_token_is_released_once() {
    within_deadline(move || {
        for _ in 0..rounds(200) {
            let log = Log::new();
            let refs = PageRefs::new(4, log.clone());
            let mut holder = refs.attach(32).expect("open");
            let (senders, receivers): (Vec<_>, Vec<_>) = (0..2)
                .map(|_| std::sync::mpsc::channel::<PageToken>())
                .unzip();
            let returners: Vec<_> = receivers
                .into_iter()
                .map(|tokens| {
                    let returner = holder.returner();
                    spawn(move || tokens.iter().filter(|it| returner.give_back(*it)).count())
                })
                .collect();
            let mut taken = 0;
            for number in 0..repeats(500) {
                if let Ok(token) = holder.take(number % 4) {
                    taken += 1;
                    senders
                        .iter()
                        .for_each(|sender| sender.send(token).expect("it listens"));
                }
            }
            let left = {
                drop(holder);
                drop(senders);
                let accepted: usize = returners.into_iter().map(join).sum();
                taken - accepted
            };
            assert!(left <= 32, "{left} were swept");
            assert_eq!([0, 1, 2, 3].map(|page| refs.uses(page)), [0; 4]);
        }
    });
}
