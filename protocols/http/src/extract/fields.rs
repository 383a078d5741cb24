//! What extractors through serde share: which field did not fit, and what a body claims to be.

use std::fmt;

use http::header::CONTENT_TYPE;

use crate::message::Request;

/// What a client sent in one field, and why it does not fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    field: Option<String>,
    reason: String,
}

impl std::error::Error for FieldError {}

impl FieldError {
    pub(crate) fn new(field: Option<String>, reason: impl fmt::Display) -> Self {
        let reason = reason.to_string();
        Self { field, reason }
    }

    /// Of a deserializer that was followed; what it did not enter names no field.
    pub(crate) fn at(error: serde_path_to_error::Error<impl fmt::Display>) -> Self {
        let path = error.path();
        let field = path.iter().next().map(|_| path.to_string());
        Self::new(field, error.inner())
    }

    /// Where it is: `items[0].name`. None where the whole does not fit, or lacks a field, which the
    /// reason names then.
    #[must_use]
    pub fn field(&self) -> Option<&str> {
        self.field.as_deref()
    }

    /// Why it does not fit.
    #[must_use]
    pub fn reason(&self) -> &str {
        &self.reason
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(field) = &self.field {
            write!(formatter, "{field}: ")?;
        }
        formatter.write_str(&self.reason)
    }
}

/// Type and subtype of the body, as its header spells them, without parameters. None without the
/// header, or when it has no text.
pub(crate) fn media_type(request: &Request) -> Option<&str> {
    let value = request.headers().get(CONTENT_TYPE)?.to_str().ok()?;
    Some(value.split(';').next().unwrap_or_default().trim())
}
