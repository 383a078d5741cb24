//! The chapter of the book that shows axum beside us: `cargo test` compiles both of its programs.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../../../../book/src/axum.md")]
struct Axum;
