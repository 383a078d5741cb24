//! Tests of the tokens: bodies for the model checkers, the hazards by name, a model, a stress test.

use super::*;
use crate::sync::{AtomicU64, Mutex, lock, spawn};
use crate::testing::{join, model, race};

/// Counts how often pages went idle, and remembers what was written to the page by then.
#[derive(Clone)]
struct Log {
    idle: Arc<AtomicU32>,
    data: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
}

impl Log {
    fn new() -> Log {
        Log {
            idle: Arc::new(AtomicU32::new(0)),
            data: Arc::new(AtomicU64::new(0)),
            seen: Arc::new(AtomicU64::new(0)),
        }
    }

    fn idle(&self) -> u32 {
        self.idle.load(Ordering::Relaxed)
    }
}

impl Release for Log {
    fn page_idle(&self, _page: u32) {
        self.idle.fetch_add(1, Ordering::Relaxed);
        // Relaxed: the count alone orders what the users of the page did.
        let data = self.data.load(Ordering::Relaxed);
        self.seen.store(data, Ordering::Relaxed);
    }
}

/// A region of two pages, and a holder with tokens of the first.
struct Stage {
    refs: PageRefs<Log>,
    holder: Mutex<Holder<Log>>,
    returner: Returner<Log>,
    tokens: Vec<PageToken>,
}

impl Stage {
    fn new(tokens_max: u32, tokens: u32) -> Arc<Stage> {
        let refs = PageRefs::new(2, Log::new());
        let mut holder = refs.attach(tokens_max).expect("open");
        let tokens = (0..tokens).map(|_| holder.take(0).expect("room")).collect();
        Arc::new(Stage {
            refs,
            returner: holder.returner(),
            holder: Mutex::new(holder),
            tokens,
        })
    }

    fn log(&self) -> &Log {
        self.refs.release()
    }
}

/// The token that a holder of `tokens_max` gets when it takes the same page in the same slot again.
fn next_of_slot<R: Release>(refs: &PageRefs<R>, tokens_max: u32, token: PageToken) -> PageToken {
    let layout = ledger::Layout::new(refs.pages(), tokens_max);
    let (word, rest) = (token.to_u64() >> 32, token.to_u64() as u32);
    PageToken::from_u64(u64::from(layout.next(word as u32)) << 32 | u64::from(rest))
}

/// Hazard: a return and the sweep see the same token; exactly one of them releases it.
#[test]
fn loom_two_returns_and_the_sweep_release_a_token_once() {
    model(|| {
        let log = Log::new();
        let refs = PageRefs::new(1, log.clone());
        let mut holder = refs.attach(4).expect("open");
        let token = holder.take(0).expect("room");
        let returns = [(); 2].map(|()| {
            let returner = holder.returner();
            spawn(move || u32::from(returner.give_back(token)))
        });
        drop(holder);
        let accepted: u32 = returns.map(join).iter().sum();
        assert!(accepted <= 1, "accepted {accepted} times");
        assert_eq!((refs.uses(0), log.idle()), (0, 1));
    });
}

/// Hazard: the same, with the holder itself returning.
#[test]
fn loom_a_local_and_a_remote_return_of_one_token_succeed_once() {
    race(
        || Stage::new(4, 1),
        |stage| u32::from(stage.returner.give_back(stage.tokens[0])),
        |stage| u32::from(lock(&stage.holder).give_back(stage.tokens[0])),
        |stage, remote, local| {
            assert_eq!(remote + local, 1);
            assert_eq!(stage.refs.uses(0), 0);
            assert_eq!(lock(&stage.holder).held(), 0);
        },
    );
}

/// Hazard: a slot comes back through the stack of returns while others are taken.
#[test]
fn loom_slots_that_come_back_from_elsewhere_are_each_taken_once() {
    race(
        || Stage::new(3, 3),
        |stage| {
            assert!(stage.returner.give_back(stage.tokens[0]));
            assert!(stage.returner.give_back(stage.tokens[1]));
        },
        |stage| lock(&stage.holder).take(1).ok(),
        |stage, (), early| {
            let mut holder = lock(&stage.holder);
            let mut taken = vec![stage.tokens[2]];
            taken.extend(early);
            while let Ok(token) = holder.take(1) {
                taken.push(token);
            }
            assert_eq!(taken.len(), 3);
            assert_eq!((stage.refs.uses(0), stage.refs.uses(1)), (1, 2));
            for token in taken {
                assert!(holder.give_back(token), "each is another one");
            }
            assert_eq!(holder.held(), 0);
        },
    );
}

/// Hazard: two returners push to the stack of returns while the holder takes it.
#[test]
fn loom_two_returners_at_once_lose_no_slot() {
    model(|| {
        let refs = PageRefs::new(1, ());
        let mut holder = refs.attach(2).expect("open");
        let tokens = [(); 2].map(|()| holder.take(0).expect("room"));
        let returns = tokens.map(|token| {
            let returner = holder.returner();
            spawn(move || assert!(returner.give_back(token)))
        });
        let early = holder.take(0).is_ok();
        returns.into_iter().for_each(join);
        let late = (0..2).filter(|_| holder.take(0).is_ok()).count();
        assert_eq!(usize::from(early) + late, 2);
        assert_eq!(refs.uses(0), 2);
    });
}

/// Hazard: a page is reused only after all that its users did.
#[test]
fn loom_what_users_did_with_a_page_comes_before_its_reuse() {
    model(|| {
        let log = Log::new();
        let refs = PageRefs::new(1, log.clone());
        let pinned = refs.pin(0).expect("there");
        let mut holder = refs.attach(1).expect("open");
        let token = holder.take(0).expect("room");
        let returner = holder.returner();
        let data = Arc::clone(&log.data);
        let user = spawn(move || {
            data.store(7, Ordering::Relaxed);
            assert!(returner.give_back(token));
        });
        drop(pinned);
        if refs.uses(0) == 0 {
            assert_eq!(log.data.load(Ordering::Relaxed), 7, "seen unused");
        }
        join(user);
        assert_eq!(log.seen.load(Ordering::Relaxed), 7);
        assert_eq!(log.idle(), 1);
    });
}

/// Hazard: the reference to the page before the one of the user. A peer may guess the token, and
/// return it as soon as it can; by then all that came before the take has happened.
#[test]
fn loom_a_return_that_overtakes_its_take_finds_the_page_counted() {
    race(
        || {
            let stage = Stage::new(1, 1);
            assert!(stage.returner.give_back(stage.tokens[0]));
            stage
        },
        |stage| {
            let guess = next_of_slot(&stage.refs, 1, stage.tokens[0]);
            let accepted = stage.returner.give_back(guess);
            if accepted {
                assert_eq!(stage.log().data.load(Ordering::Relaxed), 7);
            }
            (guess, u32::from(accepted))
        },
        |stage| {
            stage.log().data.store(7, Ordering::Relaxed);
            lock(&stage.holder).take(0).expect("room")
        },
        |stage, (guess, accepted), token| {
            assert_eq!(token, guess);
            assert_eq!(stage.refs.uses(0), 1 - accepted);
            assert_eq!(stage.log().idle(), 1 + accepted);
        },
    );
}

/// Hazard: users gate the sweep. Who sees the last user gone sees all pages given back.
#[test]
fn loom_a_region_seen_closed_has_every_page_given_back() {
    model(|| {
        let refs = PageRefs::new(1, ());
        let mut holder = refs.attach(1).expect("open");
        holder.take(0).expect("room");
        refs.close();
        let last = spawn(move || drop(holder));
        if refs.is_closed() {
            assert_eq!(refs.shared.counts[0].load(Ordering::Relaxed), 0);
        }
        join(last);
        assert!(refs.is_closed());
    });
}

/// Hazard: the same beside a returner, which is no user. Closed or not, the page is counted off
/// once, and who sees it idle sees what the returner did with it.
#[test]
fn loom_what_a_returner_gives_back_beside_the_last_sweep_is_counted_off_once() {
    model(|| {
        let idle = Arc::new(AtomicU32::new(0));
        let count = Arc::clone(&idle);
        let told = move |_| {
            count.fetch_add(1, Ordering::Relaxed);
        };
        let refs = PageRefs::new(1, told);
        let mut holder = refs.attach(1).expect("open");
        let token = holder.take(0).expect("room");
        let returner = holder.returner();
        refs.close();
        let returns = spawn(move || returner.give_back(token));
        drop(holder);
        assert!(refs.is_closed(), "a returner is no user");
        // The sweep gave it back, or the returner has claimed it and does so any time now.
        let was_idle = refs.uses(0) == 0;
        let was_returned = join(returns);
        assert!(was_idle || was_returned);
        assert_eq!((refs.uses(0), idle.load(Ordering::Relaxed)), (0, 1));
    });
}

/// Hazard: joining after the last user has swept.
#[test]
fn loom_a_user_beside_the_last_one_attaches_before_it_leaves_or_not_at_all() {
    model(|| {
        let refs = PageRefs::new(1, ());
        let other = refs.clone();
        let joins = spawn(move || match other.attach(1) {
            Some(mut holder) => {
                assert!(!other.is_closed());
                holder.take(0).expect("a holder is a user");
            }
            None => assert!(other.is_closed()),
        });
        refs.close();
        join(joins);
        assert!(refs.is_closed() && refs.attach(1).is_none());
        assert_eq!(refs.uses(0), 0);
    });
}

#[cfg(not(loom))]
mod larger;
#[cfg(not(any(loom, shuttle)))]
mod on_real_threads;

#[test]
fn the_pages_of_live_tokens_are_named_once_per_token() {
    let refs = PageRefs::new(4, ());
    let mut holder = refs.attach(8).expect("open");
    let pages = |holder: &Holder| {
        let mut pages = vec![];
        holder.held_pages(|page| pages.push(page));
        pages.sort_unstable();
        pages
    };
    assert_eq!(pages(&holder), [0_u32; 0]);
    let tokens: Vec<_> = [3, 1, 3, 2]
        .map(|page| holder.take(page).expect("room"))
        .into();
    assert_eq!(pages(&holder), [1, 2, 3, 3]);
    assert!(holder.give_back(tokens[0]));
    assert!(holder.give_back(tokens[3]));
    assert_eq!(pages(&holder), [1, 3]);
}
