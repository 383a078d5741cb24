//! WebSocket (RFC 6455) for Flatpath: sockets that any thread sends to. An idle one takes less than
//! a kibibyte of memory and no thread.
//!
//! # An echo
//!
//! A handler of HTTP accepts the handshake; from then on the connection is a [`Socket`], and a
//! handler gets its messages, one after the other, in their order.
//!
//! ```no_run
//! use flatpath_http::flatpath::{Error, Server};
//! use flatpath_http::{Http, Request, Router};
//! use flatpath_websocket::{Message, Socket, WebSocket};
//!
//! fn main() -> Result<(), Error> {
//!     let sockets = WebSocket::pooled();
//!     let echo = |socket: &Socket, message: Message| {
//!         // An error means that the client is gone.
//!         let _ = socket.send(message);
//!     };
//!     let router: Router =
//!         Router::new().get("/echo", move |request: Request| sockets.accept(&request, echo));
//!     Server::new().listen("127.0.0.1:8080", Http::service(router)).run()
//! }
//! ```
//!
//! Workers run a handler of [`WebSocket::pooled`], so it may block; one of [`WebSocket::inline`]
//! runs on the network thread, for what takes microseconds.
//!
//! # Sending from elsewhere
//!
//! A [`Socket`] is `Send`, and a clone of it is the same connection: keep it where events come
//! from. A message is encoded once and shared by all sockets that it is sent to, unless it is
//! compressed. [`Socket::send`] waits for a client that does not read; [`Socket::try_send`] gives
//! the message back.
//!
//! A [`Broadcast`] sends a message to many sockets, with a rule for those that do not keep up:
//!
//! ```
//! use flatpath_websocket::{Broadcast, Handler, Member, Message, Socket};
//!
//! /// One client, with what the server keeps for it.
//! struct Listener {
//!     all: Broadcast,
//!     /// With the handler the socket leaves: there is nothing to do in `closed`.
//!     member: Option<Member>,
//!     heard: u64,
//! }
//!
//! impl Handler for Listener {
//!     fn opened(&mut self, socket: &Socket) {
//!         self.member = Some(self.all.join(socket));
//!     }
//!
//!     fn message(&mut self, _: &Socket, message: Message) {
//!         self.heard += 1;
//!         self.all.send(message);
//!     }
//! }
//! ```
//!
//! # Limits, subprotocols, compression
//!
//! ```
//! use flatpath_http::{IntoResponse, Request, http::StatusCode};
//! use flatpath_websocket::{Limits, Message, Socket, WebSocket};
//! # #[cfg(feature = "deflate")]
//! use flatpath_websocket::Deflate;
//!
//! let sockets = WebSocket::pooled()
//!     .subprotocols(&["chat.2", "chat"])
//!     .limits(Limits { message_bytes_max: 64 * 1024, ..Limits::default() });
//! # #[cfg(feature = "deflate")]
//! let sockets = sockets.deflate(Some(Deflate { level: 6, ..Deflate::default() }));
//!
//! let handler = move |request: Request| {
//!     // A browser says which page opens the socket: with the user's cookies, from anywhere.
//!     let origin = request.headers().get("origin");
//!     if origin.is_some_and(|origin| origin != "https://chat.example") {
//!         return StatusCode::FORBIDDEN.into_response();
//!     }
//!     let accepted = sockets.accept(&request, |socket: &Socket, message: Message| {
//!         if message.text() == Some("bye") {
//!             socket.close(flatpath_websocket::code::NORMAL, "as you wish");
//!         }
//!     });
//!     accepted.into_response()
//! };
//! # let _ = flatpath_http::Http::pooled(handler);
//! ```
//!
//! Compression is the feature `deflate`, on by default, and used where the client offers it. Each
//! message is compressed by itself unless [`Deflate`] says otherwise, so that a socket keeps
//! nothing for it.
//!
//! # What the server does by itself
//!
//! - Answers pings; pings a client that has been silent for the server's `idle_timeout`, and cuts
//!   it off after another.
//! - Reads no more from a client that does not read its answers.
//! - Closes with 1002, 1007 or 1009 what breaks the protocol or a limit, with 1008 what takes too
//!   long, with 1011 after a panic of the handler, with 1001 when it drains, with 1013 when an idle
//!   socket has to make room or memory is short. What came before is answered first.
//!
//! # A test
//!
//! The test kit runs a handler on a simulated kernel, from a seed:
//!
//! ```
//! use flatpath_http::{Http, Request};
//! use flatpath_test::{Conditions, TestServer, each_seed};
//! use flatpath_websocket::{Message, Socket, WebSocket};
//!
//! each_seed(20, |seed| {
//!     let sockets = WebSocket::pooled();
//!     let echo = |socket: &Socket, message: Message| {
//!         let _ = socket.send(message);
//!     };
//!     let handler = move |request: Request| sockets.accept(&request, echo);
//!     let mut server = TestServer::new(Conditions::rough(seed), Http::pooled(handler));
//!     let client = server.connect();
//!     client.write(
//!         b"GET / HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
//!           Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
//!     );
//!     while server.read_line(&client) != "\r\n" {}
//!     // "Hi", masked with zeros.
//!     client.write(b"\x81\x82\0\0\0\0Hi");
//!     assert_eq!(server.read_exact(&client, 4), b"\x81\x02Hi");
//! });
//! ```
//!
//! # The modules
//!
//! | step      | modules                                 | what they do                         |
//! |-----------|-----------------------------------------|--------------------------------------|
//! | handshake | `handshake`, `offer`, `websocket`       | from a request to a socket           |
//! | input     | `head`, `mask`, `utf8`, `gather`, `decoder` | from bytes to messages           |
//! | extension | `deflate`, `codec`                      | messages compressed and inflated     |
//! | work      | `handler`, `session`, `conversation`    | who handles what, and when it ends   |
//! | carriers  | `protocol`, `stream`                    | a connection, a stream of HTTP/2     |
//! | output    | `encode`, `socket`, `broadcast`         | from any thread to connections       |
//!
//! [`Decoder`] and [`Frame`] touch no descriptor, clock or thread, and are open to tests and
//! fuzzing.
//!
//! Deliberately absent: the client's side, other extensions, messages that are handled before they
//! are complete, fragments in what is sent.
#![forbid(unsafe_code)]

mod limits;
mod close;
mod fault;
mod mask;
mod utf8;
mod head;
mod gather;
mod decoder;
mod encode;
mod message;
mod handshake;
#[cfg(feature = "deflate")]
mod offer;
#[cfg(feature = "deflate")]
mod deflate;
mod codec;
mod socket;
mod broadcast;
mod handler;
mod session;
mod conversation;
mod protocol;
mod stream;
mod websocket;

pub use broadcast::{Broadcast, Member, Slow};
pub use close::{Close, code};
pub use decoder::{Decoder, Event, Received, Stopped};
#[cfg(feature = "deflate")]
pub use deflate::Deflate;
pub use encode::{Frame, Opcode};
pub use fault::Fault;
pub use handler::Handler;
pub use handshake::Rejection;
pub use limits::Limits;
pub use message::Message;
pub use socket::{SendError, Socket};
pub use websocket::WebSocket;
