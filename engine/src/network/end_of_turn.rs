//! The end of a turn: what was left for it, in the order in which it came.
//!
//! Input that takes long and receives of bulk connections (`long_input.rs`), and long output
//! (`send.rs`).

use flatpath_driver::Driver;

use crate::connection::Receive;
use crate::limits::{
    BULK_PER_TURN_MAX, LONG_INPUT_PER_TURN_MAX, SCARCE_PAGES_PART, TURN_LONG_INPUT_NS,
};
use crate::network::waits::Wait;

use super::thread::Network;

impl<D: Driver> Network<D> {
    /// The end of a turn: reads long input until the time for it is over, a page of each
    /// connection in turn; at least one of the sparse and one of the bulk.
    pub(super) fn run_long_input(&mut self) {
        if self.thread.awaiting_turn() == 0 {
            self.thread.bulk.ends_turn(0);
            return;
        }
        let end_ns = self.thread.common.turn.now_ns + TURN_LONG_INPUT_NS;
        for wait in [Wait::Input, Wait::BulkInput] {
            for _ in 0..LONG_INPUT_PER_TURN_MAX {
                let Some(key) = self.next_waiting(wait) else {
                    break;
                };
                if self.is_spliced(key) {
                    self.pass_deferred(key);
                } else {
                    self.on(key, |event| {
                        event.read_in_turn();
                    });
                }
                if self.thread.driver.clock_ns() >= end_ns {
                    break;
                }
            }
        }
        self.thread.bulk.ends_turn(self.thread.awaiting_turn());
    }

    /// The end of a turn: arms the receives of the bulk connections that have waited longest.
    pub(super) fn arm_bulk(&mut self) {
        let waiting = self.thread.waits.len(Wait::BulkReceive);
        if waiting == 0 {
            return;
        }
        let pages = self.thread.driver.region(0).pages() / SCARCE_PAGES_PART;
        let most = BULK_PER_TURN_MAX.min(pages as usize);
        let most = most.saturating_sub(self.thread.awaiting_turn()).max(1);
        for _ in 0..waiting.min(most) {
            let Some(key) = self.next_waiting(Wait::BulkReceive) else {
                return;
            };
            let Some(mut event) = self.event(key) else {
                continue;
            };
            let connection = &*event.connection;
            let is_off = connection.receive() == Receive::Off;
            match connection.is_spliced() {
                _ if !is_off || !connection.wants_input() => {}
                false => event.arm_receive(),
                true => self.arm_spliced(key),
            }
        }
    }

    /// The end of a turn: starts long sends, those that have waited longest first.
    pub(super) fn run_long_sends(&mut self) {
        while self.thread.sends.may_send_long()
            && let Some(key) = self.next_waiting(Wait::Send)
        {
            self.on(key, |event| {
                if event.connection.may_send() && event.connection.output().has_waiting() {
                    match event.connection.is_secured() {
                        true => event.send_sealed(),
                        false => event.send_now(),
                    }
                }
            });
        }
    }
}
