//! What a protocol counts for the metrics of its listener.

use super::Io;

impl Io<'_> {
    /// Counts a request as answered, in one of the
    /// [`request_classes`](crate::ListenerOptions::request_classes) of the listener, by its index;
    /// nothing for another one. A protocol that took the connection over counts none.
    #[inline]
    pub fn count_request(&self, class: usize) {
        if self.connection.successor() == 0
            && let Some(count) = self.counters().requests.get(class)
        {
            count.add(1);
        }
    }

    /// Counts a request as refused, for one of the
    /// [`refusal_reasons`](crate::ListenerOptions::refusal_reasons) of the listener, by its index;
    /// nothing for another one. A protocol that took the connection over counts none.
    pub fn count_refusal(&self, reason: usize) {
        if self.connection.successor() == 0 {
            self.counters().refusals.add(reason);
        }
    }

    /// Counts bytes of a body that a protocol copied by itself, in
    /// [`Statistics::body_bytes_copied`](crate::observe::statistics::Statistics::body_bytes_copied).
    pub fn count_copied(&self, bytes: usize) {
        self.counters().body_bytes_copied.add(bytes as u64);
    }
}
