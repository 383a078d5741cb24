//! How long a client is borne with (RFC 9113 section 10.5): what does nothing, requests that
//! no one waits for, broken rules.
//!
//! Invariants
//! - C3: what does nothing is at most `IDLE_BYTES_FREE` and `IDLE_BYTES_PART` times what does
//!   something, counted in bytes of frames.

use super::bounds::{CANCELLED_MAX, FAULTY_STREAMS_MAX, IDLE_BYTES_FREE, IDLE_BYTES_PART};
use super::wire::Code;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Patience {
    /// Bytes of frames that did nothing, and of those that did something.
    idle_bytes: u64,
    busy_bytes: u64,
    /// Requests that the client has cancelled, less those that were answered.
    cancelled: usize,
    /// Streams in which the client has broken rules.
    faulty: usize,
}

impl Patience {
    /// So much was done for the client.
    pub(super) fn busy(&mut self, bytes: usize) {
        self.busy_bytes += bytes as u64;
    }

    /// A frame did nothing (C3).
    pub(super) fn idles(&mut self, bytes: usize) -> Result<(), Code> {
        self.idle_bytes += bytes as u64;
        let most = IDLE_BYTES_FREE + IDLE_BYTES_PART * self.busy_bytes;
        (self.idle_bytes <= most)
            .then_some(())
            .ok_or(Code::EnhanceYourCalm)
    }

    /// The client has broken a rule in a stream.
    pub(super) fn faults(&mut self) -> Result<(), Code> {
        self.faulty += 1;
        (self.faulty <= FAULTY_STREAMS_MAX)
            .then_some(())
            .ok_or(Code::EnhanceYourCalm)
    }

    /// A stream is over. `is_cancelled`: its client has wanted no answer, or no more of it.
    pub(super) fn stream_is_over(&mut self, is_cancelled: bool) -> Result<(), Code> {
        self.cancelled = match is_cancelled {
            true => self.cancelled + 1,
            false => self.cancelled.saturating_sub(1),
        };
        (self.cancelled <= CANCELLED_MAX)
            .then_some(())
            .ok_or(Code::EnhanceYourCalm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Result<(), Code> = Err(Code::EnhanceYourCalm);

    #[test]
    fn what_does_nothing_is_many_times_what_does_something() {
        let mut patience = Patience::default();
        let free = IDLE_BYTES_FREE as usize;
        assert_eq!(patience.idles(free), Ok(()));
        patience.busy(2);
        assert_eq!(patience.idles(2 * IDLE_BYTES_PART as usize), Ok(()));
        assert_eq!(patience.idles(1), CALM);
    }

    #[test]
    fn requests_may_be_cancelled_as_they_are_answered() {
        let mut patience = Patience::default();
        assert_eq!(patience.stream_is_over(false), Ok(()), "no credit");
        for _ in 0..CANCELLED_MAX {
            assert_eq!(patience.stream_is_over(true), Ok(()));
        }
        assert_eq!(patience.stream_is_over(false), Ok(()));
        assert_eq!(patience.stream_is_over(true), Ok(()));
        assert_eq!(patience.stream_is_over(true), CALM);
    }

    #[test]
    fn rules_may_be_broken_in_some_streams() {
        let mut patience = Patience::default();
        for _ in 0..FAULTY_STREAMS_MAX {
            assert_eq!(patience.faults(), Ok(()));
        }
        assert_eq!(patience.faults(), CALM);
    }
}
