//! For tests: handlers that block until the test lets them go.
#![allow(dead_code, reason = "each test file uses its own part")]

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

/// Far beyond what anything takes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A gate that handlers wait at until the test opens it.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<Doors>, Condvar)>);

#[derive(Default)]
struct Doors {
    is_open: bool,
    waiting: usize,
    waiting_max: usize,
}

impl Gate {
    pub(crate) fn wait(&self) {
        let mut doors = self.0.0.lock().expect("not poisoned");
        doors.waiting += 1;
        doors.waiting_max = doors.waiting_max.max(doors.waiting);
        self.0.1.notify_all();
        let opened = self.0.1.wait_while(doors, |doors| !doors.is_open);
        opened.expect("not poisoned").waiting -= 1;
    }

    /// Until `count` handlers wait.
    pub(crate) fn await_waiting(&self, count: usize) {
        let doors = self.0.0.lock().expect("not poisoned");
        let too_few = |doors: &mut Doors| doors.waiting < count;
        let waited = self.0.1.wait_timeout_while(doors, PATIENCE, too_few);
        let waiting = waited.expect("not poisoned").0.waiting;
        assert!(waiting >= count, "{waiting} handlers run, not {count}");
    }

    /// The most handlers that ever waited at the same time.
    pub(crate) fn waiting_max(&self) -> usize {
        self.0.0.lock().expect("not poisoned").waiting_max
    }

    pub(crate) fn open(&self) {
        self.0.0.lock().expect("not poisoned").is_open = true;
        self.0.1.notify_all();
    }
}

/// Opens its gate also when the test fails, so that no thread of it stays.
pub(crate) struct Opener(pub(crate) Gate);

impl Drop for Opener {
    fn drop(&mut self) {
        self.0.open();
    }
}
