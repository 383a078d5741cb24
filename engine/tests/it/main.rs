//! The engine on real sockets and in simulations: one program, so that it is linked once.
//! What changes the whole process runs in one of its own (`flatpath_testkit::in_child`).

/// Tests of `run(seed, faults, lossless)`, with `$seeds` seeds each.
macro_rules! in_each_world {
    ($seeds:expr, $run:ident) => {
        #[test]
        fn sim_a_calm_world() {
            each_seed($seeds, |seed| $run(seed, Faults::none(), true));
        }

        #[test]
        fn sim_faults_without_losses() {
            each_seed($seeds, |seed| {
                $run(seed, Faults::mixed(seed).without_losses(), true)
            });
        }

        #[test]
        fn sim_faults_with_losses() {
            each_seed($seeds, |seed| $run(seed, Faults::mixed(seed), false));
        }
    };
}

mod behind_proxy;
mod calls;
mod connected;
mod connects;
#[cfg(feature = "tls")]
mod connects_tls;
mod crowd;
mod datagrams;
mod discards;
mod ends;
mod excess;
mod figures;
mod files;
mod forgotten;
mod framed;
mod framed_bounds;
mod framed_work;
mod gate;
mod growth;
mod hand_over;
mod handover;
mod headers;
mod hoard;
mod keeping;
mod kept;
mod knots;
mod lent;
mod lines;
mod listener_limits;
mod outbox;
mod panics;
mod read_ahead;
mod relief;
mod room;
mod server;
mod limit_twice;
mod shares;
mod signal_panics;
mod simulation;
mod simulation_behind_proxy;
mod simulation_causes;
mod simulation_chores;
mod simulation_crowd;
mod simulation_datagrams;
mod simulation_deadlines;
mod simulation_drain;
mod simulation_excess;
mod simulation_hand_over;
mod simulation_limits;
mod simulation_lingering;
mod simulation_memory;
mod simulation_parked;
#[cfg(feature = "tls")]
mod simulation_phases;
mod simulation_piped;
mod simulation_prompt;
mod simulation_room;
mod simulation_slow;
mod simulation_splice;
#[cfg(feature = "tls")]
mod simulation_splice_tls;
#[cfg(feature = "tls")]
mod simulation_start_tls;
mod simulation_streams;
#[cfg(feature = "tls")]
mod simulation_tls;
#[cfg(feature = "tls")]
mod simulation_tls_clients;
#[cfg(feature = "tls")]
mod simulation_tls_rules;
#[cfg(feature = "tls")]
mod simulation_written;
mod slow;
mod sockets;
mod speakers;
mod splice;
#[cfg(feature = "tls")]
mod splice_tls;
mod start;
mod starved;
#[cfg(feature = "tls")]
mod tls_client;
mod turns;
mod unconsumed;
mod waits;
mod wakes;
mod watch;
