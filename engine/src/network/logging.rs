//! Lines of the access log for connections of protocols that log no requests.
//!
//! The peer is asked for while there is one: one system call for each connection, where there is
//! an access log.

use std::time::Duration;

use flatpath_driver::Driver;

use crate::connection::Connection;
use crate::observe::access_log::{ConnectionLine, Logged, LoggedPeer};

use super::thread::{Event, Network, peer_of};

impl<D: Driver> Event<'_, D> {
    /// The connection is to have a line at its end, unless its protocol logs by itself.
    pub(super) fn begin_line(&mut self) {
        let logs = self.thread.common.access_log.is_some();
        if logs && !self.listener.protocol.options().logs_requests {
            self.connection.logged = Some(Box::new(Logged {
                peer: LoggedPeer::new(
                    peer_of(&self.thread.driver, self.connection),
                    self.connection.tls(),
                ),
                since_ns: self.thread.now_ns(),
                received_bytes: 0,
            }));
        }
    }
}

impl<D: Driver> Network<D> {
    pub(super) fn log_connection(&mut self, connection: &Connection, logged: &Logged) {
        let name = self.listeners[usize::from(connection.listener())]
            .protocol
            .options()
            .name;
        let common = &mut self.thread.common;
        let (turn, log) = (common.turn, &mut common.access_log);
        let line = ConnectionLine {
            duration: Duration::from_nanos(turn.now_ns.saturating_sub(logged.since_ns)),
            received_bytes: logged.received_bytes,
            sent_bytes: connection.output().sent_bytes(),
        };
        if let Some(log) = log {
            log.connection(turn, name, &logged.peer, &line);
        }
    }
}
