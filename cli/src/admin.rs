//! `--admin`: what the server shows of itself, at an address of its own.

use std::time::Duration;

use flatpath::sockets::{ListenAddress, PassedSockets};
use flatpath::{Error, Handle, Running};
use flatpath_admin::Admin;
use flatpath_http::HostPattern;

use crate::service_metrics::Counting;

/// The server that answers there. It begins before the one that it shows, and ends after it.
pub(crate) struct AdminServer {
    admin: Admin,
    running: Running,
}

impl AdminServer {
    /// Starts it, on a passed socket if one is meant for it: from now on it answers, and is not
    /// ready.
    pub(crate) fn start(
        at: ListenAddress,
        names: &[HostPattern],
        passed: &PassedSockets,
    ) -> Result<AdminServer, Error> {
        let admin = Admin::new();
        admin.hosts(names.iter().cloned());
        let server = admin.server().passed_sockets(passed);
        let running = server.listen_at(at, admin.protocol()).start()?;
        Ok(AdminServer { admin, running })
    }

    /// Shows this server and its services from now on.
    pub(crate) fn attach(&self, server: &Running, slow: Option<Duration>, counting: Counting) {
        self.admin.slow(slow);
        self.admin.source(counting.source(server));
        self.admin.attach(server.handle());
    }

    /// What is shown.
    pub(crate) fn admin(&self) -> Admin {
        self.admin.clone()
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
