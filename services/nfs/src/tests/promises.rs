//! What a reply promises of names and attributes is on the disk: on a file system that forgets what
//! was not synced, and on an ext4 whose disk is copied.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::image::{Format, Image};
use flatpath_testkit::lossy::{Cache, Lossy, Operation};
use flatpath_testkit::until_true;

use crate::attributes::{SetAttributes, SetTime, Time};
use crate::rights::Squash;
use crate::status::Status;
use crate::testing::{Fixture, Words, is_root, system};

const CREATE: u32 = 8;
const MKDIR: u32 = 9;
const SYMLINK: u32 = 10;
const MKNOD: u32 = 11;
const LINK: u32 = 15;
const FIFO: u32 = 7;
const MAKERS: [u32; 4] = [CREATE, MKDIR, SYMLINK, MKNOD];

/// A directory that root may do everything in; nothing without root.
fn served(directory: &Path) -> Fixture {
    let mut fixture = Fixture::with(|options| {
        options.directory = directory.to_owned();
        options.squash = Squash::Anonymous;
    });
    fixture.credential = system(0);
    fixture
}

/// Dropped in this order.
struct Served {
    fixture: Fixture,
    lossy: Lossy,
    _home: tempfile::TempDir,
}

impl Served {
    fn new() -> Option<Served> {
        let home = tempfile::tempdir().expect("a directory");
        let lossy = Lossy::try_mount(&home.path().join("lossy"), Cache::Through)?;
        let fixture = served(lossy.path());
        Some(Served {
            fixture,
            lossy,
            _home: home,
        })
    }
}

fn make(
    fixture: &Fixture,
    procedure: u32,
    name: &str,
    wanted: &SetAttributes,
) -> Result<Vec<u8>, u32> {
    let at = Words::default()
        .opaque(&fixture.mount(b"/")?)
        .opaque(name.as_bytes());
    let words = match procedure {
        CREATE => at.word(1).set(wanted),
        SYMLINK => at.set(wanted).opaque(b"target"),
        MKNOD => at.word(FIFO).set(wanted),
        _ => at.set(wanted),
    };
    fixture.made(procedure, &words)
}

fn owned(user: u32) -> SetAttributes {
    SetAttributes {
        mode: Some(0o4751),
        user: Some(user),
        group: Some(user + 1),
        size: None,
        accessed: SetTime::Keep,
        modified: SetTime::To(Time {
            seconds: user,
            nanoseconds: 5,
        }),
    }
}

/// Owner, group, permissions and time of modification that a crash now would leave.
fn lasting(served: &Served, name: &str) -> Option<(u32, u32, u32, Duration)> {
    let found = served.lossy.lasting_attributes(name)?;
    let modified = found
        .modified
        .duration_since(UNIX_EPOCH)
        .expect("after 1970");
    Some((found.user, found.group, found.mode.into(), modified))
}

/// The same as it is there now.
fn present(path: &Path) -> (u32, u32, u32, Duration) {
    let found = fs::symlink_metadata(path).expect("there");
    let modified = found.modified().expect("it has one");
    let modified = modified.duration_since(UNIX_EPOCH).expect("after 1970");
    (found.uid(), found.gid(), found.mode() & 0o7777, modified)
}

#[test]
fn what_a_new_object_was_given_lasts_with_its_name() {
    let Some(served) = Served::new() else {
        return;
    };
    for (number, procedure) in MAKERS.into_iter().enumerate() {
        let name = format!("new-{number}");
        assert!(make(&served.fixture, procedure, &name, &owned(1234)).is_ok());
        let found = present(&served.lossy.path().join(&name));
        assert_eq!((found.0, found.1), (1234, 1235), "procedure {procedure}");
        assert_eq!(found.3, Duration::new(1234, 5), "procedure {procedure}");
        assert_eq!(
            lasting(&served, &name),
            Some(found),
            "procedure {procedure}"
        );
    }
    // A file that is there, and its size.
    fs::write(served.lossy.path().join("there"), b"unsynced").expect("written");
    let at = Words::default()
        .opaque(&served.fixture.root())
        .opaque(b"there");
    let sized = SetAttributes {
        size: Some(2),
        ..SetAttributes::default()
    };
    assert!(served.fixture.made(CREATE, &at.word(0).set(&sized)).is_ok());
    assert_eq!(served.lossy.lasting("there").as_deref(), Some(&b"un"[..]));
}

/// Another call syncs the directory while an object in it has not all that it was to have.
#[test]
fn no_sync_of_a_directory_makes_an_object_last_that_is_not_complete() {
    let Some(served) = Served::new() else {
        return;
    };
    for operation in [Operation::SetOwner, Operation::SetAttributes] {
        served.lossy.delay(operation, Duration::from_millis(5));
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for client in 0..3 {
            let (fixture, done) = (&served.fixture, &done);
            scope.spawn(move || {
                for number in 0.. {
                    if done.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("other-{client}-{number}");
                    let made = make(fixture, CREATE, &name, &SetAttributes::default());
                    assert!(made.is_ok());
                }
            });
        }
        for number in 0..24 {
            let procedure = MAKERS[number % MAKERS.len()];
            let (name, user) = (format!("new-{number}"), 100 + number as u32);
            let made = make(&served.fixture, procedure, &name, &owned(user));
            let (found, lasts) = (
                present(&served.lossy.path().join(&name)),
                lasting(&served, &name),
            );
            if made.is_err() || lasts != Some(found) {
                done.store(true, Ordering::Relaxed);
            }
            assert!(made.is_ok());
            assert_eq!(lasts, Some(found), "procedure {procedure}");
        }
        done.store(true, Ordering::Relaxed);
    });
}

#[test]
fn what_was_set_of_files_and_directories_lasts() {
    let Some(served) = Served::new() else {
        return;
    };
    for procedure in [CREATE, MKDIR] {
        let name = format!("of-{procedure}");
        let made = make(&served.fixture, procedure, &name, &SetAttributes::default());
        let handle = made.expect("made");
        for user in [7, 8] {
            assert_eq!(served.fixture.set(&handle, &owned(user)), 0);
            let found = present(&served.lossy.path().join(&name));
            assert_eq!(
                (found.0, found.2, found.3),
                (user, 0o4751, Duration::new(user.into(), 5))
            );
            assert_eq!(lasting(&served, &name), Some(found));
        }
    }
    // A set-user bit that a write takes away is gone for good, too.
    let handle = served.fixture.lookup(&["of-8"]).expect("there");
    let mut fixture = served.fixture;
    let all = SetAttributes {
        mode: Some(0o4777),
        ..SetAttributes::default()
    };
    assert_eq!(fixture.set(&handle, &all), 0);
    fixture.credential = system(1000);
    assert_eq!(fixture.write(&handle, 0, b"x", 2), 0);
    let lasts = served.lossy.lasting_attributes("of-8").expect("there");
    assert_eq!(lasts.mode, 0o777);
}

/// The call that made it may not have come to its sync.
#[test]
fn an_exclusive_create_that_finds_its_file_makes_it_last() {
    let Some(served) = Served::new() else {
        return;
    };
    let at = |seconds| UNIX_EPOCH + Duration::from_secs(seconds);
    let times = fs::FileTimes::new()
        .set_accessed(at(77))
        .set_modified(at(78));
    let file = fs::File::create(served.lossy.path().join("file")).expect("made");
    fs::File::open(served.lossy.path())
        .and_then(|root| root.sync_all())
        .expect("synced");
    file.set_times(times).expect("set");
    drop(file);
    let words = Words::default()
        .opaque(&served.fixture.root())
        .opaque(b"file");
    let made = served
        .fixture
        .made(CREATE, &words.word(2).long(77 << 32 | 78));
    assert!(made.is_ok());
    let lasts = lasting(&served, "file").expect("there");
    assert_eq!(lasts.3, Duration::from_secs(78));
}

/// What a sync says is the answer; what a close says after it has no part in what was promised.
#[test]
fn no_call_succeeds_whose_sync_fails() {
    use rustix::io::Errno;
    let Some(served) = Served::new() else {
        return;
    };
    let (fixture, lossy) = (&served.fixture, &served.lossy);
    let root = fixture.root();
    let file = make(fixture, CREATE, "file", &SetAttributes::default()).expect("made");
    assert!(make(fixture, CREATE, "other", &SetAttributes::default()).is_ok());
    let at = |name: &str| Words::default().opaque(&root).opaque(name.as_bytes());
    let set = |handle: &[u8]| Words::default().opaque(handle).set(&owned(7)).word(0);
    let linked = Words::default().opaque(&file).opaque(&root);
    let (on_file, on_names) = (Operation::Sync, Operation::SyncDirectory);
    let calls = [
        (on_file, 2, set(&file)),
        (on_names, 2, set(&root)),
        (on_file, LINK, linked.opaque(b"linked")),
        (on_names, 14, at("file").opaque(&root).opaque(b"moved")),
        (on_names, 12, at("other")),
    ];
    let errors = [Errno::IO, Errno::NOSPC, Errno::DQUOT];
    for (number, (operation, procedure, words)) in calls.iter().enumerate() {
        let errno = errors[number % errors.len()];
        let before = lossy.count(*operation);
        lossy.fail(*operation, 1, errno.raw_os_error());
        let status = fixture.nfs(*procedure, words).status();
        lossy.heal();
        assert_eq!(status, Status::from(errno) as u32, "procedure {procedure}");
        assert_eq!(lossy.count(*operation), before + 1, "procedure {procedure}");
    }
    lossy.fail(Operation::Flush, u64::MAX, Errno::IO.raw_os_error());
    let made = make(fixture, CREATE, "closed", &owned(7));
    lossy.heal();
    assert!(made.is_ok());
    let found = present(&lossy.path().join("closed"));
    assert_eq!(lasting(&served, "closed"), Some(found));
}

/// Names and attributes at a moment that no client chooses.
#[test]
fn model_what_was_answered_before_a_crash_is_there_after_it() {
    let rounds = if is_slow() { 2 } else { 6 };
    let Some(served) = Served::new() else {
        return;
    };
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    for round in 0..rounds {
        let (answered, enough) = (AtomicU32::new(0), random.u32(20..300));
        let clients: Vec<Client> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..3)
                .map(|number| {
                    let mut client = Client::new(seed, round, number);
                    let (fixture, answered) = (&served.fixture, &answered);
                    scope.spawn(move || {
                        while client.act(fixture).is_ok() {
                            answered.fetch_add(1, Ordering::Relaxed);
                        }
                        client
                    })
                })
                .collect();
            until_true("some calls", || answered.load(Ordering::Relaxed) >= enough);
            served.lossy.crash();
            let ended = running
                .into_iter()
                .map(|client| client.join().expect("no panic"));
            ended.collect()
        });
        served.lossy.restart();
        let checked: usize = clients
            .iter()
            .map(|client| client.check(served.lossy.path()))
            .sum();
        assert!(checked > 0, "round {round}");
    }
}

/// What a client knows of a name.
struct Known {
    name: String,
    handle: Vec<u8>,
    /// `None`: it does not know.
    owner: Option<u32>,
    modified: Option<u32>,
}

struct Client {
    random: fastrand::Rng,
    prefix: String,
    next: u32,
    there: Vec<Known>,
    gone: Vec<String>,
    /// A name that a call without an answer was about.
    open: Vec<String>,
}

impl Client {
    fn new(seed: u64, round: u64, number: u64) -> Client {
        Client {
            random: fastrand::Rng::with_seed(seed ^ (round << 8) ^ number),
            prefix: format!("{round}-{number}"),
            next: 1,
            there: Vec::new(),
            gone: Vec::new(),
            open: Vec::new(),
        }
    }

    /// One call; an error is the crash.
    fn act(&mut self, fixture: &Fixture) -> Result<(), u32> {
        self.next += 1;
        let name = format!("{}-{}", self.prefix, self.next);
        let number = self.next;
        let choice = self.random.usize(..8);
        let place = self.random.usize(..self.there.len().max(1));
        self.open = vec![name.clone()];
        match (choice, self.there.get(place)) {
            (0..4, _) | (_, None) => {
                let procedure = MAKERS[choice % MAKERS.len()];
                let handle = make(fixture, procedure, &name, &owned(number))?;
                self.there.push(Known {
                    name,
                    handle,
                    owner: Some(number),
                    modified: Some(number),
                });
            }
            (4 | 5, Some(known)) => {
                self.open.push(known.name.clone());
                // Of links and special files there is no way to sync a change on FUSE.
                let is_synced = fixture.attributes(&known.handle)?.kind <= 2;
                let status = fixture.set(&known.handle, &owned(number));
                ok(status)?;
                let known = &mut self.there[place];
                known.owner = is_synced.then_some(number);
                known.modified = known.owner;
            }
            (6, Some(known)) => {
                self.open.push(known.name.clone());
                let (root, old) = (fixture.mount(b"/")?, known.name.clone());
                let words = Words::default().opaque(&root).opaque(old.as_bytes());
                let words = words.opaque(&root).opaque(name.as_bytes());
                ok(fixture.nfs(14, &words).status())?;
                self.there[place].name = name;
                self.gone.push(old);
            }
            (_, Some(known)) => {
                self.open.push(known.name.clone());
                let procedure = match fixture.attributes(&known.handle)?.kind {
                    2 => 13,
                    _ => 12,
                };
                let words = Words::default().opaque(&fixture.mount(b"/")?);
                let words = words.opaque(known.name.as_bytes());
                ok(fixture.nfs(procedure, &words).status())?;
                self.gone.push(self.there.remove(place).name);
            }
        }
        self.open.clear();
        Ok(())
    }

    /// How many names were checked.
    fn check(&self, directory: &Path) -> usize {
        let mut checked = 0;
        for known in &self.there {
            if self.open.contains(&known.name) {
                continue;
            }
            let found = fs::symlink_metadata(directory.join(&known.name));
            let found = found.unwrap_or_else(|cause| panic!("{}: {cause}", known.name));
            if let Some(owner) = known.owner {
                assert_eq!(
                    (found.uid(), found.gid()),
                    (owner, owner + 1),
                    "{}",
                    known.name
                );
            }
            if let Some(modified) = known.modified
                && !found.is_dir()
            {
                assert_eq!(found.mtime(), i64::from(modified), "{}", known.name);
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

fn ok(status: u32) -> Result<(), u32> {
    match status {
        0 => Ok(()),
        status => Err(status),
    }
}

/// Linux cannot sync these by themselves; all of the file system, it can.
#[test]
fn what_links_and_special_files_were_given_is_on_a_real_disk() {
    if !is_root() {
        return;
    }
    let Some(image) = Image::try_new(Format::EXT4) else {
        return;
    };
    let open = fs::Permissions::from_mode(0o777);
    fs::set_permissions(image.path(), open).expect("chmod");
    let fixture = served(image.path());
    let nothing = SetAttributes::default();
    for (number, procedure) in MAKERS.into_iter().enumerate() {
        let (new, set) = (format!("new-{number}"), format!("set-{number}"));
        let handle = make(&fixture, procedure, &set, &nothing).expect("made");
        assert!(make(&fixture, procedure, &new, &owned(1234)).is_ok());
        {
            let crashed = image.crashed();
            assert_eq!(
                present(&crashed.path().join(&new)),
                present(&image.path().join(&new)),
                "made by procedure {procedure}"
            );
        }
        assert_eq!(fixture.set(&handle, &owned(77)), 0);
        {
            let crashed = image.crashed();
            assert_eq!(
                present(&crashed.path().join(&set)),
                present(&image.path().join(&set)),
                "set of what procedure {procedure} made"
            );
        }
        let linked = format!("linked-{number}");
        if procedure != MKDIR {
            let words = Words::default().opaque(&handle).opaque(&fixture.root());
            let status = fixture.nfs(LINK, &words.opaque(linked.as_bytes())).status();
            assert_eq!(status, 0);
        }
        let crashed = image.crashed();
        let links = |path: &Path| fs::symlink_metadata(path).expect("there").nlink();
        let kept = links(&crashed.path().join(&set));
        assert_eq!(
            kept,
            links(&image.path().join(&set)),
            "procedure {procedure}"
        );
    }
    assert_eq!(links_max(&fixture), 65_000);
    drop(fixture);
}

/// PATHCONF.
fn links_max(fixture: &Fixture) -> u32 {
    let results = fixture.nfs(20, &Words::default().opaque(&fixture.root()));
    let mut reader = results.reader();
    assert_eq!((reader.u32(), reader.boolean()), (Ok(0), Ok(true)));
    crate::testing::Found::read(&mut reader);
    reader.u32().expect("a number")
}

#[test]
fn how_many_links_a_file_may_have_is_what_its_file_system_allows() {
    let Some(mounted) = flatpath_testkit::mount::Mounted::tmpfs() else {
        return;
    };
    let fixture = served(mounted.path());
    assert_eq!(links_max(&fixture), u32::MAX);
    drop(fixture);
}
