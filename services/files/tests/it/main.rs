//! Files beside routes, in the simulation, and with rules, as curl gets them.

mod beside_routes;
mod rules;
