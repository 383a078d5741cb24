//! What programs say to the service and read of its answers, besides what every page of a browser
//! may: methods, and fields of PUT, of conditions and ranges, and of uploads by
//! [`tus`](crate::tus). It is what a policy of cross-origin requests (CORS) has to name.

use http::Method;
use http::header::{self, HeaderName};

use super::Files;
use crate::tus;
use crate::writing::Writing;

/// What [`Files`] takes, and what its answers say.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Vocabulary {
    /// The methods that it answers with more than a refusal.
    pub methods: Vec<Method>,
    /// Fields of requests that it reads.
    pub request_fields: Vec<HeaderName>,
    /// Fields of its answers.
    pub response_fields: Vec<HeaderName>,
}

const READS: [Method; 2] = [Method::GET, Method::HEAD];
const WRITES: [Method; 4] = [Method::PUT, Method::POST, Method::PATCH, Method::DELETE];

/// What asks for a form of a file or a part of it, and who asks.
const ASKED: [HeaderName; 9] = [
    header::ACCEPT,
    header::AUTHORIZATION,
    header::CACHE_CONTROL,
    header::IF_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_NONE_MATCH,
    header::IF_RANGE,
    header::IF_UNMODIFIED_SINCE,
    header::RANGE,
];

const ANSWERED: [HeaderName; 11] = [
    header::ACCEPT_RANGES,
    header::ALLOW,
    header::CONTENT_DISPOSITION,
    header::CONTENT_ENCODING,
    header::CONTENT_LENGTH,
    header::CONTENT_RANGE,
    header::DATE,
    header::ETAG,
    header::LOCATION,
    header::RETRY_AFTER,
    header::WWW_AUTHENTICATE,
];

impl Files {
    /// What clients of this service say to it, and read.
    #[must_use]
    pub fn vocabulary(&self) -> Vocabulary {
        let mut all = Vocabulary {
            methods: READS.into(),
            request_fields: ASKED.into(),
            response_fields: ANSWERED.into(),
        };
        if self.writing != Writing::Refused {
            all.methods.extend(WRITES);
            all.request_fields.push(header::CONTENT_TYPE);
            all.request_fields.extend(tus::request_fields());
            all.response_fields.extend(tus::response_fields());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::WriteOptions;
    use crate::answer::{ALLOWED, ALLOWED_WRITABLE};

    #[test]
    fn its_methods_are_those_that_a_405_allows() {
        let folder = tempfile::tempdir().expect("a directory");
        for (writing, allowed) in [
            (Writing::Refused, ALLOWED),
            (Writing::Allowed(WriteOptions::default()), ALLOWED_WRITABLE),
        ] {
            let files = Files::open(folder.path()).expect("it opens");
            let methods = files.writable(writing).vocabulary().methods;
            let names: Vec<_> = methods.iter().map(Method::as_str).collect();
            assert_eq!(format!("{}, OPTIONS", names.join(", ")), allowed);
        }
    }
}
