//! Asks a server for its metrics: `GET /status.json`, again and again, on a thread of its own, so
//! that a server which does not answer keeps no key waiting.

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use flatpath::sockets::ListenAddress;
use serde_json::Value;

use crate::client::{self, Question, Reply};

/// For each step: to connect, and until something is received.
const PATIENCE: Duration = Duration::from_secs(3);

/// An answer, or why there is none.
pub(super) type Answer = Result<Value, String>;

/// Asks after `interval`, and so on, on a thread that ends with the first answer that is not
/// received any more.
pub(super) fn start(address: ListenAddress, interval: Duration) -> io::Result<Receiver<Answer>> {
    let (answers, received) = sync_channel(1);
    let thread = thread::Builder::new().name("flatpath-feed".into());
    thread.spawn(move || {
        loop {
            thread::sleep(interval);
            if answers.send(ask(&address)).is_err() {
                return;
            }
        }
    })?;
    Ok(received)
}

/// Asks once.
pub(super) fn ask(address: &ListenAddress) -> Answer {
    let question = Question {
        target: "/status.json",
        host: "localhost",
    };
    let mut stream = client::connect(address, PATIENCE)?;
    read(client::get(&mut *stream, &question)?)
}

#[expect(clippy::needless_pass_by_value, reason = "it is used up")]
fn read(reply: Reply) -> Answer {
    if reply.status != 200 {
        return Err(format!("it answers {}", reply.line));
    }
    let status = serde_json::from_slice::<Value>(&reply.body).ok();
    let status = status.filter(|status| status["metrics"].is_object());
    status.ok_or_else(|| "what it answers are no metrics of flatpath".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_metrics_are_an_answer() {
        let read = |status, body: &str| {
            let (line, body) = (format!("HTTP/1.1 {status} Words"), body.into());
            read(Reply { status, line, body })
        };
        assert!(read(200, "{\"metrics\":{}}").is_ok());
        for (status, body, why) in [
            (404, "", "answers HTTP/1.1 404 Words"),
            (200, "{}", "no metrics"),
            (200, "{\"metrics\":{", "no metrics"),
        ] {
            let found = read(status, body).expect_err("no answer");
            assert!(found.contains(why), "{found}");
        }
    }
}
