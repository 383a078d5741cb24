//! The benches as programs, with tiny inputs: one program, so that it is linked once.
mod command;
mod tiny;
