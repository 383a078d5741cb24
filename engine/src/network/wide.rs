//! How much of a connection's output the kernel takes before it is sent: little as a rule, and more
//! of a file for a client that reads much.
//!
//! Each time that a socket has room again costs a turn. Pages of a file that is sent from the
//! kernel's cache are not copied, so such a socket may be *wide*: it takes [`WIDE_BYTES`] at a
//! time. But they count as memory of TCP, which all connections of the machine have together, and a
//! client that has read much may stop. So there are `WIDE_MAX` places for wide sockets in a
//! network thread, and others stay narrow.
//!
//! When no place is free and one is wanted, the sockets that have one are looked at in turn, one in
//! `LOOK_NS`. One that has not taken [`WIDE_BYTES`] since it was last looked at, `TRIAL_NS` ago
//! or more, is made narrow. It has its place until little of it is in the kernel: as long as its
//! client does not read, no other one gets the place.
//!
//! Invariants
//! - WS1: a connection has a place if it is not [`Width::Narrow`], and no other one has.
//! - WS2: what the kernel holds unsent of all connections of a thread is at most `WIDE_MAX` times
//!   [`WIDE_BYTES`], and [`UNSENT_BYTES_MAX`] for each other one.
//!
//! A send to a wide socket carries as much as it takes at a time, unless the kernel paces it
//! (`connection/output/taking.rs`).
//!
//! Cost: of a long send a comparison; a system call when the width changes, one more when it
//! becomes wide, and two for a look.

use flatpath_driver::Driver;

use crate::connection::output::Width;
use crate::limits::UNSENT_BYTES_MAX;

use super::sends::WIDE_BYTES;
use super::thread::{Event, Network};
use super::timers::Chore;

/// What a client has read before its socket is wide.
const WIDE_AFTER_BYTES: u64 = 2 * 1024 * 1024;

impl<D: Driver> Event<'_, D> {
    /// Has the kernel take as much at a time as suits what is sent. How many of these bytes the
    /// socket takes now: all of what is copied, for which there may be room on its way.
    pub(super) fn fit_socket(&mut self, bytes: usize, has_file: bool) -> usize {
        let is_long = has_file && bytes > UNSENT_BYTES_MAX as usize;
        let output = self.connection.output();
        let (width, sent_bytes) = (output.width(), output.sent_bytes());
        match width {
            Width::Narrow if is_long && sent_bytes >= WIDE_AFTER_BYTES => self.widen(sent_bytes),
            // What is copied is not held back there.
            Width::Wide { .. } if !has_file => self.narrow(),
            // Of the send before, some may have been taken when it was wide.
            Width::Leaving => self.connection.output_mut().set_width(Width::LeavesNext),
            // All of the send before was taken when it was narrow, so little was left by then.
            Width::LeavesNext => self.leave(),
            Width::Narrow | Width::Wide { .. } => {}
        }
        let unsent_bytes_max = match self.connection.output().width() {
            Width::Wide { .. } => WIDE_BYTES,
            Width::Narrow | Width::Leaving | Width::LeavesNext => UNSENT_BYTES_MAX,
        };
        match is_long {
            true => bytes.min(unsent_bytes_max as usize),
            false => bytes,
        }
    }

    fn widen(&mut self, sent_bytes: u64) {
        let now_ns = self.thread.now_ns();
        if self.thread.sends.wide.admit(self.key, sent_bytes, now_ns) {
            let is_paced = self.thread.driver.is_paced(self.connection.socket());
            self.set_width(Width::Wide { is_paced }, WIDE_BYTES);
        } else if self.thread.sends.wide.wants(now_ns) {
            self.thread.timers.at_once(Chore::Wide);
        }
    }

    /// From now on the kernel takes little more of it; its place it has on.
    fn narrow(&mut self) {
        self.set_width(Width::Leaving, UNSENT_BYTES_MAX);
        self.leave_if_little();
    }

    /// Leaves its place if the kernel holds no more of it than of others, what is on its way
    /// included.
    fn leave_if_little(&mut self) {
        let delivery = self.thread.driver.delivery(self.connection.socket());
        let sent_bytes = self.connection.output().sent_bytes();
        let holds_much = delivery.is_some_and(|it| {
            sent_bytes.saturating_sub(it.acked_bytes) > u64::from(UNSENT_BYTES_MAX)
        });
        if !holds_much {
            self.leave();
        }
    }

    fn leave(&mut self) {
        self.connection.output_mut().set_width(Width::Narrow);
        self.thread.sends.wide.left(self.key);
    }

    fn set_width(&mut self, width: Width, unsent_bytes_max: u32) {
        self.connection.output_mut().set_width(width);
        let socket = self.connection.socket();
        self.thread.driver.set_unsent_max(socket, unsent_bytes_max);
    }

    /// It has a place that others want.
    fn is_looked_at(&mut self) {
        let sent_bytes = self.connection.output().sent_bytes();
        let takes_much = self
            .thread
            .sends
            .wide
            .judge(sent_bytes, self.thread.now_ns());
        match (self.connection.output().width(), takes_much) {
            (Width::Wide { .. }, Some(false)) => self.narrow(),
            (Width::Leaving | Width::LeavesNext, _) => self.leave_if_little(),
            (Width::Narrow | Width::Wide { .. }, _) => {}
        }
    }
}

impl<D: Driver> Network<D> {
    /// Looks at a wide socket, if others want its place.
    pub(super) fn look_at_wide(&mut self) {
        let now_ns = self.thread.now_ns();
        self.thread.timers.set(Chore::Wide, None);
        let Some(key) = self.thread.sends.wide.next(now_ns) else {
            return;
        };
        match self.event(key) {
            Some(mut event) => event.is_looked_at(),
            None => debug_assert!(false, "a connection that is gone has no place (WS1)"),
        }
    }
}
