//! What a running server counts, logs and shows of itself.
//!
//! | file          | what                                                                      |
//! |---------------|---------------------------------------------------------------------------|
//! | statistics.rs | counters, each written by one network thread                              |
//! | metrics.rs    | constant tables that name what is counted                                 |
//! | figures.rs    | one snapshot of everything, read when it is asked for                     |
//! | regions.rs    | where pages of receive memory are                                         |
//! | access_log.rs | a line for each reply, or for each connection                             |
//! | episode.rs    | few lines for events that may come without end                            |
//!
//! The other rooms write here. Nothing here decides, and no other room waits for it.

pub mod access_log;
#[doc(hidden)]
pub mod episode;
pub mod figures;
pub mod metrics;
pub(crate) mod regions;
pub mod statistics;
