//! The pool on real threads: its contract by examples, each hazard of the kernel's free lists, a
//! model, and threads that mix.

use std::collections::VecDeque;
use std::sync::mpsc::channel;

use super::super::*;
use super::pool;
use crate::testing::{repeats, with_seeds};

#[test]
fn a_buffer_that_came_back_is_used_again() {
    let pool = pool(&[64], 1024);
    let address = pool
        .take(10)
        .map(|buffer| buffer.filled().as_ptr() as usize);
    let again = pool
        .take(10)
        .map(|buffer| buffer.filled().as_ptr() as usize);
    assert!(address.is_some());
    assert_eq!(address, again);
    let statistics = pool.statistics();
    assert_eq!((statistics.allocated, statistics.reused), (1, 1));
}

#[test]
fn class_mismatch_a_buffer_returns_to_the_size_it_has() {
    let pool = pool(&[64, 256, 1024], 1 << 12);
    for (wanted, capacity) in [(0, 64), (64, 64), (65, 256), (256, 256), (257, 1024)] {
        for _ in 0..3 {
            assert_eq!(pool.take(wanted).expect("room").capacity(), capacity);
        }
    }
    assert_eq!(pool.statistics().allocated, 3, "one of each size");
}

#[test]
fn emptiness_is_found_by_taking_and_not_by_looking_first() {
    let pool = pool(&[64], 128);
    let first = pool.take(1).expect("room for two");
    let second = pool.take(1).expect("room for two");
    assert!(pool.take(1).is_none());
    assert_eq!(pool.statistics().refused, 1);
    drop(first);
    assert!(pool.take(1).is_some());
    drop(second);
}

#[test]
fn the_next_smaller_size_is_given_when_the_budget_has_no_more() {
    let pool = pool(&[64, 1024], 1024 + 64);
    let large = pool.take(1024).expect("room");
    let degraded = pool.take(1024).expect("a smaller one");
    assert_eq!(degraded.capacity(), 64);
    assert_eq!(pool.statistics().degraded, 1);
    assert!(pool.take(1024).is_none());
    drop(large);
    assert_eq!(pool.take(1024).expect("it came back").capacity(), 1024);
}

#[test]
fn idle_buffers_of_other_sizes_make_room() {
    let pool = pool(&[64, 1024], 1024);
    let small: Vec<Buffer> = (0..16).map_while(|_| pool.take(64)).collect();
    assert_eq!(small.len(), 16);
    drop(small);
    assert_eq!(
        pool.take(1024).expect("made of the small ones").capacity(),
        1024
    );
    assert!(pool.allocated_bytes() <= 1024);
}

#[test]
fn what_a_holder_before_left_is_not_shown() {
    let pool = pool(&[64], 64);
    for round in 0..3_u8 {
        let mut buffer = pool.take(64).expect("room");
        assert!(buffer.spare_mut().iter().all(|byte| *byte == 0));
        match round {
            0 => assert_eq!(buffer.append(&[7; 64]), 64),
            // Written through the spare part, and not said to be filled.
            1 => buffer.spare_mut()[40] = 9,
            _ => {
                buffer.append(&[1; 30]);
                buffer.clear();
                buffer.append(&[2; 3]);
            }
        }
    }
    let mut buffer = pool.take(64).expect("room");
    assert!(buffer.spare_mut().iter().all(|byte| *byte == 0));
}

#[test]
fn a_pool_told_not_to_zero_does_not() {
    let pool = Pool::new(PoolConfig {
        classes: vec![16],
        budget_bytes: 16,
        zero: Zero::Never,
    });
    pool.take(16).expect("room").append(&[5; 16]);
    let mut buffer = pool.take(16).expect("room");
    assert_eq!(buffer.spare_mut(), [5; 16]);
}

#[test]
fn trim_gives_idle_memory_back_and_leaves_what_is_in_use() {
    let pool = pool(&[64, 256], 1 << 13);
    let held = pool.take(256).expect("room");
    let idle: Vec<Buffer> = (0..20).map_while(|_| pool.take(256)).collect();
    drop(idle);
    assert_eq!(pool.statistics().idle_bytes, 20 * 256);
    let freed = pool.trim(5 * 256);
    assert_eq!(freed, 15 * 256);
    let statistics = pool.statistics();
    assert_eq!(
        (statistics.idle_bytes, statistics.in_use_bytes),
        (5 * 256, 256)
    );
    assert_eq!(pool.trim(0), 5 * 256);
    assert_eq!(pool.allocated_bytes(), 256);
    drop(held);
}

#[test]
fn each_statistic_counts_what_it_says() {
    let pool = pool(&[64, 256], 256 + 64);
    let large = pool.take(256).expect("allocated");
    let degraded = pool.take(200).expect("the next smaller one");
    assert!(pool.take(1).is_none(), "refused");
    drop(degraded);
    drop(pool.take(64).expect("reused"));
    let expected = PoolStatistics {
        charged_bytes: 0,
        reused: 1,
        allocated: 2,
        freed: 0,
        degraded: 1,
        refused: 1,
        in_use_bytes: 256,
        idle_bytes: 64,
    };
    assert_eq!(pool.statistics(), expected);
    assert_eq!(pool.available_bytes(), 64);
    assert_eq!(pool.allocated_bytes(), 256 + 64);
    drop(large);
    pool.trim(0);
    let expected = PoolStatistics {
        charged_bytes: 0,
        freed: 2,
        in_use_bytes: 0,
        idle_bytes: 0,
        ..expected
    };
    assert_eq!(pool.statistics(), expected);
}

/// Two steps down, past a size that has nothing either; the capacity says how far it went.
#[test]
fn degrading_goes_to_the_largest_size_that_is_to_be_had() {
    let pool = pool(&[8, 64, 512], 512 + 64 + 8);
    let held = [512, 64].map(|bytes| pool.take(bytes).expect("room"));
    let small = pool.take(512).expect("the smallest is left");
    assert_eq!(small.capacity(), 8);
    assert_eq!(pool.statistics().degraded, 1);
    drop(held);
}

#[test]
fn a_request_beyond_the_largest_size_gets_the_largest_and_counts_as_degraded() {
    let pool = pool(&[8, 64], 64);
    assert_eq!(pool.take(1000).expect("room").capacity(), 64);
    assert_eq!(pool.statistics().degraded, 1);
}

#[test]
fn a_budget_below_the_smallest_size_refuses_everything() {
    let pool = pool(&[64], 63);
    assert!(pool.take(1).is_none());
    assert_eq!(pool.allocated_bytes(), 0);
}

#[test]
#[should_panic = "impossible classes"]
fn a_pool_without_sizes_is_refused() {
    pool(&[], 64);
}

#[test]
#[should_panic = "impossible classes"]
fn a_size_of_no_bytes_is_refused() {
    pool(&[0, 64], 64);
}

#[test]
fn teardown_in_any_order_frees_everything_once() {
    let pool = pool(&[64], 1 << 12);
    let clone = pool.clone();
    let mut held = pool.take(1).expect("room");
    drop(pool.take(1));
    drop(pool);
    drop(clone);
    // The pool is gone; the buffer is not.
    assert_eq!(held.append(b"still here"), 10);
    let elsewhere = std::thread::spawn(move || {
        let bytes = held.filled().to_vec();
        drop(held);
        bytes
    });
    assert_eq!(elsewhere.join().expect("no panic"), b"still here");
}

#[test]
fn truncate_keeps_the_front_and_what_is_dropped_is_not_shown() {
    let pool = pool(&[16], 16);
    let mut buffer = pool.take(16).expect("room");
    buffer.append(b"kept, drop");
    buffer.consume_front(1);
    buffer.truncate(3);
    assert_eq!(buffer.filled(), b"ept");
    buffer.append(b"!");
    assert_eq!(buffer.filled(), b"ept!");
    drop(buffer);
    let mut again = pool.take(16).expect("room");
    assert!(again.spare_mut().iter().all(|byte| *byte == 0));
}

#[test]
fn consume_front_keeps_the_rest_in_order() {
    let pool = pool(&[16], 16);
    let mut buffer = pool.take(16).expect("room");
    buffer.append(b"0123456789");
    buffer.consume_front(4);
    assert_eq!(buffer.filled(), b"456789");
    // Nothing moves, so the room is what is left behind the end.
    assert_eq!(buffer.append(b"abcdefghijkl"), 6);
    assert_eq!(buffer.filled(), b"456789abcdef");
    buffer.consume_front(12);
    assert!(buffer.is_empty());
    assert_eq!(buffer.room(), 16);
}

/// Random takes and returns against counts kept beside; contents tell buffers apart.
#[test]
fn model_pool_agrees_with_counts() {
    with_seeds(200, |random| {
        let budget = 64 * (1 + random.below(40) as usize);
        let pool = pool(&[64, 128, 512], budget);
        let mut held: VecDeque<(u8, Buffer)> = VecDeque::new();
        let (mut taken, mut degraded, mut refused) = (0, 0, 0);
        for step in 0..repeats(200) {
            match random.below(5) {
                0..=2 => {
                    let wanted = random.below(600) as usize;
                    if let Some(mut buffer) = pool.take(wanted) {
                        taken += 1;
                        degraded += u64::from(buffer.capacity() < wanted);
                        assert!(buffer.is_empty());
                        assert!(buffer.spare_mut().iter().all(|byte| *byte == 0));
                        let mark = step as u8;
                        let count = random.below(buffer.capacity() as u32 + 1) as usize;
                        buffer.append(&vec![mark; count]);
                        held.push_back((mark, buffer));
                    } else {
                        refused += 1;
                    }
                }
                3 => {
                    let at = random.below(held.len() as u32 + 1) as usize;
                    if let Some((mark, buffer)) = held.remove(at) {
                        assert!(buffer.filled().iter().all(|byte| *byte == mark));
                    }
                }
                _ => {
                    pool.trim(random.below(1000) as usize);
                }
            }
            let in_use: usize = held.iter().map(|(_, buffer)| buffer.capacity()).sum();
            let statistics = pool.statistics();
            assert_eq!(statistics.in_use_bytes, in_use);
            assert_eq!(pool.allocated_bytes(), in_use + statistics.idle_bytes);
            assert!(pool.allocated_bytes() <= budget, "P1");
            assert_eq!(statistics.reused + statistics.allocated, taken);
            assert_eq!(
                (statistics.degraded, statistics.refused),
                (degraded, refused)
            );
        }
        held.clear();
        assert_eq!(pool.statistics().in_use_bytes, 0);
    });
}

/// Buffers taken on some threads and dropped on others, each with its holder's mark inside: two
/// holders of one buffer would see each other's.
#[test]
fn stress_no_buffer_has_two_holders_when_threads_mix() {
    const THREADS: u8 = 4;
    const ROUNDS: usize = repeats(3_000) as usize;
    let pool = pool(&[32, 64], 64 * 20);
    let (senders, receivers): (Vec<_>, Vec<_>) = (0..THREADS).map(|_| channel::<Buffer>()).unzip();
    std::thread::scope(|scope| {
        for (number, inbox) in receivers.into_iter().enumerate() {
            let next = senders[(number + 1) % senders.len()].clone();
            let pool = pool.clone();
            scope.spawn(move || {
                let mark = number as u8 + 1;
                for round in 0..ROUNDS {
                    if let Some(mut buffer) = pool.take(1 + round % 64) {
                        assert!(buffer.spare_mut().iter().all(|byte| *byte == 0), "P3");
                        let room = buffer.room();
                        buffer.append(&vec![mark; room]);
                        std::hint::spin_loop();
                        assert!(buffer.filled().iter().all(|byte| *byte == mark));
                        if round % 3 == 0 {
                            // The other side may have ended already; then it is dropped here.
                            let _ = next.send(buffer);
                        }
                    }
                    while let Ok(given) = inbox.try_recv() {
                        assert!(given.filled().windows(2).all(|pair| pair[0] == pair[1]));
                    }
                }
            });
        }
        drop(senders);
    });
    let statistics = pool.statistics();
    assert_eq!(statistics.in_use_bytes, 0, "{statistics:?}");
    assert!(pool.allocated_bytes() <= 64 * 20);
}
