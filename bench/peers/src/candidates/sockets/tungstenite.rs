//! The same on one tokio thread.

use std::io;
use std::net::Ipv4Addr;

use futures_util::{SinkExt, StreamExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task;

use super::super::serve::announce;

/// As much as the kernel allows: all clients come at once.
const BACKLOG: u32 = 65_535;

/// Runs until the process is ended.
///
/// # Errors
/// If the runtime or the listener cannot be made, or accept fails for good.
pub(in crate::candidates) fn run() -> io::Result<()> {
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
