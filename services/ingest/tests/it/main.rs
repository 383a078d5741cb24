//! The service with consumers, well-behaved and hostile.
mod delivery;
mod hostile;
mod pairing;
mod rig;
mod sharing;
mod simulation;
mod tls;
