//! The access log of a server within the test.

use std::sync::{Arc, Mutex};

use flatpath::access_log::{LogOutput, LogSink};
use serde_json::Value;

/// Lines of an access log in the JSON format.
#[derive(Clone, Default)]
pub(crate) struct Lines(Arc<Mutex<Vec<u8>>>);

impl Lines {
    /// Those that were written so far.
    pub(crate) fn all(&self) -> Vec<Value> {
        let lines = self.0.lock().expect("no panic");
        let lines = lines.split_inclusive(|byte| *byte == b'\n');
        lines
            .map(|line| serde_json::from_slice(line).expect("JSON"))
            .collect()
    }
}

impl LogSink for Lines {
    fn open(&self) -> Box<dyn LogOutput> {
        Box::new(self.clone())
    }

    fn dropped(&self, lines: u64) {
        panic!("{lines} lines were dropped");
    }
}

impl LogOutput for Lines {
    fn write(&mut self, lines: &mut Vec<u8>) {
        self.0.lock().expect("no panic").append(lines);
    }
}
