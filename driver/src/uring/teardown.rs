//! Dropping the driver: every operation is ended, and its completion seen, before any memory goes.
//!
//! The kernel ends operations of a closed ring some time after the close; until then it could write
//! to receive buffers and read from send lists. So the ring is emptied first. If that does not
//! succeed in time, the memory is leaked: a leak is reported, a write to freed memory would not be.

use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd};
use std::time::{Duration, Instant};

use super::Uring;
use super::buffers::BufferRing;
use super::entry::cancel_all_entry;
use super::ring::Block;
use crate::completion::{Completion, Outcome};

/// How long a drop may take at most. Operations on sockets end at once; this is for a kernel in
/// need.
const EMPTYING_TIME_MAX: Duration = Duration::from_secs(2);

/// How long one attempt waits for completions, in nanoseconds.
const ATTEMPT_NS: u64 = 10_000_000;

impl Uring {
    /// Ends all operations. True when the kernel has none left.
    fn empty(&mut self) -> bool {
        let deadline = Instant::now() + EMPTYING_TIME_MAX;
        let mut completions = Vec::new();
        self.stopping = true;
        while Instant::now() < deadline {
            if self.outstanding > 0 {
                // Operations that are just completing escape a cancel, so it is repeated.
                self.ring.push_plain(cancel_all_entry());
            }
            let block = if self.outstanding > 0 {
                Block::UpTo {
                    timeout_ns: ATTEMPT_NS,
                }
            } else {
                Block::No
            };
            if self.ring.turn(block).is_err() {
                return self.outstanding == 0;
            }
            self.handle_reaped(&mut completions);
            self.discard(&mut completions);
            if self.outstanding == 0 && self.ring.is_submitted() {
                return true;
            }
        }
        false
    }

    /// The caller will not see these.
    fn discard(&mut self, completions: &mut Vec<Completion>) {
        for completion in completions.drain(..) {
            match completion.outcome {
                // Closed with the others, by the table of sockets.
                Outcome::Accepted(_) | Outcome::Connected => {}
                Outcome::Received(piece) => {
                    self.buffers[usize::from(piece.region_id)].recycle(piece);
                }
                Outcome::Datagram(datagram) => {
                    if let Some(piece) = datagram.piece {
                        self.buffers[usize::from(piece.region_id)].recycle(piece);
                    }
                }
                Outcome::ReceivedInto(_)
                | Outcome::EndOfStream
                | Outcome::Sent { .. }
                | Outcome::Signalled(_)
                | Outcome::Failed(_) => {}
            }
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        let empty = self.empty();
        for descriptor in self.sockets.take_descriptors() {
            // SAFETY: the table says that it is open and ours; nothing else closes it.
            drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
        }
        let submitter = self.ring.inner().submitter();
        let mut groups = self.buffers.iter().flat_map(BufferRing::groups);
        let is_unknown = empty && groups.all(|group| submitter.unregister_buf_ring(group).is_ok());
        drop(groups);
        if is_unknown {
            // SAFETY: not used again: this is the drop. No operation is left that could (B2, P1).
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.sends) };
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.recv_intos) };
            // SAFETY: as above.
            unsafe { ManuallyDrop::drop(&mut self.datagrams) };
        } else {
            log::error!(
                "an io_uring could not be emptied ({} operations left): its memory is leaked",
                self.outstanding
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    use io_uring::opcode;
    use io_uring::squeue::Flags;

    use super::super::origin::{Origin, Own};
    use super::super::setup::TaskRun;
    use super::*;
    use crate::config::DriverConfig;
    use crate::driver::{AfterSend, Driver, OperationMode};
    use crate::segment::SendList;
    use crate::socket::Listener;
    use crate::testing::{given, patience};

    #[test]
    fn a_busy_ring_is_emptied() {
        for completion_entries in [4, 1024] {
            let config = DriverConfig {
                completion_entries,
                ..DriverConfig::default()
            };
            let Some(mut uring) = given(Uring::new(&config)) else {
                return;
            };
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let address = listener.local_addr().expect("bound");
            let listener = Listener::new(OwnedFd::from(listener));
            let mut clients = vec![];
            for user_data in 0..20 {
                clients.push(TcpStream::connect(address).expect("listening"));
                let ours = TcpStream::connect(address).expect("listening");
                let socket = uring.register(ours.into()).expect("a socket");
                uring.receive(socket, user_data, OperationMode::Multishot, 0);
                let mut list = SendList::new();
                let bytes = bytes::Bytes::from(vec![0; 8 << 20]);
                assert!(list.push(bytes.into()).is_ok());
                uring.send(socket, user_data, &mut list, AfterSend::KeepOpen);
            }
            // Connections that will not be accepted, and a send that cannot end.
            uring.accept(&listener, 100, OperationMode::Multishot);
            uring
                .wait(Some(0), &|| false, &mut vec![])
                .expect("the driver works");
            assert!(uring.outstanding > 20, "{} operations", uring.outstanding);
            assert!(uring.empty(), "{} operations left", uring.outstanding);
            assert_eq!(uring.outstanding, 0);
        }
    }

    /// Where the kernel may still know a buffer ring, its memory is leaked (B2).
    #[test]
    fn memory_that_the_kernel_does_not_give_up_stays_mapped() {
        let Some(uring) = given(Uring::new(&DriverConfig::default())) else {
            return;
        };
        let region = uring.buffers[0].region();
        let page = region.address(0).as_ptr() as usize;
        let group = uring.buffers[0].whole_group();
        // Done here, it fails in the drop: as if the kernel refused.
        let unregistered = uring.ring.inner().submitter().unregister_buf_ring(group);
        unregistered.expect("it was registered");
        assert!(is_mapped(page));
        drop(uring);
        assert!(is_mapped(page), "the memory of the region is gone");
    }

    fn is_mapped(address: usize) -> bool {
        let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
        maps.lines().any(|line| {
            let (range, _) = line.split_once(' ').expect("a range and more");
            let (from, to) = range.split_once('-').expect("two addresses");
            let number = |text| usize::from_str_radix(text, 16).expect("hexadecimal");
            (number(from)..number(to)).contains(&address)
        })
    }

    #[test]
    fn what_is_open_is_closed_with_the_driver() {
        let Some(mut uring) = given(Uring::new(&DriverConfig::default())) else {
            return;
        };
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        uring.register(ours.into()).expect("a socket");
        drop(uring);
        theirs.set_read_timeout(Some(patience())).expect("settable");
        theirs.read_to_end(&mut vec![]).expect("the end");
    }

    #[test]
    fn a_close_that_the_kernel_has_not_taken_is_submitted_before_the_ring_goes() {
        // Such a ring submits nothing after an entry that the kernel refuses, in the same call.
        let Some(mut uring) = given(Uring::with_task_run(
            &DriverConfig::default(),
            TaskRun::Interrupting,
        )) else {
            return;
        };
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let socket = uring.register(ours.into()).expect("a socket");
        let refused = opcode::Nop::new().build().flags(Flags::BUFFER_SELECT);
        let refused = refused.user_data(Origin::Own(Own::Cancel).pack());
        // SAFETY: it points to nothing.
        unsafe { uring.ring.push(refused, None) };
        uring.close(socket);
        drop(uring);
        theirs.set_read_timeout(Some(patience())).expect("settable");
        // Unlike `read`, it continues when a signal of the ring interrupts it.
        theirs.read_to_end(&mut vec![]).expect("the end");
    }
}
