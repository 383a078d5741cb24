//! How operations complete: the simulated kernel at work, and the faults that any operation meets.
//! Each operation's own part is in its file; that of polls of eventfds is here.

use std::sync::Arc;

use super::faults::Fault;
use super::operations::{Kind, Received};
use super::world::World;
use crate::buffers::Buffers;
use crate::completion::{Errno, Outcome};
use crate::driver::OperationMode;
use crate::eventfd::Eventfd;

/// Completions of one operation per turn at most.
const COMPLETIONS_PER_TURN_MAX: usize = 8;

impl World {
    /// Completes every operation that can complete now.
    pub(super) fn progress(&mut self, buffers: &mut [Buffers]) {
        let live = self.operations.live(&mut self.random);
        for number in live {
            if self.operations.at(number).cancelled {
                if self.chance(Fault::CancelRace) {
                    self.progress_one(number, buffers);
                }
                if !self.operations.at(number).over {
                    self.complete(number, false, Outcome::Failed(Errno::CANCELED));
                } else {
                    self.injected.strike(Fault::CancelRace);
                }
            } else {
                self.progress_one(number, buffers);
            }
        }
    }

    fn progress_one(&mut self, number: u64, buffers: &mut [Buffers]) {
        for _ in 0..COMPLETIONS_PER_TURN_MAX {
            let running = self.operations.at(number);
            if running.over {
                return;
            }
            let progressed = match running.kind {
                Kind::Accept { listener } => self.progress_accept(number, listener),
                Kind::Connect { socket } => self.progress_connect(number, socket),
                Kind::Receive { socket, ref into } => {
                    let region_id = match into {
                        Received::Region(region_id) => Some(*region_id),
                        Received::Buffer(_) => None,
                    };
                    let pages = region_id.map(|region_id| &mut buffers[usize::from(region_id)]);
                    self.progress_receive(number, socket, pages)
                }
                Kind::Send { socket, .. } => self.progress_send(number, socket),
                Kind::ReceiveDatagrams {
                    ref socket,
                    region_id,
                } => {
                    let socket = socket.number();
                    self.progress_datagrams(number, socket, &mut buffers[usize::from(region_id)])
                }
                Kind::PollEventfd { ref event } => {
                    let event = Arc::clone(event);
                    self.progress_poll(number, &event)
                }
            };
            if !progressed {
                return;
            }
        }
    }

    /// Puts a completion on its way, late if chance will have it.
    pub(super) fn complete(&mut self, number: u64, more: bool, outcome: Outcome) {
        let late_ns = match self.strikes(Fault::Late) {
            true => self.random.up_to(self.faults.late_ns_max),
            false => 0,
        };
        let due_ns = self.now_ns + late_ns;
        self.operations.complete(number, due_ns, more, outcome);
    }

    pub(super) fn fail(&mut self, number: u64, errno: Errno) -> bool {
        self.complete(number, false, Outcome::Failed(errno));
        true
    }

    /// Whether an operation continues after this completion.
    pub(super) fn continues(&mut self, number: u64) -> bool {
        self.operations.at(number).mode == OperationMode::Multishot
            && !self.strikes(Fault::EarlyEnd)
    }

    /// Breaks a connection with the first of these faults that strikes.
    pub(super) fn loses_connection(
        &mut self,
        socket: u32,
        losses: [(Fault, Errno); 2],
    ) -> Option<Errno> {
        let struck = losses.into_iter().find(|(loss, _)| self.strikes(*loss));
        struck.map(|(_, errno)| {
            self.break_connection(socket);
            errno
        })
    }

    /// Takes a count, now or later: a kernel may notice two writes at once, or one by one.
    fn progress_poll(&mut self, number: u64, event: &Eventfd) -> bool {
        if let Some(left) = self.watches_refused.checked_sub(1) {
            self.watches_refused = left;
            return self.fail(number, Errno::NOMEM);
        }
        if !event.is_raised() || self.chance(Fault::Late) {
            return false;
        }
        let Ok(Some(signalled)) = event.signalled() else {
            return false;
        };
        self.complete(number, true, signalled);
        true
    }
}
