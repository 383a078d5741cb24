//! Passes each connection on to one other server.
//!
//! A client's connection waits, unread, while another one is opened for it ([`Io::connect`]); when
//! that stands, the two are spliced, and the kernel moves the bytes from one to the other. Where it
//! cannot be opened, the client's connection is closed.
//!
//! | what happens | what becomes of the client | of the other connection |
//! |---|---|---|
//! | the other server has accepted | spliced | spliced |
//! | it cannot be reached, or not now | closed | never stood |
//! | the client is gone meanwhile | gone | closed when it stands |
//! | the server drains | as long as it lasts, if it began | likewise |
//!
//! [`Io::connect`]: flatpath::Io::connect
#![forbid(unsafe_code)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flatpath::{
    ConnectionHandle, Connector, Context, Event, ListenerOptions, Phase, Protocol, Received,
    Remote, Stall,
};

/// Passes clients on.
#[derive(Debug)]
pub struct Forward {
    to: Remote,
    timeout: Duration,
    onward: Connector<Onward>,
}

impl Forward {
    /// To this server.
    pub fn to(remote: impl Into<Remote>) -> Forward {
        Forward {
            to: remote.into(),
            timeout: Duration::from_secs(5),
            onward: Connector::new(Onward),
        }
    }

    /// For how long the other server is awaited: five seconds unless set.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Forward {
        Forward { timeout, ..self }
    }
}

/// A client.
#[derive(Debug, Default)]
pub struct Client {
    /// The other server cannot be reached: written before the client's connection is woken.
    has_failed: Arc<AtomicBool>,
}

impl Protocol for Forward {
    type ThreadState = ();
    type Session = Client;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("forward")
    }

    /// What the client says is for the other server: it is left where it is until the splice.
    fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
        Received::Blocked {
            consumed: 0,
            on: Stall::Outside,
        }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match event {
            Event::Connected => {
                // It does not rest: another connection depends on it.
                context.phase(Phase::Wait);
                let client = context.handle();
                let has_failed = Arc::clone(&context.session.has_failed);
                let begin = move || Other(Some((client, has_failed)));
                let wish = self.onward.to(self.to.clone(), begin);
                context.connect(wish.timeout(self.timeout));
            }
            Event::Woken if context.session.has_failed.load(Ordering::Relaxed) => context.abort(),
            // Its connection is under way or stands: the client is served.
            Event::Draining | Event::InputEnded(_) => {}
            other => other.by_default(context),
        }
    }
}

/// The side of the other server.
#[derive(Debug)]
struct Onward;

/// Whom its connection is for.
#[derive(Debug, Default)]
struct Other(Option<(ConnectionHandle, Arc<AtomicBool>)>);

impl Protocol for Onward {
    type ThreadState = ();
    type Session = Other;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("forward-onward")
    }

    /// A server that speaks first does so before the splice: that goes along.
    fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
        Received::NeedMore { consumed: 0 }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        let Some((client, has_failed)) = &context.session.0 else {
            return event.by_default(context);
        };
        match event {
            Event::Connected => {
                let client = client.clone();
                context.splice(&client);
            }
            Event::ConnectFailed(_) => {
                has_failed.store(true, Ordering::Relaxed);
                client.wake();
            }
            // It lasts as long as its client.
            Event::Draining => {}
            other => other.by_default(context),
        }
    }
}
