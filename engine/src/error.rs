//! Why a server could not start or had to end, and why a write could not be queued.

use std::io;
use std::time::Duration;

use flatpath_driver::Refusal;

use crate::sockets::ListenAddress;

/// No buffer could be had within the memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the memory budget for buffers is used up")]
pub struct NoRoom;

/// Why a server could not start, or ended other than by a drain.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The server has no listener: there is nothing to serve.
    #[error("no listener was named")]
    NoListener,
    /// An address given to [`Server::listen`](crate::Server::listen) could not be understood.
    #[error("{address} is not an address to listen on: {cause}")]
    Address {
        /// As it was given.
        address: String,
        /// What the resolver said.
        #[source]
        cause: io::Error,
    },
    /// The kernel refused to listen there.
    #[error("cannot listen on {address}: {cause}")]
    Bind {
        /// Where.
        address: ListenAddress,
        /// What the kernel said.
        #[source]
        cause: io::Error,
    },
    /// No socket of this name was passed to the process; see
    /// [`PassedSockets`](crate::sockets::PassedSockets).
    #[error("no socket named {name} was passed to this process")]
    NotPassed {
        /// The name.
        name: String,
    },
    /// io_uring was asked for by name and this machine refuses it.
    #[error("io_uring is refused: {0}")]
    Uring(Refusal),
    /// A driver could not be made or gave up.
    #[error("the driver failed: {0}")]
    Driver(#[source] io::Error),
    /// A thread could not be started.
    #[error("a thread could not be started: {0}")]
    Thread(#[source] io::Error),
    /// The limits contradict each other or the machine.
    #[error("{0}")]
    Limits(String),
    /// Signals could not be watched.
    #[error("signals cannot be watched: {0}")]
    Signals(#[source] io::Error),
    /// The server has ended, but not all of its threads: some were blocked when the time for the
    /// end was over. They stay until whatever blocks them is over, with what they hold; a process
    /// that has nothing else to do should exit.
    #[error("{}", left_behind(left, cause.as_ref()))]
    LeftBehind {
        /// The threads; never empty.
        left: Vec<LeftBehind>,
        /// What had made a network thread give up, if that is why the server ended.
        #[source]
        cause: Option<io::Error>,
    },
}

/// A thread that did not end in time: a handler has not returned, or a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeftBehind {
    /// Which one: `worker 4711`, by the number that the kernel gave the thread, or
    /// `network thread 0`.
    pub thread: String,
    /// The name of the protocol that it ran, as far as is known.
    pub listener: Option<&'static str>,
    /// How long it had been at it: since a worker took its job, or since the beginning of a network
    /// thread's turn.
    pub busy: Duration,
}

impl std::fmt::Display for LeftBehind {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(&self.thread)?;
        if let Some(listener) = self.listener {
            write!(formatter, ", at work for listener {listener}")?;
        }
        write!(formatter, ", busy for {:.1} s", self.busy.as_secs_f64())
    }
}

fn left_behind(left: &[LeftBehind], cause: Option<&io::Error>) -> String {
    let cause = cause.map_or_else(String::new, |cause| format!("the driver failed: {cause}; "));
    let threads: Vec<String> = left.iter().map(LeftBehind::to_string).collect();
    let threads = threads.join("; ");
    format!("{cause}threads did not end in time and were left behind: {threads}")
}
