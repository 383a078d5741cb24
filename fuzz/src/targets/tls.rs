//! Target `tls_records`: what a client with TLS, or who claims to be one, sends to an echo.
//!
//! The first byte of the input is how it begins: bit 0 the version, bit 1 whether ciphers are kept
//! ready or made anew for each record, bit 2 whether a handshake is made at all. Then come steps,
//! each a byte, and a length of one byte with as many bytes:
//!
//! | step | with its bytes |
//! |---|---|
//! | `s` | says them, in a record |
//! | `p` | says them, in a record in two pieces, the first as long as the first byte says |
//! | `k` | nothing; has its keys changed, where the version can |
//! | `c` | nothing; says that it says no more |
//! | `x` | says them, in a record to a byte of which, by the second, the first is added |
//! | `d` | says them, in a record that gets lost |
//! | `r` | sends them as they are |
//!
//! Holds of every input
//! - The echo is what was said before the first record that was changed, lost or not sealed, to its
//!   last byte; of what comes after it there is no echo.
//! - What was changed ends the connection. So does the end of what the client says.
//! - No memory is missing in the end.

use std::sync::{Arc, LazyLock};

use flatpath::simulation::{Conditions, SimulatedServer};
use flatpath::tls::TlsConfig;
use flatpath_echo::Echo;
use flatpath_testkit::Issued;
use flatpath_testkit::tls::{TlsClient, VERSIONS, client_config};

use crate::simulated::{Peer, end, serve_in};

static IDENTITY: LazyLock<Issued> = LazyLock::new(Issued::for_localhost);

/// Turns in which a handshake is made, its flights by workers.
const HANDSHAKE_ROUNDS: usize = 8;

pub(crate) fn run(data: &[u8]) {
    let Some((&how, mut steps)) = data.split_first() else {
        return;
    };
    let conditions = Conditions {
        tls: Some(
            TlsConfig::from_pem(IDENTITY.certificate.as_bytes(), IDENTITY.key.as_bytes())
                .expect("a pair"),
        ),
        ciphers_cached_max: if how & 2 == 0 { usize::MAX } else { 0 },
        ..Conditions::calm(1)
    };
    let mut server = serve_in(conditions, Echo, 8 * 1024);
    let version = VERSIONS[usize::from(how & 1)];
    let config = Arc::new(client_config(&IDENTITY.certificate, None, &[version]));
    let shakes = how & 4 == 0;
    let mut talker = Talker {
        peer: Peer::connect(&server),
        tls: TlsClient::new(&config),
        owed: Vec::new(),
        shakes,
        is_sound: shakes,
        has_closed: false,
    };
    if shakes {
        (0..HANDSHAKE_ROUNDS).for_each(|_| talker.pass(&mut server));
        assert!(!talker.tls.tls.is_handshaking(), "there is no handshake");
    }
    while let Some(step) = next(&mut steps) {
        talker.step(&mut server, step);
    }
    talker.finish(server);
}

/// A step and its bytes, where all of it is there.
fn next<'a>(steps: &mut &'a [u8]) -> Option<(u8, &'a [u8])> {
    let (&[step, length], rest) = steps.split_first_chunk()?;
    let (bytes, rest) = rest.split_at_checked(usize::from(length))?;
    *steps = rest;
    Some((step, bytes))
}

struct Talker {
    peer: Peer,
    tls: TlsClient,
    /// What was said and will come back.
    owed: Vec<u8>,
    shakes: bool,
    /// Nothing was changed so far.
    is_sound: bool,
    has_closed: bool,
}

impl Talker {
    fn step(&mut self, server: &mut SimulatedServer, (step, bytes): (u8, &[u8])) {
        let is_open = !self.peer.is_over() && self.tls.broken.is_none();
        if !is_open {
            return;
        }
        match (step, bytes) {
            (b's', bytes) => {
                let record = self.seal(bytes);
                self.count(bytes);
                self.peer.say(server, &record);
            }
            (b'p', [at, ..]) => {
                let record = self.seal(bytes);
                self.count(bytes);
                let (first, second) = record.split_at(usize::from(*at).min(record.len()));
                self.peer.say(server, first);
                self.peer.say(server, second);
            }
            (b'k', _) if !self.has_closed => {
                // TLS 1.2 has no other keys.
                let _ = self.tls.tls.refresh_traffic_keys();
            }
            (b'c', _) if !self.tls.tls.is_handshaking() => {
                self.tls.tls.send_close_notify();
                self.has_closed = true;
            }
            (b'x', [add, at, ..]) => {
                let mut record = self.seal(bytes);
                if record.is_empty() || *add == 0 {
                    return;
                }
                // Not the length: what follows would be the rest of it.
                let places = record.len() - 5;
                let place = 5 + usize::from(*at) % places;
                record[place] = record[place].wrapping_add(*add);
                self.breaks();
                self.peer.say(server, &record);
            }
            (b'd', [_, ..]) => {
                let record = self.seal(bytes);
                if !record.is_empty() {
                    self.breaks();
                }
            }
            (b'r', [_, ..]) => {
                self.breaks();
                self.peer.say(server, bytes);
            }
            _ => {}
        }
        self.pass(server);
    }

    /// The record of some bytes; empty where nothing can be said.
    fn seal(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.has_closed || self.tls.tls.is_handshaking() || bytes.is_empty() {
            return Vec::new();
        }
        self.tls.say(bytes);
        self.tls.take()
    }

    fn count(&mut self, bytes: &[u8]) {
        if self.is_sound && !self.has_closed {
            self.owed.extend(bytes);
        }
    }

    /// From here on nothing comes back. After its end a client may send what it likes.
    fn breaks(&mut self) {
        self.is_sound &= self.has_closed;
    }

    /// Lets each side hear what the other has to say.
    fn pass(&mut self, server: &mut SimulatedServer) {
        let said = self.tls.take();
        if self.shakes {
            self.peer.say(server, &said);
        }
        let heard = std::mem::take(&mut self.peer.heard);
        self.tls.feed(&heard);
    }

    fn finish(mut self, mut server: SimulatedServer) {
        let was_sound = self.is_sound;
        if was_sound && !self.has_closed {
            self.tls.tls.send_close_notify();
        }
        self.pass(&mut server);
        self.peer.finish(&mut server);
        let heard = std::mem::take(&mut self.peer.heard);
        self.tls.feed(&heard);
        match was_sound {
            true => assert_eq!(self.tls.heard, self.owed, "another echo"),
            // What was on its way back may be lost where the connection is cut.
            false => assert!(self.owed.starts_with(&self.tls.heard), "another echo"),
        }
        end(server);
    }
}
