//! Refusals that a stranger can cause as often as he likes: one line in the log for many of them.

use std::fmt::Display;
use std::net::SocketAddr;

use crate::episode::Episode;

/// The refusals of one network thread.
#[derive(Debug, Default)]
pub(crate) struct Refusals(Episode);

impl Refusals {
    pub(crate) fn note(&mut self, now_ns: u64, peer: Option<SocketAddr>, why: &dyn Display) {
        let Some(untold) = self.0.tells_at(now_ns) else {
            return;
        };
        let peer = peer.map_or("an unknown address".into(), |peer| peer.to_string());
        let before = match untold {
            0 => String::new(),
            count => format!("; {count} others since the last such line"),
        };
        log::warn!("connection from {peer} refused: {why}{before}");
    }
}
