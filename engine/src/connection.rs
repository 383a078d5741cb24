//! One connection: why it is read from or not, what is being sent, and how it ends.
//!
//! Plain state, touched by its network thread only, and private: `network/` asks it what to do and
//! notes what was done. Nothing here knows the driver, so all of it is tested without one.
//!
//! | file         | what is there                                               |
//! |--------------|-------------------------------------------------------------|
//! | state.rs     | the states that it is made of                               |
//! | inbox.rs     | what has come and was not consumed, as chunks               |
//! | input.rs     | what of it is next, if any                                  |
//! | reading.rs   | the receive, the reason not to read                         |
//! | writing.rs   | the send, the output, our end of the stream                 |
//! | opening.rs   | one that this server opens, until it stands                 |
//! | deadlines.rs | since when each deadline runs, which has passed, and rest   |
//!
//! Invariants
//! - C1: at most one receive and one send are outstanding.
//! - C2: a connection leaves the table only when neither is (or the driver closed it with the
//!   send), so a completion never meets a stranger in its slot.
//! - C3: `closing` only ever gets harder, but for one that is closed for a newcomer: it does not
//!   linger.
//!
//! Memory: an idle connection is this struct, its session and a wheel entry; no buffer.

pub(crate) mod behind_proxy;
pub(crate) mod output;
pub mod proxy_header;
mod deadlines;
mod inbox;
mod input;
mod layer;
mod lingering;
#[cfg(test)]
mod model;
mod opening;
mod reading;
mod secured;
mod state;
mod writing;

use std::net::SocketAddr;

use flatpath_driver::Socket;
use flatpath_structures::slots::Key;

use crate::connection::output::Output;
use crate::connection::proxy_header::Header;
use crate::limits::OUTPUT_LOW_POWER;
use crate::memory::holding::Holding;
use crate::memory::pages::PageKind;
use crate::network::waits::WaitSet;
use crate::observe::access_log::Logged;
use crate::pairs::PairEnd;
use crate::pairs::ends::{Close, Standing};
use crate::pairs::passing::Receiver;
use crate::protocol::hand_over::Becomes;
use crate::protocol::phase::Phase;

use state::{Clocks, Marks, Rare, Reading, Stream, Writing};

pub(crate) use deadlines::{Overdue, shortest_ns};
pub(crate) use inbox::{Chunk, Form, Inbox, Joined, Left, Next, Reason, Room, Supply};
pub(crate) use layer::Sealed;
pub(crate) use reading::NextReceive;
pub(crate) use state::{Closing, Receive};

/// See the module.
pub(crate) struct Connection {
    socket: Socket,
    session: Key,
    listener: u16,
    /// The number of the protocol that it was handed over to; 0 for the listener's own.
    successor: u16,
    /// Its line in the access log, if it is to have one.
    logged: Option<Box<Logged>>,
    phase: Phase,
    closing: Closing,
    jobs_out: u32,
    /// What few connections have.
    rare: Option<Box<Rare>>,
    /// Bytes consumed by the protocol and bytes sent, wrapping: whether anything moves.
    moved: u32,

    reading: Reading,
    stream: Stream,
    receive: Receive,
    /// The number of the latest receive; a completion of an older one is dropped.
    receive_operation: u8,
    /// What the next receive goes to.
    pages: PageKind,
    /// It takes more than its part, and this is how many short receives it has had in a row: see
    /// `network/long_input.rs`.
    bulk: Option<u8>,
    inbox: Inbox,

    writing: Writing,
    /// As for receives.
    send_operation: u8,
    output: Output,
    /// Output that is low: at it a stall for output is over, and the call is due of which a mark
    /// says that it is wanted. This power of two, or 0 for none.
    low_power: u8,

    clocks: Clocks,
    marks: Marks,

    /// The queues that it is in.
    pub(crate) waits: WaitSet,
    /// What it holds of the memory, as noted after its last event.
    pub(crate) holding: Holding,
    /// The phase that `admission.rs` knows of, and when it began.
    noted: (Phase, u64),
}

impl Connection {
    /// One of a listener, with a session of the listener's protocol or of the successor with this
    /// number.
    pub(crate) fn new(
        socket: Socket,
        listener: u16,
        (successor, session): (u16, Key),
        pages: PageKind,
        now_ns: u64,
    ) -> Connection {
        Connection {
            socket,
            session,
            listener,
            successor,
            logged: None,
            phase: Phase::Head,
            closing: Closing::No,
            jobs_out: 0,
            rare: None,
            moved: 0,
            reading: Reading::Open,
            stream: Stream::Silent,
            receive: Receive::Off,
            receive_operation: 0,
            pages,
            bulk: None,
            inbox: Inbox::default(),
            writing: Writing::Idle,
            send_operation: 0,
            output: Output::default(),
            low_power: OUTPUT_LOW_POWER,
            clocks: Clocks::new(now_ns),
            marks: Marks::default(),
            waits: WaitSet::default(),
            holding: Holding::default(),
            noted: deadlines::NOTHING_NOTED,
        }
    }

    pub(crate) fn socket(&self) -> Socket {
        self.socket
    }

    pub(crate) fn session(&self) -> Key {
        self.session
    }

    pub(crate) fn listener(&self) -> u16 {
        self.listener
    }

    /// It has a line in the access log at its end.
    pub(crate) fn begin_line(&mut self, logged: Logged) {
        self.logged = Some(Box::new(logged));
    }

    /// Counts received bytes for its line, if it has one.
    #[inline]
    pub(crate) fn log_received(&mut self, bytes: usize) {
        if let Some(logged) = &mut self.logged {
            logged.received(bytes);
        }
    }

    /// It has ended: what its line says, if it has one.
    pub(crate) fn take_line(&mut self) -> Option<Box<Logged>> {
        self.logged.take()
    }

    /// The number of the protocol that it was handed over to; 0 for the listener's own.
    #[inline]
    pub(crate) fn successor(&self) -> u16 {
        self.successor
    }

    /// Whether it has had anything of what few connections have, or a page in the hold.
    #[inline]
    pub(crate) fn has_more(&self) -> bool {
        // Without a branch: most have neither.
        self.rare.is_some() | self.inbox.has_held()
    }

    fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    /// A load balancer has named the client, or has said that there is none.
    pub(crate) fn is_introduced(&self) -> bool {
        self.rare
            .as_ref()
            .is_some_and(|rare| rare.introduced.is_some())
    }

    /// The client that a load balancer has named.
    pub(crate) fn client(&self) -> Option<SocketAddr> {
        self.rare.as_ref()?.introduced.flatten()
    }

    /// The PROXY header was read: the connection becomes one of its listener's protocol.
    pub(crate) fn introduce(&mut self, header: Header) {
        let rare = self.rare();
        rare.introduced = Some(header.client);
        rare.becomes = Some(Becomes::Introduced);
    }

    /// Its protocol is to be told of the drain late: see `network/ending.rs`. False: it is so
    /// already.
    pub(crate) fn comes_late(&mut self) -> bool {
        !self.marks.set(Marks::LATE, true)
    }

    pub(crate) fn is_late(&self) -> bool {
        self.marks.has(Marks::LATE)
    }

    /// It is notified now.
    pub(crate) fn is_told(&mut self) {
        self.marks.set(Marks::LATE, false);
    }

    pub(crate) fn phase(&self) -> Phase {
        self.phase
    }

    #[inline]
    pub(crate) fn closing(&self) -> Closing {
        self.closing
    }

    /// True while the connection is being ended, one way or another.
    #[inline]
    pub(crate) fn is_closing(&self) -> bool {
        self.closing > Closing::Input
    }

    /// Makes the end harder, never milder.
    pub(crate) fn close(&mut self, closing: Closing) {
        self.closing = self.closing.max(closing);
    }

    /// Ends the connection after its output without waiting for its peer's end: somewhere else its
    /// place is wanted. The one step back that C3 allows.
    pub(crate) fn close_without_lingering(&mut self) {
        if self.closing != Closing::Abort {
            self.closing = Closing::AfterOutput;
        }
    }

    /// What it is to become after this call; the last wish counts.
    pub(crate) fn becomes(&mut self, becomes: Becomes) {
        self.rare().becomes = Some(becomes);
    }

    #[inline]
    pub(crate) fn is_becoming(&self) -> bool {
        let rare = self.rare.as_ref();
        rare.is_some_and(|rare| rare.becomes.is_some())
    }

    pub(crate) fn take_becoming(&mut self) -> Option<Becomes> {
        let becomes = self.rare.as_mut()?.becomes.take();
        // Most connections need nothing of it from here on.
        self.rare = self.rare.take().filter(|rare| !rare.is_empty());
        becomes
    }

    #[inline]
    pub(crate) fn jobs_out(&self) -> u32 {
        self.jobs_out
    }

    #[inline]
    pub(crate) fn job_went_out(&mut self) {
        self.jobs_out += 1;
    }

    #[inline]
    pub(crate) fn job_came_back(&mut self) {
        self.jobs_out -= 1;
    }

    /// Bytes consumed by the protocol and bytes sent, wrapping: whether anything moves.
    pub(crate) fn moved(&self) -> u32 {
        self.moved
    }

    /// Counts bytes that moved between the peer and the protocol.
    #[inline]
    pub(crate) fn progress(&mut self, bytes: usize) {
        self.moved = self
            .moved
            .wrapping_add(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// Which end of which pair it is, if it is spliced.
    #[inline]
    pub(crate) fn pair(&self) -> Option<PairEnd> {
        self.rare.as_ref()?.pair
    }

    #[inline]
    pub(crate) fn is_spliced(&self) -> bool {
        self.pair().is_some()
    }

    /// What arrives goes to another connection from now on, and the protocol is not asked.
    pub(crate) fn splice(&mut self, end: PairEnd, now_ns: u64) {
        self.rare().pair = Some(end);
        self.take_stall();
        // Passed on and not kept: it needs no page of a listener's own.
        self.pages = PageKind::COMMON;
        self.start_phase(Phase::Spliced, now_ns);
    }

    /// Which end it was.
    pub(crate) fn unsplice(&mut self) -> Option<PairEnd> {
        self.rare.as_mut()?.pair.take()
    }

    /// How it stands as an end of a pair.
    pub(crate) fn standing(&self) -> Standing {
        Standing {
            closes: match self.closing {
                Closing::No | Closing::Input => None,
                Closing::AfterOutput | Closing::Lingering => Some(Close::AfterOutput),
                Closing::Abort => Some(Close::Reset),
            },
            has_ended: self.end_is_reported(),
            may_finish: self.may_finish(),
        }
    }

    /// The same where a piece has come.
    #[inline]
    pub(crate) fn as_receiver(&self) -> Receiver {
        Receiver {
            is_closing: !self.may_take_input(),
            holds_pieces: !self.inbox.holds_nothing(),
            has_tls: self.is_secured(),
        }
    }

    /// True while another protocol may take the connection over.
    pub(crate) fn may_be_handed_over(&self) -> bool {
        let is_single = self.jobs_out == 0 && !self.is_spliced();
        is_single && self.may_take_input() && self.stream != Stream::EndReported
    }

    /// Another protocol takes the connection over: what the one before it wished for the time after
    /// is forgotten, and all deadlines begin anew.
    pub(crate) fn change_protocol(&mut self, successor: u16, session: Key, now_ns: u64) {
        self.successor = successor;
        self.session = session;
        self.closing = Closing::No;
        self.take_becoming();
        self.jobs_out = 0;
        self.marks.set(Marks::OUTPUT_LOW, false);
        self.low_power = OUTPUT_LOW_POWER;
        self.take_stall();
        self.stall_is_over();
        // It has no region of its own.
        self.pages = PageKind::COMMON;
        self.start_phase(Phase::Head, now_ns);
        self.output.shrink();
    }

    /// True when a call of the protocol has left a wish beside output, or an earlier one waits.
    #[inline]
    pub(crate) fn has_wishes(&self) -> bool {
        let awaits_low = self.marks.has(Marks::OUTPUT_LOW);
        self.stalled().is_some() || awaits_low || self.closing != Closing::No
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn connection(now_ns: u64) -> Connection {
        // Nothing here touches the socket or the session.
        let session = Key {
            index: 0,
            generation: 1,
        };
        Connection::new(
            Socket::simulated(0),
            0,
            (0, session),
            PageKind::COMMON,
            now_ns,
        )
    }

    #[test]
    fn closing_only_gets_harder() {
        let mut connection = connection(0);
        connection.close(Closing::Lingering);
        connection.close(Closing::AfterOutput);
        assert_eq!(connection.closing(), Closing::Lingering);
        connection.close(Closing::Abort);
        connection.close_without_lingering();
        assert_eq!(connection.closing(), Closing::Abort);
    }

    #[test]
    fn one_that_is_closed_for_another_does_not_linger() {
        let mut connection = connection(0);
        connection.close(Closing::Lingering);
        connection.close_without_lingering();
        assert_eq!(connection.closing(), Closing::AfterOutput);
    }

    #[test]
    fn a_successor_does_not_receive_into_the_region_of_its_predecessor() {
        let mut connection = connection(0);
        connection.receive_into(PageKind::new(3, true));
        let session = connection.session();
        connection.change_protocol(1, session, 0);
        assert_eq!(connection.pages(), PageKind::COMMON);
    }

    #[test]
    fn an_idle_connection_is_small() {
        // The budget of an idle connection is 1 KiB, session and wheel entry included.
        assert!(
            size_of::<Connection>() <= 224,
            "{} bytes",
            size_of::<Connection>()
        );
    }
}
