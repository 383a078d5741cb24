//! The troubles: what each of them does to the server, and with what options the server runs.
//!
//! A trouble runs on one thread (or starts threads of its own) until it is stopped. The sizes come
//! from what once stopped this server; where it is about a bound, the server is started with a
//! smaller bound, and nginx with the same.

use std::io;
use std::sync::atomic::AtomicBool;

use super::causes::{
    ask, bad_producers, bad_records, busy_loops, calls, downloads, dying_consumers, full_disk,
    garbage, half_writes, heads, hung_mount, idle, pipeliners, producers, resets, slow_both_ways,
    unread_echo, unread_pairs, unread_reads, uploads, waiting_clients,
};
use super::server::Arena;

/// The row in which nginx is the measure.
pub(super) const BUSY: &str = "four busy loops on the machine";
/// How long a trouble lasts in a full run, in milliseconds, unless it needs more.
const MILLIS: u64 = 6_000;
/// Long enough for stalls of five seconds to end, in milliseconds.
const LONG_MILLIS: u64 = 12_000;
/// Connections that the server may have where a trouble is about that bound.
const PLACES: u32 = 1_000;
/// The same as an option.
const BOUND: &[&str] = &["--max-connections", "1000"];
const SMALL: &[&str] = &["--memory", "64M"];

/// Where the server comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// The command, with these options besides.
    Program(&'static [&'static str]),
    /// The library, with the handlers of `causes.rs`.
    Library,
}

/// What has to be there before the server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// A file system that can be made to hang, under `/mount`.
    HungMount,
    /// A small file system of its own, under `/mount`.
    FullDisk,
    /// A pipe for the log that is not read.
    UnreadLog,
}

/// One trouble.
#[derive(Clone, Copy)]
pub(super) struct Trouble {
    pub(super) name: &'static str,
    pub(super) home: Home,
    pub(super) needs: Needs,
    pub(super) nginx_has_it: bool,
    /// Connections that nginx gets.
    pub(super) places: u32,
    pub(super) millis: u64,
    pub(super) is_in_quick: bool,
    pub(super) cause: fn(&Arena, &AtomicBool) -> io::Result<()>,
}

/// A trouble over HTTP, which nginx has too.
const HTTP: Trouble = Trouble {
    name: "",
    home: Home::Program(&[]),
    needs: Needs::Nothing,
    nginx_has_it: true,
    places: 16_384,
    millis: MILLIS,
    is_in_quick: false,
    cause: |_, _| Ok(()),
};

/// A trouble of a service that nginx does not have.
const OURS: Trouble = Trouble {
    nginx_has_it: false,
    ..HTTP
};

/// All of them.
pub(super) fn troubles() -> Vec<Trouble> {
    [
        of_slow_clients(),
        of_busy_clients(),
        of_the_system(),
        of_services(),
        of_handlers(),
    ]
    .concat()
}

/// Clients that take long, or hold what they do not need.
fn of_slow_clients() -> Vec<Trouble> {
    let at_the_bound = Trouble {
        home: Home::Program(BOUND),
        places: PLACES,
        ..HTTP
    };
    let small = Trouble {
        home: Home::Program(SMALL),
        millis: LONG_MILLIS,
        ..HTTP
    };
    vec![
        Trouble {
            name: "unfinished heads, more than connections allowed",
            is_in_quick: true,
            cause: |arena, stop| heads(arena, stop, 1_500, 20),
            ..at_the_bound
        },
        Trouble {
            name: "idle kept connections, more than allowed",
            cause: idle,
            ..at_the_bound
        },
        Trouble {
            name: "4,800 unfinished heads of 22 KB",
            millis: LONG_MILLIS,
            is_in_quick: true,
            cause: |arena, stop| heads(arena, stop, 4_800, 22_000),
            ..HTTP
        },
        Trouble {
            name: "2,000 uploads at 4 KB/s, 64 MiB of memory",
            is_in_quick: true,
            cause: |arena, stop| uploads(arena, stop, 2_000, 0, 4_000),
            ..small
        },
        Trouble {
            name: "2,500 uploads that stop after 40 KB, 64 MiB",
            cause: |arena, stop| uploads(arena, stop, 2_500, 40_000, 0),
            ..small
        },
        Trouble {
            name: "2,000 downloads that nobody reads, 64 MiB",
            cause: |arena, stop| downloads(arena, stop, 2_000, 0),
            ..small
        },
        Trouble {
            name: "1,000 slow downloads and 1,000 slow uploads, 64 MiB",
            is_in_quick: true,
            cause: slow_both_ways,
            ..small
        },
        Trouble {
            name: "500 downloads read slowly, 64 MiB",
            cause: |arena, stop| downloads(arena, stop, 500, 1_000),
            ..small
        },
    ]
}

/// Clients that take all they can get.
fn of_busy_clients() -> Vec<Trouble> {
    vec![
        Trouble {
            name: "20 downloads at full speed",
            cause: |arena, stop| downloads(arena, stop, 20, usize::MAX),
            ..HTTP
        },
        Trouble {
            name: "64 pipelining connections",
            is_in_quick: true,
            cause: |arena, stop| pipeliners(arena, stop, 64),
            ..HTTP
        },
        Trouble {
            name: "128 pipelining connections",
            cause: |arena, stop| pipeliners(arena, stop, 128),
            ..HTTP
        },
        Trouble {
            name: "connections that are reset at once",
            is_in_quick: true,
            cause: resets,
            ..HTTP
        },
        Trouble {
            name: "garbage instead of requests",
            cause: garbage,
            ..HTTP
        },
    ]
}

fn of_the_system() -> Vec<Trouble> {
    vec![
        Trouble {
            name: "uploads to a full disk",
            needs: Needs::FullDisk,
            cause: full_disk,
            ..HTTP
        },
        Trouble {
            name: "a mount that hangs",
            needs: Needs::HungMount,
            is_in_quick: true,
            cause: hung_mount,
            ..HTTP
        },
        Trouble {
            name: "a log that is not read, and 512 bad producers",
            needs: Needs::UnreadLog,
            is_in_quick: true,
            cause: bad_producers,
            ..OURS
        },
        Trouble {
            name: BUSY,
            cause: busy_loops,
            ..HTTP
        },
    ]
}

fn of_services() -> Vec<Trouble> {
    vec![
        Trouble {
            name: "NFS: 100 x 128 READs of 1 MiB that nobody reads",
            millis: LONG_MILLIS,
            is_in_quick: true,
            cause: unread_reads,
            ..OURS
        },
        Trouble {
            name: "NFS: 200 WRITEs that stop half way",
            millis: LONG_MILLIS,
            cause: half_writes,
            ..OURS
        },
        Trouble {
            name: "NFS: 32 connections that call without end",
            cause: calls,
            ..OURS
        },
        Trouble {
            name: "NFS: garbage instead of records",
            cause: bad_records,
            ..OURS
        },
        Trouble {
            name: "relay: more waiting clients than places",
            home: Home::Program(&["--relay-waiting", "500", "--max-connections", "2000"]),
            is_in_quick: true,
            cause: waiting_clients,
            ..OURS
        },
        Trouble {
            name: "relay: 8 pairs, one side of each floods, the other does not read",
            cause: unread_pairs,
            ..OURS
        },
        Trouble {
            name: "ingest: 500 producers and no consumer",
            cause: |arena, stop| producers(arena, stop, 500),
            ..OURS
        },
        Trouble {
            name: "ingest: consumers that die with what they hold",
            cause: dying_consumers,
            ..OURS
        },
        Trouble {
            name: "echo: 1,000 clients that send and do not read",
            cause: unread_echo,
            ..OURS
        },
    ]
}

fn of_handlers() -> Vec<Trouble> {
    let library = Trouble {
        home: Home::Library,
        ..OURS
    };
    vec![
        Trouble {
            name: "handlers that block for ever, on another listener",
            is_in_quick: true,
            cause: |arena, stop| ask(arena, stop, "/block"),
            ..library
        },
        Trouble {
            name: "handlers that panic",
            cause: |arena, stop| ask(arena, stop, "/panic"),
            ..library
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_at_least_twenty_troubles_with_names_of_their_own() {
        let troubles = troubles();
        assert!(troubles.len() >= 20);
        let names: std::collections::BTreeSet<_> =
            troubles.iter().map(|trouble| trouble.name).collect();
        assert_eq!(names.len(), troubles.len());
        assert!(names.contains(BUSY));
    }
}
