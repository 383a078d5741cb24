//! The bounds of [`Guard`](crate::Guard) and its parts, each with the sum that it comes from.

use crate::rate_limit::ADDRESSES_MAX;
use crate::rate_limit::table::ENTRY_BYTES;

/// Memory of one limit by address ([`RateLimit`](crate::RateLimit),
/// [`Access::bytes`](crate::Access::bytes)), in bytes, which is taken when it is made: 34 for each
/// of 16,384 addresses.
pub const RATE_LIMIT_BYTES: usize = ADDRESSES_MAX * ENTRY_BYTES;

/// Most memory of an [`Htpasswd`](crate::Htpasswd), in bytes: failures by address, credentials that
/// are known, and the names and hashes of the file, twice while it is read again, with as much
/// again for the map that they are in.
#[cfg(feature = "htpasswd")]
pub const HTPASSWD_MEMORY_BYTES: usize =
    RATE_LIMIT_BYTES + LOGINS_MAX * ENTRY_BYTES + 4 * HTPASSWD_BYTES_MAX as usize;

/// Largest file of names and passwords, in bytes: some 10,000 names.
#[cfg(feature = "htpasswd")]
pub(crate) const HTPASSWD_BYTES_MAX: u64 = 1 << 20;

/// Longest password that is checked, in bytes: SHA-crypt takes time by the length.
#[cfg(feature = "htpasswd")]
pub(crate) const PASSWORD_BYTES_MAX: usize = 512;

/// Costs of bcrypt that are taken, as powers of two: from what htpasswd makes by default to a
/// second of a processor.
#[cfg(feature = "htpasswd")]
pub(crate) const BCRYPT_COSTS: std::ops::RangeInclusive<u32> = 5..=14;

/// Rounds of SHA-crypt that are taken: from its default to a second of a processor.
#[cfg(feature = "htpasswd")]
pub(crate) const SHA_CRYPT_ROUNDS: std::ops::RangeInclusive<u32> = 5_000..=500_000;

/// Memory of Argon2 that is taken, in KiB: from the least that OWASP names to what a check may use
/// beside the memory of the server.
#[cfg(feature = "htpasswd")]
pub(crate) const ARGON2_KIB: std::ops::RangeInclusive<u32> = 7_168..=65_536;

/// Most passes of Argon2 over its memory.
#[cfg(feature = "htpasswd")]
pub(crate) const ARGON2_PASSES_MAX: u32 = 16;

/// Credentials that are known to be right at once: 34 bytes each.
#[cfg(feature = "htpasswd")]
pub(crate) const LOGINS_MAX: usize = 4 * 1024;

/// Of the processors, one in this many may check passwords, and one at least.
#[cfg(feature = "htpasswd")]
pub(crate) const CHECKS_PART: usize = 4;

/// Requests that wait for their password to be checked. At a tenth of a second for each, the last
/// one waits for as long as its client has patience.
#[cfg(feature = "htpasswd")]
pub(crate) const CHECKS_WAITING_MAX: usize = 128;

/// Wrong passwords of one address at once, and how many more it has in each minute.
#[cfg(feature = "htpasswd")]
pub(crate) const FAILURES_BURST: u64 = 20;
#[cfg(feature = "htpasswd")]
pub(crate) const FAILURES_PER_MINUTE: u64 = 20;
