//! A machine loses its power while one server hands over to the next: names, owners, modes and
//! times that clients were answered for are there afterwards.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use flatpath_testkit::lossy::{Cache, Lossy};
use flatpath_testkit::nfs::{Call, Connection, Words, remove, rename};
use flatpath_testkit::{Driver, Launch, Site, each_driver, until_true};
use rustix::process::Signal;

each_driver!(what_was_answered_outlives_a_crash_during_a_handover);

const SETATTR: u32 = 2;
const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const SYMLINK: u32 = 10;
const MKNOD: u32 = 11;
const FIFO: u32 = 7;
const CLIENTS: u64 = 3;

/// `sattr3`: mode, owner and group, the time of modification, all made of one number.
fn with_attributes(words: Words, number: u32) -> Words {
    let mode = 0o600 + number % 8;
    let set = [1, mode, 1, number, 1, number + 1, 0, 0, 2, number, 0];
    set.into_iter().fold(words, Words::word)
}

#[derive(Clone)]
struct Known {
    name: String,
    /// Of the attributes; zero: not known.
    number: u32,
    kind: u32,
    handle: Vec<u8>,
}

struct Client {
    random: fastrand::Rng,
    prefix: String,
    next: u32,
    connection: Option<Connection>,
    root: Vec<u8>,
    there: Vec<Known>,
    gone: Vec<String>,
    /// Names that calls without an answer were about.
    open: Vec<String>,
}

impl Client {
    fn new(seed: u64, round: u64, number: u64) -> Self {
        Self {
            random: fastrand::Rng::with_seed(seed ^ (round << 8) ^ number),
            prefix: format!("{round}-{number}"),
            next: 0,
            connection: None,
            root: Vec::new(),
            there: Vec::new(),
            gone: Vec::new(),
            open: Vec::new(),
        }
    }

    /// One call. False when it had no answer, or an error: nothing is known of its names then.
    fn act(&mut self, at: &Mutex<SocketAddr>) -> bool {
        if self.connection.is_none() {
            let address = *at.lock().expect("no panic");
            let opened = Connection::try_open(address).map(|opened| opened.by(0));
            let mut opened = match opened {
                Ok(opened) => opened,
                Err(_) => return false,
            };
            match opened.try_handle(&flatpath_testkit::nfs::mount("/")) {
                Ok(root) => self.root = root,
                Err(_) => return false,
            }
            self.connection = Some(opened);
        }
        self.next += 1;
        let name = format!("{}-{}", self.prefix, self.next);
        let about_before = self.open.len();
        self.open.push(name.clone());
        let done = self.call(&name);
        match done {
            Some(()) => self.open.truncate(about_before),
            None => self.connection = None,
        }
        done.is_some()
    }

    fn call(&mut self, name: &str) -> Option<()> {
        let number = self.next;
        let place = self.random.usize(..self.there.len().max(1));
        let known = self.there.get(place).cloned();
        if let Some(known) = &known {
            self.open.push(known.name.clone());
        }
        match (self.random.u8(..8), known) {
            (choice @ 0..4, _) | (choice, None) => {
                let kind = [CREATE, MKDIR, SYMLINK, MKNOD][usize::from(choice % 4)];
                let handle = self.make(kind, name, number)?;
                let name = name.to_owned();
                self.there.push(Known {
                    name,
                    number,
                    kind,
                    handle,
                });
            }
            (4 | 5, Some(known)) => {
                let words = Words::default().opaque(&known.handle);
                let words = with_attributes(words, number).word(0);
                self.there[place].number = 0;
                self.ask(&Call::nfs(SETATTR, words))?;
                // A FUSE file system is not told to sync what has no descriptor.
                let is_synced = matches!(known.kind, CREATE | MKDIR);
                self.there[place].number = if is_synced { number } else { 0 };
            }
            (6, Some(known)) => {
                let root = self.root.clone();
                self.ask(&rename(&root, &known.name, name))?;
                self.there[place].name = name.to_owned();
                self.gone.push(known.name);
            }
            (_, Some(known)) => {
                let root = self.root.clone();
                let call = match known.kind {
                    MKDIR => Call::nfs(
                        13,
                        Words::default().opaque(&root).opaque(known.name.as_bytes()),
                    ),
                    _ => remove(&root, &known.name),
                };
                self.ask(&call)?;
                self.gone.push(self.there.remove(place).name);
            }
        }
        Some(())
    }

    fn make(&mut self, kind: u32, name: &str, number: u32) -> Option<Vec<u8>> {
        let at = Words::default().opaque(&self.root).opaque(name.as_bytes());
        let words = match kind {
            CREATE => with_attributes(at.word(1), number),
            SYMLINK => with_attributes(at, number).opaque(b"target"),
            MKNOD => with_attributes(at.word(FIFO), number),
            _ => with_attributes(at, number),
        };
        let results = self.ask(&Call::nfs(kind, words))?;
        let (length, rest) = results.get(4..)?.split_first_chunk::<4>()?;
        rest.get(..u32::from_be_bytes(*length) as usize)
            .map(<[u8]>::to_vec)
    }

    /// What follows the status in an answer that is no error.
    fn ask(&mut self, call: &Call) -> Option<Vec<u8>> {
        let reply = self.connection.as_mut()?.try_call(call).ok()?;
        flatpath_testkit::nfs::good(&reply.results)
            .ok()
            .map(<[u8]>::to_vec)
    }

    fn check(&self, directory: &Path) -> usize {
        let mut checked = 0;
        for known in &self.there {
            if self.open.contains(&known.name) {
                continue;
            }
            let found = std::fs::symlink_metadata(directory.join(&known.name));
            let found = found.unwrap_or_else(|cause| panic!("{}: {cause}", known.name));
            if known.number != 0 {
                let owner = (found.uid(), found.gid());
                assert_eq!(owner, (known.number, known.number + 1), "{}", known.name);
                assert_eq!(found.mtime(), i64::from(known.number), "{}", known.name);
                if known.kind != SYMLINK {
                    let mode = found.mode() & 0o7777;
                    assert_eq!(mode, 0o600 + known.number % 8, "{}", known.name);
                }
            }
            checked += 1;
        }
        for name in &self.gone {
            let is_open = self.open.contains(name);
            assert!(is_open || !directory.join(name).exists(), "{name} is back");
        }
        checked
    }
}

fn what_was_answered_outlives_a_crash_during_a_handover(driver: Driver) {
    const ROUNDS: u64 = 3;
    let (site, state, run) = (Site::new(), Site::new(), Site::new());
    let Some(lossy) = Lossy::try_mount(&site.at("lossy"), Cache::Through) else {
        return;
    };
    let path = run.at("next");
    let start = || {
        let state = state.path().to_str().expect("a path in text");
        Launch::serve(driver)
            .directory(lossy.path())
            .with(["--writable", "--no-root-squash", "--nfs", "127.0.0.1:0"])
            .with(["--nfs-state", state, "--handover"])
            .with([&path])
            .try_start()
    };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..ROUNDS {
        let mut before = start().unwrap_or_else(|failed| panic!("{}", failed.log));
        let at = Mutex::new(before.address("nfs"));
        let (answered, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
        let pause = Duration::from_millis(random.u64(..60));
        let clients: Vec<Client> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..CLIENTS)
                .map(|number| {
                    let (mut client, at) = (Client::new(seed, round, number), &at);
                    let (answered, is_over) = (&answered, &is_over);
                    scope.spawn(move || {
                        while !is_over.load(Ordering::Relaxed) {
                            match client.act(at) {
                                true => drop(answered.fetch_add(1, Ordering::Relaxed)),
                                false => std::thread::sleep(Duration::from_millis(1)),
                            }
                        }
                        client
                    })
                })
                .collect();
            let enough = || answered.load(Ordering::Relaxed) >= 60;
            until_true("some calls", enough);
            // The next one may be before its start, while it takes over, or in service.
            let next = scope.spawn(start);
            std::thread::sleep(pause);
            lossy.crash();
            before.process().signal(Signal::KILL);
            before.exit_status();
            let next = next.join().expect("no panic");
            is_over.store(true, Ordering::Relaxed);
            drop(next);
            let ended = running
                .into_iter()
                .map(|client| client.join().expect("no panic"));
            ended.collect()
        });
        lossy.restart();
        let checked: usize = clients
            .iter()
            .map(|client| client.check(lossy.path()))
            .sum();
        assert!(checked > 0, "round {round}");
        drop(before);
    }
}
