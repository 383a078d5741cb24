//! Flatpath beside nginx, hyper and `tiny_http`: the same work, the same machine, the same run.
#![forbid(unsafe_code)]
#![expect(dead_code, reason = "the commands that use these modules follow")]

mod machine;
mod tools;
mod children;
mod launch;
mod nginx;
mod proc;
mod wrk;
mod dial;
mod reply;
mod crowd;
mod generator;
mod metric;
mod table;

fn main() {}
