//! Echoes of WebSocket messages: ours, on the network thread or by workers, and tokio-tungstenite
//! on one thread. All are without compression, and send each answer at once.

use std::io;
use std::net::Ipv4Addr;

use flatpath::{Limits, Server, SignalWatch};
use flatpath_http::{Http, Request};
use flatpath_websocket::{Message, Socket, WebSocket};
use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task;

use super::serve::{Serve, announce, driver};

/// As much as the kernel allows: all clients come at once.
const BACKLOG: u32 = 65_535;

/// Ours: the handler runs where `sockets` says; on the one network thread it does as a tokio task
/// would. It runs until the process is ended.
///
/// # Errors
/// What the engine reports, or a driver that is none.
pub(super) fn ours(serve: &Serve, sockets: WebSocket) -> io::Result<()> {
    let sockets = sockets.deflate(None);
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

/// The same on one tokio thread.
///
/// # Errors
/// If the runtime or the listener cannot be made, or accept fails for good.
pub(super) fn tungstenite() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener = socket.listen(BACKLOG)?;
        announce("websocket", listener.local_addr()?)?;
        loop {
            let (socket, _) = listener.accept().await?;
            socket.set_nodelay(true)?;
            task::spawn(echo(socket));
        }
    })
}

async fn echo(socket: TcpStream) {
    let Ok(mut socket) = tokio_tungstenite::accept_async(socket).await else {
        return;
    };
    // A client that goes away in the middle is its own affair.
    while let Some(Ok(message)) = socket.next().await {
        let is_data = message.is_text() || message.is_binary();
        if is_data && socket.send(message).await.is_err() {
            return;
        }
    }
}
