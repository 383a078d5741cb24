//! What answers in place of a handler. `layers::problem` makes problems of it.

use axum::BoxError;
use axum::extract::multipart::MultipartError;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

#[derive(Debug)]
pub(super) enum Error {
    /// SQLite, a panic while it was called, or an event that is no JSON.
    Failed(BoxError),
    Form(MultipartError),
    Invalid(&'static str),
    SignedOut,
    Unknown(i64),
    WrongPassword,
}

impl<E: Into<BoxError>> From<E> for Error {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        match self {
            Self::Failed(error) => {
                log::error!("a request fails: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
            Self::Form(error) => error.into_response(),
            Self::Invalid(why) => (StatusCode::UNPROCESSABLE_ENTITY, why).into_response(),
            Self::SignedOut => (StatusCode::UNAUTHORIZED, "sign in first").into_response(),
            Self::Unknown(id) => {
                (StatusCode::NOT_FOUND, format!("there is no bookmark {id}")).into_response()
            }
            Self::WrongPassword => {
                (StatusCode::UNAUTHORIZED, "wrong name or password").into_response()
            }
        }
    }
}
