//! The write verifier (RFC 1813 section 3.3.7): a number in the results of WRITE and COMMIT.
//! A client that sees it change writes again whatever it has not committed.
//!
//! Any error of a write, truncate, sync or close of a file that was written to turns it, as Linux's
//! NFS server does (`nfsd_reset_write_verifier`): the kernel reports lost data once to each
//! descriptor, so the call that gets the report tells all clients. All such errors pass through
//! [`WriteVerifier::report`]. Of a sync or close no number is exempt: a sync that was interrupted
//! has synced nothing, and it may have been the last before the descriptor is closed. A write or a
//! new size that the kernel refuses before it begins has lost nothing ([`Work`]).
//!
//! The report may come to one call while another on the same file is about to succeed because the
//! report is taken. So calls that may take it are entered while they run ([`Syncing`]), and one
//! that promises that data lasts waits for the calls that it overlapped before it looks.
//!
//! Invariants
//! - V1: a call that gets a report of lost data has turned the verifier before a call on the same
//!   file confirms anything: the read after [`Syncing::end`] sees the new number.
//! - V2: a call waits only for calls that began before its own system call ended, and never while
//!   it is itself waited for, so waits end when the system calls do.
//!
//! Cost: [`WriteVerifier::report`] of a success is one comparison; a sync takes a lock twice.

use std::sync::atomic::{AtomicU64, Ordering};

use flatpath::episode::Episode;
use flatpath::lock::{Condition, Lock};
use rustix::io::Errno;

use crate::handle::{FileKey, FileMap};

pub(crate) struct WriteVerifier {
    number: AtomicU64,
    /// Files on which calls run that may take the kernel's report.
    syncs: Lock<FileMap<Syncs>>,
    ended: Condition,
    /// Errors, of which a full disk makes one with each write.
    errors: Episode,
}

/// Calls on one file that run, or wait for others.
#[derive(Default)]
struct Syncs {
    /// The tickets of running calls, in the order in which they began.
    running: Vec<u64>,
    next: u64,
    waiting: usize,
    /// How often lost data was reported while they ran.
    losses: u64,
}

/// What a call does with a file, and so what its error says about data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    /// Its error may be the report that data is lost, but for a length that no file can have; see
    /// `refused_each_time` in `procedures/data.rs`.
    Write,
    /// A new size: syncs nothing, so it hands out no report (`notify_change` in `fs/attr.c`).
    Resize,
    Sync,
    Close,
}

impl Work {
    /// Whether the error says that nothing was done: no data that was written before is lost.
    fn is_refusal(self, errno: Errno) -> bool {
        match self {
            Work::Sync | Work::Close => false,
            Work::Write => errno == Errno::FBIG,
            Work::Resize => matches!(
                errno,
                Errno::FBIG
                    | Errno::INVAL
                    | Errno::PERM
                    | Errno::ACCESS
                    | Errno::ROFS
                    | Errno::TXTBSY
                    | Errno::NOSPC
                    | Errno::DQUOT
            ),
        }
    }
}

/// Another call has got the report that data of the file is lost.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Lost;

/// A call on a file that runs and may take the kernel's report.
#[must_use = "it runs until this is dropped"]
pub(crate) struct Syncing<'a> {
    verifier: &'a WriteVerifier,
    key: FileKey,
    ticket: u64,
    losses_before: u64,
}

impl WriteVerifier {
    /// `first` must differ from the verifiers of the servers before this one.
    pub(crate) fn new(first: u64) -> WriteVerifier {
        WriteVerifier {
            number: AtomicU64::new(first),
            syncs: Lock::default(),
            ended: Condition::new(),
            errors: Episode::new(),
        }
    }

    pub(crate) fn read(&self) -> u64 {
        self.number.load(Ordering::Acquire)
    }

    /// Passes on the result of a write, truncate, sync or close of a file; an error turns the
    /// verifier, unless it is a refusal, because data that was written and not committed may be
    /// lost.
    pub(crate) fn report<T>(
        &self,
        key: FileKey,
        work: Work,
        result: rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        if let Err(errno) = result {
            self.judge(key, work, errno);
        }
        result
    }

    #[cold]
    fn judge(&self, key: FileKey, work: Work, errno: Errno) {
        if !work.is_refusal(errno) {
            self.turn(key, errno);
        }
    }

    fn turn(&self, key: FileKey, errno: Errno) {
        // ORDER: AcqRel pairs with the load in `read`: a client that sees the new number writes
        // again.
        self.number.fetch_add(1, Ordering::AcqRel);
        if let Some(syncs) = self.syncs.lock().get_mut(&key) {
            syncs.losses += 1;
        }
        if let Some(untold) = self.errors.tells() {
            log::warn!(
                "data that was written may be lost: {errno}; clients have to write it again \
                 ({untold} more such errors since the last line)"
            );
        }
    }

    /// Enters a call that may take the kernel's report on a file.
    pub(crate) fn enter(&self, key: FileKey) -> Syncing<'_> {
        let mut all = self.syncs.lock();
        let syncs = all.entry(key).or_default();
        let ticket = syncs.next;
        syncs.next += 1;
        syncs.running.push(ticket);
        Syncing {
            verifier: self,
            key,
            ticket,
            losses_before: syncs.losses,
        }
    }

    /// Runs and reports a call that may take the kernel's report and confirms nothing.
    pub(crate) fn run<T>(
        &self,
        key: FileKey,
        work: Work,
        call: impl FnOnce() -> rustix::io::Result<T>,
    ) -> rustix::io::Result<T> {
        let syncing = self.enter(key);
        let result = self.report(key, work, call());
        drop(syncing);
        result
    }
}

#[cfg(test)]
impl WriteVerifier {
    /// Calls on a file that wait for others.
    pub(crate) fn waiting(&self, key: FileKey) -> usize {
        self.syncs.lock().get(&key).map_or(0, |syncs| syncs.waiting)
    }
}

impl Syncing<'_> {
    /// After a call that succeeded: waits for calls on the same file that ran at the same time.
    ///
    /// # Errors
    /// One of them was told that data is lost, perhaps this call's.
    pub(crate) fn end(self) -> Result<(), Lost> {
        let mut all = self.verifier.syncs.lock();
        let Some(syncs) = all.get_mut(&self.key) else {
            return Ok(());
        };
        let end = syncs.next;
        syncs.running.retain(|ticket| *ticket != self.ticket);
        syncs.waiting += 1;
        self.verifier.ended.notify_all();
        let is_beside = |all: &mut FileMap<Syncs>| {
            all.get(&self.key)
                .is_some_and(|syncs| syncs.running.iter().any(|ticket| *ticket < end))
        };
        let mut all = self.verifier.ended.wait_while(all, |all| is_beside(all));
        let losses = all.get_mut(&self.key).map_or(self.losses_before, |syncs| {
            syncs.waiting -= 1;
            syncs.losses
        });
        // `self` is dropped here, which forgets the file if this was the last call on it.
        drop(all);
        match losses == self.losses_before {
            true => Ok(()),
            false => Err(Lost),
        }
    }
}

impl Drop for Syncing<'_> {
    fn drop(&mut self) {
        let mut all = self.verifier.syncs.lock();
        if let Some(syncs) = all.get_mut(&self.key) {
            syncs.running.retain(|ticket| *ticket != self.ticket);
            if syncs.running.is_empty() && syncs.waiting == 0 {
                all.remove(&self.key);
            }
        }
        drop(all);
        self.verifier.ended.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    const FILE: FileKey = FileKey {
        inode: 1,
        birth_ns: 1,
    };
    const OTHER: FileKey = FileKey {
        inode: 2,
        birth_ns: 1,
    };

    /// The numbers, below those that the kernel gives programs, that turn the verifier.
    fn turning(work: Work) -> Vec<Errno> {
        let all = (1..134).map(Errno::from_raw_os_error);
        let turns = |errno: &Errno| {
            let verifier = WriteVerifier::new(7);
            let done: rustix::io::Result<()> = verifier.report(FILE, work, Err(*errno));
            assert_eq!(done, Err(*errno));
            verifier.read() == 8
        };
        all.filter(turns).collect()
    }

    #[test]
    fn every_error_turns_the_verifier_but_refusals_that_lose_nothing() {
        for work in [Work::Sync, Work::Close] {
            assert_eq!(turning(work).len(), 133, "{work:?}");
        }
        let spared = |work| {
            let turning = turning(work);
            let all = (1..134).map(Errno::from_raw_os_error);
            all.filter(|errno| !turning.contains(errno))
                .collect::<Vec<_>>()
        };
        assert_eq!(spared(Work::Write), [Errno::FBIG]);
        let refusals = spared(Work::Resize);
        assert!(refusals.contains(&Errno::FBIG) && refusals.contains(&Errno::NOSPC));
        assert!(!refusals.contains(&Errno::IO) && !refusals.contains(&Errno::INTR));
        let verifier = WriteVerifier::new(7);
        let done = verifier.report(FILE, Work::Sync, Ok(3));
        assert_eq!((done, verifier.read()), (Ok(3), 7));
    }

    #[test]
    fn a_call_that_succeeds_waits_for_one_beside_it_and_learns_of_its_loss() {
        for errno in [None, Some(Errno::IO)] {
            let verifier = WriteVerifier::new(7);
            let (release, released) = channel::<()>();
            let (entered, is_entered) = channel();
            std::thread::scope(|scope| {
                let verifier = &verifier;
                scope.spawn(move || {
                    let done = verifier.run(FILE, Work::Sync, || {
                        entered.send(()).expect("waited for");
                        // The report is taken; that it is passed on takes a while.
                        let _ = released.recv();
                        errno.map_or(Ok(()), Err)
                    });
                    assert_eq!(done.err(), errno);
                });
                is_entered.recv().expect("it runs");
                let ours = verifier.enter(FILE);
                assert_eq!(verifier.enter(OTHER).end(), Ok(()), "of another file");
                let waiter = scope.spawn(move || (ours.end(), verifier.read()));
                flatpath_testkit::until_true("the call to wait", || verifier.waiting(FILE) == 1);
                assert!(!waiter.is_finished());
                release.send(()).expect("it waits");
                let expected = match errno {
                    None => (Ok(()), 7),
                    Some(_) => (Err(Lost), 8),
                };
                assert_eq!(waiter.join().expect("no panic"), expected);
            });
            assert!(verifier.syncs.lock().is_empty(), "nothing is left");
        }
    }

    #[test]
    fn a_call_does_not_wait_for_one_that_began_after_it() {
        let verifier = WriteVerifier::new(7);
        let first = verifier.enter(FILE);
        drop(first);
        let second = verifier.enter(FILE);
        let third = verifier.enter(FILE);
        // Each overlaps the other; a call that waits is not waited for.
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| second.end());
            flatpath_testkit::until_true("the call to wait", || verifier.waiting(FILE) == 1);
            let later = verifier.enter(FILE);
            drop(third);
            assert_eq!(waiter.join().expect("no panic"), Ok(()), "`later` runs");
            drop(later);
        });
        assert!(verifier.syncs.lock().is_empty());
    }
}
