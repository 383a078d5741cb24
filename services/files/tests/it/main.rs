//! Files beside routes, forms of listings and what is decided first, in the simulation, and with
//! rules, as curl gets them.

mod beside_routes;
mod decisions;
mod forms;
mod headers;
mod rules;
