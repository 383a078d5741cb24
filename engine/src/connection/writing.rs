//! The send of a connection, its output, and our end of the stream.
//!
//! See `state.rs` for the states.

use crate::connection::output::Output;
use crate::limits::OUTPUT_BYTES_LOW;

use super::Connection;
use super::state::{Closing, Marks, Writing};

impl Connection {
    #[inline]
    pub(crate) fn output(&self) -> &Output {
        &self.output
    }

    #[inline]
    pub(crate) fn output_mut(&mut self) -> &mut Output {
        &mut self.output
    }

    /// A send is outstanding, or a connect.
    #[inline]
    pub(crate) fn is_sending(&self) -> bool {
        matches!(
            self.writing,
            Writing::Sending | Writing::Cancelling | Writing::Connecting
        )
    }

    /// Nothing is left to send and nothing is being sent.
    #[inline]
    pub(crate) fn is_sent(&self) -> bool {
        !self.is_sending() && !self.output.has_waiting()
    }

    /// The next send may begin.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.writing == Writing::Idle && self.closing != Closing::Abort
    }

    /// True when what is being sent is the last of it: the send closes the socket as well.
    #[inline]
    pub(crate) fn is_at_last_send(&self) -> bool {
        self.closing == Closing::AfterOutput && !self.is_receiving() && !self.output.has_waiting()
    }

    /// The send that is outstanding closes the socket: the driver may not know it any more.
    pub(crate) fn is_sending_last(&self) -> bool {
        self.is_sending() && self.is_at_last_send()
    }

    /// Whether something is to be done as soon as what is being sent has been sent.
    #[inline]
    pub(crate) fn awaits_send(&self) -> bool {
        self.writing == Writing::Sending
            && (self.output.has_waiting() || self.has_wishes() || self.is_becoming())
    }

    #[inline]
    pub(crate) fn send_operation(&self) -> u8 {
        self.send_operation
    }

    /// Notes that a send is outstanding; its number.
    #[inline]
    pub(crate) fn begin_send(&mut self, now_ns: u64) -> u8 {
        self.writing = Writing::Sending;
        self.clocks.send_ns = now_ns;
        self.send_operation = self.send_operation.wrapping_add(1);
        self.send_operation
    }

    /// The number of the send that is to be cancelled, if one is.
    pub(crate) fn cancel_send(&mut self) -> Option<u8> {
        let goes_on = self.writing == Writing::Sending;
        goes_on.then(|| {
            self.writing = Writing::Cancelling;
            self.send_operation
        })
    }

    /// The send is over. A late completion of it must find nothing: the number moves on.
    #[inline]
    pub(crate) fn send_ended(&mut self) {
        self.writing = Writing::Idle;
        self.send_operation = self.send_operation.wrapping_add(1);
    }

    /// The kernel has taken bytes.
    #[inline]
    pub(crate) fn note_sent(&mut self, bytes: usize, now_ns: u64) {
        self.output.sent(bytes);
        self.progress(bytes);
        self.clocks.send_ns = now_ns;
    }

    /// What is queued will never be sent: the connection is cut off.
    pub(crate) fn drop_output(&mut self) {
        self.output.clear();
        self.close(Closing::Abort);
    }

    /// True when output was queued after our end of the stream, which no socket takes.
    #[inline]
    pub(crate) fn writes_after_end(&self) -> bool {
        self.writing == Writing::Finished && self.output.has_waiting()
    }

    /// Our end of the stream: FIN follows. False: it is out already, or a send is outstanding.
    #[must_use = "FIN is to be sent"]
    pub(crate) fn finish(&mut self) -> bool {
        let is_idle = self.writing == Writing::Idle;
        if is_idle {
            self.writing = Writing::Finished;
        }
        is_idle
    }

    /// Whether the FIN of its peer is to be passed on to a spliced connection.
    pub(crate) fn may_finish(&self) -> bool {
        self.writing == Writing::Idle && !self.output.has_waiting()
    }

    /// Asks for one call of the protocol when output has fallen to a mark, a power of two or 0. A
    /// stall for output ends there, too.
    #[inline]
    pub(crate) fn notify_output_below(&mut self, bytes: usize) {
        debug_assert!(bytes == 0 || bytes.is_power_of_two(), "an exact mark");
        self.marks.set(Marks::OUTPUT_LOW, true);
        self.low_power = bytes.checked_ilog2().unwrap_or(0) as u8;
    }

    pub(crate) fn notifies_output_low(&self) -> bool {
        self.marks.has(Marks::OUTPUT_LOW)
    }

    /// The protocol is called for output that has fallen to the mark.
    pub(crate) fn output_low_reported(&mut self) {
        self.marks.set(Marks::OUTPUT_LOW, false);
    }

    /// Output at which a writer that waits for that continues, in bytes.
    #[inline]
    pub(crate) fn output_bytes_low(&self) -> usize {
        1_usize << self.low_power & !1
    }

    /// Whether a stall for output is over.
    pub(crate) fn output_is_low(&self) -> bool {
        self.output.queued_bytes() <= self.output_bytes_low()
    }
}

const _: () = assert!(OUTPUT_BYTES_LOW.is_power_of_two());

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use flatpath_driver::SendList;

    use super::super::Receive;
    use super::super::tests::connection;
    use super::*;

    fn write(connection: &mut Connection) {
        let words = Bytes::from_static(b"words");
        connection.output_mut().push(words.into());
    }

    #[test]
    fn a_send_is_over_when_it_completes_and_its_number_comes_no_more() {
        let mut connection = connection(0);
        write(&mut connection);
        assert!(connection.may_send() && !connection.is_sent());
        let number = connection.begin_send(5);
        let _taken = connection.output_mut().take(&mut SendList::new());
        assert!(connection.is_sending() && !connection.may_send());
        assert!(!connection.awaits_send(), "nothing else waits");
        write(&mut connection);
        assert!(connection.awaits_send());
        connection.note_sent(5, 6);
        connection.send_ended();
        assert_ne!(connection.send_operation(), number);
        assert!(connection.may_send());
        assert_eq!(connection.moved(), 5);
    }

    #[test]
    fn a_send_is_cancelled_once() {
        let mut connection = connection(0);
        assert_eq!(connection.cancel_send(), None);
        let number = connection.begin_send(0);
        assert_eq!(connection.cancel_send(), Some(number));
        assert_eq!(connection.cancel_send(), None);
        assert!(connection.is_sending(), "until it completes");
    }

    #[test]
    fn our_end_comes_once_and_nothing_is_sent_after_it() {
        let mut connection = connection(0);
        connection.begin_send(0);
        assert!(!connection.finish(), "a send goes first");
        connection.send_ended();
        assert!(connection.may_finish() && connection.finish());
        assert!(!connection.may_finish() && !connection.finish());
        assert!(connection.is_sent() && !connection.may_send());
        write(&mut connection);
        assert!(connection.writes_after_end());
        connection.drop_output();
        assert_eq!(connection.closing(), Closing::Abort);
    }

    #[test]
    fn the_last_send_is_one_after_which_nothing_is_received_or_sent() {
        let mut connection = connection(0);
        connection.begin_receive(Receive::Once);
        connection.close(Closing::AfterOutput);
        assert!(!connection.is_at_last_send(), "the socket is received from");
        connection.receive_ended();
        assert!(connection.is_at_last_send() && !connection.is_sending_last());
        connection.begin_send(0);
        assert!(connection.is_sending_last());
    }

    #[test]
    fn a_writer_continues_at_the_mark_that_it_asked_for() {
        let mut connection = connection(0);
        assert_eq!(connection.output_bytes_low(), OUTPUT_BYTES_LOW);
        connection.notify_output_below(4096);
        assert!(connection.has_wishes());
        connection.output_low_reported();
        assert_eq!(connection.output_bytes_low(), 4096);
        connection.notify_output_below(0);
        assert_eq!(connection.output_bytes_low(), 0);
        write(&mut connection);
        assert!(!connection.output_is_low());
    }
}
