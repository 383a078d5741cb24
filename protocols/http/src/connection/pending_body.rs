//! A request whose body is still arriving.
//!
//! Its head has been copied out of the input already. It is not a job yet: a client that takes its
//! time over a body holds none of the places that requests in flight have, only what it has sent.
//! Recycled by the network thread.

use flatpath::NoRoom;
use flatpath::memory::{Buffer, Payload, PoolHandle};

use crate::connection::exchange::Arrival;
use crate::h1::body::Decoder;
use crate::head::fault::Fault;
use crate::head::request_builder::RequestBuilder;
use crate::head::{Framing, Head, RequestMeta};
use crate::limits::BODY_FIRST_BYTES_MAX;
use crate::message::Body;
use crate::service::terms::JobTerms;
use crate::service::{Opening, is_short};
use crate::streams::passage;
use crate::trailers::Trailers;

/// See the module.
pub(crate) struct PendingBody {
    pub(crate) builder: RequestBuilder,
    pub(crate) request: RequestMeta,
    pub(crate) terms: JobTerms,
    pub(crate) decoder: Decoder,
    pub(crate) mode: BodyMode,
    /// Whether the service is asked before it is there.
    pub(crate) opening: Opening,
    /// See [`is_short`].
    pub(crate) is_short: bool,
    /// Why it will never be complete, where the job that is away is to answer that.
    pub(crate) refusal: Option<Fault>,
    /// Its sink takes pipes, as far as is known.
    pub(crate) takes_pipes: bool,
    /// A job has its stream, and knows alone how far that is.
    pub(crate) is_piped: bool,
    /// What is kept in pages, since the last piece if there are pieces.
    pub(crate) piece: Payload,
    /// Bytes of data so far.
    pub(crate) bytes: u64,
    pub(crate) gathered: Gathered,
    /// What has come after all of it.
    pub(crate) trailers: Trailers,
    /// Of a body that arrives completely.
    pub(crate) body_bytes_max: u64,
    /// Its client waits for `100 Continue`.
    pub(crate) owes_continue: bool,
    /// Where it goes, if it is passed on.
    pub(crate) incoming: Option<passage::Incoming>,
}

/// What is done with data that arrives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum BodyMode {
    /// Gathered in buffers until it is complete.
    #[default]
    Buffered,
    /// Kept until it is complete, in the pages where it was received: it is large.
    Retained,
    /// Taken piece by piece.
    Streamed,
    /// As before, but no more of it arrives: what there is waits for the job that is with a worker.
    Abandoned,
    /// Passed on to another connection, piece by piece.
    Passed,
    /// Dropped: the answer is out already, and the body is read only to find the next request.
    Discarded,
}

impl Default for PendingBody {
    fn default() -> Self {
        Self {
            builder: RequestBuilder::default(),
            request: RequestMeta::default(),
            terms: JobTerms::default(),
            decoder: Decoder::new(Framing::Empty),
            mode: BodyMode::default(),
            opening: Opening::default(),
            is_short: false,
            refusal: None,
            takes_pipes: false,
            is_piped: false,
            piece: Payload::new(),
            bytes: 0,
            gathered: Gathered::default(),
            trailers: Trailers::default(),
            body_bytes_max: 0,
            owes_continue: false,
            incoming: None,
        }
    }
}

impl PendingBody {
    /// Makes this the request with this head; the builder has been filled.
    pub(crate) fn begin(&mut self, request: RequestMeta, head: &Head<'_>, mode: BodyMode) {
        self.request = request;
        self.owes_continue = head.expect_continue();
        self.decoder = Decoder::new(head.framing());
        self.mode = mode;
        (self.opening, self.refusal) = (Opening::Never, None);
        self.is_short = is_short(head);
        (self.takes_pipes, self.is_piped) = (false, false);
        self.bytes = 0;
    }

    /// Whether a job has this request, or had it: what becomes of it that decides.
    pub(crate) fn is_opened(&self) -> bool {
        self.mode == BodyMode::Streamed || self.opening == Opening::Begun
    }

    /// How it comes to the sink of a request that is opened.
    pub(crate) fn arrival(&self) -> Arrival {
        Arrival::Whole {
            is_short: self.is_short,
        }
    }

    /// The request is answered; the rest is read only to find the next one.
    pub(crate) fn discard_rest(&mut self) {
        self.clear();
        (self.mode, self.opening) = (BodyMode::Discarded, Opening::Never);
    }

    /// So much of its data has come in a pipe.
    pub(crate) fn came_piped(&mut self, bytes: u64) {
        self.decoder.skip(bytes);
        self.came(bytes);
    }

    /// So much of its data has come. A client that sends its body no longer waits for `100
    /// Continue`.
    pub(crate) fn came(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.owes_continue &= bytes == 0;
    }

    /// Whether so much more is more than its route takes of a body that arrives completely.
    pub(crate) fn is_too_long(&self, more: u64) -> bool {
        self.bytes.saturating_add(more) > self.body_bytes_max
    }

    /// The body as it was gathered.
    pub(crate) fn take_body(&mut self) -> Body {
        match self.mode {
            BodyMode::Retained => Body::Payload(std::mem::take(&mut self.piece)),
            _ => self.gathered.take(),
        }
    }

    /// Drops the request and keeps what can be used again.
    pub(crate) fn clear(&mut self) {
        self.builder.clear();
        drop(self.gathered.take());
        (self.piece, self.trailers) = (Payload::new(), Trailers::default());
        self.incoming = None;
    }

    /// Whether its client is to send it: it is passed on, and what has come finds room.
    pub(crate) fn passes(&self) -> bool {
        let incoming = self.incoming.as_ref();
        incoming.is_some_and(|incoming| !incoming.is_held() && !self.owes_continue)
    }
}

/// Data in pooled buffers: one that grows through the pool's classes, then several of the largest.
/// Never more than twice what has arrived, whatever was announced.
#[derive(Default)]
pub(crate) struct Gathered {
    full: Vec<Buffer>,
    last: Option<Buffer>,
}

impl Gathered {
    /// Keeps a copy of data, all of it or nothing.
    pub(crate) fn append(
        &mut self,
        pool: PoolHandle<'_>,
        data: &[u8],
        more: u64,
    ) -> Result<(), NoRoom> {
        match &mut self.last {
            Some(last) if last.room() >= data.len() => {
                last.append(data);
            }
            None => {
                let more = usize::try_from(more).unwrap_or(usize::MAX);
                let wanted = data.len().saturating_add(more).min(BODY_FIRST_BYTES_MAX);
                let mut first = take(pool, wanted.max(data.len()), data.len())?;
                first.append(data);
                self.last = Some(first);
            }
            Some(last) => {
                let filled = last.filled().len();
                let wanted = last.capacity().saturating_mul(2).max(filled + data.len());
                let mut next = take(pool, wanted, data.len() - last.room())?;
                if next.room() >= filled + data.len() {
                    next.append(last.filled());
                    next.append(data);
                    self.last = Some(next);
                } else {
                    let fitted = last.append(data);
                    next.append(&data[fitted..]);
                    self.full.extend(self.last.replace(next));
                }
            }
        }
        Ok(())
    }

    fn take(&mut self) -> Body {
        match (self.last.take(), self.full.is_empty()) {
            (None, _) => Body::Empty,
            (Some(only), true) => Body::Pooled(only),
            (Some(last), false) => {
                let mut all = Payload::new();
                let full = self.full.drain(..);
                full.chain([last])
                    .for_each(|buffer| all.push_buffer(buffer));
                Body::Payload(all)
            }
        }
    }
}

/// A buffer of about the wanted size, with room for at least `room_min` bytes.
fn take(pool: PoolHandle<'_>, wanted: usize, room_min: usize) -> Result<Buffer, NoRoom> {
    // A body can wait.
    pool.for_bulk()
        .take(wanted)
        .filter(|buffer| buffer.room() >= room_min)
        .ok_or(NoRoom)
}

#[cfg(test)]
mod tests {
    use super::*;
    use flatpath_structures::pool::{Pool, PoolConfig, Zero};

    fn pool(budget_bytes: usize) -> Pool {
        Pool::new(PoolConfig {
            classes: vec![64, 256, 1024],
            budget_bytes,
            zero: Zero::Never,
        })
    }

    fn gather(pool: PoolHandle<'_>, pieces: &[&[u8]]) -> Result<Body, NoRoom> {
        let mut gathered = Gathered::default();
        for piece in pieces {
            gathered.append(pool, piece, 0)?;
        }
        Ok(gathered.take())
    }

    #[test]
    fn what_fits_one_buffer_stays_in_one() {
        let pool = pool(1 << 20);
        let pieces: Vec<Vec<u8>> = (0u8..40).map(|byte| vec![byte; 25]).collect();
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let body = gather((&pool).into(), &pieces).expect("the pool has room");
        assert_eq!(body.as_bytes().expect("one piece"), pieces.concat());
    }

    #[test]
    fn what_no_buffer_holds_goes_to_several_in_order() {
        let pool = pool(1 << 20);
        let pieces: Vec<Vec<u8>> = (0u8..200).map(|byte| vec![byte; 37]).collect();
        let pieces: Vec<&[u8]> = pieces.iter().map(Vec::as_slice).collect();
        let body = gather((&pool).into(), &pieces).expect("the pool has room");
        assert!(
            matches!(&body, Body::Payload(parts) if parts.parts_count() == 8),
            "{body:?}"
        );
        assert_eq!(body.into_vec().expect("in memory"), pieces.concat());
    }

    #[test]
    fn an_append_without_room_takes_nothing() {
        let pool = pool(64);
        let mut gathered = Gathered::default();
        assert_eq!(gathered.append((&pool).into(), &[1; 60], 0), Ok(()));
        assert_eq!(gathered.append((&pool).into(), &[2; 60], 0), Err(NoRoom));
        assert_eq!(gathered.append((&pool).into(), &[3; 4], 0), Ok(()));
        let body = gathered.take();
        assert_eq!(body.as_bytes().map(<[u8]>::len), Some(64));
    }

    #[test]
    fn an_announced_length_is_not_believed_beyond_a_bound() {
        let pool = Pool::new(PoolConfig {
            classes: vec![1024, BODY_FIRST_BYTES_MAX, 1 << 20],
            budget_bytes: 1 << 21,
            zero: Zero::Never,
        });
        let mut gathered = Gathered::default();
        gathered
            .append((&pool).into(), b"x", u64::MAX)
            .expect("the pool has room");
        assert_eq!(pool.statistics().in_use_bytes, BODY_FIRST_BYTES_MAX);
    }
}
