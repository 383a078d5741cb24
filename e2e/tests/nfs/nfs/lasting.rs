//! Three clients write and commit while write-back fails, syncs fail, files are closed, and
//! servers drain and hand over. Whatever a client may believe by RFC 1813 (written stably, or
//! committed under the verifier that it was written with) is on the disk at any moment: on a file
//! system that forgets what was not synced.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use flatpath_testkit::lossy::{Cache, Lossy, Operation};
use flatpath_testkit::nfs::{Call, Connection, commit, write};
use flatpath_testkit::{Deadline, Driver, Launch, Server, Site, each_driver};

each_driver!(
    model_what_three_clients_may_believe_is_on_the_disk_whatever_fails,
    what_is_believed_outlives_drains_and_handovers,
    an_idle_file_is_synced_before_it_is_closed,
);

const IO: i32 = rustix::io::Errno::IO.raw_os_error();
const CLIENTS: u64 = 3;
const FILES: usize = 2;
/// Of each client in each file.
const BLOCKS: u64 = 8;
const BLOCK_BYTES: usize = 4096;

fn name(file: usize) -> String {
    format!("file-{file}")
}

fn contents(stamp: u64) -> Vec<u8> {
    stamp.to_be_bytes().repeat(BLOCK_BYTES / 8)
}

/// What may be in a block after a crash, as its client knows.
#[derive(Default)]
struct Block {
    /// The stamp that lasts, unless a later one does.
    believed: Option<u64>,
    /// Stamps written since, in order; with the verifier if the WRITE was acknowledged.
    later: Vec<(u64, Option<u64>)>,
}

impl Block {
    /// All up to this place of `later` gave way to the stamp there.
    fn believe(&mut self, place: usize) {
        self.believed = Some(self.later[place].0);
        self.later.drain(..=place);
    }

    fn check(&self, found: &[u8]) -> Result<(), String> {
        let Some(believed) = self.believed else {
            return Ok(());
        };
        let mut stamps = self.later.iter().map(|(stamp, _)| *stamp);
        let is_there = |stamp| found == contents(stamp);
        match is_there(believed) || stamps.any(is_there) {
            true => Ok(()),
            false => Err(format!("stamp {believed} was believed")),
        }
    }
}

/// A client with blocks of its own in files that all share.
struct Writer {
    number: u64,
    connection: Option<Connection>,
    files: Vec<Vec<u8>>,
    blocks: BTreeMap<(usize, u64), Block>,
    random: fastrand::Rng,
    stamp: u64,
    /// Verifiers that turned before a COMMIT.
    turned: usize,
}

impl Writer {
    fn new(number: u64, files: &[Vec<u8>], seed: u64) -> Self {
        Self {
            number,
            connection: None,
            files: files.to_vec(),
            blocks: BTreeMap::new(),
            random: fastrand::Rng::with_seed(seed ^ number),
            stamp: number << 32,
            turned: 0,
        }
    }

    /// The results of a call; `None` when its connection ended, so that it may have been done.
    fn ask(&mut self, at: &Mutex<SocketAddr>, call: &Call) -> Option<Vec<u8>> {
        let deadline = Deadline::default();
        while self.connection.is_none() {
            deadline.check("a server that listens");
            let address = *at.lock().expect("no panic");
            self.connection = Connection::try_open(address).ok();
            if self.connection.is_none() {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        let connection = self.connection.as_mut()?;
        let sent = connection.try_send(&call.record(1));
        match sent.and_then(|()| connection.message()) {
            Ok(message) => Some(message[24..].to_vec()),
            Err(_) => {
                self.connection = None;
                None
            }
        }
    }

    /// The verifier that a WRITE or COMMIT ended with, if it succeeded.
    fn verifier(&mut self, at: &Mutex<SocketAddr>, call: &Call) -> Option<u64> {
        let results = self.ask(at, call)?;
        let is_done = results.starts_with(&[0; 4]);
        is_done.then(|| u64::from_be_bytes(*results.last_chunk().expect("a verifier")))
    }

    fn act(&mut self, at: &Mutex<SocketAddr>) {
        let file = self.random.usize(..FILES);
        match self.random.u8(..8) {
            0..2 => self.commit(at, file),
            choice => {
                let place = self.number * BLOCKS + self.random.u64(..BLOCKS);
                let stable = match choice {
                    2 => 1,
                    3 => 2,
                    _ => 0,
                };
                self.write(at, (file, place), stable);
            }
        }
    }

    fn write(&mut self, at: &Mutex<SocketAddr>, place: (usize, u64), stable: u32) {
        self.stamp += 1;
        let stamp = self.stamp;
        let offset = place.1 * BLOCK_BYTES as u64;
        let call = write(&self.files[place.0], offset, &contents(stamp), stable);
        let verifier = self.verifier(at, &call);
        let block = self.blocks.entry(place).or_default();
        block.later.push((stamp, verifier));
        if stable > 0 && verifier.is_some() {
            block.believe(block.later.len() - 1);
        }
    }

    fn commit(&mut self, at: &Mutex<SocketAddr>, file: usize) {
        let Some(verifier) = self.verifier(at, &commit(&self.files[file])) else {
            return;
        };
        let blocks = self.blocks.range_mut((file, 0)..(file + 1, 0));
        for (_, block) in blocks {
            let written = block.later.iter().rposition(|(_, with)| with.is_some());
            let Some(place) = written else { continue };
            match block.later[place].1 == Some(verifier) {
                true => block.believe(place),
                false => self.turned += 1,
            }
        }
    }

    fn check(&self, lossy: &Lossy) -> usize {
        let files: Vec<Vec<u8>> = (0..FILES)
            .map(|file| lossy.lasting(name(file)).unwrap_or_default())
            .collect();
        for ((file, place), block) in &self.blocks {
            let from = usize::try_from(*place).expect("small") * BLOCK_BYTES;
            let found = files[*file].get(from..from + BLOCK_BYTES);
            let checked = block.check(found.unwrap_or_default());
            assert_eq!(checked, Ok(()), "client {}, {file}:{place}", self.number);
        }
        let believed = self.blocks.values().filter_map(|block| block.believed);
        believed.count()
    }
}

fn launch(driver: Driver, lossy: &Lossy, state: &Site, more: &[&str]) -> Server {
    let state = state.path().to_str().expect("a path in text");
    Launch::serve(driver)
        .directory(lossy.path())
        .with(["--writable", "--nfs", "127.0.0.1:0", "--nfs-state", state])
        .with(more)
        .start()
}

fn make_files(address: SocketAddr) -> Vec<Vec<u8>> {
    let mut client = Connection::open(address);
    let root = client.root();
    (0..FILES)
        .map(|file| {
            let handle = client.create(&root, &name(file));
            // Others may write it, too: all are user 1000.
            assert_eq!(client.status(&write(&handle, 0, b"x", 2)), 0);
            handle
        })
        .collect()
}

/// One thing that goes wrong, or right again.
fn trouble(lossy: &Lossy, random: &mut fastrand::Rng) {
    let file = name(random.usize(..FILES));
    match random.u8(..7) {
        0 | 1 => lossy.lose(file),
        2 => lossy.fail_after(Operation::Sync, random.u64(..3), 1, IO),
        3 => lossy.fail_after(Operation::Write, random.u64(..3), 1, IO),
        4 => lossy.fail(Operation::Flush, 1, IO),
        5 => lossy.delay(Operation::Sync, Duration::from_micros(random.u64(..3000))),
        _ => lossy.heal(),
    }
}

/// Lets all clients do `calls` calls each while `beside` runs; how much is believed then.
fn round(
    writers: &mut [Writer],
    at: &Mutex<SocketAddr>,
    calls: usize,
    lossy: &Lossy,
    beside: impl FnOnce(&dyn Fn() -> bool),
) -> usize {
    std::thread::scope(|scope| {
        let running: Vec<_> = writers
            .iter_mut()
            .map(|writer| {
                scope.spawn(move || {
                    (0..calls).for_each(|_| writer.act(at));
                    // A server that ends waits for the client's end of a connection.
                    writer.connection = None;
                })
            })
            .collect();
        beside(&|| {
            running
                .iter()
                .all(std::thread::ScopedJoinHandle::is_finished)
        });
        for thread in running {
            thread.join().expect("no panic");
        }
    });
    writers.iter().map(|writer| writer.check(lossy)).sum()
}

fn model_what_three_clients_may_believe_is_on_the_disk_whatever_fails(driver: Driver) {
    const ROUNDS: usize = 12;
    const CALLS: usize = 120;
    let (site, state) = (Site::new(), Site::new());
    let Some(lossy) = Lossy::try_mount(&site.at("lossy"), Cache::Through) else {
        return;
    };
    let server = launch(driver, &lossy, &state, &[]);
    let at = Mutex::new(server.address("nfs"));
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let files = make_files(server.address("nfs"));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut writers: Vec<_> = (0..CLIENTS)
        .map(|number| Writer::new(number, &files, seed))
        .collect();
    let mut believed = 0;
    for _ in 0..ROUNDS {
        believed += round(&mut writers, &at, CALLS, &lossy, |are_done| {
            while !are_done() {
                trouble(&lossy, &mut random);
                std::thread::sleep(Duration::from_millis(random.u64(1..8)));
            }
        });
    }
    let turned: usize = writers.iter().map(|writer| writer.turned).sum();
    assert!(
        believed > 0 && turned > 0,
        "{believed} believed, {turned} turned"
    );
    drop(writers);
    drop(server);
}

fn what_is_believed_outlives_drains_and_handovers(driver: Driver) {
    const CALLS: usize = 80;
    let (site, state, run) = (Site::new(), Site::new(), Site::new());
    let Some(lossy) = Lossy::try_mount(&site.at("lossy"), Cache::Through) else {
        return;
    };
    let path = run.at("next");
    let path = path.to_str().expect("a path in text");
    let start = || launch(driver, &lossy, &state, &["--handover", path]);
    let mut server = start();
    let at = Mutex::new(server.address("nfs"));
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let files = make_files(server.address("nfs"));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut writers: Vec<_> = (0..CLIENTS)
        .map(|number| Writer::new(number, &files, seed))
        .collect();
    let mut believed = 0;
    for number in 0..6 {
        believed += round(&mut writers, &at, CALLS, &lossy, |_| {
            trouble(&lossy, &mut random);
            let next = match number % 2 {
                0 => start(),
                _ => {
                    server.terminate();
                    assert_eq!(server.exit_status().code(), Some(0), "{}", server.log());
                    // Whatever the ended server had not synced is gone.
                    lossy.lose_all();
                    start()
                }
            };
            *at.lock().expect("no panic") = next.address("nfs");
            let mut before = std::mem::replace(&mut server, next);
            if number % 2 == 0 {
                assert_eq!(before.exit_status().code(), Some(0), "{}", before.log());
            }
            trouble(&lossy, &mut random);
        });
        lossy.heal();
    }
    assert!(believed > 0);
    drop(writers);
    drop(server);
}

fn an_idle_file_is_synced_before_it_is_closed(driver: Driver) {
    let (site, state) = (Site::new(), Site::new());
    let Some(lossy) = Lossy::try_mount(&site.at("lossy"), Cache::Through) else {
        return;
    };
    let server = launch(driver, &lossy, &state, &[]);
    let files = make_files(server.address("nfs"));
    let mut client = Connection::open(server.address("nfs"));
    let written = client.call(&write(&files[0], 0, b"idle", 0));
    assert_eq!(written.status(), 0);
    flatpath_testkit::until_true("the sweep to sync it", || {
        lossy.lasting(name(0)).as_deref() == Some(b"idle")
    });
    let committed = client.call(&commit(&files[0]));
    assert_eq!(committed.verifier(), written.verifier(), "nothing was lost");
    drop(client);
    drop(server);
}
