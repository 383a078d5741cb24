//! The extension of one connection: how messages become frames, and payloads become messages.
//! Without the feature `deflate` there is none, and both do nothing.

use crate::decoder::Received;
use crate::fault::Fault;
use crate::limits::Limits;
use crate::message::Message;

#[cfg(feature = "deflate")]
pub(crate) use with::{Codec, Inflater};
#[cfg(not(feature = "deflate"))]
pub(crate) use without::{Codec, Inflater};

/// Reads payloads.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    inflater: Inflater,
    /// Bytes of the messages that were inflated, not asked for yet.
    inflated_bytes: u32,
}

impl Reader {
    pub(crate) fn new(inflater: Inflater) -> Reader {
        Reader {
            inflater,
            inflated_bytes: 0,
        }
    }

    /// Bytes of the messages that were inflated since the last call.
    pub(crate) fn take_inflated_bytes(&mut self) -> u32 {
        std::mem::take(&mut self.inflated_bytes)
    }

    /// The message of a payload.
    pub(crate) fn message(
        &mut self,
        received: Received,
        limits: &Limits,
    ) -> Result<Message, Fault> {
        if !received.is_compressed {
            return Message::of(received);
        }
        let payload = self
            .inflater
            .inflate(&received.payload, limits.message_bytes_max)?;
        let bytes = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        self.inflated_bytes = self.inflated_bytes.saturating_add(bytes);
        Message::of(Received {
            payload,
            ..received
        })
    }
}

#[cfg(feature = "deflate")]
mod with {
    use bytes::Bytes;
    use flatpath::lock::{Guard, Lock};

    use crate::deflate::{Deflating, Inflating};
    use crate::encode::Frame;
    use crate::fault::Fault;
    use crate::message::Message;

    /// Makes compressed frames.
    #[derive(Debug, Default)]
    pub(crate) struct Codec(Option<Box<Negotiated>>);

    #[derive(Debug)]
    struct Negotiated {
        bytes_min: usize,
        deflating: Lock<Deflating>,
    }

    impl Codec {
        pub(crate) fn new(bytes_min: usize, deflating: Deflating) -> Codec {
            Codec(Some(Box::new(Negotiated {
                bytes_min,
                deflating: Lock::new(deflating),
            })))
        }

        /// Whether a message is worth the try. Never waits.
        pub(crate) fn compresses(&self, message: &Message) -> bool {
            let negotiated = self.0.as_ref();
            negotiated.is_some_and(|it| message.bytes().len() >= it.bytes_min)
        }

        /// The frame of a message. Until the other is dropped, no other message is compressed.
        /// `None`: it is to be sent as it is, as it does not become shorter, or another thread
        /// compresses and this is a network thread, which must not wait.
        pub(crate) fn compress(&self, message: &Message) -> Option<(Frame, Guard<'_, Deflating>)> {
            let deflating = &self.0.as_ref()?.deflating;
            // A compressor that panicked was taken out before.
            let mut deflating = match flatpath::on_network_thread() {
                true => deflating.try_lock()?,
                false => deflating.lock(),
            };
            let frame = deflating.frame(message)?;
            Some((frame, deflating))
        }

        /// Frees what helps only while messages are sent. Never waits.
        pub(crate) fn rest(&self) {
            if let Some(negotiated) = &self.0
                && let Some(mut deflating) = negotiated.deflating.try_lock()
            {
                deflating.rest();
            }
        }
    }

    /// Inflates payloads.
    #[derive(Debug, Default)]
    pub(crate) struct Inflater(pub(crate) Option<Box<Inflating>>);

    impl Inflater {
        pub(crate) fn inflate(&mut self, payload: &[u8], max: usize) -> Result<Bytes, Fault> {
            match &mut self.0 {
                Some(inflating) => inflating.inflate(payload, max),
                None => Err(Fault::ReservedBit),
            }
        }
    }
}

#[cfg(not(feature = "deflate"))]
mod without {
    use bytes::Bytes;
    use flatpath::lock::Guard;

    use crate::encode::Frame;
    use crate::fault::Fault;
    use crate::message::Message;

    /// Makes plain frames.
    #[derive(Debug, Default)]
    pub(crate) struct Codec;

    impl Codec {
        pub(crate) fn compresses(&self, _: &Message) -> bool {
            false
        }

        pub(crate) fn compress(&self, _: &Message) -> Option<(Frame, Guard<'_, ()>)> {
            None
        }

        pub(crate) fn rest(&self) {}
    }

    /// Inflates nothing.
    #[derive(Debug, Default)]
    pub(crate) struct Inflater;

    impl Inflater {
        pub(crate) fn inflate(&mut self, _: &[u8], _: usize) -> Result<Bytes, Fault> {
            Err(Fault::ReservedBit)
        }
    }
}
