//! A message and its fragments, each of which holds memory of the server's until it is dropped.

use std::ops::{Deref, Range};
use std::sync::Arc;

use flatpath_messages::layout::Return;

use crate::returns::Shared;

/// One message, whole. Dropped, it gives its memory back.
#[derive(Debug)]
pub struct Message {
    pub(crate) fragments: Vec<Fragment>,
    pub(crate) bytes: u32,
    pub(crate) producer: u32,
}

impl Message {
    /// The pieces it came in, in order.
    pub fn fragments(&self) -> &[Fragment] {
        &self.fragments
    }

    /// The pieces, to be given back one by one.
    pub fn into_fragments(self) -> Vec<Fragment> {
        self.fragments
    }

    /// Its length in bytes; never zero.
    #[expect(clippy::len_without_is_empty, reason = "a message is never empty")]
    pub fn len(&self) -> usize {
        self.bytes as usize
    }

    /// Number of the connection that sent it. It may be used again after that has ended.
    pub fn producer(&self) -> u32 {
        self.producer
    }

    /// A copy in one piece.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut copy = Vec::with_capacity(self.len());
        for fragment in &self.fragments {
            copy.extend_from_slice(fragment);
        }
        copy
    }
}

/// A piece of a message: bytes in the server's memory. Given back when dropped, from any thread.
#[derive(Debug)]
pub struct Fragment {
    pub(crate) shared: Arc<Shared>,
    pub(crate) range: Range<usize>,
    pub(crate) given: Return,
}

impl Deref for Fragment {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        let region = &self.shared.regions[usize::from(self.given.region)];
        let bytes = region.bytes(self.range.clone());
        bytes.expect("checked when the fragment was made")
    }
}

impl Drop for Fragment {
    fn drop(&mut self) {
        self.shared.give_back(self.given);
    }
}
