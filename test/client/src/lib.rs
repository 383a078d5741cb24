//! Clients for tests of servers: HTTP requests in one line, and replies that are read strictly.
//!
//! A client talks over a [`Wire`]: a TCP connection ([`Socket`]), or one that a test kit simulates.
//! It follows no redirect, keeps no cookie and repeats nothing: what the server sent is what the
//! test sees. What is not correct panics, as a failure of the test at the line that asked.
//!
//! ```no_run
//! use flatpath_test_client::{HttpClient, Requests};
//!
//! let mut client = HttpClient::connect("127.0.0.1:8080".parse().expect("an address"));
//! let reply = client.get("/notes").header("accept", "text/plain").expect(200);
//! assert_eq!(reply.field("content-type"), Some("text/plain"));
//!
//! client.post("/notes").body("buy milk").expect(201);
//! // The same connection all the time. In pieces, without a length:
//! let mut upload = client.put("/notes/1").upload(None);
//! upload.piece("buy ");
//! upload.piece("milk");
//! assert_eq!(upload.finish().expect(200).text(), "ok");
//! ```
//!
//! A whole reply as a text, for a snapshot, without what is different each time:
//!
//! ```
//! use flatpath_test_client::reply::{self, Asked, Progress};
//!
//! let bytes = b"HTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 GMT\r\n\
//!               Content-Length: 5\r\n\r\nhello";
//! let Ok(Progress::Whole(reply, _)) = reply::read(bytes, false, Asked::Any) else {
//!     panic!("it is whole");
//! };
//! assert_eq!(reply.snapshot(&[]), "200\ncontent-length: 5\ndate: [masked]\n\nhello");
//! ```
//!
//! Not here: TLS, HTTP/2, and time: a wait that is too long fails the test, and no more is said.
#![forbid(unsafe_code)]

mod http;
pub mod reply;
mod wire;

pub use http::{Http, HttpClient, Received, Request, Requests, Upload, request_bytes};
pub use reply::Reply;
pub use wire::{Socket, Wire};
