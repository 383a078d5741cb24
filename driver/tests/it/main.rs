//! The drivers behind their one contract, on this kernel and simulated.
#[macro_use]
mod rig;

mod allocation;
mod behaviour;
mod connect;
mod datagrams;
mod files;
mod keeping;
mod limits;
mod listeners;
mod pipes;
mod poll_eventfd;
mod recv_into;
mod refused;
mod resting;
mod sending;
mod sharing;
mod simulation;
mod splice_from;
mod taken_over;
mod written;
