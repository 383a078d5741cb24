//! Target `ingest_handshake`: what a consumer says to attach, what it hears, and what a producer
//! sends: a token perhaps, then messages.
//!
//! The first byte of the input chooses: `h` a hello, `w` a welcome, anything else a producer.
//!
//! Holds of every input
//! - A packet that is understood and written again has the same bytes, but for those that mean
//!   nothing.
//! - The messages and tokens of a stream are those of a reading that has everything in one slice,
//!   however the stream arrives, and a message above the limit ends it.

use flatpath_messages::framing::{self, Decoder, TOKEN_MARK, TooLong};
use flatpath_messages::handshake::{
    HELLO_BYTES, Misunderstanding, REGIONS_MAX, WELCOME_BYTES, Welcome, hello, read_hello,
};
use flatpath_messages::layout::ENTRIES_MAX;

use crate::random::pieces;

/// The longest message here, in bytes.
const MESSAGE_BYTES_MAX: u32 = 300;

pub(crate) fn run(data: &[u8]) {
    match data.split_first() {
        Some((b'h', packet)) => check_hello(packet),
        Some((b'w', packet)) => check_welcome(packet),
        Some((_, stream)) => check_stream(stream),
        None => {}
    }
}

fn check_hello(packet: &[u8]) {
    match read_hello(packet) {
        Ok(token) => {
            let written = hello(token);
            assert_eq!(packet.len(), HELLO_BYTES);
            // Bytes 6 and 7 are for later versions.
            assert_eq!((&packet[..6], &packet[8..]), (&written[..6], &written[8..]));
        }
        Err(Misunderstanding::Version(version)) => {
            assert_eq!(packet[4..6], version.to_le_bytes());
            assert_eq!(packet.len(), HELLO_BYTES);
        }
        Err(Misunderstanding::Malformed) => {
            let is_ours = packet.len() == HELLO_BYTES && packet[..4] == *b"FPMC";
            assert!(!is_ours, "a hello of some version is malformed");
        }
        Err(Misunderstanding::Refused(status)) => panic!("a consumer refuses: {status:?}"),
    }
}

fn check_welcome(packet: &[u8]) {
    let Ok(welcome) = Welcome::read(packet) else {
        return;
    };
    assert!(welcome.entries.is_power_of_two() && welcome.entries <= ENTRIES_MAX);
    assert!(welcome.regions.len() <= REGIONS_MAX);
    let written = welcome.packet();
    assert_eq!(packet.len(), written.len());
    // Bytes 28 to 39 are for later versions.
    assert_eq!(packet[..28], written[..28]);
    assert_eq!(packet[WELCOME_BYTES..], written[WELCOME_BYTES..]);
    assert_eq!(Welcome::read(&written), Ok(welcome));
}

/// What a producer has said.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Token(u64),
    Message(Vec<u8>),
    /// A message whose end has not come.
    Part(Vec<u8>),
    TooLong(u32),
}

fn check_stream(stream: &[u8]) {
    let (expected, is_between) = at_once(stream);
    assert_eq!(
        decoded(std::iter::once(stream)),
        (expected.clone(), is_between),
        "as one piece"
    );
    assert_eq!(
        decoded(pieces(stream)),
        (expected.clone(), is_between),
        "in pieces"
    );

    // Written again, without the signs of life, it is the same.
    let mut written = Vec::new();
    for said in &expected {
        match said {
            Said::Token(token) => written.extend(framing::naming(*token)),
            Said::Message(message) => {
                written.extend(framing::length(message.len()).expect("it is short"));
                written.extend(message);
            }
            Said::Part(_) | Said::TooLong(_) => return,
        }
    }
    assert_eq!(at_once(&written), (expected, true));
}

/// A reading of the whole stream, from the description alone; whether it may end there.
fn at_once(stream: &[u8]) -> (Vec<Said>, bool) {
    let (mut all, mut rest) = (Vec::new(), stream);
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length);
        if length == TOKEN_MARK {
            let Some((token, behind)) = behind.split_first_chunk::<8>() else {
                return (all, false);
            };
            all.push(Said::Token(u64::from_be_bytes(*token)));
            rest = behind;
        } else if length > MESSAGE_BYTES_MAX {
            all.push(Said::TooLong(length));
            return (all, false);
        } else if let Some((message, behind)) = behind.split_at_checked(length as usize) {
            if length > 0 {
                all.push(Said::Message(message.to_vec()));
            }
            rest = behind;
        } else {
            all.push(Said::Part(behind.to_vec()));
            return (all, false);
        }
    }
    (all, rest.is_empty())
}

fn decoded<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Said>, bool) {
    let (mut decoder, mut all) = (Decoder::default(), Vec::new());
    for piece in pieces {
        let mut input = piece;
        loop {
            let (consumed, part) = match decoder.next(input, MESSAGE_BYTES_MAX) {
                Ok(next) => next,
                Err(TooLong { message_bytes }) => {
                    all.push(Said::TooLong(message_bytes));
                    return (all, false);
                }
            };
            let (front, behind) = input.split_at(consumed);
            input = behind;
            match part {
                framing::Part::Nothing => break,
                framing::Part::Token { token } => all.push(Said::Token(token)),
                framing::Part::Begin { .. } => all.push(Said::Part(Vec::new())),
                framing::Part::Payload { last } => {
                    let Some(Said::Part(message)) = all.last_mut() else {
                        panic!("payload of no message");
                    };
                    message.extend_from_slice(front);
                    if last {
                        let message = std::mem::take(message);
                        all.pop();
                        all.push(Said::Message(message));
                    }
                }
            }
        }
        assert!(input.is_empty(), "the decoder leaves something");
    }
    (all, decoder.is_between_messages())
}
