//! How much memory a server of programs takes beside the buffers of the engine: receive pages and
//! kept replies.

use crate::glue::Rpc;
use crate::limits::PAGE_BYTES;
use crate::programs::Programs;
use crate::replay::Replays;

impl<S: Programs> Rpc<S> {
    /// With less memory: pages of `page_bytes` (a multiple of the machine's page, at most
    /// [`PAGE_BYTES`]) for long records, and the replies of so many calls. Smaller pages cost more
    /// receives for each record.
    pub fn bounded(self, page_bytes: u32, replays: usize) -> Rpc<S> {
        Rpc {
            replays: Replays::new(replays),
            page_bytes: page_bytes.min(PAGE_BYTES),
            ..self
        }
    }
}
