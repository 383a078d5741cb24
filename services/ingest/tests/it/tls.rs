//! Producers with TLS: what is in their records lies in pages of the region as what is received
//! without, however the records come.

use std::io::Write;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, OnceLock};

use flatpath::DriverChoice;
use flatpath::tls::TlsConfig;
use flatpath_ingest::Settings;
use flatpath_testkit::tls::rustls::{ClientConnection, StreamOwned};
use flatpath_testkit::{Issued, drivers_here, tls};

use crate::rig::{Rig, check, message, next, nothing, patience, small};

fn identity() -> &'static Issued {
    static IDENTITY: OnceLock<Issued> = OnceLock::new();
    IDENTITY.get_or_init(Issued::for_localhost)
}

fn on_every_driver(settings: impl Fn(std::path::PathBuf) -> Settings, body: impl Fn(Rig)) {
    let Issued { certificate, key } = identity();
    let config = TlsConfig::from_pem(certificate.as_bytes(), key.as_bytes()).expect("a pair");
    for choice in drivers_here(DriverChoice::Uring, DriverChoice::Epoll) {
        body(Rig::listening(choice, &settings, |server, ingest| {
            server.listen_tls("127.0.0.1:0", &config, ingest)
        }));
    }
}

/// A producer with TLS.
struct Secured(StreamOwned<ClientConnection, TcpStream>);

impl Secured {
    fn connect(rig: &Rig) -> Secured {
        let config = tls::client_config(&identity().certificate, None, &tls::VERSIONS);
        let stream = TcpStream::connect(rig.address).expect("connected");
        stream
            .set_write_timeout(Some(patience()))
            .expect("a deadline");
        stream
            .set_read_timeout(Some(patience()))
            .expect("a deadline");
        stream.set_nodelay(true).expect("no delay");
        let stream = tls::handshake(&Arc::new(config), stream).expect("a handshake");
        Secured(stream)
    }

    /// The records of some bytes.
    fn records(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut records = Vec::new();
        for chunk in bytes.chunks(32 * 1024) {
            self.0.conn.writer().write_all(chunk).expect("in memory");
            records.append(&mut tls::records_of(&mut self.0.conn));
        }
        records.append(&mut tls::records_of(&mut self.0.conn));
        records
    }

    fn send(&mut self, message: &[u8]) {
        let records = self.records(&framed(message));
        self.0.sock.write_all(&records).expect("sent");
    }

    fn finish(&mut self) {
        self.0.conn.send_close_notify();
        let end = self.records(&[]);
        self.0.sock.write_all(&end).expect("sent");
        self.0.sock.shutdown(Shutdown::Write).expect("open");
    }
}

fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).expect("short").to_be_bytes();
    [&length, message].concat()
}

#[test]
fn messages_come_whole_unchanged_and_in_the_order_of_their_producer() {
    const LONG: &[usize] = &[
        8,
        9,
        100,
        16_384,
        65_535,
        65_536,
        65_537,
        1 << 20,
        3_000_000,
        8,
    ];
    // Pages that are shorter than a record.
    const SHORT: &[usize] = &[8, 4092, 4096, 4097, 12_000, 8, 12_000, 11_999, 100];
    for (settings, lengths) in [
        (Settings::new as fn(std::path::PathBuf) -> Settings, LONG),
        (small, SHORT),
    ] {
        on_every_driver(settings, |rig| {
            let mut consumer = rig.consumer();
            let mut producer = Secured::connect(&rig);
            let sender = std::thread::spawn(move || {
                for (number, length) in lengths.iter().enumerate() {
                    producer.send(&message(7, number as u32, *length));
                }
                producer
            });
            for (number, length) in lengths.iter().enumerate() {
                let got = next(&mut consumer);
                assert_eq!(got.len(), *length);
                assert_eq!(check(&got.to_vec()), (7, number as u32));
            }
            sender.join().expect("no panic").finish();
            consumer.flush();
            rig.wait_for_rest();
        });
    }
}

#[test]
fn records_that_come_in_parts_and_several_at_once_are_messages_too() {
    on_every_driver(small, |rig| {
        let mut consumer = rig.consumer();
        let mut producer = Secured::connect(&rig);
        let mut records = Vec::new();
        for number in 0..30 {
            let length = [8, 300, 5_000, 12_000][number as usize % 4];
            records.extend(producer.records(&framed(&message(1, number, length))));
        }
        let sender = std::thread::spawn(move || {
            let (mut rest, mut random) = (&records[..], fastrand::Rng::with_seed(1));
            while !rest.is_empty() {
                let count = random.usize(1..20_000).min(rest.len());
                producer.0.sock.write_all(&rest[..count]).expect("sent");
                rest = &rest[count..];
                std::thread::yield_now();
            }
            producer
        });
        for number in 0..30 {
            assert_eq!(check(&next(&mut consumer).to_vec()), (1, number));
        }
        drop(sender.join().expect("no panic"));
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn many_messages_of_one_record_share_its_page() {
    on_every_driver(Settings::new, |rig| {
        let mut consumer = rig.consumer();
        let mut producer = Secured::connect(&rig);
        let stream: Vec<u8> = (0..100)
            .flat_map(|number| [framed(&message(1, number, 50)), vec![0; 4]].concat())
            .collect();
        let records = producer.records(&stream);
        producer.0.sock.write_all(&records).expect("sent");
        let messages: Vec<_> = (0..100).map(|_| next(&mut consumer)).collect();
        for (number, got) in messages.iter().enumerate() {
            assert_eq!(check(&got.to_vec()), (1, number as u32));
        }
        let pages = rig.ingest.figures().pages_retained;
        assert!(pages < 50, "{pages} pages for 100 messages of 50 bytes");
        drop(messages);
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn a_message_that_trickles_fills_its_pages() {
    on_every_driver(small, |rig| {
        let mut consumer = rig.consumer();
        let mut producer = Secured::connect(&rig);
        // 16 fragments of room, and 400 records.
        for piece in framed(&message(1, 1, 12_000)).chunks(30) {
            let record = producer.records(piece);
            producer.0.sock.write_all(&record).expect("sent");
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

/// More producers than there are pages wait for a consumer with whole records that were received;
/// they hold no page meanwhile, and what each has said comes.
#[test]
fn producers_that_wait_for_a_consumer_hold_no_page_and_lose_nothing() {
    const PRODUCERS: u32 = 30;
    on_every_driver(small, |rig| {
        let mut producers: Vec<Secured> = (0..PRODUCERS).map(|_| Secured::connect(&rig)).collect();
        for (number, producer) in (0..).zip(&mut producers) {
            for each in 0..3 {
                producer.send(&message(number, each, 3_000));
            }
        }
        rig.wait("all wait", |figures| {
            figures.producer_waits >= u64::from(PRODUCERS)
        });
        assert_eq!(rig.ingest.figures().pages_retained, 0);
        let mut consumer = rig.consumer();
        let mut next_of = vec![0; PRODUCERS as usize];
        for _ in 0..3 * PRODUCERS {
            let (producer, number) = check(&next(&mut consumer).to_vec());
            assert_eq!(number, next_of[producer as usize], "producer {producer}");
            next_of[producer as usize] += 1;
            consumer.flush();
        }
        producers.iter_mut().for_each(Secured::finish);
        nothing(&mut consumer);
        consumer.flush();
        rig.wait_for_rest();
    });
}

#[test]
fn a_message_whose_stream_is_cut_off_is_not_delivered() {
    on_every_driver(small, |rig| {
        let mut consumer = rig.consumer();
        let mut producer = Secured::connect(&rig);
        let records = producer.records(&framed(&message(1, 1, 5_000))[..3_000]);
        producer.0.sock.write_all(&records).expect("sent");
        producer.0.sock.shutdown(Shutdown::Write).expect("open");
        rig.wait("it is cut off", |figures| figures.messages_cut_off == 1);
        nothing(&mut consumer);
        consumer.flush();
        rig.wait_for_rest();
    });
}
