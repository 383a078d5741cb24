//! The head of a client's frame, and what is wrong with it (RFC 6455 section 5.2).

use crate::encode::COMPRESSED;
use crate::fault::Fault;
use crate::limits::{CONTROL_BYTES_MAX, HEAD_BYTES_MAX};
use crate::mask::Mask;

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Head {
    pub(crate) opcode: u8,
    /// The last frame of its message.
    pub(crate) is_last: bool,
    pub(crate) is_compressed: bool,
    pub(crate) mask: Mask,
    pub(crate) length: usize,
}

impl Head {
    /// Reads a head and says how long it is; `None` if it is not complete. What is wrong with it is
    /// found as early as can be: `continues` says whether a message has begun.
    pub(crate) fn read(
        input: &[u8],
        continues: bool,
        may_compress: bool,
    ) -> Result<Option<(Head, usize)>, Fault> {
        let &[first, second, ref rest @ ..] = input else {
            return Ok(None);
        };
        check_first(first, second, continues, may_compress)?;
        let Some((length, rest)) = length(second & 0x7F, rest)? else {
            return Ok(None);
        };
        let Some((mask, rest)) = rest.split_first_chunk::<4>() else {
            return Ok(None);
        };
        let bytes = input.len() - rest.len();
        debug_assert!(bytes <= HEAD_BYTES_MAX, "a head is short");
        let head = Head {
            opcode: first & 0x0F,
            is_last: first & 0x80 != 0,
            is_compressed: first & COMPRESSED != 0,
            mask: Mask::new(*mask),
            length,
        };
        Ok(Some((head, bytes)))
    }

    pub(crate) fn is_control(&self) -> bool {
        self.opcode >= 8
    }
}

fn check_first(first: u8, second: u8, continues: bool, may_compress: bool) -> Result<(), Fault> {
    let opcode = first & 0x0F;
    // RFC 7692 section 6.1: the bit is set in the first frame of a message only.
    let allowed = match opcode {
        1 | 2 if may_compress => COMPRESSED,
        _ => 0,
    };
    if first & 0x70 & !allowed != 0 {
        return Err(Fault::ReservedBit);
    }
    if second & 0x80 == 0 {
        return Err(Fault::Unmasked);
    }
    let is_long = usize::from(second & 0x7F) > CONTROL_BYTES_MAX;
    match opcode {
        0 if !continues => Err(Fault::Fragment),
        1 | 2 if continues => Err(Fault::Fragment),
        0..=2 => Ok(()),
        8..=10 if first & 0x80 == 0 || is_long => Err(Fault::Control),
        8..=10 => Ok(()),
        _ => Err(Fault::ReservedOpcode),
    }
}

/// A payload's length and what follows it; `None` if it is not complete.
fn length(short: u8, rest: &[u8]) -> Result<Option<(usize, &[u8])>, Fault> {
    match short {
        126 => {
            let Some((length, rest)) = rest.split_first_chunk::<2>() else {
                return Ok(None);
            };
            match u16::from_be_bytes(*length) {
                0..126 => Err(Fault::Length),
                length => Ok(Some((usize::from(length), rest))),
            }
        }
        127 => {
            let Some((length, rest)) = rest.split_first_chunk::<8>() else {
                return Ok(None);
            };
            match u64::from_be_bytes(*length) {
                0..=0xFFFF | 0x8000_0000_0000_0000.. => Err(Fault::Length),
                length => {
                    let length = usize::try_from(length).map_err(|_| Fault::TooLong)?;
                    Ok(Some((length, rest)))
                }
            }
        }
        length => Ok(Some((usize::from(length), rest))),
    }
}
