//! What a program does with the messages of a connection.

use crate::close::Close;
use crate::message::Message;
use crate::socket::Socket;

/// Answers the messages of one connection, one after the other, in their order. Each connection has
/// its own, so what it keeps belongs to that client.
///
/// A closure `|socket: &Socket, message: Message|` is one.
///
/// ```
/// use flatpath_websocket::{Close, Handler, Message, Socket};
///
/// /// Counts the messages of one client.
/// #[derive(Default)]
/// struct Count(u64);
///
/// impl Handler for Count {
///     fn opened(&mut self, socket: &Socket) {
///         let _ = socket.send("welcome");
///     }
///
///     fn message(&mut self, socket: &Socket, _: Message) {
///         self.0 += 1;
///         let _ = socket.send(self.0.to_string());
///     }
///
///     fn closed(&mut self, _: &Socket, close: &Close) {
///         println!("{} messages, then {}", self.0, close.code);
///     }
/// }
/// # let _ = Count::default();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not answer the messages of a WebSocket",
    label = "not a handler",
    note = "a closure `|socket: &Socket, message: Message|` is one: its arguments have these \
            types, and it returns nothing"
)]
pub trait Handler: Send + 'static {
    /// The handshake is over, and its answer on the way to the client. What is sent here comes
    /// first. Called where messages are, and before the first of them: of a
    /// [pooled](crate::WebSocket::pooled) handler by a worker, so it may block.
    fn opened(&mut self, socket: &Socket) {
        let _ = socket;
    }

    /// A message has arrived. Of a [pooled](crate::WebSocket::pooled) handler a worker calls it, so
    /// it may block; of an [inline](crate::WebSocket::inline) one the network thread, so it must
    /// not.
    fn message(&mut self, socket: &Socket, message: Message);

    /// The connection has ended: called once, whatever ended it, and last, of each handler that was
    /// opened. A worker calls it, or the thread that drops the socket of a server that has ended;
    /// so it may block, also of an inline handler. A drain waits for it.
    ///
    /// `close` is what the client sent; or what it was sent where it broke the protocol, had to
    /// make room for others, or the server shut down; or 1006 where the connection broke.
    fn closed(&mut self, socket: &Socket, close: &Close) {
        let _ = (socket, close);
    }
}

impl<F: FnMut(&Socket, Message) + Send + 'static> Handler for F {
    fn message(&mut self, socket: &Socket, message: Message) {
        self(socket, message);
    }
}

/// A handler with its socket. Dropped, wherever that is, the handler learns that its connection has
/// ended.
pub(crate) struct Peer {
    handler: Box<dyn Handler>,
    pub(crate) socket: Socket,
    pub(crate) is_opened: bool,
}

impl Peer {
    pub(crate) fn new(handler: impl Handler, socket: Socket) -> Peer {
        Peer {
            handler: Box::new(handler),
            socket,
            is_opened: false,
        }
    }

    /// Tells the handler that it is open, unless it knows. False: the connection has ended before,
    /// and the handler learns of none.
    pub(crate) fn open(&mut self) -> bool {
        if !self.is_opened && !self.socket.is_closed() {
            self.is_opened = true;
            self.handler.opened(&self.socket);
        }
        self.is_opened
    }

    pub(crate) fn message(&mut self, message: Message) {
        self.handler.message(&self.socket, message);
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let close = self.socket.ended();
        if self.is_opened {
            // It may be dropped by another panic, which a second one would make the last.
            flatpath::contain(|| self.handler.closed(&self.socket, &close));
        }
    }
}
