//! What workers read of files that are not in the cache, on a simulated server: part by part, one
//! ahead of the client.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::{Arc, Mutex};

use flatpath::files::SentFile;
use flatpath::simulation::{Conditions, SimulatedServer};

use crate::files::{FILE_BYTES, Ranges, WINDOW_BYTES, ask, content, file_of};

/// A file of which what was read is at hand, and so much after it.
struct Cold {
    file: File,
    brings: u64,
    read: Mutex<Vec<Range<u64>>>,
}

/// What a worker reads at a time.
const PART: u64 = 512 * 1024;

impl Cold {
    fn with(content: &[u8], brings: u64) -> Arc<Cold> {
        Arc::new(Cold {
            file: file_of(content),
            brings,
            read: Mutex::default(),
        })
    }

    /// A server of it, and what a client gets.
    fn serve(self: &Arc<Cold>, content: &[u8]) -> (SimulatedServer, Vec<u8>) {
        let ranges = Ranges {
            file: Arc::clone(self) as _,
            ranges: std::iter::once(0..content.len() as u64).collect(),
        };
        let expected = ranges.expected(content);
        let server = SimulatedServer::new(Conditions::calm(1), ranges);
        server.world().set_window_bytes(4096);
        (server, expected)
    }

    fn read(&self) -> Vec<Range<u64>> {
        self.read.lock().expect("no panic").clone()
    }
}

impl SentFile for Cold {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn is_at_hand(&self, bytes: Range<u64>) -> bool {
        let brought = |last: &Range<u64>| bytes.end <= last.end + self.brings;
        self.read().last().is_some_and(brought)
    }

    fn read_ahead(&self, bytes: Range<u64>) {
        self.read.lock().expect("no panic").push(bytes);
    }

    fn broke_off(&self, cause: &io::Error) {
        panic!("it has all of it: {cause}");
    }
}

/// A part that is read is sent at once, and while it is sent the next one is read, and no more.
#[test]
fn a_file_is_read_part_by_part_one_ahead_of_its_client() {
    let content = content();
    let cold = Cold::with(&content, 0);
    let (mut server, expected) = cold.serve(&content);
    let client = server.connect();
    client.write(b"x");
    (0..100).for_each(|_| server.turn());
    assert_eq!(cold.read(), [0..PART, PART..2 * PART], "it reads nothing");
    drop(client);
    cold.read.lock().expect("no panic").clear();
    server.world().set_window_bytes(WINDOW_BYTES);
    assert!(ask(&mut server) == expected);
    let read = cold.read();
    assert!(read.iter().all(|part| part.end - part.start <= PART));
    let follows = |pair: &[Range<u64>]| pair[0].end == pair[1].start;
    assert!(read.windows(2).all(follows), "each byte once: {read:?}");
    assert_eq!(read.last().map(|last| last.end), Some(FILE_BYTES as u64));
}

/// Where the kernel reads ahead by itself, a worker reads what comes after that, before it is
/// awaited.
#[test]
fn what_comes_after_a_window_that_is_there_is_read_while_that_is_sent() {
    let content = vec![7; 3 * FILE_BYTES];
    let cold = Cold::with(&content, 4 * PART);
    let (mut server, _) = cold.serve(&content);
    let client = server.connect();
    client.write(b"x");
    let mut came = 0;
    for _ in 0..1_000 {
        server.turn();
        if came <= PART as usize + 4096 {
            came += client.read().len();
        }
    }
    assert!(came > PART as usize, "{came} bytes");
    assert_eq!(cold.read(), [0..PART, 5 * PART..6 * PART]);
}

/// More clients than are read for at a time: none has its second part read before each has its
/// first.
#[test]
fn no_part_is_read_ahead_of_those_that_wait_for_one() {
    let content = content();
    let cold = Cold::with(&content, 0);
    let disk = Arc::new(Silent(Arc::clone(&cold)));
    let ranges = Ranges {
        file: disk,
        ranges: std::iter::once(0..content.len() as u64).collect(),
    };
    let mut server = SimulatedServer::new(Conditions::calm(1), ranges);
    let clients: Vec<_> = (0..80).map(|_| server.connect()).collect();
    while server.statistics().connections() < clients.len() as u64 {
        server.turn_without_workers();
    }
    clients.iter().for_each(|client| client.write(b"x"));
    (0..100).for_each(|_| server.turn_without_workers());
    (0..1_000).for_each(|_| server.turn());
    let read = cold.read();
    assert!(read.len() > clients.len(), "some have more read");
    let first = read[..clients.len()].iter().all(|part| part.start == 0);
    assert!(first, "{:?}", &read[..clients.len()]);
}

/// A file of a file system that never tells what is there.
struct Silent(Arc<Cold>);

impl SentFile for Silent {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.0.descriptor()
    }

    fn is_at_hand(&self, _: Range<u64>) -> bool {
        false
    }

    fn read_ahead(&self, bytes: Range<u64>) {
        self.0.read_ahead(bytes);
    }

    fn broke_off(&self, cause: &io::Error) {
        self.0.broke_off(cause);
    }
}
