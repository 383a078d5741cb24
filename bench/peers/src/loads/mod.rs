//! What is done to a candidate, and what is counted meanwhile: a load each, with its clients.
//!
//! | module | what it is |
//! |---|---|
//! | `wrk`, `streams` | one request again and again, by wrk and by h2load |
//! | `fixed`, `rounds` | a fixed number of requests, by CPU time or instructions |
//! | `handshakes`, `storm` | TLS: a handshake for each request; a thousand at once |
//! | `newcomers`, `calm` | clients of TLS that come and go, and that stay |
//! | `tls`, `http2` | the harness's own clients |
//! | `large` | files that are not small |
//! | `proxied` | a request that a proxy passes on |
//! | `idle`, `websocket` | many connections |
//! | `sse`, `user`, `listeners` | events to many who listen |
//! | `sleepers`, `put`, `operated`, `busy` | what else a server is busy with |
//! | `calls`, `listing`, `nfs` | NFS |
//! | `relay`, `ingest` | a relay, and messages to other processes |
//! | `hello` | hello world is built |

pub(crate) mod busy;
mod calm;
pub(crate) mod calls;
pub(crate) mod fixed;
pub(crate) mod handshakes;
pub(crate) mod hello;
mod http2;
pub(crate) mod idle;
pub(crate) mod ingest;
mod listeners;
pub(crate) mod large;
pub(crate) mod listing;
mod newcomers;
mod nfs;
pub(crate) mod operated;
pub(crate) mod proxied;
pub(crate) mod put;
pub(crate) mod relay;
mod rounds;
pub(crate) mod sleepers;
pub(crate) mod sse;
pub(crate) mod storm;
pub(crate) mod streams;
mod tls;
pub(crate) mod user;
pub(crate) mod websocket;
pub(crate) mod wrk;

use std::{io, thread};

use flatpath_bench_common::scheduling;

/// Does the work of clients in a thread of its own, which is the first to get a core if `is_first`.
fn apart<T: Send>(is_first: bool, work: impl FnOnce() -> io::Result<T> + Send) -> io::Result<T> {
    let apart = || {
        if is_first && !scheduling::takes_latencies()? {
            eprintln!("only root may give the clients a core first: latencies hold their waits");
        }
        work()
    };
    let done = thread::scope(|scope| scope.spawn(apart).join());
    done.unwrap_or_else(|_| Err(io::Error::other("the thread of the clients panicked")))
}
