//! Producers and consumers that name a token, over real sockets, on every driver.

#[path = "../../examples/paired.rs"]
mod paired;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

use crate::rig::{Rig, next, nothing, on_every_driver, patience};
use flatpath_consumer::{Consumer, Error};
use flatpath_ingest::Settings;
use flatpath_messages::framing::naming;
use flatpath_messages::handshake::{Misunderstanding, Status};

fn consume(rig: &Rig, token: u64) -> Consumer {
    let count = rig.ingest.figures().consumers;
    let consumer = paired::consume(&rig.socket, token).expect("attached");
    rig.wait("the consumer is there", |figures| figures.consumers > count);
    consumer
}

fn is_cut_off(mut stream: TcpStream) -> bool {
    stream
        .set_read_timeout(Some(patience()))
        .expect("a deadline");
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

#[test]
fn a_token_brings_its_producer_and_its_consumer_together() {
    on_every_driver(Settings::new, |rig| {
        let mut others = rig.consumer();
        let mut seventh = consume(&rig, 7);
        let _seven = paired::produce(rig.address, 7, &[b"for seven", b"again"]).expect("sent");
        let mut producer = rig.producer();
        producer.send(b"for any");
        assert_eq!(next(&mut seventh).to_vec(), b"for seven");
        assert_eq!(next(&mut seventh).to_vec(), b"again");
        assert_eq!(next(&mut others).to_vec(), b"for any");
        nothing(&mut seventh);
        nothing(&mut others);
    });
}

#[test]
fn the_first_of_a_pair_waits() {
    on_every_driver(Settings::new, |rig| {
        let mut others = rig.consumer();
        let _nine = paired::produce(rig.address, 9, &[b"early"]).expect("sent");
        rig.wait("it waits", |figures| figures.producer_waits > 0);
        nothing(&mut others);
        let mut ninth = consume(&rig, 9);
        assert_eq!(next(&mut ninth).to_vec(), b"early");
    });
}

#[test]
fn a_token_that_is_taken_is_refused_and_its_owner_not_disturbed() {
    on_every_driver(Settings::new, |rig| {
        let mut seventh = consume(&rig, 7);
        let mut seven = paired::produce(rig.address, 7, &[b"one"]).expect("sent");
        assert_eq!(next(&mut seventh).to_vec(), b"one");
        let refused = paired::consume(&rig.socket, 7).expect_err("taken");
        let taken = Misunderstanding::Refused(Status::Taken);
        assert!(
            matches!(refused, Error::Handshake(why) if why == taken),
            "{refused}"
        );
        let loser = paired::produce(rig.address, 7, &[]).expect("sent");
        assert!(is_cut_off(loser));
        seven.write_all(b"\0\0\0\x03two").expect("sent");
        assert_eq!(next(&mut seventh).to_vec(), b"two");
    });
}

#[test]
fn a_token_names_no_consumer_when_it_is_empty_or_comes_after_a_message() {
    on_every_driver(Settings::new, |rig| {
        let mut consumer = rig.consumer();
        let empty = paired::produce(rig.address, 0, &[]).expect("sent");
        assert!(is_cut_off(empty));
        let mut producer = rig.producer();
        producer.send(b"first");
        assert_eq!(next(&mut consumer).to_vec(), b"first");
        producer.stream.write_all(&naming(7)).expect("sent");
        assert!(is_cut_off(producer.stream));
    });
}

#[test]
fn when_its_consumer_goes_a_producer_waits_for_the_next_of_its_token() {
    on_every_driver(Settings::new, |rig| {
        let mut others = rig.consumer();
        let mut seventh = consume(&rig, 7);
        let mut seven = paired::produce(rig.address, 7, &[b"one"]).expect("sent");
        assert_eq!(next(&mut seventh).to_vec(), b"one");
        drop(seventh);
        rig.wait_for_detached(1);
        seven.write_all(b"\0\0\0\x03two").expect("sent");
        nothing(&mut others);
        let mut again = consume(&rig, 7);
        assert_eq!(next(&mut again).to_vec(), b"two");
        // And the token is free when the producer has gone.
        drop(seven);
        rig.wait("the producer is gone", |figures| figures.producers == 0);
        let _seven = paired::produce(rig.address, 7, &[b"three"]).expect("sent");
        assert_eq!(next(&mut again).to_vec(), b"three");
    });
}
