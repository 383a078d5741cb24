//! Why a rule is refused.

use http::StatusCode;
use http::header::HeaderName;

/// Why a rule is refused when it is set. The text names what was written; the caller knows where.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RuleError {
    /// The pattern is no path that a request can have.
    Path {
        /// The pattern as it was written.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The regular expression cannot be read, or would be too large.
    Expression {
        /// The expression as it was written.
        text: String,
        /// The cause, in the words of the crate `regex`.
        cause: String,
    },
    /// The target is neither a path nor an address of `http` or `https`.
    Target {
        /// The target as it was written.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// The target uses a variable that its pattern does not set.
    Variable {
        /// The target as it was written.
        text: String,
        /// The variable without its `$`.
        name: String,
    },
    /// The target has text that is a variable elsewhere and would be plain text here.
    PlainText {
        /// The target as it was written.
        text: String,
        /// The part of it.
        written: String,
        /// What to write in its place.
        cure: String,
    },
    /// The redirect leads back to its own address, at once or by way of earlier rules.
    Loop {
        /// The address that it redirects.
        from: String,
        /// The target as it was written.
        to: String,
    },
    /// Not one of 301, 302, 303, 307 and 308.
    RedirectStatus(StatusCode),
    /// An error page is for 400 to 599.
    ErrorStatus(StatusCode),
    /// The name or the value of a header is none that HTTP allows (RFC 9110, 5.1 and 5.5).
    Header {
        /// The name as it was written.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// The server alone sets this header: it frames the message, or says what the file is.
    Reserved(HeaderName),
    /// Not a media type (RFC 9110, 8.3.1).
    MediaType(String),
    /// Not the ending of a name: letters and digits, without the dot.
    Extension(String),
    /// There are too many rules of a kind.
    TooMany {
        /// The kind.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
}

flatpath::impl_error! {
    RuleError {
        Self::Path { text, reason } => "{text:?} is no path of a request: {reason}",
        Self::Expression { text, cause } => "{text:?} is no regular expression: {cause}",
        Self::Target { text, reason } => "{text:?} is no target: {reason}",
        Self::Variable { text, name } => "the pattern sets no ${name}, which {text:?} uses",
        Self::PlainText { text, written, cure } =>
            "{written} in {text:?} would be plain text: {cure}",
        Self::Loop { from, to } => "the redirect of {from:?} to {to:?} leads back to {from:?}",
        Self::RedirectStatus(status) =>
            "a redirect has status 301, 302, 303, 307 or 308, not {status}",
        Self::ErrorStatus(status) => "an error page is for a status of 400 to 599, not {status}",
        Self::Header { name, reason } => "{name:?} cannot be set: {reason}",
        Self::Reserved(name) => "the server alone sets {name}",
        Self::MediaType(text) => "{text:?} is no media type such as text/plain",
        Self::Extension(text) => "{text:?} is no ending of a name: letters and digits, no dot",
        Self::TooMany { what, limit } => "there are more than {limit} {what}",
    }
}
