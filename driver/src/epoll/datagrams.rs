//! Datagrams: several with one call, while epoll says that there are some.
//!
//! The socket is watched for its level and not for edges: a turn takes a bounded number, as many as
//! there are pages and [`BATCHES_MAX`] calls at most, so that a flood leaves the rest of the turn
//! to connections, and the next wait finds what is left.
//!
//! Invariants
//! - ED1: an entry of the table holds the socket open, and registered, from
//!   `start_receive_datagrams` to the final completion.
//!
//! Cost: one recvmmsg(2) for up to 16 datagrams, and for the whole receive one call to begin and
//! one to end.

use std::ptr::NonNull;
use std::sync::Arc;

use flatpath_sys::udp::{BATCH_MAX, Batch};
use rustix::event::epoll::{self, EventData, EventFlags};

use super::table::{DatagramReceive, DatagramState};
use super::{DATAGRAMS, Epoll, Work};
use crate::completion::{Completion, Datagram, Errno, Outcome};
use crate::datagram::{DatagramSocket, is_report, needs_page, room_in_page};

/// Calls that receive from one socket in one turn.
const BATCHES_MAX: usize = 4;

impl Epoll {
    pub(super) fn start_receive_datagrams(
        &mut self,
        socket: Arc<DatagramSocket>,
        user_data: u64,
        region_id: u16,
    ) {
        room_in_page(self.buffers[usize::from(region_id)].region().page_bytes());
        assert!(
            !self.datagrams.has_on(&socket),
            "C2: a second receive on {socket:?}"
        );
        let index = self.datagrams.insert(DatagramReceive {
            user_data,
            on: Arc::clone(&socket),
            state: DatagramState {
                region_id,
                queued: false,
            },
        });
        let data = EventData::new_u64(DATAGRAMS | index as u64);
        self.counters.system_calls += 1;
        self.counters.submissions += 1;
        if let Err(errno) = epoll::add(&self.epoll, socket.raw(), data, EventFlags::IN) {
            self.datagrams.remove(index);
            let completion = Completion::last(user_data, Outcome::Failed(errno));
            self.unasked.push(completion);
        }
    }

    /// An event: datagrams, or a report. One for a vacant entry is dropped; for the entry's next
    /// owner it costs a call in vain.
    pub(super) fn datagrams_ready(&mut self, index: usize) {
        if let Some(receive) = self.datagrams.get_mut(index)
            && !receive.state.queued
        {
            receive.state.queued = true;
            self.work.push_back(Work::Datagrams(index));
        }
    }

    pub(super) fn run_datagrams(&mut self, index: usize, completions: &mut Vec<Completion>) {
        let Some(receive) = self.datagrams.get_mut(index) else {
            return;
        };
        receive.state.queued = false;
        let receive = (
            Arc::clone(&receive.on),
            receive.user_data,
            receive.state.region_id,
        );
        for number in 0..BATCHES_MAX {
            if !self.receive_batch(index, &receive, number == 0, completions) {
                return;
            }
        }
    }

    /// Receives what one call brings. True: there may be more. Only for the first one of a turn
    /// there have to be pages; those that it has taken come back when their datagrams are handled.
    fn receive_batch(
        &mut self,
        index: usize,
        (socket, user_data, region_id): &(Arc<DatagramSocket>, u64, u16),
        is_first: bool,
        completions: &mut Vec<Completion>,
    ) -> bool {
        let (user_data, region_id) = (*user_data, *region_id);
        let buffers = &mut self.buffers[usize::from(region_id)];
        let mut pages = [0; BATCH_MAX];
        let mut spaces = [NonNull::dangling(); BATCH_MAX];
        let mut count = 0;
        while count < BATCH_MAX
            && let Some(page) = buffers.take()
        {
            pages[count] = page;
            spaces[count] = NonNull::from(buffers.space(page)).cast();
            count += 1;
        }
        if count == 0 {
            if is_first {
                let completion = self.end_datagrams(index, Errno::NOBUFS);
                self.counters.count_stall(&completion.outcome);
                completions.push(completion);
            }
            return false;
        }
        let bytes = room_in_page(buffers.region().page_bytes());
        let batch = self.batch.get_or_insert_with(|| Box::new(Batch::new()));
        self.counters.system_calls += 1;
        // SAFETY: the pages were free, and are this receive's until they are given back or out as
        // pieces (EB1); each has more bytes.
        let received = unsafe { batch.receive(socket.raw(), &spaces[..count], bytes) };
        let came = *received.as_ref().unwrap_or(&0);
        for (place, page) in pages[..count].iter().enumerate() {
            let (bytes, envelope) = match place < came {
                true => batch.received(place),
                false => (0, None),
            };
            let piece = match needs_page(envelope.as_ref(), bytes) {
                true => Some(buffers.filled(*page, bytes)),
                false => {
                    buffers.unused(*page);
                    None
                }
            };
            completions.extend(envelope.map(|envelope| {
                let datagram = Box::new(Datagram { piece, envelope });
                Completion::new(user_data, true, Outcome::Datagram(datagram))
            }));
        }
        let failed = received.err().map(|error| Errno::from_io_error(&error));
        match failed.map(|errno| errno.unwrap_or(Errno::IO)) {
            None | Some(Errno::AGAIN | Errno::INTR) => {}
            Some(errno) if is_report(errno) => {
                completions.push(Completion::new(user_data, true, Outcome::Failed(errno)));
            }
            Some(errno) => completions.push(self.end_datagrams(index, errno)),
        }
        came == BATCH_MAX
    }

    pub(super) fn cancel_datagrams(&mut self, socket: &Arc<DatagramSocket>, user_data: u64) {
        if let Some(index) = self.datagrams.meant(socket, user_data) {
            let completion = self.end_datagrams(index, Errno::CANCELED);
            self.unasked.push(completion);
        }
    }

    fn end_datagrams(&mut self, index: usize, errno: Errno) -> Completion {
        let receive = self.datagrams.remove(index);
        self.counters.system_calls += 1;
        // It is registered (ED1); if not after all, there is nothing to undo.
        let _ = epoll::delete(&self.epoll, receive.on.raw());
        Completion::last(receive.user_data, Outcome::Failed(errno))
    }
}
