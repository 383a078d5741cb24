//! Sockets on the simulated server: messages in order, ends, deadlines, slow readers. Each test
//! runs with many seeds, which split, delay and repeat what they may.

#[cfg(feature = "deflate")]
mod bombs;
mod broadcast;
mod client;
mod endings;
mod frames;
#[path = "../../../http/tests/it/h2_client.rs"]
#[expect(dead_code, reason = "what tests of HTTP use")]
mod h2_client;
mod messages;
mod owners;
mod sending;
mod streams;

use std::sync::{Arc, Mutex};

use flatpath_websocket::{Close, Handler, Message, Socket};

/// Sends back what it gets, and notes how its connection ended.
#[derive(Clone, Default)]
struct Echo {
    closed: Arc<Mutex<Vec<Close>>>,
}

impl Handler for Echo {
    fn message(&mut self, socket: &Socket, message: Message) {
        // A socket that is closing takes nothing.
        let _ = socket.send(message);
    }

    fn closed(&mut self, _: &Socket, close: &Close) {
        self.closed.lock().expect("no panic").push(close.clone());
    }
}

impl Echo {
    /// A handler for each connection, all with the same notes.
    fn factory(&self) -> impl Fn() -> Echo + Send + Sync + use<> {
        let echo = self.clone();
        move || echo.clone()
    }

    /// The codes with which connections have ended.
    fn codes(&self) -> Vec<u16> {
        let closed = self.closed.lock().expect("no panic");
        closed.iter().map(|close| close.code).collect()
    }
}
