//! The new process's side of a conversation once it is ready: the server before it lets go.
//!
//! That one may wait for its own, which hangs with an accept armed, and end before it. So with its
//! last words it passes on the conversations that it has not heard the end of; the end of those,
//! which is the end of a process, is then waited for here.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use crate::server::sockets::PassedSockets;

use super::RELEASE_MAX;
use super::peer::Peer;

/// The server before this one, until it accepts no more.
pub(super) struct Releasing {
    /// The conversation with it, and behind that those that it has passed on. None is empty.
    peers: VecDeque<Peer>,
    passed: PassedSockets,
    /// Where the outcome is waited for.
    reports: Sender<io::Result<()>>,
    /// It has said that it drains: the path is left to this process.
    is_draining: bool,
    /// From then on it hangs, and the path is not left to it.
    pub(super) hangs_at: Instant,
}

/// How far it is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// It may still accept.
    Holds,
    /// It accepts no more: what was left for then is done.
    Released,
    /// It serves on, and this process is not to.
    Refused(Refused),
}

/// What it has said.
enum Said {
    Nothing,
    Draining,
    Released,
    Refused(String),
}

/// Whether a refusal came while [`Handover::start`](super::Handover::start) waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    InTime,
    Late,
}

impl Releasing {
    pub(super) fn new(
        peer: Peer,
        passed: PassedSockets,
        reports: Sender<io::Result<()>>,
    ) -> Releasing {
        Releasing {
            peers: VecDeque::from([peer]),
            passed,
            reports,
            is_draining: false,
            hangs_at: Instant::now() + RELEASE_MAX,
        }
    }

    /// The servers here accept, and nothing is left that could fail.
    pub(super) fn tell_ready(&self) {
        // Where it has ended, the next line says so.
        let _ = self.peer().tell("ready", None);
    }

    /// The conversation whose next line is waited for.
    pub(super) fn peer(&self) -> &Peer {
        &self.peers[0]
    }

    /// All whose end is waited for, to pass them on.
    pub(super) fn peers(&self) -> impl Iterator<Item = &Peer> {
        self.peers.iter()
    }

    /// Whether processes that connect at the path are this one's to answer.
    pub(super) fn has_left_path(&self, now: Instant) -> bool {
        self.is_draining || self.hangs_at <= now
    }

    /// Takes the line that has come, if one has, and does what follows from it.
    pub(super) fn hear(&mut self) -> Progress {
        match self.next() {
            Said::Nothing => Progress::Holds,
            Said::Draining => {
                self.is_draining = true;
                Progress::Holds
            }
            Said::Released => {
                self.released();
                Progress::Released
            }
            Said::Refused(line) => self.refused(line),
        }
    }

    /// Whether it may still accept, for a server that drains itself: nothing follows.
    pub(super) fn holds(&mut self) -> bool {
        matches!(self.next(), Said::Nothing | Said::Draining)
    }

    fn next(&mut self) -> Said {
        match self.peer().hear(Duration::ZERO) {
            Ok(Some((line, passed_on))) => match line.as_str() {
                "draining" => {
                    self.peers
                        .extend(passed_on.and_then(|it| Peer::of(it).ok()));
                    Said::Draining
                }
                "released" => Said::Released,
                _ => Said::Refused(line),
            },
            Err(cause) if cause.kind() == io::ErrorKind::TimedOut => Said::Nothing,
            // The process has ended, and its sockets are closed.
            Ok(None) | Err(_) if self.peers.len() == 1 => Said::Released,
            Ok(None) | Err(_) => {
                self.peers.pop_front();
                log::warn!("a server that hangs is before the one before this, which has ended");
                Said::Nothing
            }
        }
    }

    fn refused(&self, line: String) -> Progress {
        log::error!("the server before this one serves on: {line}");
        Progress::Refused(match self.reports.send(Err(io::Error::other(line))) {
            Ok(()) => Refused::InTime,
            Err(_) => Refused::Late,
        })
    }

    fn released(&self) {
        self.passed.taken_over();
        for (socket, queued) in self.passed.close_left() {
            log::warn!("no longer served: {socket}; {queued} connections were waiting there");
        }
        // Where nothing waits for it, the process serves already.
        let _ = self.reports.send(Ok(()));
    }
}
