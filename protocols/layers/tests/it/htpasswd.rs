//! Passwords of a file: checked on workers, known on network threads.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use flatpath_http::{Extension, Router, Service, Turn, testing};
use flatpath_layers::{Access, AuthUser, Guard, Htpasswd};
use flatpath_test::each_seed;
use tempfile::TempDir;

use crate::guard::Inside;
use crate::rate_limit::{Clock, peer};
use crate::{Site, all, request};

const SEEDS: u64 = 3;

/// `ada` with `pass:word`, as `htpasswd -nbB` makes it, and `bob` with `pass:word`.
const ADA: &str = "ada:$2y$05$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqnNy\n";
const BOB: &str = "bob:$5$abcdefgh$0REkPn1Z4CNNcjMacpXfYSNOtfCErlQR.ejJ2YSRMr4\n";

const ADAS: &str = "Authorization: Basic YWRhOnBhc3M6d29yZA==";
const BOBS: &str = "Authorization: Basic Ym9iOnBhc3M6d29yZA==";

struct Users {
    folder: TempDir,
    clock: Clock,
    file: Htpasswd,
}

impl Users {
    fn of(text: &str) -> Self {
        let folder = tempfile::tempdir().expect("a directory");
        let path = folder.path().join("users");
        fs::write(&path, text).expect("written");
        let clock = Clock::default();
        let file = Htpasswd::open(&path).expect("good").clock(clock.now());
        Self {
            folder,
            clock,
            file,
        }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("users")
    }

    fn access(&self) -> Access {
        Access::new().passwords("the staff", &self.file)
    }
}

#[test]
fn sim_a_password_is_checked_on_a_worker_once() {
    each_seed(SEEDS, |seed| {
        let users = Users::of(&format!("{ADA}{BOB}"));
        let mut site = Site::of(seed, Guard::new(Inside::default(), users.access()));
        let mut text = |line, header| site.ask(line, &[header]).text().to_owned();
        assert_eq!(text("GET /", ADAS), "a worker", "seed {seed}");
        assert_eq!(text("GET /", ADAS), "network");
        assert_eq!(text("GET /worker", ADAS), "a worker");
        assert_eq!(text("PUT /upload", BOBS), "a worker");
        assert_eq!(text("GET /", BOBS), "network");
        // The file is looked at again, by one request; nothing has changed.
        users.clock.advance(Duration::from_secs(1));
        assert_eq!(text("GET /", BOBS), "a worker");
        assert_eq!(text("GET /", ADAS), "network");
        users.clock.advance(Duration::from_secs(300));
        assert_eq!(text("GET /", ADAS), "a worker");
        assert_eq!(text("GET /", ADAS), "network");
    });
}

#[test]
fn sim_a_handler_has_the_name() {
    let users = Users::of(&format!("{ADA}{BOB}"));
    let who = |Extension(user): Extension<AuthUser>| user.to_string();
    let mut site = Site::of(1, Guard::new(Router::new().get("/", who), users.access()));
    for _ in 0..2 {
        assert_eq!(site.ask("GET /", &[ADAS]).text(), "ada");
        assert_eq!(site.ask("GET /", &[BOBS]).text(), "bob");
    }
}

#[test]
fn sim_others_are_refused_before_the_service() {
    each_seed(SEEDS, |seed| {
        let users = Users::of(ADA);
        let inside = Inside::default();
        let mut site = Site::of(seed, Guard::new(inside.clone(), users.access()));
        for headers in [
            &[][..],
            &["Authorization:"],
            &["Authorization: Basic"],
            &["Authorization: Basic ====="],
            // Another password, none, a name that is unknown, a line end.
            &["Authorization: Basic YWRhOnBhc3M6d29yZQ=="],
            &["Authorization: Basic YWRhOg=="],
            &[BOBS],
            &["Authorization: Basic YWRhOnBhc3M6d29yZAo="],
            &["Authorization: Bearer YWRhOnBhc3M6d29yZA=="],
            &[ADAS, ADAS],
        ] {
            for line in ["GET /", "GET /worker"] {
                let reply = site.ask(line, headers);
                assert_eq!(reply.status, 401, "seed {seed}: {line} {headers:?}");
                let challenge = "Basic realm=\"the staff\", charset=\"UTF-8\"";
                assert_eq!(all(&reply, "www-authenticate"), challenge);
            }
        }
        assert_eq!(inside.seen(), 0);
        let long = format!("Authorization: Basic {}", "YWRh".repeat(1000));
        assert_eq!(site.ask("GET /", &[&long]).status, 401);
    });
}

/// A session that goes on ends with its user's line.
#[test]
fn sim_a_change_of_the_file_counts_for_known_credentials_too() {
    each_seed(SEEDS, |seed| {
        let users = Users::of(&format!("{ADA}{BOB}"));
        let mut site = Site::of(seed, Guard::new(Inside::default(), users.access()));
        let mut statuses = || [ADAS, BOBS].map(|header| site.ask("GET /", &[header]).status);
        assert_eq!(statuses(), [200, 200]);
        fs::write(users.path(), ADA).expect("written");
        users.clock.advance(Duration::from_secs(1));
        assert_eq!(statuses(), [200, 401], "seed {seed}");
        // Half a file, and none: the one before stays.
        for text in ["", "ada:$2y$05$B.E3", "bob:secret\n", BOB.trim_end()] {
            fs::write(users.path(), text).expect("written");
            users.clock.advance(Duration::from_secs(1));
            assert_eq!(statuses(), [200, 401], "{text:?}");
        }
        fs::write(users.path(), BOB).expect("written");
        users.clock.advance(Duration::from_secs(1));
        assert_eq!(statuses(), [401, 200], "seed {seed}");
    });
}

/// Another wrong password of `ada` for each number: `xx` and three digits, in base 64.
fn wrong(number: u32) -> String {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digits = format!("{number:03}");
    let bits = digits
        .bytes()
        .fold(0, |bits, byte| bits << 8 | usize::from(byte));
    let digits = [18, 12, 6, 0].map(|shift| char::from(letters[bits >> shift & 63]));
    format!("Authorization: Basic YWRhOnh4{}", String::from_iter(digits))
}

#[test]
fn sim_an_address_that_guesses_is_stopped_and_takes_nothing_from_others() {
    each_seed(SEEDS, |seed| {
        let users = Users::of(ADA);
        let inside = Inside::default();
        let mut site = Site::of(seed, Guard::new(inside.clone(), users.access()));
        let (guesser, other) = (peer("192.0.2.1", 1), peer("192.0.2.2", 1));
        // Behind the address of the guesser there is a user, too.
        assert_eq!(site.ask_from(guesser, "GET /", &[ADAS], "").status, 200);
        let mut statuses = Vec::new();
        for number in 0..40 {
            let reply = site.ask_from(guesser, "GET /", &[&wrong(number)], "");
            if reply.status == 429 {
                assert_eq!(reply.field("retry-after"), Some("3"), "{number}");
            }
            statuses.push(reply.status);
        }
        let refused = statuses.iter().filter(|it| **it == 401).count();
        assert_eq!(refused, 20, "seed {seed}: {statuses:?}");
        assert!(statuses[20..].iter().all(|it| *it == 429), "{statuses:?}");
        assert_eq!(inside.seen(), 1);
        // Right and known, wherever it comes from; and right, from elsewhere.
        assert_eq!(
            site.ask_from(guesser, "GET /", &[ADAS], "").text(),
            "network"
        );
        assert_eq!(site.ask_from(other, "GET /", &[ADAS], "").text(), "network");
        assert_eq!(site.ask_from(other, "GET /", &[&wrong(0)], "").status, 401);
        users.clock.advance(Duration::from_secs(3));
        assert_eq!(
            site.ask_from(guesser, "GET /", &[&wrong(0)], "").status,
            401
        );
        assert_eq!(
            site.ask_from(guesser, "GET /", &[&wrong(0)], "").status,
            429
        );
    });
}

/// A right password is given back, so that it costs an address nothing.
#[test]
fn sim_right_passwords_do_not_count_as_guesses() {
    let users = Users::of(ADA);
    let mut site = Site::of(1, Guard::new(Inside::default(), users.access()));
    for round in 0..30 {
        assert_eq!(site.ask("GET /", &[ADAS]).status, 200, "{round}");
        users.clock.advance(Duration::from_secs(300));
    }
    for number in 0..20 {
        assert_eq!(site.ask("GET /", &[&wrong(number)]).status, 401, "{number}");
    }
    assert_eq!(site.ask("GET /", &[&wrong(0)]).status, 429);
}

/// Requests after the first of a connection are decided on by workers alone.
#[test]
fn sim_guesses_one_after_another_on_a_connection_are_counted_too() {
    each_seed(SEEDS, |seed| {
        let users = Users::of(ADA);
        let mut site = Site::of(seed, Guard::new(Inside::default(), users.access()));
        let kept = |number| {
            let header = wrong(number);
            format!("GET / HTTP/1.1\r\nHost: h\r\n{header}\r\n\r\n")
        };
        let input: String = (0..30).map(kept).collect();
        let last = request("GET /", &[&wrong(30)], "");
        let answers = site.exchange(peer("192.0.2.1", 1), &[input.as_bytes(), &last].concat());
        let answers = String::from_utf8(answers).expect("ASCII");
        let count = |status: &str| answers.matches(&format!("HTTP/1.1 {status} ")).count();
        assert_eq!(
            (count("401"), count("429")),
            (20, 11),
            "seed {seed}: {answers}"
        );
    });
}

/// Behind one file of passwords there may be another one, whose guesses are counted by themselves.
#[test]
fn sim_a_guess_at_the_second_of_two_files_is_counted_after_a_right_one_at_the_first() {
    const HASH: &str = "$2y$05$B.E3/zXxyMpxezr.oVigl.X9Hb/Rs0fdAS9oX/wlmvTZ9LIDUqnNy";
    let names: Vec<String> = (0..30).map(|number| format!("u{number:02}")).collect();
    let lines: String = names
        .iter()
        .map(|name| format!("{name}:{HASH}\n"))
        .collect();
    let (outer, inner) = (Users::of(&lines), Users::of(ADA));
    let inside = Inside::default();
    let guarded = Guard::new(Guard::new(inside.clone(), inner.access()), outer.access());
    let mut site = Site::of(1, guarded);
    let statuses: Vec<_> = names
        .iter()
        .map(|name| {
            let credentials = BASE64_STANDARD.encode(format!("{name}:pass:word"));
            let header = format!("Authorization: Basic {credentials}");
            site.ask_from(peer("192.0.2.1", 1), "GET /", &[&header], "")
                .status
        })
        .collect();
    let expected: Vec<_> = (0..30).map(|it| if it < 20 { 401 } else { 429 }).collect();
    assert_eq!(statuses, expected);
    assert_eq!(inside.seen(), 0);
}

/// An address that has guessed too often takes no worker.
#[test]
fn who_has_guessed_too_often_is_refused_by_the_network_thread() {
    let users = Users::of(ADA);
    let guard = || Guard::new(Inside::default(), users.access());
    let mut site = Site::of(1, guard());
    let guard = guard();
    let mut thread = guard.thread_state();
    let turn = Turn::new(1, Duration::ZERO, Duration::from_secs(784_200_000));
    let mut at_once = |header: &str| {
        let input = request("GET /", &[header], "");
        testing::inline(&guard, &mut thread, turn, &input).expect("valid")
    };
    assert_eq!(at_once(&wrong(0)), None, "a worker checks it");
    for number in 0..20 {
        assert_eq!(site.ask("GET /", &[&wrong(number)]).status, 401);
    }
    let refused = at_once(&wrong(0)).expect("it is not left to a worker");
    assert!(refused.starts_with(b"HTTP/1.1 429 "));
}

/// bcrypt looks at 72 bytes, so that this one would be right.
#[test]
fn sim_a_password_that_is_too_long_is_not_checked() {
    const EV: &str = "ev:$2b$05$abcdefghijklmnopqrstuuGUnCqbfgs3htOkLrFduUjAyLBw1Rq/u\n";
    let users = Users::of(EV);
    let mut site = Site::of(1, Guard::new(Inside::default(), users.access()));
    for (letters, status) in [(72, 200), (510, 200), (513, 401)] {
        // The base 64 of `ev:` and of `aaa`.
        let password = "YWFh".repeat(letters / 3);
        let header = format!("Authorization: Basic ZXY6{password}");
        assert_eq!(site.ask("GET /", &[&header]).status, status, "{letters}");
    }
}
