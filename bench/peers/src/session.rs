//! What all scenarios share: options, programs, documents, cores, and a run of wrk.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use flatpath_bench_common::generator::warm_up;
use flatpath_bench_common::http;
use flatpath_bench_common::report::Table;
use flatpath_bench_common::servers::{self, CPU, ERRORS, Metric, P50, P99, PEAK_MIB, RATE, Run};
use flatpath_bench_common::servers::{GENERATOR, OTHERS, REPLY_BYTES};
use flatpath_bench_common::usage::{self, Reading, Used};
use flatpath_bench_common::wrk::{Lifetime, Load, Scheme, Wrk};
use flatpath_testkit::{binary, child};
use rustix::thread::sched_getaffinity;
use tempfile::TempDir;

use crate::certificate::Pair;
use crate::kind::Kind;
use crate::options::{Options, Scenario};
use crate::scenarios;
use crate::server::{Server, Setup};

/// How long ago the files were changed.
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
/// Beyond the connections a case drives: probes, and those that are still closing.
const SPARE_CONNECTIONS: u32 = 256;

/// Connections the whole machine accepted meanwhile.
pub(crate) const ACCEPTED: Metric = Metric::median("accepted");
/// How many of the connections were being answered at any time.
pub(crate) const ANSWERED: Metric = Metric::median("answered");

/// See the module.
pub(crate) struct Session {
    pub(crate) options: Options,
    /// The `flatpath` command; empty where no candidate is one.
    pub(crate) flatpath: PathBuf,
    /// What servers over TLS show; made for the scenario that has them.
    pair: Option<Pair>,
    wrk: Option<Wrk>,
    documents: TempDir,
    cores: Vec<usize>,
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

/// What wrk sends, again and again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target<'a> {
    pub(crate) scheme: Scheme,
    pub(crate) path: &'static str,
    /// What is posted; without it the path is read.
    pub(crate) json: Option<&'static str>,
    /// Lines of the head beside the usual ones.
    pub(crate) headers: &'a [String],
    pub(crate) connections: u32,
    pub(crate) lifetime: Lifetime,
    pub(crate) pinning: Pinning,
}

/// One request, again and again.
pub(crate) struct Work {
    pub(crate) path: &'static str,
    /// What the server has to answer.
    pub(crate) body: Vec<u8>,
    pub(crate) connections: u32,
    pub(crate) lifetime: Lifetime,
    pub(crate) pinning: Pinning,
}

impl Work {
    /// Starts a server that does this work well, and warms it up.
    ///
    /// # Errors
    /// If it does not start, or replies otherwise.
    pub(crate) fn start(&self, session: &Session, kind: Kind) -> io::Result<Server> {
        let setup = session.setup(self.pinning, None, self.connections);
        let server = Server::start(kind, &setup)?;
        http::check(server.address, self.path, &self.body)?;
        warm_up(server.address, self.path, self.path)?;
        Ok(server)
    }
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

impl Session {
    /// Builds the `flatpath` command if it is needed, as this program was built, and makes the
    /// documents.
    ///
    /// # Errors
    /// No such command, no wrk, no temporary directory.
    pub(crate) fn begin(options: Options) -> io::Result<Self> {
        let mut kinds = scenarios::servers(&options).into_iter();
        let flatpath = match &options.server_binary {
            Some(path) => path.canonicalize().map_err(|error| {
                let message = format!("--server-binary {}: {error}", path.display());
                io::Error::new(error.kind(), message)
            })?,
            // Built and never merely found: a stale binary measures yesterday's code.
            None if kinds.any(Kind::is_flatpath_command) => binary::flatpath().to_path_buf(),
            None => PathBuf::new(),
        };
        if !flatpath.as_os_str().is_empty() {
            refuse_debug(&flatpath)?;
        }
        let wrk = scenarios::need_wrk(&options)
            .then(|| Wrk::prepare(options.wrk_threads))
            .transpose()?;
        let secured = options.wants(Scenario::Https) || options.wants(Scenario::Http2);
        let pair = secured.then(Pair::make);
        let pair = pair.transpose()?;
        let documents = tempfile::tempdir()?;
        let files = [
            (&SMALL_PATH[1..], small_body()),
            (&LARGE_PATH[1..], large_body()),
            (PAGES, vec![0x5a; PAGES_BYTES]),
        ];
        for (name, bytes) in files {
            let path = documents.path().join(name);
            fs::write(&path, bytes)?;
            // The validators of a file that has just changed are others a moment later.
            File::options()
                .write(true)
                .open(&path)?
                .set_modified(SystemTime::now() - SETTLED)?;
        }
        let set = sched_getaffinity(None)?;
        let cores = (0..rustix::thread::CpuSet::MAX_CPU)
            .filter(|core| set.is_set(*core))
            .collect();
        Ok(Self {
            options,
            flatpath,
            pair,
            wrk,
            documents,
            cores,
        })
    }

    /// What the servers of a case get.
    pub(crate) fn setup(&self, pinning: Pinning, workers: Option<u32>, clients: u32) -> Setup<'_> {
        Setup {
            session: self,
            driver: &self.options.driver,
            documents: self.documents.path().to_path_buf(),
            workers,
            memory: None,
            cores: match pinning {
                Pinning::Free => Vec::new(),
                Pinning::ServerOnOneCore => self.cores.iter().copied().take(1).collect(),
                Pinning::GeneratorOnOneCore => {
                    self.cores.split_last().map_or(&[][..], |c| c.1).to_vec()
                }
            },
            every: self.options.event_interval(),
            connections: clients + SPARE_CONNECTIONS,
            config: None,
            arguments: &[],
            nginx: "",
            service: "http",
            pair: None,
            library: None,
            counts: None,
            state: None,
        }
    }

    /// What servers over TLS show.
    ///
    /// # Errors
    /// No scenario with TLS was asked for.
    pub(crate) fn pair(&self) -> io::Result<&Pair> {
        let pair = self.pair.as_ref();
        pair.ok_or_else(|| io::Error::other("no certificate was made"))
    }

    /// How many cores there are.
    pub(crate) fn core_count(&self) -> usize {
        self.cores.len()
    }

    /// The cores for the load generator; with a single core it shares that one.
    pub(crate) fn generator_cores(&self, pinning: Pinning) -> Vec<usize> {
        match pinning {
            Pinning::Free => Vec::new(),
            Pinning::ServerOnOneCore => self.cores.iter().copied().skip(1).collect(),
            Pinning::GeneratorOnOneCore => self.cores.last().copied().into_iter().collect(),
        }
    }

    /// Measures those of `kinds` that were asked for, in turn, as often as the scenario says.
    ///
    /// # Errors
    /// Only if the bench was told to stop.
    pub(crate) fn interleave<S>(
        &self,
        scenario: Scenario,
        name: &str,
        kinds: &[Kind],
        start: impl Fn(Kind) -> io::Result<S>,
        turn: impl FnMut(Kind, &mut S) -> io::Result<Run>,
    ) -> io::Result<Table> {
        let kinds = self.options.choose(kinds);
        servers::interleave(name, self.options.runs(scenario), &kinds, start, turn)
    }

    /// Drives a server with wrk once. Its reply is checked before: a server that has gone wrong
    /// must not be timed.
    ///
    /// # Errors
    /// If it replies otherwise or is gone, or wrk fails.
    pub(crate) fn drive(&self, server: &Server, work: &Work) -> io::Result<Run> {
        let reply_bytes = http::check(server.address, work.path, &work.body)?;
        let target = Target {
            scheme: Scheme::Http,
            path: work.path,
            json: None,
            headers: &[],
            connections: work.connections,
            lifetime: work.lifetime,
            pinning: work.pinning,
        };
        self.load(server, &target, reply_bytes)
    }

    /// The same for a server whose reply was checked; it has `reply_bytes` bytes.
    ///
    /// # Errors
    /// If wrk fails or the server is gone.
    pub(crate) fn load(
        &self,
        server: &Server,
        target: &Target<'_>,
        reply_bytes: usize,
    ) -> io::Result<Run> {
        let load = Load {
            scheme: target.scheme,
            address: server.address,
            path: target.path.to_owned(),
            json: target.json.map(str::to_owned),
            headers: target.headers.to_vec(),
            connections: target.connections,
            seconds: self.options.seconds(),
            lifetime: target.lifetime,
            cores: self.generator_cores(target.pinning),
        };
        let not_prepared = || io::Error::other("wrk was not prepared");
        let wrk = self.wrk.as_ref().ok_or_else(not_prepared)?;
        let accepted = usage::accepted()?;
        let before = Reading::take(Some(server.group()))?;
        let counted = wrk.run(&load)?;
        let used = before.used()?;
        let accepted = usage::accepted()?.saturating_sub(accepted);
        if counted.requests == 0 {
            return Err(io::Error::other("not one reply"));
        }
        let mut run = vec![
            (RATE, counted.requests_per_second()),
            (CPU, used.server_micros_over(counted.requests)),
            (P50, counted.p50_micros as f64),
            (P99, counted.p99_micros as f64),
            (ERRORS, counted.errors() as f64),
            (ACCEPTED, accepted as f64),
            (ANSWERED, counted.answered()),
            (REPLY_BYTES, reply_bytes as f64),
        ];
        run.extend(common(server, &used)?);
        Ok(run)
    }
}

/// The figures that every scenario shows.
///
/// # Errors
/// If the server is gone.
pub(crate) fn common(server: &Server, used: &Used) -> io::Result<Run> {
    let peak_kib = usage::group_memory(server.group())?.peak_kib;
    Ok(vec![
        (PEAK_MIB, peak_kib as f64 / 1024.0),
        (GENERATOR, used.generator_percent()),
        (OTHERS, used.others_percent()),
    ])
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
