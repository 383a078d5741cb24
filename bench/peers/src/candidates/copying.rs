//! A tokio server that receives each message into a buffer of its own and copies it into the
//! consumer's shared memory, or reads into the shared memory itself.
//!
//! The consumers' side is the same as ours: the same handshake, rings, bells and consumer. It
//! trusts its consumers, which ours does not.

use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;

use flatpath::lock::Lock;
use flatpath_messages::layout::announced;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe::Receiver;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::serve::announce;
use super::share::{Share, attach};
use crate::loads::ingest::{FLOWS, MESSAGE_BYTES};

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Slots of each consumer: as much memory as a window of ours has pages for.
const SLOTS: u32 = 16;
/// What one read takes: a page of ours.
const READ_BYTES: usize = 64 << 10;

/// How often the payload is copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    /// From a buffer of the server.
    Once,
    /// The kernel writes into the shared memory.
    Never,
}

struct Attached {
    share: Lock<Share>,
    returned: Notify,
}

/// Serves until all producers are gone. One thread is tokio's current-thread runtime.
pub(super) fn run(socket: &Path, threads: usize, copies: Copies) -> io::Result<()> {
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    announce("ingest", listener.local_addr()?)?;
    let shares = attach(socket, FLOWS, SLOTS, MESSAGE_BYTES).map_err(io::Error::other)?;
    let runtime = match threads {
        1 => tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?,
        threads => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_all()
            .build()?,
    };
    runtime.block_on(async {
        let listener = TcpListener::from_std(listener)?;
        let mut tasks = Vec::new();
        for (number, (share, bell)) in (0..).zip(shares) {
            let attached = Arc::new(Attached {
                share: Lock::new(share),
                returned: Notify::new(),
            });
            let (stream, _) = listener.accept().await?;
            tokio::spawn(take_returns(Arc::clone(&attached), bell));
            tasks.push(tokio::spawn(receive(stream, attached, number, copies)));
        }
        for task in tasks {
            task.await?.map_err(io::Error::other)?;
        }
        Ok(())
    })
}

async fn receive(
    mut stream: TcpStream,
    attached: Arc<Attached>,
    producer: u32,
    copies: Copies,
) -> Result<(), Failure> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).await.is_err() {
            return Ok(());
        }
        let length = u32::from_be_bytes(length) as usize;
        let slot = loop {
            let returned = attached.returned.notified();
            if let Some(slot) = attached.share.lock().free.pop_front() {
                break slot;
            }
            returned.await;
        };
        let mut at = 0;
        while at < length {
            let count = if copies == Copies::Never {
                stream.readable().await?;
                match stream.try_read(&mut attached.share.lock().slot(slot)[at..length]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                    read => read?,
                }
            } else {
                let most = READ_BYTES.min(length - at);
                let count = stream.read(&mut buffer[..most]).await?;
                attached.share.lock().slot(slot)[at..at + count].copy_from_slice(&buffer[..count]);
                count
            };
            if count == 0 {
                return Ok(());
            }
            at += count;
        }
        attached.share.lock().deliver(slot, producer);
    }
}

async fn take_returns(attached: Arc<Attached>, bell: OwnedFd) {
    let Ok(mut bell) = Receiver::from_owned_fd(bell) else {
        return;
    };
    let mut bytes = [0; 4096];
    while let Ok(count) = bell.read(&mut bytes).await
        && count > 0
    {
        attached
            .share
            .lock()
            .take_returns(announced(&bytes[..count]));
        attached.returned.notify_one();
    }
}
