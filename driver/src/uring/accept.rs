//! Accept: one entry for one connection, or one for all that come.
//!
//! A multishot accept completes with `more` per connection; its final completion may carry one too.
//! Descriptors are made close-on-exec and left blocking: a non-blocking socket would make the
//! kernel answer EAGAIN where it should wait for the peer. For an accept it waits nevertheless,
//! which the probe of `multishot_accept` tries; and a listener that does not block can be shared
//! with an epoll driver.
//!
//! The kernel's accept waits exclusively. On a listener that another process may accept from as
//! well `accept_shared` is used instead.

use io_uring::types;

use super::Uring;
use super::entry::accept_entry;
use super::origin::Origin;
use crate::completion::{Completion, Errno, Outcome};
use crate::driver::OperationMode;
use crate::socket::{Handle, Listener, Socket};

impl Uring {
    pub(super) fn start_accept(
        &mut self,
        listener: &Listener,
        user_data: u64,
        mode: OperationMode,
    ) {
        let descriptor = listener.prepare(&mut self.counters.system_calls);
        self.counters.accepts_armed += 1;
        self.outstanding += 1;
        if let Some(shared) = listener.shared() {
            return self.start_shared_accept(shared, user_data, mode);
        }
        let entry = accept_entry(types::Fd(descriptor), mode);
        self.ring.push_plain(entry.of(Origin::Accept { user_data }));
    }

    pub(super) fn accepted(
        &mut self,
        user_data: u64,
        result: i32,
        more: bool,
        completions: &mut Vec<Completion>,
    ) {
        self.outstanding -= u32::from(!more);
        let outcome = if result < 0 {
            Outcome::Failed(Errno::from_raw_os_error(-result))
        } else {
            let socket = Socket::new(Handle::Descriptor(result));
            self.sockets.open(socket);
            Outcome::Accepted(socket)
        };
        completions.push(Completion::new(user_data, more, outcome));
    }
}
