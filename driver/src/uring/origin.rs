//! The meaning of the 64 bits that travel with an operation.
//!
//! The two bits above the caller's user_data say which kind of operation completes. Accepts and
//! receives carry the caller's user_data itself; sends, recv_intos and watches carry the index of
//! their entry in a table, and a bit that says in which; what the driver does for itself carries
//! its kind, and a poll for an accept, the cancel of a send or a connect its index above those
//! kinds.

use crate::driver::USER_DATA_MAX;

const KIND_SHIFT: u32 = 62;
const RECEIVE: u64 = 1 << KIND_SHIFT;
const SEND: u64 = 2 << KIND_SHIFT;
/// Set in a send that is a recv_into: above any index.
const RECV_INTO: u64 = 1 << 32;
/// Set in a send that is a poll of an eventfd.
const POLL_EVENTFD: u64 = 1 << 33;
/// Set in a send that is a receive of datagrams.
const DATAGRAMS: u64 = 1 << 34;
const OWN: u64 = 3 << KIND_SHIFT;
/// The first number of what the driver does for itself that is the index of a shared accept.
const SHARED_ACCEPTS: u64 = 1 << 32;
/// The first one that is the index of a send that is to be cancelled.
const CANCELLED_SENDS: u64 = 1 << 33;
/// The first one that is the index of a connect: where it costs sends nothing.
const CONNECTS: u64 = 1 << 34;

/// Operations of the driver itself. The caller never hears of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Wake,
    Cancel,
    Close,
}

/// Whose completion it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Accept {
        user_data: u64,
    },
    Receive {
        user_data: u64,
    },
    Send {
        index: u32,
    },
    RecvInto {
        index: u32,
    },
    PollEventfd {
        index: u32,
    },
    Datagrams {
        index: u32,
    },
    /// The poll of an accept on a listener that is shared with a predecessor.
    SharedAccept {
        index: u32,
    },
    /// The cancel of a send.
    CancelSend {
        index: u32,
    },
    Connect {
        index: u32,
    },
    Own(Own),
}

impl Origin {
    pub(super) fn pack(self) -> u64 {
        if let Origin::Accept { user_data } | Origin::Receive { user_data } = self {
            debug_assert!(user_data <= USER_DATA_MAX, "C1: {user_data:#x}");
        }
        match self {
            Origin::Accept { user_data } => user_data,
            Origin::Receive { user_data } => user_data | RECEIVE,
            Origin::Send { index } => u64::from(index) | SEND,
            Origin::RecvInto { index } => u64::from(index) | RECV_INTO | SEND,
            Origin::PollEventfd { index } => u64::from(index) | POLL_EVENTFD | SEND,
            Origin::Datagrams { index } => u64::from(index) | DATAGRAMS | SEND,
            Origin::SharedAccept { index } => (SHARED_ACCEPTS + u64::from(index)) | OWN,
            Origin::CancelSend { index } => (CANCELLED_SENDS + u64::from(index)) | OWN,
            Origin::Connect { index } => (CONNECTS + u64::from(index)) | OWN,
            Origin::Own(own) => own as u64 | OWN,
        }
    }

    pub(super) fn unpack(word: u64) -> Origin {
        let user_data = word & USER_DATA_MAX;
        match word >> KIND_SHIFT {
            0 => Origin::Accept { user_data },
            1 => Origin::Receive { user_data },
            // The bits that are cut off are zero, or the one bit: `pack` made it from 32 bits.
            2 if user_data & RECV_INTO != 0 => Origin::RecvInto {
                index: user_data as u32,
            },
            2 if user_data & POLL_EVENTFD != 0 => Origin::PollEventfd {
                index: user_data as u32,
            },
            2 if user_data & DATAGRAMS != 0 => Origin::Datagrams {
                index: user_data as u32,
            },
            2 => Origin::Send {
                index: user_data as u32,
            },
            _ => match user_data {
                0 => Origin::Own(Own::Wake),
                1 => Origin::Own(Own::Cancel),
                CONNECTS.. => Origin::Connect {
                    index: user_data as u32,
                },
                CANCELLED_SENDS.. => Origin::CancelSend {
                    index: user_data as u32,
                },
                SHARED_ACCEPTS.. => Origin::SharedAccept {
                    index: user_data as u32,
                },
                _ => Origin::Own(Own::Close),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_origin_survives_the_way_through_the_kernel() {
        let mut origins = vec![];
        for user_data in [0, 1, u64::from(u32::MAX), USER_DATA_MAX] {
            origins.push(Origin::Accept { user_data });
            origins.push(Origin::Receive { user_data });
        }
        for index in [0, 1, u32::MAX] {
            origins.push(Origin::Send { index });
            origins.push(Origin::RecvInto { index });
            origins.push(Origin::PollEventfd { index });
            origins.push(Origin::Datagrams { index });
            origins.push(Origin::SharedAccept { index });
            origins.push(Origin::CancelSend { index });
            origins.push(Origin::Connect { index });
        }
        for own in [Own::Wake, Own::Cancel, Own::Close] {
            origins.push(Origin::Own(own));
        }
        for origin in origins {
            assert_eq!(Origin::unpack(origin.pack()), origin);
        }
    }
}
