//! One connection: what it waits for, what it holds, and how it ends.
//!
//! Plain state, touched by its network thread only; what is done about it is in `network/`. Its
//! deadlines are in `deadlines.rs`.
//!
//! Invariants
//! - C1: at most one receive and one send are outstanding.
//! - C2: a connection leaves the table only when neither is (or the driver closed it with the
//!   send), so a completion never meets a stranger in its slot.
//! - C3: `closing` only ever gets harder, but for one that is closed for a newcomer: it does not
//!   linger.
//!
//! Memory: an idle connection is this struct, its session and a wheel entry; no buffer.

use std::collections::VecDeque;

use flatpath_driver::{Piece, Quota, Socket};
use flatpath_structures::pool::Buffer;
use flatpath_structures::slots::Key;

use crate::access_log::Logged;
use crate::addresses::AddressId;
use crate::hand_over::Becomes;
use crate::limits::OUTPUT_LOW_POWER;
use crate::network::{Holds, WaitSet};
use crate::output::Output;
use crate::phase::{Phase, Stall};
use crate::proxy_header::Header;

/// How a connection is to end, from the mildest to the hardest; only ever made harder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Closing {
    No,
    AfterOutput,
    Lingering,
    Abort,
}

/// The wishes of a protocol, carried out when its call has returned.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) phase: Phase,
    pub(crate) phase_started: bool,
    pub(crate) notify_drained: bool,
    /// Output at which that, and a stall for output, is over: this power of two, or 0 for none.
    pub(crate) low_power: u8,
    pub(crate) input_wanted: bool,
    pub(crate) stall: Option<Stall>,
    pub(crate) closing: Closing,
    pub(crate) jobs_out: u32,
    /// What the connection is to become, after this call.
    pub(crate) becomes: Option<Becomes>,
}

impl Default for Control {
    fn default() -> Control {
        Control {
            phase: Phase::Head,
            phase_started: true,
            notify_drained: false,
            low_power: OUTPUT_LOW_POWER,
            input_wanted: true,
            stall: None,
            closing: Closing::No,
            jobs_out: 0,
            becomes: None,
        }
    }
}

impl Control {
    /// Output at which a writer that waits for that continues, in bytes.
    #[inline]
    pub(crate) fn output_bytes_low(&self) -> usize {
        1_usize << self.low_power & !1
    }

    /// Makes the end harder, never milder.
    pub(crate) fn close(&mut self, closing: Closing) {
        self.closing = self.closing.max(closing);
        self.input_wanted = false;
    }

    /// Ends the connection after its output without waiting for its peer's end: somewhere else its
    /// place is wanted. The one step back that C3 allows.
    pub(crate) fn close_without_lingering(&mut self) {
        if self.closing != Closing::Abort {
            self.closing = Closing::AfterOutput;
        }
        self.input_wanted = false;
    }
}

/// The state of the one receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Receive {
    Off,
    Once,
    Many,
    Cancelling,
}

/// The state of the one send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    Off,
    Going,
    Cancelling,
}

/// How far the peer's end of stream has been handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ended {
    No,
    /// The kernel said so; unconsumed input comes first.
    Seen,
    /// The protocol has been told.
    Told,
}

/// What a spliced connection knows of the other one; see `network/splice.rs`.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) key: Key,
    /// The last receive brought as much as it could: the next one fills a buffer of its own.
    pub(crate) streams: bool,
    /// The end of the other's stream was passed on.
    pub(crate) fin_sent: bool,
}

impl Peer {
    pub(crate) fn new(key: Key) -> Peer {
        Peer {
            key,
            streams: false,
            fin_sent: false,
        }
    }
}

/// Since when each deadline runs, in the driver's nanoseconds.
#[derive(Debug, Default)]
pub(crate) struct Clocks {
    pub(crate) phase_ns: u64,
    pub(crate) phase_bytes: u64,
    pub(crate) send_ns: u64,
    /// When it was last looked up what the peer has acknowledged, and how much that was.
    pub(crate) acked_ns: u64,
    pub(crate) acked_bytes: u64,
    /// When the stall for room began that has not ended in progress yet; 0 for none.
    pub(crate) stall_ns: u64,
    /// Since when the server itself does not receive; 0 while it does. See [`Connection::suspend`].
    pub(crate) suspended_ns: u64,
    pub(crate) linger_ns: u64,
    /// The deadline the wheel holds; `u64::MAX` when it holds none.
    pub(crate) armed_ns: u64,
}

/// See the module.
pub(crate) struct Connection {
    pub(crate) socket: Socket,
    pub(crate) session: Key,
    pub(crate) listener: u16,
    /// The number of the protocol that it was handed over to; 0 for the listener's own.
    pub(crate) successor: u16,
    /// What a load balancer said of it; see `behind_proxy.rs`.
    pub(crate) introduced: Option<Box<Header>>,
    /// Its line in the access log, if it is to have one.
    pub(crate) logged: Option<Box<Logged>>,
    /// Where it is counted; `Network::address_of` finds out.
    pub(crate) address: AddressId,
    /// The list of `network/resting.rs` that it is on, which is that of [`Phase::Idle`] or
    /// [`Phase::Head`], and the start of its phase when it was entered there.
    pub(crate) listed: Option<Phase>,
    pub(crate) listed_ns: u64,
    /// It was closed for another or refused, and counts for no limit any more.
    pub(crate) leaves: bool,
    /// The queues that it is in.
    pub(crate) waits: WaitSet,
    /// It takes more than its part: see `network/defer.rs`, also for the following.
    pub(crate) crowds: bool,
    /// Short receives in a row.
    pub(crate) calm: u8,
    /// Deadlines of sends in a row that began anew for a peer that only answers.
    pub(crate) spared: u8,
    /// Number of the latest operation; a completion of an older one is dropped.
    pub(crate) operation: u8,
    pub(crate) receive: Receive,
    pub(crate) send: Send,
    pub(crate) ended: Ended,
    /// A deadline has passed; it is counted once, however many follow while it closes.
    pub(crate) expired: bool,
    /// True once bytes have arrived: the next receive is a multishot one.
    pub(crate) spoke: bool,
    /// It lingers: our FIN is out.
    pub(crate) fin_sent: bool,
    /// Our FIN is out, and input is wanted: see [`Io::end_output`](crate::Io::end_output).
    pub(crate) output_ended: bool,
    pub(crate) stalled: Option<Stall>,
    /// On a list of connections that wait for a page; see `network/starve.rs`.
    pub(crate) starved: bool,
    /// As many fragments are held as may be: nothing is received until some are back.
    pub(crate) holds_too_much: bool,
    /// Which region the next receive goes to.
    pub(crate) region_id: u16,
    /// Whether what is received may share a page with others.
    pub(crate) shares: bool,
    /// Which region the outstanding receive goes to.
    pub(crate) receive_region_id: u16,
    /// Whether it may share a page.
    pub(crate) receive_shares: bool,
    /// Counts the fragments held; made with the first one.
    pub(crate) quota: Option<Quota>,
    pub(crate) control: Control,
    pub(crate) peer: Option<Peer>,
    pub(crate) output: Output,
    pub(crate) input: Option<Buffer>,
    /// Pieces that arrived while the connection was stalled, and how much of each is consumed.
    pub(crate) held: VecDeque<(Piece, u32)>,
    pub(crate) linger_bytes: u64,
    /// Bytes consumed by the protocol and bytes sent, wrapping: whether anything moves.
    pub(crate) moved: u32,
    pub(crate) holds: Holds,
    pub(crate) clocks: Clocks,
    pub(crate) receive_operation: u8,
    pub(crate) send_operation: u8,
}

impl Connection {
    pub(crate) fn new(socket: Socket, listener: u16, session: Key, now_ns: u64) -> Connection {
        Connection {
            socket,
            session,
            listener,
            successor: 0,
            introduced: None,
            logged: None,
            address: AddressId::UNKNOWN,
            listed: None,
            listed_ns: 0,
            leaves: false,
            waits: WaitSet::default(),
            crowds: false,
            calm: 0,
            spared: 0,
            operation: 0,
            receive: Receive::Off,
            send: Send::Off,
            ended: Ended::No,
            expired: false,
            spoke: false,
            fin_sent: false,
            output_ended: false,
            stalled: None,
            starved: false,
            holds_too_much: false,
            region_id: 0,
            shares: false,
            receive_region_id: 0,
            receive_shares: false,
            quota: None,
            control: Control::default(),
            peer: None,
            output: Output::default(),
            input: None,
            held: VecDeque::new(),
            linger_bytes: 0,
            moved: 0,
            holds: Holds::default(),
            clocks: Clocks {
                phase_ns: now_ns,
                armed_ns: u64::MAX,
                ..Clocks::default()
            },
            receive_operation: 0,
            send_operation: 0,
        }
    }

    /// Stops input for `stall`. A stall for room has one deadline from its beginning, however often
    /// it is tried again: only [`Connection::stall_ended`] ends the episode. False: it goes on.
    pub(crate) fn stall(&mut self, stall: Stall, now_ns: u64) -> bool {
        self.stalled = Some(stall);
        if !stall.is_timed() {
            return true;
        }
        let begins = self.clocks.stall_ns == 0;
        if begins {
            self.clocks.stall_ns = now_ns.max(1);
        }
        begins
    }

    /// Something moved, or the connection is not stalled for room any more.
    pub(crate) fn stall_ended(&mut self, now_ns: u64) {
        let is_timed = self.stalled.is_some_and(Stall::is_timed);
        self.clocks.stall_ns = if is_timed { now_ns.max(1) } else { 0 };
    }

    /// A stall was tried to end since `before` had moved. False: nothing has moved since, so its
    /// deadline stays where it is.
    pub(crate) fn note_retry(&mut self, before: u32, now_ns: u64) -> bool {
        let is_stalled = self.stalled.is_some_and(Stall::is_for_room);
        let has_moved = self.moved != before || !is_stalled;
        if has_moved {
            self.stall_ended(now_ns);
        }
        has_moved
    }

    /// Counts bytes that moved between the peer and the protocol.
    pub(crate) fn progress(&mut self, bytes: usize) {
        self.moved = self
            .moved
            .wrapping_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// True when what is being sent is the last of it: the send closes the socket as well.
    pub(crate) fn is_at_last_send(&self) -> bool {
        self.control.closing == Closing::AfterOutput
            && self.receive == Receive::Off
            && !self.output.has_waiting()
    }

    /// Whether a deadline for a head means that its protocol has forgotten a phase, in all
    /// likelihood: something was sent since the deadline runs, and nothing that was received waits
    /// to be understood.
    pub(crate) fn was_answered_in_phase(&self) -> bool {
        self.clocks.send_ns > self.clocks.phase_ns && self.is_sent() && self.input.is_none()
    }

    /// True while bytes are to be received: for the protocol, or to be dropped while lingering.
    pub(crate) fn wants_input(&self) -> bool {
        let offers = self.takes_input() && !self.holds_too_much;
        let drops = self.control.closing == Closing::Lingering && self.fin_sent;
        self.ended == Ended::No && (offers || drops)
    }

    /// The common case: what is to be received is being received.
    #[inline]
    pub(crate) fn receives_as_wanted(&self) -> bool {
        let is_same_region = self.region_id == self.receive_region_id;
        let is_many = self.receive == Receive::Many && is_same_region && !self.crowds;
        is_many && self.wants_input()
    }

    /// True when input may be offered to the protocol, now or when a stall is over.
    pub(crate) fn may_be_offered(&self) -> bool {
        self.control.closing == Closing::No && self.control.input_wanted
    }

    /// True when input may be offered to the protocol now.
    pub(crate) fn takes_input(&self) -> bool {
        self.may_be_offered() && self.stalled.is_none()
    }

    /// True when the protocol has been offered all that arrived.
    pub(crate) fn was_offered_all(&self) -> bool {
        self.held.is_empty() && self.stalled.is_none() && !self.waits.is_deferred()
    }

    /// True while another protocol may take the connection over.
    pub(crate) fn may_be_handed_over(&self) -> bool {
        let is_single = self.control.jobs_out == 0 && self.peer.is_none();
        is_single && self.may_be_offered() && self.ended != Ended::Told
    }

    /// Another protocol takes the connection over: what the one before it wished for the time after
    /// is forgotten, and all deadlines begin anew.
    pub(crate) fn change_protocol(&mut self, successor: u16, session: Key) {
        self.successor = successor;
        self.session = session;
        self.control = Control::default();
        self.stalled = None;
        self.clocks.stall_ns = 0;
        // It has no region of its own.
        self.region_id = 0;
        self.shares = false;
        self.output.shrink();
    }

    /// True while it is stalled for want of memory.
    pub(crate) fn waits_for_memory(&self) -> bool {
        self.stalled == Some(Stall::Memory)
    }

    /// True when a call of the protocol has left a wish beside output, or an earlier one waits.
    #[inline]
    pub(crate) fn has_wishes(&self) -> bool {
        let control = &self.control;
        let is_stalled = self.stalled.is_some() || control.stall.is_some();
        is_stalled || control.notify_drained || !control.input_wanted
    }

    /// Nothing is left to send and nothing is being sent.
    pub(crate) fn is_sent(&self) -> bool {
        self.send == Send::Off && !self.output.has_waiting()
    }

    /// What the connection waits for while nothing of it is in work, held back or on its way out:
    /// [`Phase::Idle`] or [`Phase::Head`]. Such a connection may be closed for a newcomer.
    pub(crate) fn rests(&self) -> Option<Phase> {
        let control = &self.control;
        let is_busy = control.closing != Closing::No
            || control.jobs_out > 0
            || control.becomes.is_some()
            || self.peer.is_some()
            || self.stalled.is_some()
            || self.holds_too_much
            || self.starved
            || self.waits.is_deferred()
            || !self.is_sent();
        let phase = control.phase;
        (!is_busy && matches!(phase, Phase::Idle | Phase::Head)).then_some(phase)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixStream;

    use flatpath_driver::epoll::Epoll;
    use flatpath_driver::{Driver, DriverConfig};
    use flatpath_structures::slots::Slots;

    use super::*;

    #[test]
    fn closing_only_gets_harder() {
        let mut control = Control::default();
        control.close(Closing::Lingering);
        control.close(Closing::AfterOutput);
        assert_eq!(control.closing, Closing::Lingering);
        control.close(Closing::Abort);
        assert_eq!(control.closing, Closing::Abort);
    }

    fn connection() -> Connection {
        // Any socket and any session will do: nothing here touches them.
        let mut driver = Epoll::new(&DriverConfig::default()).expect("epoll is everywhere");
        let (one, _) = UnixStream::pair().expect("a pair");
        let socket = driver.register(one.into()).expect("registered");
        let session = Slots::new(1).insert(()).expect("room");
        Connection::new(socket, 0, session, 0)
    }

    #[test]
    fn a_connection_with_a_job_out_does_not_rest() {
        let mut connection = connection();
        assert_eq!(connection.rests(), Some(Phase::Head));
        connection.control.jobs_out = 1;
        assert_eq!(connection.rests(), None);
    }

    #[test]
    fn a_successor_does_not_receive_into_the_region_of_its_predecessor() {
        let mut connection = connection();
        (connection.region_id, connection.shares) = (3, true);
        let session = connection.session;
        connection.change_protocol(1, session);
        assert_eq!((connection.region_id, connection.shares), (0, false));
    }

    #[test]
    fn an_idle_connection_is_small() {
        // The budget of an idle connection is 1 KiB, session and wheel entry included.
        assert!(
            size_of::<Connection>() <= 384,
            "{} bytes",
            size_of::<Connection>()
        );
    }
}
