//! The states that a connection is made of: how it ends, whether it is read from, what is being
//! received and sent, and since when each deadline runs.
//!
//! | reading   | what arrives is | what ends it                                           |
//! |-----------|-----------------|--------------------------------------------------------|
//! | Open      | given           | any of the following                                   |
//! | OverQuota | given           | users of the connection give fragments back            |
//! | Stalled   | kept            | what the input waits for is there: see [`Stall`]       |
//! | Dropping  | dropped         | the end of the stream, or a deadline                   |
//!
//! There is one reason not to read at a time: when it ends, the next event asks whether there is
//! another. The receive has a state of its own, because it takes a while to cancel it, and so has
//! the peer's stream. That a connection waits its turn, to be given long input, say, is in
//! [`Connection::waits`](super::Connection::waits), with the queues.
//!
//! | writing    | what happened                                   | what ends it             |
//! |------------|-------------------------------------------------|--------------------------|
//! | Idle       | nothing is being sent                           | output, or our end       |
//! | Connecting | this server opens it: see `opening.rs`          | the connect's completion |
//! | Sending    | a send is outstanding                           | its completion           |
//! | Cancelling | the same, and the connection is being cut off   | its completion           |
//! | Finished   | FIN is out, input may go on                     | nothing                  |

use std::net::SocketAddr;
use std::sync::Arc;

use flatpath_driver::{Lent, Quota};
use flatpath_structures::slots::Key;

use crate::memory::pages::PageKind;
use crate::pairs::PairEnd;
use crate::protocol::connect::ConnectError;
use crate::protocol::hand_over::Becomes;
use crate::protocol::pace::Pace;
use crate::protocol::phase::Stall;
use crate::server::listener_limits::ListenerLimits;

use super::layer::Secured;

/// How a connection is to end, from the mildest to the hardest; only ever made harder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    No,
    /// The protocol wants no more input; it will say how the connection ends.
    Input,
    AfterOutput,
    Lingering,
    Abort,
}

/// Whether input is received, and what becomes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reading {
    Open,
    /// As many fragments are held as may be: nothing is received until some are back.
    OverQuota,
    Stalled(Stall),
    /// It lingers: our FIN is out.
    Dropping,
}

/// The state of the one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receive {
    Off,
    /// The last one found no such page: see `memory/pages.rs`.
    Starves(PageKind),
    Once,
    /// Into pages that all have in common.
    Many,
    Cancelling,
}

/// How far the peer's stream has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Stream {
    /// Nothing has arrived. The next receive is a single one.
    Silent,
    Live,
    /// The kernel has said that it ended; unconsumed input comes first.
    Ended,
    /// The protocol has been called for it.
    EndReported,
}

/// The state of the one send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writing {
    Idle,
    Sending,
    Cancelling,
    Connecting,
    Finished,
}

/// What a connection is to be once its TLS stands.
pub(super) struct Securing {
    /// Its own protocol's number among the successors, and its session.
    pub(super) next: (u16, Key),
    /// Why it never will.
    pub(super) failed: Option<ConnectError>,
}

/// What few connections have, in a place of its own from the first of it on.
#[derive(Default)]
pub(super) struct Rare {
    /// The client that a load balancer named, if it has spoken; see `behind_proxy.rs`.
    pub(super) introduced: Option<Option<SocketAddr>>,
    /// What the connection is to become, after this call.
    pub(super) becomes: Option<Becomes>,
    pub(super) pair: Option<PairEnd>,
    /// Counts the fragments held; made with the first one.
    pub(super) quota: Option<Quota>,
    /// TLS; see `layer.rs`.
    pub(super) secured: Option<Box<Secured>>,
    /// What may come in a pipe next, no less than the one and no more than the other, in bytes: see
    /// `network/piped.rs`.
    pub(super) piped: Option<(u32, u32)>,
    /// What it receives, while a job has it.
    pub(super) lent: Option<Lent>,
    /// When it was last looked up what the peer has acknowledged, and how much that was; a send
    /// that does not take long is not looked at.
    pub(super) acked_ns: u64,
    pub(super) acked_bytes: u64,
    /// Deadlines in place of those of the listener; see [`Io::timeouts`](crate::Io::timeouts).
    pub(super) timeouts: Option<Arc<ListenerLimits>>,
    /// What becomes of it once its TLS stands: see `opening.rs`.
    pub(super) securing: Option<Box<Securing>>,
    /// Deadlines of sends in a row that began anew for a peer that only answers.
    pub(super) spared: u8,
}

impl Rare {
    /// Whether a connection is the same without it.
    pub(super) fn is_empty(&self) -> bool {
        let is_plain = self.introduced.is_none() && self.becomes.is_none() && self.pair.is_none();
        let is_plain = is_plain && self.securing.is_none();
        let holds_nothing = self.quota.is_none() && self.lent.is_none();
        let is_watched = self.acked_ns > 0 || self.timeouts.is_some() || self.piped.is_some();
        is_plain && holds_nothing && self.secured.is_none() && !is_watched
    }
}

/// What is true of a connection or is not, a bit each: eight of them take the place of one `bool`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Marks(u8);

impl Marks {
    /// A deadline has passed; it is counted once, however many follow while it closes.
    pub(super) const EXPIRED: u8 = 1;
    /// Its protocol is notified of the drain when the client's first bytes were given.
    pub(super) const LATE: u8 = 1 << 1;
    /// Its protocol is called when output has run low.
    pub(super) const OUTPUT_LOW: u8 = 1 << 2;
    /// This server has opened it, or is to.
    pub(super) const OPENED: u8 = 1 << 3;
    /// It does not stand yet.
    pub(super) const OPENING: u8 = 1 << 4;

    #[inline]
    pub(super) fn has(self, mark: u8) -> bool {
        self.0 & mark != 0
    }

    /// Sets it, or takes it away; how it was before.
    pub(super) fn set(&mut self, mark: u8, is_set: bool) -> bool {
        let before = self.has(mark);
        self.0 = if is_set {
            self.0 | mark
        } else {
            self.0 & !mark
        };
        before
    }
}

/// Since when each deadline runs, in the driver's nanoseconds.
#[derive(Debug)]
pub(super) struct Clocks {
    /// The phase, and the bytes that arrived in it, or while the connection lingers.
    pub(super) phase: Pace,
    pub(super) send_ns: u64,
    /// When the stall for room began that has not ended in progress yet, or the lingering; 0 for
    /// neither.
    pub(super) reading_ns: u64,
    /// Since when the server itself does not receive; 0 while it does. See
    /// [`Connection::suspend`].
    pub(super) suspended_ns: u64,
    /// The deadline the wheel holds; `u64::MAX` when it holds none.
    pub(super) armed_ns: u64,
}

impl Clocks {
    pub(super) fn new(now_ns: u64) -> Clocks {
        Clocks {
            phase: Pace::since(now_ns),
            send_ns: 0,
            reading_ns: 0,
            suspended_ns: 0,
            armed_ns: u64::MAX,
        }
    }
}
