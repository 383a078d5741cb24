//! Short messages that share a page: several tokens of one page held at once, by one consumer and
//! by several. Where pages are not shared the same must hold, with more pages.

use crate::rig::{Rig, check, message, next, on_every_driver};
use flatpath::memory::SmallReceives;
use flatpath_driver::probe::Probe;
use flatpath_ingest::Settings;

const PRODUCERS: u32 = 10;
const ROUNDS: u32 = 10;

/// Whether receives share pages with this driver on this machine.
fn shares(rig: &Rig) -> bool {
    let feature = "receives that share a page";
    let works = |probe: Probe| {
        let mut findings = probe.findings.iter();
        findings.any(|one| one.feature == feature && one.works())
    };
    rig.running.driver() == "uring" && works(Probe::run())
}

/// Sends short messages one by one, each received alone, while `already` fragments are held.
fn send_one_by_one(rig: &Rig, already: u64) {
    let mut producers: Vec<_> = (0..PRODUCERS).map(|_| rig.producer()).collect();
    let mut held = already;
    for round in 0..ROUNDS {
        for (number, producer) in (0..).zip(&mut producers) {
            producer.send(&message(number, round, 100));
            held += 1;
            rig.wait("it is delivered", |figures| figures.fragments_held == held);
        }
    }
}

#[test]
fn short_messages_share_pages_and_tokens_of_one_page_come_back_in_any_order() {
    on_every_driver(Settings::new, |rig| {
        let mut consumer = rig.consumer();
        send_one_by_one(&rig, 0);
        let count = (PRODUCERS * ROUNDS) as usize;
        let mut messages: Vec<_> = (0..count).map(|_| next(&mut consumer)).collect();
        let mut seen: Vec<_> = messages.iter().map(|got| check(&got.to_vec())).collect();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen.len(), count, "each once");

        let figures = rig.ingest.figures();
        assert_eq!(figures.fragments_held, count as u64);
        if shares(&rig) {
            // 100 times 104 bytes in pages of 64 KiB.
            assert_eq!(figures.pages_with_consumers, 1);
        } else {
            assert_eq!(figures.pages_with_consumers, count as u64);
        }
        // From the middle, all but one; what is left keeps the page, and stays as it was.
        while messages.len() > 1 {
            drop(messages.swap_remove(messages.len() / 2));
            if messages.len() % 20 == 0 {
                consumer.flush();
                let left = messages.len() as u64;
                rig.wait("they are returned", |figures| {
                    figures.fragments_held == left
                });
                messages.iter().for_each(|got| {
                    check(&got.to_vec());
                });
            }
        }
        consumer.flush();
        rig.wait("one is left", |figures| figures.fragments_held == 1);
        assert_eq!(rig.ingest.figures().pages_with_consumers, 1);
        drop(messages);
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn a_page_shared_by_two_consumers_outlives_the_first_of_them() {
    on_every_driver(Settings::new, |rig| {
        let mut first = rig.consumer();
        let second = rig.consumer();
        send_one_by_one(&rig, 0);
        let half = u64::from(PRODUCERS * ROUNDS) / 2;
        let messages: Vec<_> = (0..half).map(|_| next(&mut first)).collect();
        drop(second);
        rig.wait_for_detached(1);
        let figures = rig.ingest.figures();
        let counts = (
            figures.fragments_held,
            figures.fragments_reclaimed,
            figures.returns_refused,
        );
        assert_eq!(counts, (half, half, 0));
        assert_eq!(figures.pages_with_consumers > 1, !shares(&rig));
        // More is received after it: nothing of it changes.
        send_one_by_one(&rig, half);
        for got in &messages {
            check(&got.to_vec());
        }
        drop((messages, first));
        rig.wait_for_rest();
    });
}

#[test]
fn without_sharing_each_receive_takes_a_page() {
    let settings = |socket| Settings {
        small_receives: SmallReceives::TakePages,
        ..Settings::new(socket)
    };
    on_every_driver(settings, |rig| {
        let consumer = rig.consumer();
        send_one_by_one(&rig, 0);
        let count = u64::from(PRODUCERS * ROUNDS);
        assert_eq!(rig.ingest.figures().pages_with_consumers, count);
        drop(consumer);
        rig.wait_for_rest();
    });
}

#[test]
fn lengths_that_come_alone_do_not_cost_a_page() {
    on_every_driver(Settings::new, |rig| {
        let mut consumer = rig.consumer();
        let mut producer = rig.producer();
        let mut kept = vec![];
        for number in 0..20 {
            // The length, then the payload, as many write it.
            let sent = message(1, number, 300);
            let length = (sent.len() as u32).to_be_bytes();
            std::io::Write::write_all(&mut producer.stream, &length).expect("sent");
            std::thread::sleep(std::time::Duration::from_millis(1));
            std::io::Write::write_all(&mut producer.stream, &sent).expect("sent");
            kept.push(next(&mut consumer));
        }
        for (number, got) in (0..).zip(&kept) {
            assert_eq!(check(&got.to_vec()), (1, number));
        }
        let pages = rig.ingest.figures().pages_with_consumers;
        assert_eq!(pages == 1, shares(&rig), "{pages} pages");
        drop(kept);
        consumer.flush();
        rig.wait_for_rest();
    });
}
