//! Files beside routes and forms of listings, in the simulation, and with rules, as curl gets them.

mod beside_routes;
mod forms;
mod headers;
mod rules;
