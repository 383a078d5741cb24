//! `--admin`: what the server shows of itself, at an address of its own.

use flatpath::sockets::{ListenAddress, PassedSockets};
use flatpath::{Error, Handle, Running};
use flatpath_admin::Admin;
use flatpath_http::HostPattern;

/// The server that answers there. It begins before the one that it shows, and ends after it.
pub(crate) struct AdminServer {
    running: Running,
}

impl AdminServer {
    /// Starts it, on a passed socket if one is meant for it: from now on it answers, and is not
    /// ready until a server is attached.
    pub(crate) fn start(
        admin: &Admin,
        at: ListenAddress,
        names: &[HostPattern],
        passed: &PassedSockets,
    ) -> Result<AdminServer, Error> {
        admin.hosts(names.iter().cloned());
        let server = admin.server().passed_sockets(passed);
        let running = flatpath_cli_protocols::start_admin(admin, server, at)?;
        Ok(AdminServer { running })
    }

    /// For a handover: the next process takes its address over, too.
    pub(crate) fn handle(&self) -> Handle {
        self.running.handle()
    }

    /// Where it listens.
    pub(crate) fn addresses(&self) -> impl Iterator<Item = &ListenAddress> {
        self.running.listeners().iter().map(|bound| &bound.address)
    }
}

impl Drop for AdminServer {
    /// Without waiting for clients: what they would be told is that the server is gone.
    fn drop(&mut self) {
        self.running.handle().force();
    }
}
