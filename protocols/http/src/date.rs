//! The `Date` header, written once per second and copied from then on.

use std::io::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use httpdate::HttpDate;

/// `Date: ` and 29 characters and the line end.
const LINE_BYTES: usize = "Date: ".len() + "Sun, 06 Nov 1994 08:49:37 GMT".len() + "\r\n".len();

/// The last second of the year 9999: later ones have no date in this format.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The `Date` line of one second.
#[derive(Clone, Debug)]
pub(crate) struct DateLine {
    second: SystemTime,
    line: [u8; LINE_BYTES],
}

impl DateLine {
    pub(crate) fn new() -> Self {
        let mut date = Self {
            second: UNIX_EPOCH,
            line: [b' '; LINE_BYTES],
        };
        date.write(UNIX_EPOCH);
        date
    }

    /// The line for this second of the wall clock, line end included.
    pub(crate) fn at(&mut self, second: SystemTime) -> &[u8] {
        if second != self.second {
            self.write(second);
        }
        &self.line
    }

    #[cold]
    fn write(&mut self, second: SystemTime) {
        self.second = second;
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
            let line = date.at(UNIX_EPOCH + Duration::from_secs(seconds));
            assert_eq!(line, format!("Date: {text}\r\n").as_bytes());
        }
    }
}
