//! What the troubles do, one function each; most are a crowd with its manner.

use std::io::{self, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use flatpath::Protocol;
use flatpath_consumer::Consumer;
use flatpath_http::{Http, Request, Response, Route};

use super::crowd::{Manner, trouble};
use super::server::{Arena, BIG_BYTES};
use flatpath_bench_common::rpc;

/// Busy loops of the row that has them.
const LOOPS: usize = 4;
const HOST: &str = "Host: bench\r\n";

/// A server of the library: `/inline` is answered at once, everything else by a worker. `/block`
/// does not come back before `release`, `/panic` panics.
pub(super) fn handlers(release: &Arc<AtomicBool>) -> impl Protocol + use<> {
    let release = Arc::clone(release);
    Http::routed(
        |head| match head.path() {
            "/inline" => Route::Inline,
            _ => Route::Pooled,
        },
        move |request: &Request| {
            match request.uri().path() {
                // ORDER: Relaxed: looked at again and again.
                "/block" => {
                    while !release.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(10));
                    }
                }
                "/panic" => std::panic::resume_unwind(Box::new("on purpose")),
                _ => {}
            }
            Response::new("ok\n".into())
        },
    )
}

pub(super) fn heads(
    arena: &Arena,
    stop: &AtomicBool,
    count: usize,
    bytes: usize,
) -> io::Result<()> {
    let mut head = format!("GET / HTTP/1.1\r\n{HOST}");
    let mut line = 0;
    while head.len() < bytes {
        line += 1;
        head += &format!("X-{line}: {}\r\n", "x".repeat(1_000));
    }
    let manner = Manner {
        connections: arena.crowd(count),
        opening: &|_| head.clone().into_bytes(),
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

pub(super) fn idle(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let request = get(arena.hot_path);
    let manner = Manner {
        connections: arena.crowd(1_500),
        opening: &|_| request.clone(),
        read_bytes: 4_096,
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

pub(super) fn uploads(
    arena: &Arena,
    stop: &AtomicBool,
    count: usize,
    at_once: usize,
    per_second: usize,
) -> io::Result<()> {
    let chunk = vec![b'u'; per_second];
    let manner = Manner {
        connections: arena.crowd(count),
        opening: &|number| {
            let mut head = put(&format!("/upload-{number}"), BIG_BYTES);
            head.resize(head.len() + at_once, b'u');
            head
        },
        chunk: &chunk,
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

pub(super) fn downloads(
    arena: &Arena,
    stop: &AtomicBool,
    count: usize,
    read_bytes: usize,
) -> io::Result<()> {
    let request = get("/big");
    let manner = Manner {
        connections: arena.crowd(count),
        opening: &|_| request.clone(),
        read_bytes,
        every: if read_bytes == usize::MAX {
            Duration::ZERO
        } else {
            Duration::from_millis(200)
        },
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

/// Downloads at up to 40 KB/s and as many uploads at 4 KB/s: all of them move.
pub(super) fn slow_both_ways(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    const EACH: usize = 1_000;
    // In a round of five milliseconds.
    const READ_BYTES: usize = 200;
    thread::scope(|scope| {
        let readers = scope.spawn(|| downloads(arena, stop, EACH, READ_BYTES));
        let sent = uploads(arena, stop, EACH, 0, 4_000);
        let read = readers
            .join()
            .unwrap_or_else(|cause| std::panic::resume_unwind(cause));
        sent.and(read)
    })
}

pub(super) fn pipeliners(arena: &Arena, stop: &AtomicBool, count: usize) -> io::Result<()> {
    let requests = get(arena.hot_path).repeat(500);
    let manner = Manner {
        connections: arena.crowd(count),
        chunk: &requests,
        every: Duration::ZERO,
        read_bytes: usize::MAX,
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

pub(super) fn resets(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let request = get(arena.hot_path);
    let manner = Manner {
        connections: arena.crowd(200),
        opening: &|_| request.clone(),
        every: Duration::ZERO,
        // The answer is not read, so that closing resets.
        hit_and_run: true,
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

pub(super) fn garbage(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let manner = Manner {
        connections: arena.crowd(200),
        opening: &|number| format!("\u{1}\u{2}{number} no such request\r\n\r\n").into_bytes(),
        read_bytes: 4_096,
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

pub(super) fn full_disk(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let chunk = vec![b'd'; 256 * 1024];
    let manner = Manner {
        connections: arena.crowd(20),
        opening: &|number| put(&format!("/mount/file-{number}"), 16 << 20),
        chunk: &chunk,
        every: Duration::from_millis(10),
        read_bytes: 4_096,
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

/// One file of the mount is hot when it begins to hang; then many want it, and others there.
pub(super) fn hung_mount(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let hot = get("/mount/file.txt");
    for _ in 0..10 {
        let mut stream = TcpStream::connect(arena.http)?;
        stream.write_all(&hot)?;
        thread::sleep(Duration::from_millis(10));
    }
    if let Some(hang) = &arena.hang {
        hang.set(true);
    }
    let cold = get("/mount/other");
    let manner = Manner {
        connections: arena.crowd(400),
        opening: &|number| {
            if number % 2 == 0 {
                hot.clone()
            } else {
                cold.clone()
            }
        },
        read_bytes: 4_096,
        ..Manner::default()
    };
    trouble(arena.http, &manner, stop)
}

pub(super) fn bad_producers(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let manner = Manner {
        connections: arena.crowd(512),
        // A message of more than four gigabytes less two.
        opening: &|_| vec![0xff, 0xff, 0xff, 0xfe, 0],
        ..Manner::default()
    };
    trouble(service(arena.ingest)?, &manner, stop)
}

pub(super) fn busy_loops(_: &Arena, stop: &AtomicBool) -> io::Result<()> {
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

pub(super) fn unread_reads(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let to = service(arena.nfs)?;
    let file = big(to)?;
    let calls: Vec<u8> = (0..128)
        .flat_map(|number| rpc::read(number, &file, 0, 1 << 20))
        .collect();
    let manner = Manner {
        connections: arena.crowd(100),
        opening: &|_| calls.clone(),
        ..Manner::default()
    };
    trouble(to, &manner, stop)
}

pub(super) fn half_writes(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let to = service(arena.nfs)?;
    let file = big(to)?;
    let mut call = rpc::write(1, &file, 0, &vec![b'w'; 1 << 20]);
    call.truncate(call.len() / 2);
    let manner = Manner {
        connections: arena.crowd(200),
        opening: &|_| call.clone(),
        ..Manner::default()
    };
    trouble(to, &manner, stop)
}

pub(super) fn calls(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let to = service(arena.nfs)?;
    let file = big(to)?;
    let calls: Vec<u8> = (0..16)
        .flat_map(|number| rpc::getattr(number, &file))
        .collect();
    let manner = Manner {
        connections: arena.crowd(32),
        chunk: &calls,
        every: Duration::ZERO,
        read_bytes: usize::MAX,
        ..Manner::default()
    };
    trouble(to, &manner, stop)
}

pub(super) fn bad_records(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let manner = Manner {
        connections: arena.crowd(200),
        opening: &|number| {
            let byte = u8::try_from(number % 256).unwrap_or(0);
            [vec![0x80, 0, 0, 60], vec![byte; 60]].concat()
        },
        read_bytes: 4_096,
        ..Manner::default()
    };
    trouble(service(arena.nfs)?, &manner, stop)
}

pub(super) fn waiting_clients(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let manner = Manner {
        connections: arena.crowd(800),
        opening: &|number| format!("please relay {number:064x}\n").into_bytes(),
        ..Manner::default()
    };
    trouble(service(arena.relay)?, &manner, stop)
}

pub(super) fn unread_pairs(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let flood = vec![b'r'; 256 * 1024];
    let manner = Manner {
        connections: 16,
        opening: &|number| {
            let (token, side) = (number / 2, number % 2);
            format!("please relay {token:064x} for side {side:016x}\n").into_bytes()
        },
        chunk: &flood,
        every: Duration::from_millis(500),
        ..Manner::default()
    };
    trouble(service(arena.relay)?, &manner, stop)
}

pub(super) fn producers(arena: &Arena, stop: &AtomicBool, count: usize) -> io::Result<()> {
    let message = message(10_000);
    let manner = Manner {
        connections: arena.crowd(count),
        chunk: &message,
        every: Duration::from_millis(100),
        ..Manner::default()
    };
    trouble(service(arena.ingest)?, &manner, stop)
}

/// Each consumer takes a few messages and is gone with them.
pub(super) fn dying_consumers(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    thread::scope(|scope| {
        scope.spawn(|| {
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
        });
        producers(arena, stop, 50)
    })
}

pub(super) fn unread_echo(arena: &Arena, stop: &AtomicBool) -> io::Result<()> {
    let chunk = vec![b'e'; 64 * 1024];
    let manner = Manner {
        connections: arena.crowd(1_000),
        chunk: &chunk,
        every: Duration::from_millis(500),
        ..Manner::default()
    };
    trouble(service(arena.echo)?, &manner, stop)
}

pub(super) fn ask(arena: &Arena, stop: &AtomicBool, path: &str) -> io::Result<()> {
    let request = get(path);
    let manner = Manner {
        connections: arena.crowd(400),
        opening: &|_| request.clone(),
        read_bytes: 4_096,
        ..Manner::default()
    };
    trouble(arena.troubled, &manner, stop)
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\n{HOST}\r\n").into_bytes()
}

fn put(path: &str, bytes: u64) -> Vec<u8> {
    format!("PUT {path} HTTP/1.1\r\n{HOST}Content-Length: {bytes}\r\n\r\n").into_bytes()
}

fn message(bytes: u32) -> Vec<u8> {
    let mut message = bytes.to_be_bytes().to_vec();
    message.resize(message.len() + bytes as usize, b'm');
    message
}

/// The handle of the large file.
fn big(to: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(to)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    let root = rpc::mount(&mut stream, "/")?;
    rpc::lookup(&mut stream, &root, "big")
}

fn service(address: Option<SocketAddr>) -> io::Result<SocketAddr> {
    address.ok_or_else(|| io::Error::other("the server does not have this service"))
}
