//! One connection's state: where its input stands, and which replies are still owed.
//!
//! Requests are numbered as they are taken. A reply is queued when all before it are; one that
//! comes back early waits in the ring, at its number modulo the ring's size.
//!
//! Invariants
//! - N1: `next_reply <= next_request <= next_reply + PIPELINE_MAX` (wrapping).
//! - N2: every number from `next_reply` up to `next_request` is at exactly one place: with a
//!   worker, in the ring, or in `sending` (only `next_reply` can be there).
//! - N3: a session without owed replies has no ring: an idle connection holds nothing but this.

use bytes::Bytes;
use flatpath::Job;

use crate::incoming::Incoming;
use crate::limits::PIPELINE_MAX;
use crate::protocol::Http;
use crate::scan::Scan;
use crate::service::Service;

const _: () = assert!(
    PIPELINE_MAX.is_power_of_two(),
    "numbers wrap and keep their places"
);

/// What the next byte of input belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Stage {
    /// A head, or empty lines before one.
    #[default]
    Head,
    /// The body of the request in `incoming`.
    Body,
    /// Nothing: the last request of the connection has been taken.
    Over,
}

/// A reply that waits for its turn.
pub(crate) enum Waiting<S: Service> {
    /// From a worker.
    Job(Job<Http<S>>),
    /// Written here: an error behind other requests, or an answer that found no room.
    Text(Box<Text>),
}

/// A reply in memory of its own.
pub(crate) struct Text {
    pub(crate) bytes: Vec<u8>,
    pub(crate) shared: Option<Bytes>,
    pub(crate) keep_alive: bool,
}

/// Replies that came back before their turn.
pub(crate) struct Ring<S: Service> {
    places: [Option<Waiting<S>>; PIPELINE_MAX],
}

impl<S: Service> Default for Box<Ring<S>> {
    fn default() -> Self {
        Box::new(Ring {
            places: [const { None }; PIPELINE_MAX],
        })
    }
}

/// See the module.
pub struct Session<S: Service> {
    pub(crate) scan: Scan,
    pub(crate) stage: Stage,
    /// The head that is arriving is not the connection's first: its time starts with it.
    pub(crate) is_next_head: bool,
    /// The body's client waits for `100 Continue`.
    pub(crate) owes_continue: bool,
    /// The first byte of the input belongs to a request that has been answered.
    pub(crate) skips_byte: bool,
    /// A streamed body was taken: what is behind it waits for its reply, as PUT is not safe
    /// (RFC 9112, 9.3.2).
    pub(crate) follows_upload: bool,
    /// The reply that is due is a long stream.
    pub(crate) is_streaming: bool,
    /// Input will be left unread, so the end has to linger.
    pub(crate) lingers: bool,
    /// The last reply is queued.
    pub(crate) is_closed: bool,
    pub(crate) next_request: u32,
    pub(crate) next_reply: u32,
    pub(crate) incoming: Option<Box<Incoming>>,
    /// The reply that is being streamed, while it waits for the output to drain; or the request
    /// whose body is being streamed, while it waits for more of it.
    pub(crate) sending: Option<Job<Http<S>>>,
    ring: Option<Box<Ring<S>>>,
}

impl<S: Service> Default for Session<S> {
    fn default() -> Self {
        Self {
            scan: Scan::new(),
            stage: Stage::Head,
            is_next_head: false,
            owes_continue: false,
            skips_byte: false,
            follows_upload: false,
            is_streaming: false,
            lingers: false,
            is_closed: false,
            next_request: 0,
            next_reply: 0,
            incoming: None,
            sending: None,
            ring: None,
        }
    }
}

impl<S: Service> Session<S> {
    /// Requests that were taken and whose replies are not queued completely.
    pub(crate) fn owed(&self) -> usize {
        self.next_request.wrapping_sub(self.next_reply) as usize
    }

    /// Whether the reply that is due is the last of the connection, as far as is known.
    pub(crate) fn owes_only_the_last(&self) -> bool {
        self.stage == Stage::Over && self.owed() == 1
    }

    /// The number of a request that is being taken.
    pub(crate) fn take_number(&mut self) -> u32 {
        debug_assert!(self.owed() < PIPELINE_MAX, "N1");
        let number = self.next_request;
        self.next_request = number.wrapping_add(1);
        number
    }

    /// Keeps a reply until its turn. `fresh` makes the ring when there is none.
    pub(crate) fn keep(
        &mut self,
        number: u32,
        waiting: Waiting<S>,
        fresh: impl FnOnce() -> Box<Ring<S>>,
    ) {
        debug_assert!(
            (number.wrapping_sub(self.next_reply) as usize) < self.owed(),
            "N2"
        );
        let ring = self.ring.get_or_insert_with(fresh);
        let before = ring.places[place(number)].replace(waiting);
        debug_assert!(before.is_none(), "N2: one reply per request");
    }

    /// The reply that is due, if it is here.
    pub(crate) fn take_due(&mut self) -> Option<Waiting<S>> {
        self.ring.as_mut()?.places[place(self.next_reply)].take()
    }

    /// The job of a request, if it waits in the ring.
    pub(crate) fn take_kept(&mut self, number: u32) -> Option<Job<Http<S>>> {
        let waiting = &mut self.ring.as_mut()?.places[place(number)];
        match waiting.take() {
            Some(Waiting::Job(job)) => Some(job),
            other => {
                *waiting = other;
                None
            }
        }
    }

    /// The ring, once nothing is owed any more.
    pub(crate) fn take_ring(&mut self) -> Option<Box<Ring<S>>> {
        if self.owed() == 0 {
            self.ring.take()
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
    use crate::closures::Pooled;
    use crate::message::{Request, Response};

    type Echo = Pooled<fn(&Request) -> Response>;

    fn text(number: u32) -> Waiting<Echo> {
        let bytes = number.to_be_bytes().to_vec();
        Waiting::Text(Box::new(Text {
            bytes,
            shared: None,
            keep_alive: true,
        }))
    }

    fn number(waiting: &Waiting<Echo>) -> u32 {
        match waiting {
            Waiting::Text(text) => {
                u32::from_be_bytes(text.bytes.as_slice().try_into().expect("four bytes"))
            }
            Waiting::Job(_) => panic!("no job was kept"),
        }
    }

    #[test]
    fn an_idle_session_is_small() {
        let bytes = size_of::<Session<Echo>>();
        assert!(bytes <= 64, "{bytes} bytes");
    }

    #[test]
    fn model_replies_come_out_in_the_order_of_their_requests() {
        let mut random = 0x9e37_79b9_7f4a_7c15u64;
        let mut session = Session::<Echo>::default();
        // Close to the end of the numbers, so that they wrap.
        (session.next_request, session.next_reply) = (u32::MAX - 50, u32::MAX - 50);
        let (mut out, mut due) = (Vec::new(), session.next_reply);
        for _ in 0..10_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let pick = (random >> 33) as usize;
            if pick.is_multiple_of(2) && session.owed() < PIPELINE_MAX {
                out.push(session.take_number());
            } else if !out.is_empty() {
                let back = out.swap_remove(pick % out.len());
                session.keep(back, text(back), || Box::default());
            }
            while let Some(waiting) = session.take_due() {
                assert_eq!(number(&waiting), due);
                due = due.wrapping_add(1);
                session.next_reply = due;
            }
            let (had_ring, owed) = (session.ring.is_some(), session.owed());
            assert_eq!(session.take_ring().is_some(), had_ring && owed == 0, "N3");
        }
        assert!(due < 100_000, "the numbers have wrapped: {due}");
    }
}
