//! The consumer: waits for the doorbells of its attachments, and follows a server that hands over.
//!
//! It has one attachment, and more while servers relieve each other: a server that hands over says
//! so ([`MOVED`](flatpath_messages::handshake::MOVED)), and the consumer attaches to the next one
//! at the same path. The attachment to the first stays until that server has delivered what it has.
//! What the first has delivered comes before what the second has by then.
//!
//! Cost: a `read` of each doorbell and a wait are shared by all messages that came since the last.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;

use crate::attach::{Attached, attach};
use crate::attachment::Attachment;
use crate::error::Error;
use crate::message::Message;

/// One that never waits looks at the socket once in so many reads of the doorbell.
const READS_PER_LOOK: u32 = 64;

/// A consumer of the messages of a server, and of those that it hands over to. One thread at a time
/// receives; any thread may have the messages.
///
/// ```no_run
/// use flatpath_consumer::Consumer;
///
/// # fn main() -> Result<(), flatpath_consumer::Error> {
/// let mut consumer = Consumer::attach("/run/flatpath/ingest")?;
/// while let Some(message) = consumer.receive()? {
///     for fragment in message.fragments() {
///         println!("{} bytes", fragment.len());
///     }
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Consumer {
    current: Attachment,
    /// To servers that have handed over, the first one first.
    earlier: Vec<Attachment>,
    /// The doorbells of all, and the socket of the current one.
    events: OwnedFd,
    /// Where the next server attaches, and for which token. `None`: it was attached by the caller.
    path: Option<(PathBuf, u64)>,
    ready: VecDeque<Message>,
    reads: u32,
    /// A server that had handed over was killed before it was done.
    lost: bool,
    /// Why there is no attachment to the next server.
    failed: Option<Error>,
}

impl Consumer {
    /// Attaches to the server that listens at `path` (its `--ingest-socket`), and later to those
    /// that it hands over to.
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
        let path = path.as_ref();
        let mut consumer = Consumer::new(attach(path, token)?)?;
        consumer.path = Some((path.to_owned(), token));
        Ok(consumer)
    }

    /// A consumer of what was attached. It follows to no other server.
    ///
    /// # Errors
    /// What is shared cannot be mapped.
    pub fn new(attached: Attached) -> Result<Consumer, Error> {
        let events = epoll::create(CreateFlags::CLOEXEC);
        let consumer = Consumer {
            current: Attachment::new(attached)?,
            earlier: Vec::new(),
            events: events.map_err(|errno| Error::System("making an epoll", errno))?,
            path: None,
            ready: VecDeque::new(),
            reads: 0,
            lost: false,
            failed: None,
        };
        consumer.watch()?;
        Ok(consumer)
    }

    /// The server's number for this consumer, as in its log.
    pub fn number(&self) -> u32 {
        self.current.number
    }

    /// Fragments that can be held at once.
    pub fn window(&self) -> u32 {
        self.current.shared.entries
    }

    /// Waits for a message. `None`: the server has stopped in order, and no message will come any
    /// more.
    ///
    /// # Errors
    /// [`Error::Lost`] after the last message of a server that was killed: where it had handed over
    /// before, once, and messages of the next server follow. A system call failed, or the server
    /// broke its protocol; or it handed over to one that could not be attached to, reported after
    /// its last message.
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
        self.all().for_each(|one| one.shared.flush());
    }

    fn all(&self) -> impl Iterator<Item = &Attachment> {
        self.earlier.iter().chain([&self.current])
    }

    fn receive_until(&mut self, deadline: Option<Instant>) -> Result<Option<Message>, Error> {
        // What wakes it need not bring a message.
        let mut is_over = false;
        loop {
            if let Some(message) = self.ready.pop_front() {
                return Ok(Some(message));
            }
            if std::mem::take(&mut self.lost) {
                return Err(Error::Lost);
            }
            if let (Some(ended), true) = (self.current.ended, self.earlier.is_empty()) {
                return match (ended, self.failed) {
                    (Ok(()), Some(failed)) => Err(failed),
                    _ => ended.map(|()| None),
                };
            }
            self.take()?;
            let has_ended = self.current.ended.is_some() && self.earlier.is_empty();
            if has_ended || self.lost || !self.ready.is_empty() {
                continue;
            }
            if is_over {
                return Err(Error::TimedOut);
            }
            self.all().for_each(|one| one.shared.begin_wait());
            let waited = self.wait(deadline);
            self.all().for_each(|one| one.shared.end_wait());
            if waited? {
                self.listen();
            }
            is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        }
    }

    /// Takes what has come from all servers, without waiting.
    fn take(&mut self) -> Result<(), Error> {
        let (events, ready) = (&self.events, &mut self.ready);
        for one in self.earlier.iter_mut().chain([&mut self.current]) {
            let had_ended = one.ended.is_some();
            one.take(ready)?;
            if one.ended.is_some() && !had_ended {
                // It would be readable for ever.
                let _ = epoll::delete(events, one.doorbell());
                let _ = epoll::delete(events, &one.shared.socket);
            }
        }
        self.follow();
        let lost = self.earlier.extract_if(.., |one| one.ended.is_some());
        self.lost |= lost.filter(|one| one.ended != Some(Ok(()))).count() > 0;
        self.reads += 1;
        if self.reads.is_multiple_of(READS_PER_LOOK) {
            self.listen();
        }
        Ok(())
    }

    /// Reads what the current server says.
    fn listen(&mut self) {
        if self.current.ended.is_none() && self.current.listen() {
            let _ = epoll::delete(&self.events, &self.current.shared.socket);
            self.follow();
        }
    }

    /// Attaches to the next server as well, if the current one has handed over.
    fn follow(&mut self) {
        if !std::mem::take(&mut self.current.moved) {
            return;
        }
        let Some((path, token)) = &self.path else {
            return;
        };
        match attach(path, *token).and_then(Attachment::new) {
            Ok(next) => {
                let before = std::mem::replace(&mut self.current, next);
                self.earlier.push(before);
                self.failed = self.watch().err();
            }
            Err(error) => self.failed = Some(error),
        }
    }

    fn watch(&self) -> Result<(), Error> {
        let watched = [
            (self.current.doorbell(), DOORBELL),
            (self.current.shared.socket.as_fd(), SOCKET),
        ];
        for (descriptor, word) in watched {
            let data = EventData::new_u64(word);
            epoll::add(&self.events, descriptor, data, EventFlags::IN)
                .map_err(|errno| Error::System("watching the doorbell", errno))?;
        }
        Ok(())
    }

    /// Waits for any of them. True: it is the socket.
    fn wait(&self, deadline: Option<Instant>) -> Result<bool, Error> {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let timeout = left.and_then(|left| Timespec::try_from(left).ok());
        let none = Event {
            flags: EventFlags::empty(),
            data: EventData::new_u64(DOORBELL),
        };
        let mut events = [none; 4];
        match epoll::wait(&self.events, &mut events, timeout.as_ref()) {
            Ok(0) => Err(Error::TimedOut),
            Ok(count) => {
                let mut words = events[..count].iter().map(|event| event.data.u64());
                Ok(words.any(|word| word == SOCKET))
            }
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(Error::System("waiting for the doorbell", errno)),
        }
    }
}

/// What an event is about.
const DOORBELL: u64 = 0;
const SOCKET: u64 = 1;

impl AsFd for Consumer {
    /// Readable when a message may have come; for programs that wait for other things too. Wait for
    /// it only after [`Consumer::flush`], and after `receive_timeout(ZERO)` has timed out.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}
