//! What a program does with the messages of a connection.

use crate::close::Close;
use crate::message::Message;
use crate::socket::Socket;

/// Answers the messages of one connection, one after the other, in their order. Each connection has
/// its own, so what it keeps belongs to that client.
///
/// A closure `|socket: &Socket, message: Message|` is one.
pub trait Handler: Send + 'static {
    /// The handshake is accepted. What is sent here comes first. Called within
    /// [`WebSocket::accept`](crate::WebSocket::accept), so it may block where that may.
    fn opened(&mut self, socket: &Socket) {
        let _ = socket;
    }

    /// A message has arrived. Of a [pooled](crate::WebSocket::pooled) handler a worker calls it, so
    /// it may block; of an [inline](crate::WebSocket::inline) one the network thread, so it must
    /// not.
    fn message(&mut self, socket: &Socket, message: Message);

    /// The connection has ended: called once, whatever ended it, and last. The network thread calls
    /// it in most cases, so it must not block.
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
pub(crate) struct Peer<H: Handler> {
    handler: H,
    pub(crate) socket: Socket,
}

impl<H: Handler> Peer<H> {
    pub(crate) fn new(handler: H, socket: Socket) -> Peer<H> {
        Peer { handler, socket }
    }

    pub(crate) fn opened(&mut self) {
        self.handler.opened(&self.socket);
    }

    pub(crate) fn message(&mut self, message: Message) {
        self.handler.message(&self.socket, message);
    }
}

impl<H: Handler> Drop for Peer<H> {
    fn drop(&mut self) {
        let close = self.socket.ended();
        self.handler.closed(&self.socket, &close);
    }
}
