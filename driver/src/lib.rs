//! io_uring, epoll and a seeded simulation with one completion interface.
//!
//! The caller starts operations with user_data of its own and collects [`Completion`]s from
//! [`Driver::wait`]. Only `wait` hands out completions, so a turn of the caller's loop is the same
//! on every driver: start operations, wait, handle completions.
//!
//! In reading order: [`driver`](Driver) is the contract, `socket` and `completion` its types,
//! `segment` what is sent, `region` and `fragment` what is received and retained, `waker` how
//! another thread ends a wait, `eventfd` what a driver polls. Then `uring`, `epoll` and
//! [`simulation`], each with one file per operation. [`probe`] and [`select()`] tell which of them
//! this machine offers.
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

mod driver;
mod socket;
mod completion;
mod segment;
mod pipe;
mod waker;
mod eventfd;
mod config;
mod statistics;
mod clock;
mod refusal;
mod region;
mod fragment;
mod buffers;
pub mod uring;
pub mod epoll;
pub mod simulation;
pub mod probe;
mod select;

pub use clock::{monotonic_coarse_ns, monotonic_ns};
pub use completion::{Completion, Errno, Outcome, Piece};
pub use config::DriverConfig;
pub use driver::{AfterSend, Driver, Operation, OperationMode, USER_DATA_MAX};
pub use eventfd::Eventfd;
pub use fragment::{Attachment, Fragment, Quota, QuotaWaker};
pub use pipe::{PipeLeave, Piped, Pipes};
pub use refusal::{Cause, Refusal};
pub use region::{BUFFERS_MAX, Backing, Region, RegionConfig, SmallReceives};
pub use segment::{SEGMENTS_MAX, Segment, SendList, Shared};
pub use select::{DriverChoice, Selection, select};
pub use socket::{Listener, Socket};
pub use statistics::DriverStatistics;
pub use waker::Waker;
