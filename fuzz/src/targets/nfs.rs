//! Target `nfs_arguments`: the arguments of every procedure of NFSv3, MOUNT and the portmapper.
//!
//! The first byte of the input is the procedure: 0 to 21 of NFSv3, 22 to 27 of MOUNT, then those of
//! the portmapper, 28 to 32 of version 2, 33 to 41 of version 3, 42 to 54 of version 4; the others
//! are its arguments. The handle `ROOT`, four bytes, stands for the served directory's own, and
//! `FILE` for that of a file in it, so that seeds can have good ones.
//!
//! Holds of every input
//! - Arguments are garbage exactly if they do not follow RFC 1813, by a reading that shares nothing
//!   with the server's.
//! - The results are whole words, begin with a status of the protocol, and are no longer than what
//!   was promised before the call went to a worker.
//! - A record that arrived in fragments is answered like one that arrived whole.
//! - No buffer is kept.
//!
//! The directory is that of the seeds, served for reading only, so that nothing is left from one
//! input to the next. What procedures change is for the tests of the service.

use std::sync::LazyLock;

use flatpath::memory::Pool;
use flatpath_nfs::limits::{
    DATA_BYTES_MAX, HANDLE_BYTES_MAX, MOUNT_PATH_BYTES_MAX, NAME_BYTES_READ_MAX, PATH_BYTES_MAX,
    PORTMAP_STRING_BYTES_MAX,
};
use flatpath_nfs::{Access, Nfs, Offer, Options};
use flatpath_rpc::xdr::{Reader, Writer};
use flatpath_rpc::{Arguments, Call, CallOutcome, Programs, Reply, Route};

use super::rpc::{in_fragments, pool};
use crate::seeds;

/// Programs, versions, and how many procedures each has.
const PROGRAMS: [(u32, u32, u32); 5] = [
    (100_003, 3, 22),
    (100_005, 3, 6),
    (100_000, 2, 5),
    (100_000, 3, 9),
    (100_000, 4, 13),
];

/// A file of the served directory.
const FILE: &[u8] = b"getattr.hex";

struct Site {
    nfs: Nfs,
    root: Vec<u8>,
    file: Vec<u8>,
}

static SITE: LazyLock<Site> = LazyLock::new(|| {
    let mut options = Options::new(seeds::directory("nfs_arguments"));
    options.access = Access::ReadOnly;
    let nfs = Nfs::open(options).expect("a directory to serve");
    let bound = "192.0.2.1:2049".parse().expect("an address");
    for offer in [
        Offer::Nfs,
        Offer::MountDatagrams,
        Offer::PortmapperDatagrams,
    ] {
        nfs.offered().announce(offer, bound);
    }
    let found = |program: u32, procedure: u32, items: &[&[u8]]| {
        let mut room = [0; 256];
        let mut writer = Writer::new(&mut room);
        items.iter().for_each(|item| writer.opaque(item));
        let written = writer.written();
        let call = Call {
            program,
            version: 3,
            procedure,
            ..Call::default()
        };
        let (served, results) = serve(&nfs, &call, Arguments::new(&room[..written]), &pool());
        assert_eq!(served, CallOutcome::Results);
        let mut reader = Reader::new(&results);
        assert_eq!(reader.u32(), Ok(0), "the directory and its file are found");
        reader.opaque(HANDLE_BYTES_MAX).expect("a handle").to_vec()
    };
    let root = found(100_005, 1, &[b"/"]);
    let file = found(100_003, 3, &[&root, FILE]);
    Site { nfs, root, file }
});

pub(crate) fn run(data: &[u8]) {
    let Some((selector, arguments)) = data.split_first() else {
        return;
    };
    let call = call_of(u32::from(*selector));
    // What the portmapper never does has no arguments that it would read.
    if let Route::Silent | Route::Unavailable(_) = SITE.nfs.route(&call) {
        return assert!(matches!(call.procedure, 5 | 10 | 12), "{call:?}");
    }
    let arguments = with_handles(arguments);
    let pool = pool();
    let (served, results) = serve(&SITE.nfs, &call, Arguments::new(&arguments), &pool);
    let is_garbage = reads(&call, &arguments).is_none();
    assert_eq!(
        served == CallOutcome::GarbageArguments,
        is_garbage,
        "{call:?}: {served:?}"
    );
    if served == CallOutcome::Results {
        check_results(&call, &arguments, &results);
    } else {
        assert_eq!(served, CallOutcome::GarbageArguments, "{call:?}");
    }

    let record = in_fragments(&arguments, &pool);
    let (again, again_results) = serve(&SITE.nfs, &call, record.arguments(0), &pool);
    assert_eq!(
        (again, again_results.len()),
        (served, results.len()),
        "{call:?} in fragments"
    );
    drop(record);
    assert_eq!(pool.statistics().in_use_bytes, 0);
}

fn call_of(selector: u32) -> Call {
    let mut procedure = selector % PROGRAMS.iter().map(|(_, _, count)| count).sum::<u32>();
    for (program, version, count) in PROGRAMS {
        if procedure < count {
            return Call {
                program,
                version,
                procedure,
                ..Call::default()
            };
        }
        procedure -= count;
    }
    unreachable!("the procedures were counted")
}

/// Puts the real handles in.
fn with_handles(arguments: &[u8]) -> Vec<u8> {
    let (mut all, mut rest) = (Vec::new(), arguments);
    while !rest.is_empty() {
        let handle = match rest.first_chunk::<8>() {
            Some(b"\0\0\0\x04ROOT") => &SITE.root,
            Some(b"\0\0\0\x04FILE") => &SITE.file,
            _ => {
                all.push(rest[0]);
                rest = &rest[1..];
                continue;
            }
        };
        all.extend((handle.len() as u32).to_be_bytes());
        all.extend_from_slice(handle);
        all.resize(all.len() + handle.len().wrapping_neg() % 4, 0);
        rest = &rest[8..];
    }
    all
}

fn serve(nfs: &Nfs, call: &Call, arguments: Arguments<'_>, pool: &Pool) -> (CallOutcome, Vec<u8>) {
    match nfs.route(call) {
        Route::Inline => {
            let mut room = [0; 512];
            let mut writer = Writer::new(&mut room);
            let served = nfs.inline(call, arguments, &mut writer);
            assert!(!writer.overflowed());
            let written = writer.written();
            (served, room[..written].to_vec())
        }
        // One that is tried where it arrives is for a worker when it would wait.
        Route::Pooled | Route::Once | Route::Prompt => {
            let mut reply = Reply::for_tests(pool.into());
            let served = nfs.pooled(call, arguments, &mut reply, pool.into());
            (served, reply.into_results())
        }
        other => panic!("{call:?} is not offered: {other:?}"),
    }
}

fn check_results(call: &Call, arguments: &[u8], results: &[u8]) {
    assert_eq!(results.len() % 4, 0, "{call:?}");
    let promised = SITE.nfs.reply_bytes_max(call, Arguments::new(arguments));
    assert!(
        results.len() <= promised,
        "{call:?}: {} bytes",
        results.len()
    );
    let has_status = call.program == 100_003 && call.procedure > 0
        || (call.program, call.procedure) == (100_005, 1);
    if has_status {
        let status = Reader::new(results).u32().expect("a status");
        let is_known = matches!(status, 0..=2 | 5 | 6 | 13 | 17..=22 | 27 | 28 | 30 | 31)
            || matches!(status, 63 | 66 | 69..=71 | 10_001..=10_008);
        assert!(is_known, "{call:?}: status {status}");
    }
}

/// Reads arguments as the RFCs have them; None where they do not follow.
struct Script<'a> {
    data: &'a [u8],
    at: usize,
}

fn reads(call: &Call, arguments: &[u8]) -> Option<()> {
    let mut script = Script {
        data: arguments,
        at: 0,
    };
    match call.program {
        100_003 => script.nfs(call.procedure),
        100_005 => match call.procedure {
            1 | 3 => script.opaque(MOUNT_PATH_BYTES_MAX),
            _ => Some(()),
        },
        _ => script.portmapper(call.version, call.procedure),
    }
}

impl Script<'_> {
    fn skip(&mut self, bytes: usize) -> Option<()> {
        let end = self.at.checked_add(bytes)?;
        self.at = (end <= self.data.len()).then_some(end)?;
        Some(())
    }

    fn word(&mut self) -> Option<u32> {
        let at = self.at;
        self.skip(4)?;
        Some(u32::from_be_bytes(self.data[at..at + 4].try_into().ok()?))
    }

    fn opaque(&mut self, bytes_max: usize) -> Option<()> {
        let bytes = self.word()? as usize;
        (bytes <= bytes_max).then_some(())?;
        self.skip(bytes.div_ceil(4) * 4)
    }

    fn handle(&mut self) -> Option<()> {
        self.opaque(HANDLE_BYTES_MAX)
    }

    /// `diropargs3`
    fn entry(&mut self) -> Option<()> {
        self.handle()?;
        self.opaque(NAME_BYTES_READ_MAX)
    }

    /// A value that is there or not.
    fn optional(&mut self, bytes: usize) -> Option<()> {
        match self.word()? {
            0 => Some(()),
            1 => self.skip(bytes),
            _ => None,
        }
    }

    /// `sattr3`
    fn attributes(&mut self) -> Option<()> {
        for bytes in [4, 4, 4, 8] {
            self.optional(bytes)?;
        }
        for _ in 0..2 {
            match self.word()? {
                0 | 1 => {}
                2 => {
                    self.word()?;
                    (self.word()? < 1_000_000_000).then_some(())?;
                }
                _ => return None,
            }
        }
        Some(())
    }

    /// RFC 1833 sections 2.2 and 3.2.
    fn portmapper(&mut self, version: u32, procedure: u32) -> Option<()> {
        match (version, procedure) {
            (2, 1..=3) => self.skip(16),
            (2, _) => Some(()),
            (_, 1..=3 | 9 | 11) => {
                self.skip(8)?;
                (0..3)
                    .try_for_each(|_| self.opaque(PORTMAP_STRING_BYTES_MAX).ok_or(()))
                    .ok()
            }
            (_, 7) => self.opaque(PORTMAP_STRING_BYTES_MAX),
            (_, 8) => self
                .skip(4)
                .and_then(|()| self.opaque(PORTMAP_STRING_BYTES_MAX)),
            _ => Some(()),
        }
    }

    /// RFC 1813 section 3.3: a line for each procedure, or for those with the same arguments.
    fn nfs(&mut self, procedure: u32) -> Option<()> {
        match procedure {
            0 => Some(()),
            1 | 5 | 18..=20 => self.handle(),
            2 => self
                .handle()
                .and_then(|()| self.attributes())
                .and_then(|()| self.optional(8)),
            3 | 12 | 13 => self.entry(),
            4 => self.handle().and_then(|()| self.skip(4)),
            6 | 21 => self.handle().and_then(|()| self.skip(12)),
            7 => {
                self.handle().and_then(|()| self.skip(12))?;
                (self.word()? < 3).then_some(())?;
                self.opaque(DATA_BYTES_MAX)?;
                (self.at == self.data.len()).then_some(())
            }
            8 => match self.entry().and_then(|()| self.word())? {
                0 | 1 => self.attributes(),
                2 => self.skip(8),
                _ => None,
            },
            9 => self.entry().and_then(|()| self.attributes()),
            10 => {
                self.entry().and_then(|()| self.attributes())?;
                self.opaque(PATH_BYTES_MAX + 1)
            }
            11 => match self.entry().and_then(|()| self.word())? {
                3 | 4 => self.attributes().and_then(|()| self.skip(8)),
                6 | 7 => self.attributes(),
                _ => Some(()),
            },
            14 => self.entry().and_then(|()| self.entry()),
            15 => self.handle().and_then(|()| self.entry()),
            16 => self.handle().and_then(|()| self.skip(20)),
            17 => self.handle().and_then(|()| self.skip(24)),
            _ => unreachable!("NFSv3 has 22 procedures"),
        }
    }
}
