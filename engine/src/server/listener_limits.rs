//! The bounds of one listener, where they differ from the server's.

use std::time::Duration;

use crate::limits::Limits;
use crate::server::options::Spread;

/// Bounds of one listener; what is `None` is as in the server's [`Limits`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Connections at once, over all network threads, of those that the server allows. With as
    /// many, the listener's own longest idle connection of 64 is closed for its next one, or that
    /// is refused.
    pub connections_max: Option<usize>,
    /// Workers that jobs of the listener may occupy at a time, in the place of
    /// [`ListenerOptions::workers_max`](crate::ListenerOptions::workers_max).
    pub workers_max: Option<u32>,
    /// See [`Limits::head_timeout`].
    pub head_timeout: Option<Duration>,
    /// See [`Limits::idle_timeout`].
    pub idle_timeout: Option<Duration>,
    /// See [`Limits::body_timeout`].
    pub body_timeout: Option<Duration>,
    /// See [`Limits::write_timeout`].
    pub write_timeout: Option<Duration>,
    /// See [`Limits::wait_timeout`].
    pub wait_timeout: Option<Duration>,
    /// See [`Limits::spliced_timeout`].
    pub spliced_timeout: Option<Duration>,
}

impl ListenerLimits {
    /// The deadlines of the listener's connections: the server's, except for those named here.
    pub(crate) fn of_server(&self, server: &Limits) -> Limits {
        let mut limits = server.clone();
        for (own, limit) in [
            (self.head_timeout, &mut limits.head_timeout),
            (self.idle_timeout, &mut limits.idle_timeout),
            (self.body_timeout, &mut limits.body_timeout),
            (self.write_timeout, &mut limits.write_timeout),
            (self.wait_timeout, &mut limits.wait_timeout),
            (self.spliced_timeout, &mut limits.spliced_timeout),
        ] {
            if let Some(own) = own {
                *limit = own;
            }
        }
        limits
    }

    /// These, and those of `other` where there is none.
    pub(crate) fn or(self, other: &ListenerLimits) -> ListenerLimits {
        ListenerLimits {
            connections_max: self.connections_max.or(other.connections_max),
            workers_max: self.workers_max.or(other.workers_max),
            head_timeout: self.head_timeout.or(other.head_timeout),
            idle_timeout: self.idle_timeout.or(other.idle_timeout),
            body_timeout: self.body_timeout.or(other.body_timeout),
            write_timeout: self.write_timeout.or(other.write_timeout),
            wait_timeout: self.wait_timeout.or(other.wait_timeout),
            spliced_timeout: self.spliced_timeout.or(other.spliced_timeout),
        }
    }

    /// Its part of the connections on one of `threads` network threads, one at least.
    pub(crate) fn connections_of_thread(&self, threads: usize, spread: Spread) -> Option<usize> {
        let threads = match spread {
            Spread::EveryThread => threads,
            Spread::OneThread => 1,
        };
        self.connections_max
            .map(|most| most.div_ceil(threads).max(1))
    }
}
