//! The `Date` header, written once per second and copied from then on.

use std::io::Write;
use std::time::{Duration, UNIX_EPOCH};

use httpdate::HttpDate;

/// `Date: ` and 29 characters and the line end.
const LINE_BYTES: usize = "Date: ".len() + "Sun, 06 Nov 1994 08:49:37 GMT".len() + "\r\n".len();

/// The last second of the year 9999: later ones have no date in this format.
const SECONDS_MAX: u64 = 253_402_300_799;

/// The `Date` line of one second.
#[derive(Clone, Debug)]
pub(crate) struct DateLine {
    seconds: u64,
    line: [u8; LINE_BYTES],
}

impl DateLine {
    pub(crate) fn new() -> Self {
        let mut date = Self {
            seconds: 0,
            line: [b' '; LINE_BYTES],
        };
        date.write(0);
        date
    }

    /// The line for this second of the wall clock, line end included.
    pub(crate) fn at(&mut self, wall_seconds: u64) -> &[u8] {
        if wall_seconds != self.seconds {
            self.write(wall_seconds);
        }
        &self.line
    }

    #[cold]
    fn write(&mut self, wall_seconds: u64) {
        self.seconds = wall_seconds;
        let time = UNIX_EPOCH + Duration::from_secs(wall_seconds.min(SECONDS_MAX));
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
        assert_eq!(
            date.at(784_111_777),
            b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
        );
        assert_eq!(
            date.at(784_111_778),
            b"Date: Sun, 06 Nov 1994 08:49:38 GMT\r\n"
        );
        assert_eq!(date.at(0), b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        assert_eq!(
            date.at(u64::MAX),
            b"Date: Fri, 31 Dec 9999 23:59:59 GMT\r\n"
        );
    }
}
