//! Wake: a poll that stays armed on the waker's eventfd.
//!
//! The poll fires on every write, whatever the counter says, so the eventfd is never read. It ends
//! when the completion queue overflows; arming it again then fires once, for nothing.

use std::os::fd::AsRawFd;

use super::Uring;
use super::entry::poll_entry;
use super::origin::{Origin, Own};
use crate::driver::OperationMode;

impl Uring {
    pub(super) fn arm_wake(&mut self) {
        let Some(eventfd) = self.waker.eventfd() else {
            return;
        };
        // The waker keeps it open.
        let entry = poll_entry(eventfd.as_raw_fd(), libc::POLLIN, OperationMode::Multishot);
        self.ring.push_plain(entry.of(Origin::Own(Own::Wake)));
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Instant;

    use super::*;
    use crate::completion::{Completion, Outcome};
    use crate::config::DriverConfig;
    use crate::driver::Driver;
    use crate::testing::{given, patience};

    /// Many receives and the poll fire between two waits: the queue of four overflows, and the
    /// kernel ends the poll.
    #[test]
    fn an_overflow_that_ends_the_poll_does_not_end_waking() {
        let config = DriverConfig {
            completion_entries: 4,
            ..DriverConfig::default()
        };
        let Some(mut uring) = given(Uring::new(&config)) else {
            return;
        };
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let mut clients = vec![];
        for user_data in 0..20 {
            let ours = TcpStream::connect(address).expect("listening");
            clients.push(listener.accept().expect("connected").0);
            let socket = uring.register(ours.into()).expect("a socket");
            uring.receive(socket, user_data, OperationMode::Single, 0);
        }
        let mut completions = vec![];
        uring
            .wait(Some(0), &|| false, &mut completions)
            .expect("the driver works");
        assert!(completions.is_empty());
        clients
            .iter_mut()
            .for_each(|client| client.write_all(b"x").expect("open"));
        let eventfd = uring.waker.eventfd().expect("a real driver has one");
        rustix::io::write(eventfd, &1_u64.to_ne_bytes()).expect("room");
        while completions.len() < 20 {
            uring
                .wait(Some(1_000_000_000), &|| false, &mut completions)
                .expect("the driver works");
        }
        assert!(
            uring.statistics().completion_overflows > 0,
            "the test misses its aim"
        );
        for completion in completions.drain(..) {
            let Outcome::Received(piece) = completion.outcome else {
                panic!("{completion:?}")
            };
            uring.recycle(piece);
        }
        // Spurious wake-ups of the poll's renewal are over after this.
        for _ in 0..3 {
            uring
                .wait(Some(1_000_000), &|| false, &mut completions)
                .expect("the driver works");
        }
        assert_a_wake_arrives(&mut uring, &mut completions);
    }

    fn assert_a_wake_arrives(uring: &mut Uring, completions: &mut Vec<Completion>) {
        let waker = uring.waker();
        let asleep = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !asleep.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                waker.wake();
            });
            let (start, asked) = (Instant::now(), AtomicBool::new(false));
            let ready = || {
                // The second time it is asked, the flag is up.
                let second = asked.swap(true, Ordering::Relaxed);
                asleep.store(second, Ordering::Release);
                false
            };
            let timeout_ns = Some(patience().as_nanos() as u64);
            uring
                .wait(timeout_ns, &ready, completions)
                .expect("the driver works");
            assert!(start.elapsed() < patience(), "the wake-up was lost");
        });
    }
}
