//! What the 64 bits that travel with an operation mean.
//!
//! The two bits above the caller's token say which kind of operation completes. Accepts and
//! receives carry the caller's token itself; sends, recv_intos and watches carry the index of their
//! entry in a table, and a bit that says in which; what the driver does for itself carries its
//! kind.

use crate::driver::TOKEN_MAX;

const KIND_SHIFT: u32 = 62;
const RECEIVE: u64 = 1 << KIND_SHIFT;
const SEND: u64 = 2 << KIND_SHIFT;
/// Set in a send that is a recv_into: above any index.
const FILL: u64 = 1 << 32;
/// Set in a send that is a watch.
const WATCH: u64 = 1 << 33;
const OWN: u64 = 3 << KIND_SHIFT;

/// Operations of the driver itself. The caller never hears of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Wake,
    Cancel,
    Close,
    Finish,
    Linger,
}

/// Whose completion it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Accept { token: u64 },
    Receive { token: u64 },
    Send { index: u32 },
    RecvInto { index: u32 },
    Watch { index: u32 },
    Own(Own),
}

impl Origin {
    pub(super) fn pack(self) -> u64 {
        match self {
            Origin::Accept { token } => token,
            Origin::Receive { token } => token | RECEIVE,
            Origin::Send { index } => u64::from(index) | SEND,
            Origin::RecvInto { index } => u64::from(index) | FILL | SEND,
            Origin::Watch { index } => u64::from(index) | WATCH | SEND,
            Origin::Own(own) => own as u64 | OWN,
        }
    }

    pub(super) fn unpack(user_data: u64) -> Origin {
        let token = user_data & TOKEN_MAX;
        match user_data >> KIND_SHIFT {
            0 => Origin::Accept { token },
            1 => Origin::Receive { token },
            // What is cut off is zero, or the bit: `pack` made it from 32 bits.
            2 if token & FILL != 0 => Origin::RecvInto {
                index: token as u32,
            },
            2 if token & WATCH != 0 => Origin::Watch {
                index: token as u32,
            },
            2 => Origin::Send {
                index: token as u32,
            },
            _ => Origin::Own(match token {
                0 => Own::Wake,
                1 => Own::Cancel,
                2 => Own::Close,
                3 => Own::Finish,
                _ => Own::Linger,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_origin_survives_the_way_through_the_kernel() {
        let mut origins = vec![];
        for token in [0, 1, u64::from(u32::MAX), TOKEN_MAX] {
            origins.push(Origin::Accept { token });
            origins.push(Origin::Receive { token });
        }
        for index in [0, 1, u32::MAX] {
            origins.push(Origin::Send { index });
            origins.push(Origin::RecvInto { index });
            origins.push(Origin::Watch { index });
        }
        for own in [Own::Wake, Own::Cancel, Own::Close, Own::Finish, Own::Linger] {
            origins.push(Origin::Own(own));
        }
        for origin in origins {
            assert_eq!(Origin::unpack(origin.pack()), origin);
        }
    }
}
