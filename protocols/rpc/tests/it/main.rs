//! RPC in simulations.
mod drain;
mod simulation;
