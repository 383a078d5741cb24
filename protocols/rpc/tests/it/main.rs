//! RPC in simulations: calls and replies, and what a drain does to them. One program, so that it is
//! linked once.

mod drain;
mod simulation;
