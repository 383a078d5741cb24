//! The gate between a producer and its consumer's intake: open, held, or leading nowhere.
//!
//! | may run beside | pass        | connect, disconnect, stop, start |
//! |----------------|-------------|----------------------------------|
//! | pass           | waits       | waits for it, except on its own thread |
//!
//! Invariants
//! - G1: the intake is called with the gate's lock free, by one thread at a time.
//! - G2: after `stop` and after `disconnect` no call begins, and none of another thread is under
//!   way. On the thread that makes the call they do not wait: they would for ever.
//! - G3: signals that were not taken are kept, and handed back once, by `take_held`.

use std::sync::Arc;
use std::thread::ThreadId;

use flatpath::lock::{Condition, Guard, Lock};

use crate::ends::{Intake, Item};

#[derive(Default)]
pub(crate) struct Gate {
    state: Lock<State>,
    quiet: Condition,
}

#[derive(Default)]
struct State {
    intake: Option<Arc<Intake>>,
    is_stopped: bool,
    /// Who is in a call, and how many calls deep.
    caller: Option<(ThreadId, u32)>,
    /// Signals that no consumer took.
    held: u64,
}

/// What became of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passed {
    Taken,
    /// The gate is held. A signal is kept; bytes are the caller's.
    Held,
    /// No consumer is connected. A signal is kept.
    Unconnected,
}

/// A call under way; ends also when the intake panics.
struct Call<'a>(&'a Gate);

impl Drop for Call<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.caller = match state.caller {
            Some((thread, depth)) if depth > 1 => Some((thread, depth - 1)),
            _ => None,
        };
        if state.caller.is_none() {
            self.0.quiet.notify_all();
        }
    }
}

impl Gate {
    fn state(&self) -> Guard<'_, State> {
        self.state.lock()
    }

    /// The state once no other thread is in a call.
    fn quiet(&self) -> Guard<'_, State> {
        let this = std::thread::current().id();
        let is_busy = |state: &mut State| state.caller.is_some_and(|(caller, _)| caller != this);
        self.quiet.wait_while(self.state(), is_busy)
    }

    /// Calls the intake, if a consumer is connected and the gate is not held.
    pub(crate) fn pass(&self, item: Item<'_>) -> Passed {
        let mut state = self.quiet();
        let intake = match state.intake.clone() {
            Some(intake) if !state.is_stopped => intake,
            other => {
                if let Item::Signal(count) = item {
                    state.held = state.held.saturating_add(count);
                }
                return other.map_or(Passed::Unconnected, |_| Passed::Held);
            }
        };
        let depth = state.caller.map_or(0, |(_, depth)| depth);
        state.caller = Some((std::thread::current().id(), depth + 1)); // OURS: an id.
        drop(state);
        let _call = Call(self);
        intake(item);
        Passed::Taken
    }

    /// Passes signals together with those that were kept.
    pub(crate) fn pass_signals(&self, count: u64) {
        let count = count.saturating_add(self.take_held());
        if count > 0 {
            self.pass(Item::Signal(count));
        }
    }

    /// Waits while the gate is held, then as `pass`.
    pub(crate) fn pass_in_time(&self, item: Item<'_>) -> Passed {
        loop {
            let passed = self.pass(item);
            if passed != Passed::Held {
                return passed;
            }
            let is_held = |state: &mut State| state.is_stopped;
            drop(self.quiet.wait_while(self.state(), is_held));
        }
    }

    pub(crate) fn connect(&self, intake: Arc<Intake>) {
        self.quiet().intake = Some(intake);
    }

    pub(crate) fn disconnect(&self) {
        self.quiet().intake = None;
    }

    /// Takes the signals that no consumer took.
    pub(crate) fn take_held(&self) -> u64 {
        std::mem::take(&mut self.state().held)
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state().intake.is_some()
    }

    pub(crate) fn stop(&self) {
        self.quiet().is_stopped = true;
    }

    /// Whether signals are held that could pass now.
    pub(crate) fn start(&self) -> bool {
        let mut state = self.state();
        state.is_stopped = false;
        self.quiet.notify_all();
        state.held > 0 && state.intake.is_some()
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Gate")
            .field("is_connected", &self.is_connected())
            .finish_non_exhaustive()
    }
}
