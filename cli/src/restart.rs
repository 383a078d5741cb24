//! A restart that loses no connection: `--handover PATH`.
//!
//! The listening sockets change hands in [`flatpath::handover`]. What a server has in addition:
//!
//! | of                | what becomes of it                                                    |
//! |-------------------|-----------------------------------------------------------------------|
//! | ingest, consumers | attach to the new server as well, and stay here until its own end     |
//! | NFS               | file handles come from a key in a file, and are valid here and there  |
//! | rpcbind           | what is registered stays; a new port is registered in its place       |
//! | ingest, producers | read an end, and come again; what they have sent is delivered by then |

use std::path::{Path, PathBuf};

use flatpath::Handle;
use flatpath::handover::{Handover, Takeover};
use flatpath::sockets::PassedSockets;

use crate::failure::Failure;
use crate::settings::Settings;

/// The way to the server before this one, and to the one after it.
pub(crate) struct Restart {
    path: Option<PathBuf>,
    takeover: Option<Takeover>,
}

impl Restart {
    /// Takes over from the server that waits at the path, if one does; `passed` has its sockets
    /// then.
    pub(crate) fn begin(settings: &Settings, passed: &PassedSockets) -> Result<Restart, Failure> {
        let Some(path) = &settings.handover else {
            return Ok(Restart {
                path: None,
                takeover: None,
            });
        };
        let takeover = Takeover::begin(path).map_err(|cause| failed(path, &cause))?;
        if let Some(takeover) = &takeover {
            passed.extend(takeover.sockets());
            log::info!("taking over from the server at {}", path.display());
        }
        Ok(Restart {
            path: Some(path.clone()),
            takeover,
        })
    }

    /// Whether another server serves until then.
    pub(crate) fn takes_over(&self) -> bool {
        self.takeover.is_some()
    }

    /// This server accepts, and nothing is left that could fail: the one before it drains, and the
    /// next one may come.
    pub(crate) fn finish(
        self,
        passed: &PassedSockets,
        servers: Vec<Handle>,
        handed_over: impl FnOnce() + Send + 'static,
    ) -> Result<Option<Handover>, Failure> {
        let Some(path) = self.path else {
            return Ok(None);
        };
        let handover = Handover::start(&path, self.takeover, passed, servers, handed_over);
        handover.map(Some).map_err(|cause| failed(&path, &cause))
    }
}

/// The sockets that a service manager has passed.
pub(crate) fn passed_sockets() -> Result<PassedSockets, Failure> {
    PassedSockets::from_manager().map_err(|cause| Failure::WrongUse(cause.to_string()))
}

fn failed(path: &Path, cause: &std::io::Error) -> Failure {
    Failure::Failed(format!("--handover {}: {cause}", path.display()))
}
