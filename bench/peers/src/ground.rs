//! What all candidates and loads of a run share: programs, documents, a certificate, cores, and how
//! long a load lasts.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flate2::Compression;
use flate2::write::GzEncoder;
use flatpath_testkit::Issued;
use flatpath_testkit::child;
use rustix::thread::{CpuSet, sched_getaffinity};
use tempfile::TempDir;

/// The lock file this binary was built from: the versions are the real ones.
pub(crate) const LOCK_FILE: &str = include_str!("../../../Cargo.lock");
/// How long ago the files were changed: the validators of one that has just changed are others a
/// moment later.
const SETTLED: Duration = Duration::from_secs(3600);
/// Name of the file that NFS reads 4 KiB of.
pub(crate) const PAGES: &str = "pages.bin";
const PAGES_BYTES: usize = 64 << 10;
/// Path of the small file.
pub(crate) const SMALL_PATH: &str = "/small.txt";
/// Its length: a page of text, an icon.
const SMALL_BYTES: usize = 1024;
/// Path of the large file.
pub(crate) const LARGE_PATH: &str = "/large.bin";
/// Its length: a photo.
const LARGE_BYTES: usize = 1 << 20;
/// A page of text that is compressed once and kept, and its length.
pub(crate) const PAGE_PATH: &str = "/page.txt";
const PAGE_BYTES: usize = 32 << 10;
/// A text that is longer than any that ours keeps compressed.
pub(crate) const LONG_PATH: &str = "/long.txt";
const LONG_BYTES: usize = 2 << 20;
/// A name that is hidden.
pub(crate) const HIDDEN_PATH: &str = "/.hidden";
/// What servers over TLS show, and its key.
const CERTIFICATE: &str = "certificate.pem";
const KEY: &str = "key.pem";
/// Where exports in memory are.
const MEMORY: &str = "/dev/shm";
/// As `openssl passwd -6` makes it, of `ada` and `secret`: 5,000 rounds.
const USERS: &str = "ada:$6$flatpathpeers$9QO635fo8BEpgBebJyP1qADQbkW4Skp697pv39H3zN65ZH2pEeU\
    nmYj2RMhBX1/TA96bMR4rBmZv0rKujgJZH.\n";

/// The programs that are measured, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Programs {
    /// The `flatpath` command; empty where no candidate is one.
    pub(crate) flatpath: PathBuf,
    /// More arguments of `flatpath serve`.
    pub(crate) serve: Vec<String>,
    /// `--driver` for everything that is Flatpath.
    pub(crate) driver: String,
    /// Another build of the command, and of this program.
    pub(crate) before: Option<PathBuf>,
    pub(crate) before_peers: Option<PathBuf>,
    /// The directory of the Python relay.
    pub(crate) python: Option<PathBuf>,
    pub(crate) wrk_threads: u32,
}

/// How long a load lasts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    pub(crate) seconds: u32,
    /// One short run, which shows that it works.
    pub(crate) is_quick: bool,
}

/// Files that are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Documents {
    /// Files of a few lengths.
    Ordinary,
    /// Those of sites with rules.
    Rules,
    /// The same, and what was compressed before.
    Compressed,
    /// Files of the lengths that were asked for.
    Large,
    /// A directory of the server's own in a memory file system, empty at first.
    Memory,
}

/// On which cores a case runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pinning {
    /// Server and generator wherever the kernel puts them.
    Free,
    /// The server on one core, the generator on the others.
    ServerOnOneCore,
    /// The generator on the last core, the server on the others.
    GeneratorOnOneCore,
}

/// See the module.
pub(crate) struct Ground {
    pub(crate) programs: Programs,
    pub(crate) pace: Pace,
    /// What servers over TLS show: of ECDSA P-256, signed by itself.
    pub(crate) issued: Issued,
    place: TempDir,
    cores: Vec<usize>,
}

impl Ground {
    /// Makes documents and certificate.
    ///
    /// # Errors
    /// A server that is a debug build although this program is none; no temporary directory.
    pub(crate) fn prepare(programs: Programs, pace: Pace) -> io::Result<Self> {
        if !programs.flatpath.as_os_str().is_empty() {
            refuse_debug(&programs.flatpath)?;
        }
        let ground = Self {
            programs,
            pace,
            issued: Issued::for_localhost(),
            place: tempfile::tempdir()?,
            cores: cores()?,
        };
        let small = small_body();
        ground.write("ordinary", SMALL_PATH, &small)?;
        ground.write("ordinary", LARGE_PATH, &large_body())?;
        ground.write("ordinary", PAGES, &[0x5a; PAGES_BYTES])?;
        let (page, long) = (text(PAGE_BYTES), text(LONG_BYTES));
        for directory in ["rules", "compressed"] {
            for (name, content) in [
                (SMALL_PATH, &small),
                (HIDDEN_PATH, &small),
                (PAGES, &small),
                (PAGE_PATH, &page),
                (LONG_PATH, &long),
            ] {
                ground.write(directory, name, content)?;
            }
        }
        let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(&page)?;
        ground.write("compressed", &format!("{PAGE_PATH}.gz"), &encoder.finish()?)?;
        ground.write(".", "users", USERS.as_bytes())?;
        ground.write(".", CERTIFICATE, ground.issued.certificate.as_bytes())?;
        ground.write(".", KEY, ground.issued.key.as_bytes())?;
        Ok(ground)
    }

    fn write(&self, directory: &str, name: &str, content: &[u8]) -> io::Result<()> {
        let directory = self.place.path().join(directory);
        fs::create_dir_all(&directory)?;
        let path = directory.join(name.trim_start_matches('/'));
        fs::write(&path, content)?;
        let file = File::options().write(true).open(path)?;
        file.set_modified(SystemTime::now() - SETTLED)
    }

    /// The directory of these documents, where it is one for all servers.
    pub(crate) fn documents(&self, documents: Documents) -> PathBuf {
        self.place.path().join(match documents {
            Documents::Ordinary | Documents::Memory => "ordinary",
            Documents::Rules => "rules",
            Documents::Compressed => "compressed",
            Documents::Large => "large",
        })
    }

    /// The file of this length among the large ones, whose name is its length. What is written the
    /// first time is on the disk when this returns.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn large(&self, bytes: u64) -> io::Result<PathBuf> {
        let directory = self.documents(Documents::Large);
        let path = directory.join(bytes.to_string());
        if path.exists() {
            return Ok(path);
        }
        fs::create_dir_all(&directory)?;
        let (mut random, mut chunk) = (fastrand::Rng::with_seed(bytes), vec![0; LARGE_BYTES]);
        let mut file = File::create(&path)?;
        let mut left = bytes;
        while left > 0 {
            let length = left.min(LARGE_BYTES as u64);
            random.fill(&mut chunk);
            file.write_all(&chunk[..length as usize])?;
            left -= length;
        }
        file.set_modified(SystemTime::now() - SETTLED)?;
        file.sync_all()?;
        Ok(path)
    }

    /// The file of the certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.place.path().join(CERTIFICATE)
    }

    /// The file of its key.
    pub(crate) fn key(&self) -> PathBuf {
        self.place.path().join(KEY)
    }

    /// A file with both, as haproxy reads them.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn pair(&self) -> io::Result<PathBuf> {
        let path = self.place.path().join("pair.pem");
        let both = [fs::read(self.certificate())?, fs::read(self.key())?];
        fs::write(&path, both.concat())?;
        Ok(path)
    }

    /// A new directory for one server, where it has one of its own.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn exported(&self, documents: Documents) -> io::Result<Option<TempDir>> {
        let own = documents == Documents::Memory;
        own.then(|| tempfile::tempdir_in(MEMORY)).transpose()
    }

    /// A text whose `{place}` is the directory of all documents.
    pub(crate) fn placed(&self, text: &str) -> String {
        text.replace("{place}", &self.place.path().display().to_string())
    }

    /// How long a load lasts.
    pub(crate) fn time(&self) -> Duration {
        Duration::from_secs(self.pace.seconds.into())
    }

    /// How many cores there are.
    pub(crate) fn core_count(&self) -> usize {
        self.cores.len()
    }

    /// The cores for the server; all if empty.
    pub(crate) fn server_cores(&self, pinning: Pinning) -> Vec<usize> {
        match (pinning, &self.cores[..]) {
            (Pinning::ServerOnOneCore, [first, ..]) => vec![*first],
            (Pinning::GeneratorOnOneCore, [others @ .., _]) => others.to_vec(),
            _ => Vec::new(),
        }
    }

    /// The cores for the load generator; with a single core it shares that one.
    pub(crate) fn generator_cores(&self, pinning: Pinning) -> Vec<usize> {
        match (pinning, &self.cores[..]) {
            (Pinning::ServerOnOneCore, [_, others @ ..]) => others.to_vec(),
            (Pinning::GeneratorOnOneCore, [.., last]) => vec![*last],
            _ => Vec::new(),
        }
    }
}

/// The cores that this process may use.
///
/// # Errors
/// What the kernel reports.
pub(crate) fn cores() -> io::Result<Vec<usize>> {
    let set = sched_getaffinity(None)?;
    let all = 0..CpuSet::MAX_CPU;
    Ok(all.filter(|core| set.is_set(*core)).collect())
}

/// An optimised program measures no debug build of the server: its figures would be believed.
fn refuse_debug(server: &Path) -> io::Result<()> {
    let output = child::command(server, &[]).arg("--version").output();
    let output = output.map_err(|error| {
        let message = format!("{}: {error}", server.display());
        io::Error::new(error.kind(), message)
    })?;
    let version = String::from_utf8_lossy(&output.stdout);
    eprintln!("server: {}, {}", server.display(), version.trim());
    if !cfg!(debug_assertions) && version.contains("debug build") {
        let message = format!(
            "{} is a debug build and this program is not; build it with --profile dist, or name \
             another with --server-binary",
            server.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    Ok(())
}

/// The content of the small file: text that compresses like text.
pub(crate) fn small_body() -> Vec<u8> {
    let lines = (0..).flat_map(|number| format!("line {number} of a small file\n").into_bytes());
    lines.take(SMALL_BYTES).collect()
}

/// The content of the large file: bytes that no compression makes fewer.
pub(crate) fn large_body() -> Vec<u8> {
    let word = |number: u32| number.wrapping_mul(0x9e37_79b1).to_le_bytes();
    (0..).flat_map(word).take(LARGE_BYTES).collect()
}

/// Longer text that compresses like text.
fn text(bytes: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|number: u32| {
        let other = number.wrapping_mul(0x9e37_79b1);
        format!("line {number} of a text, beside {other}\n").into_bytes()
    });
    lines.take(bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_have_their_lengths() {
        let body = small_body();
        assert_eq!(body.len(), SMALL_BYTES);
        assert!(body.starts_with(b"line 0 of a small file\nline 1 "));
        assert_eq!(large_body().len(), LARGE_BYTES);
    }
}
