//! The service from request bytes to reply bytes, without a server around it.

mod absent;
mod answers;
mod compressed;
mod dates;
mod directories;
mod fallbacks;
mod homes;
mod kept;
mod made;
mod prompt;
mod publishing;
mod rule_files;
mod rules;

use std::fs;
use std::os::unix::fs::{FileExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use flatpath::descriptors::DescriptorBudget;
use flatpath::memory::Pool;
use flatpath_http::{Service, Turn, testing};
use flatpath_structures::pool::{PoolConfig, Zero};
use flatpath_testkit::deadline::is_slow;
use flatpath_testkit::until_true;

use crate::asker::Asker;
use crate::homes::Stay;
use crate::identity::clock_of_files;
use crate::limits::{CACHE_FILE_BYTES_MAX, STABLE_AFTER};
use crate::root::Reach;
use crate::{Files, FilesState, Hidden};

/// Sunday, 06 Nov 1994 08:49:37 GMT.
const MODIFIED: Duration = Duration::from_secs(784_111_777);
const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

/// A folder, the service over it, and one network thread's thread.
struct Site {
    folder: tempfile::TempDir,
    files: Files,
    thread: FilesState,
    pool: Pool,
    descriptors: DescriptorBudget,
    turn: u64,
}

/// Where an answer was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    Network,
    Worker,
}

#[derive(Debug)]
struct Answer {
    by: By,
    head: String,
    body: Vec<u8>,
}

impl Answer {
    fn status(&self) -> &str {
        &self.head[9..12]
    }

    fn header(&self, name: &str) -> Option<&str> {
        let mut lines = self
            .head
            .lines()
            .skip(1)
            .filter_map(|line| line.split_once(": "));
        lines
            .find(|(own, _)| own.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
    }

    /// The body without the framing of its one chunk.
    fn content(&self) -> Vec<u8> {
        if self.header("Transfer-Encoding").is_none() {
            return self.body.clone();
        }
        let mut lines = self.body.splitn(2, |byte| *byte == b'\n');
        let size = lines.next().expect("a size").trim_ascii();
        let size = std::str::from_utf8(size).expect("ASCII");
        let size = usize::from_str_radix(size, 16).expect("a number");
        lines.next().expect("a chunk")[..size].to_vec()
    }

    fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("text")
    }

    /// The head's lines in a fixed order.
    fn lines(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.head.lines().map(str::to_ascii_lowercase).collect();
        lines.sort();
        lines
    }
}

impl Site {
    fn new() -> Self {
        Self::with_pool(16 << 20)
    }

    fn with_pool(budget_bytes: usize) -> Self {
        let folder = tempfile::tempdir().expect("tempdir");
        fs::create_dir(folder.path().join("served")).expect("mkdir");
        let files = Files::open(&folder.path().join("served")).expect("open");
        let thread = files.thread_state();
        let classes = vec![4 << 10, 16 << 10, 64 << 10];
        let pool = Pool::new(PoolConfig {
            classes,
            budget_bytes,
            zero: Zero::Never,
        });
        Self {
            folder,
            files,
            thread,
            pool,
            descriptors: DescriptorBudget::default(),
            turn: 1,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join("served").join(name)
    }

    /// Writes a file that was last modified in 1994.
    fn write(&self, name: &str, content: impl AsRef<[u8]>) {
        write_old(&self.path(name), content.as_ref());
    }

    fn get(&mut self, target: &str) -> Answer {
        self.ask("GET", target, "")
    }

    fn ask(&mut self, method: &str, target: &str, headers: &str) -> Answer {
        self.turn += 1;
        self.ask_in_this_turn(method, target, headers)
    }

    fn ask_in_this_turn(&mut self, method: &str, target: &str, headers: &str) -> Answer {
        let turn = Turn::new(self.turn, Duration::ZERO, Duration::from_secs(784_200_000));
        let input = format!("{method} {target} HTTP/1.1\r\nHost: h\r\n{headers}\r\n");
        let input = input.as_bytes();
        let inline = testing::inline(&self.files, &mut self.thread, turn, input).expect("valid");
        let (by, bytes) = match inline {
            Some(bytes) => (By::Network, bytes),
            None => {
                let (request, _) = testing::request(input).expect("valid").expect("complete");
                let mut response = self.answer(&request);
                let mut note = std::mem::take(response.extensions_mut());
                self.files.response_ready(&mut self.thread, turn, &mut note);
                let encode =
                    |head: &flatpath_http::Head<'_>| testing::encoded(head, turn, response);
                let bytes = testing::with_head(input, encode)
                    .expect("valid")
                    .expect("complete");
                (By::Worker, bytes)
            }
        };
        let end = bytes
            .windows(4)
            .position(|window| window == b"\r\n\r\n")
            .expect("a head");
        let head = String::from_utf8(bytes[..end].to_vec()).expect("ASCII");
        Answer {
            by,
            head,
            body: bytes[end + 4..].to_vec(),
        }
    }

    /// What a worker answers.
    fn answer(&self, request: &flatpath_http::Request) -> flatpath_http::Response {
        let asker = Asker::default();
        let (version, home) = self.files.home();
        let stay = Stay {
            version,
            home: &home,
        };
        let within = |reach| {
            let resources = ((&self.pool).into(), Some((&self.descriptors).into()));
            let within = (reach, &asker);
            self.files.answerer(stay, resources, within, None)
        };
        let (own, everywhere) = (within(Reach::OwnMount), within(Reach::Everywhere));
        let answer = own.answer(request).or_else(|| everywhere.answer(request));
        answer.expect("nothing is beyond that reach")
    }

    /// Asks twice; the second time the network thread must know the answer, and the same one. A
    /// slow machine is asked again: what a network thread has known for long, and a place where its
    /// look took long, is for a worker once.
    #[track_caller]
    fn get_hot(&mut self, target: &str, headers: &str) -> Answer {
        let first = self.ask("GET", target, headers);
        let mut second = self.ask("GET", target, headers);
        let again = if is_slow() { 20 } else { 0 };
        for _ in 0..again {
            if second.by == By::Network {
                break;
            }
            second = self.ask("GET", target, headers);
        }
        assert_eq!(second.by, By::Network, "{target} {headers}");
        assert_eq!((second.lines(), &second.body), (first.lines(), &first.body));
        second
    }
}

fn write_old(path: &Path, content: &[u8]) {
    fs::create_dir_all(path.parent().expect("a parent")).expect("mkdir");
    fs::write(path, content).expect("write");
    let file = fs::File::options().write(true).open(path).expect("open");
    file.set_modified(SystemTime::UNIX_EPOCH + MODIFIED)
        .expect("set time");
}

/// Lets the last change be long enough ago for validators, by the clock that tells: where a tick of
/// the kernel is late, a sleep may end before it.
pub(crate) fn wait_until_stable() {
    let began = clock_of_files();
    until_true("the kernel's ticks", || {
        clock_of_files() >= began + STABLE_AFTER
    });
}
