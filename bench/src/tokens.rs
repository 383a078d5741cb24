//! `bench tokens`: who holds which page of a region.
//!
//! Before: a tree of tokens per socket, and an array of counters per socket. Ours:
//! [`flatpath_structures::tokens`]. Beside them the least that can be done, one array per region,
//! which reclaims nothing. A region of 2 GiB in pages of 4 KiB; pages are chosen at random, and
//! choosing (5 ns) is part of every figure.

use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use flatpath_structures::tokens::{Holder, PageRefs, PageToken, Returner};

use crate::Stage;
use crate::baseline::token_array::ArrayRegion;
use crate::baseline::token_region::CountedRegion;
use crate::baseline::token_tree::TreeRegion;
use crate::published;
use flatpath_bench_common::measure::{Hammered, Turn, figures, hammered, hand_over, samples};
use flatpath_bench_common::report::{BenchReport, Figure, Role, Table, Wanted, ratio};

/// 2 GiB of 4 KiB pages.
const PAGES: u32 = 524_288;
/// Tokens of one holder, at most.
const TOKENS_MAX: u32 = 4_096;
/// Connections for which the bookkeeping is summed up.
const CONNECTIONS: f64 = 10_000.0;

const TREE: &str = "tree per socket";
const ARRAY: &str = "array per socket";
const COUNTED: &str = "array per region, no reclaim";
const OURS: &str = "ours";

/// A region that holders join.
pub(crate) trait Opens: Sync + Sized {
    type Holder: Holds;
    fn open(pages: u32) -> Self;
    fn join(&self) -> Self::Holder;
}

/// A holder: dropping it takes back what it still holds.
pub(crate) trait Holds: Send {
    type Token: Copy + Send;
    type Remote: GivesBack<Self::Token>;
    fn take(&mut self, page: u32) -> Option<Self::Token>;
    /// Whether the token was held.
    fn give_back(&mut self, token: Self::Token) -> bool;
    /// Gives back from another thread.
    fn remote(&mut self) -> Self::Remote;
    /// Bookkeeping of this holder.
    fn bytes(&self) -> usize;
}

/// What another thread may do for a holder.
pub(crate) trait GivesBack<T>: Send + Sync {
    fn give_back(&self, token: T) -> bool;
}

impl Opens for PageRefs {
    type Holder = Holder;

    fn open(pages: u32) -> Self {
        PageRefs::new(pages, ())
    }

    fn join(&self) -> Holder {
        PageRefs::attach(self, TOKENS_MAX).expect("the bench closes no region")
    }
}

impl Holds for Holder {
    type Token = PageToken;
    type Remote = Returner;

    fn take(&mut self, page: u32) -> Option<PageToken> {
        Holder::take(self, page).ok()
    }

    fn give_back(&mut self, token: PageToken) -> bool {
        Holder::give_back(self, token)
    }

    fn remote(&mut self) -> Returner {
        self.returner()
    }

    fn bytes(&self) -> usize {
        self.bookkeeping_bytes()
    }
}

impl GivesBack<PageToken> for Returner {
    fn give_back(&self, token: PageToken) -> bool {
        Returner::give_back(self, token)
    }
}

/// One counter per page, for the old ways.
#[derive(Debug)]
pub(crate) struct Counters(Box<[AtomicU32]>);

impl Counters {
    pub(crate) fn new(pages: u32) -> Self {
        Self((0..pages).map(|_| AtomicU32::new(0)).collect())
    }

    pub(crate) fn pages(&self) -> u32 {
        self.0.len() as u32
    }

    pub(crate) fn page(&self, page: u32) -> &AtomicU32 {
        &self.0[page as usize]
    }

    #[inline]
    pub(crate) fn count(&self, page: u32) {
        self.page(page).fetch_add(1, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn uncount(&self, page: u32) {
        self.page(page).fetch_sub(1, Ordering::AcqRel);
    }

    /// Whether there was something to count off.
    #[inline]
    pub(crate) fn uncount_if_positive(&self, page: u32) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.page(page)
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, less)
            .is_ok()
    }

    /// Sets a counter to 0 and returns what it was. Writes only what is not 0.
    pub(crate) fn take_count(&self, page: u32) -> u32 {
        let counter = self.page(page);
        match counter.load(Ordering::Relaxed) {
            0 => 0,
            _ => counter.swap(0, Ordering::AcqRel),
        }
    }
}

/// Take + return on the holder's own thread, `held` tokens outstanding, `flows` holders at a time.
fn local<R: Opens>(flows: usize, held: u32, slice: Duration) -> Hammered {
    let region = R::open(PAGES);
    hammered(flows, slice, |flow| {
        let mut rng = fastrand::Rng::with_seed(flow as u64 + 1);
        let mut holder = region.join();
        let mut tokens: Vec<_> = (0..held)
            .filter_map(|_| holder.take(rng.u32(..PAGES)))
            .collect();
        move || {
            let place = rng.u32(..held) as usize;
            holder.give_back(tokens[place]);
            if let Some(token) = holder.take(rng.u32(..PAGES)) {
                tokens[place] = token;
            }
        }
    })
}

/// Taken on one thread, given back on another, the hand-over included.
fn remote<R: Opens>(slice: Duration) -> f64 {
    let region = R::open(PAGES);
    let mut holder = region.join();
    let remote = holder.remote();
    let mut rng = fastrand::Rng::with_seed(1);
    let take = || holder.take(rng.u32(..PAGES));
    hand_over(slice, take, |token| {
        remote.give_back(token);
    })
}

/// What the end of a holder costs that dies with `held` tokens, and its bookkeeping in bytes.
fn death<R: Opens>(region: &R, held: u32) -> (f64, usize) {
    let mut rng = fastrand::Rng::with_seed(u64::from(held) + 1);
    let mut holder = region.join();
    for _ in 0..held {
        holder.take(rng.u32(..PAGES));
    }
    let bytes = holder.bytes();
    let begin = Instant::now();
    drop(holder);
    (begin.elapsed().as_nanos() as f64, bytes)
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let costs = costs(stage);
    let (ends, bytes) = ends(stage);
    targets(report, &costs, &ends, &bytes);
    report.tables = vec![costs, ends, bytes];
    report.note(
        "published: average idle share of a receiving thread, 4 flows; before is the tree, after \
         an array per region that reclaims nothing at the end of a socket",
    );
    Ok(())
}

fn table(title: &str, unit: &'static str, labels: &[&'static str]) -> Table {
    let columns = [
        (TREE, Role::Baseline),
        (ARRAY, Role::Baseline),
        (OURS, Role::Ours),
        (COUNTED, Role::Detail),
    ];
    Table::new(title, unit, labels, columns)
}

fn costs(stage: &mut Stage) -> Table {
    let profile = stage.profile;
    let title = "Take + return";
    let mut table = table(title, "ns per pair", &["where", "outstanding", "figure"]);
    let loads: &[(usize, u32)] = profile.pick(
        &[(1, 16), (1, 1_000), (2, 16), (4, 16), (4, 1_000)],
        &[(1, 16), (1, 1_000), (2, 16), (4, 16)],
        &[(1, 16)],
    );
    for &(flows, held) in loads {
        (stage.progress)(&format!("tokens: {flows} flows, {held} outstanding"));
        let slice = profile.slice(flows);
        let mut turns: [Turn<'_, Hammered>; 4] = [
            Box::new(|| local::<TreeRegion>(flows, held, slice)),
            Box::new(|| local::<ArrayRegion>(flows, held, slice)),
            Box::new(|| local::<PageRefs>(flows, held, slice)),
            Box::new(|| local::<CountedRegion>(flows, held, slice)),
        ];
        let samples = samples(stage.runs(stage.profile.rounds()), &mut turns);
        let place = format!("flows: {flows}");
        let walls = figures(&samples, |hammered| hammered.wall_ns);
        table.push(&[&place, &held, &"wall"], walls);
        let cpu = figures(&samples, |hammered| hammered.cpu_ns);
        table.push(&[&place, &held, &"CPU"], cpu).published =
            (flows == 4).then_some(published::TOKENS);
    }
    let slice = profile.slice(2);
    let mut turns: [Turn<'_>; 4] = [
        Box::new(|| remote::<TreeRegion>(slice)),
        Box::new(|| remote::<ArrayRegion>(slice)),
        Box::new(|| remote::<PageRefs>(slice)),
        Box::new(|| remote::<CountedRegion>(slice)),
    ];
    let what = "tokens: returned by another thread";
    let figures = stage.row(what, profile.rounds(), &mut turns);
    table.push(&[&"another thread", &"up to 1024", &"wall"], figures);
    table
}

fn ends(stage: &mut Stage) -> (Table, Table) {
    let profile = stage.profile;
    let held: &[u32] = profile.pick(&[0, 16, 1_000], &[0, 16, 1_000], &[16]);
    let unit = "ns to take back what it left";
    let mut ends = table("A holder dies", unit, &["tokens"]);
    let title = "Bookkeeping of one holder, and of 10,000";
    let mut bytes = table(title, "bytes; MiB", &["tokens", "holders"]);
    let region = (
        TreeRegion::open(PAGES),
        ArrayRegion::open(PAGES),
        PageRefs::open(PAGES),
        CountedRegion::open(PAGES),
    );
    for &held in held {
        (stage.progress)(&format!("tokens: a holder dies with {held}"));
        let rounds = stage.runs(profile.pick(201, 51, 3));
        let mut turns: [Turn<'_, (f64, usize)>; 4] = [
            Box::new(|| death(&region.0, held)),
            Box::new(|| death(&region.1, held)),
            Box::new(|| death(&region.2, held)),
            Box::new(|| death(&region.3, held)),
        ];
        let samples = samples(rounds, &mut turns);
        ends.push(&[&held], figures(&samples, |(ns, _)| *ns));
        for (holders, unit) in [(1.0, 1.0), (CONNECTIONS, f64::from(1 << 20))] {
            // The same each time.
            let sum = |runs: &Vec<(f64, usize)>| runs[0].1 as f64 * holders / unit;
            let figures = samples.iter().map(|runs| Figure::once(sum(runs)));
            bytes.push(&[&held, &holders], figures);
        }
    }
    (ends, bytes)
}

fn targets(report: &mut BenchReport, costs: &Table, ends: &Table, bytes: &Table) {
    use Wanted::{AtLeast, AtMost};
    for held in ["16", "1000"] {
        let of = |name| costs.figure(&["flows: 1", held, "wall"], name);
        let what = format!("take + return, {held} outstanding, against the");
        for (bound, other) in [(0.65, TREE), (0.9, ARRAY)] {
            report.target_beside(format!("{what} {other}"), bound, of(OURS), of(other));
        }
    }
    let of = |name| costs.figure(&["flows: 2", "16", "wall"], name);
    let what = "take + return, 2 flows, 16 outstanding, against the array per socket";
    report.target_beside(what, 0.9, of(OURS), of(ARRAY));
    let of = |name| costs.figure(&["another thread", "up to 1024", "wall"], name);
    let what = "returned by another thread, against the tree";
    report.target_beside(what, 0.9, of(OURS), of(TREE));
    let of = |name| ends.figure(&["16"], name);
    report.target("reclaim of 16 tokens", "ns", AtMost(1_000.0), of(OURS));
    let what = "reclaim of 16 tokens, array against ours";
    report.target(what, "x", AtLeast(100.0), ratio(of(ARRAY), of(OURS)));
    let what = "reclaim of 16 tokens, against the tree";
    report.target_beside(what, 1.0, of(OURS), of(TREE));
    let of = |name| bytes.figure(&["0", "1"], name);
    let what = "bookkeeping of a holder without tokens";
    report.target(what, "bytes", AtMost(64.0), of(OURS));
    for held in ["16", "1000"] {
        let of = |name| bytes.figure(&[held, "1"], name);
        let what = format!("bookkeeping of a holder with {held} tokens, against the tree");
        report.target_beside(what, 1.0, of(OURS), of(TREE));
    }
    let of = |name| bytes.figure(&["16", "10000"], name);
    let share = ratio(of(OURS), of(ARRAY)).map(|part| part * 100.0);
    let what = "bookkeeping of 10,000 holders, against an array for each";
    report.target(what, "%", AtMost(1.0), share);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keeps_the_books<R: Opens>() {
        let region = R::open(64);
        let mut holder = region.join();
        let first = holder.take(7).expect("room");
        let second = holder.take(7).expect("room");
        let remote = holder.remote();
        assert!(holder.give_back(first) && remote.give_back(second));
        assert!(!holder.give_back(second), "nothing is left to give back");
        holder.take(9);
        drop((holder, remote));
        assert!(region.join().take(9).is_some());
    }

    #[test]
    fn every_candidate_takes_back_what_it_gave_and_no_more() {
        keeps_the_books::<TreeRegion>();
        keeps_the_books::<ArrayRegion>();
        keeps_the_books::<CountedRegion>();
        keeps_the_books::<PageRefs>();
    }

    #[test]
    fn the_death_of_a_holder_leaves_no_count_behind() {
        let region = TreeRegion::open(PAGES);
        death(&region, 100);
        assert!((0..PAGES).all(|page| region.uses(page) == 0));
        let region = PageRefs::open(PAGES);
        death(&region, 100);
        assert!((0..PAGES).all(|page| region.uses(page) == 0));
    }

    #[test]
    fn tokens_that_go_to_another_thread_come_back() {
        assert!(remote::<TreeRegion>(Duration::from_millis(1)) > 0.0);
        assert!(remote::<PageRefs>(Duration::from_millis(1)) > 0.0);
        assert!(local::<ArrayRegion>(2, 3, Duration::from_millis(1)).cpu_ns > 0.0);
    }
}
