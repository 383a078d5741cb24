//! Queries and forms, through serde: `application/x-www-form-urlencoded`.
//!
//! A name that comes several times fills a list. Which field did not fit is found out by a second
//! pass, so that what fits does not pay for it.

use http::header::CONTENT_TYPE;
use http::{Method, StatusCode};
use serde::de::DeserializeOwned;
use serde_html_form::Deserializer;

use crate::extract::fields::{FieldError, media_type};
use crate::extract::{
    FromRequest, FromRequestParts, OptionalFromRequest, OptionalFromRequestParts,
};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoResponse, refused};

const FORM: &str = "application/x-www-form-urlencoded";

/// The query of a request's target. With the feature `json`.
///
/// A query that does not fit is answered with a [`QueryRejection`]. Without a query, every field
/// has to have a default or to be an `Option`; `Option<Query<T>>` is none then.
///
/// ```
/// use flatpath_http::{Query, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Page {
///     after: Option<u64>,
///     #[serde(default)]
///     tag: Vec<String>,
/// }
///
/// fn list(Query(page): Query<Page>) -> String {
///     format!("after {:?}, of {:?}\n", page.after, page.tag)
/// }
///
/// let router: Router = Router::new().get("/notes", list);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Query<T>(pub T);

/// The fields of a form: of the query for `GET` and `HEAD`, else of the body. It stands last in a
/// handler's arguments. With the feature `json`.
///
/// A body has to be `application/x-www-form-urlencoded`; what does not fit is answered with a
/// [`FormRejection`]. `Option<Form<T>>` is none without a query, or without a content type.
///
/// ```
/// use flatpath_http::{Form, Redirect, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Note {
///     text: String,
/// }
///
/// fn add(Form(note): Form<Note>) -> Redirect {
///     Redirect::to(format!("/notes/{}", note.text.len()))
/// }
///
/// let router: Router = Router::new().post("/notes", add);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Form<T>(pub T);

/// A query that is not what a handler takes: a 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryRejection(pub FieldError);

flatpath::impl_error! {
    QueryRejection {
        Self(cause) => "the query does not fit: {cause}",
    }
}

/// A form that is not what a handler takes. A body that is too long is answered with 413 before any
/// handler is called.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FormRejection {
    /// 415: the content type of the body is another one, or missing.
    ContentType,
    /// 400: the query does not fit.
    Query(QueryRejection),
    /// 422: the body does not fit.
    Data(FieldError),
}

flatpath::impl_error! {
    FormRejection {
        Self::ContentType => "the content type of the body is not {FORM}",
        Self::Query(refused) => "{refused}",
        Self::Data(cause) => "the form does not fit: {cause}",
    }
}

impl From<QueryRejection> for FormRejection {
    fn from(refused: QueryRejection) -> FormRejection {
        FormRejection::Query(refused)
    }
}

impl IntoResponse for QueryRejection {
    fn into_response(self) -> Response {
        refused(StatusCode::BAD_REQUEST, &self)
    }
}

impl FormRejection {
    /// What it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Query(_) => StatusCode::BAD_REQUEST,
            Self::Data(_) => StatusCode::UNPROCESSABLE_ENTITY,
        }
    }
}

impl IntoResponse for FormRejection {
    fn into_response(self) -> Response {
        refused(self.status(), &self)
    }
}

fn read<T: DeserializeOwned>(fields: &[u8]) -> Result<T, FieldError> {
    serde_html_form::from_bytes(fields).map_err(|error| {
        let followed = serde_path_to_error::deserialize::<_, T>(Deserializer::from_bytes(fields));
        let field = followed.err().map(FieldError::at);
        field.unwrap_or_else(|| FieldError::new(None, error))
    })
}

impl<S, T: DeserializeOwned> FromRequestParts<S> for Query<T> {
    type Rejection = QueryRejection;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, QueryRejection> {
        let query = request.uri().query().unwrap_or_default();
        read(query.as_bytes()).map(Self).map_err(QueryRejection)
    }
}

impl<S, T: DeserializeOwned> OptionalFromRequestParts<S> for Query<T> {
    type Rejection = QueryRejection;

    fn from_request_parts(
        request: &mut Request,
        state: &S,
    ) -> Result<Option<Self>, QueryRejection> {
        let is_there = request.uri().query().is_some();
        let query =
            is_there.then(|| <Self as FromRequestParts<S>>::from_request_parts(request, state));
        query.transpose()
    }
}

/// Whether the form of such a request is its query.
fn is_in_query(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

impl<S, T: DeserializeOwned> FromRequest<S> for Form<T> {
    type Rejection = FormRejection;

    fn from_request(request: &mut Request, state: &S) -> Result<Self, FormRejection> {
        if is_in_query(request.method()) {
            let Query(fields) =
                <Query<T> as FromRequestParts<S>>::from_request_parts(request, state)?;
            return Ok(Self(fields));
        }
        if !media_type(request).is_some_and(|of_type| of_type.eq_ignore_ascii_case(FORM)) {
            return Err(FormRejection::ContentType);
        }
        read(&request.body().to_bytes())
            .map(Self)
            .map_err(FormRejection::Data)
    }
}

impl<S, T: DeserializeOwned> OptionalFromRequest<S> for Form<T> {
    type Rejection = FormRejection;

    fn from_request(request: &mut Request, state: &S) -> Result<Option<Self>, FormRejection> {
        let is_there = if is_in_query(request.method()) {
            request.uri().query().is_some()
        } else {
            request.headers().contains_key(CONTENT_TYPE)
        };
        is_there
            .then(|| <Self as FromRequest<S>>::from_request(request, state))
            .transpose()
    }
}
