//! What other threads leave for a network thread.
//!
//! Jobs come back one by one, and connections to be called are marked (`wakes.rs`): of these there
//! are many. Everything else is rare: the state of the server, limits, watches of eventfds, memory
//! that another thread is short of, connections to end for others. It stays where it belongs,
//! and a thread that changes it *tells* the network threads that it concerns, each of which then
//! looks at all of it.
//!
//! | may run beside | return_job | tell | take_news, jobs    |
//! |----------------|------------|------|--------------------|
//! | any of them    | yes        | yes  | the network thread |
//!
//! Ordering: the queue and the news publish what was written before (their edges).
//! - ME1 asleep: a job pushed, or news told, then the waker's fence, then the look whether the
//!   thread sleeps -> the thread says that it sleeps, fence (in the driver's wait), then
//!   [`Mailbox::has_any`]. One of the two sees the other's store.
//!
//! Cost: a job back is a push and, if the thread sleeps, one system call; asking costs two loads.

use std::sync::{Arc, OnceLock};

use flatpath_driver::Waker;
use flatpath_structures::lock::Lock;
use flatpath_structures::news::News;
use flatpath_structures::queue::{Chain, Queue};
use flatpath_structures::slots::Key;

use crate::observe::statistics::ThreadCounters;
use crate::watch::queue::WatchQueue;

/// See the module.
pub(crate) struct Mailbox {
    /// Jobs that workers are done with.
    jobs: Queue,
    news: News,
    waker: OnceLock<Waker>,
    /// Watches that have changed.
    pub(crate) watches: WatchQueue,
    /// Connections that others need to end, gone or not.
    pub(crate) endings: Lock<Vec<Key>>,
    /// What the thread counts; there once it has been set up.
    pub(crate) counters: OnceLock<Arc<ThreadCounters>>,
}

impl Mailbox {
    /// For this number of jobs.
    pub(crate) fn new(jobs: u32) -> Mailbox {
        Mailbox {
            jobs: Queue::new(jobs),
            news: News::default(),
            waker: OnceLock::new(),
            watches: WatchQueue::default(),
            endings: Lock::default(),
            counters: OnceLock::new(),
        }
    }

    /// The thread is there from now on, and waits with this driver.
    pub(crate) fn open(&self, waker: Waker) {
        let is_first = self.waker.set(waker).is_ok();
        debug_assert!(is_first, "a network thread starts once");
    }

    /// Hands a job back.
    pub(crate) fn return_job(&self, index: u32) {
        self.jobs.push(index);
        self.wake();
    }

    /// Something else has changed that the thread is to look at.
    pub(crate) fn tell(&self) {
        self.news.tell();
        self.wake();
    }

    /// ORDER: ME1: after what the thread is to find.
    fn wake(&self) {
        if let Some(waker) = self.waker.get() {
            waker.wake();
        }
    }

    /// Whether there is anything for the thread. Two or three loads.
    #[inline]
    pub(crate) fn has_any(&self) -> bool {
        self.has_jobs() || self.news.any()
    }

    /// Whether the thread has been told anything since the last time. It looks at all of it
    /// afterwards.
    #[inline]
    pub(crate) fn take_news(&self) -> bool {
        self.news.take()
    }

    #[inline]
    pub(crate) fn has_jobs(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// The jobs that are back, oldest first.
    pub(crate) fn jobs(&self) -> Chain<'_> {
        self.jobs.take_all()
    }
}
