//! Flatpath: a server engine on which every step of a connection costs the same at any size.
#![forbid(unsafe_code)]

pub mod limits;
pub mod pairing;
pub mod protocol;
pub mod simulation;

mod addresses;
mod connection;
mod context;
mod descriptors;
mod episode;
mod end;
mod error;
mod foreman;
mod holdings;
mod lifecycle;
mod listener;
mod lists;
mod memory;
mod network;
mod output;
mod payload;
mod pools;
mod relief;
mod returns;
mod binding;
mod rouser;
mod running;
mod scope;
mod server;
mod blocking;
mod shares;
mod signals;
mod spares;
mod statistics;
mod worker;

pub use blocking::{Entry, Inside, Share, ShareFigures, ShareLimits};
pub use bytes::Bytes;
pub use context::{Context, Job, NoRoom, Pages, Stall, Wanted};
pub use descriptors::{DescriptorBudget, DescriptorFigures, DescriptorHold};
pub use end::End;
pub use error::{Error, LeftBehind};
pub use flatpath_driver::heap::bound_arenas;
pub use flatpath_driver::{
    Attachment, Backing, DriverChoice, DriverConfig, Fragment, OperationMode, PipeLeave, Piped,
    Pipes, Region, RegionConfig, Returner, SmallReceives,
};
pub use flatpath_structures::pool::{Buffer, Pool, PoolHandle, PoolStatistics};
pub use limits::Limits;
pub use memory::MemoryFigures;
pub use payload::{Copied, Part, Payload};
pub use protocol::{Phase, Protocol, Spread, Turn};
pub use returns::Resumer;
pub use rouser::Rouser;
pub use running::{Bound, Handle, Running};
pub use scope::WorkerScope;
pub use server::Server;
pub use signals::{SignalWatch, Stopping};
pub use statistics::Statistics;
pub use worker::InFlight;
