//! Send: write in the turn it was started; what the socket does not take waits for an event.

use std::os::fd::{AsFd, RawFd};

use super::table::{Interest, Send, socket_of};
use super::{EVENTS_MAX, Epoll};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::{AfterSend, send_nothing};
use crate::segment::SendList;
use crate::socket::{Mode, Socket};

/// Writes to one connection in one turn, so that the others get theirs.
const WRITES_PER_TURN_MAX: usize = 16;

/// Ended sends that are kept for the next ones: as many as the events of one wait can start, which
/// end in the next one where sockets have room. Those of a crowd of slow clients are freed.
const SPARE_SENDS_MAX: usize = EVENTS_MAX;

impl Epoll {
    pub(super) fn start_send(
        &mut self,
        socket: Socket,
        user_data: u64,
        list: &mut SendList,
        after: AfterSend,
    ) {
        self.counters.submissions += 1;
        let descriptor = socket.raw();
        let entry = self.open_entry(socket);
        assert!(entry.send.is_none(), "C2: a second send on {socket:?}");
        if list.is_empty() {
            let outcome = send_nothing(self, socket, after);
            return self.unasked.push(Completion::last(user_data, outcome));
        }
        let new = || Box::new(Send::new());
        let mut send = self.spare_sends.pop().unwrap_or_else(new);
        send.list.take_from(list);
        (send.user_data, send.after) = (user_data, after);
        self.entry_of(descriptor).send = Some(send);
        // A write that found no room has registered for an event; this one may wait for it, too.
        self.list(descriptor);
    }

    /// Writes up to a bound, each time all that is left of the list up to the first pipe or file;
    /// waits for an event when there is no room (T3).
    pub(super) fn run_send(&mut self, descriptor: RawFd, completions: &mut Vec<Completion>) {
        for _ in 0..WRITES_PER_TURN_MAX {
            let entry = &mut self.entries[descriptor as usize];
            let Some(send) = entry.send.as_mut().filter(|_| entry.writable) else {
                return;
            };
            let closes = send.after == AfterSend::Close;
            self.counters.system_calls += 1;
            let socket = socket_of(&entry.socket).as_fd();
            match send.list.write_front(socket, Mode::NonBlocking, closes) {
                Ok(bytes) => {
                    send.list.advance(bytes);
                    let more = !send.list.is_empty();
                    let closed = closes && !more;
                    let outcome = Outcome::Sent { bytes, closed };
                    completions.push(Completion::new(send.user_data, more, outcome));
                    self.counters.short_sends += u64::from(more);
                    if !more {
                        self.resting += usize::from(send.after == AfterSend::Rest);
                        let ended = entry.send.take();
                        self.keep_spare(ended);
                    }
                    if closed {
                        self.close_descriptor(descriptor);
                    }
                }
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    entry.writable = false;
                    if let Err(errno) = self.register_interest(descriptor, Interest::Both) {
                        completions.extend(self.fail_send(descriptor, errno));
                    }
                }
                Err(errno) => completions.extend(self.fail_send(descriptor, errno)),
            }
        }
    }

    fn keep_spare(&mut self, ended: Option<Box<Send>>) {
        if self.spare_sends.len() < SPARE_SENDS_MAX {
            self.spare_sends.extend(ended);
        }
    }

    /// Ends the send of a socket, if it has one.
    pub(super) fn fail_send(&mut self, descriptor: RawFd, errno: Errno) -> Option<Completion> {
        let send = self.entry_of(descriptor).send.take()?;
        Some(Completion::last(send.user_data, Outcome::Failed(errno)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::DriverConfig;

    #[test]
    fn a_crowd_of_sends_leaves_a_bounded_number_of_spares() {
        let mut epoll = Epoll::new(&DriverConfig::default()).expect("a driver");
        for _ in 0..2 * SPARE_SENDS_MAX {
            epoll.keep_spare(Some(Box::new(Send::new())));
        }
        assert_eq!(epoll.spare_sends.len(), SPARE_SENDS_MAX);
    }
}
