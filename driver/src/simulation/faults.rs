//! Which faults the simulation injects, and how often.

use std::time::Duration;

use super::random::Random;

/// The possible faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A receive brings fewer bytes than there are.
    ShortReceive,
    /// A send takes fewer bytes than there is room for.
    ShortSend,
    /// A receive finds the connection reset (ECONNRESET).
    ReceiveReset,
    /// A receive finds the connection timed out (ETIMEDOUT).
    ReceiveTimeOut,
    /// A send finds the connection gone (EPIPE).
    SendPipe,
    /// A send finds the connection reset (ECONNRESET).
    SendReset,
    /// A receive finds no buffer, although there are some by now (ENOBUFS).
    NoBuffer,
    /// An accept finds no descriptor (EMFILE); the connection stays in the backlog.
    NoDescriptor,
    /// An accept finds no file (ENFILE); the connection stays in the backlog.
    NoFile,
    /// A connection is gone before it is accepted (ECONNABORTED).
    Aborted,
    /// A multishot operation ends after this completion, for no visible reason.
    EarlyEnd,
    /// A completion comes late.
    Late,
    /// The final completion of an operation comes again, late and without what it carried.
    Duplicate,
    /// A turn finds the completion queue overflown: few completions come, and multishot operations
    /// that had one on the way end with it.
    Overflow,
    /// A cancelled operation comes to something before the cancel reaches it.
    CancelRace,
    /// A range of a file is not at hand: it is to be read ahead.
    NotAtHand,
    /// A file that is sent cannot be read (EIO).
    FileError,
    /// The peer of a connect refuses (ECONNREFUSED).
    ConnectRefused,
    /// The kernel gives a connect up (ETIMEDOUT).
    ConnectTimeOut,
}

use Fault::{
    Aborted, CancelRace, ConnectRefused, ConnectTimeOut, Duplicate, EarlyEnd, FileError, Late,
    NoBuffer, NoDescriptor, NoFile, NotAtHand, Overflow, ReceiveReset, ReceiveTimeOut, SendPipe,
    SendReset, ShortReceive, ShortSend,
};

/// Every fault in the order of the enum, with how often a frequent one strikes, in thousandths.
const FREQUENT: [(Fault, u16); 19] = [
    (ShortReceive, 500),
    (ShortSend, 500),
    (ReceiveReset, 20),
    (ReceiveTimeOut, 20),
    (SendPipe, 20),
    (SendReset, 20),
    (NoBuffer, 200),
    (NoDescriptor, 200),
    (NoFile, 200),
    (Aborted, 50),
    (EarlyEnd, 200),
    (Late, 300),
    (Duplicate, 300),
    (Overflow, 100),
    (CancelRace, 500),
    (NotAtHand, 300),
    (FileError, 20),
    (ConnectRefused, 50),
    (ConnectTimeOut, 50),
];

/// Those that a client notices: something is reset, lost or timed out, or an accept lacks a
/// descriptor, for which a server may close another connection.
const LOSSES: [Fault; 10] = [
    ReceiveReset,
    ReceiveTimeOut,
    SendPipe,
    SendReset,
    Aborted,
    NoDescriptor,
    NoFile,
    FileError,
    ConnectRefused,
    ConnectTimeOut,
];

/// Those that only a file can have which is sent, or a connection that is opened.
const OF_SOME: [Fault; 4] = [NotAtHand, FileError, ConnectRefused, ConnectTimeOut];

/// How often each fault strikes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// By fault, in times out of a thousand occasions.
    permille: [u16; FREQUENT.len()],
    pub(super) late_ns_max: u64,
    pub(super) latency_ns_max: u64,
}

impl Faults {
    /// A perfect network.
    pub fn none() -> Faults {
        Faults::default()
    }

    /// A mix drawn from the seed: each fault is absent, rare or frequent. A late completion is up
    /// to 5 ms late, and bytes are on their way for up to 2 ms.
    pub fn mixed(seed: u64) -> Faults {
        let mut random = Random::new(seed ^ 0xfa_0175);
        let permille = FREQUENT.map(|(_, frequent)| match random.below(4) {
            0 | 1 => 0,
            2 => frequent.div_ceil(10),
            _ => frequent,
        });
        Faults {
            permille,
            late_ns_max: 5_000_000,
            latency_ns_max: 2_000_000,
        }
    }

    /// The same with one fault as often as this, in times out of a thousand occasions.
    #[must_use]
    pub fn with(mut self, fault: Fault, permille: u16) -> Faults {
        self.permille[fault as usize] = permille;
        self
    }

    /// The same with late completions that are up to this late.
    #[must_use]
    pub fn late_by(mut self, most: Duration) -> Faults {
        self.late_ns_max = nanoseconds(most);
        self
    }

    /// The same without the faults that a client notices: nothing is reset, lost or timed out.
    #[must_use]
    pub fn without_losses(self) -> Faults {
        LOSSES
            .iter()
            .fold(self, |faults, loss| faults.with(*loss, 0))
    }

    pub(super) fn permille(&self, fault: Fault) -> u16 {
        self.permille[fault as usize]
    }
}

/// A span as the simulation counts it.
pub(super) fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).expect("less than 584 years")
}

/// How often each fault struck: a test of the caller can see what it was put through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Injected([u64; FREQUENT.len()]);

impl Injected {
    /// How often this fault struck.
    pub fn count(&self, fault: Fault) -> u64 {
        self.0[fault as usize]
    }

    pub(super) fn strike(&mut self, fault: Fault) {
        self.0[fault as usize] += 1;
    }

    /// Adds another run's counts.
    pub fn add(&mut self, other: &Injected) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count += more;
        }
    }

    /// Faults that never struck, but for those that only a file or a connection that is opened can
    /// have: a test without them cannot see these.
    pub fn missing(&self) -> Vec<Fault> {
        let faults = FREQUENT.iter().map(|(fault, _)| *fault);
        let faults = faults.filter(|fault| !OF_SOME.contains(fault));
        faults.filter(|fault| self.count(*fault) == 0).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_the_order_of_the_enum() {
        for (index, (fault, _)) in FREQUENT.iter().enumerate() {
            assert_eq!(*fault as usize, index);
        }
    }
}
