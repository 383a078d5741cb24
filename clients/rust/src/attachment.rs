//! One attachment to one server: its ring of descriptors, and how it ends.
//!
//! Cost: a message costs one read of each of its descriptors. No payload is touched.

use std::collections::VecDeque;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use flatpath_messages::layout::{DESCRIPTOR_WORDS, Descriptor, RETURN_WORDS, Return, announced};
use flatpath_messages::limits::DOORBELL_BYTES_MAX;
use flatpath_sys::shared_memory::{Access, SharedBytes, SharedWords};
use rustix::io::Errno;

use crate::attach::{Attached, Word, await_answer, next_word};
use crate::error::Error;
use crate::message::{Fragment, Message};
use crate::returns::Shared;

#[derive(Debug)]
pub(crate) struct Attachment {
    pub(crate) shared: Arc<Shared>,
    ring: SharedWords,
    doorbell: OwnedFd,
    pub(crate) number: u32,
    /// Descriptors read since the beginning.
    read: u64,
    /// Descriptors that were announced and not read yet.
    fresh: u64,
    /// Fragments of a message whose end was not announced yet.
    partial: Vec<Fragment>,
    /// The server's last word, if it has come before the end of the doorbell.
    farewell: Option<Result<(), Error>>,
    /// The server has handed over, and the consumer has not followed yet.
    pub(crate) moved: bool,
    /// How the server has ended, if it has.
    pub(crate) ended: Option<Result<(), Error>>,
}

impl Attachment {
    pub(crate) fn new(attached: Attached) -> Result<Attachment, Error> {
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
        Ok(Attachment {
            shared: Arc::new(shared),
            ring: ring.map_err(map)?,
            doorbell: attached.descriptor_doorbell,
            number: welcome.consumer,
            read: 0,
            fresh: 0,
            partial: Vec::new(),
            farewell: None,
            moved: false,
            ended: None,
        })
    }

    /// Readable when a message may have come, and at the end.
    pub(crate) fn doorbell(&self) -> BorrowedFd<'_> {
        self.doorbell.as_fd()
    }

    /// Reads what the server has said on the socket. True: it says no more that matters.
    pub(crate) fn listen(&mut self) -> bool {
        if self.farewell.is_some() {
            return true;
        }
        match next_word(&self.shared.socket) {
            Word::None => return false,
            Word::Moved => self.moved = true,
            Word::Last(farewell) => self.farewell = Some(farewell),
        }
        true
    }

    /// The doorbell has ended: the last word was said before that, or never.
    fn last_word(&mut self) -> Result<(), Error> {
        loop {
            if let Some(farewell) = self.farewell {
                return farewell;
            }
            await_answer(&self.shared.socket).map_err(|_| Error::Lost)?;
            self.listen();
        }
    }

    /// Takes what has come, without waiting, and makes messages of it.
    pub(crate) fn take(&mut self, ready: &mut VecDeque<Message>) -> Result<(), Error> {
        if self.ended.is_some() {
            return Ok(());
        }
        let mut room = [MaybeUninit::uninit(); DOORBELL_BYTES_MAX];
        match rustix::io::read(&self.doorbell, &mut room) {
            Ok(([], _)) => self.ended = Some(self.last_word()),
            Ok((bytes, _)) => self.fresh += announced(bytes),
            Err(Errno::AGAIN | Errno::INTR) => {}
            Err(errno) => return Err(Error::System("reading the doorbell", errno)),
        }
        if self.fresh > u64::from(self.shared.entries) {
            return Err(Error::Broken("more descriptors than the ring has"));
        }
        while self.fresh > 0 {
            self.take_one(ready)?;
        }
        Ok(())
    }

    fn take_one(&mut self, ready: &mut VecDeque<Message>) -> Result<(), Error> {
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
            ready.push_back(Message {
                fragments: std::mem::take(&mut self.partial),
                bytes: descriptor.message_bytes,
                producer: descriptor.producer,
            });
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
