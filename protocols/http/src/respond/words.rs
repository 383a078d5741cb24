//! Replies of constant words: for clients for which there is no memory, and so no other reply.
//!
//! They are status, fields and body as any reply is. As text of HTTP/1 they are there as a whole,
//! so that to send them takes no memory either. None has a date, and after each a connection of
//! HTTP/1 ends.

#[cfg(feature = "http2")]
use http::StatusCode;

use crate::head::RequestMeta;
#[cfg(feature = "http2")]
use crate::head::Spoken;
#[cfg(feature = "http2")]
use crate::respond::encode::HeadOut;

/// See the module.
#[derive(Debug)]
pub(crate) struct Words {
    pub(crate) status: u16,
    /// Names and values, without what only a connection means.
    #[cfg_attr(not(feature = "http2"), allow(dead_code, reason = "the text has them"))]
    pub(crate) fields: &'static [(&'static str, &'static str)],
    pub(crate) body: &'static str,
    /// All of it over HTTP/1.
    pub(crate) text: &'static str,
}

impl Words {
    /// The body for this request: a reply to HEAD has none.
    pub(crate) fn body_for(&self, request: RequestMeta) -> &'static str {
        match request.is_head {
            true => "",
            false => self.body,
        }
    }

    /// All of it over HTTP/1 for this request.
    pub(crate) fn text_for(&self, request: RequestMeta) -> &'static str {
        let left_out = self.body.len() - self.body_for(request).len();
        &self.text[..self.text.len() - left_out]
    }

    /// The head as a block.
    #[cfg(feature = "http2")]
    pub(crate) fn put_block(&self, out: &mut Vec<u8>) {
        let status = StatusCode::from_u16(self.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut head = HeadOut::begin(out, Spoken::Http2, status);
        for (name, value) in self.fields {
            head.spelled(name.as_bytes(), value.as_bytes());
        }
    }
}

macro_rules! words {
    ($status:literal, $reason:literal, [$($name:literal: $value:literal),*], $body:literal) => {
        &Words {
            status: $status,
            fields: &[$(($name, $value)),*],
            body: $body,
            text: concat!(
                "HTTP/1.1 ", $status, " ", $reason, "\r\n",
                $($name, ": ", $value, "\r\n",)*
                "Connection: close\r\n\r\n",
                $body
            ),
        }
    };
}

/// To a client for which there is no room. It may retry, a second later.
pub(crate) const REFUSAL: &Words = words!(
    503,
    "Service Unavailable",
    [
        "Content-Type": "text/plain; charset=utf-8",
        "Content-Length": "44",
        "Retry-After": "1"
    ],
    "The server is busy. Please try again later.\n"
);

/// To a request for an upgrade whose client then ended its side of the connection.
pub(crate) const HALF_CLOSED: &Words = words!(
    400,
    "Bad Request",
    ["Content-Type": "text/plain; charset=utf-8", "Content-Length": "62"],
    "After an upgrade the client must be able to send, and cannot.\n"
);

/// To a request that made the service panic, where there is no buffer for another reply.
pub(crate) const FAILURE: &Words = words!(
    500,
    "Internal Server Error",
    ["Content-Type": "text/plain; charset=utf-8", "Content-Length": "34"],
    "The request could not be handled.\n"
);

#[cfg(test)]
mod tests {
    use super::*;
    #[cfg(not(feature = "http2"))]
    use http::StatusCode;

    #[test]
    fn constant_words_are_whole_replies() {
        for words in [REFUSAL, HALF_CLOSED, FAILURE] {
            let status = StatusCode::from_u16(words.status).expect("a status");
            let (head, body) = words
                .text
                .split_once("\r\n\r\n")
                .expect("a head and a body");
            assert_eq!(head.lines().next(), Some(&*format!("HTTP/1.1 {status}")));
            assert_eq!(body, words.body);
            let length = words
                .fields
                .iter()
                .find(|(name, _)| *name == "Content-Length");
            assert_eq!(length.map(|it| it.1), Some(&*body.len().to_string()));
            assert!(head.ends_with("\r\nConnection: close"));
        }
        assert!(REFUSAL.text.contains("\r\nRetry-After: 1\r\n"));
    }
}
