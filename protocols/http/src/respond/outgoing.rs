//! A reply on its way to its client: a head, what of its body does not stand with it, the framing.
//!
//! One path leads to the client, wherever a reply was made (`write::send`):
//!
//! | made by             | its head                     | its body                           |
//! |---------------------|------------------------------|------------------------------------|
//! | inline, if it fits  | in the output already        | with the head, or shared           |
//! | inline              | complete, in memory          | any                                |
//! | a worker            | in a buffer, without its end | any; a reader, chunk by chunk      |
//! | us, without memory  | constant words               | with the head                      |
//!
//! It stays together from when it is made until the client has all of it: in the job, while workers
//! read its body; in the reorder buffer, before its turn; in the session, while its body is fed
//! from elsewhere.

use flatpath::memory::Buffer;

use crate::extract::request_id::RequestId;
use crate::head::RequestMeta;
use crate::limits::STREAM_SHORT_BYTES;
use crate::message::Body;
use crate::respond::encode::ReplyFraming;
use crate::respond::words::Words;
use crate::streams::deferred::Pending;
use crate::streams::passage;
use crate::takeover::upgrade::Upgrade;
use crate::trailers::LateTrailers;

/// See the module.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) status: u16,
    pub(crate) head: OutgoingHead,
    /// What of the body does not stand with the head.
    pub(crate) body: Body,
    /// Its bytes need no charge: it is charged, or the service has it anyway.
    pub(crate) is_charged: bool,
    /// How the body is delimited. Of a body that is fed from elsewhere, what is left of its length.
    pub(crate) framing: ReplyFraming,
    /// Of the request, and whether the connection continues after this.
    pub(crate) request: RequestMeta,
    /// What few replies have.
    special: Option<Box<Special>>,
}

/// What only few replies have.
#[derive(Debug, Default)]
struct Special {
    then: Option<Then>,
    request_id: Option<RequestId>,
    trailing: Option<Box<LateTrailers>>,
}

/// What a reply is that is more than a head and a body, or less.
#[derive(Debug)]
enum Then {
    /// After this the connection is another protocol's.
    Upgrade(Upgrade),
    /// The reply itself is made later: this stands for it.
    Pending(Pending),
}

/// Where the head is.
#[derive(Debug)]
pub(crate) enum OutgoingHead {
    /// In the output of the connection.
    Queued {
        /// Bytes of the body that stand with it.
        body_bytes: usize,
    },
    /// These constant words are the whole reply.
    Words(&'static Words),
    /// Here, and complete, without a body.
    Bytes(Vec<u8>),
    /// Here. The network thread adds the end, which has the date, and whether the connection
    /// continues.
    Open(Buffer),
}

impl OutgoingHead {
    pub(crate) const QUEUED: Self = Self::Queued { body_bytes: 0 };
}

impl Outgoing {
    /// A reply of this head to this request. It has no body.
    pub(crate) fn new(status: u16, head: OutgoingHead, request: RequestMeta) -> Self {
        Self {
            status,
            head,
            body: Body::Empty,
            is_charged: false,
            framing: ReplyFraming::Length(0),
            request,
            special: None,
        }
    }

    /// Constant words to this request, after which the connection ends.
    pub(crate) fn words(words: &'static Words, request: RequestMeta) -> Self {
        let head = OutgoingHead::Words(words);
        Self::new(words.status, head, request.refused())
    }

    /// After it the connection is another protocol's, if there is one.
    pub(crate) fn set_upgrade(&mut self, upgrade: Option<Upgrade>) {
        if let Some(upgrade) = upgrade {
            self.special().then = Some(Then::Upgrade(upgrade));
        }
    }

    /// It is made later.
    pub(crate) fn set_pending(&mut self, pending: Pending) {
        self.special().then = Some(Then::Pending(pending));
    }

    /// The request has this name.
    pub(crate) fn set_request_id(&mut self, id: Option<RequestId>) {
        if id.is_some() {
            self.special().request_id = id;
        }
    }

    /// These come after its body.
    pub(crate) fn set_trailing(&mut self, trailing: Option<Box<LateTrailers>>) {
        if trailing.is_some() {
            self.special().trailing = trailing;
        }
    }

    /// What comes after its body.
    pub(crate) fn trailing(&self) -> Option<&LateTrailers> {
        self.special.as_ref()?.trailing.as_deref()
    }

    #[cfg(feature = "http2")]
    pub(crate) fn take_trailing(&mut self) -> Option<Box<LateTrailers>> {
        self.special.as_mut()?.trailing.take()
    }

    /// What is special of the other one is of this one from now on.
    #[cfg(feature = "http2")]
    pub(crate) fn take_special(&mut self, other: &mut Self) {
        self.special = other.special.take();
    }

    fn special(&mut self) -> &mut Special {
        self.special.get_or_insert_default()
    }

    /// The name of the request.
    pub(crate) fn request_id(&self) -> Option<&RequestId> {
        self.special.as_ref()?.request_id.as_ref()
    }

    fn then(&self) -> Option<&Then> {
        self.special.as_ref()?.then.as_ref()
    }

    /// Whether it has to leave the output for what comes after its head, or instead of it.
    pub(crate) fn is_special(&self) -> bool {
        self.then().is_some() || self.trailing().is_some()
    }

    /// Whether the connection is another protocol's after it.
    #[cfg(feature = "http2")]
    pub(crate) fn is_upgrade(&self) -> bool {
        matches!(self.then(), Some(Then::Upgrade(_)))
    }

    /// Whether the connection may be another protocol's after it, now or once it is made.
    pub(crate) fn may_switch(&self) -> bool {
        self.then().is_some()
    }

    pub(crate) fn take_upgrade(&mut self) -> Option<Upgrade> {
        let then = &mut self.special.as_mut()?.then;
        match then.take_if(|it| matches!(it, Then::Upgrade(_)))? {
            Then::Upgrade(upgrade) => Some(upgrade),
            Then::Pending(_) => None,
        }
    }

    pub(crate) fn take_pending(&mut self) -> Option<Pending> {
        let then = &mut self.special.as_mut()?.then;
        match then.take_if(|it| matches!(it, Then::Pending(_)))? {
            Then::Pending(pending) => Some(pending),
            Then::Upgrade(_) => None,
        }
    }

    /// What takes the body of the request, where it is passed on.
    pub(crate) fn take_incoming(&mut self) -> Option<passage::Incoming> {
        match &mut self.special.as_mut()?.then {
            Some(Then::Pending(pending)) => pending.take_incoming(),
            Some(Then::Upgrade(_)) | None => None,
        }
    }

    /// Whether the head is queued.
    pub(crate) fn is_begun(&self) -> bool {
        matches!(self.head, OutgoingHead::Queued { .. })
    }

    /// Whether all of it is in the output.
    #[inline]
    pub(crate) fn is_queued(&self) -> bool {
        matches!(
            (&self.head, &self.body),
            (OutgoingHead::Queued { .. }, Body::Empty)
        )
    }

    /// Whether its body is short as a whole: it may have memory of the reserve.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self.framing, ReplyFraming::Length(bytes) if bytes <= STREAM_SHORT_BYTES as u64)
    }

    /// Whether workers read its body, which takes as long as its client.
    pub(crate) fn is_long_stream(&self) -> bool {
        matches!(self.body, Body::Reader(_)) && !self.is_short()
    }

    /// Bytes of the body that stand with the head.
    pub(crate) fn body_bytes(&self) -> usize {
        match &self.head {
            OutgoingHead::Queued { body_bytes } => *body_bytes,
            OutgoingHead::Words(words) => words.body_for(self.request).len(),
            OutgoingHead::Bytes(_) | OutgoingHead::Open(_) => 0,
        }
    }

    /// Drops the body, where that may block.
    pub(crate) fn discard_body(&mut self) {
        discard_body(std::mem::take(&mut self.body));
    }
}

impl Drop for Outgoing {
    #[inline]
    fn drop(&mut self) {
        // As a rule it is sent.
        if !matches!(self.body, Body::Empty) {
            self.discard_body();
        }
    }
}

/// Drops a body where that may block; one in memory of the server at once.
pub(crate) fn discard_body(body: Body) {
    match body {
        Body::Empty | Body::Static(_) | Body::Pooled(_) | Body::Payload(_) => {}
        Body::Bytes(bytes) => flatpath::discard_bytes(bytes),
        // It discards what it has by itself.
        Body::Channel(receiver) => drop(receiver),
        Body::Reader(reader) => flatpath::discard(reader),
    }
}
