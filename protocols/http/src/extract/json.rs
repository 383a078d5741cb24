//! Bodies in JSON, through serde.
//!
//! A request's body is read where it lies: it is copied only where it is in several pieces. Which
//! field did not fit is found out by a second pass, so that bodies which fit do not pay for it.

use std::fmt::Display;

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::extract::fields::{FieldError, media_type};
use crate::extract::{FromRequest, OptionalFromRequest};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoResponse, refused, typed};

/// Room that a reply begins with, as most are shorter.
const REPLY_BYTES: usize = 128;

/// A body in JSON, of a request or of a response. With the feature `json`.
///
/// As an argument it stands last. The request has to be `application/json`, or of a type that ends
/// in `+json`; what does not fit is answered with a [`JsonRejection`]. `Option<Json<T>>` is none
/// for a request without a content type.
///
/// As a reply it is `application/json`; a value that serde cannot write is logged, and a 500.
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{Json, Router};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize)]
/// struct Order {
///     cups: u32,
/// }
///
/// #[derive(Serialize)]
/// struct Bill {
///     cents: u32,
/// }
///
/// fn order(Json(order): Json<Order>) -> (StatusCode, Json<Bill>) {
///     (StatusCode::CREATED, Json(Bill { cents: 250 * order.cups }))
/// }
///
/// let router: Router = Router::new().post("/orders", order);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Json<T>(pub T);

/// A body that is not the JSON that a handler takes. A body that is too long is answered with 413
/// before any handler is called.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JsonRejection {
    /// 415: the content type is another one, or missing.
    ContentType,
    /// 400: it is not JSON.
    Syntax(String),
    /// 422: it is JSON, and of another shape.
    Data(FieldError),
}

flatpath::impl_error! {
    JsonRejection {
        Self::ContentType => "the content type of the body is not application/json",
        Self::Syntax(text) => "the body is not JSON: {text}",
        Self::Data(cause) => "the body does not fit: {cause}",
    }
}

impl JsonRejection {
    /// What it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Syntax(_) => StatusCode::BAD_REQUEST,
            Self::Data(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl IntoResponse for JsonRejection {
    fn into_response(self) -> Response {
        refused(self.status(), &self)
    }
}

fn is_json(media_type: &str) -> bool {
    let Some((of_type, subtype)) = media_type.split_once('/') else {
        return false;
    };
    // RFC 6839 section 3.1: the suffix tells how a type is written.
    let suffix = subtype.rsplit('+').next().unwrap_or_default();
    of_type.eq_ignore_ascii_case("application") && suffix.eq_ignore_ascii_case("json")
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<Json<T>, JsonRejection> {
    match serde_json::from_slice(body) {
        Ok(value) => Ok(Json(value)),
        Err(error) if error.is_data() => {
            let mut deserializer = serde_json::Deserializer::from_slice(body);
            let followed = serde_path_to_error::deserialize::<_, T>(&mut deserializer);
            let field = followed.err().map(FieldError::at);
            let field = field.unwrap_or_else(|| FieldError::new(None, error));
            Err(JsonRejection::Data(field))
        }
        Err(error) => Err(JsonRejection::Syntax(error.to_string())),
    }
}

impl<S, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = JsonRejection;

    fn from_request(request: &mut Request, _: &S) -> Result<Self, JsonRejection> {
        if !media_type(request).is_some_and(is_json) {
            return Err(JsonRejection::ContentType);
        }
        read(&request.body().to_bytes())
    }
}

impl<S, T: DeserializeOwned> OptionalFromRequest<S> for Json<T> {
    type Rejection = JsonRejection;

    fn from_request(request: &mut Request, state: &S) -> Result<Option<Self>, JsonRejection> {
        if request.headers().contains_key(CONTENT_TYPE) {
            <Self as FromRequest<S>>::from_request(request, state).map(Some)
        } else {
            Ok(None)
        }
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        let mut content = Vec::with_capacity(REPLY_BYTES);
        match serde_json::to_writer(&mut content, &self.0) {
            Ok(()) => typed("application/json", Bytes::from(content)),
            Err(reason) => broken(&reason),
        }
    }
}

fn broken(reason: &dyn Display) -> Response {
    log::error!("a handler's response becomes a 500: {reason}");
    StatusCode::INTERNAL_SERVER_ERROR.into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn media_types_of_json_are_known() {
        for of_json in ["application/json", "Application/JSON", "application/a+json"] {
            assert!(is_json(of_json), "{of_json}");
        }
        for other in [
            "",
            "json",
            "text/json",
            "application/xml",
            "application/json+xml",
        ] {
            assert!(!is_json(other), "{other}");
        }
    }

    #[test]
    fn a_value_that_cannot_be_written_is_a_500() {
        let keys_are_lists = BTreeMap::from([(vec![1], 2)]);
        assert_eq!(Json(keys_are_lists).into_response().status(), 500);
        assert_eq!(
            Json([1, 2]).into_response().headers()[CONTENT_TYPE],
            "application/json"
        );
    }
}
