//! What the originals published, word for word where it is a figure.
//!
//! | bench | where | on what |
//! |---|---|---|
//! | accept | Linux commit 4e86a2c98013, "implement multishot mode for accept" | not named |
//! | buffers | netdev 20241101082342.1254-1, ftrace of `smc_buf_get_slot` | not named |
//! | dispatch | linux-nfs msg99093, `svc_xprt_enqueue`, fio over NFSv3 | 4 cores, 100GbE |
//! | tokens | netdev "devmem: improve cpu cost of RX token management", kperf | 4 flows |
//! | pairing | kvm 20230801115646.33990-1, 174,000 irqfds at once | 2.7 GHz, 144 cores |

use flatpath_bench_common::report::Published;

/// Nanoseconds to find a buffer; the label is how many descriptors were walked.
pub(crate) const BUFFERS: &[(u32, Published)] = &[
    (10, both("602", "74-147")),
    (12, both("329", "74-147")),
    (17, both("479", "74-147")),
    (196, both("5,528", "74-147")),
    (197, both("4,721", "74-147")),
    (198, both("4,075", "74-147")),
    (199, both("6,476", "74-147")),
];

/// Nanoseconds of one enqueue, min/mean/max, by threads.
pub(crate) const DISPATCH: &[(usize, Published)] = &[
    (8, both("189/1,602/6,128,677", "80/914/9,785,192")),
    (32, both("373/1,963/14,027,191", "95/1,194/10,877,985")),
    (128, both("364/2,289/24,668,201", "95/1,247/17,284,050")),
    (512, both("371/2,506/24,983,624", "94/1,266/14,418,874")),
];

/// Idle share of a receiving thread, in percent; higher is better.
pub(crate) const TOKENS: Published = both("13.13 % idle", "26.32 % idle");

/// Nanoseconds of one registration, min/avg/max.
pub(crate) const PAIRING: Published = both("20/117,855,314/11,428,340,858", "124/314/47,637");

/// Values of `clock()`, microseconds of CPU, mean of 20 runs with 10,000 clients each.
pub(crate) const ACCEPT: Published = both("1,927,634", "1.65 % less");

/// The published figures for `key`.
pub(crate) fn find<K: PartialEq + Copy>(rows: &[(K, Published)], key: K) -> Option<Published> {
    rows.iter().find(|row| row.0 == key).map(|row| row.1)
}

const fn both(before: &'static str, after: &'static str) -> Published {
    Published { before, after }
}
