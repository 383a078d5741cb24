//! From bytes to messages: frames of a client, unmasked, joined and checked (RFC 6455 section 5).
//!
//! A frame that lies in the input as a whole is read there. Of a longer one, and of a fragmented
//! message, the bytes are taken as they arrive, to buffers of the server's pool. Text is checked as
//! it arrives: a client that sends something else learns of it at once, not after the last
//! fragment. What is compressed is checked by whoever inflates it.
//!
//! Invariants
//! - D1: an event is given for a whole message or control frame only; control frames between the
//!   fragments of a message come first.
//! - D2: a message never has more than `message_bytes_max` bytes; no length from the wire is
//!   allocated before its bytes have arrived (G1 in `gather.rs`).
//! - D3: after a [`Fault`] nothing more is to be decoded.
//! - D4: the same bytes give the same events however they are split, but for when a fault of text
//!   is found.

use bytes::Bytes;
use flatpath::memory::PoolHandle;

use crate::close::Close;
use crate::fault::Fault;
use crate::gather::Gathered;
use crate::head::Head;
use crate::limits::Limits;
use crate::mask::Mask;
use crate::utf8::Utf8;

/// What has arrived.
#[derive(Clone, Debug, PartialEq, Eq)]
// Exhaustive: RFC 6455 section 5.2 has no other frames.
pub enum Event {
    /// A message.
    Message(Received),
    /// To be answered with a pong of the same bytes.
    Ping(Vec<u8>),
    /// The answer to a ping, or unasked for.
    Pong,
    /// The client ends the conversation.
    Close(Close),
}

/// A message as it was sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// Whether it is text; checked, unless it is compressed.
    pub is_text: bool,
    /// Whether it is to be inflated (RFC 7692 section 7.2.2).
    pub is_compressed: bool,
    /// Without frames and masks.
    pub payload: Bytes,
}

/// Why nothing more can be decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: the input is wrong, or comes again.
pub enum Stopped {
    /// The connection is to be closed with the fault's code.
    Fault(Fault),
    /// The pool has no buffer now: the same input is to be given again later.
    NoRoom,
}

impl From<Fault> for Stopped {
    fn from(fault: Fault) -> Stopped {
        Stopped::Fault(fault)
    }
}

/// A message of which something has been taken.
#[derive(Debug)]
struct Begun {
    is_text: bool,
    is_compressed: bool,
    fragments: u32,
    utf8: Utf8,
}

/// A data frame of which something has been taken.
#[derive(Clone, Copy, Debug)]
struct Rest {
    is_last: bool,
    mask: Mask,
    /// Bytes that are to come.
    length: usize,
}

/// The state of one client's stream of frames. Between messages it holds no memory.
#[derive(Debug, Default)]
pub struct Decoder {
    may_compress: bool,
    begun: Option<Begun>,
    rest: Option<Rest>,
    gathered: Gathered,
}

impl Decoder {
    /// A decoder for a new connection: whether its client may compress messages.
    pub fn new(may_compress: bool) -> Decoder {
        Decoder {
            may_compress,
            ..Decoder::default()
        }
    }

    /// Whether a message has begun and is not complete.
    pub fn is_within_message(&self) -> bool {
        self.begun.is_some()
    }

    /// Takes from the front of `input` up to the next event; `None` when the rest is the beginning
    /// of a head, or of a control frame: less than 139 bytes.
    ///
    /// # Errors
    /// See [`Stopped`].
    pub fn next(
        &mut self,
        input: &mut &[u8],
        limits: &Limits,
        pool: PoolHandle<'_>,
    ) -> Result<Option<Event>, Stopped> {
        loop {
            if self.rest.is_some() {
                if let Some(received) = self.take_payload(input, pool)? {
                    return Ok(Some(Event::Message(received)));
                }
                if self.rest.is_some() {
                    return Ok(None);
                }
            }
            let head = Head::read(input, self.begun.is_some(), self.may_compress)?;
            let Some((head, head_bytes)) = head else {
                return Ok(None);
            };
            let after = &input[head_bytes..];
            if head.is_control() {
                let Some((masked, after)) = after.split_at_checked(head.length) else {
                    return Ok(None);
                };
                *input = after;
                return Ok(Some(control(&head, masked)?));
            }
            self.check_bounds(&head, limits)?;
            match after.split_at_checked(head.length) {
                Some((masked, after)) if head.is_last && self.begun.is_none() => {
                    *input = after;
                    return Ok(Some(Event::Message(whole(&head, masked)?)));
                }
                _ => {
                    *input = after;
                    self.begin(&head);
                }
            }
        }
    }

    fn check_bounds(&self, head: &Head, limits: &Limits) -> Result<(), Fault> {
        let room = limits.message_bytes_max.checked_sub(self.gathered.bytes());
        if room.is_none_or(|room| head.length > room) {
            return Err(Fault::TooLong);
        }
        let fragments = self.begun.as_ref().map_or(0, |begun| begun.fragments);
        if fragments >= limits.fragments_max {
            return Err(Fault::TooManyFragments);
        }
        Ok(())
    }

    /// A data frame that is taken as it arrives.
    fn begin(&mut self, head: &Head) {
        let begun = self.begun.get_or_insert(Begun {
            is_text: head.opcode == 1,
            is_compressed: head.is_compressed,
            fragments: 0,
            utf8: Utf8::default(),
        });
        begun.fragments += 1;
        self.rest = Some(Rest {
            is_last: head.is_last,
            mask: head.mask,
            length: head.length,
        });
    }

    /// Takes what has arrived of the frame; the message, if that was the last of it.
    fn take_payload(
        &mut self,
        input: &mut &[u8],
        pool: PoolHandle<'_>,
    ) -> Result<Option<Received>, Stopped> {
        let (Some(rest), Some(begun)) = (&mut self.rest, &mut self.begun) else {
            return Ok(None);
        };
        while rest.length > 0 && !input.is_empty() {
            let arrived = &input[..input.len().min(rest.length)];
            let fresh = self.gathered.append(arrived, rest.mask, pool);
            let fresh = fresh.map_err(|_| Stopped::NoRoom)?;
            *input = &input[fresh.len()..];
            rest.length -= fresh.len();
            rest.mask = rest.mask.after(fresh.len());
            if begun.is_text && !begun.is_compressed && !begun.utf8.accepts(fresh) {
                return Err(Fault::Utf8.into());
            }
        }
        if rest.length > 0 {
            return Ok(None);
        }
        let is_last = rest.is_last;
        self.rest = None;
        if !is_last {
            return Ok(None);
        }
        let (is_text, is_compressed) = (begun.is_text, begun.is_compressed);
        if is_text && !is_compressed && !begun.utf8.is_whole() {
            return Err(Fault::Utf8.into());
        }
        self.begun = None;
        Ok(Some(Received {
            is_text,
            is_compressed,
            payload: self.gathered.take(),
        }))
    }

    /// Drops what has been taken of a message.
    pub(crate) fn abandon(&mut self) {
        *self = Decoder::new(self.may_compress);
    }
}

/// A message in one frame that has arrived as a whole.
fn whole(head: &Head, masked: &[u8]) -> Result<Received, Fault> {
    let is_text = head.opcode == 1;
    let mut payload = masked.to_vec();
    head.mask.apply(&mut payload);
    if is_text && !head.is_compressed && std::str::from_utf8(&payload).is_err() {
        return Err(Fault::Utf8);
    }
    Ok(Received {
        is_text,
        is_compressed: head.is_compressed,
        payload: payload.into(),
    })
}

fn control(head: &Head, masked: &[u8]) -> Result<Event, Fault> {
    let mut payload = masked.to_vec();
    head.mask.apply(&mut payload);
    Ok(match head.opcode {
        8 => Event::Close(Close::read(&payload)?),
        9 => Event::Ping(payload),
        _ => Event::Pong,
    })
}

#[cfg(test)]
mod tests;
