//! Flatpath's echo: the handler runs on the one network thread, as a tokio task would.

use std::io;

use flatpath::{Limits, Server, SignalWatch};
use flatpath_http::{Http, Request};
use flatpath_websocket::{Message, Socket, WebSocket};

use super::super::serve::{Serve, announce, driver};

/// Runs until the process is ended.
///
/// # Errors
/// What the engine reports, or a driver that is none.
pub(in crate::candidates) fn run(serve: &Serve) -> io::Result<()> {
    let sockets = WebSocket::inline().deflate(None);
    let echo = |socket: &Socket, message: Message| {
        // A client that goes away in the middle is its own affair.
        let _ = socket.try_send(message);
    };
    let http = Http::inline(move |request: Request| sockets.accept(&request, echo));
    let limits = Limits {
        connections_max: serve.max_connections as usize,
        ..Limits::default()
    };
    let server = Server::new().driver(driver(&serve.driver)?);
    let server = server.network_threads(1).limits(limits);
    let signals = SignalWatch::begin().map_err(io::Error::other)?;
    let running = server.listen("127.0.0.1:0", http).start();
    let running = running.map_err(io::Error::other)?;
    announce("websocket", running.addresses()[0].address)?;
    signals.run(running).map_err(io::Error::other)
}
