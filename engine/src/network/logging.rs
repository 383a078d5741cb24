//! Lines of the access log for connections of protocols that log no requests.
//!
//! The peer is asked for while there is one: one system call for each connection, where there is
//! an access log.

use flatpath_driver::Driver;

use crate::connection::Connection;
use crate::observe::access_log::{Logged, LoggedPeer};

use super::thread::{Event, Network, peer_of};

impl<D: Driver> Event<'_, D> {
    /// The connection is to have a line at its end, unless its protocol logs by itself.
    pub(super) fn begin_line(&mut self) {
        let logs = self.thread.common.logs();
        if logs && !self.listener.protocol().options().logs_requests {
            let peer = peer_of(&self.thread.driver, self.connection);
            let peer = LoggedPeer::new(peer, self.connection.tls());
            let logged = Logged::begin(peer, self.thread.now_ns());
            self.connection.begin_line(logged);
        }
    }
}

impl<D: Driver> Network<D> {
    pub(super) fn log_connection(&mut self, connection: &Connection, logged: &Logged) {
        let name = self.listeners[usize::from(connection.listener())].name();
        let common = &mut self.thread.common;
        common.log_connection(name, logged, connection.output().sent_bytes());
    }
}
