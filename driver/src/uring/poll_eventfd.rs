//! poll_eventfd: a multishot poll on an eventfd, and one read for each time it fires.
//!
//! A read of the ring would save the call where nothing waits, but it waits in the queue until the
//! next turn, and it fails at once on a descriptor in non-blocking mode, which is its owner's to
//! choose. The poll fires on every write that comes after it; a read that finds nothing (two writes
//! that one read took) completes nothing.
//!
//! Invariants
//! - W1: an entry of the table holds the eventfd open from `start_poll_eventfd` to the final
//!   completion.
//! - W2: the kernel ends a poll when the completion queue overflows; it is armed again, and looks
//!   at the counter then, so nothing is missed. A watch ends only when it is cancelled or fails.

use std::os::fd::AsRawFd;
use std::sync::Arc;

use io_uring::cqueue;

use super::Uring;
use super::entry::{cancel_entry, poll_entry};
use super::origin::Origin;
use super::table::{EventfdPoll, PollState};
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::eventfd::Eventfd;

impl Uring {
    pub(super) fn start_poll_eventfd(&mut self, event: Arc<Eventfd>, user_data: u64) {
        self.outstanding += 1;
        let index = self.polls.insert(EventfdPoll {
            user_data,
            on: event,
            state: PollState::default(),
        }) as u32;
        self.arm_poll(index);
    }

    /// Marks a watch as cancelled; its index.
    pub(super) fn cancel_poll(&mut self, event: &Arc<Eventfd>, user_data: u64) -> Option<u32> {
        let index = self.polls.meant(event, user_data)?;
        self.polls[index].state.cancelled = true;
        Some(index as u32)
    }

    fn arm_poll(&mut self, index: u32) {
        // W1: an armed watch is in the table.
        let watch = &self.polls[index as usize];
        let Some(descriptor) = watch.on.descriptor() else {
            unreachable!("a simulated eventfd on a real driver")
        };
        let descriptor = descriptor.as_raw_fd();
        let entry = poll_entry(descriptor, libc::POLLIN, OperationMode::Multishot);
        self.ring
            .push_plain(entry.of(Origin::PollEventfd { index }));
    }

    /// An eventfd cannot be read: ends its poll, whose last completion reports it.
    #[cold]
    fn fail_poll(&mut self, index: u32, errno: Errno) {
        // W1: a watch that fires is in the table.
        let watch = &mut self.polls[index as usize];
        if watch.state.failed.replace(errno).is_some() || watch.state.cancelled {
            return;
        }
        let entry = cancel_entry(Origin::PollEventfd { index });
        self.ring.push_plain(entry);
    }

    /// The poll of a watch has fired, or ended.
    pub(super) fn poll_fired(
        &mut self,
        index: u32,
        entry: &cqueue::Entry,
        completions: &mut Vec<Completion>,
    ) {
        // W1: a watch that fires is in the table.
        let watch = &self.polls[index as usize];
        let armed = cqueue::more(entry.flags());
        let user_data = watch.user_data;
        let failed = match entry.result() {
            0.. => None,
            result => Some(Errno::from_raw_os_error(-result)),
        };
        let taken = match failed {
            None if !self.stopping => watch.on.signalled(),
            // No completion would report it.
            _ => Ok(None),
        };
        self.counters.system_calls += u64::from(failed.is_none());
        let mut end = failed.filter(|errno| *errno != Errno::CANCELED || watch.state.cancelled);
        if !armed && (watch.state.cancelled || self.stopping) {
            end = Some(Errno::CANCELED);
        }
        if !armed {
            end = watch.state.failed.or(end);
        }
        match taken {
            Ok(signalled) => {
                completions.extend(signalled.map(|it| Completion::new(user_data, true, it)));
            }
            Err(errno) if armed => self.fail_poll(index, errno),
            Err(errno) => end = end.or(Some(errno)),
        }
        if armed {
            return;
        }
        let Some(errno) = end else {
            return self.arm_poll(index);
        };
        self.outstanding -= 1;
        self.polls.remove(index as usize);
        completions.push(Completion::last(user_data, Outcome::Failed(errno)));
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

    use super::*;
    use crate::config::DriverConfig;
    use crate::driver::Driver;
    use crate::testing::{given, patience};

    #[test]
    fn a_watch_that_cannot_be_read_fails_although_its_poll_stays_armed() {
        let Some(mut uring) = given(Uring::new(&DriverConfig::default())) else {
            return;
        };
        // Readable for a poll as soon as a connection waits, and never for a read.
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("bound");
        let event = Arc::new(Eventfd::of(listener.into()));
        uring.poll_eventfd(event, 5);
        let _client = TcpStream::connect(address).expect("listening");
        let deadline = Instant::now() + patience();
        let mut completions = vec![];
        while completions.is_empty() {
            assert!(Instant::now() < deadline, "a deaf watch");
            let waited = uring.wait(Some(50_000_000), &|| false, &mut completions);
            waited.expect("the driver works");
        }
        let Some(Completion { more, outcome, .. }) = completions.pop() else {
            unreachable!("one has come")
        };
        // OPNOTSUPP: on older kernels (6.1) nothing reads a socket without waiting.
        let refused = matches!(outcome, Outcome::Failed(Errno::NOTCONN | Errno::OPNOTSUPP));
        assert!(!more && refused, "{outcome:?}");
        assert_eq!(uring.outstanding, 0);
    }
}
