//! Every bound of the engine in one place, as sums with a comment per term.
//!
//! Constants are what the code is built around; [`Limits`] is what an operator may set.

use std::time::Duration;

use crate::protocol::phase::Phase;

/// Unconsumed input kept for one connection, in bytes. A protocol refuses a head or a record whose
/// unconsumed part would be longer. One buffer of the third class.
pub const INPUT_BYTES_MAX: usize = 64 * 1024;

/// Messages of one connection that may be with workers at a time
/// ([`Framed::at_work_max`](crate::framing::Framed::at_work_max)): as many replies may wait for the
/// one before them.
pub const AT_WORK_MAX: u32 = 256;

/// Output queued on one connection at which [`Io::output_is_full`] begins to hold, in bytes.
///
/// [`Io::output_is_full`]: crate::Io::output_is_full
pub const OUTPUT_BYTES_HIGH: usize = 256 * 1024;

/// Output at which a stalled connection continues, in bytes: low enough that a producer is not
/// asked for every segment, high enough that the socket does not run dry meanwhile.
pub(crate) const OUTPUT_BYTES_LOW: usize = 64 * 1024;

/// Output queued on one end of a spliced pair at which the other is not received from any more, in
/// bytes. With the buffer that was being filled at that time it bounds a direction of a pair; in
/// memory twice as much, in buffers that are half full.
pub(crate) const SPLICE_BYTES_MAX: usize = 256 * 1024;

/// Buffer that a stream between spliced connections is received into and sent from, in bytes.
pub(crate) const SPLICE_FILL_BYTES: usize = 64 * 1024;

/// From this length on what such a stream has brought is moved on by reference, in bytes: below it,
/// the system calls that takes cost more than the copies.
pub(crate) const SPLICE_PULL_BYTES_MIN: usize = 32 * 1024;

/// The most that is moved at once, in bytes: what a fast stream brings until its turn comes again.
pub(crate) const SPLICE_PULL_BYTES_MAX: usize = 1024 * 1024;

/// Pipes of one network thread for that, two descriptors each; with more streams than that under
/// way, the others are copied.
pub(crate) const SPLICE_PIPES_MAX: usize = 64;

/// Shared bytes up to this length are copied after the reply's head: one buffer and one segment
/// cost less than a second segment and a vectored send.
#[doc(hidden)]
pub const SHARED_COPY_BYTES_MAX: usize = 8 * 1024;

/// What may wait for a client without a charge, in bytes: a short message. It is part of what a
/// connection takes.
pub(crate) const UNCHARGED_BYTES: usize = 512;

/// A piece of a stream, or a message of a socket, up to this length is always copied, in bytes:
/// to share it would take as much. A longer one is shared by the queue, the output and other
/// clients, and copied only up to [`SHARED_COPY_BYTES_MAX`] for a client that reads, while memory
/// is plentiful.
pub const PIECE_COPY_BYTES_MAX: usize = 512;

/// Output at which a connection with an outbox is asked for more, as a power of two: by default
/// [`OUTPUT_BYTES_LOW`].
pub(crate) const OUTPUT_LOW_POWER: u8 = OUTPUT_BYTES_LOW.ilog2() as u8;

/// Buffer sizes of the pool, in bytes: a small reply; a full head or record; a stash at its bound;
/// one chunk of a streamed file.
pub const BUFFER_CLASSES: [usize; 4] = [4 * 1024, 16 * 1024, 64 * 1024, 256 * 1024];

/// The part of the budget for buffers that only replies and small requests may use, at least
/// [`RESERVE_BYTES_MIN`] and at most half of it.
pub(crate) const RESERVE_PART: usize = 8;

/// The largest piece of the reserve that bulk of a favoured user gets, as a part of the reserve: a
/// 16th, so that a file comes in pieces of the usual size where the reserve has 1 MiB or more.
pub(crate) const PIECE_PART: usize = 16;

/// The least of such a reserve, in bytes: 64 replies of the smallest buffer.
pub(crate) const RESERVE_BYTES_MIN: usize = 256 * 1024;

/// What counts as small there, in bytes: a buffer of the second class, for a head or a record as
/// most clients send them.
pub(crate) const RESERVE_TAKE_MAX: usize = BUFFER_CLASSES[1];

/// A connection that holds this much gets nothing from the reserve, in bytes: a kept request, the
/// beginning of its reply, and the 36 KiB that one of HTTP/2 holds beside them. Without it 40 short
/// replies that one client does not read take the reserve that is there for the requests of all.
pub(crate) const RESERVE_HELD_MAX: usize = 4 * RESERVE_TAKE_MAX;

/// The part of the budget that one connection may hold before its own input stalls, at least
/// [`SHARE_BYTES_MIN`].
pub(crate) const SHARE_PART: usize = 16;

/// The least of such a share, in bytes: a reply with data of 1 MiB on its way out, and the next
/// one.
pub(crate) const SHARE_BYTES_MIN: usize = 2 * 1024 * 1024;

/// Places in each of the two rows in which addresses' holdings are counted: 32 KiB in all.
pub(crate) const ADDRESS_ROW: usize = 4096;

/// An address that holds less than this part of the budget is a light user of it
/// (`PoolHandle::for_light_user`): 64 such addresses fit a quarter.
pub(crate) const LIGHT_PART: usize = 256;

/// Places of the table in which connections that hold memory are counted for their address, each
/// [`WEIGH_PERIOD_NS`], from a quarter of the budget in use on.
pub(crate) const COUNTED_PER_LOOK: u32 = 256;

/// The part of its share that a connection's unsent replies may take.
pub(crate) const UNSENT_PART: usize = 4;

/// The part of the places for jobs in flight that jobs which last leave to the others: streams and
/// uploads whose clients are slow keep their place for as long.
pub(crate) const SHORT_PART: usize = 4;

/// Descriptors that are not connections: standard streams 3, listeners up to 16, per network thread
/// ring + eventfd + epoll 3 (8 threads: 24), connections beyond the limit `OVERFLOW_MAX`, signals
/// and logs 5.
pub const DESCRIPTORS_RESERVED: u64 = 3 + 16 + 24 + OVERFLOW_MAX as u64 + 5;

/// Descriptors without which a server with one network thread does not start: standard streams 3,
/// signals and logs 5, a listener, ring + eventfd + epoll 3, a handful of connections and files.
pub const DESCRIPTORS_MIN: u64 = 3 + 5 + 1 + 3 + 12;

/// The same for each network thread more: ring + eventfd + epoll 3, a listener.
pub(crate) const DESCRIPTORS_PER_THREAD: u64 = 3 + 1;

/// A connection limit that the descriptors lowered below this is worth a warning at start.
pub(crate) const CONNECTIONS_FEW: u64 = 1_000;

/// The part of the descriptors for connections and files that is left for other connections when
/// each file that is held has a connection of its own, at least [`CONNECTIONS_PART_MIN`]. With
/// 1,024 descriptors: 1,024 - [`DESCRIPTORS_RESERVED`] = 960, of these a quarter 240, and half of
/// the other 720 for files: 360 downloads with a file each beside their sockets.
pub(crate) const CONNECTIONS_PART: usize = 4;

/// The least of that part, unless that is more than half of the room.
pub(crate) const CONNECTIONS_PART_MIN: usize = 16;

/// The part of what files may hold, and of the places for jobs that last, that is granted beyond
/// the bound to addresses which have little of it (`admission/address_limit.rs`).
pub(crate) const NEWCOMERS_PART: usize = 8;

/// Connections that last and are looked at in one turn to find one whose address has more than its
/// share.
pub(crate) const LONG_LIVED_STEPS_MAX: usize = 256;

/// Of those, how many are ended in one turn.
pub(crate) const LONG_LIVED_ENDED_MAX: usize = 64;

/// Resting connections closed in one turn because files took their descriptors: as many as
/// files can have taken beyond the room.
pub(crate) const SHED_PER_TURN_MAX: usize = DESCRIPTORS_SPARE;

/// Descriptors that workers find free for files after the kernel had none left for a connection.
pub(crate) const DESCRIPTORS_SPARE: usize = 8;

/// The part of the room for descriptors that caches leave free, at least [`DESCRIPTORS_SPARE`]:
/// newcomers of one moment find it, and the caches close more until the next.
pub(crate) const CACHE_FREE_PART: usize = 16;

/// How long accept, or a worker that needs descriptors, waits for caches to close what they have,
/// in nanoseconds. That takes milliseconds, unless a file system hangs or the machine is busy.
pub(crate) const CACHES_PATIENCE_NS: u64 = 1_000_000_000;

/// How often accept looks whether caches have given descriptors back, in nanoseconds.
pub(crate) const CACHES_LOOK_NS: u64 = 2_000_000;

/// Bytes of a connection's output that the kernel has taken and not sent, at most: with what is on
/// its way, enough for 10 Gbit/s of one client that is served again after 100 us.
pub(crate) const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Connections that may wait in the kernel's backlog of one listener.
pub(crate) const BACKLOG: i32 = 4096;

/// How long an address in use is tried again: the kernel lets go of the listeners of a thread some
/// milliseconds after its process was killed.
pub(crate) const BIND_PATIENCE: Duration = Duration::from_secs(1);

/// Time between two tries.
pub(crate) const BIND_PAUSE: Duration = Duration::from_millis(20);

/// Between two looks at a limit for which jobs wait: a stuck one keeps them for this much longer
/// than [`WaitLimits::stuck_after`](crate::workers::blocking::WaitLimits::stuck_after).
pub(crate) const STUCK_LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// With fewer free places than this, accept takes one at a time, so that a burst cannot take a
/// multishot accept past the connection limit.
pub(crate) const ACCEPT_ONE_BY_ONE: usize = 1024;

/// How often within `write_timeout` it is looked up whether the peer of a send that takes long
/// acknowledges anything. A peer that stops reading is cut off after `write_timeout` and one more
/// part of it at most.
pub(crate) const WRITE_LOOKS: u32 = 4;

/// How often a send begins its `write_timeout` anew for a peer that acknowledges nothing, but whose
/// TCP answers: a reader of 1 kB/s with a receive buffer of megabytes does for minutes.
pub(crate) const WRITE_SPARED_MAX: u8 = 9;

/// Connections of one address, or of one listener that has as many as it may, that a newcomer's
/// accept looks at to find one that rests.
pub(crate) const PAYER_STEPS_MAX: usize = 64;

/// Input longer than one part in this many of a common receive page is given at the end of a
/// turn: 1 KiB of 16 KiB, the head of a browser's request or 25 of the shortest.
pub(crate) const AT_ONCE_PART: usize = 16;

/// The part of a common receive page that a connection may bring at a time while others wait for
/// the end of the turn, and not be bulk.
pub(crate) const BULK_PART: usize = 4;

/// From the beginning of a turn, input that takes long is read for this time, in nanoseconds;
/// the rest waits for the next turn. A page of the shortest requests takes as long.
pub(crate) const TURN_LONG_INPUT_NS: u64 = 500_000;

/// However little time they take, as many pages are read so in one turn, of connections that
/// bring much and of others each.
pub(crate) const LONG_INPUT_PER_TURN_MAX: usize = 256;

/// Requests that a network thread tries itself in one turn; see `workers/prompt.rs`. With more at
/// hand, the workers' processors have something to do too.
pub(crate) const PROMPT_TRIES_MAX: u32 = 8;

/// Tries of one turn take this long at most, in nanoseconds, before the others go to workers: as
/// long as a worker needs to be woken on another processor, a few times.
pub(crate) const PROMPT_TURN_NS_MAX: u64 = 200_000;

/// A try that takes so long may have waited, in nanoseconds. A hundred times what it should take.
pub(crate) const PROMPT_TRY_NS_MAX: u64 = 2_000_000;

/// Tries of a place on trial, each with two system calls more.
pub(crate) const PROMPT_TRIAL_TRIES: u8 = 64;

/// One try that takes so long costs its place the right at once, in nanoseconds: longer than a
/// thread that may run is kept from a processor, and less than a client notices.
pub(crate) const PROMPT_BLOCKED_NS: u64 = 100_000_000;

/// How long the first loss of the right lasts, in milliseconds.
pub(crate) const PROMPT_PAUSE_MS_MIN: u64 = 10_000;

/// The pause doubles up to this, in milliseconds; a place without a loss for as long begins anew.
pub(crate) const PROMPT_PAUSE_MS_MAX: u64 = 3_600_000;

/// Receive pages are scarce when fewer than one in this many are free; long input is bulk then.
pub(crate) const SCARCE_PAGES_PART: u32 = 4;

/// Pages that bulk connections may have received into and not been given yet; the receives of
/// as many are armed in a turn, and of one at least.
pub(crate) const BULK_PER_TURN_MAX: usize = 16;

/// Short receives in a row after which a connection is bulk no more.
pub(crate) const SPARSE_RECEIVES: u8 = 8;

/// Connections closed for one newcomer at most, so that the spare places come back.
pub(crate) const EVICTIONS_PER_ACCEPT_MAX: usize = 2;

/// Entries of a list that are inspected to find the connection that has rested longest.
pub(crate) const EVICTION_STEPS_MAX: usize = 32;

/// One place in this many is kept free by closing what rests, so that a burst finds room.
pub(crate) const SPARE_PLACES_SHARE: usize = 16;

/// Connections beyond the limit: those that are closed for others, and newcomers that are refused.
/// Their descriptors are among [`DESCRIPTORS_RESERVED`].
pub(crate) const OVERFLOW_MAX: usize = 16;

/// Of those, how many may linger so that their clients can read why they are refused.
pub(crate) const OVERFLOW_LINGERING_MAX: usize = 8;

/// With every place taken and nothing at rest, newcomers wait in the backlog for so long, in
/// nanoseconds, before they are refused: short requests end meanwhile.
pub(crate) const FULL_PATIENCE_NS: u64 = 100_000_000;

/// What rests for less than this, in nanoseconds, is closed for a newcomer last: a client between
/// two requests, or a head that is on its way.
pub(crate) const SPARED_NS: u64 = 1_000_000_000;

/// A connection that begins to rest again goes to the back of its list only if it was put there so
/// long ago, in nanoseconds: where requests follow each other, each costs a comparison.
pub(crate) const REST_STEP_NS: u64 = SPARED_NS / 4;

/// Pause between two accepts on a socket that does not listen yet, in nanoseconds.
pub(crate) const LISTEN_PAUSE_NS: u64 = 2_000_000;

/// Pause after the kernel refused a descriptor, when no connection closes before, in nanoseconds.
pub(crate) const ACCEPT_PAUSE_NS: u64 = 100_000_000;

/// One tick of the timer wheel, in nanoseconds (about 8.4 ms): deadlines are seconds.
pub(crate) const TICK_NS: u64 = 1 << 23;

/// Slots of the wheel: 4096 ticks are 34 s; later deadlines go round.
pub(crate) const WHEEL_SLOTS: u32 = 4096;

/// Of the jobs that workers take, one in this many is one that comes after others
/// ([`Context::dispatch_after_others`](crate::Context::dispatch_after_others)), if any waits.
pub const AFTER_OTHERS_PART: u64 = 8;

/// The part of the workers that each kind of work has for itself which is not to wait for handlers
/// ([`KeptWork`](crate::KeptWork)), one worker at least; with fewer workers all kinds have one.
pub const KEPT_PART: u32 = 16;

/// The part of the workers, and of the places for jobs, that jobs which come after others leave to
/// those that do not, if there are so many: an address whose handlers wait leaves some to others.
pub const OTHERS_PART: u32 = 16;

/// Jobs of one network thread that wait or run, from which on it counts for which address, or
/// fewer, if these are more than its part of [`JOBS_WEIGHED_PART`] of the workers. Each waits for
/// this number at most, a few milliseconds.
pub(crate) const JOBS_WEIGHED: usize = 32;

/// As many jobs may be of one address, or [`JOBS_ADDRESS_PARTS`] of the workers with those that
/// were not counted; those above its share come after others.
pub(crate) const JOBS_PER_ADDRESS: usize = 64;
/// A quarter of the workers is taken before jobs are counted by address.
pub(crate) const JOBS_WEIGHED_PART: usize = 4;
/// Thirteen sixteenths, and less where its listener may have no more (`concurrency_limit.rs`).
pub(crate) const JOBS_ADDRESS_PARTS: usize = 13;

/// A sampling period of the scaler: work that waited this long with every worker busy starts
/// another worker.
pub(crate) const GROWTH_PERIOD: Duration = Duration::from_millis(1);

/// Between two attempts to start a worker while the kernel refuses threads, at most. The first is
/// repeated after [`GROWTH_PERIOD`], and each wait doubles.
pub(crate) const GROWTH_RETRY_MAX: Duration = Duration::from_secs(1);

/// A send of no more than this is short and never waits for the next turn, in bytes.
pub(crate) const SHORT_SEND_BYTES_MAX: usize = 16 * 1024;

/// How long it may go unnoticed that a reply has been sent, with its memory and its deadline, while
/// nothing else happens on its network thread, in nanoseconds.
pub(crate) const RESTING_NS_MAX: u64 = 50_000_000;

/// Bytes of sends that are started in one turn before long ones wait for the next: about half a
/// millisecond of copying.
pub(crate) const LONG_SENDS_BYTES: usize = 1024 * 1024;

/// Completions handled in one turn; the rest waits for the next. It bounds the buffers that one
/// turn can need before its sends are submitted: 256 of the smallest class are 1 MiB.
pub(crate) const TURN_COMPLETIONS_MAX: usize = 256;

/// Connections called in one turn because they were woken; the rest waits for the next. With a send
/// each, they take less than a tenth of a millisecond: a request waits for two turns, or for four
/// with a worker, while events go out to all.
pub(crate) const TURN_WOKEN_MAX: usize = 8;

/// Connections told in one turn that the server drains. A goodbye takes the smallest buffer each
/// until it is sent: 512 KiB.
pub(crate) const TOLD_PER_TURN_MAX: usize = 128;

/// New connections handled in one turn, after the completions of open ones: with a request each,
/// they take a millisecond or two.
pub(crate) const TURN_ACCEPTS_MAX: usize = 64;

/// Queues by address of what waits to be admitted. Two addresses in one wait for each other.
pub(crate) const ARRIVAL_QUEUES: usize = 1024;

/// The longest datagram that is received, and the longest reply to one, in bytes: what RPC over UDP
/// has by custom (`UDPMSGSIZE`, 8,800) is a little more, which no program here needs. Both together
/// fit a buffer of the second class.
pub const DATAGRAM_BYTES_MAX: usize = BUFFER_CLASSES[1] / 2;

/// How many times as long as its request a reply may be that goes to an address which has proved
/// nothing: as much as a QUIC server may send (RFC 9000, 8.1).
pub const AMPLIFICATION_MAX: usize = 3;

/// Datagrams of one network thread that workers answer, or that wait for one. With a request and a
/// reply of the second class each, 4 MiB.
pub const DATAGRAMS_AT_WORK_MAX: usize = 128;

/// As many of them may be of one address, so that another finds room.
pub(crate) const DATAGRAMS_PER_ADDRESS: usize = DATAGRAMS_AT_WORK_MAX / 2;

/// Workers that the datagrams of one listener may occupy.
pub(crate) const DATAGRAM_WORKERS_MAX: u32 = 4;

/// How long after a socket of a network thread has lost a datagram an address has a bound, in
/// nanoseconds.
pub(crate) const DATAGRAM_LOSS_NS: u64 = 1_000_000_000;

/// The time in which it has its share of [`DATAGRAMS_PER_WINDOW`] answers, in nanoseconds.
pub(crate) const DATAGRAM_WINDOW_NS: u64 = 10_000_000;

/// Answers that addresses share in one window: 25,600 in a second, a tenth of a processor's time.
pub(crate) const DATAGRAMS_PER_WINDOW: usize = 256;

/// Most answers of a window, which ends early then: more addresses than that can only be forged.
pub(crate) const DATAGRAMS_WINDOW_MAX: usize = 16 * DATAGRAMS_PER_WINDOW;

/// Pages of a network thread that datagrams are received into: as many are handled in one turn at
/// most.
pub(crate) const DATAGRAM_PAGES: u32 = 64;

/// The part of a region's pages that stalled connections leave to the others.
pub(crate) const HELD_PAGES_LEFT_PART: usize = 4;

/// Connections stalled without room that try again in one turn, for each kind of room.
pub(crate) const RETRIES_MAX: usize = 64;

/// Of these, how many may fail before the others wait for the next turn.
pub(crate) const RETRY_FAILURES_MAX: u32 = 8;

/// Connections looked at in one turn, of those that wait for a page of one kind, while pages are
/// free; the rest follows in the next turn, which comes at once.
pub(crate) const STARVED_PER_TURN_MAX: usize = 256;

/// How often a network thread looks whether memory runs short, in nanoseconds.
pub(crate) const WEIGH_PERIOD_NS: u64 = 1_000_000;

/// How long connections wait for memory before holders of it are ended, in nanoseconds: what is on
/// its way out may come back by itself.
pub(crate) const RELIEF_WAIT_NS: u64 = 100_000_000;

/// The time between two rounds of that, in nanoseconds.
pub(crate) const RELIEF_PERIOD_NS: u64 = 10_000_000;

/// The part of the budget for buffers that is to be free when holders of it have been ended, at
/// most: what waits then takes a share of it in each turn.
pub(crate) const RELIEF_PART: usize = 16;

/// Holders of memory that are ended in one round.
pub(crate) const HOLDERS_ENDED_MAX: usize = 16;

/// Holders that are asked in one round to hand on what they hold.
pub(crate) const FLUSHED_PER_ROUND_MAX: usize = 64;

/// Holders that one round looks at.
pub(crate) const HOLDER_STEPS_MAX: u32 = 256;

/// Over how long a holder of memory is watched before it counts as one that moves little, in
/// nanoseconds: more than twice a second, which is how often a slow client may send.
pub(crate) const HOLDER_WINDOW_NS: u64 = 2_200_000_000;

/// A holder moves little when fewer bytes moved than this part of what it holds.
pub(crate) const MOVES_PART: usize = 16;

/// After this time of shortage in which every holder moved, those that hold most are ended, in
/// nanoseconds: well before those that wait are refused.
pub(crate) const SHORTAGE_NS_MAX: u64 = 2_500_000_000;

/// Idle pooled memory is given back at this interval, in nanoseconds, except as much as is in use
/// and [`IDLE_BYTES_KEPT`].
pub(crate) const TRIM_PERIOD_NS: u64 = 1_000_000_000;

/// Idle pooled memory that is always kept, in bytes.
pub(crate) const IDLE_BYTES_KEPT: usize = 1024 * 1024;

/// Jobs of a listener that are kept for its next requests even when none is needed.
pub(crate) const SPARE_JOBS_KEPT: usize = 64;

/// Jobs that were not needed for a [`TRIM_PERIOD_NS`] are freed, at most this number at a time:
/// freeing one takes a fraction of a microsecond, and all else waits meanwhile.
pub(crate) const SPARE_JOBS_TRIMMED_MAX: usize = 1024;

/// Connections looked at in one turn after limits have changed: a few tens of microseconds.
pub(crate) const RELIMITED_PER_TURN: u32 = 1024;

/// A job that has waited so long for the concurrency limit of its listener is worth a line in the
/// log, in nanoseconds.
pub(crate) const LISTENER_PATIENCE_NS: u64 = 1_000_000_000;

/// A connection lingers for this many times [`Limits::linger_timeout`] at most, however fast its
/// client sends: with the default a minute, in which 1 GiB comes at 150 Mbit/s.
pub const LINGER_TIMES_MAX: u32 = 12;

/// Bytes of a large page that are appended at a time to a remainder before it: enough for most
/// heads, so that the rest of the page is given where it lies.
pub(crate) const APPEND_BYTES_MAX: usize = 4 * 1024;

/// Bounds an operator may set. All durations are deadlines, none is a hint.
///
/// ```
/// use std::time::Duration;
///
/// use flatpath::{Limits, Server};
///
/// let limits = Limits {
///     connections_max: 10_000,
///     connections_per_address: 100,
///     idle_timeout: Duration::from_secs(30),
///     ..Limits::default()
/// };
/// let server = Server::new().limits(limits);
/// # drop(server);
/// ```
#[derive(Clone, Debug)]
pub struct Limits {
    /// Connections at once. Zero: as many as the descriptor limit allows after
    /// [`DESCRIPTORS_RESERVED`], at most 100,000 by default.
    pub connections_max: usize,
    /// Connections at once of one IPv4 address or one IPv6 /64; zero for no limit, the default:
    /// behind a proxy all clients have one address. A limit costs one system call per connection,
    /// and is shared out over the network threads as `connections_max` is. With as many, the
    /// address's own longest idle connection is closed for its next one, or that is refused.
    pub connections_per_address: usize,
    /// Memory for all pooled buffers (input kept, output queued, chunks with workers), in bytes.
    pub buffer_bytes_max: usize,
    /// Fragments of receive pages that one connection's users may hold; with more it receives
    /// nothing until they hold half of it.
    pub pages_per_connection_max: u32,
    /// Requests with workers or queued for them, over all connections of one network thread.
    pub in_flight_max: usize,
    /// Workers that the jobs of one listener may occupy at a time, over all network threads; the
    /// others wait. Zero: with several listeners each leaves the others their part of a quarter of
    /// all workers, one at least; with one listener no limit.
    /// [`ListenerOptions::workers_max`](crate::ListenerOptions::workers_max) sets it for one
    /// listener.
    pub workers_per_listener: u32,
    /// From accept, or from a request's first byte, to the end of its head.
    pub head_timeout: Duration,
    /// Between requests.
    pub idle_timeout: Duration,
    /// Longest silence within a body, before its first byte too; as nginx's
    /// `client_body_timeout`. What a body is ahead of its minimum rate counts for no more than
    /// this.
    pub body_timeout: Duration,
    /// Bytes per second that a body must bring on average, apart from that time.
    pub body_rate_min: u64,
    /// Without any progress in sending: neither does the socket take bytes, nor does the peer
    /// acknowledge any. A peer whose window is closed and whose TCP answers has ten times as long.
    pub write_timeout: Duration,
    /// Stalled without room in the server before the request is refused.
    pub stall_timeout: Duration,
    /// In [`Phase::Wait`].
    pub wait_timeout: Duration,
    /// In [`Phase::Push`]: how long nothing is said at most.
    pub push_interval: Duration,
    /// Between spliced connections without a byte in either direction.
    pub spliced_timeout: Duration,
    /// Longest silence of a client whose connection is being closed while it may be sending: what
    /// it sends is dropped, so that it can read the last reply, which a reset would take from it
    /// (RFC 9112 section 9.6). What comes has to keep [`body_rate_min`](Self::body_rate_min), and
    /// ends after [`LINGER_TIMES_MAX`] times this, or once this in a drain. Such a connection gives
    /// way when another needs its place.
    pub linger_timeout: Duration,
    /// How long a server that is to drain still accepts, so that a load balancer learns of it
    /// first: see [`ServerState::Leaving`](crate::ServerState::Leaving).
    pub drain_delay: Duration,
    /// From the start of a drain until what is left is cut off. A second later the server has
    /// ended, whatever hangs.
    pub drain_timeout: Duration,
    /// How long a drain leaves idle connections open, so that requests that are on their way are
    /// answered (with the word that they are the last) and not lost.
    pub drain_idle_timeout: Duration,
}

impl Limits {
    /// What one connection may hold of the memory for buffers before its own input stalls, in
    /// bytes.
    pub fn share_bytes(&self) -> usize {
        (self.buffer_bytes_max / SHARE_PART).max(SHARE_BYTES_MIN)
    }

    /// Replies of one connection that may be on their way at once, with workers or queued, in
    /// bytes: a part of its share, so that replies alone never stall its input, and room for two
    /// of the largest. A protocol whose calls may bring large replies asks before it dispatches.
    pub fn unsent_bytes_max(&self) -> usize {
        (self.share_bytes() / UNSENT_PART).max(SHARE_BYTES_MIN)
    }

    /// How long a connection may be in a phase; for a body, how long it may be silent. Zero for
    /// [`Phase::Timed`], whose end the protocol sets. `None`: no limit.
    pub fn of_phase(&self, phase: Phase) -> Option<Duration> {
        match phase {
            Phase::Idle => Some(self.idle_timeout),
            Phase::Head => Some(self.head_timeout),
            Phase::Body => Some(self.body_timeout),
            Phase::Wait => Some(self.wait_timeout),
            Phase::Push => Some(self.push_interval),
            Phase::Spliced => Some(self.spliced_timeout),
            Phase::Timed => Some(Duration::ZERO),
            Phase::Work => None,
        }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections_max: 0,
            connections_per_address: 0,
            buffer_bytes_max: 256 * 1024 * 1024,
            pages_per_connection_max: 32,
            in_flight_max: 16 * 1024,
            workers_per_listener: 0,
            head_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            body_timeout: Duration::from_secs(60),
            body_rate_min: 512,
            write_timeout: Duration::from_secs(60),
            stall_timeout: Duration::from_secs(5),
            wait_timeout: Duration::from_secs(600),
            push_interval: Duration::from_secs(15),
            spliced_timeout: Duration::from_secs(3600),
            linger_timeout: Duration::from_secs(5),
            drain_delay: Duration::ZERO,
            drain_timeout: Duration::from_secs(30),
            drain_idle_timeout: Duration::from_millis(500),
        }
    }
}
