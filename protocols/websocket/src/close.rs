//! How a conversation ends: the code and the reason of a close frame (RFC 6455 sections 5.5.1 and
//! 7.4).

use bytestring::ByteString;

use crate::fault::Fault;
use crate::limits::REASON_BYTES_MAX;

/// Why a socket is closed.
///
/// ```
/// use flatpath_websocket::{Close, Handler, Message, Socket, code};
///
/// struct Client;
///
/// impl Handler for Client {
///     fn message(&mut self, socket: &Socket, _: Message) {
///         socket.close(code::POLICY, "this server only talks");
///     }
///
///     fn closed(&mut self, _: &Socket, close: &Close) {
///         println!("{} {}", close.code, close.reason);
///     }
/// }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Close {
    /// One of [`code`], or of the program's own: 3000 to 4999.
    pub code: u16,
    /// For people; may be empty.
    pub reason: ByteString,
}

/// Close codes (section 7.4.1 and the registry that it founds).
pub mod code {
    /// The purpose is fulfilled.
    pub const NORMAL: u16 = 1000;
    /// The server shuts down, or the user leaves the page.
    pub const GOING_AWAY: u16 = 1001;
    /// The peer breaks the protocol.
    pub const PROTOCOL_ERROR: u16 = 1002;
    /// The peer sent a kind of message that is not accepted.
    pub const UNSUPPORTED: u16 = 1003;
    /// Never sent: the close frame had no code.
    pub const NONE: u16 = 1005;
    /// Never sent: there was no close frame.
    pub const ABNORMAL: u16 = 1006;
    /// Text that is not UTF-8, and the like.
    pub const INVALID_DATA: u16 = 1007;
    /// A message breaks a rule of the receiver.
    pub const POLICY: u16 = 1008;
    /// A message is too long.
    pub const TOO_BIG: u16 = 1009;
    /// The client wanted an extension that the server did not negotiate. Only clients send it.
    pub const EXTENSION: u16 = 1010;
    /// The server failed.
    pub const INTERNAL_ERROR: u16 = 1011;
    /// The server has no room now.
    pub const TRY_AGAIN_LATER: u16 = 1013;
}

impl Close {
    /// A close frame with this code. Of the reason only whole characters of the first 123 bytes
    /// are kept.
    pub fn new(code: u16, reason: &str) -> Close {
        let end = (0..=REASON_BYTES_MAX.min(reason.len()))
            .rev()
            .find(|at| reason.is_char_boundary(*at));
        Close {
            code,
            reason: ByteString::from(&reason[..end.unwrap_or(0)]),
        }
    }

    /// One that was never sent: `code` is 1005 or 1006.
    pub(crate) fn unsaid(code: u16) -> Close {
        Close {
            code,
            reason: ByteString::new(),
        }
    }

    /// Reads what a close frame carries.
    pub(crate) fn read(payload: &[u8]) -> Result<Close, Fault> {
        let Some((code, reason)) = payload.split_first_chunk::<2>() else {
            return match payload {
                [] => Ok(Close::unsaid(code::NONE)),
                _ => Err(Fault::CloseCode),
            };
        };
        let code = u16::from_be_bytes(*code);
        if !may_be_sent(code) {
            return Err(Fault::CloseCode);
        }
        let reason = std::str::from_utf8(reason).map_err(|_| Fault::Utf8)?;
        Ok(Close {
            code,
            reason: reason.into(),
        })
    }

    /// What a close frame of this carries.
    pub(crate) fn payload(&self) -> Vec<u8> {
        if self.code == code::NONE {
            return Vec::new();
        }
        let code = self.code.to_be_bytes();
        [&code[..], &self.reason.as_bytes()[..]].concat()
    }
}

impl From<Fault> for Close {
    fn from(fault: Fault) -> Close {
        Close::new(fault.code(), &fault.to_string())
    }
}

/// Whether a close frame may have this code: 1004 is reserved; 1005, 1006 and 1015 are for programs
/// only; below 3000 the others are not given out.
pub(crate) fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_between_characters() {
        let close = Close::new(4000, &"é".repeat(100));
        assert_eq!(close.reason, "é".repeat(61).as_str());
        assert_eq!(Close::read(&close.payload()), Ok(close));
    }

    #[test]
    fn a_close_frame_without_a_code_is_read_and_written() {
        let close = Close::read(b"").expect("valid");
        assert_eq!(close.code, code::NONE);
        assert!(close.payload().is_empty());
    }

    #[test]
    fn only_codes_that_may_be_sent_are_read() {
        for code in 0..=u16::MAX {
            let read = Close::read(&code.to_be_bytes());
            assert_eq!(read.is_ok(), may_be_sent(code), "{code}");
        }
        let refused = [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, 65535];
        assert!(refused.into_iter().all(|code| !may_be_sent(code)));
        assert_eq!(Close::read(b"\x03"), Err(Fault::CloseCode));
        assert_eq!(Close::read(b"\x03\xe8\xff"), Err(Fault::Utf8));
    }
}
