//! A client of a framed protocol: it sends and reads messages with the framing of the server.

use std::net::SocketAddr;

use flatpath::framing::Framing;
use flatpath_test_client::{Socket, Wire};

use crate::Client;
use crate::server::TestServer;

/// A client that sends messages and reads messages, over a simulated connection or a socket.
///
/// ```
/// use flatpath::framing::{Framed, LengthPrefix, Next};
/// use flatpath_test::{Conditions, TestServer, each_seed};
///
/// const FRAMING: fn() -> LengthPrefix = || LengthPrefix::u16(1000);
///
/// each_seed(20, |seed| {
///     let echo = Framed::inline("echo", FRAMING(), |(), io, message: &[u8]| {
///         io.write(&(message.len() as u16).to_be_bytes())?;
///         io.write(message)?;
///         Ok(Next::Message)
///     });
///     let mut server = TestServer::new(Conditions::rough(seed), echo);
///     let mut client = server.connect_messages(FRAMING());
///     client.send("hello");
///     assert_eq!(client.read(&mut server), b"hello");
/// });
/// ```
pub struct MessageClient<C, F> {
    connection: C,
    framing: F,
    received: Vec<u8>,
}

flatpath::opaque_debug! {
    impl[C, F] MessageClient<C, F> as "MessageClient";
}

impl<C, F: Framing> MessageClient<C, F> {
    /// A client over a connection of which nothing is read yet.
    pub fn new(connection: C, framing: F) -> Self {
        MessageClient {
            connection,
            framing,
            received: Vec::new(),
        }
    }

    /// The connection, for bytes of the test's own.
    pub fn connection(&self) -> &C {
        &self.connection
    }

    #[track_caller]
    fn encoded(&self, message: impl AsRef<[u8]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let encoded = self.framing.encode(message.as_ref(), &mut bytes);
        encoded.unwrap_or_else(|error| panic!("the message cannot be sent: {error}"));
        bytes
    }

    /// The next message, of what `receive` brings. `None`: the connection has ended between two.
    #[track_caller]
    fn next(&mut self, mut receive: impl FnMut(&mut C) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
        loop {
            match self.framing.first(&self.received) {
                Err(too_long) => panic!("the server sent {too_long}"),
                Ok(Some(frame)) => {
                    let (message, bytes) = (frame.message.to_vec(), frame.bytes);
                    self.received.drain(..bytes);
                    return Some(message);
                }
                Ok(None) => {}
            }
            match receive(&mut self.connection) {
                Some(bytes) => self.received.extend(bytes),
                None if self.received.is_empty() => return None,
                None => {
                    let part = self.received.escape_ascii();
                    panic!("the connection ended within a message: \"{part:.500}\"");
                }
            }
        }
    }
}

/// What a read brought, where a message was due.
#[track_caller]
fn message(read: Option<Vec<u8>>) -> Vec<u8> {
    read.unwrap_or_else(|| panic!("the connection has ended, and a message was due"))
}

/// What a read brought, where the end was due.
#[track_caller]
fn end(read: Option<Vec<u8>>) {
    if let Some(message) = read {
        let message = message.escape_ascii();
        panic!("a message came where the end was due: \"{message:.500}\"");
    }
}

impl<F: Framing> MessageClient<Client, F> {
    /// Sends a message.
    ///
    /// # Panics
    /// When the framing cannot carry it.
    #[track_caller]
    pub fn send(&mut self, message: impl AsRef<[u8]>) {
        self.connection.write(&self.encoded(message));
    }

    /// The next message from the server.
    ///
    /// # Panics
    /// When none comes, as [`TestServer::run_until`], or the connection ends before.
    #[track_caller]
    pub fn read(&mut self, server: &mut TestServer) -> Vec<u8> {
        message(self.next(|client| server.read_some(client)))
    }

    /// Waits for the end of the connection.
    ///
    /// # Panics
    /// When it does not come, or a message does.
    #[track_caller]
    pub fn read_end(&mut self, server: &mut TestServer) {
        end(self.next(|client| server.read_some(client)));
    }
}

impl<F: Framing> MessageClient<Socket, F> {
    /// Connects to a server on a real address.
    ///
    /// # Panics
    /// When that fails.
    #[track_caller]
    pub fn connect(address: SocketAddr, framing: F) -> Self {
        MessageClient::new(Socket::connect(address), framing)
    }

    /// Sends a message.
    ///
    /// # Panics
    /// When the framing cannot carry it.
    #[track_caller]
    pub fn send(&mut self, message: impl AsRef<[u8]>) {
        let bytes = self.encoded(message);
        self.connection.send(&bytes);
    }

    /// The next message from the server.
    ///
    /// # Panics
    /// When none comes within a minute, or the connection ends before.
    #[track_caller]
    pub fn read(&mut self) -> Vec<u8> {
        message(self.next(Socket::receive))
    }

    /// Waits for the end of the connection.
    ///
    /// # Panics
    /// When it does not come within a minute, or a message does.
    #[track_caller]
    pub fn read_end(&mut self) {
        end(self.next(Socket::receive));
    }
}
