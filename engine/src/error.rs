//! Why a server could not start or had to end, and why a write could not be queued.

use std::io;
use std::time::Duration;

use flatpath_driver::Refusal;

use crate::server::sockets::ListenAddress;

/// No buffer could be had within the memory budget.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRoom;

flatpath_structures::impl_error! {
    NoRoom {
        Self => "the memory budget for buffers is used up",
    }
}

/// Why a server could not start, or ended other than by a drain.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The server has no listener: there is nothing to serve.
    NoListener,
    /// An address given to [`Server::listen`](crate::Server::listen) could not be understood.
    Address {
        /// As it was given.
        address: String,
        /// What the resolver said.
        cause: io::Error,
    },
    /// The kernel refused to listen there.
    Bind {
        /// Where.
        address: ListenAddress,
        /// What the kernel said.
        cause: io::Error,
    },
    /// No socket of this name was passed to the process; see
    /// [`PassedSockets`](crate::server::sockets::PassedSockets).
    NotPassed {
        /// The name.
        name: String,
        /// What was passed instead, if something was: to another process, say.
        instead: Option<String>,
    },
    /// io_uring was asked for by name, or there is no other driver in this build, and this machine
    /// refuses it.
    Uring(Refusal),
    /// The driver that was asked for is not in this build, or none is: the features `epoll` and
    /// `uring`.
    DriverNotBuilt(Refusal),
    /// A driver could not be made or gave up.
    Driver(io::Error),
    /// A thread could not be started.
    Thread(io::Error),
    /// The limits contradict each other or the machine.
    Limits(String),
    /// Signals could not be watched.
    Signals(io::Error),
    /// The server has ended, but not all of its threads: some were blocked when the time for the
    /// end was over. They stay until whatever blocks them is over, with what they hold; a process
    /// that has nothing else to do should exit.
    LeftBehind {
        /// The threads; never empty.
        left: Vec<LeftBehind>,
        /// What had made a network thread give up, if that is why the server ended.
        cause: Option<io::Error>,
    },
}

flatpath_structures::impl_error! {
    Error {
        Self::NoListener => "no listener was named",
        Self::Address { address, cause } => "{address} is not an address to listen on: {cause}",
        Self::Bind { address, cause } => "cannot listen on {address}: {cause}",
        Self::NotPassed { name, instead: None } =>
            "no socket named {name} was passed to this process",
        Self::NotPassed { name, instead: Some(instead) } =>
            "no socket named {name} was passed to this process: {instead}",
        Self::Uring(refusal) => "io_uring is refused: {refusal}",
        Self::DriverNotBuilt(refusal) => "{refusal}",
        Self::Driver(cause) => "the driver failed: {cause}",
        Self::Thread(cause) => "a thread could not be started: {cause}",
        Self::Limits(text) => "{text}",
        Self::Signals(cause) => "signals cannot be watched: {cause}",
        Self::LeftBehind { left, cause } => "{}" (left_behind(left, cause.as_ref())),
    }
    source {
        Self::Address { cause, .. }
        | Self::Bind { cause, .. }
        | Self::Driver(cause)
        | Self::Thread(cause)
        | Self::Signals(cause)
        | Self::LeftBehind { cause: Some(cause), .. } => cause
    }
}

/// A thread that did not end in time: a handler has not returned, or a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeftBehind {
    /// Which one: `worker 4711`, by the number that the kernel gave the thread, or
    /// `network thread 0`.
    pub thread: String,
    /// The name of the protocol that it ran, as far as is known.
    pub listener: Option<&'static str>,
    /// How long it had been at it: since a worker took its job, or since the beginning of a network
    /// thread's turn. Of a thread whose work is not known, how long the end waited for it.
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
