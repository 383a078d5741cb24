//! Files beside routes, in the simulation.

mod beside_routes;
