//! The consumer: waits for the doorbell, reads descriptors, makes messages of them.
//!
//! Cost: a message costs one read of each of its descriptors; a `read` of the doorbell and a `poll`
//! are shared by all messages that came since the last one. No payload is touched.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use flatpath_messages::layout::{DESCRIPTOR_WORDS, Descriptor, RETURN_WORDS, Return, announced};
use flatpath_messages::limits::DOORBELL_BYTES_MAX;
use flatpath_sys::shared_memory::{Access, SharedBytes, SharedWords};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::attach::{Attached, attach, await_farewell};
use crate::error::Error;
use crate::message::{Fragment, Message};
use crate::returns::Shared;

/// An attachment to a server. One thread at a time receives; any thread may have the messages.
#[derive(Debug)]
pub struct Consumer {
    shared: Arc<Shared>,
    ring: SharedWords,
    doorbell: OwnedFd,
    number: u32,
    /// Descriptors read since the beginning.
    read: u64,
    /// Descriptors that were announced and not read yet.
    fresh: u64,
    /// Fragments of a message whose end was not announced yet.
    partial: Vec<Fragment>,
    ready: VecDeque<Message>,
    /// How the server has ended, if it has.
    ended: Option<Result<(), Error>>,
}

impl Consumer {
    /// Attaches to the server that listens at `path` (its `--ingest-socket`).
    ///
    /// # Errors
    /// No server listens there, it refuses, or its memory cannot be mapped.
    pub fn attach(path: impl AsRef<Path>) -> Result<Consumer, Error> {
        Consumer::attach_for(path, 0)
    }

    /// Attaches for the messages of the one producer that names the same token, and no others; 0
    /// names none.
    ///
    /// # Errors
    /// As [`Consumer::attach`], and when another consumer has this token.
    pub fn attach_for(path: impl AsRef<Path>, token: u64) -> Result<Consumer, Error> {
        Consumer::new(attach(path, token)?)
    }

    /// A consumer of what was attached.
    ///
    /// # Errors
    /// What is shared cannot be mapped.
    pub fn new(attached: Attached) -> Result<Consumer, Error> {
        let map = |error: io::Error| {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::INVAL);
            Error::System("mapping the server's memory", errno)
        };
        let welcome = attached.welcome;
        let entries = welcome.entries as usize;
        let mut regions = Vec::with_capacity(attached.regions.len());
        for (file, bytes) in attached.regions.iter().zip(&welcome.regions) {
            let bytes = usize::try_from(*bytes).map_err(|_| map(Errno::NOMEM.into()))?;
            regions.push(SharedBytes::open(file, bytes).map_err(map)?);
        }
        let words = entries * DESCRIPTOR_WORDS;
        let ring = SharedWords::open(&attached.descriptor_ring, words, Access::Read);
        let words = entries * RETURN_WORDS;
        let returns = SharedWords::open(&attached.return_ring, words, Access::Write);
        let shared = Shared::new(
            regions,
            welcome.entries,
            returns.map_err(map)?,
            attached.return_doorbell,
            attached.socket,
        );
        Ok(Consumer {
            shared: Arc::new(shared),
            ring: ring.map_err(map)?,
            doorbell: attached.descriptor_doorbell,
            number: welcome.consumer,
            read: 0,
            fresh: 0,
            partial: Vec::new(),
            ready: VecDeque::new(),
            ended: None,
        })
    }

    /// The server's number for this consumer, as in its log.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Fragments that can be held at once.
    pub fn window(&self) -> u32 {
        self.shared.entries
    }

    /// Waits for a message. `None`: the server has stopped in order, and no message will come any
    /// more.
    ///
    /// # Errors
    /// [`Error::Lost`] after the last message of a server that was killed; a system call failed, or
    /// the server broke its protocol.
    pub fn receive(&mut self) -> Result<Option<Message>, Error> {
        self.receive_until(None)
    }

    /// Waits for a message, but not longer than `timeout`.
    ///
    /// # Errors
    /// [`Error::TimedOut`], and as for [`Consumer::receive`].
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Option<Message>, Error> {
        self.receive_until(Instant::now().checked_add(timeout))
    }

    /// Announces all returns to the server now, instead of when the next batch is full or
    /// [`Consumer::receive`] waits.
    pub fn flush(&self) {
        self.shared.flush();
    }

    fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Option<Message>, Error> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if let Some(ended) = self.ended {
                return ended.map(|()| None);
            }
            self.read_doorbell()?;
            if self.fresh > 0 {
                self.collect()?;
            } else if self.ended.is_none() {
                self.shared.begin_wait();
                let waited = self.wait(deadline);
                self.shared.end_wait();
                waited?;
            }
        }
    }

    /// Does not block.
    fn read_doorbell(&mut self) -> Result<(), Error> {
        let mut bytes = [0; DOORBELL_BYTES_MAX];
        match rustix::io::read(&self.doorbell, &mut bytes) {
            Ok(0) => self.ended = Some(await_farewell(&self.shared.socket)),
            Ok(count) => self.fresh += announced(&bytes[..count]),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(Error::System("reading the doorbell", errno)),
        }
        if self.fresh > u64::from(self.shared.entries) {
            return Err(Error::Broken("more descriptors than the ring has"));
        }
        Ok(())
    }

    fn wait(&self, deadline: Option<Instant>) -> Result<(), Error> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let mut waited = [PollFd::new(&self.doorbell, PollFlags::IN)];
        match poll(&mut waited, timeout.as_ref()) {
            Ok(0) => Err(Error::TimedOut),
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(Error::System("waiting for the doorbell", errno)),
        }
    }

    /// Makes messages of the new descriptors.
    fn collect(&mut self) -> Result<(), Error> {
        while self.fresh > 0 {
            let descriptor = self.next_descriptor();
            let given = Return {
                token: descriptor.token,
                region: descriptor.region,
            };
            let region = self.shared.regions.get(usize::from(descriptor.region));
            let bytes = region.map_or(0, SharedBytes::len);
            let range = descriptor.range(bytes as u64);
            let range = range.ok_or(Error::Broken("a fragment outside its region"))?;
            if descriptor.first != self.partial.is_empty() {
                return Err(Error::Broken("a message inside another one"));
            }
            self.partial.push(Fragment {
                shared: Arc::clone(&self.shared),
                range,
                given,
            });
            if descriptor.last {
                self.ready.push_back(Message {
                    fragments: std::mem::take(&mut self.partial),
                    bytes: descriptor.message_bytes,
                    producer: descriptor.producer,
                });
            }
        }
        Ok(())
    }

    fn next_descriptor(&mut self) -> Descriptor {
        let entry = (self.read % u64::from(self.shared.entries)) as usize;
        let place = entry * DESCRIPTOR_WORDS;
        self.read += 1;
        self.fresh -= 1;
        Descriptor::of(std::array::from_fn(|word| self.ring.load(place + word)))
    }
}

impl AsFd for Consumer {
    /// Readable when a message may have come; for programs that wait for other things too. Wait for
    /// it only after [`Consumer::flush`], and after `receive_timeout(ZERO)` has timed out.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }
}
