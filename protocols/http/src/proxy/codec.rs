//! Replies of an upstream as they arrive: the client's side of HTTP/1.1, without I/O.
//!
//! A [`Codec`] learns of each request that is sent ([`Codec::expect`]), is offered what arrives,
//! and hands out heads and runs of data in place. It keeps a few words of state and no bytes. It is
//! as strict as the server's side ([`Scan`], [`Decoder`], `framing`), whose rules it shares: where
//! RFC 9112 leaves a choice between repairing and refusing, it refuses. What delimits a reply is
//! section 6.3's, in its order ([`body_of`]).
//!
//! Invariants
//! - UC1: verdict and data depend on the bytes alone, never on how they were split.
//! - UC2: after a fault nothing more of the connection is a reply: the verdict stays.
//! - UC3: a connection may have another request only after [`End::Reusable`]: the reply ended where
//!   its framing says, in a version and with options that let the connection continue, and no byte
//!   came after it.
//! - UC4: a byte that comes while no request is out is a fault ([`ReplyFault::Unasked`]); so a
//!   reply never answers a request that was sent after it had begun to arrive.
//!
//! Cost: each byte of a head is looked at twice (its end, its words), one of data never.

use bytes::Bytes;
use flatpath::limits::INPUT_BYTES_MAX;

use crate::h1::body::{Decoder, Piece};
use crate::head::fault::Fault;
use crate::head::framing::{connection_options, content_length, transfer_coding};
use crate::head::scan::Scan;
use crate::head::{Framing, HeaderIndex, HeaderSlots, KnownHeader, header_slots};
use crate::limits::{HEADERS_BYTES_MAX, HEADERS_MAX, Limits, TARGET_BYTES_MAX};

/// Interim replies (1xx) that may come before one reply: `100`, `103` and a few `102` of a slow
/// answer. Without a bound they would be a reply that never comes.
pub(crate) const INTERIM_MAX: u32 = 16;

const _: () = assert!(
    crate::limits::HEAD_BYTES_MAX <= INPUT_BYTES_MAX,
    "the longest head waits in the input until it is whole"
);

/// Bounds of the heads of replies: those of requests. A status line may be as long as a request
/// line.
const HEAD_LIMITS: Limits = Limits {
    target_bytes_max: TARGET_BYTES_MAX,
    headers_bytes_max: HEADERS_BYTES_MAX,
    headers_max: HEADERS_MAX,
    body_bytes_max: 0,
};

/// What every status line begins with that is taken.
const VERSION_PREFIX: &[u8] = b"HTTP/1.";

/// What is wrong with a reply. Its connection ends, and no other client gets anything of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReplyFault {
    /// Bytes came while no request was out, or after the end of the reply.
    Unasked,
    /// The first line is none of HTTP/1.0 or 1.1 with a status from 100 to 599.
    StatusLine,
    /// A header line, or the line end of one, is malformed; or there are too many.
    Head(Fault),
    /// Length or transfer coding are malformed or contradict each other.
    Framing(Fault),
    /// A reply that has no body announces one: 1xx or 204 with a length or chunks.
    BodyNotAllowed,
    /// `101`, which the request did not ask for.
    Upgrade,
    /// More than [`INTERIM_MAX`] interim replies.
    TooManyInterim,
    /// The framing inside of the body is malformed.
    Body(Fault),
    /// The connection ended within the head.
    CutInHead,
    /// The connection ended within the body.
    CutInBody,
}

flatpath::impl_error! {
    ReplyFault {
        Self::Unasked => "bytes came that no request had asked for",
        Self::StatusLine => "the status line is malformed",
        Self::Head(..) => "a header line is malformed, or the head is too long",
        Self::Framing(..) => "the length of the reply is malformed or contradicts itself",
        Self::BodyNotAllowed => "a body is announced where none may be",
        Self::Upgrade => "the protocol was switched, which was not asked for",
        Self::TooManyInterim => "too many interim replies came before the reply",
        Self::Body(..) => "the chunks of the reply are malformed",
        Self::CutInHead => "the connection ended within the head of the reply",
        Self::CutInBody => "the connection ended within the body of the reply",
    }
}

/// What a request says that decides how its reply is delimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The method is `HEAD`: no body follows, whatever the head says.
    pub(crate) is_head: bool,
    /// It asked for an upgrade, so `101` is an answer.
    pub(crate) upgrade: bool,
}

/// How the body of a reply is delimited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: RFC 9112 section 6.3 has no other.
pub(crate) enum ReplyBody {
    /// By a length, which may be none, or by chunks.
    Framed(Framing),
    /// By the end of the connection.
    UntilClose,
}

/// The head of a reply, in the input.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReplyHead<'a> {
    pub(crate) status: u16,
    pub(crate) headers: &'a [httparse::Header<'a>],
    pub(crate) body: ReplyBody,
    /// What `Content-Length` says, also where no body follows (`HEAD`, 304).
    pub(crate) stated_length: Option<u64>,
    /// The connection may continue after the reply, as far as its head says.
    pub(crate) keep_alive: bool,
}

impl ReplyHead<'_> {
    /// Whether another one follows for the same request.
    pub(crate) fn is_interim(&self) -> bool {
        self.status < 200 && self.status != 101
    }
}

/// How a reply has ended.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The connection may have another request.
    Reusable,
    /// It may not.
    Last,
}

/// A part of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part<'a> {
    /// Data, not empty.
    Data(&'a [u8]),
    /// The body is over, these lines come after it.
    End(End, &'a [u8]),
    /// The input is used up, but for this many bytes at its end, which are offered again with more.
    More { kept: usize },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    /// No request is out.
    #[default]
    Idle,
    Head(Scan),
    Body(Decoder),
    UntilClose,
    /// The connection is another protocol's.
    Switched,
    /// Nothing more is taken.
    Over,
}

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Codec {
    stage: Stage,
    asked: Asked,
    interim_count: u32,
    keep_alive: bool,
}

impl Codec {
    /// A request is sent: its reply is expected.
    pub(crate) fn expect(&mut self, asked: Asked) {
        debug_assert_eq!(self.stage, Stage::Idle, "one request at a time");
        *self = Self {
            stage: Stage::Head(Scan::new()),
            asked,
            interim_count: 0,
            keep_alive: false,
        };
    }

    /// Whether nothing of the reply has come yet: then a request that its upstream has not read may
    /// be sent again.
    pub(crate) fn is_untouched(&self) -> bool {
        let is_new = matches!(self.stage, Stage::Head(scan) if scan.is_untouched());
        is_new && self.interim_count == 0
    }

    /// Whether the next byte belongs to a head, or to nothing.
    pub(crate) fn awaits_head(&self) -> bool {
        matches!(self.stage, Stage::Idle | Stage::Head(_) | Stage::Over)
    }

    /// Takes the next head from the front of the input, which begins with all that was left of it
    /// before; the bytes that it has, and what `take` makes of it. `None`: it is not complete.
    ///
    /// # Errors
    /// What is wrong. The connection is to be aborted.
    pub(crate) fn head<T>(
        &mut self,
        input: &[u8],
        take: impl FnOnce(&ReplyHead<'_>) -> T,
    ) -> Result<Option<(usize, T)>, ReplyFault> {
        let taken = self.take_head(input, take);
        if taken.is_err() {
            self.stage = Stage::Over;
        }
        taken
    }

    fn take_head<T>(
        &mut self,
        input: &[u8],
        take: impl FnOnce(&ReplyHead<'_>) -> T,
    ) -> Result<Option<(usize, T)>, ReplyFault> {
        if input.is_empty() {
            return Ok(None);
        }
        let Stage::Head(mut scan) = self.stage else {
            return Err(ReplyFault::Unasked);
        };
        // Rubbish is refused at once, and so are the empty lines that a request may have before it.
        let common = input.len().min(VERSION_PREFIX.len());
        if input[..common] != VERSION_PREFIX[..common] {
            return Err(ReplyFault::StatusLine);
        }
        let Some(bytes) = scan.advance(input, &HEAD_LIMITS).map_err(of_scan)? else {
            self.stage = Stage::Head(scan);
            return Ok(None);
        };
        let mut slots = header_slots();
        let head = parse(&input[..bytes], &mut slots, self.asked)?;
        if head.is_interim() {
            self.interim_count += 1;
            if self.interim_count > INTERIM_MAX {
                return Err(ReplyFault::TooManyInterim);
            }
            self.stage = Stage::Head(Scan::new());
        } else {
            self.keep_alive = head.keep_alive;
            self.stage = match head.body {
                _ if head.status == 101 => Stage::Switched,
                ReplyBody::Framed(framing) => Stage::Body(Decoder::new(framing)),
                ReplyBody::UntilClose => Stage::UntilClose,
            };
        }
        Ok(Some((bytes, take(&head))))
    }

    /// Takes the next part of the body from the front of `input`, and moves it past that.
    ///
    /// # Errors
    /// What is wrong with the framing, or that there are bytes after the end.
    pub(crate) fn body<'a>(&mut self, input: &mut &'a [u8]) -> Result<Part<'a>, ReplyFault> {
        let taken = self.take_body(input);
        if taken.is_err() {
            self.stage = Stage::Over;
        }
        taken
    }

    /// Takes all of the body, and how it ended, if it is here, has no lines after it and is not
    /// longer than `bytes_max`. Of any other nothing is copied, and nothing has moved.
    pub(crate) fn whole_body(
        &mut self,
        input: &mut &[u8],
        bytes_max: usize,
    ) -> Option<(Bytes, End)> {
        let (mut ahead, mut rest) = (*self, *input);
        let (mut first, mut bytes) = (&[][..], 0);
        let end = loop {
            match ahead.body(&mut rest) {
                Ok(Part::Data(data)) if bytes + data.len() <= bytes_max => {
                    if bytes == 0 {
                        first = data;
                    }
                    bytes += data.len();
                }
                Ok(Part::End(end, [] | [b'\r', b'\n'])) => break end,
                _ => return None,
            }
        };
        let body = match first.len() == bytes {
            true => Bytes::copy_from_slice(first),
            false => {
                let mut body = Vec::with_capacity(bytes);
                while let Ok(Part::Data(data)) = self.body(input) {
                    body.extend_from_slice(data);
                }
                body.into()
            }
        };
        (*self, *input) = (ahead, rest);
        Some((body, end))
    }

    fn take_body<'a>(&mut self, input: &mut &'a [u8]) -> Result<Part<'a>, ReplyFault> {
        match &mut self.stage {
            Stage::UntilClose => Ok(match std::mem::take(input) {
                [] => Part::More { kept: 0 },
                data => Part::Data(data),
            }),
            Stage::Body(decoder) => {
                let whole = *input;
                // Lines after the last chunk wait in the input for the rest of them, and were
                // looked at.
                let seen = decoder.trailer_bytes().min(whole.len());
                let mut rest = &whole[seen..];
                let piece = decoder.next(&mut rest).map_err(ReplyFault::Body)?;
                let trailer_bytes = decoder.trailer_bytes();
                match piece {
                    Piece::Data(data) => {
                        *input = rest;
                        Ok(Part::Data(data))
                    }
                    Piece::More => {
                        *input = rest;
                        Ok(Part::More {
                            kept: trailer_bytes,
                        })
                    }
                    Piece::End => {
                        let end = whole.len() - rest.len();
                        let lines = &whole[end - trailer_bytes..end];
                        *input = rest;
                        self.ended(rest.is_empty(), lines)
                    }
                }
            }
            Stage::Idle | Stage::Head(_) | Stage::Switched | Stage::Over => {
                Err(ReplyFault::Unasked)
            }
        }
    }

    fn ended<'a>(&mut self, is_all: bool, lines: &'a [u8]) -> Result<Part<'a>, ReplyFault> {
        // What follows was not asked for. The reply is whole all the same, and its client's.
        if self.keep_alive && is_all {
            self.stage = Stage::Idle;
            return Ok(Part::End(End::Reusable, lines));
        }
        self.stage = Stage::Over;
        Ok(Part::End(End::Last, lines))
    }

    /// The upstream has sent its end. `Ok` for one that ends a body, or comes while nothing is
    /// asked for.
    ///
    /// # Errors
    /// The reply is not complete.
    pub(crate) fn input_ended(&mut self) -> Result<(), ReplyFault> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Head(_) => Err(ReplyFault::CutInHead),
            Stage::Body(_) => Err(ReplyFault::CutInBody),
            Stage::Idle | Stage::UntilClose | Stage::Switched | Stage::Over => Ok(()),
        }
    }
}

/// What the search for the end of a head has refused, in words for replies.
fn of_scan(fault: Fault) -> ReplyFault {
    match fault {
        Fault::RequestLine | Fault::MethodTooLong | Fault::TargetTooLong | Fault::EmptyLines => {
            ReplyFault::StatusLine
        }
        other => ReplyFault::Head(other),
    }
}

fn parse<'a>(
    text: &'a [u8],
    slots: &'a mut HeaderSlots<'a>,
    asked: Asked,
) -> Result<ReplyHead<'a>, ReplyFault> {
    let mut reply = httparse::Response::new(&mut []);
    let config = httparse::ParserConfig::default();
    match config.parse_response_with_uninit_headers(&mut reply, text, slots) {
        Ok(httparse::Status::Complete(bytes)) if bytes == text.len() => {}
        Ok(_) => return Err(ReplyFault::StatusLine),
        Err(httparse::Error::Version | httparse::Error::Status | httparse::Error::Token) => {
            return Err(ReplyFault::StatusLine);
        }
        Err(_) => return Err(ReplyFault::Head(Fault::HeaderName)),
    }
    let (Some(minor), Some(status)) = (reply.version, reply.code) else {
        return Err(ReplyFault::StatusLine);
    };
    if !(100..600).contains(&status) {
        return Err(ReplyFault::StatusLine);
    }
    let headers: &'a [httparse::Header<'a>] = reply.headers;
    let mut first = HeaderIndex::none();
    for (index, header) in headers.iter().enumerate() {
        if let Some(known) = KnownHeader::from_name(header.name) {
            first.note(known, index);
        }
    }
    let is_old = minor == 0;
    let (stated_length, body) = body_of(status, headers, &first, (is_old, asked))?;
    let (keep_alive, upgrades) = match first.index(KnownHeader::Connection) {
        None => (!is_old, false),
        Some(index) => connection_options(headers, index, is_old),
    };
    if status == 101 && !(asked.upgrade && upgrades) {
        return Err(ReplyFault::Upgrade);
    }
    Ok(ReplyHead {
        status,
        headers,
        body,
        stated_length,
        keep_alive: keep_alive && body != ReplyBody::UntilClose,
    })
}

/// What `Content-Length` says, and how the body is delimited: RFC 9112 section 6.3.
fn body_of(
    status: u16,
    headers: &[httparse::Header<'_>],
    first: &HeaderIndex,
    (is_old, asked): (bool, Asked),
) -> Result<(Option<u64>, ReplyBody), ReplyFault> {
    let length = match first.index(KnownHeader::ContentLength) {
        None => None,
        Some(index) => match content_length(headers, index).map_err(ReplyFault::Framing)? {
            Framing::Length(length) => Some(length),
            Framing::Empty | Framing::Chunked => Some(0),
        },
    };
    let coding = match first.index(KnownHeader::TransferEncoding) {
        None => None,
        // "A server or client that receives an HTTP/1.0 message containing a Transfer-Encoding
        // header MUST treat the message as if the framing is faulty".
        Some(_) if is_old => return Err(ReplyFault::Framing(Fault::CodingInOldVersion)),
        Some(_) if length.is_some() => return Err(ReplyFault::Framing(Fault::LengthAndCoding)),
        Some(index) => Some(transfer_coding(headers, index).map_err(ReplyFault::Framing)?),
    };
    let none = ReplyBody::Framed(Framing::Empty);
    // "A server MUST NOT send" either "in any response with a status code of 1xx (Informational) or
    // 204 (No Content)": what comes after it would be read as a body by others. A length of zero,
    // which some send, is none.
    if status < 200 || status == 204 {
        let is_empty = coding.is_none() && length.unwrap_or(0) == 0;
        return match is_empty {
            true => Ok((None, none)),
            false => Err(ReplyFault::BodyNotAllowed),
        };
    }
    let body = match (coding, length) {
        _ if asked.is_head || status == 304 => none,
        (Some(framing), _) => ReplyBody::Framed(framing),
        (None, Some(0)) => none,
        (None, Some(length)) => ReplyBody::Framed(Framing::Length(length)),
        (None, None) => ReplyBody::UntilClose,
    };
    Ok((length, body))
}

#[cfg(test)]
mod tests;
