//! Errors that programs can read: `application/problem+json` (RFC 9457).

use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, StatusCode};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::extract::StringRejection;
use crate::extract::form::{FormRejection, QueryRejection};
use crate::extract::json::JsonRejection;
use crate::extract::path::PathRejection;
use crate::layer::Next;
use crate::layer::answer::Answer;
use crate::message::{Body, Request, Response};
use crate::multipart::MultipartRejection;
use crate::respond::into_response::IntoResponse;

/// An error as `application/problem+json` (RFC 9457). With the feature `json`.
///
/// Without a type of its own a problem is of the type `about:blank`, and its title is the phrase of
/// its status (RFC 9457 section 4.2.1).
///
/// ```
/// use flatpath_http::http::StatusCode;
/// use flatpath_http::{Json, JsonRejection, Problem, Router};
/// use serde::Deserialize;
///
/// #[derive(Deserialize)]
/// struct Order {
///     cups: u32,
/// }
///
/// /// A refusal of an extractor becomes one by `?`; of any other by [`Problem::of`].
/// fn order(order: Result<Json<Order>, JsonRejection>) -> Result<String, Problem> {
///     let Json(order) = order?;
///     if order.cups > 10 {
///         return Err(Problem::new(StatusCode::FORBIDDEN)
///             .of_type("https://tea.example/too-much")
///             .title("That is too much tea.")
///             .detail(format!("{} cups are more than 10", order.cups))
///             .with("most", 10));
///     }
///     Ok("it is brewing\n".to_owned())
/// }
///
/// // Or all of a router at once: refusals, 404, 405 and panics too.
/// let router: Router = Router::new().post("/orders", order).layer(Problem::layer);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    status: StatusCode,
    members: Map<String, Value>,
}

/// The names that RFC 9457 section 3.1 gives.
const STANDARD: [&str; 5] = ["type", "status", "title", "detail", "instance"];

impl Problem {
    /// A problem with this status.
    #[must_use]
    pub fn new(status: StatusCode) -> Self {
        let members = Map::new();
        let problem = Self { status, members };
        let problem = problem.standard("status", status.as_u16());
        match status.canonical_reason() {
            Some(phrase) => problem.title(phrase),
            None => problem,
        }
    }

    /// What a refusal would answer, as a problem: its status, and its text as the detail.
    pub fn of(refusal: impl IntoResponse) -> Self {
        let response = refusal.into_response();
        let problem = Self::new(response.status());
        match text(&response) {
            Some(detail) if !detail.is_empty() => problem.detail(detail),
            _ => problem,
        }
    }

    /// A layer that answers errors with problems: each response with a status from 400 up that is
    /// empty or plain text. It keeps the other headers, such as `Allow`.
    pub fn layer(request: Request, next: &Next<'_>) -> Answer {
        next.run(request).map(Self::in_place_of)
    }

    /// What [`layer`](Self::layer) does to one response.
    #[must_use]
    pub fn in_place_of(response: Response) -> Response {
        let status = response.status();
        let is_error = status.is_client_error() || status.is_server_error();
        if !is_error || text(&response).is_none() {
            return response;
        }
        let (mut parts, body) = response.into_parts();
        let copy = parts.headers.get(CONTENT_TYPE).cloned();
        let mut plain = Response::new(body);
        *plain.status_mut() = status;
        plain
            .headers_mut()
            .extend(copy.map(|it| (CONTENT_TYPE, it)));
        let (problem, body) = Self::of(plain).into_response().into_parts();
        parts.headers.remove(CONTENT_LENGTH);
        parts.headers.extend(problem.headers);
        Response::from_parts(parts, body)
    }

    /// A URI that identifies the kind of problem, and may lead to its description.
    #[must_use]
    pub fn of_type(self, uri: impl Into<String>) -> Self {
        self.standard("type", uri.into())
    }

    /// A summary, which is the same for each problem of the type.
    #[must_use]
    pub fn title(self, title: impl Into<String>) -> Self {
        self.standard("title", title.into())
    }

    /// What is the matter this time, in a way that helps the client.
    #[must_use]
    pub fn detail(self, detail: impl Into<String>) -> Self {
        self.standard("detail", detail.into())
    }

    /// A URI that identifies this occurrence.
    #[must_use]
    pub fn instance(self, uri: impl Into<String>) -> Self {
        self.standard("instance", uri.into())
    }

    /// An extension member. A name of RFC 9457 is left alone, and a value that serde cannot write
    /// is left out; both are logged.
    #[must_use]
    pub fn with(mut self, name: impl Into<String>, value: impl Serialize) -> Self {
        let name = name.into();
        match serde_json::to_value(value) {
            _ if STANDARD.contains(&&*name) => {
                log::error!("a problem's {name} is no extension of it");
            }
            Ok(value) => drop(self.members.insert(name, value)),
            Err(reason) => log::error!("a problem is sent without {name}: {reason}"),
        }
        self
    }

    fn standard(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }
}

/// The content of a response that is plain text, without the end of its line, or empty; none of
/// another one.
fn text(response: &Response) -> Option<&str> {
    let content = std::str::from_utf8(response.body().as_bytes()?).ok()?;
    let is_plain = match response.headers().get(CONTENT_TYPE) {
        Some(of_type) => of_type.as_bytes().starts_with(b"text/plain"),
        None => content.is_empty(),
    };
    is_plain.then(|| content.trim_end())
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let content = Value::Object(self.members).to_string();
        let mut response = Response::new(Body::from(content));
        *response.status_mut() = self.status;
        let of_type = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(CONTENT_TYPE, of_type);
        response
    }
}

/// Rejections that `?` turns into problems.
macro_rules! from {
    ($($rejection:ident)+) => {
        $(impl From<$rejection> for Problem {
            fn from(rejection: $rejection) -> Self {
                Self::of(rejection)
            }
        })+
    };
}

from! {
    FormRejection JsonRejection MultipartRejection PathRejection QueryRejection StringRejection
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn parts(response: Response) -> (u16, String, Value) {
        let (parts, body) = response.into_parts();
        let of_type = parts.headers[CONTENT_TYPE]
            .to_str()
            .expect("ASCII")
            .to_owned();
        let content = serde_json::from_slice(&body.into_bytes()).expect("JSON");
        (parts.status.as_u16(), of_type, content)
    }

    #[test]
    fn a_problem_has_the_members_that_it_was_given() {
        let not_json = BTreeMap::from([(vec![1], 2)]);
        let problem = Problem::new(StatusCode::FORBIDDEN)
            .of_type("https://a.example/b")
            .title("No.")
            .detail("really \"no\"")
            .instance("/c/7")
            .with("balance", 30)
            .with("accounts", ["a", "b"])
            .with("status", 200)
            .with("lost", not_json);
        let expected = serde_json::json!({
            "type": "https://a.example/b", "status": 403, "title": "No.",
            "detail": "really \"no\"", "instance": "/c/7", "balance": 30, "accounts": ["a", "b"],
        });
        let of_type = "application/problem+json".to_owned();
        assert_eq!(parts(problem.into_response()), (403, of_type, expected));
        let plain = Problem::new(StatusCode::NOT_FOUND).into_response();
        let expected = serde_json::json!({"status": 404, "title": "Not Found"});
        assert_eq!(parts(plain).2, expected);
    }

    #[test]
    fn refusals_become_problems_and_keep_their_headers() {
        let refused = Problem::from(StringRejection);
        let expected = serde_json::json!({
            "status": 400, "title": "Bad Request", "detail": "the body is not UTF-8",
        });
        assert_eq!(parts(refused.into_response()).2, expected);
        let allow = [("allow", "GET"), ("content-length", "3")];
        let refused = (StatusCode::METHOD_NOT_ALLOWED, allow, "no\n").into_response();
        let problem = Problem::in_place_of(refused);
        assert_eq!(problem.headers()["allow"], "GET");
        assert!(!problem.headers().contains_key(CONTENT_LENGTH));
        let expected = serde_json::json!({
            "status": 405, "title": "Method Not Allowed", "detail": "no",
        });
        assert_eq!(parts(problem).2, expected);
        let empty = Problem::in_place_of(StatusCode::GONE.into_response());
        assert_eq!(
            parts(empty).2,
            serde_json::json!({"status": 410, "title": "Gone"})
        );
        for untouched in [
            "fine".into_response(),
            (StatusCode::NOT_FOUND, crate::Html("<p>")).into_response(),
            (StatusCode::NOT_FOUND, Body::from("of no type")).into_response(),
            (StatusCode::BAD_GATEWAY, crate::Json(7)).into_response(),
            StatusCode::NOT_MODIFIED.into_response(),
        ] {
            let (status, headers) = (untouched.status(), untouched.headers().clone());
            let left = Problem::in_place_of(untouched);
            assert_eq!((left.status(), left.headers()), (status, &headers));
        }
    }
}
