//! io_uring, epoll and a seeded simulation with one completion interface.
//!
//! The caller starts operations with user_data of its own and collects [`Completion`]s from
//! [`Driver::wait`]. Only `wait` hands out completions, so a turn of the caller's loop is the same
//! on every driver: start operations, wait, handle completions.
//!
//! ```
//! use std::io::{Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use std::os::fd::OwnedFd;
//!
//! use bytes::Bytes;
//! use flatpath_driver::epoll::Epoll;
//! use flatpath_driver::{
//!     AfterSend, Driver, DriverConfig, Listener, OperationMode, Outcome, Segment, SendList,
//! };
//!
//! /// What the completions are of.
//! const ACCEPT: u64 = 1;
//! const RECEIVE: u64 = 2;
//! const SEND: u64 = 3;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let mut client = TcpStream::connect(listener.local_addr()?)?;
//! client.write_all(b"hello")?;
//!
//! // Or `uring::Uring`, where `select` says that the machine offers it.
//! let mut driver = Epoll::new(&DriverConfig::default())?;
//! let listener = Listener::new(OwnedFd::from(listener));
//! driver.accept(&listener, ACCEPT, OperationMode::Single);
//!
//! let (mut completions, mut connection) = (Vec::new(), None);
//! 'turns: loop {
//!     driver.wait(None, &|| false, &mut completions)?;
//!     for completion in completions.drain(..) {
//!         match completion.outcome {
//!             Outcome::Accepted(socket) => {
//!                 connection = Some(socket);
//!                 driver.receive(socket, RECEIVE, OperationMode::Single, 0);
//!             }
//!             Outcome::Received(piece) => {
//!                 let mut list = SendList::new();
//!                 let bytes = Bytes::copy_from_slice(driver.bytes(&piece));
//!                 list.push(Segment::Shared(bytes.into())).expect("the first of several");
//!                 driver.recycle(piece);
//!                 let socket = connection.expect("accepted before");
//!                 driver.send(socket, SEND, &mut list, AfterSend::Close);
//!             }
//!             Outcome::Sent { closed: true, .. } => break 'turns,
//!             Outcome::Sent { .. } => {}
//!             other => panic!("{other:?}"),
//!         }
//!     }
//! }
//! let mut echo = String::new();
//! client.read_to_string(&mut echo)?;
//! assert_eq!(echo, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! In reading order: [`driver`](Driver) is the contract, `socket`, `remote` and `completion` its
//! types, `datagram` sockets without connections, `segment` what is sent, `region` and `fragment`
//! what is received and retained, `waker` how another thread ends a wait, `eventfd` what a driver
//! polls. Then `uring`, `epoll` and `simulation` (a feature, for tests), each with one file per
//! operation. [`probe`] and
//! [`select()`] tell which of them this machine offers, [`idle`] what its processors do without
//! work.
//!
//! What this crate does not do: no timers (the caller has a wheel and passes a time-out to `wait`),
//! no retry policy (a stalled receive and a refused accept are reported, the caller re-arms), no
//! name resolution, no listening sockets (the caller makes them), no threads.
//!
//! | may run beside      | any method of the same driver | `Waker::wake` |
//! |---------------------|-------------------------------|---------------|
//! | any method          | no (one thread, `&mut`)       | yes           |
//! | `Waker::wake`       | yes                           | yes           |

#![allow(
    unsafe_code,
    reason = "the kernel's rings and descriptors are driven here"
)]
#![cfg_attr(
    not(all(feature = "epoll", feature = "uring")),
    allow(dead_code, reason = "what a driver that is left out would use")
)]

mod driver;
mod socket;
mod remote;
mod completion;
mod datagram;
mod segment;
mod pipe;
mod lent;
mod file_range;
mod waker;
mod eventfd;
mod config;
mod operations;
mod statistics;
mod clock;
mod refusal;
mod region;
mod fragment;
mod buffers;
#[cfg(feature = "uring")]
pub mod uring;
#[cfg(feature = "epoll")]
pub mod epoll;
#[cfg(feature = "simulation")]
pub mod simulation;
#[cfg(feature = "uring")]
pub mod probe;
#[cfg(not(feature = "uring"))]
#[path = "probe/off.rs"]
mod probe;
pub mod idle;
mod select;
#[cfg(test)]
mod testing;

pub use clock::{monotonic_coarse_ns, monotonic_ns};
pub use completion::{Completion, Datagram, Errno, Outcome, Piece};
pub use config::DriverConfig;
pub use datagram::{DATAGRAM_HEAD_BYTES, DatagramSocket, Envelope, SentDatagram};
pub use driver::{AfterSend, Driver, Operation, OperationMode, USER_DATA_MAX};
pub use eventfd::Eventfd;
pub use file_range::{FileRange, SentFile};
pub use flatpath_sys::tcp::Delivery;
pub use fragment::{Attachment, Fragment, Quota, QuotaWaker};
pub use lent::Lent;
pub use pipe::{PipeLeave, Piped, Pipes};
pub use refusal::{Cause, Refusal};
pub use region::{BUFFERS_MAX, Backing, Filling, Region, RegionConfig, SmallReceives};
pub use remote::Remote;
pub use segment::{SEGMENTS_MAX, Segment, SendList, Shared};
pub use select::{DriverChoice, Selection, select};
pub use socket::{Listener, Predecessor, Socket};
pub use statistics::DriverStatistics;
pub use waker::Waker;
