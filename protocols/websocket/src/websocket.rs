//! The kind of sockets that a program accepts: their handler, limits and options.

use std::sync::Arc;

use flatpath::Successor;
use flatpath::lock::Lock;
use flatpath_http::http::Version;
use flatpath_http::{Request, Response, tunnel, upgrade};

use crate::codec::{Codec, Inflater, Reader};
use crate::conversation::{Place, Rules};
#[cfg(feature = "deflate")]
use crate::deflate::{self, Deflate, Deflating, Inflating};
use crate::handler::{Handler, Peer};
use crate::handshake::{self, Rejection};
use crate::limits::Limits;
use crate::protocol::Sockets;
use crate::session::{Desk, Open, Session};
use crate::socket::Socket;
use crate::stream::StreamSocket;

/// Sockets of one kind: where their messages are handled, their limits and options. Made once and
/// used for every request; a clone is the same.
///
/// ```
/// use flatpath_http::{Request, Router};
/// use flatpath_websocket::{Limits, Message, Socket, WebSocket};
///
/// let sockets = WebSocket::pooled().limits(Limits {
///     message_bytes_max: 64 * 1024,
///     ..Limits::default()
/// });
/// let echo = |socket: &Socket, message: Message| {
///     let _ = socket.send(message); // an error means that the client is gone
/// };
/// let router: Router =
///     Router::new().get("/echo", move |request: Request| sockets.accept(&request, echo));
/// # let _ = router;
/// ```
#[derive(Clone)]
pub struct WebSocket {
    place: Place,
    limits: Limits,
    subprotocols: Arc<[&'static str]>,
    #[cfg(feature = "deflate")]
    deflate: Option<Arc<deflate::Shared>>,
    successor: Successor<Sockets>,
}

flatpath::opaque_debug! {
    impl[] WebSocket as "WebSocket";
}

/// What is negotiated in a handshake.
#[derive(Default)]
struct Extension {
    codec: Codec,
    inflater: Inflater,
    header: Option<flatpath_http::http::HeaderValue>,
}

impl WebSocket {
    /// Messages are handled by workers: a handler may block.
    pub fn pooled() -> WebSocket {
        WebSocket::new(Place::Pooled)
    }

    /// Messages are handled on the network thread: a handler never blocks, and takes no more than a
    /// few microseconds.
    pub fn inline() -> WebSocket {
        WebSocket::new(Place::Inline)
    }

    fn new(place: Place) -> WebSocket {
        let limits = Limits::default();
        WebSocket {
            place,
            limits,
            subprotocols: Arc::default(),
            #[cfg(feature = "deflate")]
            deflate: Some(deflate::Shared::new(Deflate::default())),
            successor: Successor::new(Sockets::new(Rules { place, limits })),
        }
    }

    /// Other limits than [`Limits::default`].
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> WebSocket {
        self.limits = limits;
        let place = self.place;
        self.successor = Successor::new(Sockets::new(Rules { place, limits }));
        self
    }

    /// The subprotocols that the handler speaks, the best first: the first that a client offers is
    /// chosen. By default none is.
    #[must_use]
    pub fn subprotocols(mut self, names: &[&'static str]) -> WebSocket {
        self.subprotocols = names.into();
        self
    }

    /// How messages are compressed for clients that offer it; `None`: they are not.
    #[cfg(feature = "deflate")]
    #[must_use]
    pub fn deflate(mut self, options: Option<Deflate>) -> WebSocket {
        self.deflate = options.map(deflate::Shared::new);
        self
    }

    /// The answer to a handshake, from a handler of HTTP: from then on the connection is a socket,
    /// or over HTTP/2 its stream (RFC 8441), and `handler` gets its messages. More headers may be
    /// added to it.
    ///
    /// The origin of the request is the program's to check: browsers let any page open sockets to
    /// any server, with the user's cookies.
    ///
    /// # Errors
    /// The request is no handshake: the [`Rejection`] is a response.
    ///
    /// # Panics
    /// If a subprotocol is not a token.
    pub fn accept(&self, request: &Request, handler: impl Handler) -> Result<Response, Rejection> {
        let slot = Arc::new(Lock::new(Session::default()));
        let session = Arc::clone(&slot);
        let is_stream = request.version() == Version::HTTP_2;
        let asked = if is_stream {
            let (place, limits) = (self.place, self.limits);
            let socket = StreamSocket::new(Rules { place, limits }, session);
            tunnel(request, "websocket", Box::new(socket))
        } else {
            let begin = move || std::mem::take(&mut *session.lock());
            upgrade(request, "websocket", self.successor.begin(begin))
        };
        let mut response = asked?;
        handshake::check(request)?;
        let accept = match is_stream {
            // RFC 8441 section 5: there is no key to be answered.
            true => None,
            false => Some(handshake::accept(request)?),
        };
        let subprotocol = handshake::subprotocol(request.headers(), &self.subprotocols);
        let Extension {
            codec,
            inflater,
            header,
        } = self.extension(request);
        let may_compress = header.is_some();
        let socket = Socket::new(self.limits.queued_bytes_max, subprotocol, codec);
        let desk = Desk {
            peer: Peer::new(handler, socket),
            reader: Reader::new(inflater),
        };
        *slot.lock() = Session(Some(Box::new(Open::new(desk, may_compress))));
        handshake::complete(&mut response, accept, subprotocol, header);
        Ok(response)
    }

    #[cfg(feature = "deflate")]
    fn extension(&self, request: &Request) -> Extension {
        let Some(shared) = &self.deflate else {
            return Extension::default();
        };
        let Some((agreed, header)) = crate::offer::accept(request.headers(), &shared.options)
        else {
            return Extension::default();
        };
        let deflating = Deflating::new(shared, agreed);
        Extension {
            codec: Codec::new(shared.options.bytes_min, deflating),
            inflater: Inflater(Some(Box::new(Inflating::new(shared, agreed)))),
            header: Some(header),
        }
    }

    #[cfg(not(feature = "deflate"))]
    fn extension(&self, _: &Request) -> Extension {
        Extension::default()
    }
}
