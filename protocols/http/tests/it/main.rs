//! HTTP in simulations, and its parts.
mod counted;
mod deadlines;
mod drain;
mod drops;
mod events;
mod extractors;
mod h2;
mod h2_client;
mod hosts;
mod model;
mod peer;
mod push;
mod router;
mod unread;
mod upgrade;
mod uploads;
