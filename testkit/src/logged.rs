//! What this process logs, for tests that look for a line: one logger for all of them.

use std::sync::{Mutex, MutexGuard};

use log::{LevelFilter, Log, Metadata, Record, set_logger, set_max_level};

static LOGGED: Logged = Logged(Mutex::new(Vec::new()));

/// The lines so far, of all threads.
#[derive(Debug)]
pub struct Logged(Mutex<Vec<String>>);

impl Logged {
    /// From now on lines of this level and above are kept. Tests of one process name the same
    /// level.
    pub fn begin(level: LevelFilter) -> &'static Logged {
        set_max_level(level);
        // Another test of the process may have set it.
        let _ = set_logger(&LOGGED);
        &LOGGED
    }

    /// How many lines are such ones.
    ///
    /// # Panics
    /// After `is_it` has.
    pub fn count(&self, is_it: impl Fn(&str) -> bool) -> usize {
        self.lines().iter().filter(|line| is_it(line)).count()
    }

    fn lines(&self) -> MutexGuard<'_, Vec<String>> {
        self.0.lock().expect("no test panics inside")
    }
}

impl Log for Logged {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        self.lines().push(record.args().to_string());
    }

    fn flush(&self) {}
}
