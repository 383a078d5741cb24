//! The record layer of an established connection (RFC 8446 section 5; RFC 5246 section 6).
//!
//! rustls makes the handshake. Then it gives its secrets away, and from there on this opens and
//! seals the records, with rustls' ciphers. So bytes are decrypted where they lie, in the page that
//! they were received into, and an idle connection keeps nothing but its secrets: the *ciphers*,
//! which are the secrets made ready for use, can be dropped at any time ([`Records::freeze`]) and
//! are made again by the first record.
//!
//! | duty of a record layer           | what is done                                             |
//! |----------------------------------|----------------------------------------------------------|
//! | a key is used for so many        | before the limit: TLS 1.3 changes it (KeyUpdate), TLS 1.2|
//! | records at most                  | ends the connection                                      |
//! | KeyUpdate (RFC 8446 4.6.3)       | the peer's key changes at once; ours, if it asks, before |
//! |                                  | the next record, once for however many it asked for      |
//! | alerts                           | close_notify ends the peer's stream; others abort        |
//! | forbidden messages               | an alert and the end: renegotiation, change_cipher_spec, |
//! |                                  | handshake messages other than KeyUpdate and, where this  |
//! |                                  | side is the client, whole tickets                        |
//! | records without content          | 32 in a row at most, key updates included                |
//!
//! Invariants
//! - TR1: each record has the next sequence number of its direction and key, so no nonce is used
//!   twice: a number is counted up before the cipher is called, whatever comes of that.
//! - TR2: after an error nothing is opened, and nothing but an alert is sealed.
//!
//! Cost: of opening, the decryption, and for the second and further records of a call a move of
//! their plaintext; of sealing, see `sealing.rs`; of making ciphers anew, about a microsecond for
//! each direction.

use std::fmt;
use std::ops::Range;

use rustls::crypto::cipher::{AeadKey, InboundOpaqueMessage, Iv, MessageDecrypter};
use rustls::{
    AlertDescription, ConnectionTrafficSecrets, ContentType, ProtocolVersion, SupportedCipherSuite,
};
use zeroize::Zeroizing;

use super::sealing::{Layout, Sealer};

/// Bytes of a record's header.
pub(crate) const HEADER_BYTES: usize = 5;

/// Plaintext of a record at most (RFC 8446 section 5.1).
pub(crate) const PLAINTEXT_BYTES_MAX: usize = 1 << 14;

/// What a record adds to its plaintext at most, header included: that of TLS 1.2 with an explicit
/// nonce is 29 bytes, that of TLS 1.3 22.
pub(crate) const OVERHEAD_BYTES_MAX: usize = 32;

/// A record without its header at most: in TLS 1.3 256 bytes more than the plaintext (RFC 8446
/// section 5.2), in TLS 1.2 2,048 (RFC 5246 section 6.2.3).
const PAYLOAD_BYTES_MAX_13: usize = PLAINTEXT_BYTES_MAX + 256;
pub(crate) const PAYLOAD_BYTES_MAX_12: usize = PLAINTEXT_BYTES_MAX + 2048;

/// Records that bring no content, in a row.
const EMPTY_MAX: u8 = 32;

/// Records before a key's limit at which it is changed.
const LIMIT_MARGIN: u64 = 64;

/// Records for which a key may be used at least, whatever its cipher: sequence numbers end there.
const SEQUENCE_MAX: u64 = u64::MAX - 1;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const CLOSE_NOTIFY: u8 = 0;
const WARNING: u8 = 1;
const FATAL: u8 = 2;

/// What of a handshake's library an established connection keeps: it gives the secrets that follow
/// the present ones.
pub(crate) trait Schedule: Send {
    /// The next secrets of the records that this side sends, or of those that it receives. `None`
    /// in TLS 1.2, which has no others.
    fn next(&mut self, of: Direction) -> Option<ConnectionTrafficSecrets>;

    /// The peer sends a ticket, to resume the session with. False: this side takes none, or not
    /// this one. Servers never do.
    fn ticket(&mut self, ticket: &[u8]) -> bool {
        let _ = ticket;
        false
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Sent,
    Received,
}

/// See the module.
pub(crate) struct Records {
    suite: SupportedCipherSuite,
    schedule: Box<dyn Schedule>,
    sealing: Keys<Sealer>,
    opening: Keys<dyn MessageDecrypter>,
    /// Records in a row that brought no content.
    empty: u8,
    /// The peer has asked for new keys of what is sent.
    owes_update: bool,
    state: State,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Open,
    /// The peer has sent close_notify.
    PeerClosed,
    /// The peer has broken the rules: nothing more is opened (TR2).
    Failed,
}

/// The keys of one direction.
struct Keys<C: ?Sized> {
    key: Zeroizing<[u8; 32]>,
    nonce: Zeroizing<[u8; 12]>,
    sequence: u64,
    cipher: Option<Box<C>>,
}

/// Why a connection is to end: the alert to send (RFC 8446 section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Alert(pub(crate) AlertDescription);

impl Alert {
    /// Nothing is wrong: this side sends no more.
    pub(crate) const CLOSE_NOTIFY: Alert = Alert(AlertDescription::CloseNotify);
}

/// The secrets are of a cipher that is not offered here.
#[derive(Debug)]
pub(crate) struct NotOffered;

impl<C: ?Sized> Keys<C> {
    fn new(secrets: &ConnectionTrafficSecrets, sequence: u64) -> Result<Keys<C>, NotOffered> {
        let (ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        | ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv }) = secrets
        else {
            return Err(NotOffered);
        };
        Ok(Keys {
            key: Zeroizing::new(key.as_ref().try_into().map_err(|_| NotOffered)?),
            nonce: Zeroizing::new(iv.as_ref().try_into().map_err(|_| NotOffered)?),
            sequence,
            cipher: None,
        })
    }

    fn next_sequence(&mut self) -> u64 {
        let sequence = self.sequence;
        self.sequence += 1;
        sequence
    }
}

impl Keys<Sealer> {
    fn cipher(&mut self, suite: SupportedCipherSuite) -> &mut Sealer {
        let (key, nonce) = (&self.key, &self.nonce);
        let make = || Box::new(Sealer::new(suite, key, nonce));
        self.cipher.get_or_insert_with(make)
    }
}

impl Keys<dyn MessageDecrypter> {
    fn cipher(&mut self, suite: SupportedCipherSuite) -> &mut dyn MessageDecrypter {
        let (key, nonce) = (&self.key, &self.nonce);
        let make = || match suite {
            SupportedCipherSuite::Tls13(suite) => {
                let nonce = Iv::copy(&nonce[..]);
                suite.aead_alg.decrypter(AeadKey::from(**key), nonce)
            }
            SupportedCipherSuite::Tls12(suite) => {
                let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
                let key = AeadKey::from(**key);
                suite.aead_alg.decrypter(key, &nonce[..fixed])
            }
        };
        &mut **self.cipher.get_or_insert_with(make)
    }
}

impl Records {
    /// The record layer that a handshake ends with: the secrets of what is sent and of what is
    /// received, each with the number of its next record.
    ///
    /// # Errors
    /// The cipher is none whose keys can be kept.
    pub(crate) fn new(
        suite: SupportedCipherSuite,
        schedule: Box<dyn Schedule>,
        (sent, sent_next): (ConnectionTrafficSecrets, u64),
        (received, received_next): (ConnectionTrafficSecrets, u64),
    ) -> Result<Records, NotOffered> {
        Ok(Records {
            suite,
            schedule,
            sealing: Keys::new(&sent, sent_next)?,
            opening: Keys::new(&received, received_next)?,
            empty: 0,
            owes_update: false,
            state: State::Open,
        })
    }

    fn is_13(&self) -> bool {
        matches!(self.suite, SupportedCipherSuite::Tls13(_))
    }

    /// Drops what the first record makes again. Several hundred bytes each.
    pub(crate) fn freeze(&mut self) {
        self.sealing.cipher = None;
        self.opening.cipher = None;
    }

    #[cfg(test)]
    pub(crate) fn is_frozen(&self) -> bool {
        self.sealing.cipher.is_none() && self.opening.cipher.is_none()
    }

    /// The peer has said that it sends no more. Without that, the end of its stream is an attack or
    /// an accident (RFC 8446 section 6.1).
    pub(crate) fn peer_has_closed(&self) -> bool {
        self.state == State::PeerClosed
    }

    /// See [`whole_records`].
    ///
    /// # Errors
    /// A record that is too long, or none.
    pub(crate) fn whole(&self, bytes: &[u8]) -> Result<(usize, usize), Alert> {
        whole_records(
            bytes,
            match self.is_13() {
                true => PAYLOAD_BYTES_MAX_13,
                false => PAYLOAD_BYTES_MAX_12,
            },
        )
    }

    /// Opens records, which must be whole, where they lie, and moves the content of the second and
    /// further ones behind that of the first; where it is then. Behind the peer's close_notify
    /// nothing is opened.
    ///
    /// # Errors
    /// The peer breaks the rules, or somebody has changed what it sent.
    pub(crate) fn open(&mut self, records: &mut [u8]) -> Result<Range<usize>, Alert> {
        let (mut at, mut opened) = (0, 0..0);
        while self.state == State::Open
            && let Some(header) = records[at..].first_chunk::<HEADER_BYTES>()
        {
            let (kind, begin) = (header[0], at + HEADER_BYTES);
            at = begin + payload_bytes(header);
            match self.open_one(kind, &mut records[begin..at]) {
                Ok(content) if opened.is_empty() => {
                    opened = begin + content.start..begin + content.end;
                }
                Ok(content) => {
                    let content = begin + content.start..begin + content.end;
                    let end = opened.end + content.len();
                    records.copy_within(content, opened.end);
                    opened.end = end;
                }
                Err(refused) => {
                    self.state = State::Failed;
                    return Err(refused);
                }
            }
        }
        match self.state {
            State::Failed => Err(Alert(AlertDescription::UnexpectedMessage)),
            State::Open | State::PeerClosed => Ok(opened),
        }
    }

    /// Opens one record, and does what it says if it is not content; where in it the content is.
    fn open_one(&mut self, kind: u8, payload: &mut [u8]) -> Result<Range<usize>, Alert> {
        let kind = ContentType::from(kind);
        if self.is_13() && kind != ContentType::ApplicationData {
            return Err(Alert(AlertDescription::UnexpectedMessage));
        }
        if self.opening.sequence >= SEQUENCE_MAX {
            return Err(Alert(AlertDescription::InternalError));
        }
        let begin = payload.as_ptr().addr();
        let sequence = self.opening.next_sequence();
        let sealed = InboundOpaqueMessage::new(kind, ProtocolVersion::TLSv1_2, payload);
        let cipher = self.opening.cipher(self.suite);
        let plain = cipher.decrypt(sealed, sequence).map_err(refused)?;
        let content = plain.payload;
        if plain.typ == ContentType::ApplicationData && !content.is_empty() {
            self.empty = 0;
            let start = content.as_ptr().addr() - begin;
            return Ok(start..start + content.len());
        }
        self.empty += 1;
        if self.empty > EMPTY_MAX {
            return Err(Alert(AlertDescription::UnexpectedMessage));
        }
        match (plain.typ, content) {
            (ContentType::ApplicationData, _) => {}
            (ContentType::Alert, &[_, CLOSE_NOTIFY]) => self.state = State::PeerClosed,
            // TLS 1.2 has warnings, which say nothing that matters here; so has user_canceled.
            (ContentType::Alert, &[WARNING, code])
                if !self.is_13()
                    || AlertDescription::from(code) == AlertDescription::UserCanceled => {}
            // It has ended the connection: there is nobody to answer.
            (ContentType::Alert, _) => return Err(Alert(AlertDescription::CloseNotify)),
            (ContentType::Handshake, &[KEY_UPDATE, 0, 0, 1, asks @ 0..=1]) if self.is_13() => {
                self.update_opening()?;
                self.owes_update |= asks == 1;
            }
            (ContentType::Handshake, &[NEW_SESSION_TICKET, ..]) if self.is_13() => {
                return self.take_tickets(content);
            }
            (ContentType::Handshake, _) if !self.is_13() => {
                return Err(Alert(AlertDescription::NoRenegotiation));
            }
            _ => return Err(Alert(AlertDescription::UnexpectedMessage)),
        }
        Ok(0..0)
    }

    /// One or several tickets in a record, each whole (RFC 8446 section 4.6.1). One that is cut
    /// into records is not taken: it would have to be kept, for as long as a peer likes.
    fn take_tickets(&mut self, mut messages: &[u8]) -> Result<Range<usize>, Alert> {
        let unexpected = Alert(AlertDescription::UnexpectedMessage);
        while let [kind, long, middle, short, rest @ ..] = messages {
            let bytes = u32::from_be_bytes([0, *long, *middle, *short]) as usize;
            let is_whole = *kind == NEW_SESSION_TICKET && bytes <= rest.len();
            if !is_whole || !self.schedule.ticket(&rest[..bytes]) {
                return Err(unexpected);
            }
            messages = &rest[bytes..];
        }
        match messages {
            [] => Ok(0..0),
            _ => Err(unexpected),
        }
    }

    fn update_opening(&mut self) -> Result<(), Alert> {
        let next = self.schedule.next(Direction::Received);
        let next = next.ok_or(Alert(AlertDescription::InternalError))?;
        let keys = Keys::new(&next, 0);
        self.opening = keys.map_err(|NotOffered| Alert(AlertDescription::InternalError))?;
        Ok(())
    }

    /// Where in a room for records the content of the next one lies, at most: what is put at the
    /// begin of that place is sealed there ([`Records::seal`]).
    pub(crate) fn content_place(&self, room_bytes: usize) -> Range<usize> {
        let layout = Layout::of(self.suite);
        let begin = layout.before();
        let bytes = room_bytes.saturating_sub(begin + layout.after());
        begin..begin + bytes.min(PLAINTEXT_BYTES_MAX)
    }

    /// Seals the content that was put in its place, as one record at the begin of the room; how
    /// long that is. [`Records::make_ready`] comes first.
    ///
    /// # Errors
    /// The number of records is used up: nothing more can be sent.
    pub(crate) fn seal(&mut self, room: &mut [u8], content_bytes: usize) -> Result<usize, Alert> {
        self.seal_one(ContentType::ApplicationData, room, content_bytes)
    }

    /// The answer that the peer's KeyUpdate asks for, if it does; how long it is in the room.
    ///
    /// # Errors
    /// As of [`Records::make_ready`].
    pub(crate) fn answer(&mut self, room: &mut [u8]) -> Result<usize, Alert> {
        match self.owes_update {
            true => self.make_ready(room),
            false => Ok(0),
        }
    }

    /// Whether there is an answer to send.
    pub(crate) fn owes_answer(&self) -> bool {
        self.owes_update && self.state != State::Failed
    }

    /// Before content is sealed: changes the keys, where the peer has asked for it, or they are
    /// used up soon. How long the record that says so is in the room.
    ///
    /// # Errors
    /// The keys are used up, and there are no others (TLS 1.2): nothing more can be sent.
    pub(crate) fn make_ready(&mut self, room: &mut [u8]) -> Result<usize, Alert> {
        let limit = self.suite_limit();
        let is_used_up = self.sealing.sequence >= limit.saturating_sub(LIMIT_MARGIN);
        if !is_used_up && !self.owes_update {
            return Ok(0);
        }
        if !self.is_13() {
            return Err(Alert(AlertDescription::CloseNotify));
        }
        let message = [KEY_UPDATE, 0, 0, 1, 0];
        let bytes = self.seal_words(ContentType::Handshake, &message, room)?;
        let next = self.schedule.next(Direction::Sent);
        let next = next.ok_or(Alert(AlertDescription::InternalError))?;
        let keys = Keys::new(&next, 0);
        self.sealing = keys.map_err(|NotOffered| Alert(AlertDescription::InternalError))?;
        self.owes_update = false;
        Ok(bytes)
    }

    /// Records for which a key may be used (RFC 8446 section 5.5).
    fn suite_limit(&self) -> u64 {
        let common = match self.suite {
            SupportedCipherSuite::Tls13(suite) => &suite.common,
            SupportedCipherSuite::Tls12(suite) => &suite.common,
        };
        common.confidentiality_limit.min(SEQUENCE_MAX)
    }

    /// The record that ends this side's stream, as it should be: close_notify, or the reason; how
    /// long it is in the room. `None` if it cannot be made any more.
    pub(crate) fn closing_alert(&mut self, Alert(alert): Alert, room: &mut [u8]) -> Option<usize> {
        let level = match alert {
            AlertDescription::CloseNotify => WARNING,
            _ => FATAL,
        };
        let words = [level, u8::from(alert)];
        self.seal_words(ContentType::Alert, &words, room).ok()
    }

    fn seal_words(
        &mut self,
        kind: ContentType,
        words: &[u8],
        room: &mut [u8],
    ) -> Result<usize, Alert> {
        let place = self.content_place(room.len());
        let place = room.get_mut(place).and_then(|it| it.get_mut(..words.len()));
        let place = place.ok_or(Alert(AlertDescription::InternalError))?;
        place.copy_from_slice(words);
        self.seal_one(kind, room, words.len())
    }

    fn seal_one(
        &mut self,
        kind: ContentType,
        room: &mut [u8],
        content_bytes: usize,
    ) -> Result<usize, Alert> {
        if self.sealing.sequence >= self.suite_limit() {
            return Err(Alert(AlertDescription::InternalError));
        }
        let sequence = self.sealing.next_sequence();
        let cipher = self.sealing.cipher(self.suite);
        cipher.seal(kind, room, content_bytes, sequence)
    }
}

/// Without secrets.
impl fmt::Debug for Records {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Records")
            .field("suite", &self.suite)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// How long the whole records at the front of `bytes` are together, and what the one behind them
/// needs in all, as far as that is known: a header, or a record.
///
/// # Errors
/// A record with more than `payload_bytes_max` behind its header, or none.
pub(crate) fn whole_records(
    bytes: &[u8],
    payload_bytes_max: usize,
) -> Result<(usize, usize), Alert> {
    let is_kind = |kind: &u8| (20..=23).contains(kind);
    let mut at = 0;
    while let Some(header) = bytes[at..].first_chunk::<HEADER_BYTES>() {
        if header[1] != 3 || !is_kind(&header[0]) {
            return Err(Alert(AlertDescription::UnexpectedMessage));
        }
        let payload = payload_bytes(header);
        if payload > payload_bytes_max {
            return Err(Alert(AlertDescription::RecordOverflow));
        }
        if bytes.len() - at < HEADER_BYTES + payload {
            return Ok((at, HEADER_BYTES + payload));
        }
        at += HEADER_BYTES + payload;
    }
    match bytes[at..].first().is_none_or(is_kind) {
        true => Ok((at, HEADER_BYTES)),
        false => Err(Alert(AlertDescription::UnexpectedMessage)),
    }
}

/// The first record, if it is whole, and what is behind it.
pub(crate) fn split_record(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let payload = payload_bytes(bytes.first_chunk()?);
    bytes.split_at_checked(HEADER_BYTES + payload)
}

fn payload_bytes(header: &[u8; HEADER_BYTES]) -> usize {
    usize::from(u16::from_be_bytes([header[3], header[4]]))
}

#[expect(clippy::needless_pass_by_value, reason = "as `map_err` gives it")]
fn refused(cause: rustls::Error) -> Alert {
    Alert(match cause {
        rustls::Error::DecryptError => AlertDescription::BadRecordMac,
        rustls::Error::PeerSentOversizedRecord => AlertDescription::RecordOverflow,
        rustls::Error::PeerMisbehaved(_) => AlertDescription::UnexpectedMessage,
        _ => AlertDescription::InternalError,
    })
}

#[cfg(test)]
mod tests;
