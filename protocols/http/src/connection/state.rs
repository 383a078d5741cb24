//! What HTTP keeps: for a listener, for a network thread, for a connection.
//!
//! A session knows how far its input was taken and which replies are still owed. Requests are
//! numbered as they are taken. A reply is queued when all before it are; one that comes back early
//! waits in the reorder buffer, at its number modulo the buffer's size.
//!
//! Invariants
//! - N1: `next_reply <= next_request <= next_reply + PIPELINE_MAX` (wrapping).
//! - N2: every number from `next_reply` up to `next_request` is at exactly one place: with a
//!   worker, in the reorder buffer, or `due` (only `next_reply` can be there). With a worker it may
//!   have an entry in the buffer that says by when that is to begin ([`Awaited`]).
//! - N3: a session without owed replies has no reorder buffer: an idle connection holds nothing
//!   but its session.

use std::time::Duration;

use flatpath::{Context, Job, PerThread, Stall, Subnet, Ticket};

use crate::connection::client::{ForwardedHeader, Known, Proxies};
pub(crate) use crate::connection::due::Due;
#[cfg(feature = "http2")]
pub(crate) use crate::connection::due::Http2Streams;
use crate::connection::pending_body::PendingBody;
use crate::connection::records::{Log, Record, Records};
#[cfg(feature = "http2")]
use crate::h2::hpack::FieldList;
use crate::head::Head;
use crate::head::names::Names;
use crate::head::scan::Scan;
use crate::limits::{Limits, PIPELINE_MAX, SPARES_MAX};
use crate::respond::date::DateLine;
use crate::respond::outgoing::Outgoing;
use crate::service::terms::WorkerParts;
use crate::service::{Service, log_number};
use crate::sites::challenges::HttpChallenges;
use crate::sites::hosts::Hosts;
use crate::sites::origins::Origins;
use crate::sites::site_match::LastHost;

const _: () = assert!(
    PIPELINE_MAX.is_power_of_two(),
    "numbers wrap and keep their places"
);

/// A service, spoken to in HTTP/1.1.
///
/// ```
/// use flatpath_http::{Http, Limits, Router};
///
/// // One function for all requests, on workers.
/// let hello = Http::pooled(|| "hello\n");
///
/// // Or a router, with limits of its own.
/// let router = Router::new().get("/", || "hello\n");
/// let site = Http::service(router).limits(Limits {
///     body_bytes_max: 64 * 1024,
///     ..Limits::default()
/// });
/// # let _ = (hello, site);
/// ```
#[derive(Clone, Debug)]
pub struct Http<S> {
    pub(crate) service: S,
    pub(crate) limits: Limits,
    pub(crate) hosts: Hosts,
    pub(crate) origins: Origins,
    pub(crate) proxies: Option<Proxies>,
    pub(crate) challenges: Option<HttpChallenges>,
    #[cfg(feature = "http2")]
    pub(crate) http2: bool,
    #[cfg(feature = "http2")]
    pub(crate) tunnels: bool,
}

impl<S: Service> Http<S> {
    /// HTTP/1.1 for this service.
    pub fn service(service: S) -> Self {
        Self {
            service,
            limits: Limits::default(),
            hosts: Hosts::any(),
            origins: Origins::any(),
            proxies: None,
            challenges: None,
            #[cfg(feature = "http2")]
            http2: true,
            #[cfg(feature = "http2")]
            tunnels: true,
        }
    }

    /// Names for ALPN (RFC 7301), the preferred one first.
    pub(crate) fn alpn(&self) -> &'static [&'static str] {
        #[cfg(feature = "http2")]
        if self.http2 {
            return &["h2", "http/1.1"];
        }
        &["http/1.1"]
    }

    /// Other limits than the default ones; what exceeds the crate's bounds is brought down to them.
    #[must_use]
    pub fn limits(self, limits: Limits) -> Self {
        Self {
            limits: limits.within_bounds(),
            ..self
        }
    }

    /// Answers for these hosts alone: a request for another one gets 421. Without this every host
    /// is answered for. A server on a loopback address had better say [`Hosts::local`]: any page
    /// that the user of the machine visits can reach it, through DNS rebinding.
    ///
    /// ```
    /// use flatpath_http::{Hosts, Http, Origins};
    ///
    /// let names = ["files.example.org".parse().expect("a host")];
    /// let http = Http::pooled(|| "hello\n")
    ///     .hosts(Hosts::local().and(names))
    ///     .origins(Origins::own());
    /// ```
    #[must_use]
    pub fn hosts(self, hosts: Hosts) -> Self {
        Self { hosts, ..self }
    }

    /// Lets pages of these origins alone write or open WebSockets: others get 403. Without this
    /// every page may, and what it may do is the program's to decide. [`Origins::own`] is right for
    /// a server whose pages come from itself.
    #[must_use]
    pub fn origins(self, origins: Origins) -> Self {
        Self { origins, ..self }
    }

    /// Believes the proxies in these networks whom they forward for: that is then the client of a
    /// request for [`Peer`](crate::Peer), for layers that count by address, and in the access log.
    /// Limits of connections by address still count the proxy, whose they are; a balancer that
    /// sends the PROXY header is for [`Server::behind_proxy`](flatpath::Server::behind_proxy).
    ///
    /// The header must be the one that these proxies write or add to: what they pass on of another
    /// is their clients' to choose. Its list is read from the end, as long as what has written an
    /// entry is in these networks; an entry without an address ends it, and the proxy that wrote it
    /// is the client. A client whose port is not named has 0. Who may connect to a Unix socket is
    /// a proxy, whatever the networks.
    ///
    /// ```
    /// use flatpath_http::{ForwardedHeader, Http, Peer};
    ///
    /// # fn main() -> Result<(), flatpath_http::flatpath::BadSubnet> {
    /// let http = Http::pooled(|Peer(client): Peer| format!("hello, {}\n", client.ip()))
    ///     .behind_proxies(ForwardedHeader::XForwardedFor, ["10.0.0.0/8".parse()?]);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn behind_proxies(
        self,
        header: ForwardedHeader,
        networks: impl IntoIterator<Item = Subnet>,
    ) -> Self {
        let networks = networks.into_iter().collect();
        Self {
            proxies: Some(Proxies::new(header, networks)),
            ..self
        }
    }
}

/// What one call of the engine works on.
pub(crate) type Connection<'a, S> = Context<'a, Http<S>>;

/// For the lines of a session that has records.
pub(crate) fn log<'a, 'io, S: Service>(connection: &'a mut Connection<'io, S>) -> Log<'a, 'io> {
    let known = connection.session.known.as_deref_mut();
    let (client, records) = known.map_or((None, None), |it| (it.client, it.records.as_mut()));
    Log {
        io: &mut connection.io,
        client: client.zip(connection.protocol.proxies.as_ref()),
        records,
        spares: &mut connection.thread.records,
    }
}

/// Notes that a request has come, if the session has lines.
pub(crate) fn log_arrival<S: Service>(connection: &mut Connection<'_, S>, head: &Head<'_>) {
    if connection.session.is_logged() {
        let number = log_number(&connection.protocol.service, head);
        log(connection).came(head, number);
    }
}

/// What the next step of taking input has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Took this many bytes; there may be more to take.
    On(usize),
    /// Took this many bytes; the others are the beginning of a message.
    NeedMore(usize),
    /// Took this many bytes; the others have to wait.
    Blocked(usize, Stall),
}

/// What one network thread keeps for a listener that speaks HTTP.
pub struct ThreadState<S: Service> {
    pub(crate) service: S::ThreadState,
    /// Where inline replies are written before they are queued.
    pub(crate) scratch: Vec<u8>,
    pub(crate) date: DateLine,
    pub(crate) names: Names,
    pub(crate) host: LastHost,
    /// Recycled.
    #[expect(clippy::vec_box, reason = "the box is what is recycled")]
    pub(crate) pending_body: Vec<Box<PendingBody>>,
    /// Recycled.
    #[expect(clippy::vec_box, reason = "the box is what is recycled")]
    pub(crate) reorder_buffers: Vec<Box<ReorderBuffer<S>>>,
    /// Recycled.
    #[expect(clippy::vec_box, reason = "the box is what is recycled")]
    pub(crate) records: Vec<Box<Record>>,
    /// The parts of the workers that the service has asked for.
    pub(crate) parts: WorkerParts,
    #[cfg(feature = "http2")]
    pub(crate) h2: Http2Scratch,
}

impl<S: Service> PerThread<Http<S>> for ThreadState<S> {
    fn new(http: &Http<S>) -> Self {
        let service = &http.service;
        Self {
            service: service.thread_state(),
            scratch: Vec::new(),
            date: DateLine::new(),
            names: Names::new(),
            host: LastHost::default(),
            pending_body: Vec::new(),
            reorder_buffers: Vec::new(),
            records: Vec::new(),
            parts: WorkerParts::of(service),
            #[cfg(feature = "http2")]
            h2: Http2Scratch::default(),
        }
    }
}

impl<S: Service> ThreadState<S> {
    /// Drops a request whose body was arriving, and keeps what can be used again.
    pub(crate) fn recycle_pending_body(&mut self, mut pending_body: Box<PendingBody>) {
        pending_body.clear();
        if self.pending_body.len() < SPARES_MAX {
            self.pending_body.push(pending_body);
        }
    }

    /// Keeps an empty reorder buffer.
    pub(crate) fn recycle_reorder_buffer(&mut self, reorder_buffer: Box<ReorderBuffer<S>>) {
        if self.reorder_buffers.len() < SPARES_MAX {
            self.reorder_buffers.push(reorder_buffer);
        }
    }
}

/// Scratch space for HTTP/2.
#[cfg(feature = "http2")]
#[derive(Default)]
pub(crate) struct Http2Scratch {
    /// What is said in one call.
    pub(crate) out: Vec<u8>,
    /// The fields of a request, or of trailers; `None` while they are looked at.
    pub(crate) fields: Option<Box<FieldList>>,
    /// The headers that they are; empty in between.
    pub(crate) headers: Vec<httparse::Header<'static>>,
    /// One block.
    pub(crate) block: Vec<u8>,
}

/// What the next byte of input belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A head, or empty lines before one.
    #[default]
    Head,
    /// The body of the request in `pending_body`.
    Body,
    /// HTTP/2, from its preface to the end of the connection; the session is `due`.
    #[cfg(feature = "http2")]
    Http2,
    /// Nothing: the last request of the connection has been taken.
    Over,
    /// Nothing: the last reply is queued as well, or there will be none.
    Closed,
    /// Another protocol, after this call.
    Switched,
}

/// A reply that waits for its turn.
pub(crate) enum QueuedReply<S: Service> {
    /// From a worker.
    Job(Job<Http<S>>),
    /// Written here: an error after other requests.
    Here(Box<Outgoing>),
    /// Its job is with the workers, and is taken back if none has begun with it in time.
    Awaited(Awaited),
}

/// A job that is to be begun with in time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    pub(crate) ticket: Ticket,
    /// In the time of `Turn::now`.
    pub(crate) end: Duration,
}

impl<S: Service> QueuedReply<S> {
    /// Whether it is still to be made, elsewhere.
    fn is_to_come(&self) -> bool {
        match self {
            Self::Job(job) => job.is_deferred(),
            Self::Here(_) => false,
            Self::Awaited(_) => true,
        }
    }
}

/// Replies that came back before their turn.
pub(crate) struct ReorderBuffer<S: Service> {
    places: [Option<QueuedReply<S>>; PIPELINE_MAX],
}

impl<S: Service> Default for Box<ReorderBuffer<S>> {
    fn default() -> Self {
        Box::new(ReorderBuffer {
            places: [const { None }; PIPELINE_MAX],
        })
    }
}

/// See the module.
pub struct Session<S: Service> {
    pub(crate) scan: Scan,
    pub(crate) stage: Stage,
    /// What is after the latest request waits for its reply. It was a streamed body, as PUT is not
    /// safe (RFC 9112, 9.3.2), or it asked for an upgrade, so that it may not be HTTP.
    pub(crate) awaits_reply: bool,
    /// The reply that is due is a long stream.
    pub(crate) is_streaming: bool,
    /// Input will be left unread, so the end has to linger.
    pub(crate) lingers: bool,
    /// The client has sent its end: it asks for nothing more, and may still read.
    pub(crate) has_ended: bool,
    pub(crate) next_request: u32,
    pub(crate) next_reply: u32,
    pub(crate) pending_body: Option<Box<PendingBody>>,
    pub(crate) due: Due<S>,
    /// What is known of its client: few sessions have asked.
    pub(crate) known: Option<Box<Known>>,
    reorder_buffer: Option<Box<ReorderBuffer<S>>>,
}

flatpath::opaque_debug! {
    impl[S: Service] ThreadState<S> as "ThreadState";
    impl[S: Service] Session<S> as "Session";
}

impl<S: Service> Default for Session<S> {
    fn default() -> Self {
        Self {
            scan: Scan::new(),
            stage: Stage::Head,
            awaits_reply: false,
            is_streaming: false,
            lingers: false,
            has_ended: false,
            next_request: 0,
            next_reply: 0,
            pending_body: None,
            due: Due::Nothing,
            known: None,
            reorder_buffer: None,
        }
    }
}

impl<S: Service> Session<S> {
    /// Whether the access log has lines of it.
    #[inline]
    pub(crate) fn is_logged(&self) -> bool {
        self.known
            .as_ref()
            .is_some_and(|known| known.records.is_some())
    }

    /// What the access log will say of it, where there is one.
    pub(crate) fn records(&mut self) -> Option<&mut Records> {
        self.known.as_mut()?.records.as_mut()
    }

    /// Requests that were taken and whose replies are not queued completely.
    pub(crate) fn owed(&self) -> usize {
        self.next_request.wrapping_sub(self.next_reply) as usize
    }

    /// Nothing more is queued.
    pub(crate) fn is_closed(&self) -> bool {
        matches!(self.stage, Stage::Closed | Stage::Switched)
    }

    /// Every request has been taken and answered.
    pub(crate) fn is_finished(&self) -> bool {
        self.stage == Stage::Over && self.owed() == 0
    }

    /// Whether a reply is made elsewhere for a client that has sent its end. Such a client is taken
    /// to be gone, whichever came first, the end or the waiting: one that is gone would be found
    /// out by the next piece only.
    pub(crate) fn waits_in_vain(&mut self) -> bool {
        let is_fed = matches!(self.due, Due::Fed(_));
        self.has_ended && (is_fed || self.deferred().next().is_some())
    }

    /// Whether the reply that is due is the last of the connection, as far as is known.
    pub(crate) fn owes_only_the_last(&self) -> bool {
        self.stage == Stage::Over && self.owed() == 1
    }

    /// The head is taken: the next one begins from scratch.
    pub(crate) fn head_taken(&mut self) {
        self.scan = Scan::new();
    }

    /// Whether the next request has arrived in part.
    pub(crate) fn is_partial(&self) -> bool {
        self.stage == Stage::Body || !self.scan.is_untouched()
    }

    /// True from the head of a body that is streamed, or from when another one is opened, to the
    /// end of the body.
    pub(crate) fn is_uploading(&self) -> bool {
        let is_opened = self.pending_body.as_ref().is_some_and(|it| it.is_opened());
        self.stage == Stage::Body && is_opened
    }

    /// The number of a request that is being taken.
    pub(crate) fn take_number(&mut self) -> u32 {
        debug_assert!(self.owed() < PIPELINE_MAX, "N1");
        let number = self.next_request;
        self.next_request = number.wrapping_add(1);
        number
    }

    /// Keeps a reply until its turn, in one of the spare reorder buffers when there is none yet.
    #[expect(clippy::vec_box, reason = "the box is what is recycled")]
    pub(crate) fn keep(
        &mut self,
        number: u32,
        reply: QueuedReply<S>,
        spares: &mut Vec<Box<ReorderBuffer<S>>>,
    ) {
        debug_assert!(
            (number.wrapping_sub(self.next_reply) as usize) < self.owed(),
            "N2"
        );
        let spare = || spares.pop().unwrap_or_default();
        let reorder_buffer = self.reorder_buffer.get_or_insert_with(spare);
        let before = reorder_buffer.places[place(number)].replace(reply);
        debug_assert!(before.is_none(), "N2: one reply per request");
    }

    /// The reply that is due, if it is here and made.
    pub(crate) fn take_due(&mut self) -> Option<QueuedReply<S>> {
        let due = &mut self.reorder_buffer.as_mut()?.places[place(self.next_reply)];
        due.take_if(|reply| !reply.is_to_come())
    }

    /// The jobs whose responses are made elsewhere.
    pub(crate) fn deferred(&mut self) -> impl Iterator<Item = &mut Job<Http<S>>> {
        let places = self.reorder_buffer.iter_mut();
        let places = places.flat_map(|reorder_buffer| &mut reorder_buffer.places);
        places.filter_map(|place| match place {
            Some(QueuedReply::Job(job)) if job.is_deferred() => Some(job),
            _ => None,
        })
    }

    /// The jobs that are to be begun with in time, by their requests.
    pub(crate) fn awaited(&self) -> impl Iterator<Item = (u32, Awaited)> {
        let places = self.reorder_buffer.iter().flat_map(|it| &it.places);
        let first = self.next_reply;
        places
            .zip(0u32..)
            .filter_map(move |(waiting, at)| match waiting {
                Some(QueuedReply::Awaited(awaited)) => {
                    let ahead = at.wrapping_sub(first) % PIPELINE_MAX as u32;
                    Some((first.wrapping_add(ahead), *awaited))
                }
                _ => None,
            })
    }

    /// The job of a request is back, or is not waited for any more.
    pub(crate) fn forget_awaited(&mut self, number: u32) {
        if let Some(reorder_buffer) = &mut self.reorder_buffer {
            let waiting = &mut reorder_buffer.places[place(number)];
            waiting.take_if(|waiting| matches!(waiting, QueuedReply::Awaited(_)));
        }
    }

    /// The job of a request, if it waits in the reorder buffer.
    pub(crate) fn take_kept(&mut self, number: u32) -> Option<Job<Http<S>>> {
        let waiting = &mut self.reorder_buffer.as_mut()?.places[place(number)];
        match waiting.take() {
            Some(QueuedReply::Job(job)) => Some(job),
            other => {
                *waiting = other;
                None
            }
        }
    }

    /// The reorder buffer, once no reply is owed.
    pub(crate) fn take_reorder_buffer(&mut self) -> Option<Box<ReorderBuffer<S>>> {
        if self.owed() == 0 {
            self.reorder_buffer.take()
        } else {
            None
        }
    }
}

fn place(number: u32) -> usize {
    number as usize % PIPELINE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::head::RequestMeta;
    use crate::respond::outgoing::OutgoingHead;
    use crate::service::closures::HandlerService;

    fn text(number: u32) -> QueuedReply<HandlerService> {
        let head = OutgoingHead::Bytes(number.to_be_bytes().to_vec());
        QueuedReply::Here(Box::new(Outgoing::new(200, head, RequestMeta::default())))
    }

    fn number(waiting: &QueuedReply<HandlerService>) -> u32 {
        match waiting {
            QueuedReply::Here(reply) => match &reply.head {
                OutgoingHead::Bytes(bytes) => {
                    u32::from_be_bytes(bytes.as_slice().try_into().expect("four bytes"))
                }
                other => panic!("no such head was kept: {other:?}"),
            },
            QueuedReply::Job(_) | QueuedReply::Awaited(_) => panic!("no job was kept"),
        }
    }

    #[test]
    fn an_idle_session_is_small() {
        let bytes = size_of::<Session<HandlerService>>();
        assert!(bytes <= 64, "{bytes} bytes");
    }

    #[test]
    fn model_replies_come_out_in_the_order_of_their_requests() {
        let mut random = fastrand::Rng::with_seed(1);
        let mut session = Session::<HandlerService>::default();
        // Close to the end of the numbers, so that they wrap.
        (session.next_request, session.next_reply) = (u32::MAX - 50, u32::MAX - 50);
        let (mut out, mut due) = (Vec::new(), session.next_reply);
        for _ in 0..10_000 {
            let pick = random.usize(..);
            if pick.is_multiple_of(2) && session.owed() < PIPELINE_MAX {
                out.push(session.take_number());
            } else if !out.is_empty() {
                let back = out.swap_remove(pick % out.len());
                session.keep(back, text(back), &mut Vec::new());
            }
            while let Some(waiting) = session.take_due() {
                assert_eq!(number(&waiting), due);
                due = due.wrapping_add(1);
                session.next_reply = due;
            }
            let (had_ring, owed) = (session.reorder_buffer.is_some(), session.owed());
            assert_eq!(
                session.take_reorder_buffer().is_some(),
                had_ring && owed == 0,
                "N3"
            );
        }
        assert!(due < 100_000, "the numbers have wrapped: {due}");
    }
}
