//! The troubles: what each of them does to the server, and with what options the server runs.
//!
//! A trouble lasts until it is stopped. The sizes come from what once stopped this server; where it
//! is about a bound, the server is started with a smaller bound, and nginx with the same.

use std::io;
use std::panic::resume_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flatpath_bench_common::http;
use flatpath_consumer::Consumer;
use flatpath_http::sse::Event;
use flatpath_testkit::nfs;

use super::crowd::Manner;
use super::h2;
use super::manners::{
    asking, big, deflated_zeros, downloads, flood, handshake, heads, large_files, masked_frame,
    uploads,
};
use super::mounts;
use super::server::Arena;

/// The row in which nginx is the measure.
pub(super) const BUSY: &str = "four busy loops on the machine";
/// Its loops.
const LOOPS: usize = 4;
/// How long a trouble lasts in a full run, in milliseconds, unless it needs more.
const MILLIS: u64 = 6_000;
/// Long enough for stalls of five seconds to end, in milliseconds.
const LONG_MILLIS: u64 = 12_000;
/// Connections that the server may have where a trouble is about that bound.
const PLACES: u32 = 1_000;
const BOUND: &[&str] = &["--max-connections", "1000"];
const SMALL: &[&str] = &["--memory", "64M"];
/// Of a receive buffer: about the least that the kernel allows.
const TINY_WINDOW_BYTES: usize = 4_096;
/// Of the events that listeners do not read, and how often one is sent.
const EVENT_BYTES: usize = 4_000;
const EVENT_EVERY: Duration = Duration::from_millis(20);
/// What a compression bomb of a kilobyte inflates to.
const BOMB_BYTES: usize = 1_000_000;

/// Where the server comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// The command, with these options besides.
    Program(&'static [&'static str]),
    /// The library, with handlers that are in trouble, and this budget for its buffers.
    Library { buffer_bytes_max: Option<usize> },
}

/// What has to be there before the server starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Needs {
    Nothing,
    /// Files of a mebibyte to 32, all of them in the kernel's cache.
    LargeFiles,
    /// A file system that can be made to hang, under `/mount`.
    HungMount,
    /// An overlay under `/mount`, which is local, over a layer that can be made to hang.
    HungLayer,
    /// A file system under `/mount` whose accesses a program permits, slowly.
    Scanned,
    /// A small file system of its own, under `/mount`.
    FullDisk,
    /// A pipe for the log that is not read.
    UnreadLog,
}

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
    /// Whether a client that stores and reads files is among the innocent: these rows are about the
    /// room that others leave it.
    pub(super) with_files: bool,
    /// A crowd that behaves like this.
    pub(super) crowd: fn(&Arena) -> io::Result<Manner>,
    /// What happens beside the crowd, until it is stopped.
    pub(super) beside: fn(&Arena, &AtomicBool) -> io::Result<()>,
}

impl Trouble {
    /// Makes the trouble until `stop`.
    pub(super) fn cause(&self, arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
        thread::scope(|scope| {
            let beside = scope.spawn(|| (self.beside)(arena, stop));
            let caused = crowd(arena, self.crowd, stop);
            let beside = beside.join().unwrap_or_else(|cause| resume_unwind(cause));
            caused.and(beside)
        })
    }
}

fn crowd(
    arena: &Arena,
    manner: fn(&Arena) -> io::Result<Manner>,
    stop: &AtomicBool,
) -> io::Result<()> {
    let mut manner = manner(arena)?;
    manner.connections = arena.crowd(manner.connections);
    manner.cause(stop)
}

/// A trouble over HTTP, which nginx has too.
pub(super) const HTTP: Trouble = Trouble {
    name: "",
    home: Home::Program(&[]),
    needs: Needs::Nothing,
    nginx_has_it: true,
    places: 16_384,
    millis: MILLIS,
    is_in_quick: false,
    with_files: false,
    crowd: |arena| Ok(Manner::to(arena.http)),
    beside: |_, _| Ok(()),
};

/// A trouble of a service that nginx does not have.
const OURS: Trouble = Trouble {
    nginx_has_it: false,
    ..HTTP
};

pub(super) fn troubles() -> Vec<Trouble> {
    [
        of_slow_clients(),
        of_crowds(),
        of_busy_clients(),
        h2::of_http2(),
        of_the_system(),
        mounts::of_file_systems(),
        of_nfs(),
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
            crowd: |arena| Ok(heads(arena, 1_500, 20)),
            ..at_the_bound
        },
        Trouble {
            name: "idle kept connections, more than allowed",
            crowd: |arena| Ok(asking(arena.http, 1_500, &[http::request(arena.hot_path)])),
            ..at_the_bound
        },
        Trouble {
            name: "4,800 unfinished heads of 22 KB",
            millis: LONG_MILLIS,
            is_in_quick: true,
            crowd: |arena| Ok(heads(arena, 4_800, 22_000)),
            ..HTTP
        },
        Trouble {
            name: "2,000 uploads at 4 KB/s, 64 MiB of memory",
            is_in_quick: true,
            crowd: |arena| Ok(uploads(arena, 2_000, 0, 4_000)),
            ..small
        },
        Trouble {
            name: "2,500 uploads that stop after 40 KB, 64 MiB",
            crowd: |arena| Ok(uploads(arena, 2_500, 40_000, 0)),
            ..small
        },
        Trouble {
            name: "2,000 downloads that nobody reads, 64 MiB",
            crowd: |arena| Ok(downloads(arena, 2_000, 0)),
            ..small
        },
        Trouble {
            name: "1,000 slow downloads and 1,000 slow uploads, 64 MiB",
            is_in_quick: true,
            crowd: |arena| Ok(uploads(arena, 1_000, 0, 4_000)),
            // Up to 40 KB/s: 200 bytes in a round of five milliseconds.
            beside: |arena, stop| crowd(arena, |arena| Ok(downloads(arena, 1_000, 200)), stop),
            ..small
        },
        Trouble {
            name: "500 downloads read slowly, 64 MiB",
            crowd: |arena| Ok(downloads(arena, 500, 1_000)),
            ..small
        },
    ]
}

/// Many clients of one address, and clients whose windows hold a few packets.
fn of_crowds() -> Vec<Trouble> {
    let beside_files = Trouble {
        with_files: true,
        ..HTTP
    };
    vec![
        Trouble {
            name: "4,500 uploads of one address at 600 B/s",
            crowd: |arena| {
                Ok(Manner {
                    addresses: 1,
                    ..uploads(arena, 4_500, 6_000, 600)
                })
            },
            ..beside_files
        },
        Trouble {
            name: "5,000 downloads of one address that begin together and are not read",
            crowd: |arena| {
                Ok(Manner {
                    addresses: 1,
                    ..downloads(arena, 5_000, 0)
                })
            },
            ..beside_files
        },
        Trouble {
            name: "500 downloads with tiny windows",
            crowd: |arena| {
                Ok(Manner {
                    window_bytes: Some(TINY_WINDOW_BYTES),
                    ..downloads(arena, 500, TINY_WINDOW_BYTES)
                })
            },
            ..beside_files
        },
        Trouble {
            name: "1,000 slow downloads and 1,000 slow uploads, 64 MiB, beside a client of files",
            home: Home::Program(SMALL),
            millis: LONG_MILLIS,
            crowd: |arena| Ok(uploads(arena, 1_000, 0, 4_000)),
            beside: |arena, stop| crowd(arena, |arena| Ok(downloads(arena, 1_000, 200)), stop),
            ..beside_files
        },
    ]
}

/// Clients that take all they can get.
fn of_busy_clients() -> Vec<Trouble> {
    vec![
        Trouble {
            name: "20 downloads at full speed",
            crowd: |arena| {
                Ok(Manner {
                    every: Duration::ZERO,
                    ..downloads(arena, 20, usize::MAX)
                })
            },
            ..HTTP
        },
        Trouble {
            name: "8 clients of files of 1 to 32 MiB at full speed",
            needs: Needs::LargeFiles,
            is_in_quick: true,
            crowd: |arena| Ok(large_files(arena, 8)),
            ..HTTP
        },
        Trouble {
            name: "64 pipelining connections",
            is_in_quick: true,
            crowd: |arena| {
                Ok(flood(
                    arena.http,
                    64,
                    http::request(arena.hot_path).repeat(500),
                ))
            },
            ..HTTP
        },
        Trouble {
            name: "128 pipelining connections",
            crowd: |arena| {
                Ok(flood(
                    arena.http,
                    128,
                    http::request(arena.hot_path).repeat(500),
                ))
            },
            ..HTTP
        },
        Trouble {
            name: "connections that are reset at once",
            is_in_quick: true,
            crowd: |arena| {
                Ok(Manner {
                    every: Duration::ZERO,
                    // The answer is not read, so that closing resets.
                    read_bytes: 0,
                    hit_and_run: true,
                    ..asking(arena.http, 200, &[http::request(arena.hot_path)])
                })
            },
            ..HTTP
        },
        Trouble {
            name: "garbage instead of requests",
            crowd: |arena| {
                let opening = |number| format!("\u{1}\u{2}{number} no such request\r\n\r\n");
                Ok(Manner {
                    opening: Box::new(move |number| opening(number).into_bytes()),
                    ..asking(arena.http, 200, &[])
                })
            },
            ..HTTP
        },
    ]
}

fn of_the_system() -> Vec<Trouble> {
    vec![
        Trouble {
            name: "a log that is not read, and 512 bad producers",
            needs: Needs::UnreadLog,
            is_in_quick: true,
            crowd: |arena| {
                Ok(Manner {
                    connections: 512,
                    // A message of more than four gigabytes less two.
                    opening: Box::new(|_| vec![0xff, 0xff, 0xff, 0xfe, 0]),
                    ..Manner::to(arena.service("ingest")?)
                })
            },
            ..OURS
        },
        Trouble {
            name: BUSY,
            beside: busy_loops,
            ..HTTP
        },
    ]
}

fn of_nfs() -> Vec<Trouble> {
    vec![
        Trouble {
            name: "NFS: 100 x 128 READs of 1 MiB that nobody reads",
            millis: LONG_MILLIS,
            is_in_quick: true,
            crowd: |arena| {
                let (to, file) = big(arena)?;
                let read = nfs::read(&file, 0, 1 << 20);
                let reads: Vec<u8> = (0..128).flat_map(|xid| read.record_by(0, xid)).collect();
                Ok(Manner {
                    connections: 100,
                    opening: Box::new(move |_| reads.clone()),
                    ..Manner::to(to)
                })
            },
            ..OURS
        },
        Trouble {
            name: "NFS: 200 WRITEs that stop half way",
            millis: LONG_MILLIS,
            crowd: |arena| {
                let (to, file) = big(arena)?;
                let mut write = nfs::write(&file, 0, &vec![b'w'; 1 << 20], 0).record_by(0, 1);
                write.truncate(write.len() / 2);
                Ok(Manner {
                    connections: 200,
                    opening: Box::new(move |_| write.clone()),
                    ..Manner::to(to)
                })
            },
            ..OURS
        },
        Trouble {
            name: "NFS: 32 connections that call without end",
            crowd: |arena| {
                let (to, file) = big(arena)?;
                let getattr = nfs::getattr(&file);
                let calls = (0..16).flat_map(|xid| getattr.record_by(0, xid));
                Ok(flood(to, 32, calls.collect()))
            },
            ..OURS
        },
        Trouble {
            name: "NFS: garbage instead of records",
            crowd: |arena| {
                Ok(Manner {
                    opening: Box::new(|number| {
                        [vec![0x80, 0, 0, 60], vec![number as u8; 60]].concat()
                    }),
                    ..asking(arena.service("nfs")?, 200, &[])
                })
            },
            ..OURS
        },
    ]
}

fn of_services() -> Vec<Trouble> {
    vec![
        Trouble {
            name: "relay: more waiting clients than places",
            home: Home::Program(&["--relay-waiting", "500", "--max-connections", "2000"]),
            is_in_quick: true,
            crowd: |arena| {
                let opening = |number| format!("please relay {number:064x}\n");
                Ok(Manner {
                    connections: 800,
                    opening: Box::new(move |number| opening(number).into_bytes()),
                    ..Manner::to(arena.service("relay")?)
                })
            },
            ..OURS
        },
        Trouble {
            name: "relay: 8 pairs, one side of each floods, the other does not read",
            crowd: |arena| {
                let opening = |(token, side)| {
                    format!("please relay {token:064x} for side {side:016x}\n").into_bytes()
                };
                Ok(Manner {
                    connections: 16,
                    opening: Box::new(move |number| opening((number / 2, number % 2))),
                    chunk: vec![b'r'; 256 * 1024],
                    every: Duration::from_millis(500),
                    ..Manner::to(arena.service("relay")?)
                })
            },
            ..OURS
        },
        Trouble {
            name: "ingest: 500 producers and no consumer",
            crowd: |arena| producers(arena, 500),
            ..OURS
        },
        Trouble {
            name: "ingest: consumers that die with what they hold",
            crowd: |arena| producers(arena, 50),
            beside: dying_consumers,
            ..OURS
        },
        Trouble {
            name: "echo: 1,000 clients that send and do not read",
            crowd: |arena| {
                Ok(Manner {
                    connections: 1_000,
                    chunk: vec![b'e'; 64 * 1024],
                    every: Duration::from_millis(500),
                    ..Manner::to(arena.service("echo")?)
                })
            },
            ..OURS
        },
    ]
}

fn of_handlers() -> Vec<Trouble> {
    let library = Trouble {
        home: Home::Library {
            buffer_bytes_max: None,
        },
        ..OURS
    };
    vec![
        Trouble {
            name: "handlers that block for ever, on another listener",
            is_in_quick: true,
            crowd: |arena| Ok(asking(arena.troubled, 400, &[http::request("/block")])),
            ..library
        },
        Trouble {
            name: "handlers that panic",
            crowd: |arena| Ok(asking(arena.troubled, 400, &[http::request("/panic")])),
            ..library
        },
        Trouble {
            name: "3,000 listeners on another listener that do not read their events, 32 MiB",
            home: Home::Library {
                buffer_bytes_max: Some(32 << 20),
            },
            millis: LONG_MILLIS,
            crowd: |arena| {
                Ok(Manner {
                    read_bytes: 0,
                    ..asking(arena.troubled, 3_000, &[http::request("/events")])
                })
            },
            beside: news,
            ..library
        },
        Trouble {
            name: "32 WebSockets that send compression bombs to another listener",
            crowd: |arena| {
                let bomb = masked_frame(&deflated_zeros(BOMB_BYTES));
                Ok(Manner {
                    opening: Box::new(|_| handshake("/echo")),
                    ..flood(arena.troubled, 32, bomb)
                })
            },
            ..library
        },
    ]
}

fn busy_loops(_: &Arena, stop: &AtomicBool) -> io::Result<()> {
    thread::scope(|scope| {
        for _ in 0..LOOPS {
            scope.spawn(|| {
                // ORDER: Relaxed: the flag alone matters.
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
    });
    Ok(())
}

fn producers(arena: &Arena, connections: usize) -> io::Result<Manner> {
    const BYTES: u32 = 10_000;
    let mut message = BYTES.to_be_bytes().to_vec();
    message.resize(message.len() + BYTES as usize, b'm');
    Ok(Manner {
        connections,
        chunk: message,
        every: Duration::from_millis(100),
        ..Manner::to(arena.service("ingest")?)
    })
}

/// Each consumer takes a few messages and is gone with them.
fn dying_consumers(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    // ORDER: Relaxed: the flag alone matters.
    while !stop.load(Ordering::Relaxed) {
        let Ok(mut consumer) = Consumer::attach(&arena.ingest_socket) else {
            thread::sleep(Duration::from_millis(5));
            continue;
        };
        let mut held = Vec::new();
        for _ in 0..20 {
            match consumer.receive_timeout(Duration::from_millis(20)) {
                Ok(Some(message)) => held.push(message),
                _ => break,
            }
        }
    }
    Ok(())
}

/// Events for all who listen.
fn news(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    // ORDER: Relaxed: the flag alone matters.
    while !stop.load(Ordering::Relaxed) {
        arena.news.send(Event::new().data("n".repeat(EVENT_BYTES)));
        thread::sleep(EVENT_EVERY);
    }
    Ok(())
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
