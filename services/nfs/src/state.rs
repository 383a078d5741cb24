//! The parts of the service that every call needs.

use std::path::PathBuf;
use std::sync::Arc;

use flatpath::blocking::BlockingLimit;
use flatpath::memory::Pipes;
use flatpath::prompt::PromptRight;
use flatpath_rpc::Credential;

use crate::export::Export;
use crate::identity::{Server, Squash, Who};

/// The rights of clients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Access {
    /// Read.
    #[default]
    ReadOnly,
    /// Read and change.
    ReadWrite,
}

pub(crate) struct State {
    pub(crate) export: Arc<Export>,
    /// The path that clients mount.
    pub(crate) directory: PathBuf,
    /// To try calls on the network thread.
    pub(crate) right: PromptRight,
    /// Of the workers, where the export is not on a disk of this machine and may hang.
    pub(crate) limit: Option<BlockingLimit>,
    pub(crate) access: Access,
    pub(crate) server: Server,
    pub(crate) pipes: Pipes,
    pub(crate) squash: Squash,
}

impl State {
    pub(crate) fn who(&self, credential: &Credential) -> Who {
        self.server.acting(Who::new(credential, self.squash))
    }
}
