//! Memory that a protocol or a service handles: received bytes where they lie ([`Fragment`] of a
//! [`Region`]), buffers of the server's [`Pool`], bodies made of both ([`Payload`]), bytes in a
//! pipe ([`Piped`]); a share for work that is done now and then ([`MemoryShare`]); and where the
//! pages of receive memory are, for display.

pub use flatpath_driver::{
    Attachment, Backing, Filling, Fragment, PipeLeave, Piped, Pipes, Region, RegionConfig,
    SmallReceives,
};
pub use flatpath_structures::pool::{
    Buffer, Charge, Pool, PoolConfig, PoolHandle, PoolStatistics, Zero,
};
pub use flatpath_sys::allocator::bound_arenas;

pub use crate::payload::{Copied, Part, Payload};
pub use crate::regions::MemoryFigures;
pub use crate::turns::{Client, Turn, TurnLimit};
pub use pools::Wanted;
pub use share::{MemoryShare, ShareHold, SharePart};

pub(crate) mod appeals;
pub(crate) mod holders;
pub(crate) mod pools;
pub(crate) mod share;
