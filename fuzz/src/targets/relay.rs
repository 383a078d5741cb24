//! Target `relay_handshake`: the first client of a relay, and a partner that names its token.
//!
//! Holds of every input, in pieces
//! - The relay says what its protocol says of such a first line, and nothing else.
//! - A client whose handshake is good and who waits is joined with its partner; then each hears the
//!   other's bytes unchanged.
//! - Nothing is left behind.

use flatpath_relay::Relay;

use crate::random::pieces;
use crate::simulated::{self, Peer};

/// Small, so that a line reaches over several.
const RECEIVE_BUFFER_BYTES: u32 = 256;

/// The original's bound on the first line.
const LINE_BYTES_MAX: usize = 1024;

/// What the first bytes of a client are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum First<'a> {
    Unfinished,
    Bad,
    /// A handshake with this token, and nothing behind it.
    Patient(&'a str),
    /// A handshake, and more at once.
    Impatient,
}

/// As the protocol describes it: split into words.
fn first(data: &[u8]) -> First<'_> {
    let Some(end) = data
        .iter()
        .take(LINE_BYTES_MAX)
        .position(|byte| *byte == b'\n')
    else {
        return if data.len() < LINE_BYTES_MAX {
            First::Unfinished
        } else {
            First::Bad
        };
    };
    let Ok(line) = std::str::from_utf8(&data[..end]) else {
        return First::Bad;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let token = match words[..] {
        ["please", "relay", token] => token,
        ["please", "relay", token, "for", "side", side]
            if side.len() == 16 && side.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) =>
        {
            token
        }
        _ => return First::Bad,
    };
    if token.len() != 64 || !token.chars().all(|c| c.is_ascii_hexdigit()) {
        First::Bad
    } else if data.len() > end + 1 {
        First::Impatient
    } else {
        First::Patient(token)
    }
}

pub(crate) fn run(data: &[u8]) {
    let mut server = simulated::serve(Relay::new(), RECEIVE_BUFFER_BYTES);
    let mut client = Peer::connect(&server);
    for piece in pieces(data) {
        client.say(&mut server, piece);
    }
    client.listen(&mut server, 6);
    match first(data) {
        First::Patient(token) => {
            assert_eq!(client.heard, b"", "it waits");
            join(&mut server, client, &token.to_ascii_uppercase());
        }
        First::Unfinished => hears(&mut server, client, b""),
        First::Bad => hears(&mut server, client, b"bad handshake\n"),
        First::Impatient => hears(&mut server, client, b"impatient\n"),
    }
    simulated::end(server);
}

fn hears(server: &mut flatpath::simulation::SimulatedServer, mut client: Peer, words: &[u8]) {
    client.finish(server);
    let heard = String::from_utf8_lossy(&client.heard).into_owned();
    assert_eq!(heard, String::from_utf8_lossy(words));
}

fn join(server: &mut flatpath::simulation::SimulatedServer, mut client: Peer, token: &str) {
    let mut partner = Peer::connect(server);
    partner.say(server, format!("please relay {token}\n").as_bytes());
    client.say(server, b"words of the first");
    partner.say(server, b"words of the second");
    for _ in 0..6 {
        client.listen(server, 2);
        partner.listen(server, 2);
    }
    assert_eq!(client.heard, b"ok\nwords of the second");
    assert_eq!(partner.heard, b"ok\nwords of the first");
    client.finish_sending();
    partner.finish(server);
    client.finish(server);
}
