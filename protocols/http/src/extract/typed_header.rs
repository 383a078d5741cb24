//! Headers as types of the crate `headers`.

use std::fmt;

use headers::{Header, HeaderMapExt};
use http::header::HeaderName;
use http::{HeaderMap, StatusCode};

use crate::extract::{FromRequestParts, OptionalFromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoHeaders, IntoResponse, InvalidHeader, refused};

/// A header of a type of the crate [`headers`], of a request or of a response. With the feature
/// `typed-headers`.
///
/// As an argument it is refused with a [`TypedHeaderRejection`] where the request has not the
/// header, or one of another form; `Option<TypedHeader<T>>` is none without it. In front of a
/// response it replaces what was there of its name.
///
/// ```
/// use std::time::Duration;
///
/// use flatpath_http::headers::authorization::{Authorization, Bearer};
/// use flatpath_http::headers::CacheControl;
/// use flatpath_http::{Router, TypedHeader};
///
/// fn greet(
///     TypedHeader(authorization): TypedHeader<Authorization<Bearer>>,
/// ) -> (TypedHeader<CacheControl>, String) {
///     let minute = CacheControl::new().with_private().with_max_age(Duration::from_secs(60));
///     let length = authorization.token().len();
///     (TypedHeader(minute), format!("a token of {length} bytes\n"))
/// }
///
/// let router: Router = Router::new().get("/", greet);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TypedHeader<T>(pub T);

/// A header that a handler takes is missing, or of another form: a 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypedHeaderRejection {
    name: &'static HeaderName,
    is_missing: bool,
}

impl TypedHeaderRejection {
    /// The name of the header.
    #[must_use]
    pub fn name(&self) -> &HeaderName {
        self.name
    }

    /// Whether the request has no such header.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        self.is_missing
    }
}

impl std::error::Error for TypedHeaderRejection {}

impl fmt::Display for TypedHeaderRejection {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = if self.is_missing {
            "missing"
        } else {
            "malformed"
        };
        write!(formatter, "the header {} is {what}", self.name)
    }
}

impl IntoResponse for TypedHeaderRejection {
    fn into_response(self) -> Response {
        refused(StatusCode::BAD_REQUEST, &self)
    }
}

fn refusal<T: Header>(is_missing: bool) -> TypedHeaderRejection {
    let name = T::name();
    TypedHeaderRejection { name, is_missing }
}

impl<S, T: Header> FromRequestParts<S> for TypedHeader<T> {
    type Rejection = TypedHeaderRejection;

    fn from_request_parts(request: &mut Request, state: &S) -> Result<Self, Self::Rejection> {
        let found = <Self as OptionalFromRequestParts<S>>::from_request_parts(request, state)?;
        found.ok_or_else(|| refusal::<T>(true))
    }
}

impl<S, T: Header> OptionalFromRequestParts<S> for TypedHeader<T> {
    type Rejection = TypedHeaderRejection;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Option<Self>, Self::Rejection> {
        let found = request.headers().typed_try_get::<T>();
        let found = found.map_err(|_| refusal::<T>(false))?;
        Ok(found.map(Self))
    }
}

impl<T: Header> IntoHeaders for TypedHeader<T> {
    fn set(self, headers: &mut HeaderMap) -> Result<(), InvalidHeader> {
        headers.typed_insert(self.0);
        Ok(())
    }
}

impl<T: Header> IntoResponse for TypedHeader<T> {
    fn into_response(self) -> Response {
        (self, ()).into_response()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use headers::authorization::{Authorization, Basic};
    use headers::{ContentType, IfNoneMatch, SetCookie, UserAgent, Vary};

    fn request(headers: &[(&'static str, &'static str)]) -> Request {
        let mut request = Request::default();
        for (name, value) in headers {
            request
                .headers_mut()
                .append(*name, value.parse().expect("valid"));
        }
        request
    }

    fn taken<T: Header>(headers: &[(&'static str, &'static str)]) -> Result<T, String> {
        let mut request = request(headers);
        let taken = <TypedHeader<T> as FromRequestParts<()>>::from_request_parts(&mut request, &());
        taken.map(|TypedHeader(header)| header).map_err(|refused| {
            assert_eq!(refused.clone().into_response().status(), 400);
            refused.to_string()
        })
    }

    #[test]
    fn headers_are_taken_by_their_types() {
        let agent = taken::<UserAgent>(&[("user-agent", "curl/8")]).expect("there");
        assert_eq!(agent.as_str(), "curl/8");
        let basic = [("authorization", "Basic YTpi")];
        let basic = taken::<Authorization<Basic>>(&basic).expect("there");
        assert_eq!((basic.username(), basic.password()), ("a", "b"));
        let tags = [
            ("if-none-match", "\"a\", \"b\""),
            ("if-none-match", "\"c\""),
        ];
        let tags = taken::<IfNoneMatch>(&tags).expect("there");
        assert!(!tags.precondition_passes(&"\"c\"".parse().expect("a tag")));
        let missing = "the header user-agent is missing".to_owned();
        assert_eq!(
            taken::<UserAgent>(&[("authorization", "x")]).err(),
            Some(missing)
        );
        let malformed = "the header authorization is malformed".to_owned();
        let other = [("authorization", "Bearer YTpi")];
        assert_eq!(taken::<Authorization<Basic>>(&other).err(), Some(malformed));
    }

    #[test]
    fn an_option_is_none_without_the_header_and_refuses_another_form() {
        let optional = |headers: &[(&'static str, &'static str)]| {
            let mut request = request(headers);
            <Option<TypedHeader<ContentType>> as FromRequestParts<()>>::from_request_parts(
                &mut request,
                &(),
            )
        };
        assert_eq!(optional(&[]), Ok(None));
        let html = optional(&[("content-type", "text/html")]);
        assert_eq!(
            html,
            Ok(Some(TypedHeader(ContentType::from(
                "text/html".parse::<headers::Mime>().expect("a type")
            ))))
        );
        let refused = optional(&[("content-type", "no type")]).expect_err("malformed");
        assert!(!refused.is_missing() && refused.name() == "content-type");
    }

    #[test]
    fn a_header_replaces_what_was_there_of_its_name() {
        let inner = (
            [("vary", "accept"), ("vary", "origin"), ("age", "1")],
            "content",
        );
        let response = (TypedHeader(Vary::any()), inner).into_response();
        let values: Vec<_> = response.headers().get_all("vary").iter().collect();
        assert_eq!(values, ["*"]);
        assert_eq!(response.headers()["age"], "1");
        // One header may have several values.
        let mut lines = HeaderMap::new();
        lines.append("set-cookie", "a=1".parse().expect("valid"));
        lines.append("set-cookie", "b=2".parse().expect("valid"));
        let cookies = lines.typed_get::<SetCookie>().expect("there");
        let response = TypedHeader(cookies).into_response();
        assert_eq!(response.headers().get_all("set-cookie").iter().count(), 2);
    }
}
