//! Text that other servers take for a variable, and that would be plain text here: `:splat`,
//! `{name}`, `*`. A target with it is refused, as it leads to no file that is meant. What is really
//! meant as it is can be percent-encoded.

use super::error::RuleError;
use super::pattern::{Pattern, SPLAT};

/// Refuses plain text of a target that looks like a variable.
///
/// # Errors
/// [`RuleError::PlainText`].
pub(super) fn check(target: &str, plain: &str, pattern: &Pattern) -> Result<(), RuleError> {
    let Some((written, name)) = look_alike(plain, pattern) else {
        return Ok(());
    };
    let cure = match pattern.sets(name) {
        true => format!("the variable is ${name}, and :{name} in _redirects"),
        false => "the pattern sets no such variable; percent-encode what is meant as it is".into(),
    };
    Err(RuleError::PlainText {
        text: target.to_owned(),
        written: written.to_owned(),
        cure,
    })
}

/// The first text that looks like a variable, and the name of that.
fn look_alike<'t>(plain: &'t str, pattern: &Pattern) -> Option<(&'t str, &'t str)> {
    plain.char_indices().find_map(|(at, character)| {
        let (before, left) = plain.split_at(at);
        match character {
            '*' => Some((&left[..1], SPLAT)),
            '{' => {
                let end = left.find('}').map_or(left.len(), |end| end + 1);
                let written = &left[..end];
                Some((written, written.trim_matches(['{', '}'])))
            }
            '}' => Some((&left[..1], "")),
            ':' => {
                let name = name_at(&left[1..])?;
                // Elsewhere a colon is plain text: `urn:isbn`, `?at=:x`.
                let is_meant = before.ends_with('/') || name == SPLAT || pattern.sets(name);
                is_meant.then(|| (&left[..=name.len()], name))
            }
            _ => None,
        }
    })
}

/// The name of a variable that a text begins with.
fn name_at(text: &str) -> Option<&str> {
    let is_part = |it: char| it.is_ascii_alphanumeric() || it == '_';
    let end = text.find(|it| !is_part(it)).unwrap_or(text.len());
    let begins = text.starts_with(|it: char| it.is_ascii_alphabetic());
    begins.then(|| &text[..end])
}

/// Whether a text without variables names one that the pattern sets.
pub(super) fn names_variable(text: &str, pattern: &Pattern) -> bool {
    text.char_indices().any(|(at, character)| {
        let left = text[at + character.len_utf8()..].trim_start_matches('{');
        matches!(character, ':' | '$') && name_at(left).is_some_and(|name| pattern.sets(name))
    })
}
