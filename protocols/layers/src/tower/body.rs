//! Bodies on both sides: ours as `http_body::Body`, and any of these as ours.
//!
//! A body of ours that comes back from a service as it went in is taken out again, without a copy.
//! Its trailers are frames of it, as a service sees them: those that a service lets through, or
//! adds, come after the body.
//!
//! Cost: what is in memory in one piece is one frame, without a copy where its bytes are shared;
//! what is read, frames of `FRAME_BYTES`.

use std::any::Any;
use std::error::Error;
use std::io::{self, Read};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes};
use flatpath::lock::Lock;
use flatpath::on_network_thread;
use flatpath_http::{Body, LateTrailers, Reader, Trailers, TrailersEnd};
use http::{HeaderMap, HeaderName};
use http_body::{Body as HttpBody, Frame, SizeHint};

/// What is read at once.
const FRAME_BYTES: usize = 32 * 1024;

/// A body of Flatpath as layers of tower see it.
#[derive(Debug, Default)]
pub struct TowerBody {
    body: Body,
    trailers: AfterBody,
}

/// What comes after a body.
#[derive(Debug, Default)]
pub(super) enum AfterBody {
    #[default]
    Nothing,
    /// Of a request, which is there.
    Known(HeaderMap),
    /// Of a response, once its body has ended.
    Late(LateTrailers),
}

impl AfterBody {
    /// What is known of it by now.
    pub(super) fn known(self) -> Option<HeaderMap> {
        let known = match self {
            Self::Nothing => None,
            Self::Known(trailers) => Some(trailers),
            Self::Late(trailers) => trailers.known().cloned(),
        };
        known.filter(|trailers| !trailers.is_empty())
    }
}

impl TowerBody {
    pub(super) fn of_request(body: Body, trailers: Option<Trailers>) -> Self {
        let trailers = trailers.map_or(AfterBody::Nothing, |it| AfterBody::Known(it.0));
        Self { body, trailers }
    }

    pub(super) fn of_response(body: Body, trailers: Option<LateTrailers>) -> Self {
        let trailers = trailers.map_or(AfterBody::Nothing, AfterBody::Late);
        Self { body, trailers }
    }

    /// The body itself, without its trailers.
    #[must_use]
    pub fn into_inner(self) -> Body {
        self.body
    }
}

/// For services that make bodies of their own, from bytes in memory or from readers.
impl<T: Into<Body>> From<T> for TowerBody {
    fn from(body: T) -> Self {
        Self::of_request(body.into(), None)
    }
}

impl HttpBody for TowerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let data = match &mut self.body {
            body if body.is_empty() => None,
            // Neither may keep a network thread waiting, nor the latter a worker.
            Body::Reader(reader) if !on_network_thread() => read_frame(reader),
            Body::Reader(_) | Body::Channel(_) => Some(Err(io::Error::other(super::NotReady))),
            body => Some(Ok(std::mem::take(body).into_bytes())),
        };
        Poll::Ready(match data {
            Some(read) => Some(read.map(Frame::data)),
            None => {
                let trailers = std::mem::take(&mut self.trailers).known();
                trailers.map(|trailers| Ok(Frame::trailers(trailers)))
            }
        })
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_empty() && matches!(self.trailers, AfterBody::Nothing)
    }

    fn size_hint(&self) -> SizeHint {
        self.body
            .length()
            .map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

/// Blocks as long as the source does.
fn read_frame(source: &mut Reader) -> Option<io::Result<Bytes>> {
    let mut room = vec![0; FRAME_BYTES];
    loop {
        match source.read(&mut room) {
            Ok(0) => return None,
            Ok(bytes) => {
                room.truncate(bytes);
                return Some(Ok(room.into()));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Some(Err(error)),
        }
    }
}

/// A `TowerBody`, or what else it is.
fn unwrapped<B: 'static>(body: B) -> Result<TowerBody, B> {
    let mut body = Some(body);
    let ours = (&mut body as &mut dyn Any).downcast_mut::<Option<TowerBody>>();
    match (ours.and_then(Option::take), body) {
        (Some(ours), _) => Ok(ours),
        (None, Some(body)) => Err(body),
        (None, None) => Ok(TowerBody::default()),
    }
}

/// The body of a response that a service has made or passed on, and what comes after it; `named`
/// are the trailers that the handler has named.
///
/// # Errors
/// It wraps a body that is fed.
pub(super) fn take_back<B>(
    body: B,
    was_fed: bool,
    named: Vec<HeaderName>,
) -> Result<(Body, Option<LateTrailers>), WrapsFed>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let body = match unwrapped(body) {
        Ok(TowerBody { body, trailers }) => {
            let trailers = match trailers {
                AfterBody::Late(trailers) => Some(trailers),
                AfterBody::Nothing | AfterBody::Known(_) => None,
            };
            return Ok((body, trailers));
        }
        Err(_) if was_fed => return Err(WrapsFed),
        Err(body) => body,
    };
    if body.is_end_stream() {
        return Ok((Body::Empty, None));
    }
    // One of length 0 has trailers alone, and is read for them.
    let length = body.size_hint().exact().filter(|length| *length > 0);
    let (end, trailers) = Trailers::later(named);
    let frames = Frames::new(body, length, end);
    Ok((Body::reader(frames, length), Some(trailers)))
}

/// The body of a request on its way to the handler: in memory, as all of them are; and its
/// trailers.
///
/// # Errors
/// What the body ends with in place of its end: a limit of the service, say.
pub(super) fn request_body<B>(body: B) -> io::Result<(Body, Option<HeaderMap>)>
where
    B: HttpBody + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let body = match unwrapped(body) {
        Ok(TowerBody { body, trailers }) => return Ok((body, trailers.known())),
        Err(body) => body,
    };
    let mut body = Box::pin(body);
    let (mut pieces, mut trailers) = (Vec::<Bytes>::new(), None);
    loop {
        match next_data(body.as_mut(), &mut trailers).transpose()? {
            None => break,
            Some(mut data) => pieces.push(data.copy_to_bytes(data.remaining())),
        }
    }
    let body = match pieces.len() {
        0 => Body::Empty,
        1 => pieces.swap_remove(0).into(),
        _ => pieces.concat().into(),
    };
    Ok((body, trailers))
}

/// The next data of a body, which has to be ready. Trailers on the way there are kept.
fn next_data<B>(
    mut body: Pin<&mut B>,
    trailers: &mut Option<HeaderMap>,
) -> Option<io::Result<B::Data>>
where
    B: HttpBody,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    loop {
        let mut context = Context::from_waker(Waker::noop());
        let frame = match body.as_mut().poll_frame(&mut context) {
            Poll::Ready(None) => return None,
            Poll::Ready(Some(Ok(frame))) => frame,
            Poll::Ready(Some(Err(error))) => return Some(Err(io::Error::other(error))),
            Poll::Pending => return Some(Err(io::Error::other(super::NotReady))),
        };
        match frame.into_data() {
            Ok(data) if data.has_remaining() => return Some(Ok(data)),
            Ok(_) => {}
            Err(other) => {
                if let Ok(more) = other.into_trailers() {
                    trailers.get_or_insert_default().extend(more);
                }
            }
        }
    }
}

/// A service wraps a body that is fed while it is sent.
#[derive(Debug)]
pub(super) struct WrapsFed;

flatpath::impl_error! {
    WrapsFed {
        Self => "it wraps the body of a response that is fed while it is sent, such as events; it \
                 can only pass such a body on",
    }
}

/// A body of others, read by a worker while it is sent.
struct Frames<B: HttpBody> {
    /// No other thread has it: the lock is for the compiler.
    body: Lock<Pin<Box<B>>>,
    front: Option<B::Data>,
    /// Bytes that are still to be read, where that is known.
    left: Option<u64>,
    trailers: Option<HeaderMap>,
    /// Where they go at the end.
    end: Option<TrailersEnd>,
}

impl<B> Frames<B>
where
    B: HttpBody,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn new(body: B, length: Option<u64>, end: TrailersEnd) -> Self {
        Self {
            body: Lock::new(Box::pin(body)),
            front: None,
            left: length,
            trailers: None,
            end: Some(end),
        }
    }

    /// The next data, if there is any. At the end the trailers are set.
    fn next(&mut self) -> Option<io::Result<B::Data>> {
        let next = next_data(self.body.lock().as_mut(), &mut self.trailers);
        if next.is_none()
            && let (Some(end), Some(trailers)) = (self.end.take(), self.trailers.take())
        {
            end.set(trailers);
        }
        next
    }
}

impl<B> Read for Frames<B>
where
    B: HttpBody,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(front) = self.front.as_mut().filter(Buf::has_remaining) {
                let bytes = front.remaining().min(room.len());
                front.copy_to_slice(&mut room[..bytes]);
                self.left = self.left.map(|left| left.saturating_sub(bytes as u64));
                if self.left == Some(0) {
                    // All that was announced is read: the reader is not asked again.
                    self.left = None;
                    self.front = self.next().transpose()?;
                }
                return Ok(bytes);
            }
            match self.next() {
                None => return Ok(0),
                Some(data) => self.front = Some(data?),
            }
        }
    }
}
