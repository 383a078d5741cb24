//! Ranges of files on a simulated server: each byte once and in order, or the connection ends.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use flatpath::files::{FileRange, OpenFile, SentFile};
use flatpath::prompt::FileSystem;
use flatpath::simulation::{Client, Conditions, SimulatedServer};
use flatpath::{Context, Protocol, Received};
use flatpath_driver::simulation::{ClientState, Fault, each_seed};

/// More than a window.
pub(crate) const FILE_BYTES: usize = 5 * 1024 * 1024 / 2;

/// On the way to a client at most.
pub(crate) const WINDOW_BYTES: usize = 256 * 1024;

pub(crate) fn content() -> Vec<u8> {
    (0..FILE_BYTES).map(|at| (at / 3 % 251) as u8).collect()
}

/// Sends ranges of one file for each byte that it gets, with words around them.
pub(crate) struct Ranges {
    pub(crate) file: Arc<dyn SentFile>,
    pub(crate) ranges: Vec<Range<u64>>,
}

impl Ranges {
    fn of(file: File, ranges: &[Range<u64>]) -> Ranges {
        let system = Arc::new(FileSystem::of(&file));
        Ranges {
            file: Arc::new(OpenFile::new(file, system, *b"file", None)),
            ranges: ranges.to_vec(),
        }
    }

    fn on(disk: &Arc<Disk>, range: Range<u64>) -> Ranges {
        Ranges {
            file: Arc::clone(disk) as _,
            ranges: vec![range],
        }
    }

    pub(crate) fn expected(&self, content: &[u8]) -> Vec<u8> {
        let mut all = Vec::new();
        for range in &self.ranges {
            all.extend_from_slice(b"head ");
            all.extend_from_slice(&content[range.start as usize..range.end as usize]);
        }
        all.extend_from_slice(b" end");
        all
    }
}

impl Protocol for Ranges {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        for _ in input {
            for range in &self.ranges {
                context.write(b"head ").expect("a few bytes");
                let file = Arc::clone(&self.file);
                let range = FileRange::new(file, range.clone());
                context.write_file(range).expect("in the clear");
            }
            context.write(b" end").expect("a few bytes");
        }
        context.close_after_output();
        Received::NeedMore {
            consumed: input.len(),
        }
    }
}

/// A file on a disk, which is asked each time and says what it has brought.
struct Disk {
    file: File,
    /// This many of the first requests find what they ask for at hand.
    first: usize,
    has_brought: AtomicBool,
    asked: AtomicUsize,
    read: AtomicUsize,
}

impl Disk {
    fn with(content: &[u8], first: usize) -> Arc<Disk> {
        Arc::new(Disk {
            file: file_of(content),
            first,
            has_brought: AtomicBool::new(false),
            asked: AtomicUsize::new(0),
            read: AtomicUsize::new(0),
        })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// How often a turn may ask for what is not at hand, of all connections of these tests.
const ASKED_MAX: usize = 10_000;

impl SentFile for Disk {
    fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    fn is_at_hand(&self, _: Range<u64>) -> bool {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(asked < ASKED_MAX, "connections that wait for a disk spin");
        asked < self.first || self.has_brought.load(Ordering::Relaxed)
    }

    fn copy_at_hand(&self, room: &mut [u8], offset: u64) -> bool {
        let has_brought = self.has_brought.load(Ordering::Relaxed);
        has_brought && self.file.read_exact_at(room, offset).is_ok()
    }

    fn read_ahead(&self, _: Range<u64>) {
        self.read.fetch_add(1, Ordering::Relaxed);
    }

    fn broke_off(&self, cause: &io::Error) {
        panic!("the disk has all of it: {cause}");
    }
}

/// A client that has asked for all, and its bytes until the server has ended the connection.
pub(crate) fn ask(server: &mut SimulatedServer) -> Vec<u8> {
    let client = server.connect();
    client.write(b"x");
    client.shutdown_write();
    let mut all = Vec::new();
    for _ in 0..200_000 {
        server.turn();
        all.extend(client.read());
        if client.state() != ClientState::Open {
            // What is on its way comes before the end.
            for _ in 0..1_000 {
                server.turn();
                server.advance(Duration::from_millis(1));
                all.extend(client.read());
            }
            return all;
        }
        server.advance(Duration::from_micros(100));
    }
    panic!("the connection does not end: {} bytes", all.len());
}

pub(crate) fn file_of(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().expect("a file");
    file.write_all(content).expect("written");
    file
}

const PARTS: [Range<u64>; 4] = [
    5..6,
    0..FILE_BYTES as u64,
    4096..70_000,
    FILE_BYTES as u64 - 1..FILE_BYTES as u64,
];

#[test]
fn each_byte_comes_once_and_in_order_also_where_it_is_not_at_hand() {
    let content = content();
    each_seed(8, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.faults = conditions.faults.with(Fault::NotAtHand, 400);
        let ranges = Ranges::of(file_of(&content), &PARTS);
        let (expected, file) = (ranges.expected(&content), Arc::clone(&ranges.file));
        let mut server = SimulatedServer::new(conditions, ranges);
        server.world().set_window_bytes(WINDOW_BYTES);
        let all = ask(&mut server);
        assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
        // The protocol has one.
        assert_eq!(Arc::strong_count(&file), 2, "nothing else holds the file");
    });
}

/// More than are read ahead for at a time, each with more than goes out in a turn beside others.
#[test]
fn all_who_ask_at_once_for_what_is_not_at_hand_are_served_in_turn() {
    let content = content();
    each_seed(3, |seed| {
        let mut conditions = Conditions::calm(seed);
        conditions.faults = conditions.faults.with(Fault::NotAtHand, 500);
        let part = 0..150_000;
        let ranges = Ranges::of(file_of(&content), std::slice::from_ref(&part));
        let expected = ranges.expected(&content).len();
        let mut server = SimulatedServer::new(conditions, ranges);
        let clients: Vec<_> = (0..80).map(|_| server.connect()).collect();
        for client in &clients {
            client.write(b"x");
            client.shutdown_write();
        }
        let mut came = vec![0; clients.len()];
        for _ in 0..20_000 {
            server.turn();
            server.advance(Duration::from_micros(100));
            for (bytes, client) in came.iter_mut().zip(&clients) {
                *bytes += client.read().len();
            }
        }
        assert!(came.iter().all(|bytes| *bytes == expected), "{came:?}");
        assert!(server.world().injected().count(Fault::NotAtHand) > 0);
    });
}

/// A server, and more clients than are read ahead for at a time. They ask together for these bytes,
/// which are more than a turn sends of all of them.
fn crowd(disk: &Arc<Disk>, part: u64) -> (SimulatedServer, Vec<Client>) {
    let mut server = SimulatedServer::new(Conditions::calm(1), Ranges::on(disk, 0..part));
    let clients: Vec<_> = (0..80).map(|_| server.connect()).collect();
    let mut turns = 0;
    while server.statistics().connections() < clients.len() as u64 {
        server.turn_without_workers();
        turns += 1;
        assert!(turns < 1_000, "all are let in");
    }
    for client in &clients {
        client.write(b"x");
    }
    (server, clients)
}

/// Until each connection has asked for its first window, and no worker has read one.
fn all_ask(server: &mut SimulatedServer, disk: &Disk, connections: usize) {
    for _ in 0..1_000 {
        if disk.asked() >= connections {
            return;
        }
        server.turn_without_workers();
    }
    panic!("{} of {connections} have asked", disk.asked());
}

/// The first have more than a turn sends, so the others wait for the next turn, and then for the
/// disk.
#[test]
fn connections_that_wait_for_a_slow_disk_take_no_turns() {
    let disk = Disk::with(&content(), 8);
    let (mut server, clients) = crowd(&disk, 150_000);
    let waiting = clients.len() - 8;
    all_ask(&mut server, &disk, clients.len());
    for _ in 0..100 {
        server.turn_without_workers();
    }
    assert_eq!(disk.asked(), clients.len(), "each asks once");
    let in_use_bytes = server.handle().pool_statistics().in_use_bytes;
    // What comes after its range waits with each.
    let of_ends = 4096 * clients.len();
    assert_eq!(in_use_bytes, of_ends, "no buffer for a head");
    let mut came = vec![0; clients.len()];
    for _ in 0..1_000 {
        server.turn();
        for (bytes, client) in came.iter_mut().zip(&clients) {
            *bytes += client.read().len();
        }
    }
    assert!(came.iter().all(|bytes| *bytes == 150_009), "{came:?}");
    // Those that had to wait for another's reading have asked twice.
    assert_eq!(disk.asked(), clients.len() + waiting - 64);
    assert_eq!(disk.read.load(Ordering::Relaxed), waiting);
}

/// By the rule for long sends, whether a worker has read them or the disk has by itself. Of a long
/// one the socket of a new client takes an eighth of what a turn sends.
#[test]
fn what_a_disk_brings_at_once_is_sent_turn_by_turn() {
    for part in [100_000, 150_000, FILE_BYTES as u64] {
        let disk = Disk::with(&content(), 0);
        let (mut server, clients) = crowd(&disk, part);
        all_ask(&mut server, &disk, clients.len());
        disk.has_brought.store(true, Ordering::Relaxed);
        let mut is_served = vec![false; clients.len()];
        let mut most = 0;
        for _ in 0..200 {
            server.turn();
            let mut begun = 0;
            for (is_served, client) in is_served.iter_mut().zip(&clients) {
                let has_come = !client.read().is_empty();
                begun += usize::from(has_come && !*is_served);
                *is_served |= has_come;
            }
            most = most.max(begun);
        }
        assert!(is_served.iter().all(|is_served| *is_served));
        let taken = part.min(128 * 1024) as usize;
        assert_eq!(most, (1024 * 1024_usize).div_ceil(taken), "of {part} bytes");
    }
}

/// A file system that never tells is not waited for twice.
#[test]
fn what_a_worker_has_read_is_not_read_again() {
    let content = content();
    for window_bytes in [16 * 1024, WINDOW_BYTES, FILE_BYTES] {
        let disk = Disk::with(&content, 0);
        let ranges = Ranges::on(&disk, 0..FILE_BYTES as u64);
        let expected = ranges.expected(&content);
        let mut server = SimulatedServer::new(Conditions::calm(1), ranges);
        server.world().set_window_bytes(window_bytes);
        assert!(ask(&mut server) == expected);
        let read = disk.read.load(Ordering::Relaxed);
        assert_eq!(read, FILE_BYTES.div_ceil(512 * 1024), "{window_bytes}");
    }
}

#[test]
fn a_short_range_that_is_at_hand_is_copied_and_no_other() {
    let content = content();
    for (length, is_there) in [(8192, true), (8193, true), (1, true), (1, false)] {
        let disk = Disk::with(&content, 0);
        disk.has_brought.store(is_there, Ordering::Relaxed);
        let ranges = Ranges::on(&disk, 7..7 + length);
        let expected = ranges.expected(&content);
        let mut server = SimulatedServer::new(Conditions::calm(1), ranges);
        assert!(ask(&mut server) == expected, "{length}");
        let is_sent = length > 8192 || !is_there;
        assert_eq!(disk.asked(), usize::from(is_sent), "{length}");
    }
}

#[test]
fn a_file_that_cannot_be_read_ends_its_connection_and_no_other() {
    let content = content();
    each_seed(8, |seed| {
        let mut conditions = Conditions::rough(seed);
        conditions.faults = conditions.faults.with(Fault::FileError, 1_000);
        let whole = 0..FILE_BYTES as u64;
        let ranges = Ranges::of(file_of(&content), std::slice::from_ref(&whole));
        let mut server = SimulatedServer::new(conditions, ranges);
        let came = ask(&mut server);
        assert!(came.is_empty() || came == b"head ", "{} bytes", came.len());
        let struck = server.world().injected();
        assert!(struck.count(Fault::FileError) > 0);
    });
}

#[test]
fn a_file_that_has_become_shorter_ends_its_connection_and_no_other() {
    let content = content();
    each_seed(8, |seed| {
        let file = file_of(&content);
        let writer = file.try_clone().expect("a clone");
        let whole = 0..FILE_BYTES as u64;
        let mut conditions = Conditions::rough(seed);
        conditions.faults = conditions.faults.with(Fault::NotAtHand, 300);
        let mut server =
            SimulatedServer::new(conditions, Ranges::of(file, std::slice::from_ref(&whole)));
        writer.set_len(FILE_BYTES as u64 / 2).expect("cut");
        server.world().set_window_bytes(WINDOW_BYTES);
        let came = ask(&mut server);
        let most = 5 + FILE_BYTES / 2;
        assert!(came.len() <= most, "nothing is made up: {}", came.len());
        assert!(came[5.min(came.len())..] == content[..came.len().saturating_sub(5)]);
        writer.write_all_at(&content, 0).expect("written");
        assert_eq!(ask(&mut server).len(), FILE_BYTES + 9, "another is served");
    });
}

/// The same where records are made of what is read.
#[cfg(feature = "tls")]
mod secured {
    use std::cell::Cell;

    use flatpath_driver::simulation::Faults;

    use super::*;
    use crate::tls_client::{End, TURNS_MAX, VERSIONS, server_config};

    const SEEDS: u64 = 6;

    /// A client that has shaken hands and asked for all.
    fn asked(server: &mut SimulatedServer, version: usize) -> End {
        let mut end = End::new(server, version);
        for _ in 0..TURNS_MAX {
            step(server, &mut end);
            if !end.tls.tls.is_handshaking() {
                end.tls.say(b"x");
                return end;
            }
        }
        panic!("no handshake");
    }

    fn step(server: &mut SimulatedServer, end: &mut End) {
        let said = end.tls.take();
        if !said.is_empty() && end.client.state() == ClientState::Open {
            end.client.write(&said);
        }
        server.turn();
        server.advance(Duration::from_micros(100));
        end.tls.feed(&end.client.read());
    }

    /// What it hears until the server has ended the connection.
    fn heard(server: &mut SimulatedServer, end: &mut End) -> Vec<u8> {
        for _ in 0..TURNS_MAX {
            step(server, end);
            if end.client.state() != ClientState::Open {
                (0..1_000).for_each(|_| step(server, end));
                return std::mem::take(&mut end.tls.heard);
            }
        }
        panic!("the connection does not end: {}", end.tls.heard.len());
    }

    fn conditions(seed: u64, fault: Fault, permille: u16) -> Conditions {
        let mut dice = flatpath_driver::simulation::Random::new(seed);
        let faults = Faults::none().with(fault, permille);
        Conditions {
            tls: Some(server_config()),
            ..Conditions::drawn(seed, &mut dice, faults)
        }
    }

    #[test]
    fn each_byte_is_sealed_once_and_in_order_also_where_it_is_not_at_hand() {
        let content = content();
        let struck = Cell::new(0);
        each_seed(SEEDS, |seed| {
            for version in 0..VERSIONS.len() {
                let ranges = Ranges::of(file_of(&content), &PARTS);
                let (expected, file) = (ranges.expected(&content), Arc::clone(&ranges.file));
                let conditions = conditions(seed, Fault::NotAtHand, 400);
                let mut server = SimulatedServer::new(conditions, ranges);
                server.world().set_window_bytes(WINDOW_BYTES);
                let mut end = asked(&mut server, version);
                let all = heard(&mut server, &mut end);
                assert!(all == expected, "{} of {} bytes", all.len(), expected.len());
                assert!(end.tls.was_told_of_the_end(), "cut off");
                let count = server.world().injected().count(Fault::NotAtHand);
                struck.set(struck.get() + count);
                assert_eq!(Arc::strong_count(&file), 2, "nothing else holds the file");
            }
        });
        assert!(struck.get() > 0);
    }

    #[test]
    fn a_file_that_has_become_shorter_ends_its_connection_visibly() {
        let content = content();
        each_seed(SEEDS, |seed| {
            let file = file_of(&content);
            let writer = file.try_clone().expect("a clone");
            let whole = 0..FILE_BYTES as u64;
            let ranges = Ranges::of(file, std::slice::from_ref(&whole));
            let mut server = SimulatedServer::new(conditions(seed, Fault::NotAtHand, 300), ranges);
            let mut end = asked(&mut server, 0);
            writer.set_len(FILE_BYTES as u64 / 2).expect("cut");
            let came = heard(&mut server, &mut end);
            assert!(came.len() <= 5 + FILE_BYTES / 2, "nothing is made up");
            assert!(came[5.min(came.len())..] == content[..came.len().saturating_sub(5)]);
            assert!(!end.tls.was_told_of_the_end(), "it looks whole");
            writer.write_all_at(&content, 0).expect("written");
            let mut other = asked(&mut server, 0);
            let all = heard(&mut server, &mut other).len();
            assert_eq!(all, FILE_BYTES + 9, "another is served");
        });
    }

    #[test]
    fn a_client_that_does_not_read_holds_one_buffer_of_records() {
        let content = content();
        let whole = 0..FILE_BYTES as u64;
        let ranges = Ranges::of(file_of(&content), std::slice::from_ref(&whole));
        let mut server = SimulatedServer::new(conditions(1, Fault::NotAtHand, 0), ranges);
        server.world().set_window_bytes(4096);
        let mut end = asked(&mut server, 0);
        let said = end.tls.take();
        end.client.write(&said);
        for _ in 0..2_000 {
            server.turn();
            server.advance(Duration::from_micros(100));
        }
        let classes = server.handle().figures().pool.classes;
        let held: usize = classes.iter().map(|class| class.in_use_bytes).sum();
        // And the smallest one has what comes after the file.
        assert!((1..=68 * 1024).contains(&held), "{held} bytes");
        end.client.abort();
        server.drain();
        server.end(TURNS_MAX);
    }
}
