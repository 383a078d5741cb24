//! Flatpath: a server engine on which every step of a connection costs the same at any size.
#![forbid(unsafe_code)]

pub mod limits;
pub mod pairing;
pub mod protocol;
pub mod simulation;

mod addresses;
mod arrivals;
mod connection;
mod context;
mod descriptors;
mod episode;
mod end;
mod error;
mod foreman;
mod holdings;
mod io;
mod lifecycle;
mod listener;
mod lists;
mod memory;
mod network;
mod options;
mod output;
mod payload;
mod phase;
mod pools;
mod relief;
mod returns;
mod binding;
mod rouser;
mod running;
mod scope;
mod server;
mod blocking;
mod common;
mod shares;
mod signals;
mod spares;
mod statistics;
mod turn;
mod worker;

pub use blocking::{Entry, Inside, Share, ShareFigures, ShareLimits};
pub use bytes::Bytes;
pub use context::{Context, Job};
pub use descriptors::{DescriptorBudget, DescriptorFigures, DescriptorHold};
pub use end::End;
pub use error::{Error, LeftBehind, NoRoom};
pub use flatpath_driver::{
    Attachment, Backing, DriverChoice, DriverConfig, Fragment, OperationMode, PipeLeave, Piped,
    Pipes, Region, RegionConfig, Returner, SmallReceives,
};
pub use flatpath_structures::pool::{Buffer, Pool, PoolHandle, PoolStatistics};
pub use flatpath_sys::allocator::bound_arenas;

pub use io::Io;
pub use limits::Limits;
pub use memory::MemoryFigures;
pub use options::{ListenerOptions, Pages, Spread};
pub use payload::{Copied, Part, Payload};
pub use phase::{Phase, Stall};
pub use pools::Wanted;
pub use protocol::{Protocol, Received};
pub use returns::Resumer;
pub use rouser::Rouser;
pub use running::{Bound, Handle, Running};
pub use scope::WorkerScope;
pub use server::Server;
pub use signals::{SignalWatch, Stopping};
pub use statistics::Statistics;
pub use turn::Turn;
pub use worker::InFlight;
