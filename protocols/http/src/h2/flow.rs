//! One stream as the protocol has it: which side has ended, and the windows of both.
//!
//! ```text
//!             HEADERS                 END_STREAM of the client
//!    idle ─────────────► open ──────────────────────────────► half closed
//!                         │ END_STREAM of the server           │ the same
//!                         ▼                                    ▼
//!                      half closed ──────────────────────────► closed
//! ```
//!
//! (RFC 9113 section 5.1.) RST_STREAM of either side closes it from each of these. A stream that is
//! idle or closed has no place here: its number says which of the two it is (`core`).
//!
//! | the client sends | open                         | half closed (it has ended)    |
//! |------------------|------------------------------|-------------------------------|
//! | DATA             | within its window and length | STREAM_CLOSED (5.1)           |
//! | HEADERS          | trailers, with END_STREAM    | STREAM_CLOSED (5.1)           |
//! | WINDOW_UPDATE    | opens its window             | the same                      |
//! | RST_STREAM       | closes it                    | the same                      |

use super::bounds::STREAM_WINDOW_BYTES;
use super::wire::{Code, WINDOW_MAX};

/// See the module.
#[derive(Debug)]
pub(super) struct Flow {
    pub(super) id: u32,
    /// What its client takes more of the reply. Less than nothing after a setting (RFC 9113 section
    /// 6.9.2).
    send_window: i64,
    /// What its client may send more.
    receive_window: u32,
    /// Bytes that were taken, and that the client does not know of.
    released: u32,
    /// Of the length that was announced, what is to come.
    length_left: Option<u64>,
    /// The client has ended its side.
    pub(super) is_received: bool,
}

impl Flow {
    /// A stream whose HEADERS have come.
    pub(super) fn new(id: u32, send_window: u32, is_received: bool) -> Flow {
        Flow {
            id,
            send_window: send_window.into(),
            receive_window: STREAM_WINDOW_BYTES,
            released: 0,
            length_left: None,
            is_received,
        }
    }

    /// The request has announced the length of its body.
    ///
    /// # Errors
    /// RFC 9113 8.1.1: "A request or response is also malformed if the value of a content-length
    /// header field does not equal the sum of the DATA frame payload lengths that form the
    /// content".
    pub(super) fn announced(&mut self, length: Option<u64>) -> Result<(), Code> {
        self.length_left = length;
        self.check_end()
    }

    fn check_end(&self) -> Result<(), Code> {
        match self.length_left {
            Some(1..) if self.is_received => Err(Code::Protocol),
            _ => Ok(()),
        }
    }

    /// A frame of DATA begins, with so much of the body, and so much with its padding.
    ///
    /// # Errors
    /// The stream has ended (RFC 9113 section 5.1), its window has no room (6.9.1), or it is more
    /// than was announced (8.1.1): errors of the stream.
    pub(super) fn data(&mut self, body_bytes: usize, frame_bytes: usize) -> Result<(), Code> {
        if self.is_received {
            return Err(Code::StreamClosed);
        }
        // Neither is more than a frame.
        let left = self.receive_window.checked_sub(frame_bytes as u32);
        self.receive_window = left.ok_or(Code::FlowControl)?;
        if let Some(left) = &mut self.length_left {
            *left = left.checked_sub(body_bytes as u64).ok_or(Code::Protocol)?;
        }
        Ok(())
    }

    /// The client has ended its side.
    ///
    /// # Errors
    /// Less has come than was announced (RFC 9113 section 8.1.1).
    pub(super) fn ended(&mut self) -> Result<(), Code> {
        self.is_received = true;
        self.check_end()
    }

    /// So much was taken. Returns what the client is to be told, once that is worth a frame.
    pub(super) fn release(&mut self, bytes: u32) -> Option<u32> {
        self.released += bytes;
        let is_told = !self.is_received && self.released >= STREAM_WINDOW_BYTES / 2;
        let told = is_told.then(|| std::mem::take(&mut self.released))?;
        self.receive_window += told;
        Some(told)
    }

    /// The client takes so much more.
    ///
    /// # Errors
    /// RFC 9113 6.9: "A receiver MUST treat the receipt of a WINDOW_UPDATE frame with a
    /// flow-control window increment of 0 as a stream error of type PROTOCOL_ERROR". 6.9.1: "If a
    /// sender receives a WINDOW_UPDATE that causes a flow-control window to exceed this maximum, it
    /// MUST terminate either the stream or the connection, as appropriate."
    pub(super) fn opens(&mut self, bytes: u32) -> Result<(), Code> {
        if bytes == 0 {
            return Err(Code::Protocol);
        }
        self.resized(bytes.into())
    }

    /// A setting moves its window.
    ///
    /// # Errors
    /// It would be larger than a window can be (RFC 9113 section 6.9.2).
    pub(super) fn resized(&mut self, by: i64) -> Result<(), Code> {
        self.send_window += by;
        let is_right = self.send_window <= WINDOW_MAX.into();
        is_right.then_some(()).ok_or(Code::FlowControl)
    }

    /// What may be sent of a reply's body.
    pub(super) fn send_room(&self) -> usize {
        usize::try_from(self.send_window).unwrap_or(0)
    }

    /// So much of a body was sent, at most what might be.
    pub(super) fn sent(&mut self, bytes: usize) {
        debug_assert!(bytes <= self.send_room(), "the window had room");
        self.send_window -= bytes as i64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow() -> Flow {
        Flow::new(1, 100, false)
    }

    #[test]
    fn a_body_is_as_long_as_was_announced() {
        let mut exact = flow();
        assert_eq!(exact.announced(Some(5)), Ok(()));
        assert_eq!(exact.data(3, 9), Ok(()));
        assert_eq!(exact.data(2, 2), Ok(()));
        assert_eq!(exact.ended(), Ok(()));
        assert_eq!(exact.data(0, 0), Err(Code::StreamClosed));
        let mut short = flow();
        assert_eq!(short.announced(Some(5)), Ok(()));
        assert_eq!(short.data(4, 4), Ok(()));
        assert_eq!(short.ended(), Err(Code::Protocol));
        let mut long = flow();
        assert_eq!(long.announced(Some(5)), Ok(()));
        assert_eq!(long.data(6, 6), Err(Code::Protocol));
        let mut none = Flow::new(1, 0, true);
        assert_eq!(none.announced(Some(0)), Ok(()));
        assert_eq!(none.announced(Some(1)), Err(Code::Protocol));
        let mut unknown = flow();
        assert_eq!((unknown.data(7, 7), unknown.ended()), (Ok(()), Ok(())));
    }

    #[test]
    fn a_client_sends_no_more_than_its_window() {
        let mut flow = flow();
        let window = STREAM_WINDOW_BYTES as usize;
        assert_eq!(flow.data(0, window), Ok(()), "padding counts");
        assert_eq!(flow.data(0, 1), Err(Code::FlowControl));
        assert_eq!(flow.release(STREAM_WINDOW_BYTES / 2 - 1), None);
        assert_eq!(flow.release(1), Some(STREAM_WINDOW_BYTES / 2));
        assert_eq!(flow.data(1, window / 2), Ok(()));
        assert_eq!(flow.data(1, 1), Err(Code::FlowControl));
        flow.is_received = true;
        assert_eq!(flow.release(STREAM_WINDOW_BYTES), None, "it sends no more");
    }

    #[test]
    fn a_reply_is_sent_as_the_window_has_room() {
        let mut flow = flow();
        assert_eq!(flow.send_room(), 100);
        flow.sent(60);
        assert_eq!(flow.resized(-50), Ok(()));
        assert_eq!(flow.send_room(), 0, "it is less than nothing");
        assert_eq!(flow.opens(15), Ok(()));
        assert_eq!(flow.send_room(), 5);
        assert_eq!(flow.opens(0), Err(Code::Protocol));
        assert_eq!(flow.opens(WINDOW_MAX - 5), Ok(()));
        assert_eq!(flow.opens(1), Err(Code::FlowControl));
    }
}
