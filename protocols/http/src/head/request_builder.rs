//! A request of the http crate that is filled again and again.
//!
//! Target and values are copied once, into one arena, and the request's parts are slices of it.
//! When the request is cleared nothing refers to the arena and it is used again; a handler
//! that kept a value keeps the old arena alive, and the next request gets another.
//!
//! Cost: one copy of target and values. No allocation once arena and header map have grown, but for
//! header names that are new to the thread and methods longer than fifteen bytes.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, Method, Uri};

use crate::extract::peer::{Peer, Tls};
use crate::head::Head;
use crate::head::fault::Fault;
use crate::head::names::Names;
use crate::message::{Body, Request};
use crate::router::mount::Mount;

/// Room for the target and the values of most requests.
const ARENA_BYTES_MIN: usize = 512;

/// A larger arena is not kept for the next request.
const ARENA_BYTES_MAX: usize = 4 * 1024;

/// A larger header map is not kept for the next request.
const HEADERS_KEPT_MAX: usize = 64;

/// See the module.
#[derive(Default)]
pub(crate) struct RequestBuilder {
    pub(crate) request: Request,
    arena: BytesMut,
}

impl RequestBuilder {
    /// Makes this the request of `head`, with no body yet.
    pub(crate) fn fill(&mut self, head: &Head<'_>, names: &mut Names) -> Result<(), Fault> {
        debug_assert!(
            self.request.headers().is_empty(),
            "cleared before it is filled again"
        );
        let values_bytes: usize = head.headers().map(|(_, value)| value.len()).sum();
        self.arena
            .reserve((head.target().len() + values_bytes).max(ARENA_BYTES_MIN));
        self.arena.extend_from_slice(head.target().as_bytes());
        for (_, value) in head.headers() {
            self.arena.extend_from_slice(value);
        }
        let mut arena = self.arena.split().freeze();
        let mut next = |bytes: usize| -> Bytes { arena.split_to(bytes) };

        *self.request.method_mut() =
            Method::from_bytes(head.method().as_bytes()).map_err(|_| Fault::RequestLine)?;
        *self.request.uri_mut() =
            Uri::from_maybe_shared(next(head.target().len())).map_err(|_| Fault::Target)?;
        *self.request.version_mut() = head.version();
        self.set_peer(head.peer());
        if let Some(terms) = &head.tls {
            let extensions = self.request.extensions_mut();
            extensions.insert(Tls(Arc::clone(terms)));
        }
        let notes = head.notes.get();
        if !notes.is_empty() {
            self.request.extensions_mut().insert(notes);
        }
        if !head.mount.is_empty() {
            let mount = Mount::new(head.mount, false);
            self.request.extensions_mut().insert(mount);
        }
        let headers = self.request.headers_mut();
        for (name, value) in head.headers() {
            let name = names.name(name).ok_or(Fault::HeaderName)?;
            let value = HeaderValue::from_maybe_shared(next(value.len()));
            let value = value.map_err(|_| Fault::HeaderValue)?;
            headers
                .try_append(name, value)
                .map_err(|_| Fault::HeadersTooMany)?;
        }
        Ok(())
    }

    /// Writes over the address of the request before, which allocates nothing.
    fn set_peer(&mut self, peer: Option<SocketAddr>) {
        let extensions = self.request.extensions_mut();
        match (extensions.get_mut::<Peer>(), peer) {
            (Some(kept), Some(peer)) => kept.0 = peer,
            (None, Some(peer)) => drop(extensions.insert(Peer(peer))),
            (Some(_), None) => drop(extensions.remove::<Peer>()),
            (None, None) => {}
        }
    }

    /// Drops the request and keeps what can be used again.
    pub(crate) fn clear(&mut self) {
        *self.request.method_mut() = Method::GET;
        *self.request.uri_mut() = Uri::default();
        *self.request.body_mut() = Body::Empty;
        let extensions = self.request.extensions_mut();
        // The terms of TLS go in any case: the next request may be another client's.
        if extensions.len() != 1 || extensions.get::<Peer>().is_none() {
            extensions.clear();
        }
        if self.request.headers().capacity() > HEADERS_KEPT_MAX {
            *self.request.headers_mut() = HeaderMap::new();
        } else {
            self.request.headers_mut().clear();
        }
        // Without other holders the arena has all of its bytes again when it is asked for them, so
        // this is the question whether it is too large to be kept.
        if self.arena.try_reclaim(ARENA_BYTES_MAX + 1) {
            self.arena = BytesMut::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::HeadNote;
    use crate::limits::HEAD_NOTES_MAX;
    use crate::testing;
    use flatpath::{PeerCertificate, TlsTerms};
    use std::num::NonZeroU64;

    fn fill(builder: &mut RequestBuilder, names: &mut Names, input: &[u8]) {
        let filled = testing::with_head(input, |head| builder.fill(head, names));
        let filled = filled.expect("a valid head").expect("complete");
        filled.expect("the http crate takes what is valid");
    }

    #[test]
    fn a_request_has_what_its_head_says() {
        let (mut builder, mut names) = (RequestBuilder::default(), Names::new());
        for _ in 0..3 {
            fill(
                &mut builder,
                &mut names,
                b"PATCH http://h:1/a?b HTTP/1.1\r\nHost: x\r\nX-A: 1\r\nx-a:  2 \r\nB:\r\n\r\n",
            );
            let request = &builder.request;
            assert_eq!(request.method(), "PATCH");
            assert_eq!(request.uri(), "http://h:1/a?b");
            let values: Vec<_> = request.headers().get_all("x-a").iter().collect();
            assert_eq!(values, ["1", "2"]);
            assert_eq!(request.headers()["host"], "x");
            assert_eq!(request.headers()["b"], "");
            assert_eq!(request.headers().len(), 4);
            builder.clear();
            assert!(builder.request.headers().is_empty() && builder.request.uri() == "/");
        }
    }

    #[test]
    fn who_a_client_is_stays_with_its_request() {
        let (mut builder, mut names) = (RequestBuilder::default(), Names::new());
        for client in [Some("CN=a"), None, Some("CN=b"), None] {
            for peer in [None, Some(([192, 0, 2, 1], 1).into())] {
                let tls = client.map(|subject| Arc::new(TlsTerms::of_client(subject)));
                let filled = testing::with_head(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", |head| {
                    let tls = tls.clone();
                    let head = Head {
                        peer,
                        tls,
                        ..head.clone()
                    };
                    builder.fill(&head, &mut names)
                });
                filled.expect("valid").expect("complete").expect("filled");
                let known = Tls::of(&builder.request).and_then(TlsTerms::certificate);
                assert_eq!(known.map(PeerCertificate::subject), client);
                builder.clear();
                assert!(Tls::of(&builder.request).is_none());
            }
        }
    }

    #[test]
    fn notes_go_with_their_request_alone() {
        let notes: Vec<_> = (1..=6).filter_map(NonZeroU64::new).map(HeadNote).collect();
        let (mut builder, mut names) = (RequestBuilder::default(), Names::new());
        for left in [&notes[..2], &[], &notes[1..], &notes[..1]] {
            let filled = testing::with_head(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", |head| {
                for note in left {
                    head.leave(*note);
                    head.leave(*note);
                }
                builder.fill(head, &mut names)
            });
            filled.expect("valid").expect("complete").expect("filled");
            let taken = &left[..left.len().min(HEAD_NOTES_MAX)];
            for note in &notes {
                assert_eq!(
                    note.is_of(&builder.request),
                    taken.contains(note),
                    "{left:?}"
                );
            }
            builder.clear();
        }
    }

    #[test]
    fn the_address_of_a_client_replaces_the_last_one_without_allocating() {
        let (mut builder, mut names) = (RequestBuilder::default(), Names::new());
        let mut fill = |client: Option<&str>| {
            let peer = client.map(|client| client.parse().expect("an address"));
            let filled = testing::with_head(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", |head| {
                let head = Head {
                    peer,
                    ..head.clone()
                };
                builder.clear();
                builder.fill(&head, &mut names)
            });
            filled.expect("valid").expect("complete").expect("filled");
            assert_eq!(Peer::of(&builder.request), peer);
        };
        let (one, other) = (Some("192.0.2.1:1"), Some("[2001:db8::1]:2"));
        [one, None, other, one].into_iter().for_each(&mut fill);
        let counted = allocation_counter::measure(|| {
            [one, other, one].into_iter().for_each(&mut fill);
        });
        assert_eq!(counted.count_total, 0, "{counted:?}");
        fill(None);
    }

    #[test]
    fn a_value_that_a_handler_kept_outlives_its_request() {
        let (mut builder, mut names) = (RequestBuilder::default(), Names::new());
        fill(
            &mut builder,
            &mut names,
            b"GET / HTTP/1.1\r\nHost: kept\r\n\r\n",
        );
        let kept = builder.request.headers()["host"].clone();
        builder.clear();
        for _ in 0..1000 {
            fill(
                &mut builder,
                &mut names,
                b"GET / HTTP/1.1\r\nHost: else\r\n\r\n",
            );
            builder.clear();
        }
        assert_eq!(kept, "kept");
    }

    #[test]
    fn a_large_request_leaves_no_large_arena() {
        let (mut builder, mut names) = (RequestBuilder::default(), Names::new());
        let long = format!(
            "GET / HTTP/1.1\r\nHost: h\r\nA: {}\r\n\r\n",
            "a".repeat(9000)
        );
        fill(&mut builder, &mut names, long.as_bytes());
        builder.clear();
        assert_eq!(builder.arena.capacity(), 0);
    }
}
