//! Refusals that a stranger can cause as often as he likes: one line in the log for many of them.

use std::fmt::Display;
use std::net::SocketAddr;

/// At most one line in the log for all refusals of a time.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    silent_until_ns: u64,
    unreported: u64,
}

impl Refusals {
    const SILENT_NS: u64 = 10_000_000_000;

    pub(crate) fn note(&mut self, now_ns: u64, peer: Option<SocketAddr>, why: &dyn Display) {
        if now_ns < self.silent_until_ns {
            self.unreported += 1;
            return;
        }
        let peer = peer.map_or("an unknown address".into(), |peer| peer.to_string());
        let before = match std::mem::take(&mut self.unreported) {
            0 => String::new(),
            count => format!("; {count} others since the last such line"),
        };
        log::warn!("connection from {peer} refused: {why}{before}");
        self.silent_until_ns = now_ns.saturating_add(Self::SILENT_NS);
    }
}
