//! What answers in place of a handler. `Problem::layer` makes problems of it.

use flatpath_http::http::StatusCode;
use flatpath_http::{IntoResponse, Response};

#[derive(Debug)]
pub(crate) enum Error {
    Database(rusqlite::Error),
    Invalid(&'static str),
    SignedOut,
    Unknown(i64),
    WrongPassword,
}

impl From<rusqlite::Error> for Error {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl IntoResponse for Error {
    fn into_response(self) -> Response {
        match self {
            Self::Database(error) => {
                log::error!("the database fails: {error}");
                StatusCode::INTERNAL_SERVER_ERROR.into_response()
            }
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
