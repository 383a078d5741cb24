//! What is stored of a password: a salt and PBKDF2 with HMAC-SHA256 (RFC 8018, 5.2).

use std::io;
use std::num::NonZeroU32;

use ring::pbkdf2::{self, PBKDF2_HMAC_SHA256};
use ring::rand::{SecureRandom, SystemRandom};

use crate::database::User;

/// What OWASP recommends for this function; some tenths of a second.
pub const ITERATIONS: NonZeroU32 = NonZeroU32::new(600_000).expect("not zero");

/// What is stored of this password. With [`ITERATIONS`] it takes a while, by intention.
///
/// # Errors
/// The system has no randomness.
pub fn hash(password: &str, iterations: NonZeroU32) -> io::Result<User> {
    let (mut salt, mut hash) = ([0; 16], [0; 32]);
    let filled = SystemRandom::new().fill(&mut salt);
    filled.map_err(|_| io::Error::other("the system has no randomness"))?;
    let password = password.as_bytes();
    pbkdf2::derive(PBKDF2_HMAC_SHA256, iterations, &salt, password, &mut hash);
    Ok(User {
        salt,
        hash,
        iterations,
    })
}

/// Whether it is this user's password; never where there is no such user, which takes as long.
#[must_use]
pub fn is_correct(password: &str, user: Option<&User>) -> bool {
    let nobody = User {
        salt: [0; 16],
        hash: [0; 32],
        iterations: ITERATIONS,
    };
    let User {
        salt,
        hash,
        iterations,
    } = user.unwrap_or(&nobody);
    let password = password.as_bytes();
    pbkdf2::verify(PBKDF2_HMAC_SHA256, *iterations, salt, password, hash).is_ok() && user.is_some()
}
