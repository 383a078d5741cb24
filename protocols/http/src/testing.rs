//! Requests without a server: for tests and fuzzing of services and of this crate.
//!
//! Pure functions from bytes to bytes; no thread, no clock, no descriptor.

use flatpath::Turn;
use flatpath::memory::PoolHandle;

use crate::h1::body::{Decoder, Piece};
#[cfg(feature = "http2")]
use crate::h2::hpack;
use crate::head::fault::Fault;
use crate::head::names::Names;
pub use crate::head::parse::with_head;
use crate::head::request_builder::RequestBuilder;
use crate::head::{Head, RequestMeta};
use crate::limits::Limits;
use crate::message::{Body, Request, Response};
use crate::respond::date::DateLine;
use crate::respond::encode::ReplyFraming;
use crate::respond::outgoing::OutgoingHead;
use crate::respond::reply::{Disposition, Out, Reply};
use crate::service::{Place, Service};
use crate::trailers::Trailers;

/// Blocks of fields of one connection of HTTP/2, one after the other (RFC 7541).
#[cfg(feature = "http2")]
#[derive(Default)]
pub struct Blocks(hpack::Decoder);

#[cfg(feature = "http2")]
flatpath::opaque_debug! {
    impl[] Blocks as "Blocks";
}

#[cfg(feature = "http2")]
impl Blocks {
    /// Its client has heard that there is no table.
    pub fn told(&mut self) {
        self.0.told();
    }

    /// The fields of the next block; None: it is none.
    pub fn fields(&mut self, block: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut list = hpack::FieldList::default();
        list.begin(usize::MAX);
        self.0.decode(block, &mut list).ok()?;
        let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
        Some(list.iter().map(owned).collect())
    }
}

/// A block of these fields, as replies have it: names are in small letters.
#[cfg(feature = "http2")]
pub fn put_block<'f>(fields: impl Iterator<Item = (&'f [u8], &'f [u8])>) -> Vec<u8> {
    let mut block = Vec::new();
    fields.for_each(|(name, value)| hpack::put_field(&mut block, name, value));
    block
}

/// The request that `input` begins with, body included, and the bytes it takes; None when it is not
/// complete.
///
/// # Errors
/// The rule that it breaks.
pub fn request(input: &[u8]) -> Result<Option<(Request, usize)>, Fault> {
    let filled = with_head(input, |head| {
        let mut builder = RequestBuilder::default();
        builder.fill(head, &mut Names::new())?;
        Ok((builder, head.framing(), head.bytes()))
    })?;
    let Some((mut builder, framing, head_bytes)) = filled.transpose()? else {
        return Ok(None);
    };
    let mut decoder = Decoder::new(framing);
    let (mut rest, mut body) = (&input[head_bytes..], Vec::new());
    loop {
        match decoder.next(&mut rest)? {
            Piece::Data(data) => body.extend_from_slice(data),
            Piece::More => return Ok(None),
            Piece::End => break,
        }
    }
    let end = input.len() - rest.len();
    let section = &input[end - decoder.trailer_bytes()..end];
    Trailers::of_lines(section, &Limits::default())?.leave(&mut builder.request);
    if !body.is_empty() {
        *builder.request.body_mut() = body.into();
    }
    Ok(Some((builder.request, end)))
}

/// The inline answer of a service to the request that `input` begins with, as its client would get
/// it; None when the request is not complete or the service leaves it to workers.
///
/// # Errors
/// The rule that the request breaks.
pub fn inline<S: Service>(
    service: &S,
    thread: &mut S::ThreadState,
    turn: Turn,
    input: &[u8],
) -> Result<Option<Vec<u8>>, Fault> {
    let written = with_head(input, |head| {
        written(head, turn, |reply| here(service, thread, turn, head, reply))
    })?;
    Ok(written.flatten())
}

/// What the service does with a request on the network thread.
fn here<'s, S: Service>(
    service: &'s S,
    thread: &mut S::ThreadState,
    turn: Turn,
    head: &Head<'_>,
    reply: &mut Reply<'_>,
) -> Disposition<'s> {
    match service.plan(head).place {
        Place::Inline => service.inline(thread, turn, head, reply),
        Place::Prompt(right) => Disposition::Prompt(right),
        Place::Worker => Disposition::Pooled,
        Place::Within(terms) => Disposition::Within(terms),
    }
}

/// Whether a request is tried on the network thread; false when it is not complete.
///
/// # Errors
/// The rule that the request breaks.
pub fn is_tried<S: Service>(
    service: &S,
    thread: &mut S::ThreadState,
    turn: Turn,
    input: &[u8],
) -> Result<bool, Fault> {
    let is_tried = with_head(input, |head| {
        let mut is_tried = false;
        let _ = written(head, turn, |reply| {
            let disposition = here(service, thread, turn, head, reply);
            is_tried = matches!(disposition, Disposition::Prompt(_));
            disposition
        });
        is_tried
    })?;
    Ok(is_tried.unwrap_or(false))
}

/// The answer of a try on the network thread; None when the request is not complete, or the service
/// answers it inline or leaves it to workers.
///
/// # Errors
/// The rule that the request breaks.
pub fn prompt<S: Service>(
    service: &S,
    thread: &mut S::ThreadState,
    turn: Turn,
    input: &[u8],
    pool: PoolHandle<'_>,
) -> Result<Option<Vec<u8>>, Fault> {
    if !is_tried(service, thread, turn, input)? {
        return Ok(None);
    }
    let written = with_head(input, |head| {
        written(head, turn, |reply| {
            service.prompt(thread, turn, head, pool, reply)
        })
    })?;
    Ok(written.flatten())
}

/// A response as the client of `head` would get it.
#[must_use]
pub fn encoded(head: &Head<'_>, turn: Turn, response: Response) -> Vec<u8> {
    written(head, turn, |reply| reply.response(response)).unwrap_or_default()
}

/// What `answer` writes, as it goes over the wire; cut off where its body cannot be read.
fn written<'s>(
    head: &Head<'_>,
    turn: Turn,
    answer: impl FnOnce(&mut Reply<'_>) -> Disposition<'s>,
) -> Option<Vec<u8>> {
    let (mut scratch, mut date) = (Vec::new(), DateLine::new());
    let request = RequestMeta::of(head);
    let date = date.at(turn.wall(), request.spoken);
    let mut reply = Reply::new(Out::scratch(&mut scratch), date, request);
    if !matches!(answer(&mut reply), Disposition::Answered) {
        return None;
    }
    let mut reply = reply.written();
    let OutgoingHead::Bytes(head) = &mut reply.head else {
        debug_assert!(false, "it was written to scratch space");
        return None;
    };
    let mut out = std::mem::take(head);
    let is_chunked = reply.framing == ReplyFraming::Chunked;
    match std::mem::take(&mut reply.body) {
        Body::Channel(_) => debug_assert!(false, "a server is needed to feed a body"),
        body => {
            let Ok(content) = body.into_vec() else {
                return Some(out);
            };
            if !is_chunked {
                out.extend_from_slice(&content);
            } else {
                if !content.is_empty() {
                    out.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
                    out.extend_from_slice(&content);
                    out.extend_from_slice(b"\r\n");
                }
                out.extend_from_slice(b"0\r\n\r\n");
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;
    use std::time::Duration;

    const TURN: Turn = Turn::new(1, Duration::ZERO, Duration::from_secs(784_111_777));

    #[test]
    fn requests_come_with_their_bodies() {
        let input = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET";
        let (request, bytes) = request(input).expect("valid").expect("complete");
        assert_eq!(request.body().as_bytes(), Some(&b"hello"[..]));
        assert_eq!(&input[bytes..], b"GET");
        assert!(
            super::request(&input[..bytes - 1])
                .expect("valid so far")
                .is_none()
        );
    }

    #[test]
    fn responses_come_out_as_they_would_on_the_wire() {
        let encode = |input: &[u8], body: Body| {
            let encoded = with_head(input, |head| encoded(head, TURN, Response::new(body)));
            String::from_utf8(encoded.expect("valid").expect("complete")).expect("ASCII")
        };
        let stream = || Body::reader(&b"hello"[..], None);
        let date = "Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        assert_eq!(
            encode(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", stream()),
            format!(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n{date}\r\n5\r\nhello\r\n0\r\n\r\n"
            )
        );
        assert_eq!(
            encode(b"GET / HTTP/1.0\r\n\r\n", stream()),
            format!("HTTP/1.1 200 OK\r\n{date}Connection: close\r\n\r\nhello")
        );
    }

    #[test]
    fn inline_answers_come_out_as_they_would_on_the_wire() {
        struct Teapot;
        impl Service for Teapot {
            type ThreadState = u32;
            fn thread_state(&self) -> u32 {
                0
            }
            fn inline(
                &self,
                thread: &mut u32,
                _: Turn,
                head: &Head<'_>,
                reply: &mut Reply<'_>,
            ) -> Disposition<'_> {
                *thread += 1;
                match head.path() {
                    "/tea" => {
                        let mut tea = Response::new("short and stout".into());
                        *tea.status_mut() = StatusCode::IM_A_TEAPOT;
                        reply.response(tea)
                    }
                    _ => Disposition::Pooled,
                }
            }
            fn pooled(&self, _: &mut Request, _: &mut flatpath::WorkerScope<'_>) -> Response {
                Response::default()
            }
        }
        let mut thread = Teapot.thread_state();
        let tea = inline(
            &Teapot,
            &mut thread,
            TURN,
            b"GET /tea HTTP/1.1\r\nHost: h\r\n\r\n",
        );
        let tea = tea.expect("valid").expect("answered");
        assert!(tea.starts_with(b"HTTP/1.1 418 ") && tea.ends_with(b"short and stout"));
        let coffee = inline(
            &Teapot,
            &mut thread,
            TURN,
            b"GET /coffee HTTP/1.1\r\nHost: h\r\n\r\n",
        );
        assert_eq!(coffee.expect("valid"), None);
        assert_eq!(thread, 2);
    }
}
