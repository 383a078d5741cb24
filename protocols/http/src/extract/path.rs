//! The parameters of a path, through serde.

use std::fmt::{self, Display};
use std::str::FromStr;

use http::StatusCode;
use serde::de::value::{MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Visitor};

use crate::extract::fields::FieldError;
use crate::extract::{FromRequestParts, OptionalFromRequestParts};
use crate::message::{Request, Response};
use crate::respond::into_response::{IntoResponse, refused};
use crate::router::parameters::Parameters;

/// The parameters of a request's path, percent-decoded. With the feature `json`.
///
/// | `T`                          | takes                                         |
/// |------------------------------|-----------------------------------------------|
/// | `String`, `u64`, an `enum`…  | the only parameter                            |
/// | a tuple, a `Vec`             | all of them, in their order                   |
/// | a `Vec` of pairs             | all of them with their names, in their order  |
/// | a struct, a map              | all of them, by their names                   |
///
/// A parameter that does not fit is answered with a [`PathRejection`]. `Option<Path<T>>` is none on
/// a route without parameters.
///
/// ```
/// use flatpath_http::{Path, Router};
///
/// fn page(Path((book, number)): Path<(String, u32)>) -> String {
///     format!("page {number} of {book}\n")
/// }
///
/// let router: Router = Router::new().get("/books/{book}/pages/{number}", page);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Path<T>(pub T);

/// Parameters that are not what a handler takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathRejection {
    /// 400: what stands in the place of a parameter does not fit.
    Data(FieldError),
    /// 500: whatever the client sends, the route has not the parameters that its handler takes. The
    /// reason goes to the log.
    Route(String),
}

flatpath::impl_error! {
    PathRejection {
        Self::Data(cause) => "the path does not fit: {cause}",
        Self::Route(text) => "the parameters of the route do not fit its handler: {text}",
    }
}

impl PathRejection {
    /// What it is answered with.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Data(_) => StatusCode::BAD_REQUEST,
            Self::Route(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }
}

impl IntoResponse for PathRejection {
    fn into_response(self) -> Response {
        let status = self.status();
        if status.is_server_error() {
            log::error!("a request becomes a 500: {self}");
            return status.into_response();
        }
        refused(status, &self)
    }
}

impl<S, T: DeserializeOwned> FromRequestParts<S> for Path<T> {
    type Rejection = PathRejection;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, PathRejection> {
        let none = Parameters::default();
        let parameters = request.extensions().get::<Parameters>().unwrap_or(&none);
        match T::deserialize(Values(parameters)) {
            Ok(value) => Ok(Self(value)),
            Err(Failure(rejection)) => Err(rejection),
        }
    }
}

impl<S, T: DeserializeOwned> OptionalFromRequestParts<S> for Path<T> {
    type Rejection = PathRejection;

    fn from_request_parts(request: &mut Request, state: &S) -> Result<Option<Self>, PathRejection> {
        let is_there = request.extensions().get::<Parameters>().is_some();
        let path =
            is_there.then(|| <Self as FromRequestParts<S>>::from_request_parts(request, state));
        path.transpose()
    }
}

/// What serde reports, in our words.
#[derive(Debug)]
struct Failure(PathRejection);

impl Failure {
    fn in_route(reason: impl Into<String>) -> Self {
        Self(PathRejection::Route(reason.into()))
    }

    /// The same, about this parameter.
    fn at(self, name: &str) -> Self {
        match self.0 {
            PathRejection::Data(error) if error.field().is_none() => {
                let error = FieldError::new(Some(name.to_owned()), error.reason());
                Self(PathRejection::Data(error))
            }
            other => Self(other),
        }
    }
}

impl Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

impl std::error::Error for Failure {}

impl de::Error for Failure {
    fn custom<T: Display>(reason: T) -> Self {
        Self(PathRejection::Data(FieldError::new(None, reason)))
    }

    fn missing_field(field: &'static str) -> Self {
        Self::in_route(format!("no parameter is named {field}"))
    }

    fn unknown_field(field: &str, _: &'static [&'static str]) -> Self {
        Self::in_route(format!("the handler takes no parameter {field}"))
    }

    fn invalid_length(count: usize, expected: &dyn de::Expected) -> Self {
        Self::in_route(format!("it has {count}, not {expected}"))
    }
}

/// All parameters.
struct Values<'de>(&'de Parameters);

impl<'de> Values<'de> {
    fn all(&self) -> impl ExactSizeIterator<Item = Value<'de>> + use<'de> {
        self.0.iter().map(|(name, text)| Value { name, text })
    }

    fn only(&self) -> Result<Value<'de>, Failure> {
        let mut all = self.all();
        match (all.next(), all.len()) {
            (Some(value), 0) => Ok(value),
            _ => Err(Failure::in_route(format!(
                "it has {}, not 1",
                self.all().len()
            ))),
        }
    }
}

/// One parameter.
#[derive(Clone, Copy)]
struct Value<'de> {
    name: &'de str,
    text: &'de str,
}

impl Value<'_> {
    fn parse<T: FromStr<Err: Display>>(&self) -> Result<T, Failure> {
        self.text.parse().map_err(|reason| {
            let reason = format!("{:?}: {reason}", self.text);
            let error = FieldError::new(Some(self.name.to_owned()), reason);
            Failure(PathRejection::Data(error))
        })
    }
}

impl<'de> IntoDeserializer<'de, Failure> for Value<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// Methods of `Values` for types that are made of the only parameter.
macro_rules! of_the_only_one {
    ($($method:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            self.only()?.$method(visitor)
        })+
    };
}

/// Methods of `Value` for types that are parsed.
macro_rules! parsed {
    ($($method:ident $visit:ident)+) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
            let value = self.parse()?;
            visitor.$visit(value).map_err(|failure: Failure| failure.at(self.name))
        })+
    };
}

impl<'de> Deserializer<'de> for Values<'de> {
    type Error = Failure;

    of_the_only_one! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_i128 deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
        deserialize_u128 deserialize_f32 deserialize_f64 deserialize_char deserialize_str
        deserialize_string deserialize_bytes deserialize_byte_buf deserialize_identifier
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_map(visitor)
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_map(MapDeserializer::new(
            self.all().map(|value| (value.name, value)),
        ))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_map(visitor)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_seq(SeqDeserializer::new(self.all()))
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let values = self.all();
        if values.len() != count {
            let reason = format!("it has {}, not {count}", values.len());
            return Err(Failure::in_route(reason));
        }
        visitor.visit_seq(SeqDeserializer::new(values))
    }

    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.deserialize_tuple(count, visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        self.only()?.deserialize_enum(name, variants, visitor)
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_unit()
    }
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Failure;

    parsed! {
        deserialize_bool visit_bool
        deserialize_i8 visit_i8
        deserialize_i16 visit_i16
        deserialize_i32 visit_i32
        deserialize_i64 visit_i64
        deserialize_i128 visit_i128
        deserialize_u8 visit_u8
        deserialize_u16 visit_u16
        deserialize_u32 visit_u32
        deserialize_u64 visit_u64
        deserialize_u128 visit_u128
        deserialize_f32 visit_f32
        deserialize_f64 visit_f64
        deserialize_char visit_char
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let visited = visitor.visit_borrowed_str(self.text);
        visited.map_err(|failure: Failure| failure.at(self.name))
    }

    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        let visited = visitor.visit_borrowed_bytes(self.text.as_bytes());
        visited.map_err(|failure: Failure| failure.at(self.name))
    }

    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        self.deserialize_bytes(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Failure> {
        visitor.visit_some(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        name: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Failure> {
        let text = self.text.into_deserializer();
        let chosen = Deserializer::deserialize_enum(text, name, variants, visitor);
        chosen.map_err(|failure: Failure| failure.at(self.name))
    }

    /// With its name.
    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        count: usize,
        visitor: V,
    ) -> Result<V::Value, Failure> {
        if count != 2 {
            let reason = format!("a parameter and its name are 2, not {count}");
            return Err(Failure::in_route(reason));
        }
        let Value { name, .. } = self;
        let named = [Value { name, text: name }, self];
        visitor.visit_seq(SeqDeserializer::new(named.into_iter()))
    }

    serde::forward_to_deserialize_any! {
        str string unit unit_struct seq tuple_struct map struct identifier ignored_any
    }
}
