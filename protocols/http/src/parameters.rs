//! What the parameters of a path matched.

use std::convert::Infallible;

use percent_encoding::percent_decode_str;

use crate::extract::FromRequestParts;
use crate::message::Request;

/// The parameters of a request's path, percent-decoded, in their order. Empty without a router.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// None when one is not UTF-8.
    pub(crate) fn decode<'a>(raw: impl Iterator<Item = (&'a str, &'a str)>) -> Option<Self> {
        let decoded = raw.map(|(name, value)| {
            let value = percent_decode_str(value).decode_utf8().ok()?;
            Some((name.to_owned(), value.into_owned()))
        });
        decoded.collect::<Option<_>>().map(Self)
    }

    /// What stands in the place of `{name}`.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&str> {
        let mut found = self.iter().filter(|(known, _)| *known == name);
        found.next().map(|(_, value)| value)
    }

    /// Names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }
}

impl<S> FromRequestParts<S> for Parameters {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        let parameters = request.extensions().get::<Self>();
        Ok(parameters.cloned().unwrap_or_default())
    }
}
