//! poll_eventfd: an eventfd among the descriptors that epoll reports, by edges, and one read for
//! each.
//!
//! Every write is an edge, and what is there already when the poll begins is reported at once.
//!
//! Invariants
//! - EW1: an entry of the table holds the eventfd open, and registered, from `start_poll_eventfd`
//!   to the final completion.

use std::sync::Arc;

use rustix::event::epoll::{self, EventData, EventFlags};

use super::{Epoll, POLL_EVENTFD, Work};
use crate::completion::{Completion, Errno, Outcome};
use crate::eventfd::Eventfd;
use crate::operations::UnderWay;

/// A poll under way.
pub(super) type EventfdPoll = UnderWay<Arc<Eventfd>, PollState>;

#[derive(Default)]
pub(super) struct PollState {
    /// It is in the work list.
    queued: bool,
}

impl Epoll {
    pub(super) fn start_poll_eventfd(&mut self, event: Arc<Eventfd>, user_data: u64) {
        let Some(descriptor) = event.descriptor() else {
            unreachable!("a simulated eventfd on a real driver")
        };
        let index = self.polls.insert(EventfdPoll {
            user_data,
            on: Arc::clone(&event),
            state: PollState::default(),
        });
        let data = EventData::new_u64(POLL_EVENTFD | index as u64);
        let flags = EventFlags::IN | EventFlags::ET;
        self.counters.system_calls += 1;
        self.counters.submissions += 1;
        if let Err(errno) = epoll::add(&self.epoll, descriptor, data, flags) {
            self.polls.remove(index);
            let completion = Completion::last(user_data, Outcome::Failed(errno));
            self.unasked.push(completion);
        }
    }

    /// An event: something was written. One for a vacant entry is dropped; for the entry's next
    /// owner it costs a read in vain.
    pub(super) fn poll_ready(&mut self, index: usize) {
        if let Some(watch) = self.polls.get_mut(index)
            && !watch.state.queued
        {
            watch.state.queued = true;
            self.work.push_back(Work::PollEventfd(index));
        }
    }

    pub(super) fn run_poll(&mut self, index: usize, completions: &mut Vec<Completion>) {
        let Some(watch) = self.polls.get_mut(index) else {
            return;
        };
        watch.state.queued = false;
        let user_data = watch.user_data;
        self.counters.system_calls += 1;
        match watch.on.signalled() {
            Ok(signalled) => {
                completions.extend(signalled.map(|it| Completion::new(user_data, true, it)));
            }
            Err(errno) => completions.push(self.end_poll(index, errno)),
        }
    }

    pub(super) fn cancel_poll(&mut self, event: &Arc<Eventfd>, user_data: u64) {
        if let Some(index) = self.polls.meant(event, user_data) {
            let completion = self.end_poll(index, Errno::CANCELED);
            self.unasked.push(completion);
        }
    }

    fn end_poll(&mut self, index: usize, errno: Errno) -> Completion {
        let watch = self.polls.remove(index);
        if let Some(descriptor) = watch.on.descriptor() {
            self.counters.system_calls += 1;
            // It is registered (EW1); if not after all, there is nothing to undo.
            let _ = epoll::delete(&self.epoll, descriptor);
        }
        Completion::last(watch.user_data, Outcome::Failed(errno))
    }
}
