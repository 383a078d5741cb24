//! Files over HTTP.
#![forbid(unsafe_code)]

pub mod limits;
pub mod error;
pub mod target;
