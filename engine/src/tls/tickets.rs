//! Session tickets that several servers open: a client resumes at whichever it comes to.
//!
//! | bytes | what they are                                                    |
//! |-------|------------------------------------------------------------------|
//! | 16    | which secret it is sealed with                                   |
//! | 32    | random: with that secret they make the key of this ticket alone  |
//! | rest  | AES-256-GCM of the time, in seconds, and the session; its tag    |
//!
//! As each ticket has its own key, any number of servers may seal any number of them with one
//! secret: no nonce can be used twice.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ring::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Prk, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use rustls::server::ProducesTickets;

use super::config::TlsError;

const NAME_BYTES: usize = 16;
const RANDOM_BYTES: usize = 32;
const TIME_BYTES: usize = 8;
const SECRET_BYTES_MIN: usize = 32;
/// How long a ticket is taken, as those that a server has for itself (RFC 8446 section 4.6.1 allows
/// a week).
const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// What tickets are sealed with and opened by, for
/// [`TlsConfig::share_tickets`](super::TlsConfig::share_tickets).
///
/// Who has a secret can read what was sent in resumed sessions of TLS 1.2 and take the part of a
/// client that resumes, so change it often: first add the new one at the end everywhere, then put
/// it first everywhere, and after 12 hours, when no ticket of the old one is taken any more, remove
/// that. A clone is the same keys.
#[derive(Clone)]
pub struct TicketKeys(Arc<Secrets>);

/// One at least.
struct Secrets(Vec<Secret>);

struct Secret {
    name: [u8; NAME_BYTES],
    derives: Prk,
}

/// The length of a name, for `ring`.
struct Name;

impl KeyType for Name {
    fn len(&self) -> usize {
        NAME_BYTES
    }
}

impl TicketKeys {
    /// Of secrets of at least 32 random bytes each. The first one seals; all of them open.
    ///
    /// # Errors
    /// There is none, or one is too short.
    pub fn new<S: AsRef<[u8]>>(
        secrets: impl IntoIterator<Item = S>,
    ) -> Result<TicketKeys, TlsError> {
        let secrets = secrets.into_iter().map(|it| Secret::new(it.as_ref()));
        let secrets: Vec<_> = secrets.collect::<Option<_>>().ok_or(TlsError::TicketKey)?;
        match secrets.is_empty() {
            true => Err(TlsError::TicketKey),
            false => Ok(TicketKeys(Arc::new(Secrets(secrets)))),
        }
    }

    pub(super) fn ticketer(&self) -> Arc<dyn ProducesTickets> {
        Arc::clone(&self.0) as _
    }
}

/// Without the secrets.
impl fmt::Debug for TicketKeys {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// Without the secrets.
impl fmt::Debug for Secrets {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.iter().map(|secret| secret.name);
        formatter.debug_list().entries(names).finish()
    }
}

impl Secret {
    fn new(secret: &[u8]) -> Option<Secret> {
        if secret.len() < SECRET_BYTES_MIN {
            return None;
        }
        let derives = Salt::new(HKDF_SHA256, b"flatpath tickets").extract(secret);
        let mut name = [0; NAME_BYTES];
        derives
            .expand(&[b"name"], Name)
            .ok()?
            .fill(&mut name)
            .ok()?;
        Some(Secret { name, derives })
    }

    fn key(&self, random: &[u8]) -> Option<LessSafeKey> {
        let info: [&[u8]; 2] = [b"key", random];
        let key = self.derives.expand(&info, &AES_256_GCM).ok()?;
        Some(LessSafeKey::new(UnboundKey::from(key)))
    }
}

/// Each key has a single use.
fn nonce() -> Nonce {
    Nonce::assume_unique_for_key([0; NONCE_LEN])
}

fn seconds(now: SystemTime) -> u64 {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

impl Secrets {
    fn seal(&self, session: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let secret = self.0.first()?;
        let mut random = [0; RANDOM_BYTES];
        SystemRandom::new().fill(&mut random).ok()?;
        let key = secret.key(&random)?;
        let mut ticket = [&secret.name[..], &random].concat();
        let mut sealed = [&seconds(now).to_be_bytes()[..], session].concat();
        key.seal_in_place_append_tag(nonce(), Aad::empty(), &mut sealed)
            .ok()?;
        ticket.append(&mut sealed);
        Some(ticket)
    }

    fn open(&self, ticket: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        let (name, rest) = ticket.split_first_chunk::<NAME_BYTES>()?;
        let (random, sealed) = rest.split_first_chunk::<RANDOM_BYTES>()?;
        let secret = self.0.iter().find(|secret| secret.name == *name)?;
        let mut sealed = sealed.to_vec();
        let key = secret.key(random)?;
        let opened = key.open_in_place(nonce(), Aad::empty(), &mut sealed).ok()?;
        let (time, session) = opened.split_first_chunk::<TIME_BYTES>()?;
        // Of a server whose clock is ahead it is from the future.
        let age = seconds(now).saturating_sub(u64::from_be_bytes(*time));
        (age < LIFETIME.as_secs()).then(|| session.to_vec())
    }
}

impl ProducesTickets for Secrets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        LIFETIME.as_secs() as u32
    }

    fn encrypt(&self, session: &[u8]) -> Option<Vec<u8>> {
        self.seal(session, SystemTime::now())
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        self.open(ticket, SystemTime::now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: [u8; 32] = [1; 32];
    const NEW: [u8; 80] = [2; 80];

    fn of(secrets: &[&[u8]]) -> TicketKeys {
        TicketKeys::new(secrets).expect("long enough")
    }

    #[test]
    fn the_first_secret_seals_and_all_open() {
        let now = SystemTime::now();
        let (old, both, new) = (of(&[&OLD]), of(&[&NEW, &OLD]), of(&[&NEW]));
        let ticket = old.0.seal(b"session", now).expect("sealed");
        assert_eq!(old.0.open(&ticket, now).as_deref(), Some(&b"session"[..]));
        assert_eq!(both.0.open(&ticket, now).as_deref(), Some(&b"session"[..]));
        assert_eq!(new.0.open(&ticket, now), None);
        let ticket = both.0.seal(b"session", now).expect("sealed");
        assert_eq!(new.0.open(&ticket, now).as_deref(), Some(&b"session"[..]));
        assert_eq!(old.0.open(&ticket, now), None);
    }

    #[test]
    fn what_was_changed_anywhere_is_not_opened() {
        let now = SystemTime::now();
        let keys = of(&[&OLD]);
        let ticket = keys.0.seal(b"", now).expect("sealed");
        assert!(keys.0.open(&ticket, now).is_some());
        for at in 0..ticket.len() {
            let mut changed = ticket.clone();
            changed[at] ^= 1;
            assert_eq!(keys.0.open(&changed, now), None, "byte {at}");
            assert_eq!(keys.0.open(&ticket[..at], now), None, "{at} bytes");
        }
        let again = keys.0.seal(b"", now).expect("sealed");
        assert_ne!(again, ticket, "a key was used twice");
    }

    #[test]
    fn a_ticket_is_taken_for_twelve_hours() {
        let now = SystemTime::now();
        let keys = of(&[&OLD]);
        let ticket = keys.0.seal(b"session", now).expect("sealed");
        let is_taken = |then| keys.0.open(&ticket, then).is_some();
        assert!(is_taken(now + LIFETIME - Duration::from_secs(2)));
        assert!(!is_taken(now + LIFETIME));
        assert!(is_taken(now - LIFETIME), "of a clock that is ahead");
    }

    #[test]
    fn short_secrets_are_refused_and_none_is_shown() {
        for secrets in [&[][..], &[&[7; 31][..]], &[&[7; 32], &[]]] {
            let refused = TicketKeys::new(secrets).expect_err("too short");
            assert!(refused.to_string().contains("32"), "{refused}");
        }
        let shown = format!("{:?}", of(&[&OLD]));
        assert!(!shown.contains("1, 1, 1, 1"), "{shown}");
    }
}
