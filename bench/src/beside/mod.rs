//! Well-known crates, behind the same interfaces as ours. Only with the feature `beside`.

pub(crate) mod dispatchers;
pub(crate) mod maps;
pub(crate) mod pools;
pub(crate) mod queues;
