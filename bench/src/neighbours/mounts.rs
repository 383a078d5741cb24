//! Troubles of file systems, under `/mount` of what is served.

use std::io::{self, Write};
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use flatpath_bench_common::http;

use super::crowd::Manner;
use super::manners::{asking, put};
use super::server::Arena;
use super::troubles::{HTTP, Needs, Trouble};

/// Files on the file system that a scanner watches.
pub(super) const SCANNED_FILES: usize = 16;

pub(super) fn of_file_systems() -> Vec<Trouble> {
    vec![
        Trouble {
            name: "uploads to a full disk",
            needs: Needs::FullDisk,
            crowd: |arena| {
                Ok(Manner {
                    connections: 20,
                    opening: Box::new(|number| put(&format!("/mount/file-{number}"), 16 << 20)),
                    chunk: vec![b'd'; 256 * 1024],
                    every: Duration::from_millis(10),
                    read_bytes: 4_096,
                    ..Manner::to(arena.http)
                })
            },
            ..HTTP
        },
        Trouble {
            name: "a mount that hangs",
            needs: Needs::HungMount,
            is_in_quick: true,
            crowd: hung_mount,
            ..HTTP
        },
        Trouble {
            name: "an overlay over a layer that hangs",
            needs: Needs::HungLayer,
            crowd: hung_mount,
            ..HTTP
        },
        Trouble {
            name: "a scanner that permits each access to a mount after 150 ms",
            needs: Needs::Scanned,
            crowd: |arena| {
                let file = |number| http::request(&format!("/mount/file-{number}"));
                let files: Vec<_> = (0..SCANNED_FILES).map(file).collect();
                Ok(asking(arena.http, 64, &files))
            },
            ..HTTP
        },
    ]
}

/// One file of the mount is hot when it begins to hang; then many want it, and others there.
fn hung_mount(arena: &Arena) -> io::Result<Manner> {
    let [hot, cold] = ["/mount/file.txt", "/mount/other"].map(http::request);
    for _ in 0..10 {
        let mut stream = TcpStream::connect(arena.http)?;
        stream.write_all(&hot)?;
        thread::sleep(Duration::from_millis(10));
    }
    if let Some(hang) = &arena.hang {
        hang.set(true);
    }
    Ok(asking(arena.http, 400, &[hot, cold]))
}
