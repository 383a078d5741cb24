//! Where request headers come from: a map owned by a worker, or a head borrowed inline.

use flatpath_http::Head;
use http::HeaderMap;
use http::header::HeaderName;

pub(crate) trait Headers {
    /// All values of one header, in their order, without the white space around them.
    fn all<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]>;

    /// The value of a header that may be there once only; `None` also if it is there twice.
    fn single<'a>(&'a self, name: &'a HeaderName) -> Option<&'a [u8]> {
        let mut values = self.all(name);
        let first = values.next();
        if values.next().is_some() { None } else { first }
    }

    fn holds(&self, name: &HeaderName) -> bool {
        self.all(name).next().is_some()
    }
}

impl Headers for HeaderMap {
    fn all<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
        self.get_all(name)
            .iter()
            .map(|value| value.as_bytes().trim_ascii())
    }
}

impl Headers for Head<'_> {
    fn all<'a>(&'a self, name: &'a HeaderName) -> impl Iterator<Item = &'a [u8]> {
        Head::values(self, name.as_str())
    }
}

/// The text of a number: digits and nothing else.
pub(crate) fn digits(text: &[u8]) -> Option<&str> {
    let all = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    all.then(|| std::str::from_utf8(text).ok())?
}

/// A number in digits alone that a word can hold.
pub(crate) fn number(text: &[u8]) -> Option<u64> {
    digits(text)?.parse().ok()
}
