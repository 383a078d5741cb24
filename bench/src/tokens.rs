//! `bench tokens`: who holds which page of a region.
//!
//! Before: a tree of tokens per socket, and an array of counters per socket. Ours:
//! [`flatpath_structures::tokens`]. Beside them the least that can be done, one array per region,
//! which reclaims nothing. A region of 2 GiB in pages of 4 KiB; pages are chosen at random, and
//! choosing (5 ns) is part of every figure.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use flatpath_structures::tokens::{Holder, PageRefs, PageToken, Returner};

use crate::Stage;
use crate::baseline::token_array::ArrayRegion;
use crate::baseline::token_region::CountedRegion;
use crate::baseline::token_tree::TreeRegion;
use crate::error::Error;
use crate::published;
use flatpath_bench_common::measure::{Hammered, Turn, hammered, interleave, per_operation};
use flatpath_bench_common::plot::Plot;
use flatpath_bench_common::report::{BenchReport, Column, Figure, Role, Row, Table, Wanted, ratio};

/// 2 GiB of 4 KiB pages.
const PAGES: u32 = 524_288;
/// Tokens of one holder, at most.
const TOKENS_MAX: u32 = 4_096;
/// Tokens on their way from the taker to the returner, at most.
const IN_TRANSIT_MAX: usize = 1_024;
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
    const BATCH: usize = 64;
    let region = R::open(PAGES);
    let mut holder = region.join();
    let remote = holder.remote();
    let transit = Mutex::new(VecDeque::with_capacity(IN_TRANSIT_MAX));
    let lock = || transit.lock().unwrap_or_else(PoisonError::into_inner);
    let over = AtomicBool::new(false);
    let give_back = || {
        let mut batch = VecDeque::with_capacity(IN_TRANSIT_MAX);
        loop {
            // Before the look: what was handed over before the end is seen after it.
            let is_over = over.load(Ordering::Acquire);
            std::mem::swap(&mut *lock(), &mut batch);
            if batch.is_empty() {
                if is_over {
                    return Instant::now();
                }
                thread::yield_now();
            }
            for token in batch.drain(..) {
                remote.give_back(token);
            }
        }
    };
    thread::scope(|scope| {
        let returning = scope.spawn(give_back);
        let mut rng = fastrand::Rng::with_seed(1);
        let begin = Instant::now();
        let (mut count, mut batch) = (0_u64, Vec::with_capacity(BATCH));
        while begin.elapsed() < slice {
            batch.extend((0..BATCH).map_while(|_| holder.take(rng.u32(..PAGES))));
            count += batch.len() as u64;
            let mut waiting = lock();
            waiting.extend(batch.drain(..));
            let is_full = waiting.len() + BATCH > IN_TRANSIT_MAX;
            drop(waiting);
            if is_full {
                thread::yield_now();
            }
        }
        over.store(true, Ordering::Release);
        let end = returning.join().unwrap_or(begin);
        per_operation(end - begin, count)
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

/// The turn of one region: what the end costs, and into `bytes` what it kept.
fn dying<'a, R: Opens>(region: &'a R, held: u32, bytes: &'a mut usize) -> Turn<'a> {
    Box::new(move || {
        let (ns, kept) = death(region, held);
        *bytes = kept;
        ns
    })
}

/// Runs the bench.
pub(crate) fn run(stage: &mut Stage<'_>) -> Result<BenchReport, Error> {
    let mut report = BenchReport {
        name: "tokens",
        about: "references to pages: a tree or an array per socket, against a ledger per holder"
            .into(),
        ..BenchReport::default()
    };
    let costs = costs(stage);
    let (ends, bytes) = ends(stage);
    report
        .plots
        .push(Plot::bars("cost", &costs, "tokens outstanding, flows"));
    report
        .plots
        .push(Plot::bars("reclaim", &ends, "tokens left behind"));
    report
        .plots
        .push(Plot::bars("memory", &bytes, "tokens held"));
    targets(&mut report, &costs, &ends, &bytes);
    report.tables = vec![costs, ends, bytes];
    report.notes.push(
        "published: average idle share of a receiving thread, 4 flows; before is the tree, after \
         an array per region that reclaims nothing at the end of a socket"
            .into(),
    );
    Ok(report)
}

fn table(title: &str, unit: &'static str, labels: Vec<&'static str>) -> Table {
    Table {
        title: title.into(),
        unit,
        labels,
        columns: vec![
            Column::new(TREE, Role::Baseline),
            Column::new(ARRAY, Role::Baseline),
            Column::new(OURS, Role::Ours),
            Column::new(COUNTED, Role::Detail),
        ],
        ..Table::default()
    }
}

fn costs(stage: &mut Stage<'_>) -> Table {
    let profile = stage.profile;
    let title = "Take + return";
    let mut table = table(title, "ns per pair", vec!["where", "outstanding", "figure"]);
    let loads: &[(usize, u32)] = profile.pick(
        &[(1, 16), (1, 1_000), (2, 16), (4, 16), (4, 1_000)],
        &[(1, 16), (1, 1_000), (2, 16), (4, 16)],
        &[(1, 16)],
    );
    for &(flows, held) in loads {
        stage.step(&format!("tokens: {flows} flows, {held} outstanding"));
        let slice = profile.slice(flows);
        let cpu = [const { Mutex::new(Vec::new()) }; 4];
        let turn = |index: usize, run: fn(usize, u32, Duration) -> Hammered| {
            let cpu: &Mutex<Vec<f64>> = &cpu[index];
            Box::new(move || {
                let hammered = run(flows, held, slice);
                let mut samples = cpu.lock().unwrap_or_else(PoisonError::into_inner);
                samples.push(hammered.cpu_ns);
                hammered.wall_ns
            })
        };
        let mut turns: [Turn<'_>; 4] = [
            turn(0, local::<TreeRegion>),
            turn(1, local::<ArrayRegion>),
            turn(2, local::<PageRefs>),
            turn(3, local::<CountedRegion>),
        ];
        let walls = interleave(profile.rounds(), &mut turns);
        drop(turns);
        let cpus = cpu.map(|samples| {
            Figure::of(&samples.into_inner().unwrap_or_else(PoisonError::into_inner))
        });
        let place = format!("{flows} flow(s)");
        for (name, figures) in [("wall", walls), ("CPU", cpus.to_vec())] {
            table.rows.push(Row {
                labels: vec![place.clone(), held.to_string(), name.into()],
                figures: figures.into_iter().map(Some).collect(),
                published: (flows == 4 && name == "CPU").then_some(published::TOKENS),
                ..Row::default()
            });
        }
    }
    stage.step("tokens: returned by another thread");
    let slice = profile.slice(2);
    let mut turns: [Turn<'_>; 4] = [
        Box::new(|| remote::<TreeRegion>(slice)),
        Box::new(|| remote::<ArrayRegion>(slice)),
        Box::new(|| remote::<PageRefs>(slice)),
        Box::new(|| remote::<CountedRegion>(slice)),
    ];
    let figures = interleave(profile.rounds(), &mut turns);
    table.rows.push(Row {
        labels: vec!["another thread".into(), "up to 1024".into(), "wall".into()],
        figures: figures.into_iter().map(Some).collect(),
        published: None,
        failure: None,
    });
    table
}

fn ends(stage: &mut Stage<'_>) -> (Table, Table) {
    let profile = stage.profile;
    let held: &[u32] = profile.pick(&[0, 16, 1_000], &[0, 16, 1_000], &[16]);
    let mut ends = table(
        "A holder dies",
        "ns to take back what it left",
        vec!["tokens"],
    );
    let title = "Bookkeeping of one holder, and of 10,000";
    let mut bytes = table(title, "bytes; MiB", vec!["tokens", "holders"]);
    let region = (
        TreeRegion::open(PAGES),
        ArrayRegion::open(PAGES),
        PageRefs::open(PAGES),
        CountedRegion::open(PAGES),
    );
    for &held in held {
        stage.step(&format!("tokens: a holder dies with {held}"));
        let rounds = profile.pick(201, 51, 3);
        let mut each = [0; 4];
        let [tree, array, ours, counted] = each.each_mut();
        let mut turns: [Turn<'_>; 4] = [
            dying(&region.0, held, tree),
            dying(&region.1, held, array),
            dying(&region.2, held, ours),
            dying(&region.3, held, counted),
        ];
        let figures = interleave(rounds, &mut turns);
        drop(turns);
        ends.rows.push(Row {
            labels: vec![held.to_string()],
            figures: figures.into_iter().map(Some).collect(),
            ..Row::default()
        });
        for (holders, unit) in [(1.0, 1.0), (CONNECTIONS, f64::from(1 << 20))] {
            let sum = |bytes: usize| Some(Figure::once(bytes as f64 * holders / unit));
            bytes.rows.push(Row {
                labels: vec![held.to_string(), format!("{holders}")],
                figures: each.map(sum).to_vec(),
                failure: None,
                ..Row::default()
            });
        }
    }
    (ends, bytes)
}

fn targets(report: &mut BenchReport, costs: &Table, ends: &Table, bytes: &Table) {
    use Wanted::{AtLeast, AtMost};
    for held in ["16", "1000"] {
        let of = |name| costs.figure(&["1 flow(s)", held, "wall"], name);
        let what = format!("take + return, {held} outstanding, against the");
        let tree = ratio(of(OURS), of(TREE));
        report.target(format!("{what} tree per socket"), "x", AtMost(0.65), tree);
        let array = ratio(of(OURS), of(ARRAY));
        report.target(format!("{what} array per socket"), "x", AtMost(1.1), array);
    }
    let of = |name| costs.figure(&["another thread", "up to 1024", "wall"], name);
    let what = "returned by another thread, against the tree";
    report.target(what, "x", AtMost(0.9), ratio(of(OURS), of(TREE)));
    let of = |name| ends.figure(&["16"], name);
    report.target("reclaim of 16 tokens", "ns", AtMost(1_000.0), of(OURS));
    let what = "reclaim of 16 tokens, array against ours";
    report.target(what, "x", AtLeast(100.0), ratio(of(ARRAY), of(OURS)));
    for (held, bound) in [("0", 64.0), ("16", 1_024.0)] {
        let what = format!("bookkeeping of a holder with {held} tokens");
        report.target(
            what,
            "bytes",
            AtMost(bound),
            bytes.figure(&[held, "1"], OURS),
        );
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
