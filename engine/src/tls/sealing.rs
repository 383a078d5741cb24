//! How one record is sealed: where its content lies, with ring's ciphers; with those of another
//! provider, which answer in memory of their own, by a copy of that.
//!
//! ```text
//! | header | explicit nonce | content | type | tag |
//! |<------ before -------->|         |<- after -->|
//!           TLS 1.2, AES              TLS 1.3
//! ```
//!
//! Cost: the encryption. Of another provider, an allocation and two copies more.

use std::ops::Range;
use std::sync::LazyLock;

use ring::aead::{AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use rustls::crypto::cipher::{
    AeadKey, Iv, MessageEncrypter, Nonce, OutboundPlainMessage, make_tls12_aad, make_tls13_aad,
};
use rustls::{AlertDescription, CipherSuite, ContentType, ProtocolVersion, SupportedCipherSuite};

use super::records::{Alert, HEADER_BYTES};

/// Of each cipher that is offered.
const TAG_BYTES: usize = 16;

/// Of a nonce, what it begins with where the rest is in the record (RFC 5288 section 3).
const FIXED_NONCE_BYTES: usize = 4;

/// Where the parts of a record are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Layout {
    is_13: bool,
    /// Bytes of the nonce that stand in each record.
    explicit_bytes: usize,
}

impl Layout {
    pub(super) fn of(suite: SupportedCipherSuite) -> Layout {
        let (is_13, explicit_bytes) = match suite {
            SupportedCipherSuite::Tls13(_) => (true, 0),
            SupportedCipherSuite::Tls12(suite) => {
                (false, suite.aead_alg.key_block_shape().explicit_nonce_len)
            }
        };
        Layout {
            is_13,
            explicit_bytes,
        }
    }

    /// Bytes before the content.
    pub(super) fn before(self) -> usize {
        HEADER_BYTES + self.explicit_bytes
    }

    /// Bytes after it.
    pub(super) fn after(self) -> usize {
        usize::from(self.is_13) + TAG_BYTES
    }
}

/// A cipher that is ready to seal.
#[expect(
    clippy::large_enum_variant,
    reason = "each is in a box, and most are the large one"
)]
pub(super) enum Sealer {
    InPlace {
        key: LessSafeKey,
        iv: Iv,
        layout: Layout,
    },
    Foreign(Box<dyn MessageEncrypter>, Layout),
}

impl Sealer {
    pub(super) fn new(suite: SupportedCipherSuite, key: &[u8; 32], nonce: &[u8; 12]) -> Sealer {
        let layout = Layout::of(suite);
        let own = algorithm(suite).and_then(|algorithm| UnboundKey::new(algorithm, key).ok());
        match own {
            Some(key) => Sealer::InPlace {
                key: LessSafeKey::new(key),
                iv: Iv::copy(nonce),
                layout,
            },
            None => Sealer::Foreign(encrypter(suite, key, nonce), layout),
        }
    }

    /// Seals the content that lies in a room where [`Layout`] has it; how long the record is.
    ///
    /// # Errors
    /// The room is too short, or the cipher refuses it.
    pub(super) fn seal(
        &mut self,
        kind: ContentType,
        room: &mut [u8],
        content_bytes: usize,
        sequence: u64,
    ) -> Result<usize, Alert> {
        match self {
            Sealer::InPlace { key, iv, layout } => {
                let nonce = Nonce::new(iv, sequence);
                seal_in_place(key, nonce, *layout, kind, room, content_bytes, sequence)
            }
            Sealer::Foreign(cipher, layout) => {
                let begin = layout.before();
                let content = within(room, begin..begin + content_bytes)?;
                let plain = OutboundPlainMessage {
                    typ: kind,
                    version: ProtocolVersion::TLSv1_2,
                    payload: (&*content).into(),
                };
                let sealed = cipher.encrypt(plain, sequence);
                let sealed = sealed.map_err(|_| FAILED)?.encode();
                within(room, 0..sealed.len())?.copy_from_slice(&sealed);
                Ok(sealed.len())
            }
        }
    }
}

/// What no peer can bring about.
const FAILED: Alert = Alert(AlertDescription::InternalError);

/// RFC 8446 section 5.2; RFC 5246 section 6.2.3.3, RFC 5288 and RFC 7905.
fn seal_in_place(
    key: &LessSafeKey,
    nonce: Nonce,
    layout: Layout,
    kind: ContentType,
    room: &mut [u8],
    content_bytes: usize,
    sequence: u64,
) -> Result<usize, Alert> {
    let begin = layout.before();
    let whole = begin + content_bytes + layout.after();
    let room = within(room, 0..whole)?;
    let payload_bytes = whole - HEADER_BYTES;
    let length = u16::try_from(payload_bytes).map_err(|_| FAILED)?;
    let tag_at = whole - TAG_BYTES;
    let (head, aad_13, aad_12);
    let aad: &[u8] = match layout.is_13 {
        true => {
            room[begin + content_bytes] = kind.into();
            head = ContentType::ApplicationData;
            aad_13 = make_tls13_aad(payload_bytes);
            &aad_13
        }
        false => {
            let explicit = &nonce.0[FIXED_NONCE_BYTES..][..layout.explicit_bytes];
            room[HEADER_BYTES..begin].copy_from_slice(explicit);
            head = kind;
            aad_12 = make_tls12_aad(sequence, kind, ProtocolVersion::TLSv1_2, content_bytes);
            &aad_12
        }
    };
    room[..3].copy_from_slice(&[head.into(), 3, 3]);
    room[3..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    let nonce = ring::aead::Nonce::assume_unique_for_key(nonce.0);
    let tag = key.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut room[begin..tag_at]);
    room[tag_at..].copy_from_slice(tag.map_err(|_| FAILED)?.as_ref());
    Ok(whole)
}

fn within(room: &mut [u8], place: Range<usize>) -> Result<&mut [u8], Alert> {
    let found = room.get_mut(place);
    debug_assert!(found.is_some(), "a record has room");
    found.ok_or(FAILED)
}

/// The algorithm of a suite that is ring's. Another provider's may have the same name: it has to be
/// the one that rustls gives out, not an equal one.
fn algorithm(suite: SupportedCipherSuite) -> Option<&'static Algorithm> {
    static OF_RING: LazyLock<Vec<SupportedCipherSuite>> =
        LazyLock::new(|| rustls::crypto::ring::default_provider().cipher_suites);
    let is_it = |of_ring: &SupportedCipherSuite| match (*of_ring, suite) {
        (SupportedCipherSuite::Tls13(one), SupportedCipherSuite::Tls13(other)) => {
            std::ptr::eq(one, other)
        }
        (SupportedCipherSuite::Tls12(one), SupportedCipherSuite::Tls12(other)) => {
            std::ptr::eq(one, other)
        }
        _ => false,
    };
    match suite.suite() {
        _ if !OF_RING.iter().any(is_it) => None,
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => Some(&AES_256_GCM),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => Some(&CHACHA20_POLY1305),
        _ => None,
    }
}

fn encrypter(
    suite: SupportedCipherSuite,
    key: &[u8; 32],
    nonce: &[u8; 12],
) -> Box<dyn MessageEncrypter> {
    let key = AeadKey::from(*key);
    match suite {
        SupportedCipherSuite::Tls13(suite) => suite.aead_alg.encrypter(key, Iv::copy(nonce)),
        SupportedCipherSuite::Tls12(suite) => {
            let fixed = suite.aead_alg.key_block_shape().fixed_iv_len;
            let (fixed, explicit) = nonce.split_at(fixed);
            suite.aead_alg.encrypter(key, fixed, explicit)
        }
    }
}
