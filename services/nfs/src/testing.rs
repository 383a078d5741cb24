//! Common parts of this crate's tests: a served directory and a caller without a network.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use flatpath::limits::BUFFER_CLASSES;
use flatpath::memory::Pool;
use flatpath_rpc::xdr::{Reader, Writer};
use flatpath_rpc::{Arguments, Call, CallOutcome, Credential, Groups, Programs, Reply, Route};
use flatpath_structures::pool::{PoolConfig, Zero};

use crate::attributes::{SetAttributes, SetTime};
use crate::export::Export;
use crate::service::{Nfs, Options};
use crate::state::State;

/// A pool with the engine's classes.
pub(crate) fn pool() -> Pool {
    let classes = BUFFER_CLASSES.to_vec();
    Pool::new(PoolConfig {
        classes,
        budget_bytes: 64 << 20,
        zero: Zero::WhenLent,
    })
}

/// A directory, served.
pub(crate) struct Fixture {
    pub(crate) directory: tempfile::TempDir,
    pub(crate) nfs: Nfs,
    pub(crate) pool: Pool,
    pub(crate) credential: Credential,
    /// Where calls come from; `None`: that is unknown.
    pub(crate) peer: Option<SocketAddr>,
}

/// Results of a call: its words can be read one after the other.
pub(crate) struct Results(pub(crate) Vec<u8>);

impl Results {
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.0)
    }

    pub(crate) fn status(&self) -> u32 {
        self.reader().u32().expect("a status")
    }
}

/// Arguments, one word or item after the other.
#[derive(Default)]
pub(crate) struct Words(pub(crate) Vec<u8>);

impl Words {
    fn with(mut self, bytes: usize, put: impl FnOnce(&mut Writer<'_>)) -> Words {
        let at = self.0.len();
        self.0.resize(at + bytes, 0);
        let mut writer = Writer::new(&mut self.0[at..]);
        put(&mut writer);
        assert!(!writer.overflowed());
        let written = writer.written();
        self.0.truncate(at + written);
        self
    }

    pub(crate) fn word(self, word: u32) -> Words {
        self.with(4, |writer| writer.u32(word))
    }

    pub(crate) fn long(self, word: u64) -> Words {
        self.with(8, |writer| writer.u64(word))
    }

    pub(crate) fn opaque(self, bytes: &[u8]) -> Words {
        self.with(bytes.len() + 8, |writer| writer.opaque(bytes))
    }

    /// `sattr3` that sets a mode and nothing else.
    pub(crate) fn mode(self, mode: u32) -> Words {
        [1, mode, 0, 0, 0, 0, 0].into_iter().fold(self, Words::word)
    }

    /// `sattr3`.
    pub(crate) fn set(self, wanted: &SetAttributes) -> Words {
        let optional = |words: Words, number: Option<u32>| match number {
            Some(number) => words.word(1).word(number),
            None => words.word(0),
        };
        let words = [wanted.mode, wanted.user, wanted.group].into_iter();
        let words = words.fold(self, optional);
        let words = match wanted.size {
            Some(size) => words.word(1).long(size),
            None => words.word(0),
        };
        let times = [wanted.accessed, wanted.modified].into_iter();
        times.fold(words, |words, time| match time {
            SetTime::Keep => words.word(0),
            SetTime::Now => words.word(1),
            SetTime::To(to) => words.word(2).word(to.seconds).word(to.nanoseconds),
        })
    }

    /// `sattr3` that sets nothing.
    pub(crate) fn unset(self) -> Words {
        [0; 6].into_iter().fold(self, Words::word)
    }
}

fn writable(directory: &Path) -> Options {
    Options {
        access: crate::Access::ReadWrite,
        ..Options::new(directory)
    }
}

impl Fixture {
    /// Everybody may do everything in the directory; the caller is user 1000, or the server's.
    pub(crate) fn new() -> Fixture {
        Fixture::with(|_| {})
    }

    pub(crate) fn with(change: impl FnOnce(&mut Options)) -> Fixture {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().expect("a directory");
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(directory.path(), open).expect("chmod");
        let mut options = writable(directory.path());
        change(&mut options);
        let nfs = Nfs::open(options).expect("served");
        let credential = system(1000);
        Fixture {
            directory,
            nfs,
            pool: pool(),
            credential,
            peer: None,
        }
    }

    /// The same directory served anew, as after a restart.
    pub(crate) fn restarted(self, change: impl FnOnce(&mut Options)) -> Fixture {
        let mut options = writable(self.directory.path());
        change(&mut options);
        Fixture {
            nfs: Nfs::open(options).expect("served"),
            ..self
        }
    }

    /// The same, and the kernel finds no files by handle.
    pub(crate) fn without_handles(self) -> Fixture {
        self.nfs.exports().replace_only(|state| {
            let export = Export::open(self.path(), state.export.secret).expect("opened");
            let export = Arc::new(export.without_handles());
            crate::sweep::start(&export, state.pipes.clone()).expect("a thread");
            State {
                export,
                directory: state.directory.clone(),
                right: Arc::clone(&state.right),
                limit: state.limit.clone(),
                server: Arc::clone(&state.server),
                pipes: state.pipes.clone(),
            }
        });
        self
    }

    /// The only export.
    pub(crate) fn state(&self) -> Arc<State> {
        self.nfs.exports().only()
    }

    pub(crate) fn export(&self) -> Arc<Export> {
        Arc::clone(&self.state().export)
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    pub(crate) fn call(&self, program: u32, procedure: u32, arguments: &Words) -> Results {
        let version = if program == 100_000 { 2 } else { 3 };
        let credential = self.credential;
        let call = Call {
            xid: 1,
            program,
            version,
            procedure,
            credential,
            peer: self.peer,
            ..Call::default()
        };
        self.answered(&call, arguments)
    }

    /// The results of a call that succeeds.
    pub(crate) fn answered(&self, call: &Call, arguments: &Words) -> Results {
        match self.nfs.route(call) {
            Route::Inline => {
                let mut room = [0; 484];
                let mut writer = Writer::new(&mut room);
                let arguments = Arguments::new(&arguments.0);
                assert_eq!(
                    self.nfs.inline(call, arguments, &mut writer),
                    CallOutcome::Results
                );
                let written = writer.written();
                Results(room[..written].to_vec())
            }
            // Once, as the server does: a second try sees what the first has remembered.
            Route::Prompt => match self.prompt(call, arguments) {
                Some(results) => results,
                None => self.by_worker(call, arguments),
            },
            Route::Pooled | Route::Once => self.by_worker(call, arguments),
            route => panic!("{route:?}"),
        }
    }

    fn by_worker(&self, call: &Call, arguments: &Words) -> Results {
        let limit = self.nfs.preparation(call, Arguments::new(&arguments.0));
        if limit.is_some() {
            self.nfs.prepare(call);
        }
        let (served, results) = self.pooled(call, arguments);
        assert_eq!(served, CallOutcome::Results);
        results
    }

    /// The answer of the network thread, if it gives one.
    pub(crate) fn prompt(&self, call: &Call, arguments: &Words) -> Option<Results> {
        let mut reply = Reply::for_tests((&self.pool).into());
        let arguments = Arguments::new(&arguments.0);
        let pool = (&self.pool).into();
        let served = self.nfs.prompt(call, arguments, &mut reply, pool).ok()?;
        assert_eq!(served, CallOutcome::Results);
        Some(Results(reply.into_results()))
    }

    /// A worker's answer after a try that failed, with something done between them.
    pub(crate) fn handed_over(&self, call: &Call, words: &Words, between: impl Fn()) -> Results {
        let pool = (&self.pool).into();
        let mut reply = Reply::for_tests(pool);
        let found = self
            .nfs
            .prompt(call, Arguments::new(&words.0), &mut reply, pool);
        let found = found.expect_err("the try gives up");
        between();
        let (mut reply, arguments) = (Reply::for_tests(pool), Arguments::new(&words.0));
        self.nfs
            .pooled_after(found, call, arguments, &mut reply, pool);
        Results(reply.into_results())
    }

    /// A worker's answer when no more may wait for the export.
    pub(crate) fn busy(&self, call: &Call, arguments: &Words) -> Results {
        let mut reply = Reply::for_tests((&self.pool).into());
        let (arguments, pool) = (Arguments::new(&arguments.0), (&self.pool).into());
        let served = self.nfs.busy(call, arguments, &mut reply, pool);
        assert_eq!(served, CallOutcome::Results);
        Results(reply.into_results())
    }

    pub(crate) fn pooled(&self, call: &Call, arguments: &Words) -> (CallOutcome, Results) {
        let mut reply = Reply::for_tests((&self.pool).into());
        let arguments = Arguments::new(&arguments.0);
        let served = self
            .nfs
            .pooled(call, arguments, &mut reply, (&self.pool).into());
        (served, Results(reply.into_results()))
    }

    pub(crate) fn nfs(&self, procedure: u32, arguments: &Words) -> Results {
        self.call(100_003, procedure, arguments)
    }

    /// The handle of the root, through MOUNT.
    pub(crate) fn root(&self) -> Vec<u8> {
        self.mount(b"/").expect("it is exported")
    }

    /// MNT of a path: the handle, or a status.
    pub(crate) fn mount(&self, path: &[u8]) -> Result<Vec<u8>, u32> {
        let results = self.call(100_005, 1, &Words::default().opaque(path));
        let mut reader = results.reader();
        match reader.u32().expect("a status") {
            0 => Ok(reader.opaque(64).expect("a handle").to_vec()),
            status => Err(status),
        }
    }

    /// LOOKUP of a path of names.
    pub(crate) fn lookup(&self, path: &[&str]) -> Result<Vec<u8>, u32> {
        let mut at = self.root();
        for name in path {
            let results = self.nfs(3, &Words::default().opaque(&at).opaque(name.as_bytes()));
            let mut reader = results.reader();
            match reader.u32().expect("a status") {
                0 => at = reader.opaque(64).expect("a handle").to_vec(),
                status => return Err(status),
            }
        }
        Ok(at)
    }
}

pub(crate) fn system(user: u32) -> Credential {
    Credential::System {
        user,
        group: user,
        groups: Groups::default(),
    }
}

impl Fixture {
    pub(crate) fn attributes(&self, handle: &[u8]) -> Result<Found, u32> {
        let results = self.nfs(1, &Words::default().opaque(handle));
        let mut reader = results.reader();
        match reader.u32().expect("a status") {
            0 => Ok(Found::read(&mut reader)),
            status => Err(status),
        }
    }

    /// SETATTR without a guard: the status.
    pub(crate) fn set(&self, handle: &[u8], wanted: &SetAttributes) -> u32 {
        let words = Words::default().opaque(handle).set(wanted).word(0);
        self.nfs(2, &words).status()
    }

    /// CREATE, unchecked, with a mode.
    pub(crate) fn create(&self, directory: &[u8], name: &str, mode: u32) -> Result<Vec<u8>, u32> {
        let words = Words::default()
            .opaque(directory)
            .opaque(name.as_bytes())
            .word(0)
            .mode(mode);
        self.made(8, &words)
    }

    pub(crate) fn made(&self, procedure: u32, words: &Words) -> Result<Vec<u8>, u32> {
        let results = self.nfs(procedure, words);
        let mut reader = results.reader();
        match reader.u32().expect("a status") {
            0 => {
                assert_eq!(reader.boolean(), Ok(true));
                Ok(reader.opaque(64).expect("a handle").to_vec())
            }
            status => Err(status),
        }
    }

    pub(crate) fn write(&self, handle: &[u8], offset: u64, data: &[u8], stable: u32) -> u32 {
        let count = u32::try_from(data.len()).expect("short");
        let words = Words::default()
            .opaque(handle)
            .long(offset)
            .word(count)
            .word(stable);
        let results = self.nfs(7, &words.opaque(data));
        if results.status() == 0 {
            // Count, manner and verifier end the results.
            let end = &results.0[results.0.len() - 16..];
            let done = [count, stable].map(u32::to_be_bytes).concat();
            assert_eq!(end[..8], done, "all of it, in the manner asked for");
        }
        results.status()
    }

    /// READ: the data and whether it was the end.
    pub(crate) fn read(
        &self,
        handle: &[u8],
        offset: u64,
        count: u32,
    ) -> Result<(Vec<u8>, bool), u32> {
        let results = self.nfs(6, &Words::default().opaque(handle).long(offset).word(count));
        let mut reader = results.reader();
        match reader.u32().expect("a status") {
            0 => {
                assert_eq!(reader.boolean(), Ok(true));
                Found::read(&mut reader);
                let count = reader.u32().expect("a count");
                let end = reader.boolean().expect("an end");
                let data = reader.opaque(1 << 20).expect("data").to_vec();
                assert_eq!(data.len(), count as usize);
                assert_eq!(reader.end(), Ok(()));
                Ok((data, end))
            }
            status => Err(status),
        }
    }
}

/// Some of `fattr3`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) kind: u32,
    pub(crate) mode: u32,
    pub(crate) links: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) size: u64,
    pub(crate) inode: u64,
    pub(crate) modified: (u32, u32),
    pub(crate) changed: (u32, u32),
}

impl Found {
    pub(crate) fn read(reader: &mut Reader<'_>) -> Found {
        let mut word = || reader.u32().expect("a word");
        let (kind, mode, links, user, group) = (word(), word(), word(), word(), word());
        let mut long = || (u64::from(word()) << 32) | u64::from(word());
        let (size, _used, _device, _system, inode) = (long(), long(), long(), long(), long());
        let (_accessed, modified, changed) = ((word(), word()), (word(), word()), (word(), word()));
        Found {
            kind,
            mode,
            links,
            user,
            group,
            size,
            inode,
            modified,
            changed,
        }
    }
}

/// True when this process may act as others; else tests about others have nothing to test.
pub(crate) fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
