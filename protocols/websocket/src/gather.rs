//! A message that arrives in pieces, in buffers of the server's pool.
//!
//! Invariant G1: what is taken from the pool is at most twice what has arrived, and a buffer of the
//! smallest class: no length from the wire is allocated before its bytes are there.

use bytes::Bytes;
use flatpath::NoRoom;
use flatpath::memory::{Buffer, PoolHandle};

use crate::mask::Mask;

/// See the module. Empty, it holds no memory.
#[derive(Debug, Default)]
pub(crate) struct Gathered {
    buffers: Vec<Buffer>,
    bytes: usize,
}

/// A buffer as shared bytes.
struct Whole(Buffer);

impl AsRef<[u8]> for Whole {
    fn as_ref(&self) -> &[u8] {
        self.0.filled()
    }
}

impl Gathered {
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Appends as much of `masked` as one buffer takes, without its mask; what was appended.
    ///
    /// # Errors
    /// The pool has nothing; nothing was appended.
    pub(crate) fn append(
        &mut self,
        masked: &[u8],
        mask: Mask,
        pool: PoolHandle<'_>,
    ) -> Result<&[u8], NoRoom> {
        if self.buffers.last().is_none_or(|last| last.room() == 0) {
            let wanted = masked.len().max(self.bytes);
            self.buffers
                .push(pool.for_bulk().take(wanted).ok_or(NoRoom)?);
        }
        let Some(last) = self.buffers.last_mut() else {
            return Err(NoRoom);
        };
        let from = last.filled().len();
        self.bytes += last.append(masked);
        let fresh = &mut last.filled_mut()[from..];
        mask.apply(fresh);
        Ok(fresh)
    }

    /// The whole message. Copied if it is in several buffers; in one, it goes back to the pool with
    /// the last reference.
    pub(crate) fn take(&mut self) -> Bytes {
        let mut buffers = std::mem::take(&mut self.buffers);
        let bytes = std::mem::take(&mut self.bytes);
        match (buffers.pop(), buffers.is_empty()) {
            (None, _) => Bytes::new(),
            (Some(only), true) => Bytes::from_owner(Whole(only)),
            (Some(last), false) => {
                buffers.push(last);
                let mut whole = Vec::with_capacity(bytes);
                for buffer in buffers {
                    whole.extend_from_slice(buffer.filled());
                }
                whole.into()
            }
        }
    }
}
