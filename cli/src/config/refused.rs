//! What reading any table has in common: lists of tables and of values, texts in quotes, and why a
//! file is refused, and where.

use toml_span::{Span, Value};

/// Why a file is refused, and where.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) at: Span,
    pub(super) why: String,
}

impl Refused {
    pub(super) fn new(at: Span, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { at, why }
    }
}

/// All tables of this name.
pub(super) fn tables<'v, T>(
    value: &'v Value<'_>,
    name: &str,
    parse: impl Fn(&'v Value<'v>) -> Result<T, Refused>,
) -> Result<Vec<T>, Refused> {
    let wrong = |at| Refused::new(at, format!("{name} is a list of tables: write [[{name}]]"));
    let tables = value.as_array().ok_or_else(|| wrong(value.span))?;
    let tables = tables.iter().map(|table| match table.as_table() {
        Some(_) => parse(table),
        None => Err(wrong(table.span)),
    });
    tables.collect()
}

/// A value, or the values of a list.
pub(super) fn values_of<'v>(value: &'v Value<'v>) -> &'v [Value<'v>] {
    value
        .as_array()
        .map_or(std::slice::from_ref(value), Vec::as_slice)
}

/// A string in TOML: the escapes of JSON are among its own.
pub(crate) fn quoted(text: &str) -> String {
    let quoted = serde_json::to_string(text).expect("text has no keys that could be none");
    quoted.replace('\u{7f}', "\\u007f")
}

/// Line and column of a byte, from 1.
pub(super) fn place(text: &str, byte: usize) -> (usize, usize) {
    let before = text.get(..byte).unwrap_or(text);
    let start = before.rfind('\n').map_or(0, |end| end + 1);
    (
        1 + before.matches('\n').count(),
        1 + before[start..].chars().count(),
    )
}
