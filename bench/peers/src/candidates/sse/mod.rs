//! Server-sent events: one a second to everybody who listens.
//!
//! | request | reply |
//! |---|---|
//! | `GET /events` | 200, `text/event-stream`, and from then on each event |
//! | another path | the fixed reply, as an ordinary handler gives it |

pub(super) mod axum;
pub(super) mod ours;

use std::time::Duration;

/// The path of those who listen.
pub(crate) const EVENTS_PATH: &str = "/events";
const EVERY: Duration = Duration::from_secs(1);

/// What the event of this number says: as long as a small JSON object.
fn event(number: u64) -> String {
    format!("{{\"number\":{number:010},\"text\":\"something has happened\"}}")
}
