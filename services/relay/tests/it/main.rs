//! The relay on real sockets and in simulations: one program, so that it is linked once.
mod simulation;
mod sockets;
