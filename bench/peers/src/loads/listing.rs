//! Listing one large directory with READDIRPLUS, page by page, as `ls -l` does.
//!
//! One connection, one call at a time: each page begins at the cookie that ended the one before it.
//! The client counts entries and checks that all came with attributes and a handle.

use std::io;
use std::time::{Duration, Instant};

use flatpath_bench_common::servers::{Metric, PEAK_MIB, Run};
use flatpath_testkit::nfs::{self, ATTRIBUTES, Connection};

use super::nfs::root;
use crate::comparison::{Load, Row, Turn};
use crate::ground::Ground;
use crate::server::Server;

/// `.` and `..`.
const DOTS: u64 = 2;

/// What is listed.
#[derive(Clone, Copy)]
pub(crate) struct Listing {
    pub(crate) files: u32,
    /// The longest reply that is asked for.
    pub(crate) page_bytes: u32,
}

/// One listing from start to end.
pub(crate) const LISTING: Metric = Metric::median("ms/listing");
const CALLS: Metric = Metric::median("calls");
/// CPU time of the server by entry.
const CPU: Metric = Metric::median("CPU us/entry");

impl Load for Listing {
    fn start<'a>(&'a self, ground: &'a Ground, row: &'a Row) -> io::Result<Turn<'a>> {
        let server = row.start(ground)?;
        // In a directory of its own, so that the root stays small.
        let directory = server.exported().join("list");
        std::fs::create_dir(&directory)?;
        for number in 0..self.files {
            std::fs::File::create(directory.join(format!("some-file-{number:06}.txt")))?;
        }
        Ok(Box::new(move || self.run(&server, ground.time())))
    }
}

impl Listing {
    /// Lists until the time is over, once at least.
    fn run(&self, server: &Server, time_max: Duration) -> io::Result<Run> {
        // Not as root: so the server has to ask the kernel in that user's name.
        let mut connection = Connection::try_open(server.address)?;
        let directory = connection.try_handle(&nfs::lookup(&root(server)?, "list"))?;
        let expected = u64::from(self.files) + DOTS;
        let began = Instant::now();
        let ((listings, calls), used) = server.watch(|| {
            let (mut listings, mut calls) = (0_u32, 0);
            while listings == 0 || began.elapsed() < time_max {
                calls += list(&mut connection, &directory, self.page_bytes, expected)?;
                listings += 1;
            }
            Ok((listings, calls))
        })?;
        let peak_kib = server.memory()?.peak_kib;
        let milliseconds = used.wall.as_secs_f64() * 1e3;
        Ok(vec![
            (LISTING, milliseconds / f64::from(listings)),
            (CALLS, f64::from(calls) / f64::from(listings)),
            (CPU, used.server_micros_over(expected * u64::from(listings))),
            (PEAK_MIB, peak_kib as f64 / 1024.0),
        ])
    }
}

/// Lists the directory; how many calls that took.
fn list(
    connection: &mut Connection,
    directory: &[u8],
    page_bytes: u32,
    expected: u64,
) -> io::Result<u32> {
    let (mut position, mut entries) = ((0, 0), 0);
    for call in 1.. {
        let reply = connection.try_call(&nfs::readdirplus(directory, position, page_bytes))?;
        let page = page_of_entries(nfs::good(&reply.results)?)?;
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

/// What one READDIRPLUS brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Page {
    entries: u64,
    verifier: u64,
    end: PageEnd,
}

/// Where a page ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PageEnd {
    /// More comes after this cookie.
    More(u64),
    /// It was the last one.
    Directory,
}

/// Counts the entries in good results of READDIRPLUS.
///
/// # Errors
/// `InvalidData` for results that are cut off, for an entry without attributes or handle, and for a
/// page without entries that is not the last.
fn page_of_entries(results: &[u8]) -> io::Result<Page> {
    let rest = &mut &*results;
    if word(rest)? != 0 {
        skip(rest, ATTRIBUTES)?;
    }
    let verifier = long(rest)?;
    let (mut entries, mut last) = (0, None);
    while word(rest)? != 0 {
        skip(rest, 8)?;
        skip_opaque(rest)?;
        last = Some(long(rest)?);
        if word(rest)? == 0 {
            return Err(invalid("an entry without attributes"));
        }
        skip(rest, ATTRIBUTES)?;
        if word(rest)? == 0 {
            return Err(invalid("an entry without a handle"));
        }
        skip_opaque(rest)?;
        entries += 1;
    }
    let end = match (word(rest)?, last) {
        (0, Some(cookie)) => PageEnd::More(cookie),
        (0, None) => return Err(invalid("a page without entries")),
        _ => PageEnd::Directory,
    };
    Ok(Page {
        entries,
        verifier,
        end,
    })
}

fn skip(rest: &mut &[u8], bytes: usize) -> io::Result<()> {
    let left = rest.get(bytes..);
    *rest = left.ok_or_else(|| invalid("results are cut off"))?;
    Ok(())
}

fn word(rest: &mut &[u8]) -> io::Result<u32> {
    let word = rest.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
    skip(rest, 4)?;
    Ok(word.unwrap_or_default())
}

fn long(rest: &mut &[u8]) -> io::Result<u64> {
    Ok(u64::from(word(rest)?) << 32 | u64::from(word(rest)?))
}

fn skip_opaque(rest: &mut &[u8]) -> io::Result<()> {
    let length = word(rest)? as usize;
    skip(rest, length.next_multiple_of(4))
}

fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use flatpath_testkit::nfs::Words;

    use super::*;

    /// Results of READDIRPLUS: names, whether they have a handle, whether it is the end.
    fn results(names: &[&str], with_handles: bool, ended: bool) -> Vec<u8> {
        let mut bytes = 1_u32.to_be_bytes().to_vec();
        bytes.extend([0; ATTRIBUTES]);
        bytes.extend(7_u64.to_be_bytes());
        for (cookie, name) in (1_u64..).zip(names) {
            bytes.extend(1_u32.to_be_bytes());
            bytes.extend(9_u64.to_be_bytes());
            bytes.extend(Words::default().opaque(name.as_bytes()).0);
            bytes.extend(cookie.to_be_bytes());
            bytes.extend(1_u32.to_be_bytes());
            bytes.extend([0; ATTRIBUTES]);
            bytes.extend(u32::from(with_handles).to_be_bytes());
            if with_handles {
                bytes.extend(Words::default().opaque(b"handle").0);
            }
        }
        bytes.extend(0_u32.to_be_bytes());
        bytes.extend(u32::from(ended).to_be_bytes());
        bytes
    }

    #[test]
    fn a_page_is_counted_and_says_where_the_next_begins() {
        let page = |end| Page {
            entries: 2,
            verifier: 7,
            end,
        };
        let read = page_of_entries(&results(&["a", "bcdef"], true, false));
        assert_eq!(read.expect("a page"), page(PageEnd::More(2)));
        let read = page_of_entries(&results(&["a", "bcdef"], true, true));
        assert_eq!(read.expect("a page"), page(PageEnd::Directory));
    }

    #[test]
    fn what_is_no_page_is_refused() {
        let good = results(&["a"], true, false);
        for length in 0..good.len() {
            assert!(page_of_entries(&good[..length]).is_err(), "{length}");
        }
        assert!(page_of_entries(&results(&["a"], false, true)).is_err());
        assert!(page_of_entries(&results(&[], true, false)).is_err());
    }
}
