//! A server hands over to the next: file handles stay valid, and a client that is connected is
//! served until it is told to come again.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::ScopedJoinHandle;

use flatpath_testkit::nfs::{Connection, read, write};
use flatpath_testkit::{Driver, Over, Site, each_driver, handovers, until_true};

use crate::nfs::serve;

each_driver!(
    handles_are_valid_after_a_handover,
    calls_are_answered_or_left_unread,
);

fn handles_are_valid_after_a_handover(driver: Driver) {
    let (site, state, run) = (Site::new(), Site::new(), Site::new());
    for number in 0..20 {
        site.write(&format!("a/b{number}"), format!("text {number}"));
    }
    let path = run.at("next");
    let path = path.to_str().expect("a path in text");
    let start = || serve(driver, &site, &state, &["--handover", path]);
    let mut first = start();
    let address = first.address("nfs");
    let mut client = Connection::open(address);
    let root = client.root();
    let directory = client.lookup(&root, "a");
    let files: Vec<Vec<u8>> = (0..20)
        .map(|number| client.lookup(&directory, &format!("b{number}")))
        .collect();
    for _ in 0..3 {
        let next = start();
        assert_eq!(next.address("nfs"), address);
        // A client connects again by itself, and has its handles still.
        client = Connection::open(address);
        assert_eq!(first.exit_status().code(), Some(0), "{}", first.log());
        for (number, file) in files.iter().enumerate() {
            assert_eq!(
                client.read(file, 100),
                format!("text {number}").into_bytes()
            );
        }
        assert_eq!(client.root(), root);
        assert_eq!(client.lookup(&root, "a"), directory);
        first = next;
    }
}

/// Writes and reads a file of its own with many calls at once. A connection ends in order, after
/// whole replies; what was not answered by then is asked again of the next server.
fn call_through(address: SocketAddr, number: u32, is_over: &Over, done: &AtomicUsize) {
    const CALLS: u32 = 16;
    let mut client = Connection::open(address);
    let root = client.root();
    let file = client.create(&root, &format!("file-{number}"));
    let mut round = 0_u32;
    while !is_over.is_set() {
        round += 1;
        let value = |place: u32| (round * CALLS + place).to_be_bytes();
        let writes = |place: u32| write(&file, 4 * u64::from(place), &value(place), 2);
        let mut unanswered: Vec<u32> = (0..CALLS).collect();
        while !unanswered.is_empty() {
            let calls = unanswered.iter();
            let calls = calls.flat_map(|&place| writes(place).record(place));
            // It may have ended meanwhile.
            let _ = client.try_send(&calls.collect::<Vec<_>>());
            while !unanswered.is_empty() {
                match client.message() {
                    Ok(reply) => {
                        let word = |at: usize| {
                            let bytes = reply[at..at + 4].try_into().expect("four");
                            u32::from_be_bytes(bytes)
                        };
                        assert_eq!(word(24), 0, "written");
                        unanswered.retain(|place| *place != word(0));
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}");
                        client = Connection::open(address);
                        break;
                    }
                }
            }
        }
        let mut reader = Connection::open(address);
        reader.send(&read(&file, 0, 4 * CALLS).record(1));
        let expected: Vec<u8> = (0..CALLS).flat_map(value).collect();
        match reader.message() {
            Ok(reply) => assert!(reply.ends_with(&expected), "each write had its effect"),
            Err(error) => assert_eq!(error.kind(), ErrorKind::UnexpectedEof, "{error}"),
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
}

fn calls_are_answered_or_left_unread(driver: Driver) {
    const CLIENTS: u32 = 4;
    let servers = handovers();
    let (site, state, run) = (Site::new(), Site::new(), Site::new());
    let path = run.at("next");
    let path = path.to_str().expect("a path in text");
    let start = || serve(driver, &site, &state, &["--handover", path]);
    let mut current = start();
    let address = current.address("nfs");
    let (is_over, done) = (Over::default(), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let _ends = is_over.at_end();
        let (is_over, done) = (&is_over, &done);
        let through = |number| scope.spawn(move || call_through(address, number, is_over, done));
        let clients: Vec<_> = (0..CLIENTS).map(through).collect();
        for _ in 0..servers {
            let before = done.load(Ordering::Relaxed);
            until_true("rounds of calls", || {
                let fails = clients.iter().any(ScopedJoinHandle::is_finished);
                fails || done.load(Ordering::Relaxed) > before + 20
            });
            let next = start();
            assert_eq!(next.address("nfs"), address);
            let mut old = std::mem::replace(&mut current, next);
            assert_eq!(old.exit_status().code(), Some(0), "{}", old.log());
        }
        is_over.set();
        for client in clients {
            client.join().expect("no reply was lost");
        }
    });
    println!("{servers} handovers; {} rounds", done.into_inner());
}
