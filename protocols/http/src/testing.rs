//! Requests without a server: for tests and fuzzing of services and of this crate.
//!
//! Pure functions from bytes to bytes; no thread, no clock, no descriptor.

use crate::body::{Decoder, Piece};
use crate::date::DateLine;
use crate::encode;
use crate::fault::Fault;
use crate::head::{Head, HeaderSlots};
use crate::limits::Limits;
use crate::message::{Body, Request, Response};
use crate::names::Names;
use crate::parse::copy_as_1_1;
use crate::reply::{Disposition, Out, Reply};
use crate::request_builder::RequestBuilder;
use crate::respond::{self, Frame, Transfer};
use crate::scan::Scan;
use crate::service::Service;
use flatpath::Turn;

/// Calls `use_head` with the head that `input` begins with; None when it is not complete.
///
/// # Errors
/// The rule that the head breaks.
pub fn with_head<T>(
    input: &[u8],
    use_head: impl FnOnce(&Head<'_>) -> T,
) -> Result<Option<T>, Fault> {
    let limits = Limits::default();
    let Some(head_bytes) = Scan::new().advance(input, &limits)? else {
        return Ok(None);
    };
    let mut slots = HeaderSlots::new();
    let fault = match crate::parse(input, head_bytes, &mut slots, &limits) {
        Ok(head) => return Ok(Some(use_head(&head))),
        Err(fault) => fault,
    };
    let mut copy = Vec::new();
    if fault != Fault::Version || !copy_as_1_1(&input[..head_bytes], &mut copy) {
        return Err(fault);
    }
    let mut slots = HeaderSlots::new();
    let head = crate::parse(&copy, head_bytes, &mut slots, &limits)?;
    Ok(Some(use_head(&head)))
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
    builder.set_body(if body.is_empty() {
        Body::Empty
    } else {
        body.into()
    });
    Ok(Some((
        std::mem::take(builder.request_mut()),
        input.len() - rest.len(),
    )))
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
    let mut out = Vec::new();
    let run = answer(service, thread, turn, &mut DateLine::new(), &mut out, input)?;
    Ok((run == Some(Disposition::Answered)).then_some(out))
}

/// A service that answers request after request into the same space, as on a network thread.
pub struct Stand<S: Service> {
    service: S,
    thread: S::ThreadState,
    date: DateLine,
    out: Vec<u8>,
}

impl<S: Service> Stand<S> {
    /// Makes the service's thread state.
    pub fn new(service: S) -> Self {
        let thread = service.thread_state();
        Self {
            service,
            thread,
            date: DateLine::new(),
            out: Vec::new(),
        }
    }

    /// Offers the request that `input` begins with to the service; None when it is not complete.
    ///
    /// # Errors
    /// The rule that the request breaks.
    pub fn inline(&mut self, turn: Turn, input: &[u8]) -> Result<Option<Disposition>, Fault> {
        let Self {
            service,
            thread,
            date,
            out,
        } = self;
        answer(service, thread, turn, date, out, input)
    }

    /// The latest answer, as its client would get it.
    pub fn written(&self) -> &[u8] {
        &self.out
    }

    /// The service's thread state.
    pub fn thread_state(&mut self) -> &mut S::ThreadState {
        &mut self.thread
    }
}

fn answer<S: Service>(
    service: &S,
    thread: &mut S::ThreadState,
    turn: Turn,
    date: &mut DateLine,
    out: &mut Vec<u8>,
    input: &[u8],
) -> Result<Option<Disposition>, Fault> {
    with_head(input, |head| {
        let mut reply = Reply::new(
            Out::scratch(out),
            date.at(turn.wall_seconds),
            Frame::of(head),
        );
        let run = service.inline(thread, turn, head, &mut reply);
        if run == Disposition::Answered {
            let written = reply.written();
            out.extend_from_slice(written.shared.as_deref().unwrap_or_default());
            if let Some(reader) = written.reader {
                append_body(out, Body::Reader(reader), written.transfer);
            }
        }
        run
    })
}

/// A response as the client of `head` would get it.
#[must_use]
pub fn encoded(head: &Head<'_>, turn: Turn, response: Response) -> Vec<u8> {
    let mut out = Vec::new();
    let (parts, body) = response.into_parts();
    let frame = Frame::of(head);
    let plan = respond::head(&mut out, &parts, &body, frame);
    let persistence = Frame {
        keep_alive: plan.keep_alive,
        ..frame
    }
    .persistence();
    encode::end_of_head(&mut out, DateLine::new().at(turn.wall_seconds), persistence);
    if plan.with_body {
        append_body(&mut out, body, plan.transfer);
    }
    out
}

/// The body as it goes over the wire; cut off where its reader fails.
fn append_body(out: &mut Vec<u8>, body: Body, transfer: Transfer) {
    let Ok(content) = body.into_vec() else { return };
    if transfer == Transfer::Chunked {
        if !content.is_empty() {
            out.extend_from_slice(format!("{:x}\r\n", content.len()).as_bytes());
            out.extend_from_slice(&content);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"0\r\n\r\n");
    } else {
        out.extend_from_slice(&content);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::StatusCode;

    const TURN: Turn = Turn {
        number: 1,
        now_ns: 0,
        wall_seconds: 784_111_777,
    };

    #[test]
    fn requests_come_with_their_bodies() {
        let input = b"POST /a HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhelloGET";
        let (request, bytes) = request(input).expect("valid").expect("complete");
        assert_eq!(request.body().bytes(), Some(&b"hello"[..]));
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
            ) -> Disposition {
                *thread += 1;
                match head.path() {
                    "/tea" => reply.head(StatusCode::IM_A_TEAPOT).body(b"short and stout"),
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
