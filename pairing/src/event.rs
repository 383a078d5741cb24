//! An eventfd as a producer: a network thread watches it and calls the consumer, and no worker
//! wakes.
//!
//! Invariant V4: what was read and not taken stays at the gate; the next call on the network thread
//! passes it. It is not written back: another holder of the descriptor could make that write wait.

use std::sync::Arc;

use flatpath::Handle;
use flatpath::watch::{EventWatch, Eventfd};

use crate::ends::{Refused, Sink, Source};
use crate::gate::Gate;

/// A producer that is an eventfd: whoever writes to it, in any thread or process, calls the
/// consumer, with the sum of what was written since the last call.
///
/// What is written while there is no consumer waits for the next, in the eventfd or here. When the
/// server ends, the consumer is called no more.
#[derive(Debug)]
pub struct EventSource {
    watch: EventWatch,
    gate: Arc<Gate>,
}

impl EventSource {
    /// Lets a network thread of a running server watch `event`, from the time on when it is
    /// connected; several sources are shared out among the threads.
    pub fn new(server: &Handle, event: Eventfd) -> EventSource {
        let gate = Arc::new(Gate::default());
        let ours = Arc::clone(&gate);
        EventSource {
            watch: server.watch(event, move |count| ours.pass_signals(count)),
            gate,
        }
    }

    /// The eventfd, to be written to or handed on.
    pub fn eventfd(&self) -> &Arc<Eventfd> {
        self.watch.eventfd()
    }

    /// Takes the signals that were read and that no consumer took. There can be some after a pair
    /// has ended; the next consumer gets them, unless this does.
    pub fn take_left(&self) -> u64 {
        self.gate.take_held()
    }
}

impl Source for EventSource {
    fn connect(&self, consumer: &dyn Sink) -> Result<(), Refused> {
        self.gate.connect(consumer.intake().ok_or(Refused::Unfit)?);
        let started = self.watch.start().inspect_err(|_| self.gate.disconnect());
        started.map_err(Refused::from)
    }

    fn disconnect(&self) {
        self.watch.stop();
        self.gate.disconnect();
    }

    fn stop(&self) {
        self.gate.stop();
    }

    fn start(&self) {
        if self.gate.start() {
            // For the call that passes what is held. Without a thread there is none.
            let _ = self.watch.start();
        }
    }
}
