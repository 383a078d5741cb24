//! A form whose fields are taken one after another while it arrives.

use std::io::Write;

use flatpath::WorkerScope;
use flatpath::memory::Payload;

use super::boundary::boundary;
use super::head::FieldHead;
use super::limits::MultipartLimits;
use super::parser::{Failure, Parser, Taker};
use super::rejection::MultipartRejection;
use crate::extract::FromRequestParts;
use crate::message::{Request, Response};
use crate::respond::into_response::IntoResponse;
use crate::router::streamed::{Upload, broken};
use crate::service::sink::Sink;

/// A form with files that is taken while it arrives, on a route that is
/// [`streamed`](crate::Methods::streamed): an argument of its handler, which returns the
/// [`Upload`] that [`to`](Self::to) or [`with`](Self::with) makes of it. No thread waits for the
/// client, and no field is in memory as a whole. With another content type the request is refused
/// before its body is received.
///
/// ```
/// use std::fs::File;
/// use std::path::Path;
///
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::multipart::MultipartUpload;
/// use flatpath_http::{Router, Upload, routing};
///
/// fn store(form: MultipartUpload) -> Upload {
///     form.to(
///         |field| {
///             let name = field.safe_file_name().ok_or(StatusCode::BAD_REQUEST)?;
///             let file = File::create_new(Path::new("uploads").join(name));
///             file.map_err(|_| StatusCode::CONFLICT)
///         },
///         |files| (StatusCode::CREATED, format!("{} files\n", files.len())),
///     )
/// }
///
/// let store = routing::post(store).streamed().body_bytes_max(1 << 30);
/// let router: Router = Router::new().route("/files", store);
/// ```
#[derive(Clone, Debug)]
pub struct MultipartUpload {
    boundary: Vec<u8>,
    limits: MultipartLimits,
}

impl MultipartUpload {
    /// Bounds the form by these.
    #[must_use]
    pub fn limits(self, limits: MultipartLimits) -> Self {
        Self { limits, ..self }
    }

    /// Writes each field to what `open` returns for it, and answers with what `finish` makes of
    /// them all, in their order, once the form is complete. A worker calls both, so they may block.
    ///
    /// What `open` refuses answers the request. What a writer reports is logged and becomes a 500.
    /// A form that breaks off, or is refused, drops the writers, and `finish` is not called: what
    /// is to be removed then is removed by their `Drop`. All of them, at most
    /// [`fields_max`](MultipartLimits::fields_max), are kept until the end.
    ///
    /// A `Vec<u8>` is a writer, too; [`FieldHead::limit`] bounds it, and
    /// [`Either`](crate::Either) of it and a file is a writer for both:
    ///
    /// ```
    /// use std::fs::File;
    /// use std::path::Path;
    ///
    /// use flatpath_http::http::StatusCode;
    /// use flatpath_http::multipart::MultipartUpload;
    /// use flatpath_http::{Either, Upload};
    ///
    /// /// A title, and files.
    /// fn store(form: MultipartUpload) -> Upload {
    ///     form.to(
    ///         |field| match field.safe_file_name() {
    ///             Some(name) => File::create_new(Path::new("uploads").join(name))
    ///                 .map(Either::Left)
    ///                 .map_err(|_| StatusCode::CONFLICT),
    ///             None => {
    ///                 field.limit(100);
    ///                 Ok(Either::Right(Vec::new()))
    ///             }
    ///         },
    ///         |fields| {
    ///             let texts = fields.iter().filter_map(|(_, it)| match it {
    ///                 Either::Right(text) => std::str::from_utf8(text).ok(),
    ///                 Either::Left(_) => None,
    ///             });
    ///             texts.collect::<Vec<_>>().join("\n")
    ///         },
    ///     )
    /// }
    /// # let _ = store;
    /// ```
    pub fn to<W, E, R>(
        self,
        open: impl FnMut(&mut FieldHead) -> Result<W, E> + Send + 'static,
        finish: impl FnOnce(Vec<(FieldHead, W)>) -> R + Send + 'static,
    ) -> Upload
    where
        W: Write + Send + 'static,
        E: IntoResponse + 'static,
        R: IntoResponse,
    {
        self.with(Written {
            open,
            finish,
            fields: Vec::new(),
        })
    }

    /// Gives the form to this sink.
    pub fn with(self, sink: impl FormSink + 'static) -> Upload {
        Upload::new(Parsed {
            parser: Parser::new(&self.boundary, self.limits),
            taker: Taking(sink),
        })
    }
}

impl<S> FromRequestParts<S> for MultipartUpload {
    type Rejection = MultipartRejection;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, MultipartRejection> {
        Ok(Self {
            boundary: boundary(request.headers())?,
            limits: MultipartLimits::default(),
        })
    }
}

/// Takes the fields of one form, on workers: see [`MultipartUpload::with`].
///
/// ```text
/// field ─► data ─► data ─► ... ─► end ─► field ─► end ─► ... ─► finish ─► reply
/// ```
///
/// It is called by one thread at a time, and may block. A form that breaks off, or is refused,
/// drops it without [`finish`](Self::finish).
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::multipart::{FieldHead, FormSink, MultipartUpload};
/// use flatpath_http::{IntoResponse, Response, Upload};
///
/// /// The length of the longest field.
/// #[derive(Default)]
/// struct Longest {
///     bytes: usize,
///     most: usize,
/// }
///
/// impl FormSink for Longest {
///     type Refusal = StatusCode;
///
///     fn field(&mut self, field: &mut FieldHead) -> Result<(), StatusCode> {
///         self.bytes = 0;
///         match field.content_type() {
///             Some("text/html") => Err(StatusCode::UNSUPPORTED_MEDIA_TYPE),
///             _ => Ok(()),
///         }
///     }
///
///     fn data(&mut self, bytes: &[u8]) -> Result<(), StatusCode> {
///         self.bytes += bytes.len();
///         Ok(())
///     }
///
///     fn end(&mut self) -> Result<(), StatusCode> {
///         self.most = self.most.max(self.bytes);
///         Ok(())
///     }
///
///     fn finish(self) -> Response {
///         format!("{} bytes\n", self.most).into_response()
///     }
/// }
///
/// fn longest(form: MultipartUpload) -> Upload {
///     form.with(Longest::default())
/// }
/// # let _ = longest;
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot take a form field by field",
    label = "not a `FormSink`",
    note = "`Multipart` gives a handler the form as a whole"
)]
pub trait FormSink: Send {
    /// What answers the request instead of taking more of it; the connection ends after it.
    type Refusal: IntoResponse;

    /// A field begins.
    ///
    /// # Errors
    /// The response: the field is not taken, nor is the rest of the form.
    fn field(&mut self, field: &mut FieldHead) -> Result<(), Self::Refusal>;

    /// More of its content, at least one byte.
    ///
    /// # Errors
    /// The response: the rest of the form is not taken.
    fn data(&mut self, bytes: &[u8]) -> Result<(), Self::Refusal>;

    /// The field is complete; it may have had no content.
    ///
    /// # Errors
    /// The response: the rest of the form is not taken.
    fn end(&mut self) -> Result<(), Self::Refusal>;

    /// The form is complete.
    fn finish(self) -> Response
    where
        Self: Sized;
}

/// The sink of a body that is a form.
struct Parsed<F> {
    parser: Parser,
    taker: Taking<F>,
}

/// What the user takes fields with.
struct Taking<F>(F);

/// A refusal, where it is small.
fn boxed(refusal: impl IntoResponse) -> Box<Response> {
    Box::new(refusal.into_response())
}

impl<F: FormSink> Taker for Taking<F> {
    type Refusal = Box<Response>;

    fn field(&mut self, field: &mut FieldHead) -> Result<(), Box<Response>> {
        self.0.field(field).map_err(boxed)
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Box<Response>> {
        self.0.data(bytes).map_err(boxed)
    }

    fn end(&mut self) -> Result<(), Box<Response>> {
        self.0.end().map_err(boxed)
    }
}

impl<F: FormSink> Sink for Parsed<F> {
    fn write(&mut self, piece: &mut Payload, _: &mut WorkerScope<'_>) -> Result<(), Box<Response>> {
        let Self { parser, taker } = self;
        let mut parts = piece.parts();
        let pushed = parts.try_for_each(|part| parser.push(part.bytes(), taker));
        pushed.map_err(|failure| match failure {
            Failure::Form(rejection) => boxed(rejection),
            Failure::Taker(refusal) => refusal,
        })
    }

    fn finish(self: Box<Self>, _: &mut WorkerScope<'_>) -> Response {
        match self.parser.finish() {
            Ok(()) => self.taker.0.finish(),
            Err(rejection) => rejection.into_response(),
        }
    }
}

/// The sink of [`MultipartUpload::to`].
struct Written<W, O, F> {
    open: O,
    finish: F,
    fields: Vec<(FieldHead, W)>,
}

impl<W, O, F, E, R> FormSink for Written<W, O, F>
where
    W: Write + Send,
    O: FnMut(&mut FieldHead) -> Result<W, E> + Send,
    F: FnOnce(Vec<(FieldHead, W)>) -> R + Send,
    E: IntoResponse,
    R: IntoResponse,
{
    type Refusal = Response;

    fn field(&mut self, field: &mut FieldHead) -> Result<(), Response> {
        let writer = (self.open)(field).map_err(IntoResponse::into_response)?;
        self.fields.push((field.clone(), writer));
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Response> {
        let last = self.fields.last_mut().map(|(_, writer)| writer);
        let written = last.map_or(Ok(()), |writer| writer.write_all(bytes));
        written.map_err(|reason| broken(&reason))
    }

    fn end(&mut self) -> Result<(), Response> {
        let last = self.fields.last_mut().map(|(_, writer)| writer);
        let flushed = last.map_or(Ok(()), Write::flush);
        flushed.map_err(|reason| broken(&reason))
    }

    fn finish(self) -> Response {
        (self.finish)(self.fields).into_response()
    }
}
