//! What every protocol may do to its connection while it is called, whatever its types.
//!
//! An [`Io`] collects wishes; the network thread carries them out after the call returns. So a
//! protocol never sees the driver, and no call re-enters it.
//!
//! Cost: every method is O(1); `write` copies its bytes.

mod counts;
mod files;
mod waits;
mod timeouts;
mod who;

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use flatpath_driver::{Driver, Fragment, Piece, Quota, Region, Segment, Socket};
use flatpath_structures::pool::{Buffer, PoolHandle};
use flatpath_structures::slots::Key;

use crate::admission::address_limit::Cells;
use crate::connection::{Closing, Connection};
use crate::error::NoRoom;
use crate::limits::{
    Limits, OUTPUT_BYTES_HIGH, OUTPUT_BYTES_LOW, PIECE_COPY_BYTES_MAX, SHARED_COPY_BYTES_MAX,
    UNCHARGED_BYTES,
};
use crate::memory::pages::PageKind;
use crate::observe::access_log::AccessLog;
use crate::observe::statistics::Counters;
use crate::protocol::common::{Common, Entrance};
use crate::protocol::connection_handle::{ConnectionHandle, ConnectionId};
use crate::protocol::hand_over::{Becomes, HandOver};
use crate::protocol::payload::Payload;
use crate::protocol::turn::Turn;
use crate::server::lifecycle::ServerState;
use crate::server::options::Pages;
use crate::workers::Reservation;

/// Output at which more of a stream is wanted, of which `bytes_max` may be in the output: about
/// half, as a power of two or 0.
pub(crate) fn low_mark(bytes_max: usize) -> usize {
    let half = bytes_max.min(OUTPUT_BYTES_HIGH) / 2;
    half.checked_ilog2().map_or(0, |power| 1 << power)
}

/// The connection that a protocol is called for, and what its network thread lends it.
///
/// # How to end a connection
///
/// | call                       | queued output | what the peer sends      | the peer sees    |
/// |----------------------------|---------------|--------------------------|------------------|
/// | [`Io::close_after_output`] | is sent       | is not read              | an end, or reset |
/// | [`Io::close_lingering`]    | is sent       | is dropped, for a while  | an end           |
/// | [`Io::abort`]              | is dropped    | is dropped               | a reset          |
/// | [`Io::end_input`]          | is sent       | is not read              | nothing yet      |
/// | [`Io::end_output`]         | must be sent  | is read                  | an end           |
///
/// - `close_after_output` where all that the peer sends has been read: it has sent its last byte,
///   or sends nothing before a reply. Otherwise a reset may follow, and take the output with it.
/// - `close_lingering` where the peer may be sending: a refusal, a last reply, a drain.
/// - `abort` where nothing can be said any more: half a reply is out, the peer is hostile.
/// - `end_input` where replies are still to come and no request is wanted; one of the others
///   follows.
/// - `end_output` where the peer is to come to an end by itself, and all that it sends counts.
///
/// The harder of two wishes counts: abort, linger, close. In each case
/// [`Protocol::closed`](crate::Protocol::closed) is called when the connection is gone.
pub struct Io<'a> {
    pub(crate) common: &'a mut Common,
    pub(crate) connection: &'a mut Connection,
    pub(crate) key: Key,
    pub(crate) driver: &'a dyn Peers,
    /// Those of the listener.
    pub(crate) limits: &'a Limits,
    /// The input's piece, and where in it the input begins; `None` for input that was copied.
    pub(crate) source: Option<(&'a Region, &'a Piece, usize)>,
    /// The listener's own region, if it has one, and its id.
    pub(crate) own: Option<(u16, &'a Region)>,
}

flatpath_structures::opaque_debug! {
    impl[] Io<'_> as "Io";
}

/// What an [`Io`] asks of its driver, whichever that is.
pub(crate) trait Peers {
    fn peer_of(&self, socket: Socket) -> Option<SocketAddr>;
    fn local_of(&self, socket: Socket) -> Option<SocketAddr>;
    fn clock_ns(&self) -> u64;
    fn voluntary_switches(&self) -> u64;
}

impl<D: Driver> Peers for D {
    fn peer_of(&self, socket: Socket) -> Option<SocketAddr> {
        let is_open = socket != Socket::unopened();
        is_open.then(|| self.peer(socket))?
    }

    fn local_of(&self, socket: Socket) -> Option<SocketAddr> {
        let is_open = socket != Socket::unopened();
        is_open.then(|| self.local(socket))?
    }

    fn clock_ns(&self) -> u64 {
        Driver::clock_ns(self)
    }

    fn voluntary_switches(&self) -> u64 {
        Driver::voluntary_switches(self)
    }
}

impl Io<'_> {
    pub(crate) fn id(&self) -> ConnectionId {
        ConnectionId {
            key: self.key,
            thread: self.common.number,
            listener: self.connection.listener(),
        }
    }

    /// The pass this call belongs to: its number and its clock.
    pub fn turn(&self) -> Turn {
        self.common.turn
    }

    /// The limits of the connection: the server's, but for those that its listener has of its own.
    pub fn limits(&self) -> &Limits {
        self.limits
    }

    /// Finds out where the connection's address is counted. One system call, the first time.
    pub(crate) fn learn_address(&mut self) {
        if self.connection.holding.cells == Cells::UNKNOWN {
            let (peer, index) = (self.peer(), self.key.index);
            let holding = &mut self.connection.holding;
            self.common.learn(index, holding, peer);
        }
    }

    /// Finds out the address if jobs are counted by it.
    #[inline]
    pub(crate) fn learn_address_if_counted(&mut self) {
        let memory_counts = self.common.shared.memory.pools.counts_addresses();
        let files_count = self.common.admission.counts_addresses();
        if files_count || memory_counts || self.common.dispatcher.counts_jobs_by_address() {
            self.learn_address();
        }
    }

    /// Counts a reservation among those that last, and the connection; false where as many do as
    /// may, or as many of its address.
    ///
    /// The address is always asked for. Of a burst that begins in one turn nothing is counted yet:
    /// what it took without a name would count as another's, and its own address would pay for it.
    pub(crate) fn lasts(&mut self, reservation: &mut Reservation) -> bool {
        self.learn_address();
        let index = self.key.index;
        if !self.common.dispatcher.lasts(reservation, index) {
            return false;
        }
        self.common.admission.long_lived.begin(index);
        true
    }

    /// Where buffers come from; for jobs that prepare output by themselves.
    pub fn pool(&self) -> PoolHandle<'_> {
        let common = &*self.common;
        common.pool(self.key.index)
    }

    /// Where the connection comes from, or goes to: one system call, so keep it. `None` for sockets
    /// without an internet address and when the peer is gone already.
    ///
    /// Behind a load balancer ([`Server::behind_proxy`](crate::Server::behind_proxy)) it is the
    /// client's address, as the balancer has named it: no system call. Where it has named none (a
    /// health check, for one), the balancer's.
    pub fn peer(&self) -> Option<SocketAddr> {
        let client = self.connection.client();
        client.or_else(|| self.driver.peer_of(self.connection.socket()))
    }

    /// The address of this machine that the connection has come to: one system call, so keep it.
    /// `None` for sockets without an internet address, and in the simulation. Behind a load
    /// balancer it is the address that the balancer has connected to.
    pub fn local(&self) -> Option<SocketAddr> {
        self.driver.local_of(self.connection.socket())
    }

    /// Whether the connection has come by a Unix socket: its client has no address, and the
    /// socket's permissions decide who may connect. False for one that was opened.
    pub fn is_unix(&self) -> bool {
        self.entrance().is_unix
    }

    pub(crate) fn entrance(&self) -> Entrance {
        if self.connection.is_opened() {
            return Entrance::default();
        }
        self.common.entrance(self.connection.listener())
    }

    /// The load balancer that a connection has come through: one system call. `None` for one that
    /// came directly.
    pub fn proxy_peer(&self) -> Option<SocketAddr> {
        let peer = || self.driver.peer_of(self.connection.socket());
        self.connection.is_introduced().then(peer)?
    }

    /// The name of this connection, with which any thread can have it called; see
    /// [`ConnectionHandle::wake`]. It costs one reference that all threads count.
    pub fn handle(&self) -> ConnectionHandle {
        ConnectionHandle::new(self.id(), &self.common.wakes)
    }

    /// Splices this connection to another one of the same network thread, after this call: what
    /// arrives on either goes out of the other, with back-pressure and half-close, until both have
    /// ended or one breaks. Input that was not consumed goes along. Both get
    /// [`Event::Spliced`](crate::Event::Spliced), or this one
    /// [`Event::SpliceRefused`](crate::Event::SpliceRefused): the other is gone, is being closed,
    /// is spliced already, or belongs to another thread (see [`Spread`](crate::Spread)).
    pub fn splice(&mut self, other: &ConnectionHandle) {
        self.connection.becomes(Becomes::Spliced(other.id));
    }

    /// Hands this connection over to another protocol, after this call: this one's session is
    /// closed ([`Protocol::closed`](crate::Protocol::closed)), the other gets
    /// [`Event::Connected`](crate::Event::Connected), and is given all input that was not
    /// consumed. What is queued by then is sent first. Phase, deadlines and stalls begin anew, with
    /// `Phase::Head`. Limits and shares stay those of the listener. The end of the connection,
    /// should this call wish it as well, goes before.
    ///
    /// # Errors
    /// The connection cannot be handed over, and the wish is given back: jobs of it are with
    /// workers, it is spliced, it is ending, or its input has ended and this protocol knows.
    ///
    /// Dispatching a job after this aborts the connection: it would come back to a stranger.
    pub fn hand_over(&mut self, wish: HandOver) -> Result<(), HandOver> {
        if !self.connection.may_be_handed_over() {
            return Err(wish);
        }
        self.connection.becomes(Becomes::Successors(wish));
        Ok(())
    }

    /// True from the moment the server began to drain.
    pub fn draining(&self) -> bool {
        self.common.server_state >= ServerState::Draining
    }

    /// True from the moment the server was told to drain, while it still accepts as well: a
    /// protocol that has a word for it says with each reply that it is the last of its connection.
    pub fn leaving(&self) -> bool {
        self.common.server_state >= ServerState::Leaving
    }

    /// Within [`Event::Expired`](crate::Event::Expired): whether the connection is closed
    /// because its place is wanted for another, before its deadline.
    pub fn is_evicted(&self) -> bool {
        self.common.admission.evicts()
    }

    /// Queues a copy of `bytes`, all of it or nothing.
    ///
    /// # Errors
    /// [`NoRoom`] when the memory budget is used up; nothing was queued.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), NoRoom> {
        let pool = self.common.pool(self.key.index);
        self.connection.output_mut().write(pool, bytes)
    }

    /// Queues a reply of several writes, all of it or nothing: when `write` returns an error, what
    /// it queued is taken back. Its other wishes stand.
    ///
    /// # Errors
    /// That of `write`.
    pub fn reply<T, E>(&mut self, write: impl FnOnce(&mut Io<'_>) -> Result<T, E>) -> Result<T, E> {
        let mark = self.connection.output().mark();
        let written = write(self);
        if written.is_err() {
            self.connection.output_mut().roll_back(mark);
        }
        written
    }

    /// The buffer that output goes to next, with room for at least `bytes` more; append to it.
    /// `None` when the memory budget is used up or `bytes` is more than the largest buffer.
    pub fn reserve(&mut self, bytes: usize) -> Option<&mut Buffer> {
        let pool = self.common.pool(self.key.index);
        self.connection.output_mut().reserve(pool, bytes)
    }

    /// Queues shared bytes without a copy; small ones are copied when that is cheaper. They are
    /// dropped on the network thread, at once or when they are sent: bytes of a program, which may
    /// have an owner whose drop blocks, are to be [`guarded`](crate::guarded).
    ///
    /// # Errors
    /// [`NoRoom`] when it had to be copied and the budget is used up; nothing was queued.
    pub fn write_shared(&mut self, bytes: Bytes) -> Result<(), NoRoom> {
        let pool = self.common.pool(self.key.index);
        self.connection.output_mut().write_shared(pool, bytes)
    }

    /// Whether so much of programs waits to be dropped that nothing new of theirs is to be taken:
    /// stall with [`Stall::Memory`], and look again. See [`discard`](crate::discard).
    pub(crate) fn bin_is_full(&self) -> bool {
        self.common.shared.bin.is_full()
    }

    /// Queues constant words. It needs no buffer, so it does not fail when the budget is used up.
    pub fn write_static(&mut self, words: &'static [u8]) {
        let words = Bytes::from_static(words);
        self.connection.output_mut().push(words.into());
    }

    /// Queues what a pooled buffer holds without a copy. The buffer goes back to its pool once
    /// sent.
    pub fn write_buffer(&mut self, buffer: Buffer) {
        let to = u32::try_from(buffer.filled().len()).expect("a pooled buffer is below 4 GiB");
        self.connection.output_mut().push(Segment::Pooled {
            buffer,
            from: 0,
            to,
        });
    }

    /// Keeps `range` of this call's input beyond the call, where it lies: the way to hand a body on
    /// without a copy. Several parts of one input are fine. A connection that holds too many
    /// fragments receives nothing until some are dropped; see
    /// [`Limits::pages_per_connection_max`](crate::Limits::pages_per_connection_max).
    ///
    /// `None` when the input is a remainder that was copied, when as many pages are kept as may be,
    /// and for an empty range. [`Io::retain_or_copy`] helps then.
    ///
    /// # Panics
    /// When the range is beyond the input.
    pub fn retain(&mut self, range: Range<usize>) -> Option<Fragment> {
        if range.is_empty() {
            return None;
        }
        let (region, piece, from) = self.source?;
        let (key, wakes) = (self.key, &self.common.wakes);
        let quota = self
            .connection
            .quota(|| Quota::new(key.to_u64(), Arc::clone(wakes) as _));
        let bytes = range.len() as u64;
        let fragment = region.retain(piece, from + range.start..from + range.end, quota)?;
        self.counters().body_bytes_retained.add(bytes);
        Some(fragment)
    }

    /// As [`Io::retain`], for a part of the input that is known by its slice. `None` also for
    /// bytes that are not of this call's input.
    pub fn retain_slice(&mut self, bytes: &[u8]) -> Option<Fragment> {
        let (region, piece, from) = self.source?;
        let input = region.bytes_of(piece).get(from..)?;
        let at = (bytes.as_ptr() as usize).checked_sub(input.as_ptr() as usize)?;
        let is_within = at <= input.len() && bytes.len() <= input.len() - at;
        is_within
            .then(|| self.retain(at..at + bytes.len()))
            .flatten()
    }

    /// Appends a part of this call's input to a payload: kept where it lies, or copied to pooled
    /// buffers where that cannot be.
    ///
    /// # Errors
    /// [`NoRoom`] when it had to be copied and the budget is used up; nothing was appended.
    pub fn retain_or_copy(&mut self, bytes: &[u8], payload: &mut Payload) -> Result<(), NoRoom> {
        if let Some(fragment) = self.retain_slice(bytes) {
            payload.push(fragment);
            return Ok(());
        }
        self.copy(bytes, payload)
    }

    /// Appends a copy of `bytes` to a payload.
    ///
    /// # Errors
    /// [`NoRoom`] when the budget is used up; nothing was appended.
    pub fn copy(&mut self, bytes: &[u8], payload: &mut Payload) -> Result<(), NoRoom> {
        payload.push_copy(self.pool().for_bulk(), bytes)?;
        self.count_copied(bytes.len());
        Ok(())
    }

    pub(crate) fn counters(&self) -> &Counters {
        self.common.counters(self.connection.listener())
    }

    /// The input that the protocol has left ([`Received::NeedMore`](crate::Received::NeedMore)):
    /// the beginning of a message, when its time is up. Empty while it is given.
    pub fn left_input(&self) -> &[u8] {
        self.connection.inbox().remainder()
    }

    /// Fragments that this connection's users hold now.
    pub fn held(&self) -> u32 {
        self.connection.fragments_held()
    }

    /// Chooses where the next receive goes, from then on. [`Pages::Listener`] means the common
    /// buffers for a protocol without a region.
    pub fn receive_into(&mut self, pages: Pages) {
        let region_id = self.own.map_or(0, |(region_id, _)| region_id);
        self.connection.receive_into(PageKind::of(pages, region_id));
    }

    /// The listener's own region on this network thread.
    pub fn region(&self) -> Option<&Region> {
        self.own.map(|(_, region)| region)
    }

    /// The access log of this network thread, if the server has one
    /// ([`Server::access_log`](crate::Server::access_log)).
    #[inline]
    pub fn access_log(&mut self) -> Option<&mut AccessLog> {
        self.common.access_log.as_mut()
    }

    /// Bytes queued since the connection began, sent or not.
    pub fn output_bytes(&self) -> u64 {
        self.connection.output().bytes_so_far()
    }

    /// Bytes queued and not yet taken by the kernel.
    pub fn queued_bytes(&self) -> usize {
        self.connection.output().queued_bytes()
    }

    /// True when more output should wait until the peer has read: stall with `Stall::Output`.
    pub fn output_is_full(&self) -> bool {
        self.connection.output().queued_bytes() >= OUTPUT_BYTES_HIGH
    }

    /// Asks for one [`Event::OutputLow`](crate::Event::OutputLow) when output has fallen
    /// to the low-water mark; at once, after this call, when it is there already.
    pub fn notify_output_low(&mut self) {
        self.notify_output_below(OUTPUT_BYTES_LOW);
    }

    /// The same for another mark, a power of two, or 0 for all of it. A stall for output ends
    /// there, too.
    pub(crate) fn notify_output_below(&mut self, bytes: usize) {
        self.connection.notify_output_below(bytes);
    }

    /// True when more of a stream should wait, of which `bytes_max` may be in the output.
    #[doc(hidden)]
    pub(crate) fn outgoing_is_full(&self, bytes_max: usize) -> bool {
        self.queued_bytes() >= bytes_max.min(OUTPUT_BYTES_HIGH)
    }

    /// The same for a stream whose bytes are kept elsewhere until they are in the output: while
    /// memory runs short a fair part is enough. Where it is full, the protocol is called when the
    /// output has fallen to a mark.
    #[doc(hidden)]
    pub fn common_is_full(&mut self, bytes_max: usize) -> bool {
        let bytes_max = bytes_max.min(self.common.shared.memory.pools.fair_bytes().max(1));
        let is_full = self.outgoing_is_full(bytes_max);
        if is_full {
            self.notify_output_below(low_mark(bytes_max));
        }
        is_full
    }

    /// Queues a piece of a stream between two framings, as a whole or not at all, and never from
    /// the reserve. Longer than [`PIECE_COPY_BYTES_MAX`](crate::limits::PIECE_COPY_BYTES_MAX) it is
    /// charged already ([`Outbox`](crate::Outbox)).
    ///
    /// # Errors
    /// [`NoRoom`]: there is no memory for a piece that is not charged.
    #[doc(hidden)]
    pub fn write_piece(
        &mut self,
        head: &[u8],
        payload: &Bytes,
        end: &'static [u8],
    ) -> Result<(), NoRoom> {
        let pools = &self.common.shared.memory.pools;
        let (thread, index) = (self.common.number, self.key.index);
        let output = self.connection.output_mut();
        let is_long = payload.len() > PIECE_COPY_BYTES_MAX;
        let queued_bytes = output.queued_bytes();
        let is_read = queued_bytes == 0 && !pools.counts_addresses();
        if (!is_long || is_read && payload.len() <= SHARED_COPY_BYTES_MAX)
            && output.copy_piece(pools.bulk(thread, index), [head, payload, end])
        {
            return Ok(());
        }
        let is_short = queued_bytes + payload.len() <= UNCHARGED_BYTES;
        let payload = match is_long || is_short {
            true => payload.clone(),
            false => pools
                .hold(thread, index, payload.clone())
                .map_err(|_| NoRoom)?,
        };
        output.share_piece(head, payload, end);
        Ok(())
    }

    /// Charges bytes to this connection for as long as they are referenced.
    ///
    /// # Errors
    /// The bytes as they were: there is no bulk memory for them.
    #[doc(hidden)]
    pub fn hold(&mut self, bytes: Bytes) -> Result<Bytes, Bytes> {
        let pools = &self.common.shared.memory.pools;
        pools.hold(self.common.number, self.key.index, bytes)
    }

    /// Queues bytes without a copy, which are charged ([`Io::hold`]), or need no charge.
    #[doc(hidden)]
    pub fn write_held(&mut self, bytes: Bytes) {
        self.connection.output_mut().push(bytes.into());
        self.output_lasts();
    }

    /// Queues what is charged for all connections ([`ConnectionHandle::hold_common`]), and counts
    /// it for this one until it is sent. It needs no memory.
    #[doc(hidden)]
    pub fn write_common(&mut self, payload: &Bytes) {
        let pools = &self.common.shared.memory.pools;
        let (thread, index) = (self.common.number, self.key.index);
        let output = self.connection.output_mut();
        if payload.len() > PIECE_COPY_BYTES_MAX
            || !output.copy_piece(pools.bulk(thread, index), [payload, &[], &[]])
        {
            let held = pools.hold_charged(thread, index, payload.clone());
            output.push(held.into());
        }
    }

    /// Jobs of this connection that are with workers now.
    pub fn jobs_out(&self) -> u32 {
        self.connection.jobs_out()
    }

    /// No more input is wanted, ever (the last request of this connection has been read).
    /// Nothing is received any more; what was received is not given again.
    pub fn end_input(&mut self) {
        self.connection.close(Closing::Input);
    }

    /// Sends FIN after this call and continues to receive: the peer reads the end of this side's
    /// stream, and the protocol is given what it still sends. Nothing may be written afterwards.
    /// False, and nothing happens, where output is queued, or the connection is spliced, handed
    /// over or ending.
    #[must_use = "the peer may not see the end"]
    pub fn end_output(&mut self) -> bool {
        let connection = &mut *self.connection;
        let is_free = !connection.is_becoming() && !connection.is_closing();
        let may_end = is_free && !connection.is_spliced() && connection.is_sent();
        if may_end {
            connection.becomes(Becomes::ReceiveOnly);
        }
        may_end
    }

    /// Sends what is queued, then closes. Right when all that the peer sent has been read.
    pub fn close_after_output(&mut self) {
        self.connection.close(Closing::AfterOutput);
    }

    /// Sends what is queued, then FIN, then reads and drops what still comes until the peer closes
    /// or `linger_timeout` has passed, so that a peer which is still sending can read the answer
    /// instead of a reset (RFC 9112 section 9.6).
    pub fn close_lingering(&mut self) {
        self.connection.close(Closing::Lingering);
    }

    /// Closes at once; queued output is dropped and the peer sees a reset.
    pub fn abort(&mut self) {
        self.connection.close(Closing::Abort);
    }
}
