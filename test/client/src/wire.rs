//! What a client of a test talks over.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long one wait for the server takes at most.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes asked of a socket at once.
const READ_BYTES: usize = 64 * 1024;

/// A connection to a server, as bytes. Waits have a deadline, after which they panic.
pub trait Wire {
    /// Sends all of `bytes`; less where the server has closed the connection.
    fn send(&mut self, bytes: &[u8]);

    /// Waits for what comes next. `None`: the connection has ended, properly or not.
    fn receive(&mut self) -> Option<Vec<u8>>;
}

impl<W: Wire + ?Sized> Wire for &mut W {
    fn send(&mut self, bytes: &[u8]) {
        (**self).send(bytes);
    }

    #[track_caller]
    fn receive(&mut self) -> Option<Vec<u8>> {
        (**self).receive()
    }
}

/// A TCP connection, with a minute for each wait.
#[derive(Debug)]
pub struct Socket(TcpStream);

impl Socket {
    /// Connects.
    ///
    /// # Panics
    /// When that fails.
    #[must_use]
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Socket {
        let stream = TcpStream::connect_timeout(&address, PATIENCE);
        let stream = stream.unwrap_or_else(|error| panic!("connect to {address}: {error}"));
        stream.set_nodelay(true).expect("TCP has the option");
        for set in [TcpStream::set_read_timeout, TcpStream::set_write_timeout] {
            set(&stream, Some(PATIENCE)).expect("a socket has the option");
        }
        Socket(stream)
    }
}

impl Wire for Socket {
    fn send(&mut self, bytes: &[u8]) {
        if let Err(error) = self.0.write_all(bytes) {
            let is_stuck = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
            assert!(!is_stuck, "the server did not take {} bytes", bytes.len());
        }
    }

    #[track_caller]
    fn receive(&mut self) -> Option<Vec<u8>> {
        let mut bytes = vec![0; READ_BYTES];
        loop {
            match self.0.read(&mut bytes) {
                Ok(0) => return None,
                Ok(count) => {
                    bytes.truncate(count);
                    return Some(bytes);
                }
                Err(error) => match error.kind() {
                    ErrorKind::Interrupted => {}
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                        panic!("the server sent nothing for {PATIENCE:?}")
                    }
                    _ => return None,
                },
            }
        }
    }
}
