//! Pages that several threads read while their driver receives on: what Miri can run of the
//! driver. The same with kernels and sockets is in `driver/tests/it/keeping.rs`.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

use super::*;
use crate::buffers::Buffers;
use crate::fragment::QuotaWaker;

const PAGE_BYTES: u32 = 64;
const ROUNDS: usize = if cfg!(miri) { 40 } else { 5_000 };

struct Silent;

impl QuotaWaker for Silent {
    fn wake(&self, _number: u64) {}
}

fn quota() -> Quota {
    Quota::new(1, Arc::new(Silent))
}

/// Four pages, of which three may be kept.
fn buffers() -> Buffers {
    let config = RegionConfig {
        pages: 4,
        page_bytes: PAGE_BYTES,
        reserve_pages: 1,
        ..RegionConfig::default()
    };
    Buffers::new(0, &config, &Waker::simulated()).expect("memory")
}

/// Receives `bytes` times `mark` into a free page.
fn receive(buffers: &mut Buffers, mark: u8, bytes: usize) -> Piece {
    let page = buffers.take().expect("one is in reserve");
    buffers.space(page)[..bytes].fill(mark);
    buffers.filled(page, bytes)
}

/// Reads what it is given until there is no more, and says how many there were.
fn read_all(fragments: &Receiver<(u8, Fragment)>) -> usize {
    let all = fragments.iter().inspect(|(mark, fragment)| {
        assert!(fragment.bytes().iter().all(|byte| byte == mark), "G2");
    });
    all.count()
}

#[test]
fn stress_what_others_read_is_not_received_into_until_they_drop_it() {
    let (mut buffers, quota) = (buffers(), quota());
    let (senders, readers): (Vec<_>, Vec<_>) = (0..2)
        .map(|_| {
            let (sender, fragments) = channel();
            (sender, thread::spawn(move || read_all(&fragments)))
        })
        .unzip();
    let mut given = 0;
    for round in 0..ROUNDS {
        buffers.reclaim();
        let mark = round as u8;
        let piece = receive(&mut buffers, mark, 48);
        let ranges = [0..20, 20..48].into_iter();
        for (sender, range) in senders.iter().zip(ranges) {
            // None: three pages are with the readers still.
            if let Some(fragment) = buffers.region().retain(&piece, range, &quota) {
                sender.send((mark, fragment)).expect("it listens");
                given += 1;
            }
        }
        buffers.recycle(piece);
    }
    drop(senders);
    let read: usize = readers
        .into_iter()
        .map(|reader| reader.join().expect("no panic"))
        .sum();
    assert_eq!(read, given);
    buffers.reclaim();
    assert_eq!((quota.held(), buffers.in_use()), (0, 0));
}

/// A holder that is alone with a page may write after its bytes: all others have read by then.
#[test]
fn stress_a_fragment_grows_only_after_its_other_readers_are_gone() {
    let (mut buffers, quota) = (buffers(), quota());
    let (sender, fragments) = channel();
    let reader = thread::spawn(move || read_all(&fragments));
    let mut grown = 0;
    for round in 0..ROUNDS {
        buffers.reclaim();
        let mark = round as u8;
        let piece = receive(&mut buffers, mark, 8);
        let kept = buffers.region().retain(&piece, 0..8, &quota);
        buffers.recycle(piece);
        let Some(mut fragment) = kept else {
            continue;
        };
        sender.send((mark, fragment.clone())).expect("it listens");
        fragment.truncate(4);
        for _ in 0..4 {
            if fragment.try_append(&[mark.wrapping_add(1); 4]) {
                grown += 1;
                assert_eq!(fragment[4..8], [mark.wrapping_add(1); 4]);
                break;
            }
            thread::yield_now();
        }
    }
    drop(sender);
    assert!(reader.join().expect("no panic") >= grown);
    buffers.reclaim();
    assert_eq!((quota.held(), buffers.in_use()), (0, 0));
}

/// Tokens that another thread returns, some of them twice, beside an end that sweeps the rest.
#[test]
fn stress_pages_whose_tokens_are_returned_elsewhere_come_back_once() {
    let (mut buffers, quota) = (buffers(), quota());
    let mut attachment = buffers.region().attach(8).expect("open");
    let returner = attachment.returner();
    let (sender, tokens) = channel();
    let returning = thread::spawn(move || {
        let accepted = tokens.iter().map(|token| {
            let first = returner.give_back(token);
            assert!(!returner.give_back(token), "returned already");
            u32::from(first)
        });
        accepted.sum::<u32>()
    });
    let mut taken = 0;
    for round in 0..ROUNDS {
        buffers.reclaim();
        let piece = receive(&mut buffers, round as u8, 8);
        let fragment = buffers.region().retain(&piece, 0..8, &quota);
        buffers.recycle(piece);
        let token = fragment.and_then(|fragment| fragment.token(&mut attachment).ok());
        if let Some(token) = token {
            taken += 1;
            if round % 4 != 0 {
                sender.send(token).expect("it listens");
            }
        }
    }
    drop((attachment, sender));
    assert!(returning.join().expect("no panic") <= taken);
    buffers.reclaim();
    assert_eq!((buffers.region().retained(), buffers.in_use()), (0, 0));
}
