//! Where a connection's records are assembled: long ones where they lie, up to a bound.
//!
//! The bound is below the engine's own, so that a record which waits for its end never stops its
//! connection: what comes beyond is copied.

use flatpath::Io;
use flatpath::memory::{Fragment, PoolHandle};

use crate::limits::{CHUNK_BYTES_LARGE, PAGES_FILLED_MAX, PAGES_RETAINED_MAX};
use crate::record::Source;

/// See the module.
pub(crate) struct RecordSource<'a, 'b>(pub(crate) &'a mut Io<'b>);

impl Source for RecordSource<'_, '_> {
    fn pool(&self) -> PoolHandle<'_> {
        self.0.pool()
    }

    fn retain(&mut self, bytes: &[u8], chunks: usize) -> Option<Fragment> {
        let held = self.0.held();
        let of_others =
            held.saturating_sub(u32::try_from(chunks).expect("a record has few chunks"));
        let is_late = bytes.len() >= CHUNK_BYTES_LARGE && of_others >= PAGES_FILLED_MAX;
        if is_late || held >= PAGES_RETAINED_MAX {
            return None;
        }
        self.0.retain_slice(bytes)
    }

    fn copied(&mut self, bytes: usize) {
        self.0.count_copied(bytes);
    }
}
