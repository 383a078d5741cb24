//! News: many threads say that something has changed; one notices, and looks at all of it.
//!
//! Other names: a dirty flag, a doorbell, an `eventfd` without a count.
//!
//! | may run beside | tell | any | take           |
//! |----------------|------|-----|----------------|
//! | tell           | yes  | yes | yes            |
//! | take           | yes  | yes | no: one taker  |
//!
//! Ordering
//! - NE1 news: `tell` (Release) -> `take` (Acquire): what each thread wrote before it told. All of
//!   them tell by an exchange, so a take sees what every one of them wrote, not the last one alone.
//!   What is told after a take is there for the next one: nothing is lost.
//! - No fence: a thread that tells and then looks for a sleeping taker puts a `fence(SeqCst)`
//!   between the two, and so does the taker.
//!
//! Cost: telling is one exchange, asking one load.

use crate::sync::{AtomicBool, Ordering, edge};

const TELL: Ordering = edge!("news_tell_publish", Release, Relaxed);
const TAKE: Ordering = edge!("news_take_acquire", Acquire, Relaxed);

/// Whether something has changed since the taker looked. See the module.
#[derive(Debug, Default)]
pub struct News(AtomicBool);

impl News {
    /// Something has changed, and this thread has written what.
    #[inline]
    pub fn tell(&self) {
        // ORDER: NE1: releases what was written before.
        self.0.swap(true, TELL);
    }

    /// Whether anything was told that was not taken.
    #[inline]
    pub fn any(&self) -> bool {
        // ORDER: Relaxed: `take` orders what was written.
        self.0.load(Ordering::Relaxed)
    }

    /// Whether anything was told since the last call. The taker looks afterwards.
    #[inline]
    pub fn take(&self) -> bool {
        // ORDER: NE1: acquires what was told.
        self.any() && self.0.swap(false, TAKE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::{Arc, AtomicU32, Ordering::Relaxed};
    use crate::testing::race;

    #[derive(Default)]
    struct Noted {
        news: News,
        written: [AtomicU32; 2],
    }

    impl Noted {
        fn told_by(&self, teller: usize) {
            self.written[teller].store(1, Relaxed);
            self.news.tell();
        }

        fn seen(&self) -> u32 {
            self.written.iter().map(|one| one.load(Relaxed)).sum()
        }
    }

    #[test]
    fn news_is_taken_once_however_often_it_was_told() {
        let news = News::default();
        assert!(!news.any() && !news.take());
        news.tell();
        news.tell();
        assert!(news.any() && news.take());
        assert!(!news.any() && !news.take());
    }

    #[test]
    fn loom_what_was_written_before_it_was_told_is_seen_and_nothing_is_lost() {
        race(
            Arc::<Noted>::default,
            |noted| noted.told_by(0),
            |noted| noted.news.take().then(|| noted.seen()),
            |noted, (), seen| match seen {
                Some(seen) => assert_eq!(seen, 1, "not yet visible"),
                None => assert!(noted.news.take(), "lost"),
            },
        );
    }

    #[test]
    fn loom_a_take_sees_what_all_wrote_that_have_told() {
        race(
            Arc::<Noted>::default,
            |noted| noted.told_by(0),
            |noted| {
                noted.told_by(1);
                assert!(noted.news.take(), "it has just been told");
                noted.seen()
            },
            |noted, (), seen| assert!(seen == 2 || noted.news.take(), "lost"),
        );
    }
}
