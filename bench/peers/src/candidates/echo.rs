//! An echo on one tokio thread: the yardstick of the burst of clients.

use std::io;
use std::net::Ipv4Addr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Builder;
use tokio::task;

use super::serve::announce;

/// As much as the kernel allows: the burst is to test the accept path, not the queue before it.
const BACKLOG: u32 = 65_535;
/// One read of the burst's 128 bytes, with room.
const BUFFER_BYTES: usize = 1024;

/// Runs until the process is ended.
///
/// # Errors
/// If the runtime or the listener cannot be made, or accept fails for good.
pub(super) fn run() -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.bind((Ipv4Addr::LOCALHOST, 0).into())?;
        let listener: TcpListener = socket.listen(BACKLOG)?;
        announce("echo", listener.local_addr()?)?;
        loop {
            let (socket, _) = listener.accept().await?;
            task::spawn(echo(socket));
        }
    })
}

async fn echo(mut socket: TcpStream) {
    let mut buffer = [0; BUFFER_BYTES];
    // A client that goes away in the middle is its own affair.
    while let Ok(count @ 1..) = socket.read(&mut buffer).await {
        if socket.write_all(&buffer[..count]).await.is_err() {
            return;
        }
    }
}
