//! One of two: an argument that is made in one of two ways, or a response of one of two types.

use std::io::{self, Write};

use http::StatusCode;

use crate::extract::{Asks, FromRequest, FromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::IntoResponse;

/// One of two types.
///
/// As an argument it is the left one if the request makes that, else the right one. If the request
/// makes neither, the client gets the refusal of the left, unless that is a 415: then the body is
/// of another type, and the right one knows better what is wrong with it. Both take the body, and
/// then it stands last; or both are made of the head. A type of your own on the left has to leave
/// the body where it is when it refuses, as all of this crate do.
///
/// As a response it is the one that it holds. As a writer, too: so a form's fields go to a file or
/// to memory.
///
#[cfg_attr(feature = "json", doc = "```")]
#[cfg_attr(not(feature = "json"), doc = "```ignore")]
/// use flatpath_http::{Either, Form, Json, Redirect, Router};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize, Serialize)]
/// struct Note {
///     text: String,
/// }
///
/// /// Takes notes from programs and from pages, and answers each in its way.
/// fn add(note: Either<Json<Note>, Form<Note>>) -> Either<Json<Note>, Redirect> {
///     match note {
///         Either::Left(Json(note)) => Either::Left(Json(note)),
///         Either::Right(Form(_)) => Either::Right(Redirect::to("/notes")),
///     }
/// }
///
/// let router: Router = Router::new().post("/notes", add);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: there will be no third.
pub enum Either<A, B> {
    /// The first.
    Left(A),
    /// The second.
    Right(B),
}

/// The refusal that fits: see [`Either`].
fn refusal(left: Response, right: impl IntoResponse) -> Response {
    match left.status() {
        StatusCode::UNSUPPORTED_MEDIA_TYPE => right.into_response(),
        _ => left,
    }
}

impl<S, A, B> FromRequestParts<S> for Either<A, B>
where
    A: FromRequestParts<S>,
    B: FromRequestParts<S>,
{
    type Rejection = Response;

    const ASKS: Asks = A::ASKS.and(B::ASKS);

    fn from_request_parts(request: &mut Request, state: &S) -> Result<Self, Response> {
        let left = match A::from_request_parts(request, state) {
            Ok(left) => return Ok(Self::Left(left)),
            Err(rejection) => rejection.into_response(),
        };
        let right = B::from_request_parts(request, state);
        right.map(Self::Right).map_err(|right| refusal(left, right))
    }
}

impl<S, A, B> FromRequest<S> for Either<A, B>
where
    A: FromRequest<S>,
    B: FromRequest<S>,
{
    type Rejection = Response;

    const ASKS: Asks = A::ASKS.and(B::ASKS);

    fn from_request(request: &mut Request, state: &S) -> Result<Self, Response> {
        let left = match A::from_request(request, state) {
            Ok(left) => return Ok(Self::Left(left)),
            Err(rejection) => rejection.into_response(),
        };
        let right = B::from_request(request, state);
        right.map(Self::Right).map_err(|right| refusal(left, right))
    }
}

impl<A: IntoResponse, B: IntoResponse> IntoResponse for Either<A, B> {
    fn into_response(self) -> Response {
        match self {
            Self::Left(left) => left.into_response(),
            Self::Right(right) => right.into_response(),
        }
    }
}

impl<A: Write, B: Write> Write for Either<A, B> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Left(left) => left.write(bytes),
            Self::Right(right) => right.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Left(left) => left.flush(),
            Self::Right(right) => right.flush(),
        }
    }
}
