//! Messages that take long to inflate.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use flate2::{Compress, Compression, FlushCompress};
use flatpath_test::{Conditions, each_seed};
use flatpath_websocket::{Handler, Message, Socket, WebSocket};

use crate::client::{Peer, serve};
use crate::frames::frame;

/// Notes whose message it handles.
struct Noting {
    number: usize,
    handled: Arc<Mutex<Vec<usize>>>,
}

impl Handler for Noting {
    fn message(&mut self, _: &Socket, message: Message) {
        assert_eq!(message.bytes().len(), LONG);
        self.handled.lock().expect("no panic").push(self.number);
    }
}

/// Beyond what one connection may inflate at a time.
const LONG: usize = 512 * 1024;

/// A message of so many zeros, which takes half a kilobyte.
fn bomb() -> Vec<u8> {
    let mut payload = Vec::with_capacity(4096);
    let mut compress = Compress::new(Compression::best(), false);
    let done = compress.compress_vec(&vec![0; LONG], &mut payload, FlushCompress::Sync);
    done.expect("there is room");
    payload.truncate(payload.len() - 4);
    frame(0xC2, &payload)
}

#[test]
fn sim_clients_whose_messages_take_long_to_inflate_take_turns() {
    const EACH: usize = 6;
    let bombs = bomb().repeat(EACH);
    each_seed(20, |seed| {
        for websocket in [WebSocket::inline(), WebSocket::pooled()] {
            let handled = Arc::new(Mutex::new(Vec::new()));
            let (next, notes) = (AtomicUsize::new(0), Arc::clone(&handled));
            let handler = move || Noting {
                number: next.fetch_add(1, Ordering::Relaxed),
                handled: Arc::clone(&notes),
            };
            let mut server = serve(Conditions::calm(seed), websocket, handler);
            let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
            let peers = [(); 2].map(|()| Peer::open_with(&mut server, offer).0);
            for peer in &peers {
                peer.send(&bombs);
            }
            let all = Arc::clone(&handled);
            server.run_until(|| all.lock().expect("no panic").len() == 2 * EACH);
            let handled = handled.lock().expect("no panic").clone();
            let streaks = handled.chunk_by(|a, b| a == b).map(<[usize]>::len);
            assert!(streaks.max() <= Some(2), "seed {seed}: {handled:?}");
            for peer in peers {
                peer.client.shutdown_write();
            }
        }
    });
}

#[test]
fn sim_what_waits_of_a_client_is_bounded_however_long_each_message_takes() {
    const COUNT: usize = 400;
    /// With a worker, waiting for it, in pages and in the socket.
    const WAITING_MAX: usize = 96 * 1024;
    let bomb = bomb();
    each_seed(5, |seed| {
        let handled = Arc::new(Mutex::new(Vec::new()));
        let notes = Arc::clone(&handled);
        let handler = move || Noting {
            number: 0,
            handled: Arc::clone(&notes),
        };
        let mut server = serve(Conditions::calm(seed), WebSocket::pooled(), handler);
        let offer = "Sec-WebSocket-Extensions: permessage-deflate\r\n";
        let (peer, _) = Peer::open_with(&mut server, offer);
        let before = server.statistics().received_bytes as usize;
        peer.send(&bomb.repeat(COUNT));
        for count in 1..=COUNT {
            let all = Arc::clone(&handled);
            server.run_until(|| all.lock().expect("no panic").len() >= count);
            let taken = server.statistics().received_bytes as usize - before;
            let waiting = taken.saturating_sub(count * bomb.len());
            assert!(waiting <= WAITING_MAX, "seed {seed}: {waiting} bytes wait");
        }
        peer.client.shutdown_write();
    });
}
