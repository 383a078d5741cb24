//! Whose datagrams are answered while sockets lose some.
//!
//! A socket without room drops what comes next, from any address, so a flood of one address
//! takes the questions of all others with it. Reading a datagram and dropping it costs a tenth of
//! answering it. So for a second after a socket of the network thread has lost one
//! ([`Envelope::lost`](flatpath_driver::Envelope)), an address is answered no more than its share
//! in each window of time ([`DATAGRAMS_PER_WINDOW`], by the rule of `address_limit`), and the rest
//! is read and dropped, which leaves room in the socket. While nothing is lost, nothing is counted,
//! and an address is answered whatever it sends.
//!
//! It is no protection from forged addresses: each of them has a share.
//!
//! Invariants
//! - DS1: `answered` counts, by address, what `window` lists.
//!
//! Cost: a comparison for each datagram while nothing is lost, then a hash and a few additions.

use std::net::SocketAddr;

use crate::admission::address_limit::{AddressKeys, AddressLimit, Cells};
use crate::limits::{
    DATAGRAM_LOSS_NS, DATAGRAM_WINDOW_NS, DATAGRAMS_PER_WINDOW, DATAGRAMS_WINDOW_MAX,
};

/// Of a network thread. Times are in nanoseconds of one clock.
pub(crate) struct DatagramShare {
    answered: AddressLimit,
    /// Where those are counted that were answered in this window.
    window: Vec<Cells>,
    window_ends_ns: u64,
    /// Until then there is a bound; 0: a socket has lost none.
    bounded_until_ns: u64,
}

impl DatagramShare {
    pub(crate) fn new() -> DatagramShare {
        DatagramShare {
            answered: AddressLimit::new(DATAGRAMS_PER_WINDOW, 0, 0),
            window: Vec::new(),
            window_ends_ns: 0,
            bounded_until_ns: 0,
        }
    }

    /// A socket has lost some.
    pub(crate) fn lost(&mut self, now_ns: u64) {
        self.bounded_until_ns = now_ns + DATAGRAM_LOSS_NS;
    }

    /// Whether one of this address is answered; counted if so.
    pub(crate) fn admits(&mut self, keys: &AddressKeys, peer: SocketAddr, now_ns: u64) -> bool {
        if now_ns >= self.bounded_until_ns {
            return true;
        }
        if now_ns >= self.window_ends_ns || self.window.len() >= DATAGRAMS_WINDOW_MAX {
            for cells in self.window.drain(..) {
                self.answered.change(0, cells, 1, 0);
            }
            self.window_ends_ns = now_ns + DATAGRAM_WINDOW_NS;
        }
        let cells = keys.cells(Some(peer));
        if self.answered.exceeds(cells, 1) {
            return false;
        }
        self.answered.change(0, cells, 0, 1);
        self.window.push(cells); // OURS: bounded.
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of `count` datagrams of one address are answered at a time.
    fn answered(share: &mut DatagramShare, host: u8, count: usize, now_ns: u64) -> usize {
        let keys = KEYS.with(std::rc::Rc::clone);
        let peer = ([10, 0, 0, host], 9).into();
        let one = |_: &usize| share.admits(&keys, peer, now_ns);
        (0..count).filter(one).count()
    }

    thread_local! {
        static KEYS: std::rc::Rc<AddressKeys> = std::rc::Rc::default();
    }

    #[test]
    fn an_address_has_all_until_something_is_lost_then_its_share_and_all_again_a_second_later() {
        let share = &mut DatagramShare::new();
        let many = 10 * DATAGRAMS_PER_WINDOW;
        assert_eq!(answered(share, 1, many, 5), many);
        share.lost(5);
        // Alone it has what one window has.
        assert_eq!(answered(share, 1, many, 5), DATAGRAMS_PER_WINDOW);
        assert_eq!(answered(share, 1, many, 6), 0);
        // Another has at least a half beside it.
        assert_eq!(answered(share, 2, many, 6), DATAGRAMS_PER_WINDOW / 2);
        let next = 5 + DATAGRAM_WINDOW_NS;
        assert_eq!(answered(share, 2, 10, next), 10);
        // All but twice what others have.
        assert_eq!(answered(share, 1, many, next), DATAGRAMS_PER_WINDOW - 20);
        let later = 5 + DATAGRAM_LOSS_NS;
        assert_eq!(answered(share, 1, many, later - 1), DATAGRAMS_PER_WINDOW);
        assert_eq!(answered(share, 1, many, later), many);
    }

    #[test]
    fn what_is_counted_is_bounded_whatever_addresses_come() {
        let share = &mut DatagramShare::new();
        share.lost(5);
        let keys = AddressKeys::default();
        for number in 0..3 * DATAGRAMS_WINDOW_MAX as u32 {
            let peer = (std::net::Ipv4Addr::from_bits(number), 9).into();
            share.admits(&keys, peer, 5);
            assert!(share.window.len() <= DATAGRAMS_WINDOW_MAX);
        }
    }
}
