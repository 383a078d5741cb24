//! A restart that loses no connection: `--handover PATH`.
//!
//! What a server has besides listening sockets does not change hands: consumers of ingest map the
//! memory of its process, and rpcbind knows one server. So `--handover` refuses both.

use std::path::{Path, PathBuf};

use flatpath::Handle;
use flatpath::handover::{Handover, Takeover};
use flatpath::sockets::PassedSockets;

use crate::config::ListenerProtocol;
use crate::failure::Failure;
use crate::listeners::Listener;
use crate::settings::{Settings, is_on};

/// The way to the server before this one, and to the one after it.
pub(crate) struct Restart {
    path: Option<PathBuf>,
    takeover: Option<Takeover>,
}

impl Restart {
    /// Takes over from the server that waits at the path, if one does; `passed` has its sockets
    /// then.
    pub(crate) fn begin(
        settings: &Settings,
        listeners: &[Listener],
        passed: &PassedSockets,
    ) -> Result<Restart, Failure> {
        let Some(path) = &settings.handover else {
            return Ok(Restart {
                path: None,
                takeover: None,
            });
        };
        let refused = |why: &str| Err(Failure::WrongUse(format!("--handover: {why}")));
        for listener in listeners {
            if listener.protocol == ListenerProtocol::Ingest {
                return refused("consumers of --ingest have the memory of one process mapped");
            }
            if is_on(listener.settings.nfs_register) {
                return refused("rpcbind knows one server: leave --nfs-register out");
            }
        }
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

    /// This server accepts: the one before it drains, and the next one may come.
    pub(crate) fn finish(
        self,
        passed: &PassedSockets,
        servers: Vec<Handle>,
        handed_over: impl FnOnce() + Send + 'static,
    ) -> Result<Option<Handover>, Failure> {
        let Some(path) = self.path else {
            return Ok(None);
        };
        let waiting = match self.takeover {
            Some(takeover) => takeover
                .finish(passed)
                .map_err(|cause| failed(&path, &cause))?,
            None => Default::default(),
        };
        let handover = Handover::start(&path, waiting, servers, handed_over);
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
