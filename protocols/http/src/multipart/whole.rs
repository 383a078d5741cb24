//! A form that has arrived completely.

use std::convert::Infallible;

use bytes::Bytes;
use http::header::CONTENT_TYPE;

use super::boundary::boundary;
use super::head::FieldHead;
use super::limits::MultipartLimits;
use super::parser::{Failure, Parser, Taker};
use super::rejection::MultipartRejection;
use crate::extract::{FromRequest, OptionalFromRequest};
use crate::message::Request;

/// A small form with files, whose body has arrived completely: the last argument of a handler. It
/// is as long as a body may be (1 MiB, or what the route says), and has at most 128 fields; longer
/// ones are for a [`MultipartUpload`](super::MultipartUpload).
///
/// The body has to be `multipart/form-data`; `Option<Multipart>` is none without a content type.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{Multipart, Router};
///
/// fn add(form: Multipart) -> Result<String, StatusCode> {
///     let title = form.text("title").ok_or(StatusCode::UNPROCESSABLE_ENTITY)?;
///     let pictures = form.fields().iter().filter(|field| field.head.name() == "picture");
///     let bytes: usize = pictures.map(|field| field.data.len()).sum();
///     Ok(format!("{title}: {bytes} bytes\n"))
/// }
///
/// let router: Router = Router::new().post("/albums", add);
/// ```
#[derive(Clone, Debug)]
pub struct Multipart(Vec<FormField>);

/// One field of a form that has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FormField {
    /// What the form says of it.
    pub head: FieldHead,
    /// Its content.
    pub data: Bytes,
}

impl FormField {
    /// Its content as text; none where it is not UTF-8.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        std::str::from_utf8(&self.data).ok()
    }
}

impl Multipart {
    /// All fields, in their order.
    #[must_use]
    pub fn fields(&self) -> &[FormField] {
        &self.0
    }

    /// The first field of this name.
    #[must_use]
    pub fn field(&self, name: &str) -> Option<&FormField> {
        self.0.iter().find(|field| field.head.name() == name)
    }

    /// The text of the first field of this name; none without it, or where it is not UTF-8.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.field(name)?.text()
    }
}

impl IntoIterator for Multipart {
    type Item = FormField;
    type IntoIter = std::vec::IntoIter<FormField>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

/// The fields so far, and the content of the last.
#[derive(Default)]
pub(super) struct Gathered {
    pub(super) fields: Vec<FormField>,
    data: Vec<u8>,
}

impl Taker for Gathered {
    type Refusal = Infallible;

    fn field(&mut self, head: &mut FieldHead) -> Result<(), Infallible> {
        let (head, data) = (head.clone(), Bytes::new());
        self.fields.push(FormField { head, data });
        Ok(())
    }

    fn data(&mut self, bytes: &[u8]) -> Result<(), Infallible> {
        self.data.extend_from_slice(bytes);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Infallible> {
        if let Some(field) = self.fields.last_mut() {
            field.data = std::mem::take(&mut self.data).into();
        }
        Ok(())
    }
}

impl<S> FromRequest<S> for Multipart {
    type Rejection = MultipartRejection;

    fn from_request(request: &mut Request, _: &S) -> Result<Self, MultipartRejection> {
        let boundary = boundary(request.headers())?;
        let mut parser = Parser::new(&boundary, MultipartLimits::default());
        let mut gathered = Gathered::default();
        for piece in request.body().pieces() {
            match parser.push(piece, &mut gathered) {
                Ok(()) => {}
                Err(Failure::Form(rejection)) => return Err(rejection),
                Err(Failure::Taker(never)) => match never {},
            }
        }
        parser.finish()?;
        Ok(Self(gathered.fields))
    }
}

impl<S> OptionalFromRequest<S> for Multipart {
    type Rejection = MultipartRejection;

    fn from_request(request: &mut Request, state: &S) -> Result<Option<Self>, Self::Rejection> {
        let is_there = request.headers().contains_key(CONTENT_TYPE);
        is_there
            .then(|| <Self as FromRequest<S>>::from_request(request, state))
            .transpose()
    }
}
