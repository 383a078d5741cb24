//! The write verifier (RFC 1813 section 3.3.7): a number in the results of WRITE and COMMIT.
//! A client that sees it change writes again whatever it has not committed.

use std::sync::atomic::{AtomicU64, Ordering};

pub(crate) struct WriteVerifier(AtomicU64);

impl WriteVerifier {
    /// `first` must differ from the verifiers of the servers before this one.
    pub(crate) fn new(first: u64) -> WriteVerifier {
        WriteVerifier(AtomicU64::new(first))
    }

    pub(crate) fn read(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    /// Data that was written and not committed may be lost.
    pub(crate) fn renew(&self) {
        // ORDER: AcqRel pairs with the load in `read`: a client that sees the new number writes
        // again.
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}
