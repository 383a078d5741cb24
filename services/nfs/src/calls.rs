//! Counts of calls by procedure and status, under the names of RFC 1813.

use flatpath::metrics::Metric;
use flatpath_rpc::{Call, ReplyCounts};

use crate::exports::Exports;
use crate::programs::{MNT, MOUNT, NFS};

/// The procedures of NFS, then those of MOUNT.
const PROCEDURES: [&str; 28] = [
    "null",
    "getattr",
    "setattr",
    "lookup",
    "access",
    "readlink",
    "read",
    "write",
    "create",
    "mkdir",
    "symlink",
    "mknod",
    "remove",
    "rmdir",
    "rename",
    "link",
    "readdir",
    "readdirplus",
    "fsstat",
    "fsinfo",
    "pathconf",
    "commit",
    "mount_null",
    "mount",
    "dump",
    "unmount",
    "unmount_all",
    "export",
];

/// `nfsstat3` and `mountstat3`, whose numbers are alike.
const STATUSES: [(u32, &str); 30] = [
    (0, "ok"),
    (1, "perm"),
    (2, "noent"),
    (5, "io"),
    (6, "nxio"),
    (13, "acces"),
    (17, "exist"),
    (18, "xdev"),
    (19, "nodev"),
    (20, "notdir"),
    (21, "isdir"),
    (22, "inval"),
    (27, "fbig"),
    (28, "nospc"),
    (30, "rofs"),
    (31, "mlink"),
    (63, "nametoolong"),
    (66, "notempty"),
    (69, "dquot"),
    (70, "stale"),
    (71, "remote"),
    (10_001, "badhandle"),
    (10_002, "not_sync"),
    (10_003, "bad_cookie"),
    (10_004, "notsupp"),
    (10_005, "toosmall"),
    (10_006, "serverfault"),
    (10_007, "badtype"),
    (10_008, "jukebox"),
    (u32::MAX, "rpc_error"),
];

/// The last one: the call could not be read, or the server has no word for what went wrong.
const RPC_ERROR: usize = STATUSES.len() - 1;

pub(crate) const CLASSES: usize = PROCEDURES.len() * STATUSES.len();

/// The class of a reply: its procedure and its status.
pub(crate) fn class(call: &Call, accepted: u32, result: Option<u32>) -> Option<usize> {
    let (first, program) = match call.program {
        number if number == NFS.number => (0, NFS),
        number if number == MOUNT.number => (NFS.procedures, MOUNT),
        _ => return None,
    };
    if call.procedure >= program.procedures {
        return None;
    }
    let has_status = match call.procedure {
        0 => false,
        procedure => program.number == NFS.number || procedure == MNT,
    };
    let status = match result {
        _ if accepted != 0 => RPC_ERROR,
        Some(word) if has_status => STATUSES
            .iter()
            .position(|(number, _)| *number == word)
            .unwrap_or(RPC_ERROR),
        _ => 0,
    };
    let procedure = (first + call.procedure) as usize;
    Some(procedure * STATUSES.len() + status)
}

/// The counters of one NFS listener, over all network threads; clones read the same.
#[derive(Clone)]
pub struct CallCounts {
    exports: Exports,
    replies: ReplyCounts,
}

flatpath::opaque_debug! {
    impl[] CallCounts as "CallCounts";
}

impl CallCounts {
    pub(crate) fn new(exports: &Exports, replies: ReplyCounts) -> CallCounts {
        CallCounts {
            exports: exports.clone(),
            replies,
        }
    }

    /// Calls answered: the procedure (those of MOUNT: `mount`, `unmount` and so on), the status as
    /// RFC 1813 calls it without `NFS3ERR_`, and how many. Of what did not happen only `ok` is
    /// there.
    pub fn answered(&self) -> Vec<(&'static str, &'static str, u64)> {
        let all = PROCEDURES.iter().enumerate().flat_map(|(at, procedure)| {
            let statuses = STATUSES.iter().enumerate();
            statuses.map(move |(status, (_, word))| (at * STATUSES.len() + status, procedure, word))
        });
        let counted = all
            .map(|(class, procedure, status)| (*procedure, *status, self.replies.of_class(class)));
        counted
            .filter(|(_, status, count)| *count > 0 || *status == "ok")
            .collect()
    }

    /// Calls that a client repeated, and that were not executed again: they got the reply of the
    /// first one, or none while that was being executed.
    pub fn repeated(&self) -> u64 {
        self.replies.repeated()
    }

    /// Calls of clients that are not allowed, and calls of what is not there.
    pub fn refused(&self) -> u64 {
        self.replies.refused()
    }

    /// Files and directories that are kept open for calls to come.
    pub(crate) fn files_open(&self) -> usize {
        self.exports.files_open()
    }
}

/// The metrics of a listener; for display.
#[rustfmt::skip]
pub const METRICS: &[Metric<CallCounts>] = &[
    Metric::counter("flatpath_nfs_calls_total",
        "Calls answered, by procedure and status.", &["procedure", "status"],
        |it, out| {
            for (procedure, status, count) in it.answered() {
                out.put(&[procedure, status], count);
            }
        }),
    Metric::counter("flatpath_nfs_calls_repeated_total",
        "Calls that a client sent again and that were not executed again.", &[],
        |it, out| out.put(&[], it.repeated())),
    Metric::counter("flatpath_nfs_calls_refused_total",
        "Calls of clients that are not allowed, and calls of what is not there.", &[],
        |it, out| out.put(&[], it.refused())),
    Metric::gauge("flatpath_nfs_files_open",
        "Files and directories that are kept open for calls to come.", &[],
        |it, out| out.put(&[], it.files_open())),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_counted_by_its_procedure_and_status() {
        let named = |program: u32, procedure, accepted, result| {
            let call = Call {
                program,
                procedure,
                ..Call::default()
            };
            let class = class(&call, accepted, result)?;
            assert!(class < CLASSES);
            let (procedure, status) = (class / STATUSES.len(), class % STATUSES.len());
            Some((PROCEDURES[procedure], STATUSES[status].1))
        };
        let (nfs, mount) = (NFS.number, MOUNT.number);
        assert_eq!(named(nfs, 0, 0, None), Some(("null", "ok")));
        assert_eq!(named(nfs, 3, 0, Some(2)), Some(("lookup", "noent")));
        assert_eq!(named(nfs, 21, 0, Some(0)), Some(("commit", "ok")));
        assert_eq!(named(nfs, 6, 4, Some(0)), Some(("read", "rpc_error")));
        assert_eq!(named(nfs, 6, 0, Some(4711)), Some(("read", "rpc_error")));
        assert_eq!(named(mount, 1, 0, Some(13)), Some(("mount", "acces")));
        // A list begins with whether there is an entry.
        assert_eq!(named(mount, 5, 0, Some(1)), Some(("export", "ok")));
        assert_eq!(named(nfs, 22, 0, None), None);
        assert_eq!(named(100_000, 3, 0, None), None);
    }

    #[test]
    fn every_status_that_we_answer_with_has_a_word() {
        let mut numbers = STATUSES.map(|(number, _)| number);
        numbers.sort_unstable();
        assert!(numbers.windows(2).all(|pair| pair[0] < pair[1]));
        for code in 1..134 {
            let errno = rustix::io::Errno::from_raw_os_error(code);
            let number = crate::status::Status::from(errno) as u32;
            assert!(numbers.contains(&number), "{number}");
        }
    }
}
