//! The interface that io_uring, epoll and the simulation share: [`Driver`] has the promises of both
//! sides.
//!
//! Where an operation is implemented, and where the rules are that every driver keeps for it:
//!
//! | operation    | `uring/`                  | `epoll/`       | `simulation/` | rules           |
//! |--------------|---------------------------|----------------|---------------|-----------------|
//! | accept       | `accept`, `accept_shared` | `accept`       | `accept`      | `socket.rs`     |
//! | connect      | `connect`                 | `connect`      | `connect`     | `remote.rs`     |
//! | receive      | `receive`                 | `receive`      | `receive`     | `statistics.rs` |
//! | recv_into    | `recv_into`               | `recv_into`    | `receive`     | `completion.rs` |
//! | splice_from  | `recv_into`               | `recv_into`    | `receive`     | `pipe.rs`       |
//! | datagrams    | `datagrams`               | `datagrams`    | `datagrams`   | `datagram.rs`   |
//! | send         | `send`                    | `send`         | `send`        | `segment.rs`    |
//! | poll_eventfd | `poll_eventfd`            | `poll_eventfd` | `progress`    | `eventfd.rs`    |
//! | close, abort | `close`                   | `close`        | `close`       | `socket.rs`     |
//! | cancel       | `cancel`                  | `close`        | `close`       | `operations.rs` |
//! | wait, wake   | `mod`, `wake`             | `mod`          | `mod`         | `waker.rs`      |
//!
//! The three are apart, each below its driver, because they work on what is private there: a ring
//! and what the kernel may still touch, a table of readiness, a world. A rule that two of them
//! would repeat is with the type that it is about, in the last column.
//!
//! Ordering
//! - E1 wake: publish, `wake` (fence, look at the sleeping flag) -> `wait` (set the flag, fence,
//!   ask `ready`): either the waker sees the flag, or `ready` sees what was published.

use std::io;
use std::net::SocketAddr;
use std::ops::RangeInclusive;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use flatpath_structures::pool::Buffer;
use flatpath_sys::tcp::Delivery;

use crate::completion::{Completion, Errno, Outcome, Piece};
use crate::datagram::DatagramSocket;
use crate::eventfd::Eventfd;
use crate::file_range::FileRange;
use crate::lent::Lent;
use crate::pipe::{Piped, Pipes};
use crate::region::Region;
use crate::remote::Remote;
use crate::segment::SendList;
use crate::socket::{Listener, Socket};
use crate::statistics::DriverStatistics;
use crate::waker::Waker;

/// The largest user_data: the two bits above are the driver's.
pub const USER_DATA_MAX: u64 = (1 << 62) - 1;

/// How often an operation completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
// Exhaustive: an operation completes once or more often.
pub enum OperationMode {
    /// Once; its only completion has `more` false.
    Single,
    /// Until it fails, is cancelled, ends (end of stream), or the driver ends it early: for lack of
    /// room, or to leave room to others. The final completion may carry a connection or bytes like
    /// any other.
    Multishot,
}

/// The next step for the socket after the last byte of a send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum AfterSend {
    /// It stays open.
    KeepOpen,
    /// It stays open, and until something else happens the caller has nothing to do with the
    /// completion: it comes late (D7).
    Rest,
    /// It is closed. When the send fails, it is not: the caller closes.
    Close,
}

/// The end of an empty send: no byte is sent, and the socket is closed if it is to be.
pub(crate) fn send_nothing(driver: &mut impl Driver, socket: Socket, after: AfterSend) -> Outcome {
    let closed = after == AfterSend::Close;
    if closed {
        driver.close(socket);
    }
    Outcome::Sent { bytes: 0, closed }
}

/// Which operation [`Driver::cancel`] means.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// The accept on this listener.
    Accept(&'a Listener),
    /// The receive, or the recv_into, on this socket.
    Receive(Socket),
    /// The send on this socket.
    Send(Socket),
    /// The connect of this socket.
    Connect(Socket),
    /// The poll of this eventfd.
    PollEventfd(&'a Arc<Eventfd>),
    /// The receive of datagrams on this socket.
    ReceiveDatagrams(&'a Arc<DatagramSocket>),
}

/// An event loop's way to the kernel, in the order of this page:
///
/// | group                  | methods                                     | promises       |
/// |------------------------|---------------------------------------------|----------------|
/// | turns and time         | `wait` to `voluntary_switches`              | C7, D3, D6, D7 |
/// | connections that come  | `accept` to `local`                         | C2, C6, D1, D2 |
/// | connections to open    | `socket`, `connect`                         | C2, C9, D9     |
/// | bytes in               | `receive` to `lend`                         | C2, C8, D1, D2 |
/// | pages that they lie in | `region` to `recycle`                       | C5, C6, D6     |
/// | bytes out              | `send` to `delivery`                        | C2, C3, D4, D7 |
/// | without a connection   | `receive_datagrams`, `poll_eventfd`         | C2, D1, D8     |
/// | ends                   | `shutdown_write` to `cancel`                | C3, C4, C8, D1 |
/// | the driver itself      | `kind`, `statistics`, its drop              | D5             |
///
/// One trait and not one for each group: a driver has all groups, most promises span several, and
/// generic code of a caller works with one driver that has them all.
///
/// The caller promises (the simulation asserts it, and the others where that costs little)
/// - C1: user_data is at most [`USER_DATA_MAX`], and no two live operations have the same one.
/// - C2: one receive (or recv_into) and one send at a time per socket, and one connect ever; one
///   accept at a time per listener; one poll at a time per eventfd; one receive at a time per
///   socket of datagrams.
/// - C3: no operation is outstanding on a socket that is closed or aborted; a send is not
///   outstanding on a socket whose writing side is shut down.
/// - C4: a closed socket is not used again. A send with [`AfterSend::Close`] closes it as soon as
///   its final completion says `closed`.
/// - C5: every [`Piece`] is recycled once, to the driver it came from.
/// - C6: every [`Outcome::Accepted`](crate::Outcome::Accepted) is closed and every piece recycled,
///   also when the caller no longer knows its user_data (a late completion after a cancel).
/// - C7: all methods are called from the thread that made the driver.
/// - C8: what was lent of a socket ([`Driver::lend`]) is taken back before the next receive from
///   it, and before it is closed or aborted.
/// - C9: between [`Driver::socket`] and `Connected` nothing but the connect is started on a socket;
///   one whose connect has failed is only closed or aborted.
///
/// The driver promises
/// - D1: an operation has any number of completions with `more`, then exactly one without. Only
///   that flag tells whether it has ended; neither a success nor an error does. The last one may
///   bring a connection or bytes as well.
/// - D2: completions of one operation come in order; those of different operations in any order.
/// - D3: completions come out of [`Driver::wait`] only.
/// - D4: it owns a send list until the final completion, and frees each segment as it is sent.
/// - D5: dropping the driver ends every operation first, and closes the sockets still open; memory
///   the kernel may write to outlives the kernel's use of it.
/// - D6: a wait before which pages of a region were awaited returns while one of them is free,
///   whichever thread gave it back and whenever it did.
/// - D7: a wait does not end because a short send with [`AfterSend::Rest`] went through. The
///   completion comes when the wait ends for another reason; after [`Driver::hurry`] it is one. A
///   failure, and a socket without room, end a wait like those of any send.
/// - D8: a datagram comes whole, or says that it is cut; an empty one comes, too. It comes once,
///   with its own sender. What is reported for another one (ICMP) ends no receive. Of one socket
///   and in one wait, no more come than the region has pages, and on epoll at most 64.
/// - D9: a connect completes once: with `Connected`, when the peer's kernel has accepted and before
///   any byte is received, or with the reason for which it never will. For how long a peer that
///   does not answer is awaited is the caller's to say, with a cancel. The socket stays open
///   either way.
///
/// A method that takes the number of a region panics when there is no such region: 0 is the common
/// one, the others are those of [`DriverConfig::regions`](crate::DriverConfig::regions) in order.
///
/// Cost: every method is O(1); system calls are made in [`Driver::wait`], except where a method
/// says otherwise and when a submission queue is full.
pub trait Driver {
    // Turns and time.

    /// Submits everything started since the last call, waits for completions and appends them.
    ///
    /// Returns at the latest after `timeout_ns` (`None`: no limit; zero: at once), earlier with
    /// completions, after a wake-up, on a signal, and at once when `ready` says that the caller has
    /// other work. `ready` is asked after this thread has published that it sleeps (E1), so that
    /// work pushed before a [`Waker::wake`](crate::Waker::wake) is never slept on. It also returns
    /// for pages that are awaited ([`Driver::await_pages`]). All receives that a driver makes for
    /// one call happen before it returns.
    ///
    /// # Errors
    /// Only what the driver cannot recover from, with the reason in words: completions were lost
    /// (EBADR), or the kernel refuses the call.
    fn wait(
        &mut self,
        timeout_ns: Option<u64>,
        ready: &dyn Fn() -> bool,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()>;

    /// The next [`Driver::wait`] ends for the completion of any send (D7). Holds for one wait.
    fn hurry(&mut self);

    /// A handle with which any thread ends a [`Driver::wait`].
    fn waker(&self) -> Waker;

    /// Nanoseconds of a monotonic clock, read once at the end of each [`Driver::wait`].
    fn now_ns(&self) -> u64;

    /// Nanoseconds of the same clock, read in this call, without a system call.
    fn clock_ns(&self) -> u64 {
        crate::clock::monotonic_ns()
    }

    /// Seconds since 1970, read once per [`Driver::wait`]; for dates, not for durations.
    fn wall_seconds(&self) -> u64;

    /// How often the calling thread has slept since it began: its voluntary context switches. One
    /// system call, none in the simulation.
    fn voluntary_switches(&self) -> u64 {
        flatpath_sys::thread_usage::voluntary_switches()
    }

    // Connections that come.

    /// Starts accepting connections.
    ///
    /// Failed(MFILE) or Failed(NFILE): no descriptor was free, and the connection waits in the
    /// backlog. Re-arm when a socket was closed or after a pause: at once would spin. Any other
    /// failure (CONNABORTED and its like) hit one connection: re-arm. The listener stays open until
    /// the final completion. An accept that began while a [`Predecessor`](crate::Predecessor) could
    /// accept too ends as if it was cancelled, some time after that is gone: re-arm.
    fn accept(&mut self, listener: &Listener, user_data: u64, mode: OperationMode);

    /// A connection that has come to a listener on which no accept is under way; never waits. For
    /// an end that loses nothing: the kernel wakes one of the threads that share a listener for
    /// each connection, and a cancelled accept may have been the one. One system call.
    fn accept_waiting(&mut self, listener: &Listener) -> Option<Socket>;

    /// Makes a connected stream socket usable with this driver, which owns it from now on. Sets the
    /// blocking mode this driver wants (one system call).
    ///
    /// # Errors
    /// The error of `fcntl`; the descriptor is closed then.
    fn register(&mut self, descriptor: OwnedFd) -> io::Result<Socket>;

    /// Where a connection comes from: one system call, none in the simulation. `None` as for
    /// [`Socket::peer`].
    fn peer(&self, socket: Socket) -> Option<SocketAddr> {
        socket.peer()
    }

    /// The address of this machine that a connection has come to: likewise.
    fn local(&self, socket: Socket) -> Option<SocketAddr> {
        socket.local()
    }

    // Connections to open.

    /// A socket to open a connection with, of which nothing is connected yet. Two system calls, one
    /// for a Unix socket.
    ///
    /// # Errors
    /// MFILE and NFILE: no descriptor is free. NOBUFS and NOMEM: no memory is. Others: the machine
    /// has no such sockets, as without IPv6.
    fn socket(&mut self, remote: &Remote) -> Result<Socket, Errno>;

    /// Starts connecting a socket that was made for this remote. Completes once (D9), in a
    /// [`Driver::wait`] as everything does, also where the outcome is known at once. For a Unix
    /// socket it always is: Failed(AGAIN) where as many connections wait as its listener takes.
    ///
    /// Cost: one system call, none on io_uring for TCP. On epoll three more in all for TCP: to
    /// begin and to end watching, and one that asks for the outcome.
    fn connect(&mut self, socket: Socket, remote: &Remote, user_data: u64);

    // Bytes in.

    /// Starts receiving into the pages of a region.
    ///
    /// Failed(NOBUFS) is a stall and never an end: no buffer was free at that time. Re-arm when
    /// [`Driver::free`] is above zero, and call [`Driver::await_pages`] before each wait until
    /// then. Whether a receive without data fails so when it is armed depends on the kernel. Any
    /// other failure means that the connection is broken.
    fn receive(&mut self, socket: Socket, user_data: u64, mode: OperationMode, region_id: u16);

    /// Starts receiving once into the pages of a region, and may share a page
    /// with receives before and after it, on any connection: see
    /// [`RegionConfig::small_receives`](crate::RegionConfig::small_receives). A driver that cannot
    /// do so takes a page.
    fn receive_sharing(&mut self, socket: Socket, user_data: u64, region_id: u16) {
        self.receive(socket, user_data, OperationMode::Single, region_id);
    }

    /// Receives what is there now into a buffer of the caller's, after what it holds, without
    /// waiting: completes once. For streams: one call brings as much as there is room for, and
    /// a waiting connection still holds no buffer, because the caller waits with
    /// [`Driver::receive`].
    ///
    /// At the end of the stream and on failure the buffer is dropped, which gives it back.
    ///
    /// # Panics
    /// When the buffer has no room.
    fn recv_into(&mut self, socket: Socket, user_data: u64, buffer: Buffer);

    /// Moves what has been received into a pipe, by reference, in this call (two to five system
    /// calls): no less than the one bound of `bytes`, no more than the other. Waits for nothing. No
    /// receive may be outstanding.
    ///
    /// `None`: less is there, the stream has ended or failed, no pipe is free, or this driver or
    /// this socket cannot do it. Receive then.
    fn splice_from(
        &mut self,
        socket: Socket,
        pipes: &Pipes,
        bytes: RangeInclusive<usize>,
    ) -> Option<Piped>;

    /// Lends what the socket receives to another thread, which moves it into a pipe, until the
    /// caller takes it back (C8). `None`: no descriptor is free. One system call.
    fn lend(&mut self, socket: Socket) -> Option<Lent> {
        socket.lend()
    }

    // Pages that they lie in.

    /// A region by its number.
    fn region(&self, region_id: u16) -> &Region;

    /// Pages of a region that can be received into at this moment: neither out as pieces nor
    /// retained.
    fn free(&self, region_id: u16) -> u32;

    /// As [`Driver::free`], for [`Driver::receive_sharing`].
    fn free_sharing(&self, region_id: u16) -> u32 {
        self.free(region_id)
    }

    /// The next [`Driver::wait`] returns when a page of the region is free, and at once if one is
    /// by then. For a caller with receives that failed for lack of a page: pages come back from
    /// other threads as well, at any time (D6). Holds for one wait, so call it before each.
    fn await_pages(&mut self, region_id: u16) {
        self.region(region_id).await_page();
    }

    /// As [`Driver::await_pages`], for [`Driver::receive_sharing`].
    fn await_sharing(&mut self, region_id: u16) {
        self.await_pages(region_id);
    }

    /// Takes a free page of a region that is [`Filling::Written`](crate::Filling::Written), as a
    /// piece of `bytes` bytes, at most a page. They are what the page held before, until the caller
    /// writes them ([`Region::bytes_of_mut`]). The piece is then used like one that was
    /// received. `None`: no page is free.
    fn take_page(&mut self, region_id: u16, bytes: usize) -> Option<Piece>;

    /// The bytes of a piece.
    fn bytes<'a>(&'a self, piece: &'a Piece) -> &'a [u8] {
        self.region(piece.region_id).bytes_of(piece)
    }

    /// The bytes of a piece, to be changed where they lie: what arrives encrypted is decrypted
    /// there.
    ///
    /// # Panics
    /// When something of the piece was retained.
    fn bytes_mut<'a>(&'a mut self, piece: &'a mut Piece) -> &'a mut [u8] {
        self.region(piece.region_id).bytes_of_mut(piece)
    }

    /// Gives a piece back; its buffer may be received into again, or, when something of it was
    /// [retained](Region::retain), once that is dropped.
    fn recycle(&mut self, piece: Piece);

    // Bytes out.

    /// Starts sending the whole list, and does what `after` says at its end. Short sends are
    /// continued.
    ///
    /// A list of more than 64 KiB shows its progress with completions that have `more`; what they
    /// count adds up to the list. A shorter one may complete in one step however slow the peer is.
    /// An empty one completes with zero bytes. The caller's list is empty afterwards.
    ///
    /// Failed(IO) also when a file in the list has become shorter than its range, or cannot be
    /// read; the file is notified before ([`SentFile::broke_off`](crate::SentFile::broke_off)).
    fn send(&mut self, socket: Socket, user_data: u64, list: &mut SendList, after: AfterSend);

    /// Whether this range may be sent: no call for it waits for a disk. What is not at hand is not
    /// to be put in a list, as all other connections would wait with it. System calls as
    /// [`SentFile::is_at_hand`](crate::SentFile::is_at_hand) has them.
    fn is_at_hand(&mut self, range: &FileRange) -> bool {
        range.file().is_at_hand(range.range())
    }

    /// Bounds what the kernel takes of a connection's output before it sends it, in bytes
    /// (`TCP_NOTSENT_LOWAT`). Nothing for sockets other than TCP's. One system call, in this call.
    fn set_unsent_max(&mut self, socket: Socket, bytes: u32) {
        socket.set_unsent_max(bytes);
    }

    /// Whether the kernel paces what this socket sends, so that a timer fires while much of it is
    /// queued (its congestion control is `bbr`). False in the simulation. One system call, in this
    /// call.
    fn is_paced(&mut self, socket: Socket) -> bool {
        socket.is_paced()
    }

    /// How far the peer's TCP is: the bytes that it has acknowledged since the connection began
    /// (`tcpi_bytes_acked`, tcp(7); RFC 4898, `tcpEStatsAppHCThruOctetsAcked`), which have reached
    /// the peer, where [`Outcome::Sent`](crate::Outcome::Sent) says only what the socket has taken;
    /// and whether it answers while its window is closed. They grow as slowly as the peer reads,
    /// in steps of up to half of its receive buffer. SYN and FIN may count as a byte each, so
    /// compare with what it was before.
    ///
    /// `None`: the driver does not know, as for sockets other than TCP's.
    ///
    /// Cost: one system call, in this call.
    fn delivery(&self, socket: Socket) -> Option<Delivery> {
        socket.delivery()
    }

    // Without a connection.

    /// Starts receiving datagrams into the pages of a region, one into each, until it is cancelled
    /// or fails. The driver holds the socket until the final completion.
    ///
    /// Failed with `more` is what was reported to the socket, as by ICMP; nothing follows from it.
    /// Failed(NOBUFS) is a stall, as for [`Driver::receive`]; meanwhile datagrams wait in the
    /// socket, which drops what it has no room for. Any other failure means that nothing can be
    /// received from this socket.
    ///
    /// # Panics
    /// When a page is not longer than [`DATAGRAM_HEAD_BYTES`](crate::DATAGRAM_HEAD_BYTES).
    fn receive_datagrams(&mut self, socket: Arc<DatagramSocket>, user_data: u64, region_id: u16);

    /// Starts watching an eventfd, which the driver keeps open: each completion has `more` and
    /// takes what was written since the last one. It lasts until it is cancelled; what is written
    /// after that stays in the eventfd. Failed: the descriptor cannot be watched.
    ///
    /// Cost: one system call for each completion, in addition to the wait's, and for epoll one to
    /// begin and one to end.
    fn poll_eventfd(&mut self, event: Arc<Eventfd>, user_data: u64);

    // Ends.

    /// Ends the sending direction (FIN); receiving continues. One system call.
    fn shutdown_write(&mut self, socket: Socket);

    /// Closes the socket. The kernel sends RST instead of FIN if bytes were received and not read.
    fn close(&mut self, socket: Socket);

    /// Closes the socket with RST. One system call more than [`Driver::close`].
    fn abort(&mut self, socket: Socket);

    /// Ends an operation early. Its final completion follows: Failed(CANCELED), or what it had come
    /// to before the cancel reached it. Does nothing when the final completion is out already.
    fn cancel(&mut self, operation: Operation<'_>, user_data: u64);

    // The driver itself.

    /// `uring`, `epoll` or `simulation`.
    fn kind(&self) -> &'static str;

    /// Counters since the start, and gauges.
    fn statistics(&self) -> DriverStatistics;
}
