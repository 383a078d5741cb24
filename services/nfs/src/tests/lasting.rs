//! What was acknowledged is on the disk: on a file system that forgets what was not synced, and
//! fails on request.

use flatpath_testkit::lossy::{Cache, Lossy, Operation};
use flatpath_testkit::until_true;
use rustix::io::Errno;

use super::changes::exclusive;
use crate::status::Status;
use crate::testing::{Fixture, Words};
use crate::verifier::Work;

const UNSTABLE: u32 = 0;
const STABLE: [u32; 2] = [1, 2];
const FILE: &str = "file";
const ALWAYS: u64 = u64::MAX;

/// What a client does.
type Way<T> = fn(&Served) -> T;

/// A lossy file system, served. Fields are dropped in this order.
struct Served {
    fixture: Fixture,
    lossy: Lossy,
    file: Vec<u8>,
    _home: tempfile::TempDir,
}

impl Served {
    /// With one empty file.
    fn new(cache: Cache) -> Option<Served> {
        let home = tempfile::tempdir().expect("a directory");
        let lossy = Lossy::try_mount(&home.path().join("lossy"), cache)?;
        let fixture = Fixture::with(|options| options.directory = lossy.path().to_owned());
        let file = fixture.create(&fixture.root(), FILE, 0o644).expect("made");
        Some(Served {
            fixture,
            lossy,
            file,
            _home: home,
        })
    }

    /// WRITE: the verifier, or a status.
    fn write(&self, offset: u64, data: &[u8], stable: u32) -> Result<u64, u32> {
        let count = u32::try_from(data.len()).expect("short");
        let words = Words::default()
            .opaque(&self.file)
            .long(offset)
            .word(count)
            .word(stable)
            .opaque(data);
        self.verifier_of(7, &words)
    }

    /// Another file, by CREATE with a verifier.
    fn create_exclusively(&self) -> Result<Vec<u8>, u32> {
        exclusive(&self.fixture, "exclusive", 7)
    }

    fn commit(&self) -> Result<u64, u32> {
        self.verifier_of(21, &Words::default().opaque(&self.file).long(0).word(0))
    }

    fn verifier_of(&self, procedure: u32, words: &Words) -> Result<u64, u32> {
        let results = self.fixture.nfs(procedure, words);
        match results.status() {
            0 => {
                let tail = results.0.last_chunk().expect("it ends with a verifier");
                Ok(u64::from_be_bytes(*tail))
            }
            status => Err(status),
        }
    }

    /// SETATTR of the size, or CREATE of a file that is there.
    fn resize(&self, size: u64, by: fn(&Served) -> (u32, Words)) -> u32 {
        let (procedure, words) = by(self);
        // sattr3: no mode, user and group; the size; no times.
        let words = [0, 0, 0, 1].into_iter().fold(words, Words::word);
        let words = words.long(size).word(0).word(0);
        let words = if procedure == 2 { words.word(0) } else { words };
        self.fixture.nfs(procedure, &words).status()
    }

    fn lasting(&self) -> Vec<u8> {
        self.lossy.lasting(FILE).expect("CREATE made the name last")
    }

    fn verifier(&self) -> u64 {
        self.fixture.export().nodes.verifier().read()
    }
}

fn by_setattr(served: &Served) -> (u32, Words) {
    (2, Words::default().opaque(&served.file))
}

fn by_create(served: &Served) -> (u32, Words) {
    let root = served.fixture.root();
    let words = Words::default().opaque(&root).opaque(FILE.as_bytes());
    (8, words.word(0))
}

const IO: i32 = Errno::IO.raw_os_error();
const FAILED: Result<u64, u32> = Err(Status::Io as u32);

#[test]
fn a_write_lasts_when_it_is_said_to_and_a_commit_makes_others_last() {
    let Some(served) = Served::new(Cache::Through) else {
        return;
    };
    let mut expected = Vec::new();
    for (round, stable) in (1..).zip([1, 2, 2, 1]) {
        let before = served.lossy.count(Operation::Sync);
        expected.resize(10_000 * usize::from(round), round);
        let at = 10_000 * u64::from(round - 1);
        let written = served.write(at, &[round; 10_000], stable);
        assert_eq!(written, Ok(served.verifier()));
        assert!(served.lasting() == expected, "stable {stable}");
        assert!(served.lossy.count(Operation::Sync) > before);
    }
    let before = served.lossy.count(Operation::Sync);
    let written = served.write(0, b"unstable", UNSTABLE);
    assert!(served.lasting() == expected);
    assert_eq!(served.lossy.count(Operation::Sync), before);
    assert_eq!(served.commit(), written);
    expected[..8].copy_from_slice(b"unstable");
    assert!(served.lasting() == expected);
}

/// It has no nameless files.
#[test]
fn an_exclusive_create_is_known_again_where_the_name_has_to_be_first() {
    let Some(served) = Served::new(Cache::Through) else {
        return;
    };
    let made = served.create_exclusively();
    assert!(made.is_ok(), "{made:?}");
    assert_eq!(served.create_exclusively(), made);
    let other = exclusive(&served.fixture, "exclusive", 8);
    assert_eq!(other, Err(Status::Exists as u32));
    assert_eq!(served.lossy.lasting("exclusive"), Some(Vec::new()));
}

#[test]
fn a_commit_that_fails_turns_the_verifier() {
    let Some(served) = Served::new(Cache::Through) else {
        return;
    };
    let written = served.write(0, b"lost", UNSTABLE);
    served.lossy.lose(FILE);
    assert_eq!(served.commit(), FAILED);
    let again = served.write(0, b"kept", UNSTABLE);
    assert_ne!(again, written, "so the client writes all again");
    assert_eq!(served.commit(), again);
    assert_eq!(served.lasting(), b"kept");
}

/// The other client gets the kernel's only report.
#[test]
fn a_stable_write_of_one_client_that_fails_tells_the_commit_of_another() {
    for stable in STABLE {
        let Some(served) = Served::new(Cache::Through) else {
            return;
        };
        let written = served.write(0, b"lost", UNSTABLE).expect("taken");
        served.lossy.lose(FILE);
        assert_eq!(served.write(8192, b"other", stable), FAILED);
        let committed = served.commit().expect("nothing is left to sync");
        assert_ne!(committed, written, "stable {stable}");
        assert_eq!(served.write(8192, b"other", stable), Ok(committed));
        assert_eq!(&served.lasting()[8192..], b"other");
    }
}

/// The report is the kernel's own: it writes back before it syncs.
#[test]
fn what_the_kernel_cannot_write_back_turns_the_verifier_whoever_learns_of_it() {
    let ways: [Way<u32>; 5] = [
        |served| served.commit().err().unwrap_or(0),
        |served| served.write(8192, b"other", 1).err().unwrap_or(0),
        |served| served.write(8192, b"other", 2).err().unwrap_or(0),
        |served| served.resize(5000, by_setattr),
        |served| served.resize(0, by_create),
    ];
    for (number, way) in ways.into_iter().enumerate() {
        let Some(served) = Served::new(Cache::Back) else {
            return;
        };
        let written = served.write(0, b"lost", UNSTABLE).expect("taken");
        served.lossy.fail(Operation::Write, ALWAYS, IO);
        // Cutting off what was written is no loss; with an error here the client knows, too.
        let status = way(&served);
        served.lossy.heal();
        let committed = served.commit().unwrap_or(written + 1);
        let is_kept = served.lasting().starts_with(b"lost");
        let is_told = status != 0 || committed != written;
        assert!(is_kept || is_told, "way {number}");
        assert_ne!(served.verifier(), written, "way {number}: status {status}");
    }
}

#[test]
fn every_error_of_an_operation_turns_the_verifier() {
    let ways: [(Operation, Way<bool>); 10] = [
        (Operation::Write, |served| served.write(0, b"x", 0).is_err()),
        (Operation::Write, |served| served.write(0, b"x", 1).is_err()),
        (Operation::Write, |served| served.write(0, b"x", 2).is_err()),
        (Operation::Sync, |served| served.write(0, b"x", 1).is_err()),
        (Operation::Sync, |served| served.write(0, b"x", 2).is_err()),
        (Operation::Sync, |served| served.commit().is_err()),
        (Operation::Sync, |served| served.resize(1, by_setattr) != 0),
        (Operation::Resize, |served| {
            served.resize(1, by_setattr) != 0
        }),
        (Operation::Resize, |served| served.resize(0, by_create) != 0),
        (Operation::Sync, |served| {
            served.create_exclusively().is_err()
        }),
    ];
    let Some(served) = Served::new(Cache::Through) else {
        return;
    };
    for (number, (operation, way)) in ways.into_iter().enumerate() {
        assert!(served.write(0, b"before", UNSTABLE).is_ok());
        let before = served.verifier();
        served.lossy.fail(operation, 1, IO);
        assert!(way(&served), "way {number} is an error of its client");
        assert_ne!(served.verifier(), before, "way {number}: {operation:?}");
        served.lossy.heal();
    }
}

/// A refusal of a length comes each time; what comes once is the report of an earlier write.
#[test]
fn that_a_file_is_too_long_is_a_loss_if_it_is_said_once() {
    for stable in [UNSTABLE, 1, 2] {
        let Some(served) = Served::new(Cache::Through) else {
            return;
        };
        let before = served.write(0, b"before", UNSTABLE).expect("taken");
        let (count, errno) = (2, Errno::FBIG.raw_os_error());
        served.lossy.fail(Operation::Write, count, errno);
        let refused = served.write(0, b"x", stable);
        assert_eq!(refused, Err(Status::FileTooBig as u32), "stable {stable}");
        assert_eq!(served.verifier(), before, "stable {stable}");
        served.lossy.fail(Operation::Write, 1, errno);
        assert!(served.write(0, b"x", stable).is_ok() || stable != UNSTABLE);
        assert_ne!(served.verifier(), before, "stable {stable}");
    }
}

#[test]
fn a_write_that_fails_in_its_middle_turns_the_verifier() {
    /// More than comes to the file system in one piece; the second fails.
    const BYTES: usize = 1 << 20;
    for stable in [UNSTABLE, 1, 2] {
        let Some(served) = Served::new(Cache::Through) else {
            return;
        };
        let before = served.write(0, b"before", UNSTABLE).expect("taken");
        served.lossy.fail_after(Operation::Write, 1, ALWAYS, IO);
        let written = served.write(0, &[2; BYTES], stable);
        assert_eq!(written.is_ok(), stable == UNSTABLE, "the part was taken");
        assert_ne!(served.verifier(), before, "stable {stable}");
    }
}

/// A call beside them has the kernel's only report, and is slow to pass it on.
#[test]
fn a_sync_that_succeeds_beside_one_that_fails_is_not_believed() {
    let confirmed: [Way<Result<u64, u32>>; 3] = [
        Served::commit,
        |served| served.write(0, b"beside", 1),
        |served| served.write(0, b"beside", 2),
    ];
    for (number, confirm) in confirmed.into_iter().enumerate() {
        let Some(served) = Served::new(Cache::Through) else {
            return;
        };
        let written = served.write(0, b"lost", UNSTABLE).expect("taken");
        let export = served.fixture.export();
        let (key, verifier) = (
            export.resolve(&served.file).expect("there").key,
            export.nodes.verifier(),
        );
        let beside = verifier.enter(key);
        std::thread::scope(|scope| {
            let confirming = scope.spawn(|| confirm(&served));
            until_true("the call to wait", || verifier.waiting(key) == 1);
            let _ = verifier.report::<()>(key, Work::Sync, Err(Errno::IO));
            drop(beside);
            let done = confirming.join().expect("no panic");
            match number {
                0 => assert_eq!(done, Ok(written + 1), "the client writes again"),
                _ => assert_eq!(done, FAILED),
            }
        });
    }
}

#[test]
fn what_an_idle_or_evicted_file_was_given_lasts_or_turns_the_verifier() {
    let Some(served) = Served::new(Cache::Through) else {
        return;
    };
    let written = served.write(0, b"idle", UNSTABLE).expect("taken");
    until_true("the sweep to sync", || served.lasting() == b"idle");
    assert_eq!(served.verifier(), written);

    assert!(served.write(0, b"gone", UNSTABLE).is_ok());
    served.lossy.lose(FILE);
    until_true("the sweep to learn of it", || served.verifier() != written);

    let export = served.fixture.export();
    let nodes = &export.nodes;
    let evict = || {
        let mut evicted = Vec::new();
        nodes.evict(1000, &mut evicted);
        nodes.evict(1000, &mut evicted);
        drop(evicted);
    };
    let written = served.write(0, b"evicted", UNSTABLE).expect("taken");
    evict();
    assert_eq!(
        (served.lasting(), served.verifier()),
        (b"evicted".to_vec(), written)
    );
    for operation in [Operation::Sync, Operation::Flush] {
        let written = served.write(0, b"dropped", UNSTABLE).expect("taken");
        served.lossy.fail(operation, 1, IO);
        evict();
        assert_ne!(served.verifier(), written, "{operation:?}");
        served.lossy.heal();
    }
}

#[test]
fn a_size_that_was_set_lasts() {
    for by in [by_setattr, by_create] {
        let Some(served) = Served::new(Cache::Through) else {
            return;
        };
        assert!(served.write(0, b"text", 2).is_ok());
        assert_eq!(served.resize(0, by), 0);
        assert_eq!(served.lasting(), b"");
    }
}

#[test]
fn a_rename_lasts_in_both_directories() {
    let Some(served) = Served::new(Cache::Through) else {
        return;
    };
    let root = served.fixture.root();
    let words = Words::default().opaque(&root).opaque(b"below").mode(0o755);
    let below = served.fixture.made(9, &words).expect("made");
    for (from, to, directories) in [(&root, &root, 1), (&root, &below, 2), (&below, &root, 2)] {
        let before = served.lossy.count(Operation::SyncDirectory);
        let words = Words::default().opaque(from).opaque(FILE.as_bytes());
        let words = words.opaque(to).opaque(FILE.as_bytes());
        assert_eq!(served.fixture.nfs(14, &words).status(), 0);
        let synced = served.lossy.count(Operation::SyncDirectory) - before;
        assert_eq!(synced, directories);
    }
}

#[test]
fn a_reader_that_saw_a_file_sees_all_that_came_since() {
    let fixture = Fixture::new();
    let file = fixture.create(&fixture.root(), FILE, 0o600).expect("made");
    assert_eq!(fixture.write(&file, 0, b"short", 0), 0);
    // Remembered: the second READ asks for no attributes before the data.
    for _ in 0..2 {
        assert_eq!(fixture.read(&file, 0, 100), Ok((b"short".to_vec(), true)));
    }
    assert_eq!(fixture.write(&file, 5, b" and long", 0), 0);
    assert_eq!(
        fixture.read(&file, 0, 100),
        Ok((b"short and long".to_vec(), true))
    );
}

/// N4. The descriptor is closed all the same, so that this was the last chance to learn of a loss.
#[test]
fn a_sync_that_was_interrupted_or_refused_before_a_close_turns_the_verifier() {
    let Some(served) = Served::new(Cache::Through) else {
        return;
    };
    let export = served.fixture.export();
    let nodes = &export.nodes;
    for errno in [Errno::INTR, Errno::AGAIN, Errno::STALE, Errno::NOSPC] {
        for by_commit in [false, true] {
            let written = served.write(0, b"unsynced", UNSTABLE).expect("taken");
            served.lossy.fail(Operation::Sync, 1, errno.raw_os_error());
            if by_commit {
                assert!(served.commit().is_err(), "{errno}");
            }
            let mut evicted = Vec::new();
            nodes.evict(1000, &mut evicted);
            nodes.evict(1000, &mut evicted);
            drop(evicted);
            let is_told = served.verifier() != written;
            let is_kept = served.lasting() == b"unsynced";
            assert!(is_kept || is_told, "{errno}, COMMIT {by_commit}");
            served.lossy.heal();
        }
    }
}
