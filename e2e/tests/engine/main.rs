//! What the engine promises of any protocol: limits, deadlines, drains and handovers, memory.
#![forbid(unsafe_code)]

mod activation;
mod addresses;
mod by_address;
mod deadlines;
mod descriptors;
mod drain;
mod echo;
mod handlers;
mod handover;
mod handover_crowd;
mod handover_ends;
mod handover_h2;
mod handover_streams;
mod handover_tls;
mod hangs;
mod memory;
mod refused;
mod rolling;
mod scarcity;
mod threads;
