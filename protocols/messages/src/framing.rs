//! Messages in a stream: four bytes of length, big endian, then as many bytes.
//!
//! In front of the first message a producer may name a token: a length of `0xffff_ffff`, then eight
//! bytes, big endian. The decoder's user decides where that may come.
//!
//! The length counts the payload only. A length of zero only proves that the producer lives, and is
//! not delivered. A length above the limit is a fault, found before a byte of the payload is read;
//! the next message after it cannot be found, so the connection ends.
//!
//! Invariants
//! - F1: between two calls the decoder holds at most the bytes of a length or a token, and a count:
//!   no payload.
//! - F2: however a stream is cut into inputs, the messages in it are the same.
//!
//! Cost: O(1) a call; a call per chunk of a message.

/// Bytes in front of a message.
const LENGTH_BYTES: usize = 4;

/// In the place of a length: a token follows.
pub const TOKEN_MARK: u32 = u32::MAX;

const TOKEN_BYTES: usize = 8;

/// What the front of the input is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: the framing has no other; a new one needs a new version.
pub enum Part {
    /// The input is used up.
    Nothing,
    /// A message of this many bytes begins after what was consumed; never zero.
    Begin {
        /// Its length.
        message_bytes: u32,
    },
    /// The producer names a token; what was consumed ends with it.
    Token {
        /// Any word.
        token: u64,
    },
    /// The next bytes of the message, as long as what was consumed.
    Payload {
        /// The message is complete.
        last: bool,
    },
}

/// A length above the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The length that the producer announced, in bytes.
    pub message_bytes: u32,
}

flatpath_structures::impl_error! {
    TooLong {
        Self { message_bytes } => "a message of {message_bytes} bytes is longer than allowed",
    }
}

/// Finds messages in what one producer sends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Decoder {
    /// The bytes of a length or a token that came, and how many.
    head: [u8; TOKEN_BYTES],
    head_len: u8,
    /// It is a token.
    in_token: bool,
    /// Bytes that are to come of the message.
    left: u32,
}

impl Decoder {
    /// Decodes the front of `input`; how many bytes of it were consumed, and what they are. Call it
    /// until it returns [`Part::Nothing`].
    ///
    /// # Errors
    /// [`TooLong`] if a message is longer than `message_bytes_max`: the end of the stream.
    pub fn next(&mut self, input: &[u8], message_bytes_max: u32) -> Result<(usize, Part), TooLong> {
        if self.left > 0 {
            return Ok(self.payload(input));
        }
        for (consumed, byte) in (1..).zip(input) {
            self.head[usize::from(self.head_len)] = *byte;
            self.head_len += 1;
            let wanted = if self.in_token {
                TOKEN_BYTES
            } else {
                LENGTH_BYTES
            };
            if usize::from(self.head_len) < wanted {
                continue;
            }
            self.head_len = 0;
            if std::mem::take(&mut self.in_token) {
                let token = u64::from_be_bytes(self.head);
                return Ok((consumed, Part::Token { token }));
            }
            let [a, b, c, d, ..] = self.head;
            let message_bytes = u32::from_be_bytes([a, b, c, d]);
            if message_bytes == TOKEN_MARK {
                self.in_token = true;
            } else if message_bytes > message_bytes_max {
                return Err(TooLong { message_bytes });
            } else if message_bytes > 0 {
                self.left = message_bytes;
                return Ok((consumed, Part::Begin { message_bytes }));
            }
        }
        Ok((input.len(), Part::Nothing))
    }

    fn payload(&mut self, input: &[u8]) -> (usize, Part) {
        let taken = input.len().min(self.left as usize);
        if taken == 0 {
            return (0, Part::Nothing);
        }
        self.left -= taken as u32;
        let last = self.left == 0;
        (taken, Part::Payload { last })
    }

    /// Whether the stream may end here without a message cut off.
    pub fn is_between_messages(&self) -> bool {
        self.left == 0 && self.head_len == 0 && !self.in_token
    }
}

/// The bytes that name a token, in front of the first message.
pub fn naming(token: u64) -> [u8; LENGTH_BYTES + TOKEN_BYTES] {
    let mut bytes = [0xff; LENGTH_BYTES + TOKEN_BYTES];
    bytes[LENGTH_BYTES..].copy_from_slice(&token.to_be_bytes());
    bytes
}

/// The length that goes in front of a message. `None`: it does not fit 32 bits.
pub fn length(message_bytes: usize) -> Option<[u8; LENGTH_BYTES]> {
    u32::try_from(message_bytes).ok().map(u32::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `stream`, cut after `cuts`, and gathers whole messages.
    fn decode(stream: &[u8], cuts: &[usize], max: u32) -> Result<Vec<Vec<u8>>, TooLong> {
        let mut decoder = Decoder::default();
        let (mut messages, mut from) = (vec![], 0);
        for to in cuts.iter().copied().chain([stream.len()]) {
            let mut input = &stream[from..to.max(from)];
            from = to.max(from);
            loop {
                let (consumed, part) = decoder.next(input, max)?;
                match part {
                    Part::Nothing => {
                        assert_eq!(consumed, input.len(), "all is consumed");
                        break;
                    }
                    Part::Begin { message_bytes } => {
                        messages.push(Vec::with_capacity(message_bytes as usize));
                    }
                    Part::Token { token } => messages.push(token.to_be_bytes().to_vec()),
                    Part::Payload { last } => {
                        let message = messages.last_mut().expect("a message has begun");
                        message.extend_from_slice(&input[..consumed]);
                        assert_eq!(last, message.len() == message.capacity());
                    }
                }
                input = &input[consumed..];
            }
        }
        assert!(decoder.is_between_messages());
        Ok(messages)
    }

    fn encode(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut stream = vec![];
        for message in messages {
            stream.extend(length(message.len()).expect("short"));
            stream.extend(message);
        }
        stream
    }

    #[test]
    fn messages_are_the_same_however_the_stream_is_cut() {
        let messages = vec![vec![1; 5], vec![2; 1], vec![3; 300], vec![4; 2]];
        let stream = encode(&messages);
        for first in 0..stream.len() {
            for second in [first, first + 1, first + 3, first + 7] {
                let cuts = [first, second.min(stream.len())];
                assert_eq!(
                    decode(&stream, &cuts, 300).as_ref(),
                    Ok(&messages),
                    "{cuts:?}"
                );
            }
        }
        let all: Vec<usize> = (0..stream.len()).collect();
        assert_eq!(decode(&stream, &all, 300), Ok(messages));
    }

    #[test]
    fn a_token_is_read_however_the_stream_is_cut() {
        let token = 0x0102_0304_ffff_ffff_u64;
        let stream = [&naming(token)[..], &encode(&[vec![9; 3]])].concat();
        let read = vec![token.to_be_bytes().to_vec(), vec![9; 3]];
        for cut in 0..=stream.len() {
            assert_eq!(decode(&stream, &[cut], 3).as_ref(), Ok(&read), "{cut}");
        }
        let mut decoder = Decoder::default();
        assert_eq!(decoder.next(&naming(1)[..5], 3), Ok((5, Part::Nothing)));
        assert!(!decoder.is_between_messages());
    }

    #[test]
    fn a_length_of_zero_is_not_delivered() {
        let stream = encode(&[vec![], vec![], vec![7], vec![]]);
        let all: Vec<usize> = (0..stream.len()).collect();
        assert_eq!(decode(&stream, &[], 1), Ok(vec![vec![7]]));
        assert_eq!(decode(&stream, &all, 1), Ok(vec![vec![7]]));
    }

    #[test]
    fn a_length_above_the_limit_is_a_fault_and_one_at_it_is_not() {
        let stream = encode(&[vec![0; 8], vec![0; 9]]);
        assert_eq!(decode(&stream, &[], 8), Err(TooLong { message_bytes: 9 }));
        assert!(decode(&stream, &[], 9).is_ok());
        let hostile = [0xfe; 8];
        assert_eq!(
            decode(&hostile, &[2], crate::limits::MESSAGE_BYTES_MAX),
            Err(TooLong {
                message_bytes: 0xfefe_fefe
            })
        );
    }

    #[test]
    fn an_end_within_a_length_or_a_payload_is_seen() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.next(&[0, 0], 9), Ok((2, Part::Nothing)));
        assert!(!decoder.is_between_messages());
        assert_eq!(
            decoder.next(&[0, 1], 9),
            Ok((2, Part::Begin { message_bytes: 1 }))
        );
        assert_eq!(decoder.next(&[], 9), Ok((0, Part::Nothing)));
        assert!(!decoder.is_between_messages());
        assert_eq!(decoder.next(&[1], 9), Ok((1, Part::Payload { last: true })));
        assert!(decoder.is_between_messages());
    }

    #[test]
    fn model_random_cuts_of_random_messages_agree() {
        let mut rng = fastrand::Rng::with_seed(1);
        for round in 0..200 {
            let count = rng.usize(..6);
            let messages: Vec<Vec<u8>> = (0..count)
                .map(|message| vec![message as u8; rng.usize(1..=40)])
                .collect();
            let stream = encode(&messages);
            let mut cuts: Vec<usize> = (0..rng.usize(..8))
                .map(|_| rng.usize(..=stream.len()))
                .collect();
            cuts.sort_unstable();
            assert_eq!(
                decode(&stream, &cuts, 40),
                Ok(messages),
                "round {round}: {cuts:?}"
            );
        }
    }
}
