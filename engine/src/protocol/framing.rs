//! Where messages end in a stream of bytes, and protocols made of that and a handler.
//!
//! A [`Framing`] finds whole messages at the front of an input: [`Lines`], [`Delimited`],
//! [`LengthPrefix`], or one of a program's own. It is pure, and can be used by itself in
//! [`Protocol::received`](crate::Protocol::received). [`Framed`] is a whole protocol: it does what
//! every protocol of messages has to do, and calls a [`Handler`] for each message.
//!
//! ```no_run
//! use flatpath::Server;
//! use flatpath::framing::{Framed, Lines, Next};
//!
//! fn main() -> Result<(), flatpath::Error> {
//!     // Answers each line with its length.
//!     let lengths = Framed::inline("lengths", Lines::new(1024), |(), io, line| {
//!         io.write(format!("{}\n", line.len()).as_bytes())?;
//!         Ok(Next::Message)
//!     });
//!     Server::new().listen("127.0.0.1:7777", lengths).run()
//! }
//! ```
//!
//! Every framing states the longest message. It is held at the front of the input until it is
//! whole, so it fits, with what marks its end, in
//! [`INPUT_BYTES_MAX`]: a framing that promises more cannot be made.
//! What is longer is a body of known length: [`Next::Body`].
//!
//! Cost: an incomplete message is looked at again with each arrival.

mod framed;
mod handler;
mod replies;
mod reply;

pub use framed::Framed;
pub use handler::{Handler, Inline, Input, Next, Place, Pooled};
pub use reply::Reply;

use memchr::{memchr, memmem};

use crate::limits::INPUT_BYTES_MAX;

/// The message at the front of an input is longer than its framing allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// What is allowed, in bytes.
    pub bytes_max: usize,
}

flatpath_structures::impl_error! {
    TooLong {
        Self { bytes_max } => "a message of more than {bytes_max} bytes",
    }
}

/// A message that no framing of its kind can carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// It is longer than the framing allows.
    TooLong(TooLong),
    /// It has the end of a message in it.
    Divided,
}

flatpath_structures::impl_error! {
    EncodeError {
        Self::TooLong(too_long) => "{too_long}",
        Self::Divided => "a message with the end of a message in it",
    }
}

/// A whole message, and what it takes of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// What a handler gets.
    pub message: &'a [u8],
    /// Bytes of the input, with what marks the message's length or end.
    pub bytes: usize,
}

/// Finds messages in a stream.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not tell where a message ends",
    label = "not a `Framing`",
    note = "`LengthPrefix`, `Lines` and `Delimited` are framings"
)]
pub trait Framing: Send + Sync + 'static {
    /// The message at the front of `input`; `None` while it is incomplete. It must be found, or
    /// refused, before it takes [`INPUT_BYTES_MAX`] of the input.
    ///
    /// # Errors
    /// [`TooLong`] as soon as it is clear that the message will be too long.
    fn first<'a>(&self, input: &'a [u8]) -> Result<Option<Frame<'a>>, TooLong>;

    /// Appends a message to `output`, with what marks its length or end, as [`Framing::first`]
    /// finds it: for clients, and for replies that are framed as requests are.
    ///
    /// ```
    /// use flatpath::framing::{Framing, LengthPrefix, Lines};
    ///
    /// let mut output = Vec::new();
    /// LengthPrefix::u16(100).encode(b"abc", &mut output).expect("it is short");
    /// assert_eq!(output, b"\0\x03abc");
    /// assert!(Lines::new(100).encode(b"two\nlines", &mut output).is_err());
    /// ```
    ///
    /// # Errors
    /// The message would not be found again. Nothing was appended.
    fn encode(&self, message: &[u8], output: &mut Vec<u8>) -> Result<(), EncodeError>;

    /// The whole messages at the front of `input`, in order.
    fn messages<'a>(&'a self, input: &'a [u8]) -> Messages<'a, Self>
    where
        Self: Sized,
    {
        Messages {
            framing: self,
            input,
            consumed: 0,
        }
    }
}

/// Messages at the front of an input; see [`Framing::messages`]. Ends at one that is incomplete,
/// and says the same error again and again at one that is too long.
#[derive(Clone, Debug)]
pub struct Messages<'a, F> {
    framing: &'a F,
    input: &'a [u8],
    consumed: usize,
}

impl<F> Messages<'_, F> {
    /// Bytes of the input that the messages so far took.
    pub fn consumed(&self) -> usize {
        self.consumed
    }
}

impl<'a, F: Framing> Iterator for Messages<'a, F> {
    type Item = Result<&'a [u8], TooLong>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.framing.first(&self.input[self.consumed..]) {
            Ok(Some(frame)) => {
                self.consumed += frame.bytes;
                Some(Ok(frame.message))
            }
            Ok(None) => None,
            Err(too_long) => Some(Err(too_long)),
        }
    }
}

/// Lines that end in LF or CRLF, which is not part of the message.
///
/// ```
/// use flatpath::framing::{Framing, Lines};
///
/// let first = Lines::new(80).first(b"one\r\ntwo").expect("it is short").expect("it is whole");
/// assert_eq!((first.message, first.bytes), (&b"one"[..], 5));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    bytes_max: usize,
}

impl Lines {
    /// Lines of at most `bytes_max` bytes.
    ///
    /// # Panics
    /// When the longest cannot be held: see the module.
    #[track_caller]
    pub fn new(bytes_max: usize) -> Lines {
        assert_fits(bytes_max, b"\r\n".len());
        Lines { bytes_max }
    }
}

impl Framing for Lines {
    fn first<'a>(&self, input: &'a [u8]) -> Result<Option<Frame<'a>>, TooLong> {
        let bytes_max = self.bytes_max;
        let longest = bytes_max + b"\r\n".len();
        let window = &input[..input.len().min(longest)];
        let Some(end) = memchr(b'\n', window) else {
            return incomplete(window.len() == longest, bytes_max);
        };
        let line = &window[..end];
        let message = line.strip_suffix(b"\r").unwrap_or(line);
        if message.len() > bytes_max {
            return Err(TooLong { bytes_max });
        }
        let bytes = end + 1;
        Ok(Some(Frame { message, bytes }))
    }

    fn encode(&self, message: &[u8], output: &mut Vec<u8>) -> Result<(), EncodeError> {
        // A CR at the end would be taken for half of a line end.
        let is_divided = memchr(b'\n', message).is_some() || message.ends_with(b"\r");
        check(message, self.bytes_max, is_divided)?;
        output.extend_from_slice(message);
        output.push(b'\n');
        Ok(())
    }
}

fn check(message: &[u8], bytes_max: usize, is_divided: bool) -> Result<(), EncodeError> {
    if message.len() > bytes_max {
        return Err(EncodeError::TooLong(TooLong { bytes_max }));
    }
    match is_divided {
        true => Err(EncodeError::Divided),
        false => Ok(()),
    }
}

/// Messages that end in the same bytes, which are not part of the message.
///
/// ```
/// use flatpath::framing::{Delimited, Framing};
///
/// let records = Delimited::new(b"\0", 80);
/// let first = records.first(b"one\0two").expect("it is short").expect("it is whole");
/// assert_eq!((first.message, first.bytes), (&b"one"[..], 4));
/// assert!(records.first(b"two").expect("it is short").is_none(), "its end is missing");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Delimited {
    delimiter: &'static [u8],
    bytes_max: usize,
}

impl Delimited {
    /// Messages of at most `bytes_max` bytes, each followed by `delimiter`.
    ///
    /// # Panics
    /// When the delimiter is empty, or the longest message cannot be held: see the module.
    #[track_caller]
    pub fn new(delimiter: &'static [u8], bytes_max: usize) -> Delimited {
        assert!(!delimiter.is_empty(), "a delimiter has bytes");
        assert_fits(bytes_max, delimiter.len());
        Delimited {
            delimiter,
            bytes_max,
        }
    }
}

impl Framing for Delimited {
    fn first<'a>(&self, input: &'a [u8]) -> Result<Option<Frame<'a>>, TooLong> {
        let longest = self.bytes_max + self.delimiter.len();
        let window = &input[..input.len().min(longest)];
        let Some(end) = memmem::find(window, self.delimiter) else {
            return incomplete(window.len() == longest, self.bytes_max);
        };
        Ok(Some(Frame {
            message: &window[..end],
            bytes: end + self.delimiter.len(),
        }))
    }

    fn encode(&self, message: &[u8], output: &mut Vec<u8>) -> Result<(), EncodeError> {
        let from = output.len();
        output.extend_from_slice(message);
        output.extend_from_slice(self.delimiter);
        // The delimiter may begin within the message.
        let is_divided = memmem::find(&output[from..], self.delimiter) != Some(message.len());
        let checked = check(message, self.bytes_max, is_divided);
        if checked.is_err() {
            output.truncate(from);
        }
        checked
    }
}

/// Messages with their length in front, big endian; the length does not count itself.
///
/// ```
/// use flatpath::framing::{Framing, LengthPrefix};
///
/// let framing = LengthPrefix::u32(4096);
/// let first = framing.first(b"\0\0\0\x03onetwo").expect("it is short").expect("it is whole");
/// assert_eq!((first.message, first.bytes), (&b"one"[..], 7));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct LengthPrefix {
    prefix_bytes: usize,
    bytes_max: usize,
}

impl LengthPrefix {
    /// Messages of at most `bytes_max` bytes behind a length of two bytes.
    ///
    /// # Panics
    /// When the longest cannot be held: see the module.
    #[track_caller]
    pub fn u16(bytes_max: usize) -> LengthPrefix {
        LengthPrefix::of(size_of::<u16>(), bytes_max)
    }

    /// Messages of at most `bytes_max` bytes behind a length of four bytes.
    ///
    /// # Panics
    /// As [`LengthPrefix::u16`].
    #[track_caller]
    pub fn u32(bytes_max: usize) -> LengthPrefix {
        LengthPrefix::of(size_of::<u32>(), bytes_max)
    }

    #[track_caller]
    fn of(prefix_bytes: usize, bytes_max: usize) -> LengthPrefix {
        assert_fits(bytes_max, prefix_bytes);
        LengthPrefix {
            prefix_bytes,
            bytes_max,
        }
    }
}

impl Framing for LengthPrefix {
    fn first<'a>(&self, input: &'a [u8]) -> Result<Option<Frame<'a>>, TooLong> {
        let bytes_max = self.bytes_max;
        let Some((prefix, rest)) = input.split_at_checked(self.prefix_bytes) else {
            return Ok(None);
        };
        let length = prefix
            .iter()
            .fold(0, |length, byte| length << 8 | u64::from(*byte));
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        if length > bytes_max {
            return Err(TooLong { bytes_max });
        }
        let bytes = self.prefix_bytes + length;
        Ok(rest.get(..length).map(|message| Frame { message, bytes }))
    }

    fn encode(&self, message: &[u8], output: &mut Vec<u8>) -> Result<(), EncodeError> {
        check(message, self.bytes_max, false)?;
        let length = (message.len() as u64).to_be_bytes();
        output.extend_from_slice(&length[length.len() - self.prefix_bytes..]);
        output.extend_from_slice(message);
        Ok(())
    }
}

fn incomplete(is_longest: bool, bytes_max: usize) -> Result<Option<Frame<'static>>, TooLong> {
    match is_longest {
        true => Err(TooLong { bytes_max }),
        false => Ok(None),
    }
}

#[track_caller]
fn assert_fits(bytes_max: usize, marks_bytes: usize) {
    let most = INPUT_BYTES_MAX - marks_bytes;
    assert!(
        bytes_max <= most,
        "a message of {bytes_max} bytes is never whole: at most {most} are held; use a body"
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages of `input` as text, the bytes they took, and whether one was too long.
    fn read(framing: &impl Framing, input: &[u8]) -> (Vec<String>, usize, bool) {
        let mut messages = framing.messages(input);
        let (mut read, mut is_too_long) = (Vec::new(), false);
        for message in messages.by_ref() {
            let Ok(message) = message else {
                is_too_long = true;
                break;
            };
            read.push(String::from_utf8_lossy(message).into_owned());
        }
        (read, messages.consumed(), is_too_long)
    }

    fn texts(read: &[&str]) -> Vec<String> {
        read.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn lines_end_in_lf_or_crlf_and_an_incomplete_one_stays() {
        let lines = Lines::new(10);
        let found = read(&lines, b"one\ntwo\r\n\nthr");
        assert_eq!(found, (texts(&["one", "two", ""]), 10, false));
        assert_eq!(read(&lines, b""), (vec![], 0, false));
        assert_eq!(read(&lines, b"a\rb\n"), (texts(&["a\rb"]), 4, false));
    }

    #[test]
    fn the_longest_line_is_read_and_one_more_byte_is_refused() {
        let lines = Lines::new(3);
        assert_eq!(read(&lines, b"abc\r\n"), (texts(&["abc"]), 5, false));
        assert_eq!(read(&lines, b"abc\n"), (texts(&["abc"]), 4, false));
        assert_eq!(read(&lines, b"abc\r"), (vec![], 0, false));
        assert_eq!(read(&lines, b"abcd\n"), (vec![], 0, true));
        assert_eq!(read(&lines, b"abcd"), (vec![], 0, false));
        assert_eq!(read(&lines, b"abcde"), (vec![], 0, true));
        assert_eq!(read(&lines, b"x\nabcde"), (texts(&["x"]), 2, true));
    }

    #[test]
    fn delimited_messages_end_at_the_whole_delimiter() {
        let delimited = Delimited::new(b"--", 3);
        let found = read(&delimited, b"a--b-c----ab");
        assert_eq!(found, (texts(&["a", "b-c", ""]), 10, false));
        assert_eq!(read(&delimited, b"abc-"), (vec![], 0, false));
        assert_eq!(read(&delimited, b"abcd-"), (vec![], 0, true));
    }

    #[test]
    fn a_length_is_big_endian_and_does_not_count_itself() {
        let found = read(&LengthPrefix::u16(300), b"\x00\x02ab\x00\x00\x00\x03ab");
        assert_eq!(found, (texts(&["ab", ""]), 6, false));
        let found = read(
            &LengthPrefix::u32(3),
            b"\x00\x00\x00\x03abc\x00\x00\x00\x04",
        );
        assert_eq!(found, (texts(&["abc"]), 7, true));
        assert_eq!(
            read(&LengthPrefix::u32(3), b"\xff\xff\xff"),
            (vec![], 0, false)
        );
        assert_eq!(
            read(&LengthPrefix::u16(300), b"\x01\x2d"),
            (vec![], 0, true)
        );
    }

    #[test]
    fn model_any_cut_of_a_stream_gives_the_same_messages() {
        let framings: [(&dyn Framing, &[u8]); 3] = [
            (&Lines::new(8), b"one\r\n\ntwo\nlast one\n"),
            (
                &Delimited::new(b"\0\0", 8),
                b"one\0\0\0\0two\0\0last one\0\0",
            ),
            (
                &LengthPrefix::u16(8),
                b"\0\x03one\0\0\0\x03two\0\x08last one",
            ),
        ];
        for (framing, stream) in framings {
            for step in 1..=stream.len() {
                let (mut held, mut found) = (Vec::new(), Vec::new());
                for piece in stream.chunks(step) {
                    held.extend_from_slice(piece);
                    while let Some(frame) = framing.first(&held).expect("short enough") {
                        found.push(String::from_utf8_lossy(frame.message).into_owned());
                        let bytes = frame.bytes;
                        held.drain(..bytes);
                    }
                }
                assert_eq!(found, texts(&["one", "", "two", "last one"]), "step {step}");
                assert_eq!(held, b"");
            }
        }
    }

    #[test]
    fn model_what_is_encoded_is_found_and_what_would_not_be_is_refused() {
        let framings: [&dyn Framing; 4] = [
            &Lines::new(5),
            &Delimited::new(b"ab\n", 5),
            &Delimited::new(b"aa", 5),
            &LengthPrefix::u16(5),
        ];
        let (mut encoded, mut refused) = (0, 0);
        // All messages of these four bytes, up to one too long.
        for framing in framings {
            for (length, number) in (0..=6)
                .flat_map(|length| (0..1 << (2 * length)).map(move |number| (length, number)))
            {
                let message: Vec<u8> = (0..length)
                    .map(|at: u32| b"ab\n\r"[number >> (2 * at) & 3])
                    .collect();
                let mut output = b"before".to_vec();
                match framing.encode(&message, &mut output) {
                    Ok(()) => {
                        output.extend_from_slice(b"more of it, long enough");
                        let found = framing.first(&output[6..]);
                        let found = found.expect("short").expect("whole");
                        assert_eq!(found.message, message);
                        assert_eq!(&output[6 + found.bytes..], b"more of it, long enough");
                        encoded += 1;
                    }
                    Err(_) => {
                        assert_eq!(output, b"before");
                        refused += 1;
                    }
                }
            }
        }
        assert!(encoded > 1000 && refused > 1000, "{encoded} and {refused}");
        let long = LengthPrefix::u16(5).encode(b"sixsix", &mut Vec::new());
        assert_eq!(long, Err(EncodeError::TooLong(TooLong { bytes_max: 5 })));
        let divided = Lines::new(5).encode(b"a\n", &mut Vec::new());
        assert_eq!(divided, Err(EncodeError::Divided));
    }

    #[test]
    #[should_panic(expected = "is never whole")]
    fn a_message_that_can_never_be_held_is_refused_at_the_start() {
        let _ = LengthPrefix::u32(INPUT_BYTES_MAX);
    }
}
