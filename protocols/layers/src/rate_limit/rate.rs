//! A rate by address: the generic cell rate algorithm, on a [`Table`] of arrival times.
//!
//! Of each address there is a theoretical arrival time. What an address uses moves it on by the
//! time that this is worth at the rate; while it lies further ahead than a burst is worth, more is
//! refused. What is refused moves nothing.
//!
//! Invariant
//! - RA1: an address that was admitted `n` units within a time `t` had `n <= burst + t * rate`,
//!   where units are admitted one by one. What is charged after it was used ([`Rate::charge`]) may
//!   go beyond; then as much time passes before anything is admitted again.
//!
//! Cost: a hash, a lock of eight entries, and a look at these.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use flatpath::address_limit::subscriber;

use super::table::Table;
use crate::clock::as_ns;

pub(crate) struct Rate {
    /// So many units in this time.
    units: u64,
    time_ns: u64,
    burst: u64,
    table: Arc<Table>,
}

impl Rate {
    /// So many units of an address in that time, all of them at once where its client likes.
    pub(crate) fn new(units: u64, time: Duration, addresses_max: usize) -> Self {
        Self {
            units: units.max(1),
            time_ns: as_ns(time),
            burst: units.max(1),
            table: Arc::new(Table::new(addresses_max)),
        }
    }

    pub(crate) fn burst(self, units: u64) -> Self {
        let burst = units.max(1);
        Self { burst, ..self }
    }

    pub(crate) fn addresses_max(self, addresses: usize) -> Self {
        let table = Arc::new(Table::new(addresses));
        Self { table, ..self }
    }

    /// Continues what the same rate has counted; another one begins anew.
    pub(crate) fn continuing(self, before: &Self) -> Self {
        let is_same = self.units == before.units
            && self.time_ns == before.time_ns
            && self.burst == before.burst
            && self.table.len() == before.table.len();
        let table = match is_same {
            true => Arc::clone(&before.table),
            false => self.table,
        };
        Self { table, ..self }
    }

    /// Uses units, if all of them are left. The error is the time after which they will be.
    pub(crate) fn admit(&self, address: IpAddr, now: Duration, units: u64) -> Result<(), Duration> {
        let (now_ns, cost_ns) = (as_ns(now), self.cost_ns(units));
        self.table.update(key(address), |arrival_ns| {
            self.wait(arrival_ns, now_ns, cost_ns)?;
            Ok(arrival_ns.max(now_ns).saturating_add(cost_ns))
        })
    }

    /// Whether a unit is left. The error is the time after which one will be.
    pub(crate) fn check(&self, address: IpAddr, now: Duration) -> Result<(), Duration> {
        let arrival_ns = self.table.number(key(address));
        self.wait(arrival_ns, as_ns(now), self.cost_ns(1))
    }

    /// Uses units that were taken already, whether they are left or not.
    pub(crate) fn charge(&self, address: IpAddr, now: Duration, units: u64) {
        let (now_ns, cost_ns) = (as_ns(now), self.cost_ns(units));
        let charged: Result<(), Infallible> = self.table.update(key(address), |arrival_ns| {
            Ok(arrival_ns.max(now_ns).saturating_add(cost_ns))
        });
        let Ok(()) = charged;
    }

    /// Gives units back that were used.
    #[cfg(feature = "htpasswd")]
    pub(crate) fn give_back(&self, address: IpAddr, units: u64) {
        let cost_ns = self.cost_ns(units);
        let given: Result<(), Infallible> = self.table.update(key(address), |arrival_ns| {
            Ok(arrival_ns.saturating_sub(cost_ns))
        });
        let Ok(()) = given;
    }

    fn wait(&self, arrival_ns: u64, now_ns: u64, cost_ns: u64) -> Result<(), Duration> {
        let ahead_ns = arrival_ns.saturating_sub(now_ns).saturating_add(cost_ns);
        match ahead_ns.checked_sub(self.cost_ns(self.burst)) {
            None | Some(0) => Ok(()),
            Some(wait_ns) => Err(Duration::from_nanos(wait_ns)),
        }
    }

    /// The time that so many units are worth: none is worth nothing.
    fn cost_ns(&self, units: u64) -> u64 {
        let cost_ns = u128::from(units) * u128::from(self.time_ns) / u128::from(self.units);
        let cost_ns = u64::try_from(cost_ns).unwrap_or(u64::MAX);
        cost_ns.max(u64::from(units > 0))
    }
}

/// An address as a key: its ports and its hosts do not count.
fn key(address: IpAddr) -> u128 {
    match subscriber(SocketAddr::new(address, 0)) {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// A time in whole seconds, rounded up: a client that comes after it is admitted.
pub(crate) fn whole_seconds(wait: Duration) -> u64 {
    wait.as_secs() + u64::from(wait.subsec_nanos() > 0)
}

impl std::fmt::Debug for Rate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Rate")
            .field("units", &self.units)
            .field("time", &Duration::from_nanos(self.time_ns))
            .field("burst", &self.burst)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    fn at(ms: u64) -> Duration {
        Duration::from_millis(1_000_000 + ms)
    }

    #[test]
    fn what_was_used_before_it_was_charged_is_paid_for_with_time() {
        // 1,000 bytes a second, and 500 at once.
        let rate = Rate::new(1000, Duration::from_secs(1), 8).burst(500);
        assert_eq!(rate.check(ADDRESS, at(0)), Ok(()));
        rate.charge(ADDRESS, at(0), 499);
        assert_eq!(rate.check(ADDRESS, at(0)), Ok(()), "one is left");
        rate.charge(ADDRESS, at(0), 3001);
        // 3,000 above the burst, and one.
        let wait = Duration::from_millis(3001);
        assert_eq!(rate.check(ADDRESS, at(0)), Err(wait));
        assert_eq!(whole_seconds(wait), 4);
        assert!(rate.check(ADDRESS, at(2999)).is_err());
        assert_eq!(rate.check(ADDRESS, at(3001)), Ok(()));
        rate.charge(ADDRESS, at(9000), 0);
        assert_eq!(
            rate.check(ADDRESS, at(9000)),
            Ok(()),
            "nothing costs nothing"
        );
    }

    #[test]
    fn more_than_a_byte_in_a_nanosecond_is_a_rate() {
        let rate = Rate::new(u64::MAX, Duration::from_secs(1), 8);
        rate.charge(ADDRESS, at(0), 1 << 40);
        assert_eq!(rate.check(ADDRESS, at(0)), Ok(()));
        rate.charge(ADDRESS, at(0), u64::MAX);
        assert!(rate.check(ADDRESS, at(0)).is_err());
        let slow = Rate::new(1, Duration::from_secs(3600 * 24 * 365), 8);
        assert_eq!(slow.admit(ADDRESS, at(0), 1), Ok(()));
        assert!(slow.admit(ADDRESS, at(1), 1).is_err());
        slow.charge(ADDRESS, Duration::MAX, u64::MAX);
        assert!(slow.check(ADDRESS, at(2)).is_err(), "it does not wrap");
    }

    #[cfg(feature = "htpasswd")]
    #[test]
    fn what_is_given_back_is_left_again() {
        let rate = Rate::new(2, Duration::from_secs(60), 8);
        assert_eq!(rate.admit(ADDRESS, at(0), 1), Ok(()));
        assert_eq!(rate.admit(ADDRESS, at(0), 1), Ok(()));
        assert!(rate.admit(ADDRESS, at(0), 1).is_err());
        rate.give_back(ADDRESS, 1);
        assert_eq!(rate.admit(ADDRESS, at(0), 1), Ok(()));
        assert!(rate.admit(ADDRESS, at(0), 1).is_err());
    }

    #[test]
    fn a_rate_continues_what_the_same_one_has_counted() {
        let rate = || Rate::new(1, Duration::from_secs(60), 8);
        let before = rate();
        assert_eq!(before.admit(ADDRESS, at(0), 1), Ok(()));
        let same = rate().continuing(&before);
        assert!(same.admit(ADDRESS, at(0), 1).is_err());
        let other = rate().burst(2).continuing(&before);
        assert_eq!(other.admit(ADDRESS, at(0), 2), Ok(()), "it begins anew");
    }

    #[test]
    fn model_no_address_has_more_than_its_burst_and_its_rate() {
        let mut random = fastrand::Rng::with_seed(1);
        for _ in 0..200 {
            let (units, burst) = (random.u64(1..20), random.u64(1..20));
            let rate = Rate::new(units, Duration::from_secs(1), 8).burst(burst);
            let (mut now_ms, mut admitted) = (0, 0);
            for _ in 0..200 {
                now_ms += random.u64(0..300);
                let wanted = random.u64(1..3);
                if rate.admit(ADDRESS, at(now_ms), wanted).is_ok() {
                    admitted += wanted;
                }
                // Costs are rounded down: one more at most.
                let most = burst + now_ms * units / 1000 + 1;
                assert!(admitted <= most, "{admitted} of {most} after {now_ms} ms");
            }
        }
    }
}
