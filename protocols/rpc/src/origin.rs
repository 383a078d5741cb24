//! The connection that a call came from, as far as repeated calls ask for it: who is at its other
//! end, and how it ended.
//!
//! A connection whose peer closed it after all replies had been sent is answered: its calls have
//! been answered, and a call that looks like one of them is another program's. One that ended in
//! any other way is broken: its client may come again, from another port, and repeat what it has no
//! reply for.
//!
//! | may run beside  | answered, close (network thread) | reads (workers) |
//! |-----------------|----------------------------------|-----------------|
//! | reads (workers) | yes                              | yes             |

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

const OPEN: u8 = 0;
const ANSWERED: u8 = 1;
const BROKEN: u8 = 2;

/// See the module.
#[derive(Debug)]
pub(crate) struct Origin {
    peer: Option<SocketAddr>,
    fate: AtomicU8,
}

impl Origin {
    /// Of an open connection.
    pub(crate) fn new(peer: Option<SocketAddr>) -> Arc<Origin> {
        Arc::new(Origin {
            peer,
            fate: AtomicU8::new(OPEN),
        })
    }

    /// The peer has closed, and had everything it could wait for.
    pub(crate) fn mark_answered(&self) {
        self.fate.store(ANSWERED, Ordering::Relaxed);
    }

    /// The connection is gone; broken, unless it was answered before.
    pub(crate) fn close(&self) {
        let (open, broken) = (OPEN, BROKEN);
        let order = Ordering::Relaxed;
        // An answered connection stays answered.
        let _ = self.fate.compare_exchange(open, broken, order, order);
    }

    pub(crate) fn is_broken(&self) -> bool {
        self.fate.load(Ordering::Relaxed) == BROKEN
    }

    pub(crate) fn is_open(&self) -> bool {
        self.fate.load(Ordering::Relaxed) == OPEN
    }

    /// The same connection, or a new one of the same client: the kernel's client takes the same
    /// port again, so that its repeated calls are known.
    pub(crate) fn is_same_client(&self, other: &Origin) -> bool {
        std::ptr::eq(self, other) || (self.peer.is_some() && self.peer == other.peer)
    }
}
