//! The pairing contract, its examples and simulations: one program, so that it is linked once.
mod contract;
mod examples;
mod simulation;
