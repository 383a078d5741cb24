//! permessage-deflate (RFC 7692 section 7): what compresses and inflates messages.
//!
//! Without context takeover, which is the default, a message is compressed by itself: whichever
//! thread does it takes a compressor from a few that all sockets share, and a socket holds none.
//! With it, a socket keeps what its side needs of the messages before. A compressor is given up
//! while its socket is idle: the next message simply refers to nothing before it. What inflates has
//! to stay, as the client may refer to anything.

use std::sync::Arc;

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use flatpath::lock::Lock;

use crate::encode::Frame;
use crate::fault::Fault;
use crate::message::Message;
use crate::offer::{Agreed, WINDOW_BITS_MAX};

/// How messages are compressed; see [`WebSocket::deflate`](crate::WebSocket::deflate).
///
/// ```
/// use flatpath_websocket::{Deflate, WebSocket};
///
/// // Many sockets that wait: no memory is kept between the messages of one.
/// let sockets = WebSocket::pooled().deflate(Some(Deflate {
///     server_takeover: false,
///     client_takeover: false,
///     ..Deflate::default()
/// }));
/// # let _ = sockets;
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deflate {
    /// From 1 (fast) to 9 (small).
    pub level: u32,
    /// Shorter messages are sent as they are.
    pub bytes_min: usize,
    /// Whether messages to a client may refer to those before. It costs a quarter of a mebibyte for
    /// a socket that is not idle.
    pub server_takeover: bool,
    /// The same for messages from a client. It costs some 40 KiB for each socket, as long as it is
    /// open.
    pub client_takeover: bool,
    /// How far back messages to a client may refer, as the logarithm of bytes: 9 to 15.
    pub server_window_bits: u8,
    /// The same for messages from a client that can be told: 9 to 15.
    pub client_window_bits: u8,
}

/// Fast, from 256 bytes on, nothing kept between messages.
impl Default for Deflate {
    fn default() -> Deflate {
        Deflate {
            level: 1,
            bytes_min: 256,
            server_takeover: false,
            client_takeover: false,
            server_window_bits: WINDOW_BITS_MAX,
            client_window_bits: WINDOW_BITS_MAX,
        }
    }
}

/// Compressors of each kind that are kept for the next messages.
const KEPT_MAX: usize = 16;

/// What ends each message and is not sent (section 7.2.1).
const TAIL: [u8; 4] = [0x00, 0x00, 0xFF, 0xFF];

/// What all sockets share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) options: Deflate,
    /// With their windows.
    compressors: Lock<Vec<(u8, Box<Compress>)>>,
    /// All with the largest window, which is right for any.
    inflaters: Lock<Vec<Decompress>>,
}

impl Shared {
    pub(crate) fn new(options: Deflate) -> Arc<Shared> {
        Arc::new(Shared {
            options,
            compressors: Lock::default(),
            inflaters: Lock::default(),
        })
    }

    fn compressor(&self, bits: u8) -> Box<Compress> {
        let mut kept = self.compressors.lock();
        let found = kept.iter().position(|(known, _)| *known == bits);
        let found = found.map(|at| kept.swap_remove(at).1);
        drop(kept);
        found.unwrap_or_else(|| {
            let level = Compression::new(self.options.level.clamp(1, 9));
            Box::new(Compress::new_with_window_bits(level, false, bits))
        })
    }

    fn keep_compressor(&self, bits: u8, mut compressor: Box<Compress>) {
        compressor.reset();
        let mut kept = self.compressors.lock();
        if kept.len() < KEPT_MAX {
            kept.push((bits, compressor));
        }
    }

    fn inflater(&self) -> Decompress {
        let kept = self.inflaters.lock().pop();
        kept.unwrap_or_else(|| Decompress::new_with_window_bits(false, WINDOW_BITS_MAX))
    }

    fn keep_inflater(&self, mut inflater: Decompress) {
        inflater.reset(false);
        let mut kept = self.inflaters.lock();
        if kept.len() < KEPT_MAX {
            kept.push(inflater);
        }
    }
}

/// What compresses the messages to one client.
#[derive(Debug)]
pub(crate) struct Deflating {
    shared: Arc<Shared>,
    bits: u8,
    takeover: bool,
    own: Option<Box<Compress>>,
}

impl Deflating {
    pub(crate) fn new(shared: &Arc<Shared>, agreed: Agreed) -> Deflating {
        Deflating {
            shared: Arc::clone(shared),
            bits: agreed.server_bits,
            takeover: agreed.server_takeover,
            own: None,
        }
    }

    /// The frame of a message, if it is compressed.
    pub(crate) fn frame(&mut self, message: &Message) -> Option<Frame> {
        let payload = message.bytes();
        if payload.is_empty() {
            return None;
        }
        let own = self.own.take();
        let mut compressor = own.unwrap_or_else(|| self.shared.compressor(self.bits));
        let compressed = compress(&mut compressor, payload);
        if self.takeover {
            // Sent in any case: what follows refers to it.
            self.own = compressed.is_some().then_some(compressor);
            return compressed.map(|bytes| Frame::compressed(message.opcode(), bytes));
        }
        self.shared.keep_compressor(self.bits, compressor);
        let compressed = compressed.filter(|bytes| bytes.len() < payload.len())?;
        Some(Frame::compressed(message.opcode(), compressed))
    }

    /// Gives up what refers to earlier messages.
    pub(crate) fn rest(&mut self) {
        if let Some(own) = self.own.take() {
            self.shared.keep_compressor(self.bits, own);
        }
    }
}

/// A message, compressed; `None` where that fails, and nothing may refer to it.
fn compress(compressor: &mut Compress, payload: &[u8]) -> Option<Bytes> {
    let mut output = Vec::with_capacity(payload.len() / 2 + 64);
    let before = compressor.total_in();
    loop {
        let taken = usize::try_from(compressor.total_in() - before).ok()?;
        let status =
            compressor.compress_vec(payload.get(taken..)?, &mut output, FlushCompress::Sync);
        let taken = usize::try_from(compressor.total_in() - before).ok()?;
        if status.is_err() {
            return None;
        }
        if taken == payload.len() && output.len() < output.capacity() {
            break;
        }
        output.reserve(output.capacity().max(64));
    }
    output.truncate(output.strip_suffix(&TAIL)?.len());
    Some(output.into())
}

/// What inflates the messages of one client.
#[derive(Debug)]
pub(crate) struct Inflating {
    shared: Arc<Shared>,
    bits: u8,
    takeover: bool,
    own: Option<Box<Decompress>>,
}

impl Inflating {
    pub(crate) fn new(shared: &Arc<Shared>, agreed: Agreed) -> Inflating {
        Inflating {
            shared: Arc::clone(shared),
            bits: agreed.client_bits,
            takeover: agreed.client_takeover,
            own: None,
        }
    }

    /// A message of at most `bytes_max` bytes.
    pub(crate) fn inflate(&mut self, payload: &[u8], bytes_max: usize) -> Result<Bytes, Fault> {
        if !self.takeover {
            let mut inflater = self.shared.inflater();
            let inflated = inflate(&mut inflater, payload, bytes_max);
            self.shared.keep_inflater(inflater);
            return inflated;
        }
        let bits = self.bits;
        let own = &mut self.own;
        let inflater =
            own.get_or_insert_with(|| Box::new(Decompress::new_with_window_bits(false, bits)));
        inflate(inflater, payload, bytes_max)
    }
}

fn inflate(inflater: &mut Decompress, payload: &[u8], bytes_max: usize) -> Result<Bytes, Fault> {
    let mut output = Vec::new();
    let first = payload.len().saturating_mul(3).saturating_add(64);
    output.reserve(first.min(bytes_max.saturating_add(1)));
    for mut part in [payload, &TAIL] {
        loop {
            let before = inflater.total_in();
            let status = inflater.decompress_vec(part, &mut output, FlushDecompress::Sync);
            let status = status.map_err(|_| Fault::Deflate)?;
            let taken =
                usize::try_from(inflater.total_in() - before).map_err(|_| Fault::Deflate)?;
            part = &part[taken.min(part.len())..];
            if output.len() > bytes_max {
                return Err(Fault::TooLong);
            }
            if status == Status::StreamEnd {
                // Section 7.2.3.4: a block may say that it is the last, and others follow.
                inflater.reset(false);
            }
            if part.is_empty() && output.len() < output.capacity() {
                break;
            }
            if output.len() < output.capacity() {
                if taken == 0 && status != Status::StreamEnd {
                    return Err(Fault::Deflate);
                }
                continue;
            }
            let room = bytes_max.saturating_add(1) - output.len();
            output.reserve_exact(output.len().max(64).min(room));
        }
    }
    Ok(output.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair(options: Deflate, agreed: &str) -> (Deflating, Inflating) {
        let mut headers = flatpath_http::http::HeaderMap::new();
        let value = agreed.parse().expect("a value");
        headers.insert("sec-websocket-extensions", value);
        let (agreed, _) = crate::offer::accept(&headers, &options).expect("an offer");
        let shared = Shared::new(options);
        (
            Deflating::new(&shared, agreed),
            Inflating::new(&shared, agreed),
        )
    }

    fn messages() -> Vec<Vec<u8>> {
        let mut random = fastrand::Rng::with_seed(7);
        let noise: Vec<u8> = (0..100_000).map(|_| random.u8(..)).collect();
        let mut messages = vec![vec![], b"a".to_vec(), vec![b'x'; 200_000], noise];
        messages.extend((0..20).map(|at| format!("message {at} of many").repeat(at).into_bytes()));
        messages
    }

    #[test]
    fn what_is_compressed_is_inflated_with_and_without_takeover_and_in_every_window() {
        let mut offers = vec!["permessage-deflate".to_owned()];
        for bits in 9..=15 {
            offers.push(format!(
                "permessage-deflate; server_max_window_bits={bits}; client_max_window_bits={bits}"
            ));
        }
        for takeover in [false, true] {
            for offer in &offers {
                let options = Deflate {
                    bytes_min: 0,
                    server_takeover: takeover,
                    client_takeover: takeover,
                    ..Deflate::default()
                };
                let (mut deflating, mut inflating) = pair(options, offer);
                for (round, message) in messages().into_iter().enumerate() {
                    if round % 7 == 6 {
                        deflating.rest();
                    }
                    let sent = Message::from(message.clone());
                    let Some(frame) = deflating.frame(&sent) else {
                        let is_plain = !takeover || message.is_empty();
                        assert!(is_plain, "{} bytes are sent as they are", message.len());
                        continue;
                    };
                    let inflated = inflating.inflate(frame.payload(), message.len());
                    assert_eq!(inflated.as_deref(), Ok(&message[..]), "{offer}");
                }
            }
        }
    }

    #[test]
    fn the_examples_of_section_7_2_3_are_inflated() {
        let (_, mut inflating) = pair(Deflate::default(), "permessage-deflate");
        let hello: [&[u8]; 4] = [
            &[0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00],
            // Without compression.
            &[
                0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00,
            ],
            // A block that is the last, and an empty one.
            &[0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00],
            // Two blocks.
            &[
                0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00,
            ],
        ];
        for payload in hello {
            let inflated = inflating.inflate(payload, 5);
            assert_eq!(inflated.as_deref(), Ok(&b"Hello"[..]), "{payload:x?}");
        }
        assert_eq!(inflating.inflate(&[0x00], 0).as_deref(), Ok(&b""[..]));
        let with_takeover = Deflate {
            client_takeover: true,
            ..Deflate::default()
        };
        let (_, mut inflating) = pair(with_takeover, "permessage-deflate");
        for payload in [hello[0], &[0xf2, 0x00, 0x11, 0x00, 0x00]] {
            let inflated = inflating.inflate(payload, 5);
            assert_eq!(inflated.as_deref(), Ok(&b"Hello"[..]), "{payload:x?}");
        }
    }

    #[test]
    fn a_bomb_is_refused_at_the_limit_and_nonsense_at_once() {
        let options = Deflate {
            level: 9,
            ..Deflate::default()
        };
        let (mut deflating, mut inflating) = pair(options, "permessage-deflate");
        let bomb = Message::from(vec![0; 10_000_000]);
        let frame = deflating.frame(&bomb).expect("it is compressed");
        assert!(frame.payload().len() < 20_000);
        let inflated = inflating.inflate(frame.payload(), 1 << 20);
        assert_eq!(inflated, Err(Fault::TooLong));
        for nonsense in [&[0xff; 20][..], &[0x06, 0x00], &[0x00, 0x05, 0x00]] {
            let inflated = inflating.inflate(nonsense, 1 << 20);
            assert_eq!(inflated, Err(Fault::Deflate), "{nonsense:x?}");
        }
        // What was broken before does no harm after.
        let inflated = inflating.inflate(frame.payload(), 10_000_000);
        assert_eq!(inflated.map(|bytes| bytes.len()), Ok(10_000_000));
    }
}
