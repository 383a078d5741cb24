//! Listing one large directory with READDIRPLUS, page by page, as `ls -l` does.
//!
//! One connection, one call at a time: each page begins at the cookie that ended the one before it.
//! The client counts entries and checks that all came with attributes and a handle.

use std::io;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use flatpath_bench_common::rpc::{self, PageEnd};
use flatpath_bench_common::servers::{Metric, PEAK_MIB, Run};
use flatpath_bench_common::usage::{Reading, group_memory};

use super::connection::Mount;

/// Files of the directory, and with `--quick`.
pub(super) const FILES: [u32; 2] = [150_000, 3_000];
/// `.` and `..`.
const DOTS: u64 = 2;

/// What is listed.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) files: u32,
    /// The longest reply that is asked for.
    pub(super) page_bytes: u32,
}

/// One listing from start to end.
pub(super) const LISTING: Metric = Metric::median("ms/listing");
const CALLS: Metric = Metric::median("calls");
/// CPU time of the server by entry.
const CPU: Metric = Metric::median("CPU us/entry");

/// Makes what is listed, in a directory of its own, so that the root stays small.
pub(super) fn fill(export: &Path, files: u32) -> io::Result<()> {
    let directory = export.join("list");
    std::fs::create_dir(&directory)?;
    for number in 0..files {
        std::fs::File::create(directory.join(format!("some-file-{number:06}.txt")))?;
    }
    Ok(())
}

/// Lists until `seconds` have passed, once at least.
pub(super) fn run(mount: &Mount, load: Load, seconds: u32, group: u32) -> io::Result<Run> {
    let root = rpc::mount(&mut TcpStream::connect(mount.mount)?, &mount.path)?;
    let mut stream = TcpStream::connect(mount.nfs)?;
    stream.set_nodelay(true)?;
    let directory = rpc::lookup(&mut stream, &root, "list")?;
    let expected = u64::from(load.files) + DOTS;
    let time_max = Duration::from_secs(seconds.into());
    let before = Reading::take(Some(group))?;
    let began = Instant::now();
    let (mut listings, mut calls) = (0_u32, 0);
    while listings == 0 || began.elapsed() < time_max {
        calls += list(&mut stream, &directory, load.page_bytes, expected)?;
        listings += 1;
    }
    let taken = began.elapsed();
    let used = before.used()?;
    let peak_kib = group_memory(group)?.peak_kib;
    Ok(vec![
        (LISTING, taken.as_secs_f64() * 1e3 / f64::from(listings)),
        (CALLS, f64::from(calls) / f64::from(listings)),
        (CPU, used.server_micros_over(expected * u64::from(listings))),
        (PEAK_MIB, peak_kib as f64 / 1024.0),
    ])
}

/// Lists the directory; how many calls that took.
fn list(
    stream: &mut TcpStream,
    directory: &[u8],
    page_bytes: u32,
    expected: u64,
) -> io::Result<u32> {
    let (mut position, mut entries) = ((0, 0), 0);
    for call in 1.. {
        let record = rpc::readdirplus(call, directory, position, page_bytes);
        let results = rpc::ask(stream, &record)?;
        let page = rpc::page_of_entries(rpc::good(&results)?)?;
        entries += page.entries;
        match page.end {
            PageEnd::More(cookie) => position = (cookie, page.verifier),
            PageEnd::Directory if entries == expected => return Ok(call),
            PageEnd::Directory => break,
        }
    }
    let what = format!("{entries} entries were listed of {expected}");
    Err(io::Error::other(what))
}
