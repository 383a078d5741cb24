//! Echo for Flatpath: whatever comes in goes out, unchanged and in order.
//!
//! - Half-close: after the client's FIN all that came before it still goes out, and then our FIN.
//! - Back-pressure: a client that does not read is not read from. Nothing is dropped, and no more
//!   than the engine's output bound is kept for it.
//! - An idle client is disconnected after the engine's `idle_timeout`, a silent one after
//!   `head_timeout`.
//!
//! It has no requests: nothing ever goes to a worker.
//!
//! ```no_run
//! use flatpath::Server;
//! use flatpath_echo::Echo;
//!
//! fn main() -> Result<(), flatpath::Error> {
//!     Server::new().listen("127.0.0.1:7777", Echo).run()
//! }
//! ```
//!
//! Cost: one copy per byte, from the receive buffer to the output.
#![forbid(unsafe_code)]

use flatpath::limits::OUTPUT_BYTES_HIGH;
use flatpath::{Context, Event, ListenerOptions, NoRoom, Phase, Protocol, Received, Stall};

/// The service. It has no settings.
///
/// ```no_run
/// # fn main() -> Result<(), flatpath::Error> {
/// flatpath::Server::new().listen("127.0.0.1:7777", flatpath_echo::Echo).run()
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Protocol for Echo {
    type ThreadState = ();
    type Session = ();
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("echo")
    }

    fn received(&self, context: &mut Context<'_, Self>, input: &[u8]) -> Received {
        // Each arrival counts as life, however small: there is no head to finish.
        context.restart_phase(Phase::Idle);
        let room = OUTPUT_BYTES_HIGH.saturating_sub(context.queued_bytes());
        let taken = input.len().min(room);
        if let Err(NoRoom) = context.write(&input[..taken]) {
            return Received::Blocked {
                consumed: 0,
                on: Stall::Memory,
            };
        }
        if taken < input.len() || context.output_is_full() {
            return Received::Blocked {
                consumed: taken,
                on: Stall::Output,
            };
        }
        Received::Consumed
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::InputEnded(left) => match context.write(left) {
                Ok(()) => context.close_after_output(),
                // A clean end would say that this was all.
                Err(NoRoom) => context.abort(),
            },
            // The client may be sending at this moment: a plain close would reset the connection,
            // and with it what is on its way to the client.
            Event::Draining => context.close_lingering(),
            other => other.by_default(context),
        }
    }
}
