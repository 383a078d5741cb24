//! Files over HTTP.
#![forbid(unsafe_code)]

pub mod limits;
pub mod error;
pub mod target;
pub mod identity;
pub mod root;
mod walk;
pub mod fields;
pub mod conditional;
pub mod range;
pub mod media;
pub mod encoding;
mod content;
pub mod listing;
