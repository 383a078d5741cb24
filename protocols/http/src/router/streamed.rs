//! Bodies that a route takes piece by piece: what its handler returns.
//!
//! A handler of such a route is called when the head has arrived. It returns an [`Upload`], which
//! is a response with a sink in its extensions, so that layers and `Result` treat it like any
//! other. The router takes the sink out again; where no router does, the response is a 500.

use std::io::Write;

use flatpath::WorkerScope;
use flatpath::memory::Payload;
use http::header::CONTENT_LENGTH;
use http::{HeaderMap, StatusCode};

use crate::message::Response;
use crate::respond::carried::Carried;
use crate::respond::into_response::{IntoResponse, refused};
use crate::service::around::{Around, Policy};
use crate::service::sink::{Sink, UploadDecision};
use crate::trailers::Trailers;

/// The answer of a handler that takes the body piece by piece, on a route that is
/// [`streamed`](crate::Methods::streamed): what takes it.
///
/// ```
/// use std::fs::File;
///
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{Parameters, Router, Upload, routing};
///
/// fn put(parameters: Parameters) -> Result<Upload, StatusCode> {
///     // One segment of a path may still be `..`.
///     let name = parameters.get("name").filter(|name| !name.contains(['/', '.']));
///     let name = name.ok_or(StatusCode::FORBIDDEN)?.to_owned();
///     let path = std::env::temp_dir().join(&name);
///     let file = File::create(path).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
///     Ok(Upload::to(file, move |file| match file.sync_all() {
///         Ok(()) => Ok((StatusCode::CREATED, name)),
///         Err(_) => Err(StatusCode::INTERNAL_SERVER_ERROR),
///     }))
/// }
///
/// let router: Router = Router::new().route("/files/{name}", routing::put(put).streamed());
/// ```
pub struct Upload(Box<dyn Sink>);

flatpath::opaque_debug! {
    impl[] Upload as "Upload";
}

impl Upload {
    /// Gives the body to this sink.
    pub fn new(sink: impl Sink + 'static) -> Self {
        Self(Box::new(sink))
    }

    /// Writes the body to `writer`, and answers with what `finish` makes of it at the end. What
    /// `writer` reports is logged and becomes a 500. A body that breaks off drops both; see
    /// [`if_abandoned`](Self::if_abandoned).
    pub fn to<W, R>(writer: W, finish: impl FnOnce(W) -> R + Send + 'static) -> Self
    where
        W: Write + Send + 'static,
        R: IntoResponse,
    {
        Self::with_trailers(writer, |writer, _| finish(writer))
    }

    /// The same for a handler that also wants the trailers of the body, none where there are none.
    ///
    /// ```
    /// use flatpath_http::http::StatusCode;
    /// use flatpath_http::{Trailers, Upload};
    ///
    /// fn put() -> Upload {
    ///     Upload::with_trailers(Vec::new(), |bytes: Vec<u8>, Trailers(trailers)| {
    ///         match trailers.get("x-sum") {
    ///             Some(sum) if *sum == bytes.iter().fold(0u8, |sum, it| sum ^ it).to_string() => {
    ///                 StatusCode::CREATED
    ///             }
    ///             _ => StatusCode::BAD_REQUEST,
    ///         }
    ///     })
    /// }
    /// # let _ = put;
    /// ```
    pub fn with_trailers<W, R>(
        writer: W,
        finish: impl FnOnce(W, Trailers) -> R + Send + 'static,
    ) -> Self
    where
        W: Write + Send + 'static,
        R: IntoResponse,
    {
        let trailers = Trailers::default();
        Self::new(Written {
            writer,
            trailers,
            finish,
        })
    }

    /// Calls `act` when the body breaks off, after the sink was told: see [`Sink::abandoned`]. A
    /// worker calls it, in most cases, so it may block.
    ///
    /// ```
    /// use std::fs::{self, File};
    /// use std::path::PathBuf;
    ///
    /// use flatpath_http::Upload;
    /// use flatpath_http::http::StatusCode;
    ///
    /// /// Takes a body to a file of its own, and removes what broke off.
    /// fn store(path: PathBuf) -> Result<Upload, StatusCode> {
    ///     let file = File::create(&path).map_err(|_| StatusCode::INTERNAL_SERVER_ERROR)?;
    ///     let upload = Upload::to(file, |_| StatusCode::CREATED);
    ///     Ok(upload.if_abandoned(move || drop(fs::remove_file(path))))
    /// }
    /// # let _ = store;
    /// ```
    #[must_use]
    pub fn if_abandoned(self, act: impl FnOnce() + Send + 'static) -> Self {
        Self::new(Around::new(self.0, Watched(act)))
    }
}

/// What an [`Upload::if_abandoned`] does.
struct Watched<F>(F);

impl<F: FnOnce() + Send> Policy for Watched<F> {
    fn refused(self, refuse: impl FnOnce() -> Response) -> Response {
        let response = refuse();
        (self.0)();
        response
    }

    fn abandoned(self) {
        (self.0)();
    }
}

/// The sink of an [`Upload::to`].
struct Written<W, F> {
    writer: W,
    trailers: Trailers,
    finish: F,
}

impl<W, F, R> Sink for Written<W, F>
where
    W: Write + Send,
    F: FnOnce(W, Trailers) -> R + Send,
    R: IntoResponse,
{
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        let mut parts = piece.parts();
        let written = parts.try_for_each(|part| self.writer.write_all(part.bytes()));
        written.map_err(|reason| Box::new(broken(&reason)))
    }

    fn trailers(&mut self, trailers: HeaderMap) {
        self.trailers = Trailers(trailers);
    }

    fn finish(mut self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        match self.writer.flush() {
            Ok(()) => (self.finish)(self.writer, self.trailers).into_response(),
            Err(reason) => broken(&reason),
        }
    }
}

/// The 500 for what cannot be written.
pub(crate) fn broken(reason: &dyn std::fmt::Display) -> Response {
    log::error!("a body that arrived cannot be written: {reason}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

impl IntoResponse for Upload {
    fn into_response(self) -> Response {
        let reason = "the handler takes a body piece by piece, and its route is not streamed";
        let mut response = refused(StatusCode::INTERNAL_SERVER_ERROR, &reason);
        Carried::put(response.extensions_mut(), self.0);
        response
    }
}

/// For a service that takes some of its bodies as a streamed route does, a form among them.
impl From<Upload> for UploadDecision {
    fn from(upload: Upload) -> Self {
        Self::Sink(upload.0)
    }
}

/// The sink that a handler has answered with.
pub(crate) fn take(response: &mut Response) -> Option<Box<dyn Sink>> {
    Carried::take(response.extensions_mut())
}

/// Whether the head already tells that the body is longer.
pub(crate) fn is_longer(headers: &HeaderMap, bytes_max: u64) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse().ok());
    length.is_some_and(|length: u64| length > bytes_max)
}

pub(crate) fn too_long() -> Response {
    StatusCode::PAYLOAD_TOO_LARGE.into_response()
}

/// No more bytes than are left.
pub(crate) struct Within {
    pub(crate) bytes_left: u64,
}

impl Policy for Within {
    fn write(
        &mut self,
        bytes: usize,
        scope: &mut WorkerScope<'_>,
        write: impl FnOnce(&mut WorkerScope<'_>) -> Result<(), Box<Response>>,
    ) -> Result<(), Box<Response>> {
        let bytes = bytes as u64;
        if bytes > self.bytes_left {
            return Err(Box::new(too_long()));
        }
        let written = write(scope);
        if !scope.is_parked() {
            self.bytes_left -= bytes;
        }
        written
    }
}
