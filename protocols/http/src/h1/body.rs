//! The framing of bodies: what is data, and where the body ends.
//!
//! [`Decoder`] is fed input as it arrives and hands out runs of data in place. It keeps a few words
//! of state and no bytes; what to do with the data is for its owner to say. Trailers are checked,
//! and of the bytes that were taken last it says which are theirs.
//!
//! Invariants
//! - Verdict and data depend on the bytes alone, never on how they were split.
//! - Framing is bounded relative to data, so a body cannot be all framing: each chunk may cost
//!   `CHUNK_FREE_BYTES` plus twice its data, and beyond that all of them together
//!   `CHUNK_EXCESS_BYTES_MAX`.
//!
//! Cost: one step per byte of framing, none per byte of data.

use crate::head::Framing;
use crate::head::chars;
use crate::head::fault::Fault;
use crate::limits::{
    CHUNK_EXCESS_BYTES_MAX, CHUNK_FREE_BYTES, CHUNK_LINE_BYTES_MAX, CHUNK_SIZE_DIGITS_MAX,
    HEADERS_BYTES_MAX,
};

/// What [`Decoder::next`] found at the front of its input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: a decoder has data, needs more, or is done.
pub enum Piece<'a> {
    /// Data, not empty.
    Data(&'a [u8]),
    /// The input is used up and the body is not over.
    More,
    /// The body is over; what is left of the input is after it.
    End,
}

/// Takes the framing off one body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoder(State);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Length { left: u64 },
    Chunked(Chunked),
}

impl Decoder {
    /// A decoder at the beginning of a body.
    #[must_use]
    pub fn new(framing: Framing) -> Self {
        Self(match framing {
            Framing::Empty => State::Length { left: 0 },
            Framing::Length(left) => State::Length { left },
            Framing::Chunked => State::Chunked(Chunked::default()),
        })
    }

    /// True when the body is over.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        match self.0 {
            State::Length { left } => left == 0,
            State::Chunked(chunked) => chunked.at == At::Done,
        }
    }

    /// Bytes of data that are certainly still to come.
    #[must_use]
    pub fn announced(&self) -> u64 {
        match self.0 {
            State::Length { left } => left,
            State::Chunked(chunked) if chunked.at == At::Data => chunked.left,
            State::Chunked(_) => 0,
        }
    }

    /// Bytes of trailers that were taken so far, which are the last of all: when the body is
    /// complete, with the empty line that ends them.
    pub(crate) fn trailer_bytes(&self) -> usize {
        match self.0 {
            State::Length { .. } => 0,
            State::Chunked(chunked) => chunked.trailer_bytes(),
        }
    }

    /// Bytes of data still to come, where their number was announced and nothing is between them.
    pub(crate) fn left(&self) -> u64 {
        match self.0 {
            State::Length { left } => left,
            State::Chunked(_) => 0,
        }
    }

    /// The next bytes of data, fewer than [`Decoder::left`], have gone another way.
    pub(crate) fn skip(&mut self, bytes: u64) {
        debug_assert!(bytes < self.left(), "the end comes to the decoder");
        if let State::Length { left } = &mut self.0 {
            *left = left.saturating_sub(bytes);
        }
    }

    /// Takes the next piece from the front of `input` and moves it past that.
    ///
    /// # Errors
    /// The rule that the framing breaks. The connection must end after the answer.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, Fault> {
        match &mut self.0 {
            State::Length { left: 0 } => Ok(Piece::End),
            State::Length { left } => Ok(take_data(input, left)),
            State::Chunked(chunked) => chunked.next(input),
        }
    }
}

/// As much of the data as the input has.
fn take_data<'a>(input: &mut &'a [u8], left: &mut u64) -> Piece<'a> {
    let bytes = usize::try_from(*left).map_or(input.len(), |left| left.min(input.len()));
    if bytes == 0 {
        return Piece::More;
    }
    let (data, rest) = input.split_at(bytes);
    *left -= bytes as u64;
    *input = rest;
    Piece::Data(data)
}

/// What the next byte of a chunked body has to be (RFC 9112 section 7.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// The first digit of a chunk size.
    #[default]
    FirstDigit,
    /// Another digit, an extension, or the end of the line.
    Digits,
    /// White space after the size, which only an extension may follow.
    SizeGap,
    /// After the semicolon of an extension: its name.
    ExtensionName,
    /// Inside the name of an extension.
    InName,
    /// White space after a name.
    NameGap,
    /// After the equals sign: a value.
    ExtensionValue,
    /// Inside a value that is a token.
    InToken,
    /// Inside a value that is a quoted string.
    InQuotes,
    /// After a backslash in a quoted string.
    QuotedPair,
    /// After a quoted string.
    QuotesEnd,
    /// White space after a value.
    ValueGap,
    /// The line feed of a size line.
    SizeFeed,
    /// Data of a chunk.
    Data,
    /// The carriage return after the data.
    DataReturn,
    /// The line feed after the data.
    DataFeed,
    /// The first byte of a trailer line, or of the last line.
    TrailerLine,
    /// Inside the name of a trailer.
    TrailerName,
    /// Inside the value of a trailer.
    TrailerValue,
    /// The line feed of a trailer.
    TrailerFeed,
    /// The very last line feed.
    LastFeed,
    /// The body is over.
    Done,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Chunked {
    at: At,
    /// Data bytes of the current chunk still to come; while a size is read, the size so far.
    left: u64,
    /// Bytes of the current size line, then of the trailer section.
    line_bytes: u32,
    /// Framing that no data justifies.
    excess_bytes: u64,
}

impl Chunked {
    fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Piece<'a>, Fault> {
        loop {
            if self.at == At::Data {
                if self.left == 0 {
                    self.at = At::DataReturn;
                } else {
                    return Ok(take_data(input, &mut self.left));
                }
            }
            if self.at == At::Done {
                return Ok(Piece::End);
            }
            let Some((byte, rest)) = input.split_first() else {
                return Ok(Piece::More);
            };
            *input = rest;
            self.at = self.step(*byte)?;
        }
    }

    fn trailer_bytes(&self) -> usize {
        let of_end = match self.at {
            At::TrailerLine | At::TrailerName | At::TrailerValue | At::TrailerFeed => 0,
            At::LastFeed => "\r".len(),
            At::Done => "\r\n".len(),
            _ => return 0,
        };
        self.line_bytes as usize + of_end
    }

    /// The state after one byte of framing.
    fn step(&mut self, byte: u8) -> Result<At, Fault> {
        match (self.at, byte) {
            (At::FirstDigit, _) => {
                (self.left, self.line_bytes) = (0, 0);
                self.digit(byte)
            }
            (At::Digits, b'\r') => Ok(At::SizeFeed),
            (At::Digits | At::SizeGap, b' ' | b'\t') => self.extension(At::SizeGap),
            (At::Digits | At::SizeGap, b';') => self.extension(At::ExtensionName),
            (At::SizeGap, _) => Err(Fault::ChunkSize),
            (At::Digits, _) => self.digit(byte),
            (At::SizeFeed, b'\n') => self.size_line_ended(),
            (At::SizeFeed, _) => Err(Fault::BareCarriageReturn),
            (At::DataReturn, b'\r') => Ok(At::DataFeed),
            (At::DataFeed, b'\n') => Ok(At::FirstDigit),
            (At::DataReturn | At::DataFeed, _) => Err(Fault::ChunkEnd),
            (At::TrailerLine, b'\r') => Ok(At::LastFeed),
            (At::LastFeed, b'\n') => Ok(At::Done),
            (At::TrailerLine | At::TrailerName, _) if chars::is_token(byte) => {
                self.trailer(At::TrailerName)
            }
            (At::TrailerName, b':') => self.trailer(At::TrailerValue),
            (At::TrailerValue, b'\r') => self.trailer(At::TrailerFeed),
            (At::TrailerValue, _) if chars::is_header_value(&[byte]) => {
                self.trailer(At::TrailerValue)
            }
            (At::TrailerFeed, b'\n') => self.trailer(At::TrailerLine),
            (At::TrailerFeed | At::LastFeed, _) => Err(Fault::BareCarriageReturn),
            (At::TrailerLine | At::TrailerName | At::TrailerValue, _) => Err(Fault::Trailer),
            (At::Data | At::Done, _) => Ok(self.at),
            _ => self.in_extension(byte),
        }
    }

    /// The state after one byte of an extension (RFC 9112, 7.1.1):
    /// `*( BWS ";" BWS name [ BWS "=" BWS ( token / quoted-string ) ] )`.
    fn in_extension(&mut self, byte: u8) -> Result<At, Fault> {
        let is_gap = byte == b' ' || byte == b'\t';
        let next = match (self.at, byte) {
            (At::InName | At::InToken | At::QuotesEnd, b'\r') => return Ok(At::SizeFeed),
            (At::ExtensionName | At::ExtensionValue, _) if is_gap => self.at,
            (At::ExtensionName | At::InName, _) if chars::is_token(byte) => At::InName,
            (At::InName | At::NameGap, _) if is_gap => At::NameGap,
            (At::InName | At::NameGap, b'=') => At::ExtensionValue,
            (At::ExtensionValue, b'"') => At::InQuotes,
            (At::ExtensionValue | At::InToken, _) if chars::is_token(byte) => At::InToken,
            (At::InQuotes, b'"') => At::QuotesEnd,
            (At::InQuotes, b'\\') => At::QuotedPair,
            (At::InQuotes | At::QuotedPair, _) if chars::is_header_value(&[byte]) => At::InQuotes,
            (At::InToken | At::QuotesEnd | At::ValueGap, _) if is_gap => At::ValueGap,
            (At::InName | At::NameGap | At::InToken | At::QuotesEnd | At::ValueGap, b';') => {
                At::ExtensionName
            }
            _ => return Err(Fault::ChunkExtension),
        };
        self.extension(next)
    }

    /// `chunk-size = 1*HEXDIG`, where language libraries would also take signs and prefixes.
    fn digit(&mut self, byte: u8) -> Result<At, Fault> {
        let Some(value) = char::from(byte).to_digit(16) else {
            return Err(Fault::ChunkSize);
        };
        // RFC 9112 7.1: "recipients MUST anticipate potentially large hexadecimal numerals and
        // prevent parsing errors due to integer conversion overflows".
        if self.line_bytes as usize >= CHUNK_SIZE_DIGITS_MAX {
            return Err(Fault::ChunkSizeOverflow);
        }
        self.line_bytes += 1;
        self.left = (self.left << 4) | u64::from(value);
        Ok(At::Digits)
    }

    fn extension(&mut self, next: At) -> Result<At, Fault> {
        self.count_line(1)?;
        Ok(next)
    }

    fn count_line(&mut self, bytes: u32) -> Result<(), Fault> {
        self.line_bytes += bytes;
        if self.line_bytes as usize > CHUNK_LINE_BYTES_MAX - "\r\n".len() {
            return Err(Fault::ChunkOverhead);
        }
        Ok(())
    }

    fn size_line_ended(&mut self) -> Result<At, Fault> {
        let line_bytes = u64::from(self.line_bytes) + "\r\n".len() as u64;
        let justified = CHUNK_FREE_BYTES.saturating_add(self.left.saturating_mul(2));
        self.excess_bytes = (self.excess_bytes + line_bytes).saturating_sub(justified);
        if self.excess_bytes > CHUNK_EXCESS_BYTES_MAX {
            return Err(Fault::ChunkOverhead);
        }
        if self.left == 0 {
            self.line_bytes = 0;
            return Ok(At::TrailerLine);
        }
        Ok(At::Data)
    }

    fn trailer(&mut self, next: At) -> Result<At, Fault> {
        self.line_bytes += 1;
        if self.line_bytes as usize > HEADERS_BYTES_MAX {
            return Err(Fault::TrailerTooLong);
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decode(framing: Framing, input: &[u8]) -> Result<(Vec<u8>, usize, bool), Fault> {
        let mut decoder = Decoder::new(framing);
        let (mut rest, mut data) = (input, Vec::new());
        loop {
            match decoder.next(&mut rest)? {
                Piece::Data(bytes) => data.extend_from_slice(bytes),
                Piece::More => return Ok((data, input.len() - rest.len(), false)),
                Piece::End => return Ok((data, input.len() - rest.len(), true)),
            }
        }
    }

    fn chunked(input: &[u8]) -> Result<(Vec<u8>, usize, bool), Fault> {
        decode(Framing::Chunked, input)
    }

    #[test]
    fn a_length_takes_so_many_bytes_and_leaves_the_rest() {
        assert_eq!(
            decode(Framing::Length(3), b"abcdef"),
            Ok((b"abc".to_vec(), 3, true))
        );
        assert_eq!(
            decode(Framing::Length(3), b"ab"),
            Ok((b"ab".to_vec(), 2, false))
        );
        assert_eq!(decode(Framing::Empty, b"next"), Ok((Vec::new(), 0, true)));
    }

    #[test]
    fn chunks_are_joined_and_trailers_are_no_data() {
        let body = b"4\r\nWiki\r\n6;a=b; c=\"d\"\r\npedia \r\n0\r\nA: b\r\nC:\r\n\r\nnext";
        assert_eq!(
            chunked(body),
            Ok((b"Wikipedia ".to_vec(), body.len() - 4, true))
        );
        assert_eq!(
            chunked(b"000A\r\n0123456789\r\n0\r\n\r\n").map(|found| found.0.len()),
            Ok(10)
        );
    }

    #[test]
    fn chunk_sizes_are_hexadecimal_digits_and_nothing_else() {
        for size in [
            "", "0x1", "+1", "-1", " 1", "1 ", "1_0", "g", "1\t", "１", "\n",
        ] {
            let body = format!("{size}\r\nx\r\n0\r\n\r\n");
            assert_eq!(chunked(body.as_bytes()), Err(Fault::ChunkSize), "{size:?}");
        }
        assert_eq!(
            chunked(b"10000000000000000\r\n"),
            Err(Fault::ChunkSizeOverflow)
        );
        assert_eq!(
            chunked(b"00000000000000001\r\n"),
            Err(Fault::ChunkSizeOverflow)
        );
        let largest = chunked(b"FFFFFFFFFFFFFFFF\r\nxyz").expect("64 bits hold it");
        assert_eq!((largest.0.as_slice(), largest.2), (&b"xyz"[..], false));
    }

    #[test]
    fn lines_of_chunks_end_with_both_characters() {
        for body in [&b"1\nx\r\n0\r\n\r\n"[..], b"1;a\nx\r\n"] {
            assert!(chunked(body).is_err(), "a bare line feed");
        }
        assert_eq!(chunked(b"1\rx"), Err(Fault::BareCarriageReturn));
        assert_eq!(chunked(b"1\r\nxy\r\n"), Err(Fault::ChunkEnd));
        assert_eq!(chunked(b"1\r\nx\n"), Err(Fault::ChunkEnd));
        assert_eq!(chunked(b"1\r\nx\r0"), Err(Fault::ChunkEnd));
        assert_eq!(chunked(b"0\r\n\n"), Err(Fault::Trailer));
        assert_eq!(chunked(b"0\r\n\rx"), Err(Fault::BareCarriageReturn));
    }

    #[test]
    fn extensions_are_ignored_when_they_are_sound() {
        for line in [
            "1;a",
            "1;a=b",
            "1 ;a=b",
            "1\t ; a = b ;c",
            "1;a=\"\"",
            "1;a=\"b;\\\"=\" ;c=d",
        ] {
            let body = format!("{line}\r\nx\r\n0;b=c\r\n\r\n");
            assert!(
                chunked(body.as_bytes()).is_ok_and(|found| found.2),
                "{line}"
            );
        }
        for line in [
            "1;",
            "1;=",
            "1;a\0",
            "1;;a",
            "1;a=",
            "1;bad[=x",
            "1;a=b c",
            "1;a b",
            "1;a=\"b",
            "1;a=\"b\"c",
            "1;a=b=c",
            "1;a ",
            "1;a=b ",
            "1;a=\"\\\r",
        ] {
            let body = format!("{line}\r\nx");
            assert_eq!(
                chunked(body.as_bytes()),
                Err(Fault::ChunkExtension),
                "{line}"
            );
        }
    }

    #[test]
    fn trailers_are_headers() {
        for body in [
            &b"0\r\nA : b\r\n\r\n"[..],
            b"0\r\n: b\r\n",
            b"0\r\nA\r\n",
            b"0\r\n A: b\r\n",
        ] {
            assert_eq!(chunked(body), Err(Fault::Trailer), "{body:?}");
        }
        assert_eq!(chunked(b"0\r\nA: \0\r\n"), Err(Fault::Trailer));
    }

    #[test]
    fn extensions_of_one_line_are_bounded() {
        let line = |bytes: usize| {
            let mut body = b"1;".to_vec();
            body.resize(bytes - 2, b'a');
            body.extend_from_slice(b"\r\nx\r\n0\r\n\r\n");
            chunked(&body).map(|found| found.2)
        };
        assert_eq!(line(CHUNK_LINE_BYTES_MAX), Ok(true));
        assert_eq!(line(CHUNK_LINE_BYTES_MAX + 1), Err(Fault::ChunkOverhead));
    }

    #[test]
    fn framing_may_not_outweigh_data_for_ever() {
        let mut decoder = Decoder::new(Framing::Chunked);
        let chunk = format!("1;{}\r\nx\r\n", "a".repeat(1000));
        let mut taken = 0u64;
        let fault = loop {
            let mut rest = chunk.as_bytes();
            let failed = loop {
                match decoder.next(&mut rest) {
                    Ok(Piece::Data(_)) => {}
                    Ok(Piece::More | Piece::End) => break None,
                    Err(fault) => break Some(fault),
                }
            };
            taken += chunk.len() as u64;
            if failed.is_some() || taken > 4 * CHUNK_EXCESS_BYTES_MAX {
                break failed;
            }
        };
        assert_eq!(fault, Some(Fault::ChunkOverhead));
        let tiny = b"1\r\nx\r\n".repeat(100_000);
        assert!(
            chunked(&tiny).is_ok(),
            "small chunks without extensions are no attack"
        );
    }

    #[test]
    fn the_bytes_of_trailers_are_known_after_each_of_them() {
        let (before, section) = (&b"1\r\nx\r\n0\r\n"[..], &b"A: b\r\nC:\r\n\r\n"[..]);
        let mut decoder = Decoder::new(Framing::Chunked);
        for (at, byte) in [before, section].concat().iter().enumerate() {
            let mut rest = &[*byte][..];
            decoder.next(&mut rest).expect("it is right");
            let expected = (at + 1).saturating_sub(before.len());
            assert_eq!(decoder.trailer_bytes(), expected, "after {at}");
        }
        assert!(decoder.is_complete());
    }

    #[test]
    fn trailers_are_bounded() {
        let trailers = |bytes: usize| {
            let mut body = b"0\r\nA:".to_vec();
            body.resize(3 + bytes - 2, b'v');
            body.extend_from_slice(b"\r\n\r\n");
            chunked(&body).map(|found| found.2)
        };
        assert_eq!(trailers(HEADERS_BYTES_MAX), Ok(true));
        assert_eq!(trailers(HEADERS_BYTES_MAX + 1), Err(Fault::TrailerTooLong));
    }
}
