//! Tests of the decoder: whole streams, split at every place.

use flatpath::limits::BUFFER_CLASSES;
use flatpath::memory::{Pool, PoolConfig, Zero};

use super::*;
use crate::encode::{Frame, Opcode};
use crate::limits::{CONTROL_BYTES_MAX, HEAD_BYTES_MAX};

fn pool(budget_bytes: usize) -> Pool {
    Pool::new(PoolConfig {
        classes: BUFFER_CLASSES.to_vec(),
        budget_bytes,
        zero: Zero::Never,
    })
}

/// A frame as a client sends it.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let frame = Frame::new(Opcode::Text, payload.to_vec());
    let mut bytes = frame.head().to_vec();
    bytes[0] = first;
    bytes[1] |= 0x80;
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
    bytes
}

fn message(is_text: bool, payload: &[u8]) -> Event {
    Event::Message(Received {
        is_text,
        is_compressed: false,
        payload: payload.to_vec().into(),
    })
}

fn text(text: &str) -> Event {
    message(true, text.as_bytes())
}

const LIMITS: Limits = Limits {
    message_bytes_max: 70_000,
    fragments_max: 8,
    queued_bytes_max: 0,
};

type Decoded = (Vec<Event>, Option<Fault>);

/// All events of a stream that arrives in pieces of these lengths, as the engine offers it: what
/// was not taken stays in front.
fn decode(decoder: &mut Decoder, bytes: &[u8], pieces: impl Iterator<Item = usize>) -> Decoded {
    let pool = pool(1 << 20);
    let (mut events, mut kept, mut rest) = (Vec::new(), Vec::new(), bytes);
    for piece in pieces {
        let (next, after) = rest.split_at(piece.min(rest.len()));
        rest = after;
        kept.extend_from_slice(next);
        let mut input = &kept[..];
        loop {
            match decoder.next(&mut input, &LIMITS, (&pool).into()) {
                Ok(Some(event)) => events.push(event),
                Ok(None) => break,
                Err(Stopped::Fault(fault)) => return (events, Some(fault)),
                Err(Stopped::NoRoom) => panic!("nothing is short"),
            }
        }
        let is_short = input.len() < HEAD_BYTES_MAX + CONTROL_BYTES_MAX;
        assert!(is_short, "only a part of a control frame is left");
        kept = input.to_vec();
        if rest.is_empty() {
            break;
        }
    }
    (events, None)
}

/// The same whole, in single bytes, and split at every place.
fn decode_every_way(bytes: &[u8]) -> Decoded {
    let plain = || Decoder::new(false);
    let whole = decode(&mut plain(), bytes, std::iter::repeat(usize::MAX));
    assert_eq!(decode(&mut plain(), bytes, std::iter::repeat(1)), whole);
    for at in 1..bytes.len().min(400) {
        let split = decode(&mut plain(), bytes, [at, usize::MAX].into_iter());
        assert_eq!(split, whole, "split at {at}");
    }
    whole
}

#[test]
fn the_frames_of_section_5_7_are_understood() {
    let hello = [
        0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58,
    ];
    assert_eq!(masked(0x81, b"Hello"), hello);
    assert_eq!(decode_every_way(&hello), (vec![text("Hello")], None));
    let unmasked = [0x81, 0x05, 0x48, 0x65, 0x6c, 0x6c, 0x6f];
    assert_eq!(decode_every_way(&unmasked), (vec![], Some(Fault::Unmasked)));
    let parts = [masked(0x01, b"Hel"), masked(0x80, b"lo")].concat();
    assert_eq!(decode_every_way(&parts), (vec![text("Hello")], None));
    let ping = masked(0x89, b"Hello");
    let pinged = vec![Event::Ping(b"Hello".into())];
    assert_eq!(decode_every_way(&ping), (pinged, None));
    for bytes in [256, 65_536] {
        let payload: Vec<u8> = (0..bytes).map(|at| at as u8).collect();
        let frame = masked(0x82, &payload);
        let expected = (vec![message(false, &payload)], None);
        assert_eq!(decode_every_way(&frame), expected);
    }
}

#[test]
fn control_frames_come_between_fragments_and_before_the_message() {
    let stream = [
        masked(0x01, b"a\xc3"),
        masked(0x8A, b"pong"),
        masked(0x00, b""),
        masked(0x89, b""),
        masked(0x80, b"\xa4b"),
        masked(0x88, b"\x03\xe8bye"),
    ];
    let events = vec![
        Event::Pong,
        Event::Ping(vec![]),
        text("aäb"),
        Event::Close(Close::new(1000, "bye")),
    ];
    assert_eq!(decode_every_way(&stream.concat()), (events, None));
}

#[test]
fn empty_messages_and_fragments_are_messages() {
    let stream = [
        masked(0x81, b""),
        masked(0x02, b""),
        masked(0x00, b""),
        masked(0x80, b""),
        masked(0x01, b""),
        masked(0x80, b"a"),
    ];
    let events = vec![text(""), message(false, b""), text("a")];
    assert_eq!(decode_every_way(&stream.concat()), (events, None));
}

#[test]
fn what_breaks_the_protocol_is_refused_however_it_arrives() {
    let long = vec![b'x'; 65_000];
    let many = [masked(0x01, b"a"), masked(0x00, b"b").repeat(8)].concat();
    let faults: [(Vec<u8>, Fault); 18] = [
        (masked(0xC1, b"a"), Fault::ReservedBit),
        (masked(0xA1, b"a"), Fault::ReservedBit),
        (masked(0x83, b"a"), Fault::ReservedOpcode),
        (masked(0x8B, b"a"), Fault::ReservedOpcode),
        (masked(0x80, b"a"), Fault::Fragment),
        (
            [masked(0x01, b"a"), masked(0x81, b"b")].concat(),
            Fault::Fragment,
        ),
        (masked(0x09, b"a"), Fault::Control),
        (masked(0x89, &[0; 126]), Fault::Control),
        (vec![0x82, 0xFE, 0, 125, 0, 0, 0, 0], Fault::Length),
        (
            vec![0x82, 0xFF, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 0, 0, 0, 0],
            Fault::Length,
        ),
        (
            vec![0x82, 0xFF, 0x80, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0],
            Fault::Length,
        ),
        (
            vec![0x82, 0xFF, 0, 0, 0, 0, 0, 1, 0x11, 0x71, 0, 0, 0, 0],
            Fault::TooLong,
        ),
        (
            [masked(0x02, &long), masked(0x80, &long)].concat(),
            Fault::TooLong,
        ),
        (many, Fault::TooManyFragments),
        (masked(0x81, b"a\xff"), Fault::Utf8),
        (masked(0x81, b"a\xc3"), Fault::Utf8),
        (masked(0x88, b"\x03"), Fault::CloseCode),
        (masked(0x88, b"\x03\xe8\xff"), Fault::Utf8),
    ];
    for (bytes, fault) in faults {
        assert_eq!(decode_every_way(&bytes), (vec![], Some(fault)));
    }
}

#[test]
fn text_that_can_be_nothing_any_more_is_refused_before_its_frame_is_complete() {
    let mut early = masked(0x01, b"a\xff and more");
    early.truncate(9);
    assert_eq!(decode_every_way(&early), (vec![], Some(Fault::Utf8)));
}

#[test]
fn only_the_first_frame_of_a_message_says_that_it_is_compressed() {
    let stream = [
        masked(0x41, b"a\xff"),
        masked(0x80, b"b"),
        masked(0xC0, b""),
    ];
    let decoded = decode(
        &mut Decoder::new(true),
        &stream.concat(),
        std::iter::repeat(3),
    );
    let compressed = Event::Message(Received {
        is_text: true,
        is_compressed: true,
        payload: b"a\xffb".to_vec().into(),
    });
    assert_eq!(decoded, (vec![compressed], Some(Fault::ReservedBit)));
    let control = masked(0xC9, b"");
    let decoded = decode(&mut Decoder::new(true), &control, std::iter::repeat(9));
    assert_eq!(decoded.1, Some(Fault::ReservedBit));
}

#[test]
fn a_decoder_without_a_buffer_goes_on_where_it_stopped() {
    let payload: Vec<u8> = (0..20_000).map(|at| at as u8).collect();
    let stream = masked(0x82, &payload);
    let small = pool(4096);
    let mut decoder = Decoder::new(false);
    let mut input = &stream[..15_000];
    let stopped = decoder.next(&mut input, &LIMITS, (&small).into());
    assert_eq!(stopped, Err(Stopped::NoRoom));
    let taken = 15_000 - input.len();
    assert_eq!(taken, 8 + 4096, "what there was room for");
    let large = pool(1 << 20);
    let mut input = &stream[taken..];
    let event = decoder.next(&mut input, &LIMITS, (&large).into());
    assert_eq!(event, Ok(Some(message(false, &payload))));
    assert!(!decoder.is_within_message());
    assert_eq!(large.statistics().in_use_bytes, 0, "it was copied");
}

#[test]
fn a_length_that_is_announced_takes_no_memory() {
    let pool = pool(1 << 20);
    let mut decoder = Decoder::new(false);
    let stream = masked(0x82, &vec![0; 60_000]);
    let mut input = &stream[..100];
    let event = decoder.next(&mut input, &LIMITS, (&pool).into());
    assert_eq!(event, Ok(None));
    assert_eq!(pool.statistics().in_use_bytes, 4096);
    decoder.abandon();
    assert_eq!(pool.statistics().in_use_bytes, 0);
}
