//! What the parameters of a path matched.

use std::convert::Infallible;

use percent_encoding::percent_decode_str;

use crate::extract::FromRequestParts;
use crate::message::Request;

/// The parameters of a request's path, percent-decoded, in their order. Empty without a router.
///
/// A value is what the client wrote. It has no NUL, and `..` is none of the parts that slashes cut
/// it into: such requests get 400. It may hold slashes for all that, also the first of an absolute
/// path: those of `{*rest}`, and in any value as `%2F`. So a value that names a file is checked
/// before it is joined to a directory, which [`Path::join`](std::path::Path::join) leaves for an
/// absolute path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parameters(Vec<(String, String)>);

impl Parameters {
    /// # Errors
    /// Why one is refused.
    pub(crate) fn decode<'a>(
        raw: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, &'static str> {
        let decoded = raw.map(|(name, value)| {
            let value = percent_decode_str(value).decode_utf8();
            let value = value.map_err(|_| "a part of the path is not UTF-8")?;
            if value.contains('\0') {
                return Err("a part of the path has a NUL");
            }
            harmless(&value)?;
            Ok((name.to_owned(), value.into_owned()))
        });
        decoded.collect::<Result<_, _>>().map(Self)
    }

    /// The same for values without an escape.
    ///
    /// # Errors
    /// Why one is refused.
    pub(crate) fn plain<'a>(
        raw: impl Iterator<Item = (&'a str, &'a str)>,
    ) -> Result<Self, &'static str> {
        let plain = raw.map(|(name, value)| {
            harmless(value)?;
            Ok((name.to_owned(), value.to_owned()))
        });
        plain.collect::<Result<_, _>>().map(Self)
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

/// # Errors
/// It leads upwards.
fn harmless(value: &str) -> Result<(), &'static str> {
    match value.split('/').any(|part| part == "..") {
        true => Err("a part of the path is `..`"),
        false => Ok(()),
    }
}

impl<S> FromRequestParts<S> for Parameters {
    type Rejection = Infallible;

    fn from_request_parts(request: &mut Request, _: &S) -> Result<Self, Infallible> {
        let parameters = request.extensions().get::<Self>();
        Ok(parameters.cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_value_has_a_nul_or_leads_upwards() {
        let decoded = |value| Parameters::decode([("rest", value)].into_iter());
        for value in [
            "..",
            "a/..",
            "../a",
            "a/../b",
            "%2e%2E",
            "a%2F..",
            "..%2fetc",
            "%2E%2e/etc",
            "a%00",
            "%00",
            "%ff",
        ] {
            assert!(decoded(value).is_err(), "{value}");
        }
        for (value, is) in [
            ("a/b", "a/b"),
            ("...", "..."),
            ("a..b/..c", "a..b/..c"),
            ("%252e%252e", "%2e%2e"),
            (".", "."),
            ("%2Fetc", "/etc"),
        ] {
            let found = decoded(value).expect("harmless");
            assert_eq!(found.get("rest"), Some(is));
        }
    }
}
