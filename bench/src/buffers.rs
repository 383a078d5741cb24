//! `bench buffers`: find an idle buffer among those in use.
//!
//! Before: a walk over all buffers under a read lock. Ours: [`flatpath_structures::pool`]. Beside:
//! well-known queues and locked stacks of boxed memory. Every candidate but the walk hands out the
//! memory itself.

use std::io;
use std::thread;
use std::time::Duration;

use flatpath_structures::pool::{Buffer, Pool, PoolConfig, Zero};

use crate::Stage;
use crate::baseline::Claim;
use crate::baseline::buffer_list::BufferList;
use crate::competitors::pools;
use crate::published;
use flatpath_bench_common::measure::{IN_TRANSIT_MAX, Turn, hammer, hand_over};
use flatpath_bench_common::profile::{Profile, cores};
use flatpath_bench_common::report::{BenchReport, Role, Table, Wanted, ratio};

/// Small, so that a hundred thousand of them fit: the list does not care.
pub(crate) const BUFFER_BYTES: usize = 512;
/// Buffers each thread may have beside what is in use.
const IDLE_PER_THREAD: u32 = 8;

const WALK: &str = "walked list";
const FIXED: &str = "fixed: test first";
const OURS: &str = "ours";

/// The columns of tables about the walked list.
const STRUCTURES: [(&str, Role); 3] = [
    (WALK, Role::Baseline),
    (FIXED, Role::Fixed),
    (OURS, Role::Ours),
];

/// More than other benches take: in a slice or two the two threads may share one core.
fn rounds(profile: Profile) -> usize {
    profile.pick(7, 9, 1)
}

pub(crate) trait Recycler: Sync {
    /// What is handed out.
    type Item: Send;
    fn take(&self) -> Option<Self::Item>;
    fn put(&self, item: Self::Item);
}

impl Recycler for Pool {
    type Item = Buffer;

    fn take(&self) -> Option<Buffer> {
        Pool::take(self, BUFFER_BYTES)
    }

    fn put(&self, item: Buffer) {
        drop(item);
    }
}

/// A pool with `in_use` buffers taken, and those.
fn pool(in_use: usize, threads: usize) -> (Pool, Vec<Buffer>) {
    let idle = IDLE_PER_THREAD as usize * threads + IN_TRANSIT_MAX;
    let pool = Pool::new(PoolConfig {
        classes: vec![BUFFER_BYTES],
        budget_bytes: (in_use + idle) * BUFFER_BYTES,
        zero: Zero::WhenLent,
    });
    let held = (0..in_use).map_while(|_| Recycler::take(&pool)).collect();
    (pool, held)
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Load {
    /// Taken and put by each of these threads, which holds up to `hold` at a time.
    Pairs { threads: usize, hold: usize },
    /// Taken on one thread and put on another, the hand-over included.
    Split,
}

impl Load {
    /// Nanoseconds per buffer taken and put.
    pub(crate) fn measure<R: Recycler>(self, pool: &R, slice: Duration) -> f64 {
        let (threads, hold) = match self {
            Self::Split => return hand_over(slice, || pool.take(), |item| pool.put(item)),
            Self::Pairs { threads, hold } => (threads, hold),
        };
        // Another thread may hold the last idle one for a moment.
        let take = || {
            loop {
                match pool.take() {
                    Some(item) => return item,
                    None => thread::yield_now(),
                }
            }
        };
        if hold == 1 {
            // Nothing between the two: noting what is held costs as much as half a pair.
            return hammer(threads, slice, |_| || pool.put(take()));
        }
        let per_turn = hammer(threads, slice, |_| {
            let mut held = Vec::with_capacity(hold);
            move || {
                while held.len() < hold {
                    held.push(take());
                }
                held.drain(..).for_each(|item| pool.put(item));
            }
        });
        per_turn / hold as f64
    }
}

pub(crate) fn run(stage: &mut Stage, report: &mut BenchReport) -> io::Result<()> {
    let walked = walked(stage);
    let few = few(stage);
    let split = split_roles(stage);
    targets(report, &walked, &few, &split);
    report.tables = vec![walked, few, split];
    report.note(format!(
        "figures are wall time over take + put pairs of all threads; this machine has {} cores, \
         threads beyond them take turns and show preemption, not parallelism",
        cores()
    ));
    report.note(
        "the walk hands out an index, every other candidate the memory itself; idle buffers stand \
         at the end of the walked list, as in the publication: idle ones anywhere would halve it",
    );
    if stage.profile != Profile::Full {
        report.note("fewer rows than a full run");
    }
    Ok(())
}

fn walked(stage: &mut Stage) -> Table {
    let profile = stage.profile;
    const FULL: &[u32] = &[10, 12, 17, 196, 197, 198, 199, 200, 1_000, 10_000, 100_000];
    let in_use = profile.pick(FULL, &[10, 199, 200, 1_000, 100_000], &[10, 200]);
    let threads: &[usize] = profile.pick(&[1, 2, 4, 8, 16, 32, 64], &[1, 2, 8], &[1, 2]);
    let title = "Take + put by buffers in use";
    let labels = ["in use", "threads"];
    let mut table = Table::new(title, "ns per pair", &labels, STRUCTURES);
    for &in_use in in_use {
        for &threads in threads {
            // A walk of a hundred thousand takes milliseconds, and one for every thread is needed.
            if profile == Profile::Quick && in_use > 1_000 && threads > 2 {
                continue;
            }
            let slice = profile.slice(threads);
            let idle = IDLE_PER_THREAD * threads as u32;
            let list = |claim| BufferList::new(in_use, idle, claim);
            let (swap, test) = (list(Claim::Swap), list(Claim::TestThenSwap));
            let (ours, _held) = pool(in_use as usize, threads);
            let load = Load::Pairs { threads, hold: 1 };
            let mut turns: [Turn<'_>; 3] = [
                Box::new(|| load.measure(&swap, slice)),
                Box::new(|| load.measure(&test, slice)),
                Box::new(|| load.measure(&ours, slice)),
            ];
            let what = format!("buffers: {in_use} in use, {threads} threads");
            let figures = stage.row(&what, rounds(profile), &mut turns);
            let published = published::find(published::BUFFERS, in_use);
            table.push(&[&in_use, &threads], figures).published =
                published.filter(|_| threads == 1);
        }
    }
    table
}

/// Few in use: what a pool costs beside well-known structures.
fn few(stage: &mut Stage) -> Table {
    const IN_USE: usize = 1_000;
    const HELD_MAX: usize = 8_000;
    let profile = stage.profile;
    let threads: &[usize] = profile.pick(&[1, 2, 4, 8, 64], &[1, 2, 8], &[2]);
    let holds: &[usize] = profile.pick(&[1, 4, 24, 100, 1_000], &[1, 24], &[1]);
    let title = "Take + put beside well-known structures, by threads and buffers held";
    let columns = [(OURS, Role::Ours)].into_iter().chain(pools::COLUMNS);
    let mut table = Table::new(title, "ns per pair", &["threads", "held"], columns);
    for &threads in threads {
        // Of memory for each candidate a few tens of megabytes.
        let holds = holds.iter().filter(|&hold| threads * hold <= HELD_MAX);
        for &hold in holds {
            let slice = profile.slice(threads);
            let load = Load::Pairs { threads, hold };
            let (ours, _held) = pool(IN_USE, threads * hold);
            let mut turns: Vec<Turn<'_>> = vec![Box::new(|| load.measure(&ours, slice))];
            let idle = threads * hold.max(IDLE_PER_THREAD as usize);
            turns.extend(pools::turns(idle, load, slice));
            let what = format!("buffers: {threads} threads, {hold} held each");
            let figures = stage.row(&what, rounds(profile), &mut turns);
            table.push(&[&threads, &hold], figures);
        }
    }
    table
}

fn split_roles(stage: &mut Stage) -> Table {
    let slice = stage.profile.slice(2);
    let idle = 4 * IN_TRANSIT_MAX;
    let walk = |claim| BufferList::new(200, idle as u32, claim);
    let (swap, test) = (walk(Claim::Swap), walk(Claim::TestThenSwap));
    let (ours, _held) = pool(200, idle / IDLE_PER_THREAD as usize);
    let mut turns: Vec<Turn<'_>> = vec![
        Box::new(|| Load::Split.measure(&swap, slice)),
        Box::new(|| Load::Split.measure(&test, slice)),
        Box::new(|| Load::Split.measure(&ours, slice)),
    ];
    turns.extend(pools::turns(idle, Load::Split, slice));
    let what = "buffers: taken on one thread, put on another";
    let figures = stage.row(what, rounds(stage.profile), &mut turns);
    let columns = STRUCTURES.into_iter().chain(pools::COLUMNS);
    let title = "Taken on one thread, put on another, hand-over included";
    let mut table = Table::new(title, "ns per buffer", &["in use"], columns);
    table.push(&[&200], figures);
    table
}

fn targets(report: &mut BenchReport, walked: &Table, few: &Table, split: &Table) {
    use Wanted::{AtLeast, AtMost};
    let ours = |n, t| walked.figure(&[n, t], OURS);
    let over = |n, t, name| ratio(walked.figure(&[n, t], name), ours(n, t));
    let flat = ratio(ours("100000", "1"), ours("10", "1"));
    report.target(
        "100,000 in use against 10, 1 thread",
        "x",
        AtMost(1.2),
        flat,
    );
    for (threads, list, fixed) in [("1", 50.0, 30.0), ("2", 500.0, 50.0), ("8", 500.0, 50.0)] {
        let what = format!("200 in use, threads: {threads}, against");
        let (walk, test) = (over("200", threads, WALK), over("200", threads, FIXED));
        report.target(format!("{what} the walked list"), "x", AtLeast(list), walk);
        report.target(format!("{what} the fixed list"), "x", AtLeast(fixed), test);
    }
    // What depends on the machine is bounded by what the best crate needs on the same machine.
    let mut of_best = |what: String, bound, table: &Table, labels: &[&str]| {
        let of = |role| table.best(labels, role);
        report.target_beside(what, bound, of(Role::Ours), of(Role::Competitor));
    };
    for threads in ["1", "2", "4", "8", "64"] {
        for (held, bound) in [
            ("1", 1.0),
            ("4", 1.0),
            ("24", 0.8),
            ("100", 1.0),
            ("1000", 1.0),
        ] {
            let what = format!("threads: {threads}, {held} held, against the best crate");
            of_best(what, bound, few, &[threads, held]);
        }
    }
    let what = "taken on one thread, put on another, against the best crate";
    of_best(what.into(), 1.0, split, &["200"]);
    let split = split.best(&["200"], Role::Ours);
    report.target(
        "taken on one thread, put on another",
        "ns",
        AtMost(100.0),
        split,
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_candidate_gives_back_what_it_handed_out() {
        let (ours, held) = pool(3, 2);
        assert_eq!(held.len(), 3);
        let slice = Duration::from_micros(200);
        let pairs = Load::Pairs {
            threads: 2,
            hold: 4,
        };
        for load in [pairs, Load::Split] {
            assert!(load.measure(&ours, slice) > 0.0);
        }
        assert_eq!(ours.statistics().in_use_bytes, 3 * BUFFER_BYTES);
        let list = BufferList::new(3, 16, Claim::Swap);
        for load in [pairs, Load::Split] {
            assert!(load.measure(&list, slice) > 0.0);
        }
        assert_eq!(std::iter::from_fn(|| list.take()).count(), 16);
    }
}
