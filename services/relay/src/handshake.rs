//! The first line of a client, and nothing else of the protocol.
//!
//! Source: docs/transit.md of magic-wormhole-transit-relay, and what its server takes:
//!
//! ```text
//! please relay TOKEN\n
//! please relay TOKEN for side SIDE\n
//! ```
//!
//! TOKEN is 32 bytes in 64 hexadecimal digits; SIDE is 16 letters, digits or underscores (clients
//! send 8 random bytes in hexadecimal).

/// Longest line that is waited for, line end included; the original's bound.
pub(crate) const LINE_BYTES_MAX: usize = 1024;

/// The name of a meeting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Token(pub(crate) [u8; 32]);

/// Which of the two parties a client belongs to.
pub(crate) type Side = [u8; 16];

/// A client's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handshake {
    pub(crate) token: Token,
    /// Two clients of the same side are not connected; one without a side goes with any.
    pub(crate) side: Option<Side>,
}

/// The kind of the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    /// Not yet a whole line.
    Unfinished,
    /// A line that is no handshake, or too long to be one.
    Bad,
    /// A handshake, and how many bytes it took.
    Good(Handshake, usize),
}

/// Looks at the front of what a client has sent.
pub(crate) fn front(input: &[u8]) -> Front {
    let window = &input[..input.len().min(LINE_BYTES_MAX)];
    match window.iter().position(|byte| *byte == b'\n') {
        Some(length) => parse(&window[..length])
            .map_or(Front::Bad, |handshake| Front::Good(handshake, length + 1)),
        None if window.len() == LINE_BYTES_MAX => Front::Bad,
        None => Front::Unfinished,
    }
}

fn parse(line: &[u8]) -> Option<Handshake> {
    let rest = line.strip_prefix(b"please relay ")?;
    let (digits, rest) = rest.split_at_checked(64)?;
    let mut token = [0; 32];
    for (byte, pair) in token.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    let side = if rest.is_empty() {
        None
    } else {
        let side: Side = rest.strip_prefix(b" for side ")?.try_into().ok()?;
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        Some(side).filter(|side| side.iter().all(is_word))?.into()
    };
    Some(Handshake {
        token: Token(token),
        side,
    })
}

fn digit(byte: u8) -> Option<u8> {
    let value = char::from(byte).to_digit(16)?;
    Some(value as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "0123456789abcdef0123456789ABCDEF0123456789abcdef0123456789abcdef";

    fn good(line: &str) -> Handshake {
        match front(line.as_bytes()) {
            Front::Good(handshake, bytes) if bytes == line.len() => handshake,
            other => panic!("{line:?} is {other:?}"),
        }
    }

    #[test]
    fn both_forms_are_taken() {
        let plain = good(&format!("please relay {HEX}\n"));
        assert_eq!(plain.token.0[..4], [0x01, 0x23, 0x45, 0x67]);
        assert_eq!(plain.side, None);
        let sided = good(&format!("please relay {HEX} for side 0011223344_56zZZ\n"));
        assert_eq!(sided.token, plain.token);
        assert_eq!(sided.side.as_ref(), Some(b"0011223344_56zZZ"));
    }

    #[test]
    fn what_follows_the_line_is_left() {
        let line = format!("please relay {HEX}\nearly");
        assert!(matches!(front(line.as_bytes()), Front::Good(_, 78)));
    }

    #[test]
    fn everything_else_is_bad() {
        let short = &HEX[1..];
        for line in [
            String::new(),
            "please relay".into(),
            "please relay ".into(),
            format!("please relay {short}"),
            format!("please relay {HEX}0"),
            format!("please relay {short}g"),
            format!("please DELAY {HEX}"),
            format!("Please relay {HEX}"),
            format!(" please relay {HEX}"),
            format!("please relay  {HEX}"),
            format!("please relay {HEX} "),
            format!("please relay {HEX}\r"),
            format!("please relay {HEX} for side "),
            format!("please relay {HEX} for side 0011223344556"),
            format!("please relay {HEX} for side 00112233445566778"),
            format!("please relay {HEX} for side 001122334455667-"),
            format!("please relay {HEX} for site 0011223344556677"),
            "GET / HTTP/1.1".into(),
            "\0\u{ff}".into(),
        ] {
            assert_eq!(
                front(format!("{line}\n").as_bytes()),
                Front::Bad,
                "{line:?}"
            );
        }
    }

    #[test]
    fn an_unfinished_line_is_waited_for_up_to_the_bound() {
        let line = format!("please relay {HEX} for side 0011223344556677");
        for end in 0..=line.len() {
            assert_eq!(front(&line.as_bytes()[..end]), Front::Unfinished);
        }
        assert_eq!(front(&[b'x'; LINE_BYTES_MAX - 1]), Front::Unfinished);
        assert_eq!(front(&[b'x'; LINE_BYTES_MAX]), Front::Bad);
        let mut late = vec![b'x'; LINE_BYTES_MAX];
        late.extend_from_slice(format!("{line}\n").as_bytes());
        assert_eq!(front(&late), Front::Bad);
    }
}
