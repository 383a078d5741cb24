//! Frames of a WebSocket as a client sends and gets them (RFC 6455 section 5.2).

/// A frame as a client sends it.
pub(crate) fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    match payload.len() {
        length @ 0..=125 => bytes.push(0x80 | length as u8),
        length @ 126..=0xFFFF => {
            bytes.push(0x80 | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(0x80 | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    let mask = [0x37, 0xfa, 0x21, 0x3d];
    bytes.extend(mask);
    bytes.extend(payload.iter().zip(mask.iter().cycle()).map(|(a, b)| a ^ b));
    bytes
}

/// A close frame with this code.
pub(crate) fn close(code: u16) -> Vec<u8> {
    frame(0x88, &code.to_be_bytes())
}

/// The first byte and the payload of each frame that a server sent, and what is left.
pub(crate) fn frames(mut bytes: &[u8]) -> (Vec<(u8, Vec<u8>)>, &[u8]) {
    let mut frames = Vec::new();
    loop {
        let (length, head) = match bytes {
            [_, length @ 0..=125, ..] => (usize::from(*length), 2),
            [_, 126, a, b, ..] => (usize::from(u16::from_be_bytes([*a, *b])), 4),
            [_, 127, _, _, _, _, a, b, c, d, ..] => {
                (u32::from_be_bytes([*a, *b, *c, *d]) as usize, 10)
            }
            _ => return (frames, bytes),
        };
        if bytes.len() < head + length {
            return (frames, bytes);
        }
        let (frame, rest) = bytes.split_at(head + length);
        frames.push((frame[0], frame[head..].to_vec()));
        bytes = rest;
    }
}
