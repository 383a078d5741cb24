//! The commands as users type them.
mod bench;
mod configuration;
mod doctor;
mod serve;
mod support;
