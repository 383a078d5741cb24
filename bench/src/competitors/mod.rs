//! Well-known crates, behind the same interfaces as ours.

pub(crate) mod dispatchers;
pub(crate) mod maps;
pub(crate) mod pools;
pub(crate) mod queues;
