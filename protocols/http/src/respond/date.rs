//! The `Date` header, written once per second and copied from then on.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

#[cfg(feature = "http2")]
use crate::h2::hpack::put_field;
use crate::head::Spoken;

const NAME_BYTES: usize = "Date: ".len();

/// `Date: ` and 29 characters and the line end.
const LINE_BYTES: usize = NAME_BYTES + "Sun, 06 Nov 1994 08:49:37 GMT".len() + "\r\n".len();

/// The last second of the year 9999: later ones have no date in this format.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The `Date` of one second.
#[derive(Clone, Debug)]
pub(crate) struct DateLine {
    second: SystemTime,
    line: [u8; LINE_BYTES],
    /// The field of HTTP/2, once it was asked for.
    #[cfg(feature = "http2")]
    field: Vec<u8>,
}

impl DateLine {
    pub(crate) fn new() -> Self {
        let mut date = Self {
            second: UNIX_EPOCH,
            line: [b' '; LINE_BYTES],
            #[cfg(feature = "http2")]
            field: Vec::new(),
        };
        date.write(UNIX_EPOCH);
        date
    }

    /// What the head of a reply has of it in this second of the wall clock: a line with its end, or
    /// a field.
    pub(crate) fn at(&mut self, second: SystemTime, spoken: Spoken) -> &[u8] {
        if second != self.second {
            self.write(second);
        }
        match spoken {
            Spoken::Http10 | Spoken::Http11 => &self.line,
            #[cfg(feature = "http2")]
            Spoken::Http2 => self.field(),
        }
    }

    #[cfg(feature = "http2")]
    fn field(&mut self) -> &[u8] {
        if self.field.is_empty() {
            let value = &self.line[NAME_BYTES..LINE_BYTES - "\r\n".len()];
            put_field(&mut self.field, b"date", value);
        }
        &self.field
    }

    #[cold]
    fn write(&mut self, second: SystemTime) {
        self.second = second;
        #[cfg(feature = "http2")]
        self.field.clear();
        let time = second.min(UNIX_EPOCH + Duration::from_secs(SECONDS_MAX));
        let mut room = &mut self.line[..];
        let written = write!(room, "Date: {}\r\n", HttpDate::from(time));
        debug_assert!(
            written.is_ok() && room.is_empty(),
            "a date has 29 characters"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_follows_the_clock() {
        let mut date = DateLine::new();
        for (seconds, text) in [
            (784_111_777, "Sun, 06 Nov 1994 08:49:37 GMT"),
            (784_111_778, "Sun, 06 Nov 1994 08:49:38 GMT"),
            (0, "Thu, 01 Jan 1970 00:00:00 GMT"),
            (SECONDS_MAX, "Fri, 31 Dec 9999 23:59:59 GMT"),
            (i64::MAX as u64, "Fri, 31 Dec 9999 23:59:59 GMT"),
        ] {
            let at = UNIX_EPOCH + Duration::from_secs(seconds);
            let line = date.at(at, Spoken::Http11);
            assert_eq!(line, format!("Date: {text}\r\n").as_bytes());
            #[cfg(feature = "http2")]
            for _ in 0..2 {
                let mut field = Vec::new();
                put_field(&mut field, b"date", text.as_bytes());
                assert_eq!(date.at(at, Spoken::Http2), field);
            }
        }
    }
}
