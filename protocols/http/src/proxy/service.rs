//! The service that answers by asking an upstream.

use std::sync::Arc;

use bytes::Bytes;
use flatpath::{Turn, WorkerScope};
use http::{HeaderName, HeaderValue, StatusCode, Version};

use super::codec::Asked;
use super::policy::choice::mix;
use super::policy::retry::is_idempotent;
use super::reply::ReplyTerms;
use super::request::{self, Asks, ForwardedFields, HostField, RequestTerms};
use super::switched::offered;
use super::trip::{OutgoingRequest, RequestBody, Travel, Trip};
use super::upstream::Upstream;
use crate::extract::peer::{Peer, Tls};
use crate::head::{Framing, Head, RequestMeta};
use crate::header_values::elements;
use crate::message::{Request, Response};
use crate::respond::encode::ReplyFraming;
use crate::respond::into_response::{IntoResponse, refused};
use crate::respond::reply::{Disposition, Reply};
use crate::router::mount::Mount;
use crate::service::{BodyPlan, Place, Plan, Service};
use crate::streams::deferred::Deferred;
use crate::streams::passage::{Incoming, Passage};
use crate::takeover::upgrade::has_body;

/// Answers requests with what the servers of an [`Upstream`] say to them: a reverse proxy.
///
/// A service like any other: of a whole listener, of a site, or
/// [nested](crate::Router::nest_service) below a path, with layers around it. The request is sent
/// over a connection of the network thread that has received it, one that is idle or a new one.
/// Neither a worker nor another thread is on the way, unless layers are around it, which workers
/// run.
///
/// | of             | what passes                                                             |
/// |----------------|-------------------------------------------------------------------------|
/// | a request      | method, path, query, fields but for those of the client's connection;   |
/// |                | `Host` as [chosen](Proxy::host), `Forwarded` and the like               |
/// |                | [written anew](Proxy::forwarded)                                        |
/// | its body       | over HTTP/1.1 piece by piece as it arrives, trailers too. Over HTTP/2,  |
/// |                | after another request that is not answered, and within layers it        |
/// |                | arrives first, up to [`body_bytes_max`](crate::Limits::body_bytes_max)  |
/// | a reply        | status, fields but for those of the upstream's connection; `Date` is    |
/// |                | ours. Interim replies do not pass, but for `100 Continue`               |
/// | its body       | as it arrives, at once; trailers where the upstream has announced them  |
///
/// A request that offers another protocol, WebSocket for one, is passed on with that; if the server
/// goes on in it, it has the client's connection from then on
/// ([`UpstreamLimits::upgraded_timeout`]).
/// Over HTTP/2 (extended CONNECT, RFC 8441) that is answered with 501. What an upstream does not
/// answer is 502, in time 504, for want of room 503; one line in the log names the
/// upstream, the server and the step. A request that a server has closed its connection to without
/// a word is sent again where it may be: see the chapter on proxying of the book.
///
/// [`UpstreamLimits::upgraded_timeout`]: crate::UpstreamLimits::upgraded_timeout
///
/// ```
/// use flatpath_http::{Http, Proxy, Router, Upstream};
///
/// # fn main() -> Result<(), flatpath_http::InvalidUpstream> {
/// let app = Upstream::to("http://127.0.0.1:3000")?;
/// let router: Router = Router::new()
///     .get("/health", || "well\n")
///     .nest_service("/app", Proxy::to(&app));
/// let http = Http::service(router);
/// # let _ = http;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Proxy {
    upstream: Upstream,
    keeps_prefix: bool,
    request: Arc<RequestTerms>,
    reply: Arc<ReplyTerms>,
}

impl Proxy {
    /// A proxy to this upstream.
    #[must_use]
    pub fn to(upstream: &Upstream) -> Self {
        Self {
            upstream: upstream.clone(),
            keeps_prefix: false,
            request: Arc::default(),
            reply: Arc::default(),
        }
    }

    /// Puts the path that it is mounted at before that of the request again: the upstream knows
    /// that. Without this it is left out.
    #[must_use]
    pub fn keep_prefix(mut self) -> Self {
        self.keeps_prefix = true;
        self
    }

    /// Which host the upstream is told that requests are for.
    #[must_use]
    pub fn host(mut self, host: HostField) -> Self {
        Arc::make_mut(&mut self.request).host = host;
        self
    }

    /// What the upstream is told of clients.
    #[must_use]
    pub fn forwarded(mut self, fields: ForwardedFields) -> Self {
        Arc::make_mut(&mut self.request).forwarded = fields;
        self
    }

    /// Sets a field of requests, in place of what came by its name.
    #[must_use]
    pub fn set_request(mut self, name: HeaderName, value: HeaderValue) -> Self {
        Arc::make_mut(&mut self.request).set.push((name, value));
        self
    }

    /// Removes a field of requests.
    #[must_use]
    pub fn remove_request(mut self, name: HeaderName) -> Self {
        Arc::make_mut(&mut self.request).remove.push(name);
        self
    }

    /// Sets a field of replies, in place of what came by its name.
    #[must_use]
    pub fn set_reply(mut self, name: HeaderName, value: HeaderValue) -> Self {
        Arc::make_mut(&mut self.reply).set.push((name, value));
        self
    }

    /// Removes a field of replies.
    #[must_use]
    pub fn remove_reply(mut self, name: HeaderName) -> Self {
        Arc::make_mut(&mut self.reply).remove.push(name);
        self
    }

    /// The response that the upstream makes.
    fn deferred(&self, request: OutgoingRequest, incoming: Option<Incoming>) -> Response {
        let upstream = &self.upstream.0;
        let deferred = Deferred::by(incoming, |responder| {
            Travel(Trip::new(upstream, request, responder))
        });
        deferred.into_response()
    }

    fn outgoing<'a, I>(
        &self,
        asks: &Asks<'a>,
        fields: impl Fn() -> I,
        body: RequestBody,
    ) -> OutgoingRequest
    where
        I: Iterator<Item = (&'a str, &'a [u8])>,
    {
        OutgoingRequest {
            head: request::write(asks, fields, &self.request),
            body,
            asked: Asked {
                is_head: asks.method == "HEAD",
                upgrade: asks.upgrade.is_some(),
            },
            upgrade: asks.upgrade.map(<[u8]>::to_vec),
            is_idempotent: is_idempotent(asks.method),
            key: asks
                .peer
                .map(|peer| mix(address_bits(peer.ip().to_canonical()))),
            reply_terms: Arc::clone(&self.reply),
        }
    }

    fn of_head(&self, head: &Head<'_>) -> Response {
        let framing = head.framing();
        let upgrade = match head.asks_upgrade && head.keep_alive() && framing == Framing::Empty {
            true => offered(values_of(head, "upgrade")),
            false => None,
        };
        let asks = Asks {
            method: head.method(),
            prefix: if self.keeps_prefix { head.mount } else { "" },
            target: target_of(head),
            authority: head.authority(),
            peer: head.peer(),
            is_secured: head.tls.is_some(),
            framing,
            takes_trailers: RequestMeta::of(head).takes_trailers,
            expects_continue: head.expect_continue(),
            upgrade: upgrade.as_deref(),
        };
        let (body, incoming) = match framing {
            Framing::Empty => (RequestBody::Whole(Bytes::new()), None),
            Framing::Length(_) | Framing::Chunked => {
                let passage = Passage::new();
                let framing = match framing {
                    Framing::Length(length) => ReplyFraming::Length(length),
                    _ => ReplyFraming::Chunked,
                };
                let incoming = Incoming::new(Arc::clone(&passage));
                (RequestBody::Passed(passage, framing), Some(incoming))
            }
        };
        let fields = || head.headers.iter().map(|field| (field.name, field.value));
        self.deferred(self.outgoing(&asks, fields, body), incoming)
    }

    fn of_request(&self, request: &mut Request) -> Response {
        let body = std::mem::take(request.body_mut()).into_bytes();
        let target = request
            .uri()
            .path_and_query()
            .map_or("/", |target| target.as_str());
        let host = request.headers().get(http::header::HOST);
        let host = host.and_then(|host| host.to_str().ok()).unwrap_or_default();
        let mount = request.extensions().get::<Mount>();
        let is_asked = lists(request, http::header::CONNECTION, b"upgrade")
            && !lists(request, http::header::CONNECTION, b"close")
            && request.version() == Version::HTTP_11
            && !has_body(request.headers());
        let values = request.headers().get_all(http::header::UPGRADE).into_iter();
        let upgrade = match is_asked {
            true => offered(values.map(HeaderValue::as_bytes)),
            false => None,
        };
        let asks = Asks {
            method: request.method().as_str(),
            prefix: match mount {
                Some(mount) if self.keeps_prefix => mount.prefix(),
                _ => "",
            },
            target: match request.uri().path() {
                "*" => "*",
                _ => target,
            },
            authority: request
                .uri()
                .authority()
                .map_or(host, |authority| authority.as_str()),
            peer: Peer::of(request),
            is_secured: Tls::of(request).is_some(),
            framing: match body.len() as u64 {
                0 => Framing::Empty,
                length => Framing::Length(length),
            },
            takes_trailers: request.version() == Version::HTTP_2
                || lists(request, http::header::TE, b"trailers"),
            expects_continue: false,
            upgrade: upgrade.as_deref(),
        };
        let fields = || {
            let headers = request.headers().iter();
            headers.map(|(name, value)| (name.as_str(), value.as_bytes()))
        };
        self.deferred(self.outgoing(&asks, fields, RequestBody::Whole(body)), None)
    }
}

/// Whether a field of a request, which is a list, has this element.
fn lists(request: &Request, name: HeaderName, element: &[u8]) -> bool {
    let values = request.headers().get_all(name).into_iter();
    let mut all = values.flat_map(|value| elements(value.as_bytes()));
    all.any(|it| it.eq_ignore_ascii_case(element))
}

/// The values of a field.
fn values_of<'a>(head: &'a Head<'_>, name: &str) -> impl Iterator<Item = &'a [u8]> {
    let fields = head.headers.iter();
    let of_name = fields.filter(move |field| field.name.eq_ignore_ascii_case(name));
    of_name.map(|field| field.value)
}

/// Path and query, of whichever form the target is.
fn target_of<'a>(head: &Head<'a>) -> &'a str {
    let rest_bytes = head.path().len() + head.query().map_or(0, |query| query.len() + 1);
    let at = head.target().len().checked_sub(rest_bytes);
    let rest = at.and_then(|at| head.target().get(at..));
    // The root of `http://host` is not in the target.
    rest.filter(|rest| rest.starts_with(head.path()))
        .unwrap_or("/")
}

fn address_bits(address: std::net::IpAddr) -> u64 {
    match address {
        std::net::IpAddr::V4(address) => u64::from(address.to_bits()),
        // Of one client: its network, whose other half may change each day.
        std::net::IpAddr::V6(address) => (address.to_bits() >> 64) as u64,
    }
}

fn no_tunnel() -> Response {
    let words = "This server passes no other protocol on over HTTP/2: ask over HTTP/1.1.";
    refused(StatusCode::NOT_IMPLEMENTED, &words)
}

impl Service for Proxy {
    type ThreadState = ();

    fn thread_state(&self) {}

    fn plan(&self, _: &Head<'_>) -> Plan<'_> {
        Plan {
            place: Place::Inline,
            body: BodyPlan::Passed,
            asks_peer: true,
            route: None,
        }
    }

    fn inline(
        &self,
        (): &mut (),
        _: Turn,
        head: &Head<'_>,
        reply: &mut Reply<'_>,
    ) -> Disposition<'_> {
        if head.asks_upgrade && head.version() == Version::HTTP_2 {
            return reply.response(no_tunnel());
        }
        // A stream of HTTP/2 has its body gathered.
        if head.framing() != Framing::Empty && head.version() == Version::HTTP_2 {
            return Disposition::Pooled;
        }
        reply.response(self.of_head(head))
    }

    fn pooled(&self, request: &mut Request, _: &mut WorkerScope<'_>) -> Response {
        let asks_upgrade = lists(request, http::header::CONNECTION, b"upgrade");
        match asks_upgrade && request.version() == Version::HTTP_2 {
            true => no_tunnel(),
            false => self.of_request(request),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::with_head;

    #[test]
    fn the_target_is_path_and_query_whatever_its_form() {
        for (target, expected) in [
            ("/", "/"),
            ("/a?b=c", "/a?b=c"),
            ("/a?", "/a?"),
            ("http://h/a?b", "/a?b"),
            ("http://h", "/"),
            ("http://h/", "/"),
        ] {
            let text = format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
            let got = with_head(text.as_bytes(), |head| target_of(head).to_owned());
            assert_eq!(got, Ok(Some(expected.into())), "{target}");
        }
    }

    #[test]
    fn clients_of_one_network_have_one_key() {
        let bits = |text: &str| address_bits(text.parse().expect("an address"));
        assert_eq!(bits("2001:db8::1"), bits("2001:db8::ffff"));
        assert_ne!(bits("2001:db8::1"), bits("2001:db8:1::1"));
        assert_ne!(bits("192.0.2.1"), bits("192.0.2.2"));
    }
}
