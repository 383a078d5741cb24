//! Server-sent events: one after each interval to everybody who listens.
//!
//! | request | reply |
//! |---|---|
//! | `GET /events` | 200, `text/event-stream`, and from then on each event |
//! | another path | the fixed reply, as an ordinary handler gives it |

pub(super) mod axum;
pub(super) mod ours;

use std::time::Duration;

use super::serve::Serve;

/// The path of those who listen.
pub(crate) const EVENTS_PATH: &str = "/events";

/// The time between two events.
fn interval(serve: &Serve) -> Duration {
    Duration::from_millis(serve.every_ms.into())
}

/// What the event of this number says: as long as a small JSON object.
fn event(number: u64) -> String {
    format!("{{\"number\":{number:010},\"text\":\"something has happened\"}}")
}
