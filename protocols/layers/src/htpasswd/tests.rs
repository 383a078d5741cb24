//! Files of passwords: what is taken, what is refused, and what a change does. The clock is the
//! test's.

use std::fs;
use std::sync::atomic::AtomicU64 as Milliseconds;

use tempfile::TempDir;

use flatpath::blocking::{BlockingLimit, Entry, Permit, WaitLimits};
use flatpath::memory::{MemoryShare, SharePart};
use flatpath_http::{
    Disposition, Head, Http, IntoResponse, Reply, Request, Response, Router, Service, Turn,
    WorkerScope,
};
use flatpath_test::{Conditions, TestServer};

use super::hash::VERIFIED;
use super::*;

/// Of `htpasswd -nbB`, `openssl passwd -5` and `-6`; their passwords are beside them.
const BCRYPT: (&str, &str) = (
    "$2y$05$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqnNy",
    "pass:word",
);
const SHA_256: (&str, &str) = (
    "$5$abcdefgh$0REkPn1Z4CNNcjMacpXfYSNOtfCErlQR.ejJ2YSRMr4",
    "pass:word",
);
const SHA_512: (&str, &str) = (
    "$6$abcdefgh$iiBW30h6MQUpgkXT9F87NVy6FIbloKXQmfPH87w2UkYa6T8cikoVXkyDCmOccwyrz69xvCZIs4Q.\
     UiGV4ZRkv.",
    "p\u{e4}ssword",
);

struct Folder(TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("users")
    }

    /// In place, as some programs do.
    fn write(&self, text: &str) {
        fs::write(self.path(), text).expect("written");
    }

    fn open(&self, text: &str) -> Result<Htpasswd, String> {
        self.write(text);
        let opened = Htpasswd::open(&self.path());
        let path = self.path().display().to_string();
        opened.map_err(|why| why.to_string().replace(&path, "FILE"))
    }
}

fn line(name: &str, (hash, _): (&str, &str)) -> String {
    format!("{name}:{hash}\n")
}

#[test]
fn each_kind_of_hash_has_its_password_and_no_other() {
    let folder = Folder::new();
    let hashes = [BCRYPT, SHA_256, SHA_512];
    let lines: String = ["a", "b", "c"]
        .into_iter()
        .zip(hashes)
        .map(|(n, h)| line(n, h))
        .collect();
    let text = format!("# comment\n\n{lines}");
    let users = folder.open(&text).expect("good").users();
    for (name, (_, password)) in ["a", "b", "c"].into_iter().zip(hashes) {
        assert!(users.has(name, password), "{name}");
        for other in ["", "x", &password[1..], &format!("{password} ")] {
            assert!(!users.has(name, other), "{name} {other:?}");
        }
        assert!(!users.has("d", password) && !users.has("", password));
    }
}

#[test]
fn argon2_is_taken_with_enough_memory() {
    use argon2::password_hash::{PasswordHasher, SaltString};
    use argon2::{Algorithm, Argon2, Params, Version};
    let hash = |algorithm, kib, passes| {
        let parameters = Params::new(kib, passes, 1, None).expect("good");
        let argon2 = Argon2::new(algorithm, Version::V0x13, parameters);
        let salt = SaltString::from_b64("c29tZXNhbHQ").expect("a salt");
        let hash = argon2.hash_password(b"long enough", &salt);
        hash.expect("hashed").to_string()
    };
    let folder = Folder::new();
    let text = format!("a:{}\n", hash(Algorithm::Argon2id, 7_168, 1));
    let users = folder.open(&text).expect("good").users();
    assert!(users.has("a", "long enough") && !users.has("a", "long enougH"));
    let weak = format!("a:{}\n", hash(Algorithm::Argon2id, 1_024, 1));
    let why = folder.open(&weak).expect_err("too little memory");
    assert!(
        why.starts_with("FILE:1: a: the memory of Argon2 in KiB is 1024"),
        "{why}"
    );
    let other = format!("a:{}\n", hash(Algorithm::Argon2d, 7_168, 1));
    let why = folder.open(&other).expect_err("not for passwords");
    assert!(why.contains("$argon2d$ is not known here"), "{why}");
}

/// Lines that are refused, and why.
const BAD: &[(&str, &str)] = &[
    (
        "bob:$apr1$abcdefgh$5VEbMkemELfbhC5ck.U.z1",
        "bob: MD5 does not protect",
    ),
    (
        "bob:$1$abcdefgh$IQtUouv7y7Q9dRWkQEPCc.",
        "bob: MD5 does not protect",
    ),
    (
        "bob:{SHA}GpHWL3ymc5liWkNopqtdSjuqYHM=",
        "bob: SHA-1 without a salt",
    ),
    (
        "bob:ZaEaTJ1xr0KUk",
        "bob: this is DES, a plain password or no hash",
    ),
    (
        "bob:secret",
        "bob: this is DES, a plain password or no hash",
    ),
    ("bob:", "bob: this is DES, a plain password or no hash"),
    (
        "bob:$secret word",
        "bob: this is DES, a plain password or no hash",
    ),
    (
        "bob:$correct7horse",
        "bob: this is DES, a plain password or no hash",
    ),
    ("bob:$y$j9T$abc$def", "bob: the hash $y$ is not known here"),
    (
        "bob:$2y$04$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqnNy",
        "is 4, and 5 at least",
    ),
    (
        "bob:$2y$31$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqnNy",
        "and 14 at most",
    ),
    (
        "bob:$2y$05$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqnN",
        "cut off or malformed",
    ),
    (
        "bob:$2y$05$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqn y",
        "cut off or malformed",
    ),
    (
        "bob:$5$rounds=1000$a$0REkPn1Z4CNNcjMacpXfYSNOtfCErlQR.ejJ2YSRMr4",
        "1000, and 5000 at",
    ),
    (
        "bob:$5$rounds=9999999$a$0REkPn1Z4CNNcjMacpXfYSNOtfCErlQR.ejJ2YSRMr4",
        "500000 at most",
    ),
    (
        "bob:$5$a$0REkPn1Z4CNNcjMacpXfYSNOtfCErlQR",
        "cut off or malformed",
    ),
    ("bob:$6$a", "cut off or malformed"),
    ("bob", "a line is NAME:HASH"),
    (":$6$a", "a name has at least one character"),
    ("ada:$6$a", "cut off or malformed"),
];

#[test]
fn what_is_weak_or_unknown_is_refused_with_its_line_and_without_its_text() {
    let folder = Folder::new();
    let good = line("ada", BCRYPT);
    let twice = (good.trim_end(), "the name \"ada\" is there twice");
    for (bad, expected) in BAD.iter().copied().chain([twice]) {
        let why = folder
            .open(&format!("# one\n{good}{bad}\n"))
            .expect_err(bad);
        assert!(
            why.starts_with("FILE:3: ") && why.contains(expected),
            "{bad}: {why}"
        );
        let secret = bad.split_once(':').map_or("", |(_, hash)| hash);
        let is_told = secret.len() >= 6 && why.contains(secret);
        assert!(!is_told && !why.contains("correct7horse"), "{why}");
    }
}

#[test]
fn a_file_that_names_nobody_or_is_none_is_refused() {
    let folder = Folder::new();
    assert_eq!(
        folder.open("").err(),
        Some("FILE:1: it names nobody".into())
    );
    assert_eq!(
        folder.open("# a\n\n").err(),
        Some("FILE:2: it names nobody".into())
    );
    let missing = Htpasswd::open(Path::new("/nowhere/users")).expect_err("missing");
    assert!(
        missing
            .to_string()
            .starts_with("/nowhere/users: No such file"),
        "{missing}"
    );
    let folder = Htpasswd::open(folder.0.path()).expect_err("a directory");
    assert!(
        folder.to_string().ends_with("it is not a regular file"),
        "{folder}"
    );
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let folder = Folder::new();
    let comments = format!("#{}\n", "x".repeat(1022)).repeat(1024);
    let why = folder
        .open(&format!("{comments}{}", line("a", BCRYPT)))
        .expect_err("too large");
    assert_eq!(why, "FILE: it is larger than 1048576 bytes");
}

/// HP3: by what is done, not by a clock.
#[test]
fn a_name_that_is_unknown_costs_what_a_known_one_does() {
    let folder = Folder::new();
    let users = folder.open(&line("ada", BCRYPT)).expect("good").users();
    for (name, password, is_right) in [
        ("ada", BCRYPT.1, true),
        ("ada", "wrong", false),
        ("eve", "wrong", false),
        // The password of the hash that stands in.
        ("eve", BCRYPT.1, false),
    ] {
        let before = VERIFIED.with(std::cell::Cell::get);
        assert_eq!(users.has(name, password), is_right, "{name} {password}");
        assert_eq!(
            VERIFIED.with(std::cell::Cell::get) - before,
            1,
            "{name} {password}"
        );
    }
}

/// A file in force is whole (HP1).
#[test]
fn half_of_a_file_is_never_in_force() {
    let folder = Folder::new();
    let (ada, bob) = (line("ada", BCRYPT), line("bob", SHA_256));
    let file = folder.open(&format!("{ada}{bob}")).expect("good");
    let names = |file: &Htpasswd| file.users().hashes.len();
    let whole = format!("{ada}{bob}{}", line("eve", SHA_512));
    // As a program writes it in place: first nothing, then more and more.
    for bytes in 0..whole.len() {
        folder.write(&whole[..bytes]);
        let reloaded = file.reload();
        let cut = &whole[..bytes];
        // A whole line is a whole file, for all that can be known.
        let is_whole = cut.ends_with('\n');
        assert_eq!(reloaded.is_ok(), is_whole, "{bytes}");
        if is_whole {
            assert_eq!(names(&file), cut.lines().count(), "{bytes}");
        }
    }
    folder.write(&whole);
    assert!(file.reload().is_ok() && names(&file) == 3);
    for bad in ["", "eve:secret\n", &whole[..whole.len() - 1]] {
        folder.write(bad);
        file.reload().expect_err(bad);
        assert_eq!(names(&file), 3, "{bad:?}");
    }
    fs::remove_file(folder.path()).expect("removed");
    file.reload().expect_err("it is gone");
    assert_eq!(names(&file), 3);
    folder.write(&ada);
    assert!(file.reload().is_ok() && names(&file) == 1);
}

/// Without an end of the last line a file is taken at the start alone: then nobody writes it.
#[test]
fn the_last_line_may_have_no_end_at_the_start() {
    let folder = Folder::new();
    let file = folder.open(line("ada", BCRYPT).trim_end()).expect("good");
    folder.write(line("bob", BCRYPT).trim_end());
    let why = file
        .reload()
        .expect_err("perhaps it is written")
        .to_string();
    assert!(why.contains(":1: the last line has no end"), "{why}");
}

/// A new version knows no login of the one before (HP2).
#[test]
fn known_credentials_are_forgotten_with_time_and_with_the_file() {
    let folder = Folder::new();
    let now = Arc::new(Milliseconds::new(5_000));
    let clock = Arc::clone(&now);
    let file = folder.open(&line("ada", BCRYPT)).expect("good");
    let file = file.clock(move || Duration::from_millis(clock.load(Ordering::Relaxed)));
    let advance = |time: Duration| {
        let ms = u64::try_from(time.as_millis()).expect("short");
        now.fetch_add(ms, Ordering::Relaxed);
    };
    let credentials = b"Basic YWRhOnBhc3M6d29yZA==";
    assert!(!file.knows(credentials));
    file.remember(file.key(credentials));
    assert!(file.knows(credentials) && !file.knows(b"Basic YWRhOnBhc3M6d29yZA="));
    advance(LIFE - Duration::from_millis(1));
    assert!(file.knows(credentials));
    advance(Duration::from_millis(1));
    assert!(!file.knows(credentials));

    file.look();
    file.remember(file.key(credentials));
    let key = file.key(credentials);
    folder.write(&format!("# the same\n{}", line("ada", BCRYPT)));
    file.look();
    assert!(file.knows(credentials), "LOOK is not over");
    advance(LOOK);
    assert!(file.is_due());
    file.look();
    assert!(
        !file.is_due() && !file.knows(credentials),
        "the file has changed"
    );
    // A check that began before the change.
    file.remember(key);
    assert!(!file.knows(credentials));
    // Another file, another secret.
    let other = Htpasswd::open(&folder.path()).expect("good");
    assert_ne!(other.key(credentials), file.key(credentials));
}

#[test]
fn the_same_content_changes_nothing() {
    let folder = Folder::new();
    let file = folder.open(&line("ada", BCRYPT)).expect("good");
    file.remember(file.key(b"x"));
    folder.write(&line("ada", BCRYPT));
    file.reload().expect("good");
    assert!(file.knows(b"x"));
    folder.write("ada:wrong\n");
    file.reload().expect_err("bad");
    assert!(file.knows(b"x"), "the one before is in force");
}

/// Keeps its place in a limit for as long as the test does.
struct Keeping {
    limit: BlockingLimit,
    kept: Arc<Lock<Option<Permit>>>,
}

impl Service for Keeping {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn inline(&self, (): &mut (), _: Turn, _: &Head<'_>, _: &mut Reply<'_>) -> Disposition<'_> {
        Disposition::Pooled
    }

    fn pooled(&self, _: &mut Request, scope: &mut WorkerScope<'_>) -> Response {
        if let Entry::Entered(permit) = self.limit.enter(scope) {
            *self.kept.lock() = Some(permit);
        }
        "kept".into_response()
    }
}

/// Takes 8 MiB to check; no test sends its password.
const ARGON2: &str = "$argon2id$v=19$m=8192,t=1,p=1$c2FsdHNhbHQ$\
    DmOhcs1pBBt+CbEhnmfc1CGXwl0n0PF2JsHDqSxSQ0Y";

#[test]
fn a_file_whose_checks_would_not_find_their_memory_is_not_taken() {
    const MIB: usize = 1 << 20;
    let (share, folder) = (MemoryShare::new(8 * MIB), Folder::new());
    let (own, rest) = (share.part(8 * MIB - 1), share.part(0));
    let open = |part: &SharePart| {
        let checks = PasswordChecks::new().memory(part.clone());
        Htpasswd::open_with(&folder.path(), &checks).map_err(|why| why.to_string())
    };
    folder.write(&format!("ada:{ARGON2}\n"));
    let unbounded = Htpasswd::open(&folder.path()).expect("good");
    assert_eq!(unbounded.check_bytes(), 8 * MIB);
    assert!(open(&own).is_ok(), "others own nothing");
    let why = open(&rest).expect_err("a byte is left");
    assert!(
        why.contains("takes 8192 KiB (Argon2), and there are 0 KiB"),
        "{why}"
    );
    folder.write(&line("ada", BCRYPT));
    let file = open(&rest).expect("it takes none");
    assert_eq!(file.check_bytes(), 0);
    // One that is read again leaves the names before in force.
    folder.write(&format!("{}bob:{ARGON2}\n", line("ada", BCRYPT)));
    assert!(file.reload().is_err());
    assert!(file.users().has("ada", BCRYPT.1));
}

#[test]
fn sim_a_password_without_memory_for_its_check_is_no_wrong_guess() {
    const MIB: usize = 1 << 20;
    let (share, folder) = (MemoryShare::new(8 * MIB), Folder::new());
    let (part, other) = (share.part(0), share.part(0));
    folder.write(&format!("ada:{ARGON2}\n"));
    let checks = PasswordChecks::new().memory(part);
    let file = Htpasswd::open_with(&folder.path(), &checks).expect("good");
    let access = crate::Access::new().passwords("r", &file);
    let router: Router = Router::new().get("/", || "in\n");
    let guarded = Http::service(crate::Guard::new(router, access));
    let mut server = TestServer::new(Conditions::calm(1), guarded);
    let mut status = || {
        let client = server.connect();
        // `ada:pass:word`
        let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
             Authorization: Basic YWRhOnBhc3M6d29yZA==\r\n\r\n";
        client.write(request.as_bytes());
        let answer = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        answer["HTTP/1.1 ".len()..][..3].to_owned()
    };
    let held = other.hold(MIB).expect("it is free");
    for _ in 0..=FAILURES_BURST {
        assert_eq!(status(), "503", "and never 429");
    }
    drop(held);
    assert_eq!(status(), "401", "it is checked, and another one's");
    assert_eq!(share.held_bytes(), 0);
}

#[test]
fn sim_a_password_that_finds_no_room_to_be_checked_is_no_wrong_guess() {
    let limits = WaitLimits {
        waiting_max: 0,
        stuck_after: Duration::from_secs(3_600),
    };
    let limit = BlockingLimit::at_most(1, "passwords of a test", limits);
    let folder = Folder::new();
    let mut file = folder.open(&line("ada", BCRYPT)).expect("good");
    Arc::get_mut(&mut file.0).expect("no clone").checks.limit = limit.clone();
    let kept: Arc<Lock<Option<Permit>>> = Arc::default();
    let keeping = Keeping {
        limit,
        kept: Arc::clone(&kept),
    };
    let status = |server: &mut TestServer| {
        let client = server.connect();
        // `ada:pass:word`
        let request = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
             Authorization: Basic YWRhOnBhc3M6d29yZA==\r\n\r\n";
        client.write(request.as_bytes());
        let answer = String::from_utf8(server.read_to_end(&client)).expect("ASCII");
        answer["HTTP/1.1 ".len()..][..3].to_owned()
    };
    let mut other = TestServer::new(Conditions::calm(1), Http::service(keeping));
    assert_eq!(status(&mut other), "200");
    assert!(kept.lock().is_some(), "the only place is taken");
    let access = crate::Access::new().passwords("a test", &file);
    let inside: Router = Router::new().get("/", || "inside\n");
    let guard = crate::Guard::new(inside, access);
    let mut server = TestServer::new(Conditions::calm(2), Http::service(guard));
    for _ in 0..2 * FAILURES_BURST {
        assert_eq!(status(&mut server), "503");
    }
    *kept.lock() = None;
    assert_eq!(status(&mut server), "200", "no guess was counted");
}

/// HP4: what waits for its turn comes again, and is one attempt.
#[test]
fn sim_a_guess_that_waits_for_its_turn_is_counted_once() {
    let folder = Folder::new();
    folder.write(&line("ada", BCRYPT));
    let checks = PasswordChecks::at_most(1);
    let file = Htpasswd::open_with(&folder.path(), &checks).expect("good");
    let kept: Arc<Lock<Option<Permit>>> = Arc::default();
    let keeping = Keeping {
        limit: checks.limit.clone(),
        kept: Arc::clone(&kept),
    };
    // `ada:wrong`
    let guess = "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\
         Authorization: Basic YWRhOndyb25n\r\n\r\n";
    let mut other = TestServer::new(Conditions::calm(1), Http::service(keeping));
    let client = other.connect();
    client.write(guess.as_bytes());
    other.read_to_end(&client);
    assert!(kept.lock().is_some(), "the only place is taken");
    let access = crate::Access::new().passwords("a test", &file);
    let inside: Router = Router::new().get("/", || "inside\n");
    let guard = crate::Guard::new(inside, access);
    let mut server = TestServer::new(Conditions::calm(2), Http::service(guard));
    let waiting = server.connect();
    waiting.write(guess.as_bytes());
    server.run_until(|| checks.limit.figures().waiting == 1);
    *kept.lock() = None;
    let mut statuses = vec![server.read_to_end(&waiting)];
    for _ in 0..FAILURES_BURST {
        let client = server.connect();
        client.write(guess.as_bytes());
        statuses.push(server.read_to_end(&client));
    }
    let count = |status: &[u8]| {
        let all = statuses.iter();
        all.filter(|it| it.starts_with(status)).count()
    };
    let counts = (count(b"HTTP/1.1 401 ") as u64, count(b"HTTP/1.1 429 "));
    assert_eq!(counts, (FAILURES_BURST, 1));
}
