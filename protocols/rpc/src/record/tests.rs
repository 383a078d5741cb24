//! Record marking against vectors and against an oracle that knows the records beforehand.

use flatpath::memory::{Pool, PoolHandle};

use super::*;
use crate::testing::{Random, pool};

fn marked(last: bool, bytes: &[u8]) -> Vec<u8> {
    let flag = if last { LAST_FRAGMENT } else { 0 };
    let mut out = (u32::try_from(bytes.len()).expect("short") | flag)
        .to_be_bytes()
        .to_vec();
    out.extend_from_slice(bytes);
    out
}

fn taken(assembly: &mut Assembly) -> Vec<u8> {
    let mut record = Record::default();
    assembly.take(&mut record);
    record.arguments(0).slices().flatten().copied().collect()
}

#[test]
fn a_record_in_one_fragment_is_found_where_it_lies() {
    let mut input = marked(true, b"hello");
    input.extend_from_slice(b"next");
    assert_eq!(whole(&input), Some(&b"hello"[..]));
    assert_eq!(whole(&input[..8]), None, "a byte is missing");
    assert_eq!(whole(&input[..3]), None, "half a marker");
    assert_eq!(
        whole(&marked(false, b"hello")),
        None,
        "not the last fragment"
    );
}

#[test]
fn a_length_beyond_the_limit_is_refused_before_its_bytes() {
    let pool = pool(1 << 20);
    let marker = (u32::try_from(RECORD_BYTES_MAX).expect("fits") + 1) | LAST_FRAGMENT;
    assert_eq!(whole(&marker.to_be_bytes()), None);
    let fed = Assembly::default().feed(
        &marker.to_be_bytes(),
        &mut PoolHandle::from(&pool),
        Completion::Allowed,
    );
    assert_eq!(fed, Err(FramingError::TooLong));
    let fed = Assembly::default().feed(
        &[0xff; 4],
        &mut PoolHandle::from(&pool),
        Completion::Allowed,
    );
    assert_eq!(fed, Err(FramingError::TooLong));
    assert_eq!(pool.statistics().in_use_bytes, 0);
}

#[test]
fn fragments_are_summed_before_they_are_believed() {
    let pool = pool(4 << 20);
    let mut assembly = Assembly::default();
    let first = marked(false, &vec![1; RECORD_BYTES_MAX - 10]);
    let fed = assembly.feed(&first, &mut PoolHandle::from(&pool), Completion::Allowed);
    assert_eq!(fed, Ok((first.len(), Assembled::NeedMore)));
    let eleven = (11 | LAST_FRAGMENT).to_be_bytes();
    assert_eq!(
        assembly.feed(&eleven, &mut PoolHandle::from(&pool), Completion::Allowed),
        Err(FramingError::TooLong)
    );
}

#[test]
fn an_announced_megabyte_takes_no_memory_before_it_arrives() {
    let pool = pool(4 << 20);
    let mut assembly = Assembly::default();
    let mut input = ((1024 * 1024) | LAST_FRAGMENT).to_be_bytes().to_vec();
    input.extend_from_slice(b"x");
    let fed = assembly.feed(&input, &mut PoolHandle::from(&pool), Completion::Allowed);
    assert_eq!(fed, Ok((5, Assembled::NeedMore)));
    assert!(pool.statistics().in_use_bytes <= CHUNK_BYTES_MIN);
}

#[test]
fn empty_fragments_are_borne_up_to_their_bound() {
    let pool = pool(1 << 20);
    let mut assembly = Assembly::default();
    let empty: Vec<u8> = marked(false, b"").repeat(EMPTY_RECORD_FRAGMENTS_MAX as usize);
    let fed = assembly.feed(&empty, &mut PoolHandle::from(&pool), Completion::Allowed);
    assert_eq!(fed, Ok((empty.len(), Assembled::NeedMore)));
    let one_more = marked(false, b"");
    let fed = assembly.feed(&one_more, &mut PoolHandle::from(&pool), Completion::Allowed);
    assert_eq!(fed, Err(FramingError::TooManyEmpty));
}

#[test]
fn fragments_are_borne_up_to_their_bound() {
    let pool = pool(1 << 20);
    let mut assembly = Assembly::default();
    let many = marked(false, b"x").repeat(RECORD_FRAGMENTS_MAX as usize);
    let fed = assembly.feed(&many, &mut PoolHandle::from(&pool), Completion::Allowed);
    assert_eq!(fed, Ok((many.len(), Assembled::NeedMore)));
    let fed = assembly.feed(
        &marked(true, b"x"),
        &mut PoolHandle::from(&pool),
        Completion::Allowed,
    );
    assert_eq!(fed, Err(FramingError::TooManyFragments));
}

#[test]
fn what_completes_a_record_is_left_while_withheld() {
    let pool = pool(1 << 20);
    let mut assembly = Assembly::default();
    let mut input = marked(false, b"abcd");
    input.extend(marked(true, b"ef"));
    let fed = assembly.feed(&input, &mut PoolHandle::from(&pool), Completion::Withheld);
    assert_eq!(fed, Ok((12, Assembled::Withheld)));
    let fed = assembly.feed(
        &input[12..],
        &mut PoolHandle::from(&pool),
        Completion::Withheld,
    );
    assert_eq!(fed, Ok((0, Assembled::Withheld)));
    let fed = assembly.feed(
        &input[12..],
        &mut PoolHandle::from(&pool),
        Completion::Allowed,
    );
    assert_eq!(fed, Ok((2, Assembled::Complete)));
    assert_eq!(taken(&mut assembly), b"abcdef");
    let mut input = marked(false, b"gh");
    input.extend(marked(true, b""));
    let fed = assembly.feed(&input, &mut PoolHandle::from(&pool), Completion::Withheld);
    assert_eq!(
        fed,
        Ok((6, Assembled::Withheld)),
        "an empty last fragment completes too"
    );
}

#[test]
fn a_used_up_budget_stops_and_goes_on_later() {
    let pool = pool(8 * 1024);
    let held: Vec<Buffer> = std::iter::from_fn(|| pool.take(1)).collect();
    assert!(!held.is_empty());
    let mut assembly = Assembly::default();
    let input = marked(true, &[7; 6000]);
    let fed = assembly.feed(&input, &mut PoolHandle::from(&pool), Completion::Allowed);
    assert_eq!(fed, Ok((4, Assembled::NoRoom)));
    drop(held);
    let fed = assembly.feed(
        &input[4..],
        &mut PoolHandle::from(&pool),
        Completion::Allowed,
    );
    assert_eq!(fed, Ok((6000, Assembled::Complete)));
    assert_eq!(taken(&mut assembly), [7; 6000]);
}

#[test]
fn half_a_record_takes_nothing_from_the_reserve() {
    let (main, reserve) = (pool(8 * 1024), pool(64 * 1024));
    let held: Vec<Buffer> = std::iter::from_fn(|| main.take(1)).collect();
    let mut handle = PoolHandle::new(&main, 0).with_reserve(&reserve, 8 * 1024);
    let half = &marked(true, &[7; 200])[..100];
    let fed = Assembly::default().feed(half, &mut handle, Completion::Allowed);
    assert_eq!(fed, Ok((4, Assembled::NoRoom)));
    assert_eq!(reserve.statistics().in_use_bytes, 0);
    drop(held);
}

#[test]
fn data_spans_pieces_and_ends_with_the_record() {
    let pool = pool(4 << 20);
    let mut assembly = Assembly::default();
    let data: Vec<u8> = (0..100_001_u32).map(|byte| byte.to_be_bytes()[3]).collect();
    let mut record = 100_001_u32.to_be_bytes().to_vec();
    record.extend_from_slice(&data);
    record.extend_from_slice(&[0; 3]);
    for chunk in marked(true, &record).chunks(3000) {
        let fed = assembly.feed(chunk, &mut PoolHandle::from(&pool), Completion::Allowed);
        assert_eq!(fed.map(|fed| fed.0), Ok(chunk.len()));
    }
    let mut whole = Record::default();
    assembly.take(&mut whole);
    let found = whole.arguments(0).data(200_000).expect("well-formed");
    assert!(found.slices().count() > 1);
    assert_eq!(found.slices().flatten().copied().collect::<Vec<u8>>(), data);
    assert!(
        whole.arguments(0).data(100_000).is_err(),
        "longer than its type"
    );
    assert!(
        whole.arguments(4).data(usize::MAX).is_err(),
        "longer than the record"
    );
}

/// Random records in random fragments in random receives come out as they went in.
fn model_round(random: &mut Random, pool: &Pool) {
    let records: Vec<Vec<u8>> = (0..random.below(6) + 1)
        .map(|_| {
            let most = [8, 100, 5000, 60_000, RECORD_BYTES_MAX][random.below(5)];
            let length = random.below(most) + 1;
            (0..length)
                .map(|at| (at * 31 + length).to_le_bytes()[0])
                .collect()
        })
        .collect();
    let mut stream = Vec::new();
    for record in &records {
        let mut rest = &record[..];
        for _ in 0..random.below(10) {
            let (front, after) = rest.split_at(random.below(rest.len() + 1));
            stream.extend(marked(false, front));
            rest = after;
        }
        stream.extend(marked(true, rest));
    }
    let mut assembly = Assembly::default();
    let mut found = Vec::new();
    let (mut start, mut end) = (0, 0);
    while start < stream.len() {
        end = (end + 1 + random.below(9000)).min(stream.len());
        loop {
            let completion = [Completion::Allowed, Completion::Withheld][random.below(2)];
            let fed = assembly.feed(&stream[start..end], &mut PoolHandle::from(pool), completion);
            let (used, progress) = fed.expect("the stream is well-formed");
            start += used;
            match progress {
                Assembled::NeedMore => break,
                Assembled::Complete => found.push(taken(&mut assembly)),
                Assembled::Withheld => assert_eq!(completion, Completion::Withheld),
                Assembled::NoRoom => panic!("the budget is large"),
            }
        }
    }
    assert!(assembly.is_idle());
    assert_eq!(found, records);
}

#[test]
fn model_any_fragmentation_gives_the_same_records() {
    let seed = Random::seed();
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let pool = pool(16 << 20);
    for _ in 0..60 {
        model_round(&mut random, &pool);
    }
    assert_eq!(pool.statistics().in_use_bytes, 0, "every buffer came back");
}

#[test]
fn model_garbage_never_panics_and_never_outgrows_its_bytes() {
    let seed = Random::seed();
    println!("seed {seed}");
    let mut random = Random::new(seed);
    let pool = pool(16 << 20);
    for _ in 0..2000 {
        let mut assembly = Assembly::default();
        let input: Vec<u8> = (0..random.below(300))
            .map(|_| [0, 0x80, 1, 0xff, 4][random.below(5)])
            .collect();
        let mut at = 0;
        while let Ok((used, progress)) = assembly.feed(
            &input[at..],
            &mut PoolHandle::from(&pool),
            Completion::Allowed,
        ) {
            at += used;
            match progress {
                Assembled::Complete => assert!(taken(&mut assembly).len() <= input.len()),
                Assembled::NeedMore | Assembled::NoRoom | Assembled::Withheld => break,
            }
        }
        assert!(pool.statistics().in_use_bytes <= CHUNK_BYTES_MIN);
    }
}
