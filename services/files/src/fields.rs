//! Where request fields come from: a map owned by a worker, or a head borrowed inline.

use http::HeaderMap;
use http::header::HeaderName;

/// Something that has header fields.
pub trait Fields {
    /// All values of one field, in their order, without the white space around them.
    fn values<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]>;

    /// The value of a field that may be there once only; `None` also if it is there twice.
    fn single<'a>(&'a self, name: &'a HeaderName) -> Option<&'a [u8]> {
        let mut values = self.values(name);
        let first = values.next();
        if values.next().is_some() { None } else { first }
    }

    /// Whether a field is there at all.
    fn holds(&self, name: &HeaderName) -> bool {
        self.values(name).next().is_some()
    }
}

impl Fields for HeaderMap {
    fn values<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
        self.get_all(name)
            .iter()
            .map(|value| value.as_bytes().trim_ascii())
    }
}

/// The elements of a comma-separated list, empty ones left out. Not for lists of quoted strings.
pub(crate) fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}
