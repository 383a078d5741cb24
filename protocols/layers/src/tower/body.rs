//! Bodies on both sides: ours as `http_body::Body`, and any of these as ours.
//!
//! A body of ours that comes back from a service as it went in is taken out again, without a copy.
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
use flatpath_http::{Body, Reader};
use http_body::{Body as HttpBody, Frame, SizeHint};

/// What is read at once.
const FRAME_BYTES: usize = 32 * 1024;

/// A body of Flatpath as layers of tower see it.
#[derive(Debug, Default)]
pub struct TowerBody(Body);

impl TowerBody {
    pub(super) fn new(body: Body) -> Self {
        Self(body)
    }

    /// The body itself.
    #[must_use]
    pub fn into_inner(self) -> Body {
        self.0
    }
}

/// For services that make bodies of their own, from bytes in memory or from readers.
impl<T: Into<Body>> From<T> for TowerBody {
    fn from(body: T) -> Self {
        Self(body.into())
    }
}

impl HttpBody for TowerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        if self.0.is_empty() {
            return Poll::Ready(None);
        }
        let frame = match &mut self.0 {
            // Neither may keep a network thread waiting, nor the latter a worker.
            Body::Reader(reader) if !on_network_thread() => read_frame(reader),
            Body::Reader(_) | Body::Channel(_) => Some(Err(io::Error::other(super::NotReady))),
            _ => Some(Ok(std::mem::take(&mut self.0).into_bytes())),
        };
        Poll::Ready(frame.map(|read| read.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        self.0
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

/// The content of a `TowerBody`, or what else it is.
fn unwrapped<B: 'static>(body: B) -> Result<Body, B> {
    let mut body = Some(body);
    let ours = (&mut body as &mut dyn Any).downcast_mut::<Option<TowerBody>>();
    match (ours.and_then(Option::take), body) {
        (Some(TowerBody(ours)), _) => Ok(ours),
        (None, Some(body)) => Err(body),
        (None, None) => Ok(Body::Empty),
    }
}

/// The body of a response that a service has made or passed on.
///
/// # Errors
/// It wraps a body that is fed.
pub(super) fn take_back<B>(body: B, was_fed: bool) -> Result<Body, WrapsFed>
where
    B: HttpBody + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    match unwrapped(body) {
        Ok(ours) => Ok(ours),
        Err(_) if was_fed => Err(WrapsFed),
        Err(body) => match body.size_hint().exact() {
            Some(0) => Ok(Body::Empty),
            length => Ok(Body::reader(Frames::new(body), length)),
        },
    }
}

/// The body of a request that goes on to the handler: in memory, as all of them are.
///
/// # Errors
/// What the body ends with in place of its end: a limit of the service, say.
pub(super) fn request_body<B>(body: B) -> io::Result<Body>
where
    B: HttpBody + Send + 'static,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let body = match unwrapped(body) {
        Ok(ours) => return Ok(ours),
        Err(body) => body,
    };
    let mut body = Box::pin(body);
    let mut pieces: Vec<Bytes> = Vec::new();
    loop {
        match next_data(body.as_mut()).transpose()? {
            None => break,
            Some(mut data) => pieces.push(data.copy_to_bytes(data.remaining())),
        }
    }
    Ok(match pieces.len() {
        0 => Body::Empty,
        1 => pieces.swap_remove(0).into(),
        _ => pieces.concat().into(),
    })
}

/// The next data of a body, which has to be ready; trailers are left out, as everywhere here.
fn next_data<B>(mut body: Pin<&mut B>) -> Option<io::Result<B::Data>>
where
    B: HttpBody,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    loop {
        let mut context = Context::from_waker(Waker::noop());
        match body.as_mut().poll_frame(&mut context) {
            Poll::Ready(None) => return None,
            Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) if data.has_remaining() => return Some(Ok(data)),
                _ => {}
            },
            Poll::Ready(Some(Err(error))) => return Some(Err(io::Error::other(error))),
            Poll::Pending => return Some(Err(io::Error::other(super::NotReady))),
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
}

impl<B: HttpBody> Frames<B> {
    fn new(body: B) -> Self {
        let body = Lock::new(Box::pin(body));
        Self { body, front: None }
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
                return Ok(bytes);
            }
            match next_data(self.body.lock().as_mut()) {
                None => return Ok(0),
                Some(data) => self.front = Some(data?),
            }
        }
    }
}
