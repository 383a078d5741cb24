//! The parts of the service that every call in one export needs.

use std::path::PathBuf;
use std::sync::Arc;

use flatpath::blocking::BlockingLimit;
use flatpath::memory::Pipes;
use flatpath::prompt::PromptRight;

use crate::export::Export;
use crate::identity::Server;

/// One export, open. What its clients may do there is beside it ([`Rules`](crate::rights::Rules)),
/// because that may change while it stays open.
pub(crate) struct State {
    pub(crate) export: Arc<Export>,
    /// The path that clients mount, without links in it.
    pub(crate) directory: PathBuf,
    /// To try calls on the network thread.
    pub(crate) right: Arc<PromptRight>,
    /// Of the workers, where the export is not on a disk of this machine and may hang.
    pub(crate) limit: Option<BlockingLimit>,
    pub(crate) server: Arc<Server>,
    pub(crate) pipes: Pipes,
}
