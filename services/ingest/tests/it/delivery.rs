//! Messages from producers to consumers over real sockets, on every driver that this machine has.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::rig::{Rig, check, message, next, nothing, on_every_driver, small};
use flatpath::DriverChoice;
use flatpath_consumer::Consumer;
use flatpath_ingest::Settings;
use flatpath_messages::limits::MESSAGE_BYTES_DEFAULT;
use flatpath_testkit::drivers_here;

#[test]
fn messages_come_whole_unchanged_and_in_the_order_of_their_producer() {
    on_every_driver(Settings::new, |rig| {
        let mut consumer = rig.consumer();
        let mut producer = rig.producer();
        let lengths = [
            8,
            9,
            100,
            4096,
            65_535,
            65_536,
            65_537,
            1 << 20,
            3_000_000,
            8,
        ];
        let sender = std::thread::spawn(move || {
            for (number, length) in lengths.into_iter().enumerate() {
                producer.send(&message(7, number as u32, length));
            }
            producer
        });
        for (number, length) in lengths.into_iter().enumerate() {
            let got = next(&mut consumer);
            assert_eq!(got.len(), length);
            assert_eq!(check(&got.to_vec()), (7, number as u32));
        }
        drop(sender.join().expect("no panic"));
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn many_messages_of_one_receive_share_its_page() {
    on_every_driver(Settings::new, |rig| {
        let mut consumer = rig.consumer();
        let mut producer = rig.producer();
        let mut stream = vec![];
        for number in 0..100 {
            let message = message(1, number, 50);
            stream.extend((message.len() as u32).to_be_bytes());
            stream.extend(message);
            // A sign of life, which is not delivered.
            stream.extend([0; 4]);
        }
        producer.stream.write_all(&stream).expect("written");
        let messages: Vec<_> = (0..100).map(|_| next(&mut consumer)).collect();
        for (number, got) in messages.iter().enumerate() {
            assert_eq!(check(&got.to_vec()), (1, number as u32));
        }
        let pages = rig.ingest.figures().pages_retained;
        assert!(pages < 50, "{pages} pages for 100 messages of 50 bytes");
        nothing(&mut consumer);
        drop(messages);
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn a_message_that_trickles_fills_its_pages() {
    on_every_driver(small, |rig| {
        let mut consumer = rig.consumer();
        let mut producer = rig.producer();
        // 16 fragments of room, and 400 segments.
        let sent = message(1, 1, 12_000);
        producer
            .stream
            .write_all(&12_000_u32.to_be_bytes())
            .expect("written");
        for piece in sent.chunks(30) {
            producer.stream.write_all(piece).expect("written");
            std::thread::yield_now();
        }
        let got = next(&mut consumer);
        assert_eq!(check(&got.to_vec()), (1, 1));
        let fragments = got.fragments().len();
        assert!(fragments <= 7, "{fragments} fragments of 4 KiB pages");
        drop(got);
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn producers_take_turns_among_consumers_and_stay() {
    on_every_driver(Settings::new, |rig| {
        let mut consumers: Vec<Consumer> = (0..3).map(|_| rig.consumer()).collect();
        for producer in 0..6 {
            let mut connection = rig.producer();
            for number in 0..5 {
                connection.send(&message(producer, number, 1000));
            }
            // The next producer's first message comes after it.
            let mine = &mut consumers[producer as usize % 3];
            for number in 0..5 {
                assert_eq!(check(&next(mine).to_vec()), (producer, number));
            }
        }
    });
}

#[test]
fn without_a_consumer_producers_wait_and_nothing_is_lost() {
    on_every_driver(Settings::new, |rig| {
        let mut producers: Vec<_> = (0..5).map(|_| rig.producer()).collect();
        for (number, producer) in producers.iter_mut().enumerate() {
            producer.send(&message(number as u32, 0, 10_000));
        }
        rig.wait("all wait", |figures| figures.producer_waits >= 5);
        assert_eq!(rig.ingest.figures().messages, 0);
        let mut consumer = rig.consumer();
        let mut from: Vec<u32> = (0..5)
            .map(|_| check(&next(&mut consumer).to_vec()).0)
            .collect();
        from.sort_unstable();
        assert_eq!(from, [0, 1, 2, 3, 4]);
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn a_slow_consumer_stops_its_producers_and_no_others() {
    on_every_driver(Settings::new, |rig| {
        let slow = rig.consumer();
        let mut quick = rig.consumer();
        let (mut stopped, mut free) = (rig.producer(), rig.producer());
        let (total, length) = (100_u32, 256 << 10);
        // In turn: the first to begin a message gets the slow one.
        stopped.send(&message(1, 0, 8));
        rig.wait("the first message", |figures| figures.messages == 1);
        // More and more until the flag is set, however much the sockets on the way take.
        let stop = Arc::new(AtomicBool::new(false));
        let is_over = Arc::clone(&stop);
        let stopping = std::thread::spawn(move || {
            let mut number = 1;
            while !is_over.load(Ordering::Relaxed) {
                stopped.send(&message(1, number, length));
                number += 1;
            }
            (stopped, number)
        });
        rig.wait("its window is full", |figures| figures.producer_waits > 0);
        let sender = std::thread::spawn(move || {
            for number in 0..total {
                free.send(&message(2, number, length));
            }
            free
        });
        for number in 0..total {
            assert_eq!(check(&next(&mut quick).to_vec()), (2, number));
        }
        drop(sender.join().expect("no panic"));
        quick.flush();
        rig.wait("only the slow one holds", |figures| {
            figures.fragments_held <= u64::from(quick.window())
        });
        // It wakes up: nothing was lost, and the order is kept.
        stop.store(true, Ordering::Relaxed);
        let mut slow = slow;
        let mut received = 0;
        while !stopping.is_finished() {
            if let Ok(got) = slow.receive_timeout(Duration::from_millis(5)) {
                assert_eq!(check(&got.expect("attached").to_vec()), (1, received));
                received += 1;
            }
        }
        let (stopped, sent) = stopping.join().expect("no panic");
        for number in received..sent {
            assert_eq!(check(&next(&mut slow).to_vec()), (1, number));
        }
        drop(stopped);
        slow.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn a_region_that_is_used_up_recovers() {
    on_every_driver(small, |rig| {
        let mut consumer = rig.consumer();
        let window = consumer.window();
        let mut producers: Vec<_> = (0..8).map(|_| rig.producer()).collect();
        for round in 0..10 {
            for (number, producer) in producers.iter_mut().enumerate() {
                producer.send(&message(number as u32, round, 7000));
            }
            // 8 messages of two fragments at least do not fit into 16 with their reservations.
            let mut kept = vec![next(&mut consumer)];
            rig.wait("as many as fit are there", |figures| {
                figures.messages + 8 > u64::from(round + 1) * 8 && figures.fragments_held > 0
            });
            let held = rig.ingest.figures().fragments_held;
            assert!(held <= u64::from(window), "{held} of {window}");
            for _ in 1..8 {
                kept.drain(..);
                kept.push(next(&mut consumer));
                check(&kept[0].to_vec());
            }
        }
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn hundreds_of_producers_are_served_by_four_consumers() {
    const PRODUCERS: u32 = 400;
    const MESSAGES: u32 = 5;
    on_every_driver(Settings::new, |rig| {
        let consumers: Vec<Consumer> = (0..4).map(|_| rig.consumer()).collect();
        let mut producers: Vec<_> = (0..PRODUCERS).map(|_| rig.producer()).collect();
        let sender = std::thread::spawn(move || {
            for number in 0..MESSAGES {
                for (which, producer) in producers.iter_mut().enumerate() {
                    let length = 8 + (which * 997 + number as usize * 7919) % 20_000;
                    producer.send(&message(which as u32, number, length));
                }
            }
            producers
        });
        let share = PRODUCERS / 4 * MESSAGES;
        let receivers: Vec<_> = consumers
            .into_iter()
            .map(|mut consumer| {
                std::thread::spawn(move || {
                    let mut seen: HashMap<u32, u32> = HashMap::new();
                    for _ in 0..share {
                        let (producer, number) = check(&next(&mut consumer).to_vec());
                        let expected = seen.entry(producer).or_default();
                        assert_eq!(number, *expected, "the order of producer {producer}");
                        *expected += 1;
                    }
                    consumer.flush();
                    assert!(seen.values().all(|count| *count == MESSAGES));
                    seen.len()
                })
            })
            .collect();
        let seen: usize = receivers
            .into_iter()
            .map(|one| one.join().expect("no panic"))
            .sum();
        assert_eq!(seen, PRODUCERS as usize);
        drop(sender.join().expect("no panic"));
        rig.wait_for_rest();
        rig.wait("the producers are gone", |figures| figures.producers == 0);
    });
}

#[test]
fn two_network_threads_have_a_region_each() {
    on_every_driver(
        |socket| Settings {
            network_threads: 2,
            ..Settings::new(socket)
        },
        |rig| {
            let mut consumer = rig.consumer();
            let mut producers: Vec<_> = (0..16).map(|_| rig.producer()).collect();
            for (number, producer) in producers.iter_mut().enumerate() {
                producer.send(&message(number as u32, 0, 100_000));
            }
            let mut from: Vec<u32> = (0..16)
                .map(|_| check(&next(&mut consumer).to_vec()).0)
                .collect();
            from.sort_unstable();
            assert_eq!(from, (0..16).collect::<Vec<u32>>());
            consumer.flush();
            rig.wait_for_rest();
        },
    );
}

#[test]
fn consumers_attach_where_fewer_threads_accept_than_there_are() {
    let settings = |socket| Settings {
        network_threads: 3,
        ..Settings::new(socket)
    };
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let rig = Rig::listening(choice, settings, |server, ingest| {
            server.listen_on([socket.into()], ingest)
        });
        let mut consumer = rig.consumer();
        rig.producer().send(&message(7, 0, 100_000));
        assert_eq!(check(&next(&mut consumer).to_vec()).0, 7);
        consumer.flush();
        rig.wait_for_rest();
    }
}

#[test]
fn a_producer_that_goes_too_far_is_cut_off_alone() {
    on_every_driver(Settings::new, |rig| {
        let mut consumer = rig.consumer();
        let (mut good, mut long, mut short) = (rig.producer(), rig.producer(), rig.producer());
        let too_long = MESSAGE_BYTES_DEFAULT + 1;
        long.stream
            .write_all(&too_long.to_be_bytes())
            .expect("written");
        rig.wait("it is cut off", |_| {
            rig.ingest.figures().messages_too_long == 1
        });
        short
            .stream
            .write_all(&[0, 0, 0, 9, 1, 2, 3])
            .expect("written");
        drop(short);
        rig.wait("it is dropped", |_| {
            rig.ingest.figures().messages_cut_off == 1
        });
        good.send(&message(1, 1, 100));
        assert_eq!(check(&next(&mut consumer).to_vec()), (1, 1));
        nothing(&mut consumer);
    });
}

#[test]
fn a_drain_takes_a_message_that_has_begun_to_its_end() {
    on_every_driver(Settings::new, |rig| {
        let mut consumer = rig.consumer();
        let (mut busy, idle) = (rig.producer(), rig.producer());
        let sent = message(1, 1, 100_000);
        busy.stream
            .write_all(&100_000_u32.to_be_bytes())
            .expect("written");
        busy.stream.write_all(&sent[..50_000]).expect("written");
        rig.wait("it has begun", |figures| figures.pages_retained > 0);
        rig.running.handle().drain();
        busy.stream.write_all(&sent[50_000..]).expect("written");
        assert_eq!(check(&next(&mut consumer).to_vec()), (1, 1));
        consumer.flush();
        drop((busy, idle));
        rig.running.wait().expect("drained");
        drop(rig.control);
        assert!(
            consumer
                .receive_timeout(crate::rig::patience())
                .expect("an end")
                .is_none()
        );
    });
}
