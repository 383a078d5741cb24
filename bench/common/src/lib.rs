//! The bench harness: all that benches share. What remains in a bench is its workload and its
//! candidates.
//!
//! | module | what it is |
//! |---|---|
//! | [`options`] | the common options; begin and end of a bench |
//! | [`profile`] | how much is run: full, quick, tiny |
//! | [`scheduling`] | which threads get a core first |
//! | [`usage`] | CPU time and memory of processes and of the machine |
//! | [`system_calls`] | system calls of a running server, by perf or strace |
//! | [`tools`] | programs of the system, and the packages that bring them |
//! | [`nginx`] | the configuration that nginx runs with |
//! | [`namespace`] | a network with a congestion control that is known |
//! | [`halt_poll`] | how long idle processors poll, set for a run and put back |
//! | [`source`] | client sockets: more than one address has ports for |
//! | [`crowd`] | clients of an echo server, many at once or one after the other |
//! | [`http`] | as much of an HTTP client as benches need |
//! | [`generator`], [`wrk`], [`h2load`] | load over HTTP |
//! | [`measure`] | medians, interleaved rounds, operations hammered by threads |
//! | [`servers`] | interleaved runs of servers, metrics, what makes figures doubtful |
//! | [`report`] | tables and targets as data; [`text`] shows them |
//! | [`machine`] | on what it was measured |
//!
//! A bench of servers: `Common::begin`, [`servers::interleave`] for each comparison, which
//! [`BenchReport::of_servers`](report::BenchReport::of_servers) makes a report of, then
//! [`Report::collect`](report::Report::collect) and `Common::deliver`. A bench of structures builds
//! its tables itself, from [`measure::interleave`].
//!
//! Processes are started, pinned, awaited and ended by the test kit's `child`.
//!
//! An error is what the kernel, a peer or a program reported, with the name of what could not be
//! done; a doc names only those that callers tell apart.
//!
//! Every candidate gets the same work, in the same run, in turns. A missed target is printed; it
//! fails nothing.
#![forbid(unsafe_code)]
#![allow(missing_debug_implementations, reason = "benches print none of these")]

pub mod crowd;
pub mod generator;
pub mod h2load;
pub mod halt_poll;
pub mod http;
pub mod machine;
pub mod measure;
pub mod namespace;
pub mod nginx;
pub mod options;
pub mod profile;
pub mod report;
pub mod scheduling;
pub mod servers;
pub mod source;
pub mod system_calls;
pub mod text;
pub mod tools;
pub mod usage;
pub mod wrk;
