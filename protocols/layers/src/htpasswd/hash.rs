//! Hashes of passwords: which are taken, and whether a password is the right one.

use argon2::{Argon2, PasswordVerifier};

use crate::limits::{ARGON2_KIB, ARGON2_PASSES_MAX, BCRYPT_COSTS, SHA_CRYPT_ROUNDS};

/// A hash that protects its password.
#[derive(Clone)]
pub(super) struct PasswordHash {
    scheme: Scheme,
    /// Memory of a check.
    check_bytes: usize,
    text: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scheme {
    Bcrypt,
    Argon2,
    Sha256Crypt,
    Sha512Crypt,
}

/// Beginnings of hashes that are not taken, as they are the work of seconds to break.
const WEAK: [(&str, &str); 8] = [
    ("$apr1$", "MD5"),
    ("$1$", "MD5"),
    ("$md5", "MD5"),
    ("{SHA}", "SHA-1 without a salt"),
    ("{SSHA}", "SHA-1"),
    ("{SHA256}", "SHA-256 without rounds"),
    ("{SSHA256}", "SHA-256 without rounds"),
    ("{PLAIN}", "the password itself"),
];

/// Kinds of hashes that other programs take. Another word between dollars may be a password.
const FOREIGN: [&str; 10] = [
    "2",
    "2x",
    "7",
    "argon2d",
    "bcrypt-sha256",
    "gy",
    "pbkdf2-sha256",
    "pbkdf2-sha512",
    "scrypt",
    "y",
];

const CURE: &str = "make it anew with htpasswd -B";

/// Rounds of SHA-crypt where the hash names none.
const SHA_CRYPT_ROUNDS_DEFAULT: u32 = 5_000;

impl PasswordHash {
    /// The hash of a line. The error never has the text, which may be a password.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let weak = WEAK.iter().find(|(start, _)| text.starts_with(start));
        if let Some((_, what)) = weak {
            return Err(format!("{what} does not protect a password: {CURE}"));
        }
        let mut parts = text.split('$');
        let (before, scheme) = (parts.next(), parts.next());
        let scheme = match (before, scheme) {
            (Some(""), Some("2y" | "2b" | "2a")) => Scheme::Bcrypt,
            (Some(""), Some("argon2id" | "argon2i")) => Scheme::Argon2,
            (Some(""), Some("5")) => Scheme::Sha256Crypt,
            (Some(""), Some("6")) => Scheme::Sha512Crypt,
            (Some(""), Some(other)) if FOREIGN.contains(&other) => {
                return Err(format!("the hash ${other}$ is not known here: {CURE}"));
            }
            _ => {
                let why = "this is DES, a plain password or no hash at all";
                return Err(format!("{why}: {CURE}"));
            }
        };
        let parts: Vec<&str> = parts.collect();
        let check_bytes = match scheme {
            Scheme::Bcrypt => check_bcrypt(&parts).map(|()| 0),
            Scheme::Argon2 => check_argon2(text),
            Scheme::Sha256Crypt => check_sha_crypt(&parts, 43).map(|()| 0),
            Scheme::Sha512Crypt => check_sha_crypt(&parts, 86).map(|()| 0),
        }?;
        Ok(Self {
            scheme,
            check_bytes,
            text: text.into(),
        })
    }

    /// Memory that a check takes, in bytes, as far as it is worth counting.
    pub(super) fn check_bytes(&self) -> usize {
        self.check_bytes
    }

    /// Whether this is the password. Takes what the hash was made for.
    pub(super) fn verify(&self, password: &str) -> bool {
        #[cfg(test)]
        VERIFIED.with(|count| count.set(count.get() + 1));
        let (text, bytes) = (&*self.text, password.as_bytes());
        match self.scheme {
            Scheme::Bcrypt => bcrypt::verify(bytes, text).unwrap_or(false),
            Scheme::Argon2 => argon2::PasswordHash::new(text)
                .is_ok_and(|hash| Argon2::default().verify_password(bytes, &hash).is_ok()),
            Scheme::Sha256Crypt => sha_crypt::sha256_check(password, text).is_ok(),
            Scheme::Sha512Crypt => sha_crypt::sha512_check(password, text).is_ok(),
        }
    }
}

#[cfg(test)]
thread_local! {
    /// Passwords that this thread has checked.
    pub(super) static VERIFIED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

fn broken() -> String {
    format!("the hash is cut off or malformed: {CURE}")
}

/// `$2y$COST$` and 53 characters.
fn check_bcrypt(parts: &[&str]) -> Result<(), String> {
    let [cost, rest] = parts else {
        return Err(broken());
    };
    let is_letter = |it: u8| it.is_ascii_alphanumeric() || it == b'.' || it == b'/';
    if rest.len() != 53 || !rest.bytes().all(is_letter) || cost.len() != 2 {
        return Err(broken());
    }
    let cost: u32 = cost.parse().map_err(|_| broken())?;
    within("the cost of bcrypt", cost, &BCRYPT_COSTS)
}

/// A text of the PHC format. Gives back the memory that a check takes, in bytes.
fn check_argon2(text: &str) -> Result<usize, String> {
    let hash = argon2::PasswordHash::new(text).map_err(|_| broken())?;
    let parameters = argon2::Params::try_from(&hash).map_err(|_| broken())?;
    if hash.hash.is_none() || hash.salt.is_none() {
        return Err(broken());
    }
    within(
        "the memory of Argon2 in KiB",
        parameters.m_cost(),
        &ARGON2_KIB,
    )?;
    within(
        "the passes of Argon2",
        parameters.t_cost(),
        &(1..=ARGON2_PASSES_MAX),
    )?;
    Ok(parameters.m_cost() as usize * 1024)
}

/// `$5$`, perhaps `rounds=N$`, the salt, and so many characters.
fn check_sha_crypt(parts: &[&str], hash_bytes: usize) -> Result<(), String> {
    let (rounds, salt, hash) = match parts {
        [salt, hash] => (None, salt, hash),
        [rounds, salt, hash] => (Some(rounds), salt, hash),
        _ => return Err(broken()),
    };
    let is_letter = |it: u8| it.is_ascii_alphanumeric() || it == b'.' || it == b'/';
    let is_whole = hash.len() == hash_bytes && hash.bytes().all(is_letter);
    if !is_whole || salt.is_empty() || salt.len() > 16 {
        return Err(broken());
    }
    let rounds = match rounds {
        None => SHA_CRYPT_ROUNDS_DEFAULT,
        Some(rounds) => {
            let rounds = rounds.strip_prefix("rounds=").ok_or_else(broken)?;
            rounds.parse().map_err(|_| broken())?
        }
    };
    within("the rounds of SHA-crypt", rounds, &SHA_CRYPT_ROUNDS)
}

fn within(what: &str, value: u32, allowed: &std::ops::RangeInclusive<u32>) -> Result<(), String> {
    let (least, most) = (allowed.start(), allowed.end());
    if value < *least {
        return Err(format!("{what} is {value}, and {least} at least: {CURE}"));
    }
    if value > *most {
        let why = "a check would hold the server up";
        return Err(format!("{what} is {value}, and {most} at most: {why}"));
    }
    Ok(())
}
