//! Addresses that have proved that they receive what is sent to them: each has a TCP connection to
//! this server, whose handshake has answered from there (RFC 9293, 3.5).
//!
//! For replies to datagrams, which may be longer to these ([`datagrams`](crate::datagrams)); a
//! server without them has no such table, and asks no connection where it comes from. Unlike the
//! counts of `address_limit.rs` it is exact: another address that shares a place there would be
//! what a forger looks for.
//!
//! Any thread may call any of it. Cost: a lock for some ten nanoseconds, and memory for each
//! address that has a connection.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;

use flatpath_structures::lock::Lock;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Answered(Lock<HashMap<IpAddr, u32>>);

impl Answered {
    /// One more connection comes from this address.
    pub(crate) fn enter(&self, address: IpAddr) {
        *self.0.lock().entry(address.to_canonical()).or_default() += 1;
    }

    /// One of them is gone.
    pub(crate) fn leave(&self, address: IpAddr) {
        let mut connections = self.0.lock();
        if let Entry::Occupied(mut count) = connections.entry(address.to_canonical()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }

    /// Whether a connection comes from this address now.
    pub(crate) fn has(&self, address: IpAddr) -> bool {
        self.0.lock().contains_key(&address.to_canonical())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_answered_from_its_first_connection_to_the_end_of_its_last() {
        let answered = Answered::default();
        let [one, mapped, other] = ["192.0.2.1", "::ffff:192.0.2.1", "192.0.2.2"]
            .map(|text| text.parse::<IpAddr>().expect("an address"));
        assert!(!answered.has(one));
        answered.enter(one);
        answered.enter(mapped);
        assert!(answered.has(mapped) && !answered.has(other));
        answered.leave(one);
        answered.leave(other);
        assert!(answered.has(one), "it has another one");
        answered.leave(one);
        assert!(!answered.has(one) && !answered.has(mapped));
    }
}
