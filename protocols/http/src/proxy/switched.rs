//! Upgrades: a client and a server that go on in another protocol, WebSocket for one, as a pair.
//!
//! ```text
//! server: 101 ─► trip: 101 with a hand-over ─► client: head sent, handed over ─► Connected: splice
//!    └─ waits, unread ◄──────── woken, if the client is gone before ◄────┴─ bytes both ways, early
//!                                                                            ones first
//! ```
//!
//! From the splice on no protocol is called for bytes. The pair lasts until both sides have ended,
//! one breaks, nothing has passed for [`UpstreamLimits::upgraded_timeout`], or the server's time to
//! drain is over, as every pair of the engine does.
//!
//! | the server says         | the client gets                                      |
//! |-------------------------|------------------------------------------------------|
//! | 101, in what was asked  | the same, and then the server                        |
//! | 101, in something else, | 502                                                  |
//! | or unasked              |                                                      |
//! | anything else           | that, as of any request                              |
//!
//! [`UpstreamLimits::upgraded_timeout`]: super::upstream::UpstreamLimits::upgraded_timeout

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flatpath::{
    ConnectionHandle, Context, Event, Io, ListenerLimits, ListenerOptions, Phase, Protocol,
    Received, Successor,
};

use http::header::UPGRADE;

use crate::header_values::elements;
use crate::message::Response;
use crate::takeover::upgrade::Upgrade;

/// The protocols that a client offers and that pass, as one list; `None` where there is none.
///
/// HTTP itself does not: requests within it would be under none of this server's rules.
pub(crate) fn offered<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Vec<u8>> {
    let passes = |name: &&[u8]| {
        let name = name.split(|byte| *byte == b'/').next().unwrap_or(name);
        let of_http: [&[u8]; 4] = [b"h2", b"h2c", b"http", b"tls"];
        !of_http.iter().any(|it| name.eq_ignore_ascii_case(it))
    };
    let names: Vec<&[u8]> = values.flat_map(elements).filter(passes).collect();
    (!names.is_empty()).then(|| names.join(&b", "[..]))
}

/// Whether all that a server goes on in, and something it is, was offered.
fn is_offered(chosen: &[u8], offered: &[u8]) -> bool {
    let is_known = |name: &[u8]| elements(offered).any(|it| it.eq_ignore_ascii_case(name));
    elements(chosen).next().is_some() && elements(chosen).all(is_known)
}

/// The client's side of a pair, before its connection is handed over and until it is spliced.
/// Dropped, it wakes the server's side, which then has no client.
struct ToBeJoined {
    server: ConnectionHandle,
    timeouts: Arc<ListenerLimits>,
    is_gone: Arc<AtomicBool>,
}

/// Where the server's side learns that there is no client.
pub(crate) struct ClientGone(Arc<AtomicBool>);

impl ClientGone {
    pub(crate) fn is_gone(&self) -> bool {
        // ORDER: Relaxed: the wake has published it.
        self.0.load(Ordering::Relaxed)
    }
}

/// What the pairs of an upstream begin with.
pub(crate) struct Switching {
    clients: Successor<SwitchedClient>,
    timeouts: Arc<ListenerLimits>,
}

impl Switching {
    /// `timeout`: how long nothing may pass.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            clients: Successor::new(SwitchedClient),
            timeouts: Arc::new(ListenerLimits {
                spliced_timeout: Some(timeout),
                ..ListenerLimits::default()
            }),
        }
    }

    /// The server of this connection goes on in another protocol: its response gets what joins the
    /// client with it. `None`: that protocol was not `offered`.
    pub(crate) fn join(
        &self,
        io: &mut Io<'_>,
        offered: Option<&[u8]>,
        response: &mut Response,
    ) -> Option<ClientGone> {
        let offered = offered?;
        let mut chosen = response.headers().get_all(UPGRADE).iter().peekable();
        chosen.peek()?;
        if !chosen.all(|value| is_offered(value.as_bytes(), offered)) {
            return None;
        }
        let is_gone = Arc::<AtomicBool>::default();
        let client = ToBeJoined {
            server: io.handle(),
            timeouts: Arc::clone(&self.timeouts),
            is_gone: Arc::clone(&is_gone),
        };
        let begin = move || SwitchedSession(Some(client));
        let upgrade = Upgrade::to(self.clients.begin(begin));
        response.extensions_mut().insert(upgrade);
        io.timeouts(Some(&self.timeouts));
        io.phase(Phase::Work);
        Some(ClientGone(is_gone))
    }
}

impl Drop for ToBeJoined {
    fn drop(&mut self) {
        // ORDER: Relaxed: the wake publishes it. Of one that is spliced the wake does nothing.
        self.is_gone.store(true, Ordering::Relaxed);
        self.server.wake();
    }
}

/// What a client's connection speaks after its 101.
pub(crate) struct SwitchedClient;

/// What is kept of one.
#[derive(Default)]
pub(crate) struct SwitchedSession(Option<ToBeJoined>);

impl Protocol for SwitchedClient {
    type ThreadState = ();
    type Session = SwitchedSession;
    type Job = ();

    fn options(&self) -> ListenerOptions {
        ListenerOptions::named("upgraded")
    }

    /// It goes along with the splice.
    fn received(&self, _: &mut Context<'_, Self>, _: &[u8]) -> Received {
        Received::NeedMore { consumed: 0 }
    }

    fn event(&self, context: &mut Context<'_, Self>, event: Event<'_>) {
        match (event, &context.session.0) {
            (Event::Connected, Some(client)) => {
                let (server, timeouts) = (client.server.clone(), Arc::clone(&client.timeouts));
                context.phase(Phase::Wait);
                context.timeouts(Some(&timeouts));
                context.splice(&server);
            }
            // The server is gone: nothing of what the client says was heard.
            (Event::SpliceRefused, _) => context.abort(),
            // The pair lasts until it ends or the drain does, and passes an end on.
            (Event::Draining | Event::InputEnded(_), _) => {}
            (other, _) => other.by_default(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_offered_passes_but_for_http_itself() {
        let offered = |values: &[&str]| {
            let list = offered(values.iter().map(|value| value.as_bytes()));
            list.map(|list| String::from_utf8(list).expect("text"))
        };
        assert_eq!(offered(&["websocket"]).as_deref(), Some("websocket"));
        assert_eq!(
            offered(&["h2c, WebSocket", "x/2"]).as_deref(),
            Some("WebSocket, x/2")
        );
        for of_http in [
            "",
            ",",
            "h2c",
            "H2C",
            "h2",
            "HTTP/2.0",
            "TLS/1.0",
            "http/1.1, h2c",
        ] {
            assert_eq!(offered(&[of_http]), None, "{of_http}");
        }
    }

    #[test]
    fn a_server_goes_on_in_what_was_offered() {
        for (chosen, is) in [
            ("websocket", true),
            ("WEBSOCKET", true),
            ("x/2, websocket", true),
            ("x", false),
            ("websocket, y", false),
            ("", false),
        ] {
            assert_eq!(
                is_offered(chosen.as_bytes(), b"WebSocket, x/2"),
                is,
                "{chosen}"
            );
        }
    }
}
